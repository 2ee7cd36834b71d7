//! Active messages of the crates above: bytes to the same crate in another process, which handles
//! them when it makes progress. They need no receive and are not matched. None is dropped.

use crate::base::header::{self, Header};
use crate::base::key::ProcId;
use crate::protocol::engine::Worker;
use crate::queue::outgoing::{Outgoing, Payload};
use ferry_transport::{Body, SendStatus};
use std::collections::VecDeque;

/// Active messages that have arrived and have not been handled.
#[derive(Default)]
pub(crate) struct ActiveQueue {
    arrived: VecDeque<(ProcId, Box<[u8]>)>,
    /// How many times the layer above expects messages.
    expecting: u32,
}

impl ActiveQueue {
    /// An active message has arrived.
    pub fn on_active(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        self.arrived.push_back((from, bytes.into()));
        Some(())
    }

    /// The oldest message, with its sender.
    pub fn next(&mut self) -> Option<(ProcId, Box<[u8]>)> {
        self.arrived.pop_front()
    }

    /// Is there a message?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Messages are expected once more, or once less.
    pub fn set_expected(&mut self, expected: bool) {
        if expected {
            self.expecting += 1;
        } else {
            self.expecting = self.expecting.saturating_sub(1);
        }
    }

    /// May a message arrive at any time?
    #[inline]
    pub fn is_expecting(&self) -> bool {
        self.expecting > 0
    }
}

impl Worker {
    /// Sends an active message. It is queued if there is no room for it, or if other messages wait
    /// before it. To a lost peer it is dropped.
    pub fn send_active(&mut self, to: ProcId, bytes: Box<[u8]>) {
        if self.engine.lost_peers.contains(to) {
            return;
        }
        if self.engine.outbox.is_empty_for(to) {
            let body = Body::Bytes(&bytes);
            match self.transports.send(to, header::ACTIVE, &[], body) {
                Ok(SendStatus::Done) => return self.count_sent(to),
                Ok(SendStatus::Full) => {}
                Err(e) => return self.fail_transport(&e),
            }
        }
        let message = Outgoing {
            message: header::ACTIVE,
            head: Header::new(),
            payload: Payload::Owned(bytes),
        };
        self.engine.outbox.push(to, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::engine::Engine;
    use ferry_transport::Inbox;

    #[test]
    fn all_messages_are_kept_in_order_and_are_activity() {
        let mut engine = Engine::new(0);
        let before = engine.activity();
        for n in 0..5000u32 {
            engine.on_message(n % 3, header::ACTIVE, &n.to_le_bytes());
        }
        engine.on_message(7, header::ACTIVE, &[]);
        assert_eq!(engine.activity(), before + 5001);
        for n in 0..5000u32 {
            let (from, bytes) = engine.active.next().unwrap();
            assert_eq!((from, &bytes[..]), (n % 3, &n.to_le_bytes()[..]));
        }
        assert_eq!(engine.active.next(), Some((7, Box::default())));
        assert!(engine.active.is_empty());
        assert_eq!(engine.malformed, 0);
    }
}
