//! Matching: receives that wait for messages, and messages that wait for receives (MPI 5.0 §3.5).
//!
//! Each context has its own two queues, so one communicator's traffic never slows another's. Within
//! a context both queues keep the order of arrival, which is all that the standard's non-overtaking
//! rule needs.

use crate::base::key::{ContextId, Envelope, Key, Pattern, ProcId};
use crate::base::request::ReqId;
use crate::counters::COUNTERS;
use posted::Posted;
use smallvec::SmallVec;
use std::collections::HashMap;
use unexpected::Waiting;

/// A message's bytes; to ask for memory for a few takes longer than to move them.
pub(crate) type KeptBytes = SmallVec<[u8; 16]>;

/// What came of a message that no receive was waiting for.
#[derive(Debug)]
pub(crate) enum Content {
    /// The whole message. `sync`: the sender's request, if it waits to hear of the match.
    Eager { bytes: KeptBytes, sync: Option<u32> },
    /// An announcement: so many bytes lie at `address` of the sender (0: it will send them when
    /// asked).
    Announced { address: u64, request: u32 },
    /// A message that came without having been announced, or is coming; the engine has its bytes by
    /// this number.
    Speculative { number: u32 },
}

/// A message that no receive was waiting for.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub key: Key,
    pub from: ProcId,
    pub len: u64,
    pub content: Content,
}

impl Unexpected {
    /// Bytes of it that are here.
    fn held(&self) -> u64 {
        match &self.content {
            Content::Eager { bytes, .. } => bytes.len() as u64,
            Content::Speculative { .. } => self.len,
            Content::Announced { .. } => 0,
        }
    }

    pub fn envelope(&self) -> Envelope {
        self.key.envelope(self.len)
    }
}

#[derive(Default)]
struct Queues {
    posted: Posted,
    unexpected: Waiting,
}

/// Shorter queues are lists: those are searched faster than a table. (Few in tests, which are to
/// see both.)
const LONG: usize = if cfg!(test) { 4 } else { 256 };
/// To make a table of a list costs as much as to pass by so many entries, for each that it has.
const TABLE: usize = if cfg!(test) { 1 } else { 32 };

/// Entries of a list that searches have passed by since it was empty.
#[derive(Default)]
struct Passed(usize);

impl Passed {
    /// So many more, of a list of `len`. Would a table have cost less by now?
    #[inline]
    fn add(&mut self, entries: usize, len: usize) -> bool {
        self.0 += entries;
        len >= LONG && self.0 > TABLE * len
    }
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }
}

/// All queues of a process.
pub(crate) struct Matcher {
    index: HashMap<ContextId, usize>,
    queues: Vec<Queues>,
    /// The context last used, and its queues: programs seldom switch.
    last: (ContextId, usize),
}

impl Matcher {
    pub fn new() -> Matcher {
        Matcher {
            index: HashMap::from([(ContextId::WORLD, 0)]),
            queues: vec![Queues::default()],
            last: (ContextId::WORLD, 0),
        }
    }

    #[inline]
    fn queues(&mut self, context: ContextId) -> &mut Queues {
        if self.last.0 != context {
            self.switch(context);
        }
        &mut self.queues[self.last.1]
    }

    #[cold]
    fn switch(&mut self, context: ContextId) {
        let fresh = self.queues.len();
        let at = *self.index.entry(context).or_insert(fresh);
        if at == fresh {
            self.queues.push(Queues::default());
        }
        self.last = (context, at);
        // Contexts are never used again once their communicator is gone: sweep before a long-lived
        // program drowns in them.
        if fresh > 4096 && at == fresh && fresh.is_power_of_two() {
            self.sweep(context);
        }
    }

    /// Forgets contexts in which nothing waits.
    fn sweep(&mut self, keep: ContextId) {
        let mut kept = Vec::new();
        let mut index = HashMap::new();
        for (context, at) in self.index.drain() {
            let queues = std::mem::take(&mut self.queues[at]);
            if context == keep || !queues.is_empty() {
                index.insert(context, kept.len());
                kept.push(queues);
            }
        }
        self.last = (keep, index[&keep]);
        self.index = index;
        self.queues = kept;
    }

    /// Receives that wait for their message, and messages that wait for their receive, in a
    /// context.
    pub fn lengths(&self, context: ContextId) -> (usize, usize) {
        self.index.get(&context).map_or((0, 0), |&at| {
            let queues = &self.queues[at];
            (queues.posted.len(), queues.unexpected.len())
        })
    }

    /// The messages that wait for their receive in a context, in the order in which they have come.
    pub fn unexpected(&self, context: ContextId) -> impl Iterator<Item = &Unexpected> {
        let at = self.index.get(&context);
        at.into_iter()
            .flat_map(|&at| self.queues[at].unexpected.iter())
    }

    /// A message has arrived: the receive that it matches, if one waits.
    #[inline]
    pub fn match_message(&mut self, key: &Key) -> Option<ReqId> {
        self.queues(key.context).posted.take(key)
    }

    /// No receive waits for this message: keep it.
    pub fn keep(&mut self, message: Unexpected) {
        COUNTERS.queue_unexpected(message.held());
        self.queues(message.key.context).unexpected.push(message);
    }

    /// A receive is made: the message that it matches, if one waits.
    #[inline]
    pub fn match_receive(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let found = self.queues(pattern.context).unexpected.take(pattern)?;
        COUNTERS.dequeue_unexpected(found.held());
        Some(found)
    }

    /// No message waits for this receive: let it wait.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, req: ReqId) {
        self.queues(pattern.context).posted.push(pattern, req);
    }

    /// The first message that `pattern` would match, left in place.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Envelope> {
        let found = self.queues(pattern.context).unexpected.first(pattern);
        found.map(Unexpected::envelope)
    }

    /// What a receive asks for that still waits for its message.
    pub fn posted_pattern(&mut self, context: ContextId, req: ReqId) -> Option<Pattern> {
        self.queues(context).posted.posted_pattern(req)
    }

    /// Takes a waiting receive back. False: it is no longer waiting.
    pub fn withdraw(&mut self, context: ContextId, req: ReqId) -> bool {
        self.queues(context).posted.withdraw(req).is_some()
    }
}

mod posted;
mod table;
#[cfg(test)]
mod tests;
mod unexpected;
