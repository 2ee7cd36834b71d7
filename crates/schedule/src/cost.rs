//! Which algorithm: one model of what each costs, from which the cheapest is taken.
//!
//! An algorithm takes as long as its longest chain of dependent messages, and at least as long as
//! all ranks' work together takes on the cores that they share. The second matters when ranks
//! outnumber cores: then few messages in all beat few rounds.

use crate::step::power_below;

/// What moving and reducing data costs. All ranks of a communicator must use the same figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Seconds from a send to the receiver's going on.
    pub latency: f64,
    /// Seconds of a core that a message takes on both sides together.
    pub overhead: f64,
    /// Bytes up to which a message is sent without asking the receiver.
    pub eager: u32,
    /// Seconds more that a larger one takes.
    pub rendezvous: f64,
    /// Seconds to move a byte from one rank to another.
    pub byte: f64,
    /// Seconds to reduce a byte.
    pub reduce_byte: f64,
    /// Seconds to copy a byte within a rank.
    pub copy_byte: f64,
    /// Cores that the ranks share; ranks or more if each has its own.
    pub cores: u32,
    /// Bytes of a segment in pipelined algorithms.
    pub segment: u32,
    /// Peers that an all-to-all exchanges with at a time.
    pub window: u32,
}

impl Cost {
    /// Ranks on one node, talking through its memory. Figures measured on a two-core x86-64 virtual
    /// machine: where ranks outnumber cores a message costs a change of process.
    pub const fn shared_memory(ranks: u32, cores: u32) -> Cost {
        let crowded = ranks > cores;
        Cost {
            latency: if crowded { 3.0e-6 } else { 0.4e-6 },
            overhead: if crowded { 2.0e-6 } else { 0.3e-6 },
            // Between ranks with a core each a message of up to 64 KiB costs no more than its
            // bytes, and one of 128 KiB a microsecond more than two of these.
            // Where ranks share cores its pieces wait for the other to get one.
            eager: if crowded { 16 << 10 } else { 64 << 10 },
            rendezvous: if crowded { 2.5e-6 } else { 1.0e-6 },
            byte: 1.0e-10,
            reduce_byte: 4.0e-11,
            copy_byte: 4.0e-11,
            cores: if cores == 0 { 1 } else { cores },
            segment: 64 << 10,
            window: 32,
        }
    }

    /// Ranks on several hosts, talking by TCP. Who knows only its own host cannot know what the
    /// others' ranks share, so this depends on nothing that two ranks could see differently:
    /// each has a core.
    ///
    /// Figures measured by `bench/run --net` between two network namespaces of a two-core x86-64
    /// virtual machine, a core each (2026-11-22): `latency` is half the round trip of a byte;
    /// `overhead` the time between messages of a byte of which 64 are under way, which is the
    /// sender's share (the receiver reads many at once); `byte` the slope of half the round
    /// trip from 256 KiB to 4 MiB, and `rendezvous` what 256 KiB take beyond that and the latency.
    /// A slower network has more of all of them; what is chosen depends on their ratios.
    pub const fn network() -> Cost {
        Cost {
            latency: 3.1e-6,
            overhead: 2.7e-6,
            eager: 64 << 10,
            rendezvous: 6.0e-6,
            byte: 1.2e-10,
            cores: u32::MAX,
            ..Cost::shared_memory(1, 1)
        }
    }

    fn seconds(&self, n: f64, path: Load, work: Load) -> f64 {
        let large = |l: Load| l.bytes > l.messages * f64::from(self.eager);
        let extra = |l: Load| if large(l) { self.rendezvous } else { 0. };
        let alone = path.messages * (self.latency + extra(path)) + self.volume(path);
        let together = work.messages * (self.overhead + extra(work)) + self.volume(work);
        alone.max(together / f64::from(self.cores).min(n))
    }
    fn volume(&self, l: Load) -> f64 {
        l.bytes * self.byte + l.reduced * self.reduce_byte + l.copied * self.copy_byte
    }
}

impl Default for Cost {
    fn default() -> Cost {
        Cost::shared_memory(2, 2)
    }
}

/// Messages and bytes, on the longest chain or of all ranks.
#[derive(Clone, Copy, Default)]
struct Load {
    messages: f64,
    bytes: f64,
    reduced: f64,
    copied: f64,
}

