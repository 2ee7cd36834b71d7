//! Control messages: four words to the crates above in another process. They need no receive, are
//! not matched, and no call waits for them.

use crate::base::header::Fields;
use crate::base::key::ProcId;
use std::collections::VecDeque;

/// The words of a control message. The crates above define them.
pub type ControlMessage = [u64; 4];

/// Maximum number of unread control messages. Later ones are dropped. A choice.
const UNREAD_MAX: usize = 1024;

/// Control messages that have arrived and have not been read.
#[derive(Default)]
pub(crate) struct ControlQueue {
    unread: VecDeque<(ProcId, ControlMessage)>,
}

impl ControlQueue {
    /// A control message has arrived.
    pub fn on_control(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let words = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        if self.unread.len() < UNREAD_MAX {
            self.unread.push_back((from, words));
        }
        Some(())
    }

    /// The oldest unread message, with its sender.
    pub fn next(&mut self) -> Option<(ProcId, ControlMessage)> {
        self.unread.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::header::{self, Header};
    use crate::protocol::engine::Engine;
    use ferry_transport::Inbox;

    #[test]
    fn messages_keep_their_order_and_excess_ones_are_dropped() {
        let mut engine = Engine::new(0);
        for n in 0..UNREAD_MAX as u64 + 5 {
            let head = Header::new().u64(n).u64(1).u64(2).u64(3);
            engine.on_message(7, header::CONTROL, head.bytes());
        }
        assert_eq!(engine.control.unread.len(), UNREAD_MAX);
        assert_eq!(engine.control.unread[1], (7, [1, 1, 2, 3]));
        engine.on_message(7, header::CONTROL, &[0; 31]);
        assert_eq!(engine.malformed, 1, "too short");
    }
}
