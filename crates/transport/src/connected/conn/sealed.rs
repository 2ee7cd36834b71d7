//! Encrypted connections: frames travel in records that the sender seals and the receiver opens.

use super::frame::{self, Found, Kind};
use super::receive::{merge, read};
use super::send::QUEUE_MAX_BYTES;
use super::{Broken, Conn, Direction};
use crate::Inbox;
use ferry_auth::{HEADER_BYTES, Opener, PAYLOAD_MAX_BYTES, Sealer, TAG_BYTES, body_bytes};

/// The keys of both directions of an encrypted connection.
pub struct Seal {
    pub sealer: Sealer,
    pub opener: Opener,
    /// What has come of a record that is not complete.
    partial: Vec<u8>,
}

impl Seal {
    pub fn new((sealer, opener): (Sealer, Opener)) -> Seal {
        Seal {
            sealer,
            opener,
            partial: Vec::new(),
        }
    }
}

impl Conn {
    /// Seals the bytes of the queue from `at` on into records, if this connection is encrypted.
    pub(super) fn seal_from(&mut self, at: usize) -> Result<(), Broken> {
        let Some(seal) = &mut self.seal else {
            return Ok(());
        };
        let plain = self.sender.queue.split_off(at);
        for part in plain.chunks(PAYLOAD_MAX_BYTES) {
            let start = self.sender.queue.len();
            self.sender.queue.extend_from_slice(&[0; HEADER_BYTES]);
            self.sender.queue.extend_from_slice(part);
            self.sender.queue.extend_from_slice(&[0; TAG_BYTES]);
            seal.sealer
                .seal(&mut self.sender.queue[start..])
                .map_err(|_| Broken::Malformed("nothing: a record could not be sealed"))?;
        }
        Ok(())
    }

    /// Sends from the front of a stream's body, as a frame of its own in records. Returns how many
    /// bytes were taken.
    pub(super) fn sealed_stream(
        &mut self,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<usize, Broken> {
        let part = &body[..body.len().min(QUEUE_MAX_BYTES / 2)];
        let n = frame::HEADER_BYTES + head.len();
        let at = self.sender.reserve(n + part.len());
        let out = &mut self.sender.queue[at..];
        out[..frame::HEADER_BYTES].copy_from_slice(&frame::header(
            Kind::Stream,
            message,
            head.len(),
            head.len() + part.len(),
        ));
        out[frame::HEADER_BYTES..n].copy_from_slice(head);
        out[n..].copy_from_slice(part);
        self.seal_from(at)?;
        self.flush()?;
        self.sender.direction = Direction::Open;
        Ok(part.len())
    }

    /// One read of an encrypted connection. Returns how many bytes came.
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
            // First the header, then as many bytes as it names.
            let needs = match seal.partial.first_chunk::<HEADER_BYTES>() {
                Some(header) => HEADER_BYTES + body_bytes(header).map_err(bad)?,
                None => HEADER_BYTES,
            };
            let take = (needs - seal.partial.len()).min(bytes.len());
            let (mine, rest) = bytes.split_at_mut(take);
            bytes = rest;
            seal.partial.extend_from_slice(mine);
            let whole = match seal.partial.first_chunk::<HEADER_BYTES>() {
                Some(header) => HEADER_BYTES + body_bytes(header).map_err(bad)?,
                None => usize::MAX,
            };
            if seal.partial.len() == whole {
                let mut record = std::mem::take(&mut seal.partial);
                let plain = seal.opener.open(&mut record).map_err(bad)?;
                let found = self.receiver.reader.feed(self.peer, plain, inbox);
                merge(all, found.map_err(Broken::Malformed)?);
                record.clear();
                seal.partial = record;
            }
        }
        Ok(n)
    }
}
