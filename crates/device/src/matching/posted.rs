//! The posted queue of a context: receives that wait for their message, in their order.

use super::SearchCost;
use super::table::Table;
use crate::base::key::{ContextId, Key, Pattern, Tags};
use crate::base::request::ReqId;
use std::collections::VecDeque;

/// Receives among which [`PostedQueue::awaited_source`] looks. A choice: it looks before a yield,
/// which takes a microsecond.
const AWAITED_SEARCH_MAX: usize = 16;

/// Posted receives. The queue is a list at first. After searches have compared enough entries, it
/// is a table by source and tag, until it is empty. Receives with wildcards stay outside the table.
#[derive(Default)]
pub(super) struct PostedQueue {
    list: VecDeque<(Pattern, ReqId)>,
    search_cost: SearchCost,
    /// All receives, if they are in a table; then `list` is empty.
    table: Option<Box<ReceiveTable>>,
}

/// Receives with their numbers, which are their order.
struct ReceiveTable {
    exact: Table<(u64, Pattern, ReqId)>,
    wild: VecDeque<(u64, Pattern, ReqId)>,
    next: u64,
}

impl PostedQueue {
    /// Is no receive posted?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.table.is_none()
    }

    /// Receives that are posted.
    pub fn len(&self) -> usize {
        let long = self.table.as_ref();
        self.list.len() + long.map_or(0, |l| l.len())
    }

    /// Adds a receive behind the others.
    #[inline(always)]
    pub fn push(&mut self, pattern: Pattern, req: ReqId) {
        if let Some(long) = &mut self.table {
            let Pattern {
                context,
                source,
                tag,
            } = pattern;
            return long.push_fields(context, source, tag, req);
        }
        if self.list.is_empty() {
            self.search_cost = SearchCost::default();
        }
        self.list.push_back((pattern, req));
    }

    /// Moves a list that has become long into a table.
    #[cold]
    fn make_table(&mut self) {
        let mut long = Box::new(ReceiveTable {
            exact: Table::new(),
            wild: VecDeque::new(),
            next: 0,
        });
        for (pattern, req) in self.list.drain(..) {
            long.push(pattern, req);
        }
        self.table = Some(long);
    }

    /// Takes the first receive that accepts `key`.
    #[inline]
    pub fn take(&mut self, key: &Key) -> Option<ReqId> {
        // Most messages arrive in the order of their receives.
        match self.list.front() {
            Some((pattern, _)) if pattern.accepts(key) => self.list.pop_front().map(|(_, req)| req),
            None if self.table.is_none() => None,
            _ => self.take_from_list(key),
        }
    }

    #[inline(never)]
    fn take_from_list(&mut self, key: &Key) -> Option<ReqId> {
        if self.table.is_some() {
            return self.take_from_table(|long| long.take(key));
        }
        let found = self.list.iter().position(|p| p.0.accepts(key));
        let taken = found.and_then(|at| self.list.remove(at));
        let len = self.list.len();
        if self.search_cost.add(found.unwrap_or(len), len) {
            self.make_table();
        }
        taken.map(|(_, req)| req)
    }

    /// Takes this receive.
    pub fn withdraw(&mut self, req: ReqId) -> Option<ReqId> {
        if self.table.is_some() {
            return self.take_from_table(|long| long.withdraw(req));
        }
        let at = self.list.iter().position(|p| p.1 == req)?;
        self.list.remove(at).map(|(_, req)| req)
    }

    fn take_from_table(
        &mut self,
        take: impl FnOnce(&mut ReceiveTable) -> Option<ReqId>,
    ) -> Option<ReqId> {
        let long = self.table.as_mut()?;
        let found = take(long);
        if long.len() == 0 {
            self.table = None;
        }
        found
    }

    #[cfg(test)]
    pub fn has_table(&self) -> bool {
        self.table.is_some()
    }

    /// The sender that this receive names, if it is one of the first receives.
    pub fn awaited_source(&self, req: ReqId) -> Option<u32> {
        let mut first = self.list.iter().take(AWAITED_SEARCH_MAX);
        first.find(|p| p.1 == req)?.0.source
    }

    /// The pattern of this receive.
    pub fn posted_pattern(&self, req: ReqId) -> Option<Pattern> {
        match &self.table {
            Some(long) => long.posted_pattern(req),
            None => self.list.iter().find(|p| p.1 == req).map(|p| p.0),
        }
    }
}

impl ReceiveTable {
    fn len(&self) -> usize {
        self.exact.len() + self.wild.len()
    }

    /// As [`ReceiveTable::push`], with the fields of a pattern, so that a caller has them in
    /// registers.
    #[inline(never)]
    fn push_fields(&mut self, context: ContextId, source: Option<u32>, tag: Tags, req: ReqId) {
        let pattern = Pattern {
            context,
            source,
            tag,
        };
        self.push(pattern, req);
    }

    fn push(&mut self, pattern: Pattern, req: ReqId) {
        let entry = (self.next, pattern, req);
        self.next += 1;
        match pattern.source_tag() {
            Some(source_tag) => {
                self.exact.push(source_tag, entry);
            }
            None => self.wild.push_back(entry),
        }
    }

    fn take(&mut self, key: &Key) -> Option<ReqId> {
        let source_tag = (key.source, key.tag);
        let exact = self.exact.first(source_tag).map_or(u64::MAX, |e| e.0);
        let mut earlier = self.wild.iter().take_while(|w| w.0 < exact);
        let found = match earlier.position(|(_, pattern, _)| pattern.accepts(key)) {
            Some(at) => self.wild.remove(at),
            None => self.exact.pop(source_tag),
        };
        found.map(|(_, _, req)| req)
    }

    fn posted_pattern(&self, req: ReqId) -> Option<Pattern> {
        let mut all = self.exact.iter().chain(&self.wild);
        all.find(|e| e.2 == req).map(|e| e.1)
    }

    fn withdraw(&mut self, req: ReqId) -> Option<ReqId> {
        let taken = match self.posted_pattern(req)?.source_tag() {
            Some(source_tag) => self.exact.take(source_tag, |e| e.2 == req),
            None => {
                let at = self.wild.iter().position(|w| w.2 == req)?;
                self.wild.remove(at)
            }
        };
        taken.map(|(_, _, req)| req)
    }
}
