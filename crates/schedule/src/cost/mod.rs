//! The cost model: how long each algorithm takes, and so which one is used.
//!
//! An algorithm takes as long as its longest chain of dependent messages. It also takes at least as
//! long as the work of all ranks together takes on the cores that they share. The second bound
//! matters where ranks outnumber cores: fewer messages in all are then better than fewer rounds.
//! The model is a variant of LogGP, with cores.
//!
//! - here: the figures ([`Cost`]), and seconds from loads;
//! - `load`: the loads of each algorithm, messages and bytes;
//! - `nodes`: what nodes change, and the time of an algorithm in two levels;
//! - `bruck`: Bruck's all-to-all, and in which base it counts;
//! - `lanes`: small data that all ranks of a node send to other nodes;
//! - `pipeline`: what flows through trees in segments, and how long these are;
//! - `problem`: which algorithms can serve a call, and which is quickest.

mod bruck;
mod lanes;
mod load;
mod nodes;
mod pipeline;
mod problem;

pub use problem::{Problem, choices};

pub(crate) use lanes::Lanes;
use load::Load;
use nodes::LinkLoad;

/// What it costs to move and to reduce data. All ranks of a communicator must use the same figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Seconds from a send until the receiver goes on, for a message of no bytes: half a round trip
    /// (LogGP: L + 2o).
    pub latency_s: f64,
    /// Seconds of a core that both sides together spend on a message.
    pub overhead_s: f64,
    /// The part of `overhead_s` that passes in a send, before the sender can send again.
    pub send_s: f64,
    /// Largest message that is sent eagerly.
    pub eager_max_bytes: u32,
    /// Seconds that the rendezvous of a larger message adds.
    pub rendezvous_s: f64,
    /// Seconds to move a byte from one rank to another (LogGP: G).
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
    /// Bytes of a segment in pipelined algorithms. What flows through the trees of `tree` goes in
    /// shorter ones where the model finds these quicker.
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
    pub(crate) fn seconds(&self, n: f64, path: Load, work: Load, link: LinkLoad) -> f64 {
        let path_messages_s = path.messages * (self.latency_s + self.rendezvous_each_s(path));
        let path_bytes_s = self.bytes_s(path);
        let link_s = (link.messages * self.link_message_s).max(link.bytes * self.byte_s);
        let path_s = match link.overlaps {
            true => (path_messages_s + path_bytes_s).max(self.latency_s + link_s),
            false => path_messages_s + path_bytes_s.max(link_s),
        };
        let work_messages_s = work.messages * (self.overhead_s + self.rendezvous_each_s(work));
        let work_s = work_messages_s + self.bytes_s(work);
        path_s.max(work_s / f64::from(self.cores).min(n))
    }

    /// Seconds that the rendezvous adds to each message: none if messages are eager on average.
    fn rendezvous_each_s(&self, load: Load) -> f64 {
        match load.bytes > load.count * f64::from(self.eager_max_bytes) {
            true => self.rendezvous_s,
            false => 0.,
        }
    }

    /// Seconds to move, reduce and copy the bytes of a load.
    fn bytes_s(&self, load: Load) -> f64 {
        let copy_s = load.copied * self.copy_byte_s + load.copies * self.copy_s;
        load.bytes * self.byte_s + load.reduced * self.reduce_byte_s + copy_s
    }
}

impl Default for Cost {
    fn default() -> Cost {
        Cost::shared_memory(2, 2)
    }
}
