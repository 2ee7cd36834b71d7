//! Messages of one context that wait for their receive, in the order in which they have come.

use super::table::{Address, Slot, Table};
use super::{LONG, Passed, Unexpected};
use crate::base::key::{Key, Pattern};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// To look an address up costs as much as to pass by so many entries.
const LOOKUP: usize = if cfg!(test) { 2 } else { 32 };

/// A list; once it has been searched in vain for long enough, and until none is left, a table by
/// source and tag as well.
#[derive(Default)]
pub(super) struct Waiting {
    list: VecDeque<Unexpected>,
    passed: Passed,
    /// All of them, and `list` is empty.
    long: Option<Box<Long>>,
}

/// Numbers count messages in their order.
struct Long {
    /// Each with its number.
    table: Table<(u64, Unexpected)>,
    /// Where each stands, by its number less `before`, for receives with wildcards; `None` once it
    /// has been taken.
    order: VecDeque<(Address, Option<Slot>)>,
    before: u64,
    /// From whom some have come since the queue is long.
    sources: FxHashSet<u32>,
}

impl Waiting {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.long.is_none()
    }

    pub fn len(&self) -> usize {
        let long = self.long.as_ref();
        self.list.len() + long.map_or(0, |l| l.table.len())
    }

    /// Places that are kept for those that have been taken, too.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.long.as_ref().map_or(0, |long| long.order.len())
    }

    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Unexpected> {
        let long = self.long.iter().flat_map(|long| long.iter());
        self.list.iter().chain(long)
    }

    pub fn push(&mut self, message: Unexpected) {
        if let Some(long) = &mut self.long {
            return long.push(message);
        }
        if self.list.is_empty() {
            self.passed = Passed::default();
        }
        self.list.push_back(message);
    }

    #[cold]
    fn sort(&mut self) {
        let mut long = Box::new(Long {
            table: Table::new(),
            order: VecDeque::new(),
            before: 0,
            sources: FxHashSet::default(),
        });
        for message in self.list.drain(..) {
            long.push(message);
        }
        self.long = Some(long);
    }

    /// The first that `pattern` accepts.
    pub fn first(&mut self, pattern: &Pattern) -> Option<&Unexpected> {
        if self.long.is_none() {
            let found = self.search(pattern);
            self.searched(found);
            if self.long.is_none() {
                return self.list.get(found?);
            }
        }
        let long = self.long.as_ref()?;
        long.table.first(long.address(pattern)?).map(|m| &m.1)
    }

    /// Takes the first that `pattern` accepts.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        if self.is_empty() {
            return None;
        }
        self.take_of_some(pattern)
    }

    #[inline(never)]
    fn take_of_some(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        if self.long.is_some() {
            return self.take_of_many(pattern);
        }
        let found = self.search(pattern);
        let taken = found.and_then(|at| self.list.remove(at));
        self.searched(found);
        taken
    }

    fn search(&self, pattern: &Pattern) -> Option<usize> {
        self.list.iter().position(|m| pattern.accepts(&m.key))
    }

    /// The list has been searched, and this was found.
    fn searched(&mut self, found: Option<usize>) {
        let len = self.list.len();
        if self.passed.add(found.unwrap_or(len), len) {
            self.sort();
        }
    }

    fn take_of_many(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let long = self.long.as_mut()?;
        let found = long.take(pattern)?;
        if long.table.len() == 0 {
            self.long = None;
        }
        Some(found)
    }
}

impl Long {
    fn push(&mut self, message: Unexpected) {
        let address = (message.key.source, message.key.tag);
        let number = self.before + self.order.len() as u64;
        let slot = self.table.push(address, (number, message));
        // Mostly several come from the same in a row.
        if self.order.back().is_none_or(|last| last.0.0 != address.0) {
            self.sources.insert(address.0);
        }
        self.order.push_back((address, Some(slot)));
    }

    /// The address of the first message that `pattern` accepts: of all with that address it is the
    /// first. Without a wildcard there may be none.
    fn address(&self, pattern: &Pattern) -> Option<Address> {
        match (pattern.source, pattern.tag.only()) {
            (Some(source), Some(tag)) => Some((source, tag)),
            (None, Some(tag)) if LOOKUP * self.sources.len() < self.order.len() => {
                let firsts = self.sources.iter().filter_map(|&source| {
                    let (number, _) = self.table.first((source, tag))?;
                    Some((*number, source))
                });
                firsts.min().map(|(_, source)| (source, tag))
            }
            _ => {
                let context = pattern.context;
                let accepts = |&(source, tag): &Address| {
                    pattern.accepts(&Key {
                        context,
                        source,
                        tag,
                    })
                };
                let waiting = self.order.iter().filter(|place| place.1.is_some());
                waiting.map(|place| place.0).find(accepts)
            }
        }
    }

    fn take(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let (number, message) = self.table.pop(self.address(pattern)?)?;
        self.order[(number - self.before) as usize].1 = None;
        while self.order.front().is_some_and(|place| place.1.is_none()) {
            self.order.pop_front();
            self.before += 1;
        }
        if self.order.len() > 2 * self.table.len() + LONG {
            self.close_up();
        }
        Some(message)
    }

    /// The first is there for long: forgets the places of those behind it that have been taken.
    #[cold]
    fn close_up(&mut self) {
        self.order.retain(|place| place.1.is_some());
        let slots = self.order.iter().filter_map(|place| place.1);
        for (number, slot) in (self.before..).zip(slots) {
            if let Some(message) = self.table.get_mut(slot) {
                message.0 = number;
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Unexpected> {
        let slots = self.order.iter().filter_map(|place| place.1);
        slots.filter_map(|slot| Some(&self.table.get(slot)?.1))
    }
}
