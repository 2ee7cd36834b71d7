//! A table by source and tag: what waits with one address comes out in the order in which it went
//! in, and the next one is found at the same cost however many there are.

use rustc_hash::FxHashMap;
use slab::Slab;
use std::collections::hash_map::Entry;

/// A source and a tag.
pub(super) type Address = (u32, u32);

/// A place in the table: valid until what stands there is taken.
pub(super) type Slot = usize;

struct Place<T> {
    value: T,
    /// The next with the same address, if this is not the last.
    next: Slot,
}

/// The first and the last place with an address.
struct Ends {
    first: Slot,
    last: Slot,
}

/// What waits, by source and tag.
pub(super) struct Table<T> {
    places: Slab<Place<T>>,
    by_address: FxHashMap<Address, Ends>,
}

impl<T> Table<T> {
    pub fn new() -> Table<T> {
        Table {
            places: Slab::new(),
            by_address: FxHashMap::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn get(&self, slot: Slot) -> Option<&T> {
        Some(&self.places.get(slot)?.value)
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        Some(&mut self.places.get_mut(slot)?.value)
    }

    pub fn push(&mut self, address: Address, value: T) -> Slot {
        let next = usize::MAX;
        let slot = self.places.insert(Place { value, next });
        match self.by_address.entry(address) {
            Entry::Occupied(ends) => {
                let last = std::mem::replace(&mut ends.into_mut().last, slot);
                self.places[last].next = slot;
            }
            Entry::Vacant(new) => {
                let (first, last) = (slot, slot);
                new.insert(Ends { first, last });
            }
        }
        slot
    }

    /// The first with that address.
    pub fn first(&self, address: Address) -> Option<&T> {
        self.get(self.by_address.get(&address)?.first)
    }

    /// Takes the first with that address.
    pub fn pop(&mut self, address: Address) -> Option<T> {
        let Entry::Occupied(mut ends) = self.by_address.entry(address) else {
            return None;
        };
        let Place { value, next } = self.places.remove(ends.get().first);
        if ends.get().first == ends.get().last {
            ends.remove();
        } else {
            ends.get_mut().first = next;
        }
        Some(value)
    }

    /// Takes the first with that address of which `is` says so.
    pub fn take(&mut self, address: Address, is: impl Fn(&T) -> bool) -> Option<T> {
        let ends = self.by_address.get(&address)?;
        let (mut before, mut slot) = (None, ends.first);
        while !is(&self.places[slot].value) {
            if slot == ends.last {
                return None;
            }
            before = Some(slot);
            slot = self.places[slot].next;
        }
        let Some(before) = before else {
            return self.pop(address);
        };
        let Place { value, next } = self.places.remove(slot);
        self.places[before].next = next;
        let ends = self.by_address.get_mut(&address)?;
        if ends.last == slot {
            ends.last = before;
        }
        Some(value)
    }

    /// All, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().map(|(_, place)| &place.value)
    }
}
