//! Matching: receives that wait for messages, and messages that wait for receives (MPI 5.0 §3.5).
//!
//! Each context has its own two queues, so one communicator's traffic never slows another's. Within a context
//! both queues keep the order of arrival, which is all that the standard's non-overtaking rule needs.

use crate::key::{ContextId, Envelope, Key, Pattern, ProcId};
use crate::request::ReqId;
use std::collections::{HashMap, VecDeque};

/// What came of a message that no receive was waiting for.
#[derive(Debug)]
pub(crate) enum Content {
    /// The whole message. `sync`: the sender's request, if it waits to hear of the match.
    Eager { bytes: Box<[u8]>, sync: Option<u32> },
    /// An announcement: so many bytes lie at `address` of the sender (0: it will send them when asked).
    Announced { address: u64, request: u32 },
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
    pub fn envelope(&self) -> Envelope {
        Envelope {
            source: self.key.source,
            tag: self.key.tag,
            len: self.len,
        }
    }
}

#[derive(Default)]
struct Queues {
    posted: VecDeque<(Pattern, ReqId)>,
    unexpected: VecDeque<Unexpected>,
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
        // Contexts are never used again once their communicator is gone: sweep before a long-lived program drowns in them.
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
            if context == keep || !queues.posted.is_empty() || !queues.unexpected.is_empty() {
                index.insert(context, kept.len());
                kept.push(queues);
            }
        }
        self.last = (keep, index[&keep]);
        self.index = index;
        self.queues = kept;
    }

    /// A message has arrived: the receive that it matches, if one waits.
    #[inline]
    pub fn match_message(&mut self, key: &Key) -> Option<ReqId> {
        let posted = &mut self.queues(key.context).posted;
        let at = posted
            .iter()
            .position(|(pattern, _)| pattern.accepts(key))?;
        posted.remove(at).map(|(_, req)| req)
    }

    /// No receive waits for this message: keep it.
    pub fn keep(&mut self, message: Unexpected) {
        self.queues(message.key.context)
            .unexpected
            .push_back(message);
    }

    /// A receive is made: the message that it matches, if one waits.
    #[inline]
    pub fn match_receive(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let unexpected = &mut self.queues(pattern.context).unexpected;
        let at = unexpected.iter().position(|m| pattern.accepts(&m.key))?;
        unexpected.remove(at)
    }

    /// No message waits for this receive: let it wait.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, req: ReqId) {
        self.queues(pattern.context)
            .posted
            .push_back((pattern, req));
    }

    /// The first message that `pattern` would match, left in place.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Envelope> {
        self.queues(pattern.context)
            .unexpected
            .iter()
            .find(|m| pattern.accepts(&m.key))
            .map(Unexpected::envelope)
    }

    /// Takes a waiting receive back. False: it is no longer waiting.
    pub fn withdraw(&mut self, context: ContextId, req: ReqId) -> bool {
        let posted = &mut self.queues(context).posted;
        match posted.iter().position(|p| p.1 == req) {
            Some(at) => posted.remove(at).is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
