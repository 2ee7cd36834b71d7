//! The unexpected queue of a context: messages that wait for their receive, in order of arrival.

use super::table::{Slot, SourceTag, Table};
use super::{SearchCost, TABLE_MIN_ENTRIES};
use crate::base::key::{Key, Pattern};
use crate::base::message::Unexpected;
use rustc_hash::FxHashSet;
use std::collections::VecDeque;

/// Looking up a source and tag costs as much as comparing this many entries. A choice. Low in
/// tests, so that they use both.
const LOOKUP_COST_ENTRIES: usize = if cfg!(test) { 2 } else { 32 };

/// Unexpected messages. The queue is a list at first. After searches have compared enough entries,
/// it is a table by source and tag, until it is empty.
#[derive(Default)]
pub(super) struct UnexpectedQueue {
    list: VecDeque<Unexpected>,
    search_cost: SearchCost,
    /// All messages, if they are in a table; then `list` is empty.
    table: Option<Box<MessageTable>>,
}

/// Numbers count messages in their order.
struct MessageTable {
    /// Each with its number.
    table: Table<(u64, Unexpected)>,
    /// Where each stands, by its number less `before`, for receives with wildcards; `None` once it
    /// has been taken.
    order: VecDeque<(SourceTag, Option<Slot>)>,
    before: u64,
    /// The sources of the messages since the table was made.
    sources: FxHashSet<u32>,
}

impl UnexpectedQueue {
    /// Is there no message?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.table.is_none()
    }

    /// Messages that wait.
    pub fn len(&self) -> usize {
        let long = self.table.as_ref();
        self.list.len() + long.map_or(0, |l| l.table.len())
    }

    /// The length of the order list, with the slots of taken messages.
    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.table.as_ref().map_or(0, |long| long.order.len())
    }

    /// All messages, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Unexpected> {
        let long = self.table.iter().flat_map(|long| long.iter());
        self.list.iter().chain(long)
    }

    /// Adds a message behind the others.
    pub fn push(&mut self, message: Unexpected) {
        if let Some(long) = &mut self.table {
            return long.push(message);
        }
        if self.list.is_empty() {
            self.search_cost = SearchCost::default();
        }
        self.list.push_back(message);
    }

    /// Moves a list that has become long into a table.
    #[cold]
    fn make_table(&mut self) {
        let mut long = Box::new(MessageTable {
            table: Table::new(),
            order: VecDeque::new(),
            before: 0,
            sources: FxHashSet::default(),
        });
        for message in self.list.drain(..) {
            long.push(message);
        }
        self.table = Some(long);
    }

    /// The first message that `pattern` accepts.
    pub fn first(&mut self, pattern: &Pattern) -> Option<&Unexpected> {
        if self.table.is_none() {
            let found = self.search(pattern);
            self.searched(found);
            if self.table.is_none() {
                return self.list.get(found?);
            }
        }
        let long = self.table.as_ref()?;
        long.table.first(long.source_tag(pattern)?).map(|m| &m.1)
    }

    /// Takes the first message that `pattern` accepts.
    #[inline]
    pub fn take(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        if self.is_empty() {
            return None;
        }
        self.take_from_some(pattern)
    }

    #[inline]
    fn take_from_some(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        if self.table.is_some() {
            return self.take_from_table(pattern);
        }
        // Mostly it is the first.
        if self.list.front().is_some_and(|m| pattern.accepts(&m.key)) {
            return self.list.pop_front();
        }
        let found = self.search(pattern);
        let taken = found.and_then(|at| self.list.remove(at));
        self.searched(found);
        taken
    }

    fn search(&self, pattern: &Pattern) -> Option<usize> {
        self.list.iter().position(|m| pattern.accepts(&m.key))
    }

    /// The list was searched, and this was found.
    fn searched(&mut self, found: Option<usize>) {
        let len = self.list.len();
        if self.search_cost.add(found.unwrap_or(len), len) {
            self.make_table();
        }
    }

    fn take_from_table(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let long = self.table.as_mut()?;
        let found = long.take(pattern)?;
        if long.table.len() == 0 {
            self.table = None;
        }
        Some(found)
    }
}

impl MessageTable {
    fn push(&mut self, message: Unexpected) {
        let source_tag = (message.key.source, message.key.tag);
        let number = self.before + self.order.len() as u64;
        let slot = self.table.push(source_tag, (number, message));
        // Often several in a row are from the same source.
        if self
            .order
            .back()
            .is_none_or(|last| last.0.0 != source_tag.0)
        {
            self.sources.insert(source_tag.0);
        }
        self.order.push_back((source_tag, Some(slot)));
    }

    /// The source and tag of the first message that `pattern` accepts: of all with that source and
    /// tag it is the first. Without a wildcard there may be none.
    fn source_tag(&self, pattern: &Pattern) -> Option<SourceTag> {
        match (pattern.source, pattern.tag.only()) {
            (Some(source), Some(tag)) => Some((source, tag)),
            (None, Some(tag)) if LOOKUP_COST_ENTRIES * self.sources.len() < self.order.len() => {
                let firsts = self.sources.iter().filter_map(|&source| {
                    let (number, _) = self.table.first((source, tag))?;
                    Some((*number, source))
                });
                firsts.min().map(|(_, source)| (source, tag))
            }
            _ => {
                let context = pattern.context;
                let accepts = |&(source, tag): &SourceTag| {
                    pattern.accepts(&Key {
                        context,
                        source,
                        tag,
                    })
                };
                let waiting = self.order.iter().filter(|entry| entry.1.is_some());
                waiting.map(|entry| entry.0).find(accepts)
            }
        }
    }

    fn take(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let (number, message) = self.table.pop(self.source_tag(pattern)?)?;
        self.order[(number - self.before) as usize].1 = None;
        while self.order.front().is_some_and(|entry| entry.1.is_none()) {
            self.order.pop_front();
            self.before += 1;
        }
        if self.order.len() > 2 * self.table.len() + TABLE_MIN_ENTRIES {
            self.close_up();
        }
        Some(message)
    }

    /// The first message stays for long: removes the slots of taken messages behind it.
    #[cold]
    fn close_up(&mut self) {
        self.order.retain(|entry| entry.1.is_some());
        let slots = self.order.iter().filter_map(|entry| entry.1);
        for (number, slot) in (self.before..).zip(slots) {
            if let Some(message) = self.table.get_mut(slot) {
                message.0 = number;
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Unexpected> {
        let slots = self.order.iter().filter_map(|entry| entry.1);
        slots.filter_map(|slot| Some(&self.table.get(slot)?.1))
    }
}
