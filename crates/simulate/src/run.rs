//! The simulation: ranks run their programs in virtual time, messages wait for links.
//!
//! A message costs its sender and its receiver half of the model's overhead each, as work of their
//! cores. The rest of the latency and the links' latency pass on the way. A node's link carries a
//! byte in the model's time for one, and a message in no less than the model's time for one; every
//! other link as well. Messages between ranks of a node take shared memory's figures and no link.
//! Each rank has a core.

use crate::Error;
use crate::network::{LINK_LATENCY_S, Network};
use crate::program::{Op, Program, picoseconds};
use ferry_schedule::{Algorithm, Collective, Cost, NodeMap};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;

/// The ranks and where they run: in blocks, `per_node` on each node.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// How many.
    pub ranks: u32,
    /// Ranks on a node.
    pub per_node: u32,
    /// What joins the nodes.
    pub network: &'a Network,
    /// What messages between nodes cost. It also chooses the algorithm.
    pub cost: Cost,
}

impl Job<'_> {
    /// The nodes of its ranks, each with a core for every rank. `None`: there are no two levels.
    pub(crate) fn nodes(&self) -> Option<NodeMap> {
        NodeMap::new((0..self.ranks).map(|rank| rank / self.per_node), u32::MAX)
    }
}

/// What a collective took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Until the last rank has finished, s.
    pub seconds: f64,
    /// Messages of all ranks.
    pub messages: u64,
    /// The greatest number of messages that one link carried.
    pub busiest_link: u64,
    /// Which algorithm ran.
    pub algorithm: Option<Algorithm>,
}

/// Runs `call` on all ranks of `job`, which begin at the same time. `forced` is the algorithm to
/// use; without it the cost model chooses.
///
/// Errors: TooFewNodes, Zero; TooManyMessages beyond `limit`; NotAllowed; Unmatched and Deadlock
/// for an algorithm that is wrong.
pub fn simulate(
    job: &Job<'_>,
    call: &Collective<'_>,
    forced: Option<Algorithm>,
    limit: u64,
) -> Result<Outcome, Error> {
    for (what, n) in [
        ("the number of ranks", job.ranks),
        ("ranks a node", job.per_node),
    ] {
        if n == 0 {
            return Err(Error::Zero(what));
        }
    }
    let needed = job.ranks.div_ceil(job.per_node);
    if needed > job.network.nodes() {
        return Err(Error::TooFewNodes {
            ranks: job.ranks,
            per_node: job.per_node,
            needed,
            nodes: job.network.nodes(),
        });
    }
    let program = Program::new(
        job.ranks,
        job.nodes().as_ref(),
        call,
        &job.cost,
        forced,
        limit,
    )?;
    Simulation::new(job, &program).run()
}

/// What a message costs, in ps.
struct MessageCost {
    overhead: u64,
    latency: u64,
    rendezvous: u64,
    eager_max: u64,
    /// Per byte, in 1/1024 ps.
    byte: u64,
    /// Of a link, for each message.
    link: u64,
}

impl MessageCost {
    fn new(cost: &Cost) -> MessageCost {
        MessageCost {
            overhead: picoseconds(cost.overhead_s / 2.),
            latency: picoseconds((cost.latency_s - cost.overhead_s).max(0.)),
            rendezvous: picoseconds(cost.rendezvous_s),
            eager_max: u64::from(cost.eager_max_bytes),
            byte: picoseconds(cost.byte_s * 1024.),
            link: picoseconds(cost.link_message_s),
        }
    }

    fn bytes(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.byte) / 1024) as u64
    }
}

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A rank goes on.
    Rank(u32),
    /// A message by rendezvous sets out.
    Departs(u32),
    /// A message that had to wait for a link comes to the next one: its number on the way.
    Arrives(u32, u32),
}

/// A time that is known. Time 0 counts as 1 ps, so that an unknown one takes no room.
fn known(time: u64) -> Option<NonZeroU64> {
    Some(NonZeroU64::new(time).unwrap_or(NonZeroU64::MIN))
}

/// Where a message is.
#[derive(Clone, Copy, Default)]
struct State {
    /// When the sender had started it.
    sent: Option<NonZeroU64>,
    /// When its receive was posted.
    posted: Option<NonZeroU64>,
    /// When it is complete at the receiver (and, by rendezvous, at the sender).
    complete: Option<NonZeroU64>,
}

struct RankState {
    /// The next step, in `Program::ops`.
    at: usize,
    time: u64,
    /// Messages under way: number, which of the rank's own it is, whether the rank sends it.
    under_way: Vec<(u32, u32, bool)>,
    /// The rank sleeps in an Await, or at its end, and these are not complete.
    missing: u32,
    /// How many sends and receives it has started.
    started: u32,
    /// The Await: so many of them are waited for.
    before: u32,
    sleeps: bool,
}

