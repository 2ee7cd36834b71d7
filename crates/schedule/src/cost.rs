//! The cost model: how long each algorithm takes, and so which one is used.
//!
//! An algorithm takes as long as its longest chain of dependent messages. It also takes at least as
//! long as the work of all ranks together takes on the cores that they share. The second bound
//! matters where ranks outnumber cores: fewer messages in all are then better than fewer rounds.
//! The model is a variant of LogGP, with cores.

use crate::algorithm::{Algorithm, Kind};
use crate::node_cost::Crossing;
use crate::node_map::NodeShape;
use crate::step::power_below;

/// What it costs to move and to reduce data. All ranks of a communicator must use the same figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Seconds from a send until the receiver goes on.
    pub latency_s: f64,
    /// Seconds of a core that both sides together spend on a message.
    pub overhead_s: f64,
    /// Seconds of these until a rank that sends goes on.
    pub send_s: f64,
    /// Largest message that is sent eagerly.
    pub eager_max_bytes: u32,
    /// Seconds that the rendezvous of a larger message adds.
    pub rendezvous_s: f64,
    /// Seconds to move a byte from one rank to another.
    pub byte_s: f64,
    /// Seconds that a message between nodes takes of a node's link at least.
    pub link_message_s: f64,
    /// Seconds to reduce a byte.
    pub reduce_byte_s: f64,
    /// Seconds to copy a byte within a rank.
    pub copy_byte_s: f64,
    /// Seconds that a copy takes beside its bytes.
    pub copy_s: f64,
    /// Cores that the ranks share. At least the number of ranks if each has its own.
    pub cores: u32,
    /// Bytes of a segment in pipelined algorithms (chain, binary tree).
    pub segment_bytes: u32,
    /// Peers with which an all-to-all exchanges at a time.
    pub window_peers: u32,
}

impl Cost {
    /// The figures for ranks on one node, which use shared memory. Measured on a two-core x86-64
    /// virtual machine. Where ranks outnumber cores a message costs a context switch.
    pub const fn shared_memory(ranks: u32, cores: u32) -> Cost {
        let crowded = ranks > cores;
        Cost {
            latency_s: if crowded { 3.0e-6 } else { 0.4e-6 },
            overhead_s: if crowded { 2.0e-6 } else { 0.3e-6 },
            // The context switch is the receiver's.
            send_s: 0.3e-6,
            // With a core for each rank, a message of up to 64 KiB costs no more than its bytes.
            // One of 128 KiB costs a microsecond more than two of these. Where ranks share cores,
            // the parts of a message wait until the other rank gets the core.
            eager_max_bytes: if crowded { 16 << 10 } else { 64 << 10 },
            rendezvous_s: if crowded { 2.5e-6 } else { 1.0e-6 },
            byte_s: 1.0e-10,
            link_message_s: 0.,
            reduce_byte_s: 4.0e-11,
            copy_byte_s: 4.0e-11,
            // Not told apart from what messages cost.
            copy_s: 0.,
            cores: if cores == 0 { 1 } else { cores },
            segment_bytes: 64 << 10,
            window_peers: 32,
        }
    }

    /// The figures for ranks on several hosts, which use TCP. A rank does not know how many ranks
    /// share a core on other hosts. So these figures depend on nothing that two ranks could see
    /// differently: each rank is taken to have a core.
    ///
    /// Measured by `bench/run --net` between two network namespaces of a two-core x86-64 virtual
    /// machine, a core each (2026-11-22):
    ///
    /// - `latency_s`: half the round trip of a byte.
    /// - `overhead_s`: the time between messages of a byte, with 64 in flight. That is the sender's
    ///   share, as the receiver reads many at once.
    /// - `byte_s`: the slope of half the round trip from 256 KiB to 4 MiB.
    /// - `rendezvous_s`: what 256 KiB take beyond latency and bytes.
    /// - `copy_s`: Bruck's algorithm beside spread, on one rank and on two of a node (2026-11-27).
    /// - `link_message_s`: not measured. An estimate: network cards pass some ten million a second.
    ///
    /// A slower network has more of all of them. The choice depends on their ratios.
    pub const fn network() -> Cost {
        Cost {
            latency_s: 3.1e-6,
            overhead_s: 2.7e-6,
            send_s: 2.7e-6,
            eager_max_bytes: 64 << 10,
            rendezvous_s: 6.0e-6,
            byte_s: 1.2e-10,
            link_message_s: 1.0e-7,
            copy_s: 2.5e-8,
            cores: u32::MAX,
            ..Cost::shared_memory(1, 1)
        }
    }

