//! Long queues of a context in which nobody uses wildcards: sorted by source and tag, so that a match costs the same
//! however long the queue is.

use std::collections::{HashMap, VecDeque};

/// A source and a tag.
pub(super) type Address = (u32, u32);

/// A queue sorted by source and tag.
pub(super) struct Sorted<T> {
    by_address: HashMap<Address, VecDeque<(u64, T)>>,
    /// The number of the next entry: keeps the order among all.
    next: u64,
    len: usize,
}

impl<T> Sorted<T> {
    /// The entries in their order.
    pub fn new(entries: impl IntoIterator<Item = (Address, T)>) -> Sorted<T> {
        let mut sorted = Sorted {
            by_address: HashMap::new(),
            next: 0,
            len: 0,
        };
        for (address, entry) in entries {
            sorted.push(address, entry);
        }
        sorted
    }

    pub fn push(&mut self, address: Address, entry: T) {
        let at = self.by_address.entry(address).or_default();
        at.push_back((self.next, entry));
        self.next += 1;
        self.len += 1;
    }

    /// The first with that address.
    pub fn first(&self, address: Address) -> Option<&T> {
        self.by_address.get(&address)?.front().map(|(_, e)| e)
    }

    /// Takes the first with that address.
    pub fn pop(&mut self, address: Address) -> Option<T> {
        self.take(address, |_| true)
    }

    /// Takes the first with that address of which `is` says so.
    pub fn take(&mut self, address: Address, is: impl Fn(&T) -> bool) -> Option<T> {
        let queue = self.by_address.get_mut(&address)?;
        let at = queue.iter().position(|(_, e)| is(e))?;
        let taken = queue.remove(at);
        if queue.is_empty() {
            self.by_address.remove(&address);
        }
        self.len -= usize::from(taken.is_some());
        taken.map(|(_, e)| e)
    }

    /// The address of the first of which `is` says so.
    pub fn find(&self, is: impl Fn(&T) -> bool) -> Option<Address> {
        self.by_address
            .iter()
            .find(|(_, queue)| queue.iter().any(|(_, e)| is(e)))
            .map(|(&address, _)| address)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// All entries, in the order in which they came.
    pub fn into_order(self) -> Vec<(Address, T)> {
        let mut all: Vec<(u64, Address, T)> = self
            .by_address
            .into_iter()
            .flat_map(|(address, queue)| queue.into_iter().map(move |(n, e)| (n, address, e)))
            .collect();
        all.sort_unstable_by_key(|&(n, ..)| n);
        all.into_iter().map(|(_, a, e)| (a, e)).collect()
    }
}
