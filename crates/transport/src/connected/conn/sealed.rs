//! Encrypted connections: frames travel in records that the sender seals and the receiver opens.

use super::frame::{self, Found};
use super::receive::{merge, read};
use super::send::{QUEUE_MAX_BYTES, stream_start};
use super::{Broken, Conn, Direction};
use crate::Inbox;
use ferry_auth::{HEADER_BYTES, Opener, PAYLOAD_MAX_BYTES, Sealer, TAG_BYTES, body_bytes};

/// Bytes of a stream frame, its header included: two records. A choice: half of what may wait for
/// room in the socket.
const STREAM_BYTES: usize = 2 * PAYLOAD_MAX_BYTES;
const _: () = assert!(STREAM_BYTES <= QUEUE_MAX_BYTES);

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
        if self.seal.is_none() {
            return Ok(());
        }
        let plain = self.sender.queue.split_off(at);
        self.queue_sealed([&plain, &[]])
    }

    /// Queues these bytes in records, the second behind the first. Each is copied once.
    fn queue_sealed(&mut self, mut runs: [&[u8]; 2]) -> Result<(), Broken> {
        let Some(seal) = &mut self.seal else {
            return Ok(());
        };
        let queue = &mut self.sender.queue;
        let bytes: usize = runs.iter().map(|run| run.len()).sum();
        let records = bytes.div_ceil(PAYLOAD_MAX_BYTES);
        queue.reserve(bytes + records * (HEADER_BYTES + TAG_BYTES));
        for _ in 0..records {
            let start = queue.len();
            queue.extend_from_slice(&[0; HEADER_BYTES]);
            let mut room = PAYLOAD_MAX_BYTES;
            for run in &mut runs {
                let (part, rest) = run.split_at(room.min(run.len()));
                queue.extend_from_slice(part);
                (*run, room) = (rest, room - part.len());
            }
            queue.extend_from_slice(&[0; TAG_BYTES]);
            let sealed = seal.sealer.seal(&mut queue[start..]);
            sealed.map_err(|_| Broken::Malformed("nothing: a record could not be sealed"))?;
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
        // Whole records: the start of the frame is not to leave a short one at its end.
        let part = &body[..body
            .len()
            .min(STREAM_BYTES - frame::HEADER_BYTES - head.len())];
        let (start, n) = stream_start(message, head, part.len());
        self.sender.compact();
        self.queue_sealed([&start[..n], part])?;
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
            // Mostly a record is here as a whole, and is opened where it lies.
            if seal.partial.is_empty()
                && let Some(header) = bytes.first_chunk::<HEADER_BYTES>()
            {
                let whole = HEADER_BYTES + body_bytes(header).map_err(bad)?;
                if whole <= bytes.len() {
                    let (record, rest) = bytes.split_at_mut(whole);
                    bytes = rest;
                    let plain = seal.opener.open(record).map_err(bad)?;
                    let found = self.receiver.reader.feed(self.peer, plain, inbox);
                    merge(all, found.map_err(Broken::Malformed)?);
                    continue;
                }
            }
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