    /// The figures where so many ranks send through one link at a time.
    pub(crate) fn of_shared_link(&self, ranks: u32) -> Cost {
        Cost {
            byte_s: self.byte_s * f64::from(ranks),
            ..*self
        }
    }

    /// Seconds of a collective of `n` ranks: of the longest chain of messages, of all ranks' work,
    /// and of what crosses a node's link.
    pub(crate) fn seconds(&self, n: f64, path: Load, work: Load, crossing: Crossing) -> f64 {
        let large = |l: Load| l.bytes > l.count * f64::from(self.eager_max_bytes);
        let extra = |l: Load| if large(l) { self.rendezvous_s } else { 0. };
        let crossing_s =
            (crossing.messages * self.link_message_s).max(crossing.bytes * self.byte_s);
        let messages_s = path.messages * (self.latency_s + extra(path));
        let alone = match crossing.overlaps {
            true => (messages_s + self.volume(path)).max(self.latency_s + crossing_s),
            false => messages_s + self.volume(path).max(crossing_s),
        };
        let together = work.messages * (self.overhead_s + extra(work)) + self.volume(work);
        alone.max(together / f64::from(self.cores).min(n))
    }
    fn volume(&self, l: Load) -> f64 {
        let copy_s = l.copied * self.copy_byte_s + l.copies * self.copy_s;
        l.bytes * self.byte_s + l.reduced * self.reduce_byte_s + copy_s
    }
}

impl Default for Cost {
    fn default() -> Cost {
        Cost::shared_memory(2, 2)
    }
}

/// Messages and bytes: of the longest chain, or of all ranks together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Load {
    /// Messages, in latencies: some that follow each other cost less than one each.
    pub(crate) messages: f64,
    /// How many these are.
    pub(crate) count: f64,
    pub(crate) bytes: f64,
    /// Bytes that are reduced.
    pub(crate) reduced: f64,
    /// Bytes that are copied within a rank.
    pub(crate) copied: f64,
    /// How many copies these are, where there are many.
    pub(crate) copies: f64,
}

impl Load {
    /// The same load, of so many messages.
    fn with_count(self, count: f64) -> Load {
        Load { count, ..self }
    }

    /// The same load, with so many copies.
    fn with_copies(self, copies: f64) -> Load {
        Load { copies, ..self }
    }
}

/// What the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Which collective.
    pub kind: Kind,
    /// Ranks.
    pub ranks: u32,
    /// Bytes: of the buffer (broadcast, reductions), of one rank's block (gather, scatter,
    /// all-to-all), or of all blocks together (allgather, reduce-scatter).
    pub bytes: i64,
    /// The reduction is commutative. True where nothing is reduced.
    pub commutes: bool,
    /// How the ranks are spread over nodes; `None`: nothing is known, or there is one level only.
    pub nodes: Option<NodeShape>,
}

