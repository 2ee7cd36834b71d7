//! The names of algorithms, and which of them each kind of collective has.

/// A collective algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)] // named as in the literature, and described where its schedule is made
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
    Hierarchical,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 17] = {
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
            Hierarchical,
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
            Algorithm::Hierarchical => "hierarchical",
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// A kind of collective, for which an algorithm is chosen. Most v-forms count as their uniform
/// forms.
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

    /// Its name, as in the setting `FERRY_COLL_<NAME>`.
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

    /// Its algorithms.
    pub const fn algorithms(self) -> &'static [Algorithm] {
        use Algorithm::*;
        match self {
            Kind::Barrier => &[Dissemination, Binomial, Hierarchical],
            Kind::Bcast => &[
                Flat,
                Binomial,
                ScatterDoubling,
                ScatterRing,
                Chain,
                BinaryTree,
                Hierarchical,
            ],
            Kind::Reduce => &[Flat, Binomial, Halving, Hierarchical],
            Kind::Allreduce => &[Doubling, Halving, Ring, ReduceBcast, Hierarchical],
            Kind::Gather | Kind::Scatter => &[Flat, Binomial],
            Kind::Allgather => &[Doubling, Bruck, Ring, GatherBcast, Hierarchical],
            Kind::Allgatherv => &[Bruck, Ring],
            Kind::Alltoall => &[Bruck, Spread, Pairwise, Hierarchical],
            Kind::ReduceScatter => &[Halving, Pairwise, ReduceScatter, Hierarchical],
            Kind::Scan => &[Doubling, Chain, Hierarchical],
        }
    }
}
