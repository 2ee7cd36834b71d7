//! Matching: receives that wait for messages, and messages that wait for receives (MPI 5.0 §3.5).
//!
//! Each context has its own two queues, so one communicator's traffic never slows another's. Within a context
//! both queues keep the order of arrival, which is all that the standard's non-overtaking rule needs.

use crate::count::COUNTERS;
use crate::key::{ContextId, Envelope, Key, Pattern, ProcId, Tags};
use crate::request::ReqId;
use sorted::{Address, Sorted};
use std::collections::{HashMap, VecDeque};

/// What came of a message that no receive was waiting for.
#[derive(Debug)]
pub(crate) enum Content {
    /// The whole message. `sync`: the sender's request, if it waits to hear of the match.
    Eager { bytes: Box<[u8]>, sync: Option<u32> },
    /// An announcement: so many bytes lie at `address` of the sender (0: it will send them when asked).
    Announced { address: u64, request: u32 },
    /// A message that came without having been announced, or is coming; the engine has its bytes by this number.
    AtOnce { number: u32 },
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
            Content::AtOnce { .. } => self.len,
            Content::Announced { .. } => 0,
        }
    }

    pub fn envelope(&self) -> Envelope {
        self.key.envelope(self.len)
    }
}

#[derive(Default)]
struct Queues {
    posted: VecDeque<(Pattern, ReqId)>,
    unexpected: VecDeque<Unexpected>,
    /// The program has promised not to use wildcards here.
    promised: bool,
    /// What stands here and not in `posted` while that is long.
    sorted_posted: Option<Box<Sorted<ReqId>>>,
    /// What stands here and not in `unexpected` while that is long.
    sorted_unexpected: Option<Box<Sorted<Unexpected>>>,
}

/// With so many entries a queue without wildcards is sorted: shorter ones are searched faster than a table. (Few in tests,
/// which are to see both.)
const LONG: usize = if cfg!(test) { 4 } else { 256 };

impl Queues {
    fn is_empty(&self) -> bool {
        self.posted.is_empty()
            && self.unexpected.is_empty()
            && self.sorted_posted.is_none()
            && self.sorted_unexpected.is_none()
    }

    /// A wildcard after all: both queues by order of arrival again.
    #[cold]
    fn unsort(&mut self, context: ContextId) {
        if let Some(sorted) = self.sorted_posted.take() {
            let pattern = |(source, tag)| Pattern {
                context,
                source: Some(source),
                tag: Tags::one(tag),
            };
            let all = sorted.into_order().into_iter();
            self.posted.extend(all.map(|(a, req)| (pattern(a), req)));
        }
        if let Some(sorted) = self.sorted_unexpected.take() {
            let all = sorted.into_order().into_iter();
            self.unexpected.extend(all.map(|(_, message)| message));
        }
    }

    #[cold]
    fn sort_posted(&mut self) {
        let addresses: Option<Vec<Address>> =
            self.posted.iter().map(|(p, _)| p.address()).collect();
        if let Some(addresses) = addresses {
            let requests = self.posted.drain(..).map(|(_, req)| req);
            self.sorted_posted = Some(Box::new(Sorted::new(addresses.into_iter().zip(requests))));
        }
    }

