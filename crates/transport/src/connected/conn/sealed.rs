//! Encrypted connections: frames in records that are sealed and opened.

use super::frame::{self, Found, Kind};
use super::receive::{merge, read};
use super::send::QUEUE_MAX_BYTES;
use super::{Broken, Conn, Direction};
use crate::Inbox;
use ferry_auth::{HEADER_BYTES, Opener, PAYLOAD_MAX_BYTES, Sealer, TAG_BYTES, body_bytes};

/// Both directions' keys, where everything is encrypted.
pub struct Seal {
    pub sealer: Sealer,
    pub opener: Opener,
    /// A record that has come in part.
    begun: Vec<u8>,
}

impl Seal {
    pub fn new((sealer, opener): (Sealer, Opener)) -> Seal {
        Seal {
            sealer,
            opener,
            begun: Vec::new(),
        }
    }
}

impl Conn {
    /// Seals what stands in the queue from `at` on, if this connection is encrypted.
    pub(super) fn seal_from(&mut self, at: usize) -> Result<(), Broken> {
        let Some(seal) = &mut self.seal else {
            return Ok(());
        };
        let plain = self.sender.queue.split_off(at);
        for piece in plain.chunks(PAYLOAD_MAX_BYTES) {
            let start = self.sender.queue.len();
            self.sender.queue.extend_from_slice(&[0; HEADER_BYTES]);
            self.sender.queue.extend_from_slice(piece);
            self.sender.queue.extend_from_slice(&[0; TAG_BYTES]);
            seal.sealer
                .seal(&mut self.sender.queue[start..])
                .map_err(|_| Broken::Malformed("nothing: a record could not be sealed"))?;
        }
        Ok(())
    }

    /// A piece of a stream as a frame of its own, in records.
    pub(super) fn sealed_stream(
        &mut self,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<usize, Broken> {
        let piece = &body[..body.len().min(QUEUE_MAX_BYTES / 2)];
        let n = frame::HEADER_BYTES + head.len();
        let at = self.sender.reserve(n + piece.len());
        let out = &mut self.sender.queue[at..];
        out[..frame::HEADER_BYTES].copy_from_slice(&frame::header(
            Kind::Stream,
            message,
            head.len(),
            head.len() + piece.len(),
        ));
        out[frame::HEADER_BYTES..n].copy_from_slice(head);
        out[n..].copy_from_slice(piece);
        self.seal_from(at)?;
        self.flush()?;
        self.sender.direction = Direction::Open;
        Ok(piece.len())
    }

    pub(super) fn receive_sealed(
        &mut self,
        scratch: &mut [u8],
        inbox: &mut dyn Inbox,
        all: &mut Found,
    ) -> Result<usize, Broken> {
        let Some(n) = read(&self.socket, scratch)? else {
            return Ok(0);
        };
        let Some(seal) = &mut self.seal else {
            return Ok(0);
        };
        let bad = |_| Broken::Malformed("a record that is not genuine");
        let mut bytes = &mut scratch[..n];
        while !bytes.is_empty() {
            // Header first, then the length that it names.
            let needs = match seal.begun.first_chunk::<HEADER_BYTES>() {
                Some(header) => HEADER_BYTES + body_bytes(header).map_err(bad)?,
                None => HEADER_BYTES,
            };
            let take = (needs - seal.begun.len()).min(bytes.len());
            let (mine, rest) = bytes.split_at_mut(take);
            bytes = rest;
            seal.begun.extend_from_slice(mine);
            let whole = match seal.begun.first_chunk::<HEADER_BYTES>() {
                Some(header) => HEADER_BYTES + body_bytes(header).map_err(bad)?,
                None => usize::MAX,
            };
            if seal.begun.len() == whole {
                let mut record = std::mem::take(&mut seal.begun);
                let plain = seal.opener.open(&mut record).map_err(bad)?;
                let found = self.receiver.reader.feed(self.peer, plain, inbox);
                merge(all, found.map_err(Broken::Malformed)?);
                record.clear();
                seal.begun = record;
            }
        }
        Ok(n)
    }
}