/// A collective algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)] // named as in the literature; each is described where it is generated
pub enum Algorithm {
    Flat,
    Binomial,
    Dissemination,
    ScatterRing,
    ScatterDoubling,
    Chain,
    BinaryTree,
    Doubling,
    Halving,
    Ring,
    ReduceBcast,
    GatherBcast,
    Bruck,
    Pairwise,
    Spread,
    ReduceScatter,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 16] = {
        use Algorithm::*;
        [
            Flat,
            Binomial,
            Dissemination,
            ScatterRing,
            ScatterDoubling,
            Chain,
            BinaryTree,
            Doubling,
            Halving,
            Ring,
            ReduceBcast,
            GatherBcast,
            Bruck,
            Pairwise,
            Spread,
            ReduceScatter,
        ]
    };

    /// Its name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Flat => "flat",
            Algorithm::Binomial => "binomial",
            Algorithm::Dissemination => "dissemination",
            Algorithm::ScatterRing => "scatter_ring",
            Algorithm::ScatterDoubling => "scatter_doubling",
            Algorithm::Chain => "chain",
            Algorithm::BinaryTree => "binary_tree",
            Algorithm::Doubling => "doubling",
            Algorithm::Halving => "halving",
            Algorithm::Ring => "ring",
            Algorithm::ReduceBcast => "reduce_bcast",
            Algorithm::GatherBcast => "gather_bcast",
            Algorithm::Bruck => "bruck",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Spread => "spread",
            Algorithm::ReduceScatter => "reduce_scatter",
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// Collectives among which algorithms are chosen; v-forms count as their uniform forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Gather,
    Scatter,
    Allgather,
    Allgatherv,
    Alltoall,
    ReduceScatter,
    Scan,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 11] = {
        use Kind::*;
        [
            Barrier,
            Bcast,
            Reduce,
            Allreduce,
            Gather,
            Scatter,
            Allgather,
            Allgatherv,
            Alltoall,
            ReduceScatter,
            Scan,
        ]
    };

    /// Its name, as in the setting FERRY_COLL_<NAME>.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Barrier => "barrier",
            Kind::Bcast => "bcast",
            Kind::Reduce => "reduce",
            Kind::Allreduce => "allreduce",
            Kind::Gather => "gather",
            Kind::Scatter => "scatter",
            Kind::Allgather => "allgather",
            Kind::Allgatherv => "allgatherv",
            Kind::Alltoall => "alltoall",
            Kind::ReduceScatter => "reduce_scatter",
            Kind::Scan => "scan",
        }
    }

    /// The algorithms there are for it.
    pub const fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::*;
        match self {
            Kind::Barrier => &[Dissemination, Binomial],
            Kind::Bcast => &[
                Flat,
                Binomial,
                ScatterDoubling,
                ScatterRing,
                Chain,
                BinaryTree,
            ],
            Kind::Reduce => &[Flat, Binomial, Halving],
            Kind::Allreduce => &[Doubling, Halving, Ring, ReduceBcast],
            Kind::Gather | Kind::Scatter => &[Flat, Binomial],
            Kind::Allgather => &[Doubling, Bruck, Ring, GatherBcast],
            Kind::Allgatherv => &[Bruck, Ring],
            Kind::Alltoall => &[Bruck, Spread, Pairwise],
            Kind::ReduceScatter => &[Halving, Pairwise, ReduceScatter],
            Kind::Scan => &[Doubling, Chain],
        }
    }
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Which collective.
    pub kind: Kind,
    /// Ranks.
    pub ranks: u32,
    /// Bytes: of the buffer (broadcast, reductions), of one rank's block (gather, scatter,
    /// all-to-all), of all blocks together (allgather, reduce-scatter).
    pub bytes: i64,
    /// May the operands of a reduction change places? (True where nothing is reduced.)
    pub commutes: bool,
}

impl Problem {
    /// Can `algorithm` solve it?
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
                _ => true,
            }
    }

    /// Seconds that `algorithm` takes, by the model.
    pub fn seconds(&self, algorithm: Algorithm, cost: &Cost) -> f64 {
        use Algorithm::*;
        let n = f64::from(self.ranks);
        let m = self.bytes as f64;
        let rounds = f64::from(self.ranks.next_power_of_two().ilog2());
        // Ranks beyond a power of two hand their data over before and get the result after.
        let folded = if self.ranks > power_below(self.ranks) {
            1.0
        } else {
            0.0
        };
        let rest = n - f64::from(power_below(self.ranks));
        let most = (n - 1.0) / n;
        let segments = (m / f64::from(cost.segment)).ceil().max(1.0);
        let piece = m / segments;
        let load = |messages, bytes, reduced, copied| Load {
            messages,
            bytes,
            reduced,
            copied,
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
                let r = if self.kind == Kind::Reduce {
                    (n - 1.) * m
                } else {
                    0.
                };
                let handled = 1. + (n - 1.) * cost.overhead / cost.latency;
                (
                    load(handled, (n - 1.) * m, r, 0.),
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
                let handled = 1. + (n - 1.) * cost.overhead / cost.latency;
                (
                    load(handled, (n - 1.) * m, 0., 0.),
                    load(n - 1., (n - 1.) * m, 0., 0.),
                )
            }
            // On the way blocks are packed with others'.
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
                (
                    load(rounds, rounds * hop, 0., 2. * n * m + 2. * rounds * hop),
                    load(
                        n * rounds,
                        n * rounds * hop,
                        0.,
                        n * (2. * n * m + 2. * rounds * hop),
                    ),
                )
            }
            // Rounds that overlap cost their handling rather than their latency.
            (Kind::Alltoall, Spread) => {
                let handled = 1. + (n - 1.) * (cost.overhead / cost.latency).min(1.);
                (
                    load(handled, (n - 1.) * m, 0., 0.),
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
                    rounds + 1. + (n - 1.) * cost.overhead / cost.latency,
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
        cost.seconds(n, path, work)
    }

    /// The algorithm to use: `forced` if it can solve the problem, else the cheapest.
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

/// What the model chooses for a kind of collective on `ranks` ranks, by size: from which size in
/// bytes (as in [`Problem`]) which algorithm serves; the first size is 0. Looked at in powers of
/// two up to 64 MiB.
pub fn choices(kind: Kind, ranks: u32, cost: &Cost) -> Vec<(i64, Algorithm)> {
    let mut found: Vec<(i64, Algorithm)> = Vec::new();
    for bytes in std::iter::once(0).chain((0..=26).map(|i| 1 << i)) {
        let problem = Problem {
            kind,
            ranks,
            bytes,
            commutes: true,
        };
        let algorithm = problem.choose(cost, None);
        if found.last().is_none_or(|l| l.1 != algorithm) {
            found.push((bytes, algorithm));
        }
    }
    found
}
