//! The send queues: for each peer, the messages that wait for room on its transport.

use crate::base::key::ProcId;
use crate::base::request::ReqId;
use crate::queue::outgoing::{Outgoing, Payload};
use std::collections::{HashMap, VecDeque};

/// The send queues of a process. A peer has one only while messages to it wait.
#[derive(Default)]
pub(crate) struct Outbox {
    queues: HashMap<ProcId, VecDeque<Outgoing>>,
    /// Peers with a queue, in the order in which the queues were made.
    peers: Vec<ProcId>,
}

impl Outbox {
    /// Is nothing queued for any peer?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Is nothing queued for `to`?
    #[inline]
    pub fn is_empty_for(&self, to: ProcId) -> bool {
        self.peers.is_empty() || !self.queues.contains_key(&to)
    }

    /// Queues a message. Messages keep their order, except that DATA goes behind all others. A CTS
    /// behind DATA would keep the other direction idle until the DATA is sent.
    pub fn push(&mut self, to: ProcId, message: Outgoing) {
        let queue = self.queues.entry(to).or_default();
        if queue.is_empty() {
            self.peers.push(to);
        }
        if message.is_data() || queue.back().is_none_or(|last| !last.is_data()) {
            return queue.push_back(message);
        }
        // A part of the first message may have been sent. Its rest must come next.
        let begun = queue.front().is_some_and(Outgoing::may_have_begun);
        let others = queue.iter().skip(usize::from(begun));
        let at = others.take_while(|o| !o.is_data()).count();
        queue.insert(usize::from(begun) + at, message);
    }

    /// Drops the messages to `peer`. Returns the eager sends among them.
    pub fn forget(&mut self, peer: ProcId) -> Vec<ReqId> {
        self.peers.retain(|&p| p != peer);
        let queue = self.queues.remove(&peer).unwrap_or_default();
        let waiting = queue.into_iter().filter_map(|o| match o.payload {
            Payload::Request(req) => Some(req),
            _ => None,
        });
        waiting.collect()
    }

    /// The bytes of a large send that its transport has taken. `None`: the send is not queued.
    pub fn offset_of(&self, req: ReqId) -> Option<usize> {
        let mut queued = self.queues.values().flatten();
        queued.find_map(|o| match o.payload {
            Payload::Stream { req: r, offset, .. } if r == req => Some(offset),
            _ => None,
        })
    }

    /// Takes the list of peers with a queue, to offer it. Peers that get a queue meanwhile go to a
    /// new list.
    pub fn take_peers(&mut self) -> Vec<ProcId> {
        std::mem::take(&mut self.peers)
    }

    /// Puts back the peers that still have a queue, before the peers of the new list.
    pub fn put_back_peers(&mut self, mut peers: Vec<ProcId>) {
        peers.append(&mut self.peers);
        self.peers = peers;
    }

    /// Takes the queue of a peer.
    pub fn take_queue(&mut self, to: ProcId) -> VecDeque<Outgoing> {
        self.queues.remove(&to).unwrap_or_default()
    }

    /// Puts back the queue of a peer.
    pub fn put_back_queue(&mut self, to: ProcId, queue: VecDeque<Outgoing>) {
        self.queues.insert(to, queue);
    }

    /// The queue of a peer.
    #[cfg(test)]
    pub fn queue(&self, to: ProcId) -> Option<&VecDeque<Outgoing>> {
        self.queues.get(&to)
    }

    /// The queue of a peer.
    #[cfg(test)]
    pub fn queue_mut(&mut self, to: ProcId) -> Option<&mut VecDeque<Outgoing>> {
        self.queues.get_mut(&to)
    }
}
