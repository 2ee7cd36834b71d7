//! Reassembly of data that came in several messages of the general queue.

use super::header::{DataType, Header};

/// A datum of which a part has come.
struct Partial {
    data_type: DataType,
    user: u8,
    total: usize,
    bytes: Vec<u8>,
}

/// What has come from one node. The hardware keeps the order of a node's messages, and a sender
/// sends the messages of a datum in a row. So at most one datum is incomplete.
#[derive(Default)]
pub(super) struct Assembly {
    /// [`Header::sequence`] of the next message.
    next: u16,
    partial: Option<Partial>,
}

/// A datum that is whole: its type, its user, its bytes.
pub(super) type Datum = (DataType, u8, Vec<u8>);

impl Assembly {
    /// A message has come. Returns the datum if this was its last part. The error says what is
    /// wrong with it.
    pub fn add(&mut self, message: &[u8]) -> Result<Option<Datum>, &'static str> {
        let (header, part) = Header::parse(message)?;
        if header.sequence != self.next {
            return Err("a message out of order");
        }
        self.next = self.next.wrapping_add(1);
        let total = header.total as usize;
        let partial = self.partial.get_or_insert_with(|| Partial {
            data_type: header.data_type,
            user: header.user,
            total,
            bytes: Vec::with_capacity(total),
        });
        let belongs = partial.data_type == header.data_type
            && partial.user == header.user
            && partial.total == total
            && partial.bytes.len() == header.offset as usize;
        if !belongs {
            return Err("a part that does not follow the one before it");
        }
        partial.bytes.extend_from_slice(part);
        if partial.bytes.len() < total {
            return Ok(None);
        }
        let whole = self.partial.take();
        Ok(whole.map(|w| (w.data_type, w.user, w.bytes)))
    }

    /// Returns whether no datum is incomplete.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.partial.is_none()
    }
}
