//! Receives of one context that wait for their message, in the order in which they were made.

use super::Passed;
use super::table::Table;
use crate::base::key::{Key, Pattern};
use crate::base::request::ReqId;
use std::collections::VecDeque;

/// A list; once it has been searched in vain for long enough, and until none is left, a table by
/// source and tag of what has no wildcard.
#[derive(Default)]
pub(super) struct Posted {
    list: VecDeque<(Pattern, ReqId)>,
    passed: Passed,
    /// All of them, and `list` is empty.
    long: Option<Box<Long>>,
}

/// Receives with their numbers, which are their order.
struct Long {
    exact: Table<(u64, Pattern, ReqId)>,
    wild: VecDeque<(u64, Pattern, ReqId)>,
    next: u64,
}

impl Posted {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.long.is_none()
    }

    pub fn len(&self) -> usize {
        let long = self.long.as_ref();
        self.list.len() + long.map_or(0, |l| l.len())
    }

    #[inline]
    pub fn push(&mut self, pattern: Pattern, req: ReqId) {
        if let Some(long) = &mut self.long {
            return long.push(pattern, req);
        }
        if self.list.is_empty() {
            self.passed = Passed::default();
        }
        self.list.push_back((pattern, req));
    }

    #[cold]
    fn sort(&mut self) {
        let mut long = Box::new(Long {
            exact: Table::new(),
            wild: VecDeque::new(),
            next: 0,
        });
        for (pattern, req) in self.list.drain(..) {
            long.push(pattern, req);
        }
        self.long = Some(long);
    }

    /// Takes the first that accepts `key`.
    #[inline]
    pub fn take(&mut self, key: &Key) -> Option<ReqId> {
        // Most messages come in the order of their receives.
        match self.list.front() {
            Some((pattern, _)) if pattern.accepts(key) => self.list.pop_front().map(|(_, req)| req),
            None if self.long.is_none() => None,
            _ => self.take_behind(key),
        }
    }

    #[inline(never)]
    fn take_behind(&mut self, key: &Key) -> Option<ReqId> {
        if self.long.is_some() {
            return self.take_of_many(|long| long.take(key));
        }
        let found = self.list.iter().position(|p| p.0.accepts(key));
        let taken = found.and_then(|at| self.list.remove(at));
        let len = self.list.len();
        if self.passed.add(found.unwrap_or(len), len) {
            self.sort();
        }
        taken.map(|(_, req)| req)
    }

    /// Takes this one.
    pub fn withdraw(&mut self, req: ReqId) -> Option<ReqId> {
        if self.long.is_some() {
            return self.take_of_many(|long| long.withdraw(req));
        }
        let at = self.list.iter().position(|p| p.1 == req)?;
        self.list.remove(at).map(|(_, req)| req)
    }

    fn take_of_many(&mut self, take: impl FnOnce(&mut Long) -> Option<ReqId>) -> Option<ReqId> {
        let long = self.long.as_mut()?;
        let found = take(long);
        if long.len() == 0 {
            self.long = None;
        }
        found
    }

    /// What this one asks for.
    pub fn posted_pattern(&self, req: ReqId) -> Option<Pattern> {
        match &self.long {
            Some(long) => long.posted_pattern(req),
            None => self.list.iter().find(|p| p.1 == req).map(|p| p.0),
        }
    }
}

impl Long {
    fn len(&self) -> usize {
        self.exact.len() + self.wild.len()
    }

    fn push(&mut self, pattern: Pattern, req: ReqId) {
        let entry = (self.next, pattern, req);
        self.next += 1;
        match pattern.address() {
            Some(address) => {
                self.exact.push(address, entry);
            }
            None => self.wild.push_back(entry),
        }
    }

    fn take(&mut self, key: &Key) -> Option<ReqId> {
        let address = (key.source, key.tag);
        let exact = self.exact.first(address).map_or(u64::MAX, |e| e.0);
        let mut earlier = self.wild.iter().take_while(|w| w.0 < exact);
        let found = match earlier.position(|(_, pattern, _)| pattern.accepts(key)) {
            Some(at) => self.wild.remove(at),
            None => self.exact.pop(address),
        };
        found.map(|(_, _, req)| req)
    }

    fn posted_pattern(&self, req: ReqId) -> Option<Pattern> {
        let mut all = self.exact.iter().chain(&self.wild);
        all.find(|e| e.2 == req).map(|e| e.1)
    }

    fn withdraw(&mut self, req: ReqId) -> Option<ReqId> {
        let taken = match self.posted_pattern(req)?.address() {
            Some(address) => self.exact.take(address, |e| e.2 == req),
            None => {
                let at = self.wild.iter().position(|w| w.2 == req)?;
                self.wild.remove(at)
            }
        };
        taken.map(|(_, _, req)| req)
    }
}
