//! The event horizon: from when on each rank may see an effect of what is under way.

use super::{Observers, Rank};
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Times from which on an event can be seen, each with the time at which the event is due. An event
/// that is done no longer counts.
#[derive(Default)]
struct VisibleTimes(BinaryHeap<Reverse<(Time, Time)>>);

impl VisibleTimes {
    fn add(&mut self, visible: Time, due: Time) {
        self.0.push(Reverse((visible, due)));
    }

    /// The earliest time of those events that are due after `now`.
    fn earliest(&mut self, now: Time) -> Time {
        while let Some(Reverse((visible, due))) = self.0.peek() {
            if *due > now {
                return *visible;
            }
            self.0.pop();
        }
        Time::MAX
    }
}

/// The horizon of each rank.
pub(super) struct EventHorizon {
    /// By rank: what this rank alone sees.
    ranks: Vec<VisibleTimes>,
    /// By node: what its ranks see.
    nodes: Vec<VisibleTimes>,
    /// What all ranks see.
    all: VisibleTimes,
    node_of: Vec<u32>,
}

impl EventHorizon {
    /// `node_of`: each rank's node.
    pub fn new(node_of: Vec<u32>) -> EventHorizon {
        let nodes = node_of.iter().max().map_or(0, |n| *n as usize + 1);
        let times = |n| (0..n).map(|_| VisibleTimes::default()).collect();
        EventHorizon {
            ranks: times(node_of.len()),
            nodes: times(nodes),
            all: VisibleTimes::default(),
            node_of,
        }
    }

    /// Adds an event that is due at `due` and that these observers see.
    pub fn add(&mut self, due: Time, observers: Observers) {
        match observers {
            Observers::Nobody => {}
            Observers::Rank(rank, delay) => {
                if let Some(times) = self.ranks.get_mut(rank as usize) {
                    times.add(due + delay, due);
                }
            }
            Observers::Node(node, delay) => {
                if let Some(times) = self.nodes.get_mut(node as usize) {
                    times.add(due + delay, due);
                }
            }
            Observers::All(delay) => self.all.add(due + delay, due),
        }
    }

    /// The earliest time at which the rank may see an effect of an event that is due after `now`.
    pub fn earliest(&mut self, rank: Rank, now: Time) -> Time {
        let node = self.node_of[rank as usize] as usize;
        let own = self.ranks[rank as usize].earliest(now);
        own.min(self.nodes[node].earliest(now))
            .min(self.all.earliest(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_its_own_horizon() {
        let ns = Time::ns;
        let mut horizon = EventHorizon::new(vec![0, 0, 1]);
        horizon.add(ns(10), Observers::Rank(0, ns(5)));
        horizon.add(ns(12), Observers::Node(0, Time::ZERO));
        horizon.add(ns(30), Observers::All(ns(1)));
        horizon.add(ns(1), Observers::Nobody);
        let mut at = |now| [0, 1, 2].map(|rank| horizon.earliest(rank, now));
        assert_eq!(at(ns(0)), [ns(12), ns(12), ns(31)]);
        // What is due now is done.
        assert_eq!(at(ns(12)), [ns(31), ns(31), ns(31)]);
        assert_eq!(at(ns(30)), [Time::MAX; 3]);
        horizon.add(ns(40), Observers::Rank(7, ns(1)));
        assert_eq!(horizon.earliest(0, ns(30)), Time::MAX);
    }
}
