//! The layout engine: where a datatype's packed bytes lie in memory.
//!
//! Packed order is the order of the type map. A layout is a small tree: runs of bytes at its
//! leaves, repetition and lists above them. Every node knows how many packed bytes it has, so any
//! packed offset is found by going down the tree once: a division at a repetition, a binary search
//! in a list.

mod build;
pub(crate) mod moving;
mod strided;

use std::sync::Arc;

/// A layout and where it starts, in bytes from the element's address.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub at: i64,
    pub node: Node,
}

/// A part of a layout. Addresses count from the node's own start.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// No bytes.
    Empty,
    /// So many bytes in one run.
    Run(u64),
    /// `count` runs of `block` bytes, `stride` bytes from one to the next.
    Blocks { count: u64, stride: i64, block: u64 },
    /// Runs of `block` bytes at these places.
    Spots { at: Arc<[i64]>, block: u64 },
    /// Runs of various lengths.
    Runs(Arc<Runs>),
    /// `count` times the same thing of `unit` bytes, `stride` bytes from one to the next.
    Each {
        count: u64,
        stride: i64,
        unit: u64,
        child: Arc<Node>,
    },
    /// Various things.
    Parts(Arc<Parts>),
}

/// Runs of various lengths: `at[i]` and where in packed order each ends.
#[derive(Debug)]
pub(crate) struct Runs {
    at: Box<[i64]>,
    ends: Box<[u64]>,
}

/// Various things: each with its place, and where in packed order it ends.
#[derive(Debug)]
pub(crate) struct Parts {
    parts: Box<[Placed]>,
    ends: Box<[u64]>,
}

impl Node {
    /// Packed bytes.
    pub fn size(&self) -> u64 {
        match self {
            Node::Empty => 0,
            Node::Run(len) => *len,
            Node::Blocks { count, block, .. } => count * block,
            Node::Spots { at, block } => at.len() as u64 * block,
            Node::Runs(runs) => *runs.ends.last().unwrap_or(&0),
            Node::Each { count, unit, .. } => count * unit,
            Node::Parts(parts) => *parts.ends.last().unwrap_or(&0),
        }
    }
}

impl Placed {
    pub const EMPTY: Placed = Placed {
        at: 0,
        node: Node::Empty,
    };

    /// `len` bytes at `at`.
    pub fn run(at: i64, len: u64) -> Placed {
        Placed {
            at,
            node: if len == 0 {
                Node::Empty
            } else {
                Node::Run(len)
            },
        }
    }
}
