//! Posted receives and unexpected messages of an endpoint.

use super::{Address, Match, Request};
use crate::kernel::Rank;
use std::collections::VecDeque;

/// A message that no receive has matched yet.
pub(super) struct Unexpected {
    pub from: Address,
    pub bits: u64,
    pub body: UnexpectedBody,
}

/// What is there of it.
pub(super) enum UnexpectedBody {
    /// All of it. The number of the sender's request if it waits for the match.
    Eager(Vec<u8>, Option<u32>),
    /// An announcement: the sender's request, and the message's bytes.
    Rts(u32, usize),
}

impl Unexpected {
    /// Bytes of the message.
    pub fn bytes(&self) -> usize {
        match &self.body {
            UnexpectedBody::Eager(bytes, _) => bytes.len(),
            UnexpectedBody::Rts(_, bytes) => *bytes,
        }
    }
}

/// The two queues. Both are searched from the oldest entry on, so that messages which match the
/// same receives keep their order.
#[derive(Default)]
pub(super) struct Queues {
    posted: VecDeque<(Request, Match)>,
    unexpected: VecDeque<Unexpected>,
}

impl Queues {
    /// Posts a receive that no unexpected message matches.
    pub fn post(&mut self, request: Request, wanted: Match) {
        self.posted.push_back((request, wanted));
    }

    /// Takes the oldest receive that matches these bits.
    pub fn take_posted(&mut self, bits: u64) -> Option<Request> {
        let at = self.posted.iter().position(|(_, m)| m.accepts(bits))?;
        self.posted.remove(at).map(|(request, _)| request)
    }

    /// Removes a posted receive. Returns false if it is not posted any more.
    pub fn cancel(&mut self, request: Request) -> bool {
        let at = self.posted.iter().position(|(r, _)| *r == request);
        at.and_then(|at| self.posted.remove(at)).is_some()
    }

    /// Keeps a message that no receive matches.
    pub fn keep(&mut self, message: Unexpected) {
        self.unexpected.push_back(message);
    }

    /// The oldest unexpected message that matches.
    pub fn find(&self, wanted: Match) -> Option<&Unexpected> {
        self.unexpected.iter().find(|u| wanted.accepts(u.bits))
    }

    /// Takes the oldest unexpected message that matches.
    pub fn take(&mut self, wanted: Match) -> Option<Unexpected> {
        let at = self
            .unexpected
            .iter()
            .position(|u| wanted.accepts(u.bits))?;
        self.unexpected.remove(at)
    }

    /// Drops the announcements of a node: their bytes will not come.
    pub fn forget(&mut self, node: Rank) {
        let is_rts = |u: &Unexpected| matches!(u.body, UnexpectedBody::Rts(..));
        self.unexpected
            .retain(|u| u.from.rank != node || !is_rts(u));
    }

    /// Receives posted, and messages kept.
    pub fn counts(&self) -> (usize, usize) {
        (self.posted.len(), self.unexpected.len())
    }
}
