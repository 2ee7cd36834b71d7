//! From when on a rank may see something new: what is under way, by whom it can be seen.

use super::server::Sight;
use crate::{Rank, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times from which on something can be seen, each with the time at which the event behind it is
/// due: then it is done with.
#[derive(Default)]
struct Times(BinaryHeap<Reverse<(Time, Time)>>);

impl Times {
    fn note(&mut self, seen: Time, due: Time) {
        self.0.push(Reverse((seen, due)));
    }

    /// The first of those that are due after `now`.
    fn first(&mut self, now: Time) -> Time {
        while let Some(Reverse((seen, due))) = self.0.peek() {
            if *due > now {
                return *seen;
            }
            self.0.pop();
        }
        Time::MAX
    }
}

/// By ranks, by nodes, and for all.
pub(super) struct Sights {
    ranks: Vec<Times>,
    nodes: Vec<Times>,
    all: Times,
    node_of: Vec<u32>,
}

impl Sights {
    /// `node_of`: each rank's node.
    pub fn new(node_of: Vec<u32>) -> Sights {
        let nodes = node_of.iter().max().map_or(0, |n| *n as usize + 1);
        let times = |n| (0..n).map(|_| Times::default()).collect();
        Sights {
            ranks: times(node_of.len()),
            nodes: times(nodes),
            all: Times::default(),
            node_of,
        }
    }

    /// Something is due at that time, and is seen so.
    pub fn note(&mut self, due: Time, sight: Sight) {
        match sight {
            Sight::Nobody => {}
            Sight::Rank(rank, later) => {
                if let Some(times) = self.ranks.get_mut(rank as usize) {
                    times.note(due + later, due);
                }
            }
            Sight::Node(node, later) => {
                if let Some(times) = self.nodes.get_mut(node as usize) {
                    times.note(due + later, due);
                }
            }
            Sight::All(later) => self.all.note(due + later, due),
        }
    }

    /// From when on the rank may see something of what has been noted and is due after `now`.
    pub fn first(&mut self, rank: Rank, now: Time) -> Time {
        let node = self.node_of[rank as usize] as usize;
        let own = self.ranks[rank as usize].first(now);
        own.min(self.nodes[node].first(now))
            .min(self.all.first(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_sees_its_own_first() {
        let ns = Time::ns;
        let mut sights = Sights::new(vec![0, 0, 1]);
        sights.note(ns(10), Sight::Rank(0, ns(5)));
        sights.note(ns(12), Sight::Node(0, Time::ZERO));
        sights.note(ns(30), Sight::All(ns(1)));
        sights.note(ns(1), Sight::Nobody);
        let mut at = |now| [0, 1, 2].map(|rank| sights.first(rank, now));
        assert_eq!(at(ns(0)), [ns(12), ns(12), ns(31)]);
        // What is due now is done.
        assert_eq!(at(ns(12)), [ns(31), ns(31), ns(31)]);
        assert_eq!(at(ns(30)), [Time::MAX; 3]);
        sights.note(ns(40), Sight::Rank(7, ns(1)));
        assert_eq!(sights.first(0, ns(30)), Time::MAX);
    }
}
