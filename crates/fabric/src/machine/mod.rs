//! Machines: what a machine file says.

mod explain;
mod file;
mod known;
mod quantity;

pub use explain::explain;
pub use file::{FileError, read};
pub use known::{Known, find, known};
pub use quantity::{Count, Figure, Quantity, Size};

use crate::{Rank, Rate, Time};
use serde::{Deserialize, Serialize};

/// A table of a machine file: its figures, each with what it means.
macro_rules! figures {
    ($(#[doc = $about:literal])* pub struct $name:ident { $($(#[doc = $doc:literal])* $field:ident: $type:ty,)* }) => {
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

/// A machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// What it is.
    pub machine: About,
    /// Its nodes.
    pub nodes: Nodes,
    /// What work costs its processors.
    pub cpu: Cpu,
    /// How processes of one node reach each other, if by another way than those of two.
    pub memory: Option<Memory>,
    /// What joins its nodes.
    pub network: Network,
    /// The card in each.
    pub nic: Nic,
}

/// What a machine is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// What it is called: as its file.
    pub name: String,
    /// A line about it.
    pub about: String,
    /// What its figures come from and how far they are to be trusted, for `ferry machines show`.
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
    /// As no time: runs can be repeated to the last digit.
    Zero,
    /// As the processor time that it takes here, times a factor.
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
    /// Nodes on leaf switches, each joined to a middle that never is in the way.
    Tree,
}

figures! {
    /// What joins the nodes. All links are full duplex: each direction has the whole rate.
    pub struct Network {
        /// "direct": a link between any two nodes; "switch": a link from each node to one switch; "tree": leaf switches of `leaf` nodes, each with `uplinks` links up
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

/// The kinds of card that there are.
#[expect(clippy::large_enum_variant, reason = "a process has one of it")]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Nic {
    /// Remote write, from a list of messages to emit to a list of messages received:
    /// `remote-write`, and MPC's `fasthsl`.
    Put(crate::put::Figures),
    /// DIMMnet-2, in a memory slot.
    Dimmnet2(Box<crate::dimmnet2::figures::Figures>),
}

impl Machine {
    /// As bytes, for the way to the ranks.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// From such bytes.
    pub fn decode(bytes: &[u8]) -> Option<Machine> {
        postcard::from_bytes(bytes).ok()
    }

    /// Ranks that a node has.
    pub fn processes(&self) -> u32 {
        self.nodes
            .processes
            .as_ref()
            .map_or(1, |p| p.value.0.max(1))
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: Rank) -> u32 {
        rank / self.processes()
    }

    /// Most ranks that the machine can have.
    pub fn ranks_max(&self) -> u64 {
        u64::from(self.processes()) * u64::from(self.nodes.count.value.0)
    }

    /// Bytes that a card shows its rank.
    pub fn card_memory(&self) -> u64 {
        match &self.nic {
            Nic::Put(_) => 0,
            Nic::Dimmnet2(_) => {
                let ranks = u32::try_from(self.ranks_max()).unwrap_or(u32::MAX);
                let own = crate::dimmnet2::machine::shown(self, ranks).unwrap_or(0);
                let room = crate::dimmnet2::machine::room(self);
                room.map_or(own, |r| r.shown as u64 + r.bytes)
            }
        }
    }
}