    #[cold]
    fn sort_unexpected(&mut self) {
        let all = self.unexpected.drain(..);
        let sorted = Sorted::new(all.map(|m| ((m.key.source, m.key.tag), m)));
        self.sorted_unexpected = Some(Box::new(sorted));
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
            if context == keep || !queues.is_empty() || queues.promised {
                index.insert(context, kept.len());
                kept.push(queues);
            }
        }
        self.last = (keep, index[&keep]);
        self.index = index;
        self.queues = kept;
    }

    /// The program promises to use no wildcards in this context, or takes that back. A promise that it breaks all the same costs
    /// time and nothing else.
    pub fn promise(&mut self, context: ContextId, promised: bool) {
        let queues = self.queues(context);
        queues.promised = promised;
        if !promised {
            queues.unsort(context);
        }
    }

    /// Receives that wait for their message, and messages that wait for their receive, in a context.
    pub fn lengths(&self, context: ContextId) -> (usize, usize) {
        let Some(&at) = self.index.get(&context) else {
            return (0, 0);
        };
        let queues = &self.queues[at];
        (
            queues.posted.len() + queues.sorted_posted.as_ref().map_or(0, |s| s.len()),
            queues.unexpected.len() + queues.sorted_unexpected.as_ref().map_or(0, |s| s.len()),
        )
    }

    /// The messages that wait for their receive in a context, in the order in which they have come.
    pub fn unexpected(&mut self, context: ContextId) -> impl ExactSizeIterator<Item = &Unexpected> {
        let found = self.index.get(&context).map(|&at| &mut self.queues[at]);
        let messages = found.map(|queues| {
            queues.unsort(context);
            queues.unexpected.iter()
        });
        messages.unwrap_or_default()
    }

    /// A message has arrived: the receive that it matches, if one waits.
    #[inline]
    pub fn match_message(&mut self, key: &Key) -> Option<ReqId> {
        let queues = self.queues(key.context);
        if let Some(sorted) = &mut queues.sorted_posted {
            let found = sorted.pop((key.source, key.tag));
            if sorted.len() == 0 {
                queues.sorted_posted = None;
            }
            return found;
        }
        let posted = &mut queues.posted;
        let at = posted
            .iter()
            .position(|(pattern, _)| pattern.accepts(key))?;
        posted.remove(at).map(|(_, req)| req)
    }

    /// No receive waits for this message: keep it.
    pub fn keep(&mut self, message: Unexpected) {
        COUNTERS.keep(message.held());
        let queues = self.queues(message.key.context);
        if let Some(sorted) = &mut queues.sorted_unexpected {
            return sorted.push((message.key.source, message.key.tag), message);
        }
        queues.unexpected.push_back(message);
        if queues.promised && queues.unexpected.len() == LONG {
            queues.sort_unexpected();
        }
    }

    /// A receive is made: the message that it matches, if one waits.
    #[inline]
    pub fn match_receive(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let queues = self.queues(pattern.context);
        let found = match (&mut queues.sorted_unexpected, pattern.address()) {
            (Some(sorted), Some(address)) => {
                let found = sorted.pop(address);
                if sorted.len() == 0 {
                    queues.sorted_unexpected = None;
                }
                found?
            }
            (sorted, _) => {
                if sorted.is_some() {
                    queues.unsort(pattern.context);
                }
                let unexpected = &mut queues.unexpected;
                let at = unexpected.iter().position(|m| pattern.accepts(&m.key))?;
                unexpected.remove(at)?
            }
        };
        COUNTERS.take(found.held());
        Some(found)
    }

    /// No message waits for this receive: let it wait.
    #[inline]
    pub fn post(&mut self, pattern: Pattern, req: ReqId) {
        let queues = self.queues(pattern.context);
        match (&mut queues.sorted_posted, pattern.address()) {
            (Some(sorted), Some(address)) => return sorted.push(address, req),
            (Some(_), None) => queues.unsort(pattern.context),
            _ => {}
        }
        queues.posted.push_back((pattern, req));
        if queues.promised && queues.posted.len() == LONG {
            queues.sort_posted();
        }
    }

    /// The first message that `pattern` would match, left in place.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Envelope> {
        let queues = self.queues(pattern.context);
        match (&queues.sorted_unexpected, pattern.address()) {
            (Some(sorted), Some(address)) => {
                return sorted.first(address).map(Unexpected::envelope);
            }
            (Some(_), None) => queues.unsort(pattern.context),
            _ => {}
        }
        queues
            .unexpected
            .iter()
            .find(|m| pattern.accepts(&m.key))
            .map(Unexpected::envelope)
    }

    /// What a receive asks for that still waits for its message.
    pub fn asks_for(&mut self, context: ContextId, req: ReqId) -> Option<Pattern> {
        let queues = self.queues(context);
        if let Some(sorted) = &queues.sorted_posted {
            let (source, tag) = sorted.find(|&r| r == req)?;
            return Some(Pattern {
                context,
                source: Some(source),
                tag: Tags::one(tag),
            });
        }
        let found = queues.posted.iter().find(|p| p.1 == req);
        found.map(|(pattern, _)| *pattern)
    }

    /// Takes a waiting receive back. False: it is no longer waiting.
    pub fn withdraw(&mut self, context: ContextId, req: ReqId) -> bool {
        let queues = self.queues(context);
        if let Some(sorted) = &mut queues.sorted_posted {
            let Some(address) = sorted.find(|&r| r == req) else {
                return false;
            };
            let taken = sorted.take(address, |&r| r == req).is_some();
            if sorted.len() == 0 {
                queues.sorted_posted = None;
            }
            return taken;
        }
        let posted = &mut queues.posted;
        match posted.iter().position(|p| p.1 == req) {
            Some(at) => posted.remove(at).is_some(),
            None => false,
        }
    }
}

mod sorted;
#[cfg(test)]
mod tests;
