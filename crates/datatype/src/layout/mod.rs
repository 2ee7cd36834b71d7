//! The layout engine: where a datatype's packed bytes lie in memory.
//!
//! Packed order is the order of the type map. A layout is a small tree: runs of bytes at its
//! leaves, repetition and lists above them. Every node knows how many packed bytes it has. So any
//! packed offset is found by one descent: a division at a repetition, a binary search in a list.
//!
//! The kinds of nodes are those of MPICH's dataloops: contig, vector, block-indexed, indexed,
//! struct.

mod build;
mod copy;
mod order;
mod pack;
mod strided;
mod traverse;
mod uniform;

pub use copy::{Elements, copy_run};
pub use order::{RegularRuns, RunOrder};

use std::sync::Arc;

/// A layout and its offset from the element's address, bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub at: i64,
    pub node: Node,
}

/// A node of a layout. Offsets count from the node's own start.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// No bytes.
    Empty,
    /// One run of this many bytes.
    Contig(u64),
    /// `count` runs of `block` bytes, `stride` bytes from one to the next.
    Vector { count: u64, stride: i64, block: u64 },
    /// Runs of `block` bytes at these offsets.
    BlockIndexed { at: Arc<[i64]>, block: u64 },
    /// Runs of various lengths.
    Indexed(Arc<Runs>),
    /// `count` copies of a node of `packed_len` packed bytes, `stride` bytes from one to the next.
    Repeat {
        count: u64,
        stride: i64,
        packed_len: u64,
        child: Arc<Node>,
    },
    /// Various nodes.
    Struct(Arc<Parts>),
}

/// Runs of various lengths.
#[derive(Debug)]
pub(crate) struct Runs {
    /// Offset of each run.
    at: Box<[i64]>,
    /// Packed offset of each run's end.
    ends: Box<[u64]>,
}

/// Various nodes.
#[derive(Debug)]
pub(crate) struct Parts {
    parts: Box<[Layout]>,
    /// Packed offset of each part's end.
    ends: Box<[u64]>,
}

impl Node {
    /// Packed bytes.
    pub fn size(&self) -> u64 {
        match self {
            Node::Empty => 0,
            Node::Contig(len) => *len,
            Node::Vector { count, block, .. } => count * block,
            Node::BlockIndexed { at, block } => at.len() as u64 * block,
            Node::Indexed(runs) => *runs.ends.last().unwrap_or(&0),
            Node::Repeat {
                count, packed_len, ..
            } => count * packed_len,
            Node::Struct(parts) => *parts.ends.last().unwrap_or(&0),
        }
    }
}

impl Layout {
    pub const EMPTY: Layout = Layout {
        at: 0,
        node: Node::Empty,
    };

    /// `len` bytes at `at`.
    pub fn run(at: i64, len: u64) -> Layout {
        Layout {
            at,
            node: if len == 0 {
                Node::Empty
            } else {
                Node::Contig(len)
            },
        }
    }
}