struct Simulation<'a> {
    job: &'a Job<'a>,
    program: &'a Program,
    network: MessageCost,
    node: MessageCost,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    ranks: Vec<RankState>,
    messages: Vec<State>,
    /// From when on each link is free, and how many messages it has carried.
    links: Vec<(u64, u64)>,
    way: Vec<u32>,
}

impl<'a> Simulation<'a> {
    fn new(job: &'a Job<'a>, program: &'a Program) -> Simulation<'a> {
        let rank = |r: u32| RankState {
            at: program.starts[r as usize],
            time: 0,
            under_way: Vec::new(),
            missing: 0,
            started: 0,
            before: 0,
            sleeps: false,
        };
        Simulation {
            job,
            program,
            network: MessageCost::new(&job.cost),
            node: MessageCost::new(&Cost::shared_memory(job.per_node, job.per_node)),
            events: (0..job.ranks)
                .map(|r| Reverse((0, Event::Rank(r))))
                .collect(),
            ranks: (0..job.ranks).map(rank).collect(),
            messages: vec![State::default(); program.messages.len()],
            links: vec![(0, 0); job.network.links()],
            way: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Outcome, Error> {
        while let Some(Reverse((now, event))) = self.events.pop() {
            match event {
                Event::Rank(rank) => self.steps(rank),
                Event::Departs(message) => self.depart(message, now),
                Event::Arrives(message, hop) => self.travel(message, hop as usize, now),
            }
        }
        if let Some(stuck) = (0..self.job.ranks).find(|&r| !self.has_finished(r)) {
            return Err(Error::Deadlock(stuck));
        }
        let last = self.ranks.iter().map(|r| r.time).max().unwrap_or(0);
        Ok(Outcome {
            seconds: last as f64 * 1e-12,
            messages: self.messages.len() as u64,
            busiest_link: self.links.iter().map(|l| l.1).max().unwrap_or(0),
            algorithm: self.program.algorithm,
        })
    }

    fn has_finished(&self, rank: u32) -> bool {
        let r = &self.ranks[rank as usize];
        r.at == self.program.starts[rank as usize + 1] && r.under_way.is_empty()
    }

    fn cost(&self, message: u32) -> (bool, &MessageCost) {
        let m = self.program.messages[message as usize];
        let is_local = m.from / self.job.per_node == m.to / self.job.per_node;
        (is_local, if is_local { &self.node } else { &self.network })
    }

    /// Carries out a rank's next steps until something else comes first, so that links are taken in
    /// the order of time.
    fn steps(&mut self, rank: u32) {
        while self.step(rank) {
            let next = (self.ranks[rank as usize].time, Event::Rank(rank));
            if self.events.peek().is_some_and(|first| first.0 < next) {
                return self.events.push(Reverse(next));
            }
        }
    }

    /// Carries out a rank's next step. Returns whether it goes on with the one behind.
    fn step(&mut self, rank: u32) -> bool {
        let end = self.program.starts[rank as usize + 1];
        let r = &mut self.ranks[rank as usize];
        let Some(op) = self.program.ops[r.at..end].first().copied() else {
            // What is still under way is waited for.
            self.sleep(rank, u32::MAX);
            return false;
        };
        let index = r.started;
        r.at += 1;
        r.started += u32::from(matches!(op, Op::Send(_) | Op::Recv(_)));
        match op {
            Op::Work(time) => r.time += time,
            Op::Send(message) => {
                r.under_way.push((message, index, true));
                self.send(rank, message);
            }
            Op::Recv(message) => {
                r.under_way.push((message, index, false));
                let time = r.time;
                self.messages[message as usize].posted = known(time);
                self.start_rendezvous(message);
            }
            Op::Await(before) => {
                self.sleep(rank, before);
                return false;
            }
        }
        true
    }

    fn send(&mut self, rank: u32, message: u32) {
        let bytes = self.program.messages[message as usize].bytes;
        let (is_local, cost) = self.cost(message);
        let is_eager = bytes <= cost.eager_max;
        let mut busy = cost.overhead;
        if is_local && is_eager {
            busy += cost.bytes(bytes);
        }
        let r = &mut self.ranks[rank as usize];
        r.time += busy;
        let time = r.time;
        self.messages[message as usize].sent = known(time);
        if is_eager {
            self.depart(message, time);
        } else {
            self.start_rendezvous(message);
        }
    }

    /// Lets a message by rendezvous set out once both sides are there.
    fn start_rendezvous(&mut self, message: u32) {
        let bytes = self.program.messages[message as usize].bytes;
        let (_, cost) = self.cost(message);
        if bytes <= cost.eager_max {
            return;
        }
        let rendezvous = cost.rendezvous;
        let state = self.messages[message as usize];
        if let (Some(sent), Some(posted)) = (state.sent, state.posted) {
            let departs = sent.max(posted).get() + rendezvous;
            self.events
                .push(Reverse((departs, Event::Departs(message))));
        }
    }

    /// Sends a message on its way, and completes one to the same node.
    fn depart(&mut self, message: u32, now: u64) {
        let m = self.program.messages[message as usize];
        let (is_local, cost) = self.cost(message);
        if !is_local {
            return self.travel(message, 0, now);
        }
        // An eager message's bytes were copied by the sender already.
        let bytes = match m.bytes <= cost.eager_max {
            true => 0,
            false => cost.bytes(m.bytes),
        };
        self.complete(message, now + cost.latency + bytes);
    }

    /// Sends a message over the links of its way from number `hop` on, and completes it. It comes
    /// to that link at `now`, and to its receiver a latency later: so all messages take their links
    /// in the order in which they come to each. Behind a link for which it had to wait others may
    /// come before it.
    fn travel(&mut self, message: u32, hop: usize, now: u64) {
        let m = self.program.messages[message as usize];
        let per_node = self.job.per_node;
        let (latency, bytes) = (self.network.latency, self.network.bytes(m.bytes));
        let each = bytes.max(self.network.link);
        let mut way = std::mem::take(&mut self.way);
        let network = self.job.network;
        network.route(m.from / per_node, m.to / per_node, &mut way);
        let mut head = now;
        for (i, &link) in way.iter().enumerate().skip(hop) {
            let (free, carried) = &mut self.links[link as usize];
            let waits = head < *free;
            head = head.max(*free) + picoseconds(LINK_LATENCY_S);
            *free = head - picoseconds(LINK_LATENCY_S) + each;
            *carried += 1;
            if waits && i + 1 < way.len() {
                let next = Event::Arrives(message, i as u32 + 1);
                self.events.push(Reverse((head, next)));
                self.way = way;
                return;
            }
        }
        self.way = way;
        self.complete(message, head + latency + bytes);
    }

    /// A message is complete at `time`.
    fn complete(&mut self, message: u32, time: u64) {
        let m = self.program.messages[message as usize];
        self.messages[message as usize].complete = known(time);
        self.completed(m.to, message);
        if m.bytes > self.cost(message).1.eager_max {
            self.completed(m.from, message);
        }
    }

    /// A message of a rank is complete: the rank goes on if it slept for this one only.
    fn completed(&mut self, rank: u32, message: u32) {
        let r = &mut self.ranks[rank as usize];
        if !r.sleeps {
            return;
        }
        let before = r.before;
        if r.under_way.iter().any(|u| u.0 == message && u.1 < before) {
            r.missing -= 1;
            if r.missing == 0 {
                self.wake(rank);
            }
        }
    }

    /// When a message under way is over for this rank, if that is known.
    fn over(&self, message: u32, sends: bool) -> Option<u64> {
        let state = self.messages[message as usize];
        let bytes = self.program.messages[message as usize].bytes;
        let over = match sends && bytes <= self.cost(message).1.eager_max {
            true => state.sent,
            false => state.complete,
        };
        over.map(NonZeroU64::get)
    }

    fn sleep(&mut self, rank: u32, before: u32) {
        let waited = |u: &&(u32, u32, bool)| u.1 < before;
        let under_way = &self.ranks[rank as usize].under_way;
        let missing = under_way
            .iter()
            .filter(waited)
            .filter(|u| self.over(u.0, u.2).is_none())
            .count();
        let r = &mut self.ranks[rank as usize];
        r.before = before;
        r.missing = missing as u32;
        r.sleeps = true;
        if missing == 0 {
            self.wake(rank);
        }
    }

    /// Takes what an Await has waited for, in the order in which it came: each receive is the
    /// receiver's work.
    fn wake(&mut self, rank: u32) {
        let mut r = std::mem::take(&mut self.ranks[rank as usize].under_way);
        let before = self.ranks[rank as usize].before;
        let mut taken: Vec<(u64, u64)> = Vec::new();
        r.retain(|&(message, index, sends)| {
            let is_waited = index < before;
            if is_waited {
                let work = if sends {
                    0
                } else {
                    self.cost(message).1.overhead
                };
                taken.push((self.over(message, sends).unwrap_or(0), work));
            }
            !is_waited
        });
        taken.sort_unstable();
        let state = &mut self.ranks[rank as usize];
        state.under_way = r;
        state.sleeps = false;
        for (at, work) in taken {
            state.time = state.time.max(at) + work;
        }
        if before != u32::MAX {
            let time = state.time;
            self.events.push(Reverse((time, Event::Rank(rank))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::call_of;
    use ferry_schedule::Kind;

    fn tree(nodes: u32) -> Network {
        Network::fat_tree(nodes, 1).unwrap()
    }

    fn run(ranks: u32, per_node: u32, call: &Collective<'_>, forced: Algorithm) -> Outcome {
        let network = tree(ranks.div_ceil(per_node));
        let job = Job {
            ranks,
            per_node,
            network: &network,
            cost: Cost::network(),
        };
        simulate(&job, call, Some(forced), 10_000_000).unwrap()
    }

    #[test]
    fn a_message_takes_latency_links_and_bytes() {
        let cost = Cost::network();
        let call = call_of(Kind::Bcast, 1024);
        let outcome = run(2, 1, &call, Algorithm::Flat);
        let expected = cost.latency_s + 2. * LINK_LATENCY_S + 1024. * cost.byte_s;
        assert!(
            (outcome.seconds - expected).abs() < 1e-9,
            "{} and {expected}",
            outcome.seconds
        );
        assert_eq!((outcome.messages, outcome.busiest_link), (1, 1));
    }

    #[test]
    fn a_rendezvous_begins_when_both_are_there() {
        let cost = Cost::network();
        let bytes = 1 << 20;
        let outcome = run(2, 1, &call_of(Kind::Bcast, bytes), Algorithm::Flat);
        let expected =
            cost.latency_s + cost.rendezvous_s + 2. * LINK_LATENCY_S + bytes as f64 * cost.byte_s;
        assert!(
            (outcome.seconds - expected).abs() < 1e-8,
            "{} and {expected}",
            outcome.seconds
        );
    }

    #[test]
    fn messages_to_one_node_wait_for_its_link() {
        // 15 blocks of 64 KiB into one node: the link carries one after the other.
        let cost = Cost::network();
        let outcome = run(16, 1, &call_of(Kind::Gather, 64 << 10), Algorithm::Flat);
        let bytes = 15. * 65536. * cost.byte_s;
        assert_eq!(outcome.busiest_link, 15);
        assert!(outcome.seconds > bytes, "{}", outcome.seconds);
        assert!(outcome.seconds < bytes + 30e-6, "{}", outcome.seconds);
    }

    #[test]
    fn a_message_that_waits_for_its_first_link_keeps_no_other_from_its_last() {
        // Sixteen nodes, each of which sends one message to each other one: all links are
        // busy, although most messages wait for the first link of their way.
        let cost = Cost::network();
        let call = call_of(Kind::Alltoall, 4096);
        let outcome = run(128, 8, &call, Algorithm::Hierarchical);
        let bytes = 15. * 64. * 4096. * cost.byte_s;
        assert_eq!(outcome.busiest_link, 15);
        assert!(outcome.seconds > bytes, "{}", outcome.seconds);
        assert!(outcome.seconds < 1.5 * bytes, "{}", outcome.seconds);
    }

    #[test]
    fn ranks_of_a_node_use_no_link() {
        let outcome = run(8, 8, &call_of(Kind::Barrier, 0), Algorithm::Dissemination);
        assert_eq!((outcome.messages, outcome.busiest_link), (24, 0));
        assert!(outcome.seconds < 3e-6, "{}", outcome.seconds);
    }

    #[test]
    fn every_algorithm_of_every_collective_ends() {
        for ranks in [1, 2, 7, 16, 33] {
            for kind in Kind::ALL {
                for bytes in [0, 8, 4096, 1 << 20] {
                    for &algorithm in kind.algorithms() {
                        let call = call_of(kind, bytes);
                        let network = tree(ranks);
                        let job = Job {
                            ranks,
                            per_node: 2,
                            network: &network,
                            cost: Cost::network(),
                        };
                        match simulate(&job, &call, Some(algorithm), 1_000_000) {
                            Ok(_) | Err(Error::NotAllowed(_)) => (),
                            Err(e) => panic!("{kind:?} {algorithm:?} {ranks} {bytes}: {e}"),
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_run_is_said() {
        let network = tree(32);
        let mut job = Job {
            ranks: 64,
            per_node: 1,
            network: &network,
            cost: Cost::network(),
        };
        let outcome = |job: &Job<'_>, limit| simulate(job, &Collective::Barrier, None, limit);
        assert!(matches!(
            outcome(&job, 1000),
            Err(Error::TooFewNodes { .. })
        ));
        job.per_node = 2;
        assert_eq!(outcome(&job, 10), Err(Error::TooManyMessages(10)));
        job.per_node = 0;
        assert_eq!(outcome(&job, 1000), Err(Error::Zero("ranks a node")));
    }
}
