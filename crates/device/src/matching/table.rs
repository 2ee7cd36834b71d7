//! A table of queue entries by source and tag.
//!
//! Entries with the same source and tag form a list, first in, first out. Finding the first one
//! costs the same for every length of the queue.

use rustc_hash::FxHashMap;
use slab::Slab;
use std::collections::hash_map;

/// A source and a tag: the key of the table.
pub(super) type SourceTag = (u32, u32);

/// The index of an entry. It is valid until the entry is taken.
pub(super) type Slot = usize;

struct Entry<T> {
    value: T,
    /// The next entry with the same source and tag. Without meaning in the last one.
    next: Slot,
}

/// The first and the last entry with a source and tag.
struct Ends {
    first: Slot,
    last: Slot,
}

/// Queue entries by source and tag.
pub(super) struct Table<T> {
    entries: Slab<Entry<T>>,
    by_source_tag: FxHashMap<SourceTag, Ends>,
}

impl<T> Table<T> {
    /// A table without entries.
    pub fn new() -> Table<T> {
        Table {
            entries: Slab::new(),
            by_source_tag: FxHashMap::default(),
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry in a slot, if it is there.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        Some(&self.entries.get(slot)?.value)
    }

    /// As [`Table::get`].
    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        Some(&mut self.entries.get_mut(slot)?.value)
    }

    /// Adds an entry behind the others of its source and tag. Returns its slot.
    pub fn push(&mut self, source_tag: SourceTag, value: T) -> Slot {
        let next = usize::MAX;
        let slot = self.entries.insert(Entry { value, next });
        match self.by_source_tag.entry(source_tag) {
            hash_map::Entry::Occupied(ends) => {
                let last = std::mem::replace(&mut ends.into_mut().last, slot);
                self.entries[last].next = slot;
            }
            hash_map::Entry::Vacant(new) => {
                let (first, last) = (slot, slot);
                new.insert(Ends { first, last });
            }
        }
        slot
    }

    /// The first entry with that source and tag.
    pub fn first(&self, source_tag: SourceTag) -> Option<&T> {
        self.get(self.by_source_tag.get(&source_tag)?.first)
    }

    /// Takes the first entry with that source and tag.
    pub fn pop(&mut self, source_tag: SourceTag) -> Option<T> {
        let hash_map::Entry::Occupied(mut ends) = self.by_source_tag.entry(source_tag) else {
            return None;
        };
        let Entry { value, next } = self.entries.remove(ends.get().first);
        if ends.get().first == ends.get().last {
            ends.remove();
        } else {
            ends.get_mut().first = next;
        }
        Some(value)
    }

    /// Takes the first entry with that source and tag for which `accepts` is true.
    pub fn take(&mut self, source_tag: SourceTag, accepts: impl Fn(&T) -> bool) -> Option<T> {
        let ends = self.by_source_tag.get(&source_tag)?;
        let (mut before, mut slot) = (None, ends.first);
        while !accepts(&self.entries[slot].value) {
            if slot == ends.last {
                return None;
            }
            before = Some(slot);
            slot = self.entries[slot].next;
        }
        let Some(before) = before else {
            return self.pop(source_tag);
        };
        let Entry { value, next } = self.entries.remove(slot);
        self.entries[before].next = next;
        let ends = self.by_source_tag.get_mut(&source_tag)?;
        if ends.last == slot {
            ends.last = before;
        }
        Some(value)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| &entry.value)
    }
}