impl Problem {
    /// Returns whether `algorithm` can serve the call.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        use Algorithm::*;
        self.kind.algorithms().contains(&algorithm)
            && match (self.kind, algorithm) {
                (Kind::Bcast, ScatterDoubling) | (Kind::Allgather, Doubling) => {
                    self.ranks.is_power_of_two()
                }
                (_, Halving | Ring)
                    if matches!(
                        self.kind,
                        Kind::Reduce | Kind::Allreduce | Kind::ReduceScatter
                    ) =>
                {
                    self.commutes
                }
                (Kind::ReduceScatter, Pairwise) => self.commutes,
                (
                    Kind::Scan | Kind::Allgather | Kind::Alltoall | Kind::ReduceScatter,
                    Hierarchical,
                ) => self.nodes.is_some_and(|nodes| nodes.consecutive),
                (_, Hierarchical) => {
                    let has_order = |nodes: NodeShape| self.commutes || nodes.consecutive;
                    self.nodes.is_some_and(has_order)
                }
                _ => true,
            }
    }

    /// Seconds that `algorithm` takes, by the model.
    pub fn seconds(&self, algorithm: Algorithm, cost: &Cost) -> f64 {
        use Algorithm::*;
        if algorithm == Hierarchical {
            return self.hierarchical_seconds(cost);
        }
        let n = f64::from(self.ranks);
        let m = self.bytes as f64;
        let rounds = f64::from(self.ranks.next_power_of_two().ilog2());
        // Ranks beyond a power of two send their data to another before, and get the result after.
        let folded = if self.ranks > power_below(self.ranks) {
            1.0
        } else {
            0.0
        };
        let rest = n - f64::from(power_below(self.ranks));
        let most = (n - 1.0) / n;
        let segments = (m / f64::from(cost.segment_bytes)).ceil().max(1.0);
        let piece = m / segments;
        let load = |messages, bytes, reduced, copied| Load {
            messages,
            count: messages,
            bytes,
            reduced,
            copied,
            copies: 0.,
        };
        let (path, work) = match (self.kind, algorithm) {
            (Kind::Barrier, Dissemination) => {
                (load(rounds, 0., 0., 0.), load(n * rounds, 0., 0., 0.))
            }
            (Kind::Barrier, _) => (
                load(2. * rounds, 0., 0., 0.),
                load(2. * (n - 1.), 0., 0., 0.),
            ),

            (Kind::Bcast | Kind::Reduce, Flat) => {
                let (r, each_s) = if self.kind == Kind::Reduce {
                    ((n - 1.) * m, cost.overhead_s)
                } else {
                    (0., cost.send_s)
                };
                let handled = 1. + (n - 1.) * each_s / cost.latency_s;
                (
                    load(handled, (n - 1.) * m, r, 0.).with_count(n - 1.),
                    load(n - 1., (n - 1.) * m, r, 0.),
                )
            }
            (Kind::Bcast, Binomial) => (
                load(rounds, rounds * m, 0., 0.),
                load(n - 1., (n - 1.) * m, 0., 0.),
            ),
            (Kind::Bcast, ScatterDoubling) => (
                load(2. * rounds, 2. * m * most, 0., 0.),
                load(
                    (n - 1.) + n * rounds / 2.,
                    (n - 1.) * m + rounds * m / 2.,
                    0.,
                    0.,
                ),
            ),
            (Kind::Bcast, ScatterRing) => (
                load(rounds + n - 1., 2. * m * most, 0., 0.),
                load(
                    (n - 1.) + n * (n - 1.),
                    (n - 1.) * m + rounds * m / 2.,
                    0.,
                    0.,
                ),
            ),
            (Kind::Bcast, Chain) => (
                load(n + segments - 2., (n + segments - 2.) * piece, 0., 0.),
                load((n - 1.) * segments, (n - 1.) * m, 0., 0.),
            ),
            (Kind::Bcast, _) => (
                load(
                    rounds + segments - 1.,
                    2. * (rounds + segments - 1.) * piece,
                    0.,
                    0.,
                ),
                load((n - 1.) * segments, (n - 1.) * m, 0., 0.),
            ),

            (Kind::Reduce, Halving) => (
                load(
                    2. * rounds + folded,
                    (2. * most + folded) * m,
                    (most + folded) * m,
                    0.,
                ),
                load(
                    n * rounds + n,
                    (n * most + n + rest) * m,
                    (n * most + rest) * m,
                    0.,
                ),
            ),
            (Kind::Reduce, _) => (
                load(rounds, rounds * m, rounds * m, 0.),
                load(n - 1., (n - 1.) * m, (n - 1.) * m, 0.),
            ),

            (Kind::Allreduce, Doubling) => {
                let p = n - rest;
                let each = p * p.log2();
                (
                    load(
                        p.log2() + 2. * folded,
                        (p.log2() + 2. * folded) * m,
                        (p.log2() + folded) * m,
                        0.,
                    ),
                    load(
                        each + 2. * rest,
                        (each + 2. * rest) * m,
                        (each + rest) * m,
                        0.,
                    ),
                )
            }
            (Kind::Allreduce, Halving) => {
                let p = n - rest;
                let each = 2. * p * p.log2();
                (
                    load(
                        2. * p.log2() + 2. * folded,
                        (2. * most + 2. * folded) * m,
                        (most + folded) * m,
                        0.,
                    ),
                    load(
                        each + 2. * rest,
                        (2. * p * most + 2. * rest) * m,
                        (p * most + rest) * m,
                        0.,
                    ),
                )
            }
            (Kind::Allreduce, Ring) => (
                load(2. * (n - 1.), 2. * most * m, most * m, 0.),
                load(2. * n * (n - 1.), 2. * (n - 1.) * m, (n - 1.) * m, 0.),
            ),
            (Kind::Allreduce, _) => (
                load(2. * rounds, 2. * rounds * m, rounds * m, 0.),
                load(2. * (n - 1.), 2. * (n - 1.) * m, (n - 1.) * m, 0.),
            ),

            (Kind::Gather | Kind::Scatter, Flat) => {
                let handled = 1. + (n - 1.) * cost.overhead_s / cost.latency_s;
                (
                    load(handled, (n - 1.) * m, 0., 0.).with_count(n - 1.),
                    load(n - 1., (n - 1.) * m, 0., 0.),
                )
            }
            // Blocks of a subtree are packed into one message.
            (Kind::Gather | Kind::Scatter, _) => (
                load(rounds, (n - 1.) * m, 0., rounds * m),
                load(n - 1., n * rounds / 2. * m, 0., n / 2. * m),
            ),

            (Kind::Allgather, Doubling) => (
                load(rounds, most * m, 0., 0.),
                load(n * rounds, (n - 1.) * m, 0., 0.),
            ),
            (Kind::Allgather | Kind::Allgatherv, Bruck) => (
                load(rounds, most * m, 0., m),
                load(n * rounds, (n - 1.) * m, 0., n * m),
            ),
            (Kind::Allgather, GatherBcast) => (
                load(2. * rounds, most * m + rounds * m, 0., 0.),
                load(2. * (n - 1.), rounds * m / 2. + (n - 1.) * m, 0., 0.),
            ),
            (Kind::Allgather | Kind::Allgatherv, _) => (
                load(n - 1., most * m, 0., 0.),
                load(n * (n - 1.), (n - 1.) * m, 0., 0.),
            ),

            (Kind::Alltoall, Bruck) => {
                let hop = n / 2. * m;
                let copied = 2. * n * m + 2. * rounds * hop;
                let copies = (2. + rounds) * n;
                (
                    load(rounds, rounds * hop, 0., copied).with_copies(copies),
                    load(n * rounds, n * rounds * hop, 0., n * copied).with_copies(n * copies),
                )
            }
            // Rounds overlap, so they cost overhead rather than latency.
            (Kind::Alltoall, Spread) => {
                let handled = 1. + (n - 1.) * (cost.overhead_s / cost.latency_s).min(1.);
                (
                    load(handled, (n - 1.) * m, 0., 0.).with_count(n - 1.),
                    load(n * (n - 1.), n * (n - 1.) * m, 0., 0.),
                )
            }
            (Kind::Alltoall, _) => (
                load(n - 1., (n - 1.) * m, 0., 0.),
                load(n * (n - 1.), n * (n - 1.) * m, 0., 0.),
            ),

            (Kind::ReduceScatter, Halving) => (
                load(
                    rounds + 2. * folded,
                    (most + folded) * m,
                    (most + folded) * m,
                    0.,
                ),
                load(
                    n * rounds + 2. * rest,
                    (n * most + rest) * m,
                    (n * most + rest) * m,
                    0.,
                ),
            ),
            (Kind::ReduceScatter, Pairwise) => (
                load(n - 1., most * m, most * m, 0.),
                load(n * (n - 1.), (n - 1.) * m, (n - 1.) * m, 0.),
            ),
            (Kind::ReduceScatter, _) => (
                load(
                    rounds + 1. + (n - 1.) * cost.overhead_s / cost.latency_s,
                    (rounds + most) * m,
                    rounds * m,
                    0.,
                ),
                load(2. * (n - 1.), n * m, (n - 1.) * m, 0.),
            ),

            (Kind::Scan, Chain) => (
                load(n - 1., (n - 1.) * m, (n - 1.) * m, 0.),
                load(n - 1., (n - 1.) * m, (n - 1.) * m, 0.),
            ),
            (Kind::Scan, _) => (
                load(rounds, rounds * m, 2. * rounds * m, 0.),
                load(n * rounds, n * rounds * m, 1.5 * n * rounds * m, 0.),
            ),
        };
        let crossing = self.crossing(algorithm);
        let path = Load {
            messages: path.messages - self.local_messages(algorithm, cost),
            ..path
        };
        cost.seconds(n, path, work, crossing)
    }

    /// The algorithm to use: `forced` if it can serve the call, otherwise the cheapest.
    pub fn choose(&self, cost: &Cost, forced: Option<Algorithm>) -> Algorithm {
        if let Some(a) = forced.filter(|&a| self.allows(a)) {
            return a;
        }
        let mut best = (f64::INFINITY, self.kind.algorithms()[0]);
        for &a in self.kind.algorithms() {
            if self.allows(a) {
                let s = self.seconds(a, cost);
                if s < best.0 {
                    best = (s, a);
                }
            }
        }
        best.1
    }
}

/// What the model chooses for a kind of collective on `ranks` ranks: pairs of the smallest size in
/// bytes (as in [`Problem`]) and the algorithm from there on. Sizes are 0 and powers of two up to
/// 64 MiB.
pub fn choices(kind: Kind, ranks: u32, cost: &Cost) -> Vec<(i64, Algorithm)> {
    let mut found: Vec<(i64, Algorithm)> = Vec::new();
    for bytes in std::iter::once(0).chain((0..=26).map(|i| 1 << i)) {
        let problem = Problem {
            kind,
            ranks,
            bytes,
            commutes: true,
            nodes: None,
        };
        let algorithm = problem.choose(cost, None);
        if found.last().is_none_or(|l| l.1 != algorithm) {
            found.push((bytes, algorithm));
        }
    }
    found
}
