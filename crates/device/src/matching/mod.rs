//! Matching: posted receives and unexpected messages (MPI 5.0 §3.5).
//!
//! Each context has its own two queues, so one communicator's traffic never slows another's. Within
//! a context both queues keep the order of arrival, which is all that the standard's non-overtaking
//! rule needs.

use crate::base::counters::COUNTERS;
use crate::base::key::{ContextId, Envelope, Key, Pattern, Tags};
use crate::base::message::Unexpected;
use crate::base::request::ReqId;
use posted::PostedQueue;
use std::collections::HashMap;
use unexpected::UnexpectedQueue;

#[derive(Default)]
struct Queues {
    posted: PostedQueue,
    unexpected: UnexpectedQueue,
}

/// Minimum length of a queue that becomes a table. A shorter list is searched faster than a table.
/// A choice. Low in tests, so that they use both.
const TABLE_MIN_ENTRIES: usize = if cfg!(test) { 4 } else { 256 };
/// Making a table costs, for each entry, as much as comparing this many entries. A choice.
const TABLE_COST_ENTRIES: usize = if cfg!(test) { 1 } else { 32 };

/// The number of entries that searches of a list have compared since it was empty.
#[derive(Default)]
struct SearchCost(usize);

impl SearchCost {
    /// Adds `entries`, of a list of `len`. Returns whether a table would have cost less by now.
    #[inline]
    fn add(&mut self, entries: usize, len: usize) -> bool {
        self.0 += entries;
        len >= TABLE_MIN_ENTRIES && self.0 > TABLE_COST_ENTRIES * len
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
    /// The context that was last used, and its queues. Programs seldom switch.
    last: (ContextId, usize),
}

impl Matcher {
    /// Empty queues.
    pub fn new() -> Matcher {
        Matcher {
            index: HashMap::from([(ContextId::WORLD, 0)]),
            queues: vec![Queues::default()],
            last: (ContextId::WORLD, 0),
        }
    }

    #[inline(always)]
    fn queues(&mut self, context: ContextId) -> &mut Queues {
        if self.last.0 != context {
            self.switch(context);
        }
        &mut self.queues[self.last.1]
    }

    #[cold]
    fn switch(&mut self, context: ContextId) {
        let next = self.queues.len();
        let at = *self.index.entry(context).or_insert(next);
        if at == next {
            self.queues.push(Queues::default());
        }
        self.last = (context, at);
        // A context is never used again once its communicator is freed. A long-lived program would
        // collect them without end.
        if next > 4096 && at == next && next.is_power_of_two() {
            self.sweep(context);
        }
    }

    /// Forgets contexts with empty queues.
    fn sweep(&mut self, keep: ContextId) {
        let mut used = Vec::new();
        let mut index = HashMap::new();
        for (context, at) in self.index.drain() {
            let queues = std::mem::take(&mut self.queues[at]);
            if context == keep || !queues.is_empty() {
                index.insert(context, used.len());
                used.push(queues);
            }
        }
        self.last = (keep, index[&keep]);
        self.index = index;
        self.queues = used;
    }

    /// The lengths of a context's posted queue and unexpected queue.
    pub fn lengths(&self, context: ContextId) -> (usize, usize) {
        self.index.get(&context).map_or((0, 0), |&at| {
            let queues = &self.queues[at];
            (queues.posted.len(), queues.unexpected.len())
        })
    }

    /// The unexpected messages of a context, in the order of their arrival.
    pub fn unexpected(&self, context: ContextId) -> impl Iterator<Item = &Unexpected> {
        let at = self.index.get(&context);
        at.into_iter()
            .flat_map(|&at| self.queues[at].unexpected.iter())
    }

    /// A message has arrived: takes the posted receive that it matches.
    #[inline]
    pub fn match_message(&mut self, key: &Key) -> Option<ReqId> {
        self.queues(key.context).posted.take(key)
    }

    /// Queues an unexpected message.
    pub fn queue_unexpected(&mut self, message: Unexpected) {
        COUNTERS.queue_unexpected(message.buffered_bytes());
        self.queues(message.key.context).unexpected.push(message);
    }

    /// Are there unexpected messages in this context?
    #[inline(always)]
    pub fn has_unexpected(&mut self, context: ContextId) -> bool {
        !self.queues(context).unexpected.is_empty()
    }

    /// As [`Matcher::match_receive`], with the fields of a pattern.
    #[inline(never)]
    pub fn match_fields(
        &mut self,
        context: ContextId,
        source: Option<u32>,
        tag: Tags,
    ) -> Option<Unexpected> {
        self.match_receive(&Pattern {
            context,
            source,
            tag,
        })
    }

    /// A receive is started: takes the unexpected message that it matches.
    #[inline(always)]
    pub fn match_receive(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let found = self.queues(pattern.context).unexpected.take(pattern)?;
        COUNTERS.dequeue_unexpected(found.buffered_bytes());
        Some(found)
    }

    /// Posts a receive.
    #[inline(always)]
    pub fn post(&mut self, pattern: Pattern, req: ReqId) {
        self.queues(pattern.context).posted.push(pattern, req);
    }

    /// The first unexpected message that `pattern` matches. It stays in the queue.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Envelope> {
        let found = self.queues(pattern.context).unexpected.first(pattern);
        found.map(Unexpected::envelope)
    }

    /// The pattern of a posted receive.
    pub fn posted_pattern(&mut self, context: ContextId, req: ReqId) -> Option<Pattern> {
        self.queues(context).posted.posted_pattern(req)
    }

    /// Are the posted receives of a context in a table?
    #[cfg(test)]
    fn has_table(&mut self, context: ContextId) -> bool {
        self.queues(context).posted.has_table()
    }

    /// The sender that a posted receive names, if it is among the first of a short queue.
    pub fn awaited_source(&mut self, context: ContextId, req: ReqId) -> Option<u32> {
        self.queues(context).posted.awaited_source(req)
    }

    /// Takes a posted receive out of the queue. False: it is not posted any more.
    pub fn withdraw(&mut self, context: ContextId, req: ReqId) -> bool {
        self.queues(context).posted.withdraw(req).is_some()
    }
}

mod posted;
mod table;
#[cfg(test)]
mod tests;
mod unexpected;
