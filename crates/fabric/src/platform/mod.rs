//! The figures that every machine file has, whatever its card: nodes, processors, memory, network.

mod quantity;

pub use quantity::{Count, Figure, Quantity, Size};

use crate::time::{Rate, Time};
use serde::{Deserialize, Serialize};

/// Defines a table of a machine file. The comment on each figure is also what `ferry machines show`
/// says about it.
macro_rules! figures {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident { $($(#[doc = $doc:literal])* $field:ident: $type:ty,)* }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[doc = $doc])* pub $field: $type,)* }
        impl $name {
            /// What each figure means.
            pub const MEANINGS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($doc),*))),*];
        }
    };
}
pub(crate) use figures;

/// A machine without its card.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Platform {
    /// What the machine is.
    pub about: About,
    /// Its nodes.
    pub nodes: Nodes,
    /// What work costs its processors.
    pub cpu: Cpu,
    /// How processes of one node reach each other. `None`: through the card, like those of two.
    pub memory: Option<Memory>,
    /// What joins its nodes.
    pub network: Network,
}

/// What a machine is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The machine's name, which is also that of its file.
    pub name: String,
    /// A line about it.
    pub about: String,
    /// Where its figures come from and how far they can be trusted, for `ferry machines show`.
    #[serde(default)]
    pub notes: String,
}

figures! {
    /// The machine's nodes.
    pub struct Nodes {
        /// most nodes that there are
        count: Figure<Count>,
        /// ranks of each node (1 if not said); they fill a node before the next one is used
        processes: Option<Figure<Count>>,
    }
}

/// How the program's own computation counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compute {
    /// As no time. Runs can be repeated to the last digit.
    Zero,
    /// As the processor time that it takes on this host, times a factor.
    Measured,
}

figures! {
    /// What work costs the processors.
    pub struct Cpu {
        /// "zero" or "measured": how the program's own computation counts
        compute: Compute,
        /// how much longer it takes there than here, where it is measured (1 if not said)
        factor: Option<f64>,
        /// the library's work for a message that is sent: from the call to the driver
        send: Figure<Time>,
        /// the library's work for a message that has come: matching, completing
        receive: Figure<Time>,
        /// how fast the processor copies memory
        copy: Figure<Rate>,
        /// what it takes to ask for the time (MPI_Wtime); not zero
        clock: Figure<Time>,
    }
}

figures! {
    /// How processes of one node reach each other: through memory that they share.
    pub struct Memory {
        /// from the sender's last write to the receiver's sight of it
        latency: Figure<Time>,
        /// the processor's work for a message besides copying, on each side
        message: Figure<Time>,
        /// how fast a message is copied in, and out
        copy: Figure<Rate>,
    }
}

/// How nodes are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// A link between any two nodes.
    Direct,
    /// One switch, and a link from each node to it.
    Switch,
    /// Leaf switches, each joined to a core that never is a bottleneck.
    Tree,
}

figures! {
    /// What joins the nodes. All links are full duplex: each direction has the whole rate.
    pub struct Network {
        /// "direct": a link between any two nodes; "switch": a link from each node to one switch;
        /// "tree": leaf switches of `leaf` nodes, each with `uplinks` links up
        topology: Topology,
        /// a link's useful rate, in each direction
        link: Figure<Rate>,
        /// a link's own delay
        latency: Figure<Time>,
        /// a switch's delay, from the head of a packet coming in to it going out (0 if not said)
        switch: Option<Figure<Time>>,
        /// most bytes of a packet: what is longer is cut, and others get in between
        packet: Figure<Size>,
        /// bytes that each packet has besides (0 if not said)
        header: Option<Figure<Size>>,
        /// tree: nodes on a leaf switch
        leaf: Option<Figure<Count>>,
        /// tree: links from a leaf switch up (as many as nodes if not said)
        uplinks: Option<Figure<Count>>,
    }
}

impl Platform {
    /// Ranks that a node has.
    pub fn processes(&self) -> u32 {
        self.nodes
            .processes
            .as_ref()
            .map_or(1, |p| p.value.0.max(1))
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: u32) -> u32 {
        rank / self.processes()
    }

    /// Most ranks that the machine can have.
    pub fn ranks_max(&self) -> u64 {
        u64::from(self.processes()) * u64::from(self.nodes.count.value.0)
    }

    /// Checks that the figures fit each other. The error says which do not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let at_least = |name: &str, value: u64, least: u64| {
            if value < least {
                return Err(format!("{name} is {value}; it must be at least {least}"));
            }
            Ok(())
        };
        at_least("nodes.count", self.nodes.count.value.0.into(), 1)?;
        let clock = self.cpu.clock.value.as_ps();
        at_least("cpu.clock (in picoseconds)", clock, 1)?;
        at_least("network.packet", self.network.packet.value.0, 32)?;
        if let Some(factor) = self.cpu.factor
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(format!("cpu.factor is {factor}; it must be above 0"));
        }
        let network = &self.network;
        if network.topology == Topology::Tree
            && network.leaf.as_ref().is_none_or(|l| l.value.0 == 0)
        {
            return Err("a tree needs network.leaf, the number of nodes on a leaf switch".into());
        }
        if network.uplinks.as_ref().is_some_and(|u| u.value.0 == 0) {
            return Err("network.uplinks is 0; a leaf switch needs one at least".into());
        }
        Ok(())
    }
}
