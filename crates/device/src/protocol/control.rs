//! Words that the floor above sends to its like in other processes: nobody waits for them, no
//! receive has to be posted, and they match nothing.

use crate::base::header::{self, Fields, Header};
use crate::base::key::ProcId;
use crate::device::Device;
use crate::protocol::engine::{Engine, Outgoing};

/// A word: what it means is the floor above's business.
pub type ControlMessage = [u64; 4];

/// Unread words that are kept; what comes beyond that is dropped.
const KEPT: usize = 1024;

impl Device {
    /// Says something to a process. It may be lost if that process never looks ([`Device::next_control`]).
    pub fn send_control(&mut self, to: ProcId, note: ControlMessage) {
        let head = note.into_iter().fold(Header::new(), Header::u64);
        self.engine.queue(to, Outgoing::head(header::CONTROL, head));
        self.flush();
    }

    /// The oldest word that has come and has not been read, and who said it.
    pub fn next_control(&mut self) -> Option<(ProcId, ControlMessage)> {
        self.engine.notes.pop_front()
    }
}

impl Engine {
    /// A word has come.
    pub(crate) fn note_came(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let note = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        if self.notes.len() < KEPT {
            self.notes.push_back((from, note));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_transport::Inbox;

    #[test]
    fn words_come_in_order_and_too_many_are_dropped() {
        let mut engine = Engine::new(0);
        for n in 0..KEPT as u64 + 5 {
            let head = Header::new().u64(n).u64(1).u64(2).u64(3);
            engine.on_message(7, header::CONTROL, head.bytes());
        }
        assert_eq!(engine.notes.len(), KEPT);
        assert_eq!(engine.notes[1], (7, [1, 1, 2, 3]));
        engine.on_message(7, header::CONTROL, &[0; 31]);
        assert_eq!(engine.malformed, 1, "too short");
    }
}
