//! The names of algorithms, and which of them each kind of collective has.

/// An enum with the list of its variants and their names, which settings have.
macro_rules! named_enum {
    ($(#[$doc:meta])* pub enum $enum:ident { $($variant:ident = $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[allow(missing_docs)] // each has a name
        pub enum $enum {
            $($variant,)+
        }

        impl $enum {
            /// All of them.
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            /// Its name in settings.
            pub const fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)+
                }
            }
        }
    };
}

named_enum! {
    /// A collective algorithm, named as in the literature. Each is described where its schedule is
    /// made.
    pub enum Algorithm {
        Flat = "flat",
        Binomial = "binomial",
        Dissemination = "dissemination",
        ScatterRing = "scatter_ring",
        ScatterDoubling = "scatter_doubling",
        Chain = "chain",
        BinaryTree = "binary_tree",
        TwoTrees = "two_trees",
        Doubling = "doubling",
        Halving = "halving",
        Ring = "ring",
        ReduceBcast = "reduce_bcast",
        GatherBcast = "gather_bcast",
        Bruck = "bruck",
        Pairwise = "pairwise",
        Spread = "spread",
        ReduceScatter = "reduce_scatter",
        Hierarchical = "hierarchical",
    }
}

impl Algorithm {
    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| a.name() == name)
    }
}

named_enum! {
    /// A kind of collective, for which an algorithm is chosen. Most v-forms count as their uniform
    /// forms. `FERRY_COLL_<NAME>` is its setting.
    pub enum Kind {
        Barrier = "barrier",
        Bcast = "bcast",
        Reduce = "reduce",
        Allreduce = "allreduce",
        Gather = "gather",
        Scatter = "scatter",
        Allgather = "allgather",
        Allgatherv = "allgatherv",
        Alltoall = "alltoall",
        ReduceScatter = "reduce_scatter",
        Scan = "scan",
    }
}

impl Kind {
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
                TwoTrees,
                Hierarchical,
            ],
            Kind::Reduce => &[Flat, Binomial, Halving, BinaryTree, TwoTrees, Hierarchical],
            Kind::Allreduce => &[Doubling, Halving, Ring, ReduceBcast, Hierarchical],
            Kind::Gather | Kind::Scatter => &[Flat, Binomial],
            Kind::Allgather => &[Doubling, Bruck, Ring, GatherBcast, Hierarchical],
            Kind::Allgatherv => &[Bruck, Ring],
            Kind::Alltoall => &[Bruck, Spread, Pairwise, Hierarchical],
            Kind::ReduceScatter => &[Halving, Pairwise, ReduceScatter, Hierarchical],
            Kind::Scan => &[Doubling, Chain, BinaryTree, Hierarchical],
        }
    }
}
