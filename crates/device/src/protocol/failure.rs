//! Broken wires: what is under way with a lost peer fails, and what is asked of it later fails at
//! once.

use crate::base::buffer::Sink;
use crate::base::key::{Pattern, ProcId};
use crate::base::request::{Fault, Operation, ReqId};
use crate::device::Device;
use crate::protocol::engine::Engine;
use ferry_transport::TransportError;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What broke a transport of this process, last.
static TROUBLE: Mutex<Option<String>> = Mutex::new(None);

fn note() -> MutexGuard<'static, Option<String>> {
    TROUBLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What broke a transport, if one is broken. With the device's lock or without.
pub fn last_failure() -> Option<String> {
    note().clone()
}

/// Remembers what broke a transport, unless something has before.
#[cold]
pub(crate) fn note_first(e: &TransportError) {
    note().get_or_insert_with(|| e.to_string());
}

impl Device {
    /// A wire is broken: what is under way with its peer will not complete by itself any more, and
    /// who waits for anybody's message cannot know that it is not that peer's.
    #[cold]
    pub(crate) fn break_down(&mut self, e: &TransportError) {
        *note() = Some(e.to_string());
        match e.peer() {
            Some(peer) => {
                self.engine.lost.insert(peer);
                self.engine.fail_peer(peer);
            }
            None => self.engine.requests.fail_all(Fault::Transport),
        }
    }

    /// Is it known that nothing will come from this process any more?
    #[inline]
    pub fn is_lost(&self, peer: ProcId) -> bool {
        !self.engine.lost.is_empty() && self.engine.lost.contains(&peer)
    }

    /// Starts a receive of a message that only process `from` can send. If that process is lost and
    /// its message is not here, the request has already failed.
    ///
    /// # Safety
    /// As for [`Device::receive`].
    #[inline]
    pub unsafe fn receive_from(&mut self, from: ProcId, pattern: Pattern, sink: Sink) -> ReqId {
        // SAFETY: the caller's promise.
        let req = unsafe { self.receive(pattern, sink) };
        if self.is_lost(from) && self.engine.matcher.withdraw(pattern.context, req) {
            self.engine.requests.fail(req, Fault::Transport);
        }
        req
    }
}

impl Engine {
    /// Completes with a fault what cannot complete without `peer`.
    fn fail_peer(&mut self, peer: ProcId) {
        let queued = self.forget_queue(peer);
        self.incoming.remove(&peer);
        self.speculative.forget(peer);
        self.early_edges.retain(|(from, _), _| *from != peer);
        let mut failed = queued;
        failed.extend(self.held_of(peer));
        let mut unmatched = Vec::new();
        for (req, operation) in self.requests.under_way() {
            match operation {
                Operation::SendWaiting { to } | Operation::SendLarge { to, .. } if *to == peer => {
                    failed.push(req);
                }
                Operation::Receive {
                    stream: Some(stream),
                    ..
                } if stream.from == peer => failed.push(req),
                Operation::Receive {
                    context,
                    stream: None,
                    ..
                } => unmatched.push((*context, req)),
                _ => {}
            }
        }
        for (context, req) in unmatched {
            if self.matcher.withdraw(context, req) {
                failed.push(req);
            }
        }
        for req in failed {
            self.requests.fail(req, Fault::Transport);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::header::{self, Header};
    use crate::base::key::{ContextId, Key, Tags};
    use crate::progress::wait::WaitPolicy;
    use crate::{SendMode, Source};
    use ferry_job::{RankInfo, RankStatus};
    use ferry_transport::Inbox;

    fn pattern(source: u32) -> Pattern {
        Pattern {
            context: ContextId::WORLD,
            source: Some(source),
            tag: Tags::one(7),
        }
    }

    fn alone() -> Device {
        let status: &RankStatus = Box::leak(Box::default());
        let patience = WaitPolicy::new(1, 1);
        let alone = RankInfo::on_one_host(0, 1, "here");
        Device::new(&alone, None, None, status, patience, false).unwrap()
    }

    fn cable_pulled() -> TransportError {
        TransportError::Lost {
            peer: 1,
            host: "far".into(),
            what: "the cable was pulled".into(),
        }
    }

    #[test]
    fn a_held_receive_fails_with_its_sender_announced_or_not() {
        let mut d = alone();
        let mut rooms = [vec![0u8; 100_000], vec![0u8; 100_000]];
        let mut held = Vec::new();
        for room in &mut rooms {
            let sink = Sink::Bytes {
                ptr: room.as_mut_ptr(),
                cap: room.len(),
            };
            // SAFETY: the room outlives the device's use of it.
            held.push(unsafe { d.receive_deferred(1, pattern(1), sink, [0, 0]) });
        }
        let key = Key {
            context: ContextId::WORLD,
            source: 1,
            tag: 7,
        };
        let head = Header::new().key(&key).u64(100_000).u64(0).u32(5);
        d.engine.on_message(1, header::RTS, head.bytes());
        assert!(d.is_announced(held[0]) && !d.is_announced(held[1]));
        assert!(held.iter().all(|&req| !d.is_complete(req)));
        d.break_down(&cable_pulled());
        // Somebody touches what it was to bring.
        d.release_deferred(held[0]);
        d.release_deferred(held[1]);
        for req in held {
            assert!(d.has_edges(req));
            assert!(d.take_deferred(req).fault.is_some());
        }
    }

    #[test]
    fn a_receive_from_a_lost_process_fails_at_once_and_no_other() {
        let mut d = alone();
        let (mut early, mut late) = ([0u8; 4], [0u8; 4]);
        let into = |buffer: &mut [u8; 4]| Sink::Bytes {
            ptr: buffer.as_mut_ptr(),
            cap: 4,
        };
        // SAFETY: the buffers outlive the device's use of them.
        let waiting = unsafe { d.receive_from(1, pattern(1), into(&mut early)) };
        assert!(!d.is_lost(1) && !d.is_complete(waiting));
        d.break_down(&cable_pulled());
        assert!(d.is_lost(1) && !d.is_lost(0));
        assert!(d.take(waiting).fault.is_some());
        // SAFETY: `early` outlives the device, and the first receive into it has ended.
        let again = unsafe { d.receive_from(1, pattern(1), into(&mut early)) };
        assert!(d.take(again).fault.is_some());
        assert!(last_failure().unwrap().contains("the cable was pulled"));

        // From those who are there messages still come.
        // SAFETY: `late` outlives the device's use of it.
        let own = unsafe { d.receive_from(0, pattern(0), into(&mut late)) };
        assert!(!d.is_complete(own));
        let key = Key {
            context: ContextId::WORLD,
            source: 0,
            tag: 7,
        };
        let word = *b"here";
        let source = Source::Bytes {
            ptr: word.as_ptr(),
            len: 4,
        };
        // SAFETY: `word` outlives the send.
        unsafe { d.send(0, key, source, SendMode::Standard) };
        while !d.is_complete(own) {
            d.progress();
        }
        assert!(d.take(own).fault.is_none());
        assert_eq!(&late, b"here");
    }
}
