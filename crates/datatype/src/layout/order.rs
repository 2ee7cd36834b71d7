//! The order of a type's runs, found from its layout without walking through them.
//!
//! A file's layer asks whether a filetype may be used (MPI 5.0 §14.3), and whether its runs are as
//! regular as those of a vector.

use super::{Layout, Node};
use crate::Datatype;

/// How the runs of one element follow each other, in packed order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunOrder {
    /// Each run starts at or behind the end of the one before. Packed bytes then have rising
    /// offsets, and no byte lies in two runs.
    pub rising: bool,
    /// No run starts before the one before it.
    pub nondecreasing: bool,
    /// Number of runs. Neighbours in different parts of the type may count twice.
    pub runs: u64,
}

/// Runs of equal length at equal distances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegularRuns {
    /// Offset of the first run from the element's address, bytes.
    pub at: i64,
    /// Number of runs, at least 1.
    pub count: u64,
    /// Bytes from the start of a run to the start of the next. Of no meaning for one run.
    pub stride: i64,
    /// Bytes of a run, at least 1.
    pub block: u64,
}

/// Order and bounds of a node's runs. Bounds count from the node's start.
struct Summary {
    order: RunOrder,
    /// Start of the first run.
    first: i128,
    /// Start and end of the last run.
    last: (i128, i128),
}

impl Summary {
    fn run(at: i128, len: u64) -> Summary {
        Summary {
            order: RunOrder {
                rising: true,
                nondecreasing: true,
                runs: 1,
            },
            first: at,
            last: (at, at + i128::from(len)),
        }
    }

    fn shifted(mut self, by: i64) -> Summary {
        let by = i128::from(by);
        self.first += by;
        self.last = (self.last.0 + by, self.last.1 + by);
        self
    }

    /// These runs, then those of `next`.
    fn then(self, next: Summary) -> Summary {
        Summary {
            order: RunOrder {
                rising: self.order.rising && next.order.rising && next.first >= self.last.1,
                nondecreasing: self.order.nondecreasing
                    && next.order.nondecreasing
                    && next.first >= self.last.0,
                runs: self.order.runs.saturating_add(next.order.runs),
            },
            first: self.first,
            last: next.last,
        }
    }

    /// `count` copies, `stride` bytes from one to the next.
    fn repeated(self, count: u64, stride: i64) -> Summary {
        if count < 2 {
            return self;
        }
        let step = i128::from(stride);
        let shift = step * i128::from(count - 1);
        Summary {
            order: RunOrder {
                rising: self.order.rising && self.first + step >= self.last.1,
                nondecreasing: self.order.nondecreasing && self.first + step >= self.last.0,
                runs: self.order.runs.saturating_mul(count),
            },
            first: self.first,
            last: (self.last.0 + shift, self.last.1 + shift),
        }
    }
}

/// `None` without runs.
fn summary(node: &Node) -> Option<Summary> {
    match node {
        Node::Empty => None,
        Node::Contig(len) => Some(Summary::run(0, *len)),
        Node::Vector {
            count,
            stride,
            block,
        } => Some(Summary::run(0, *block).repeated(*count, *stride)),
        Node::BlockIndexed { at, block } => at
            .iter()
            .map(|at| Summary::run((*at).into(), *block))
            .reduce(Summary::then),
        Node::Indexed(runs) => {
            let starts = std::iter::once(&0).chain(&runs.ends);
            let lens = runs.ends.iter().zip(starts).map(|(end, start)| end - start);
            let each = runs.at.iter().zip(lens);
            each.map(|(at, len)| Summary::run((*at).into(), len))
                .reduce(Summary::then)
        }
        Node::Repeat {
            count,
            stride,
            child,
            ..
        } => Some(summary(child)?.repeated(*count, *stride)),
        Node::Struct(list) => list
            .parts
            .iter()
            .filter_map(|part| Some(summary(&part.node)?.shifted(part.at)))
            .reduce(Summary::then),
    }
}

impl Datatype {
    /// How the runs of one element follow each other. Takes time by the nodes of the layout, not by
    /// the runs.
    pub fn run_order(&self) -> RunOrder {
        summary(&self.layout().node).map_or(
            RunOrder {
                rising: true,
                nondecreasing: true,
                runs: 0,
            },
            |s| s.order,
        )
    }

    /// The runs of one element, if they are one run, or equal ones at equal distances.
    pub fn regular_runs(&self) -> Option<RegularRuns> {
        let Layout { at, node } = self.layout();
        match *node {
            Node::Contig(block) => Some(RegularRuns {
                at: *at,
                count: 1,
                stride: block as i64,
                block,
            }),
            Node::Vector {
                count,
                stride,
                block,
            } => Some(RegularRuns {
                at: *at,
                count,
                stride,
                block,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Basic;

    #[test]
    fn order_is_found_without_walking() {
        let int = Datatype::basic(Basic::Int);
        let order = |rising, nondecreasing, runs| RunOrder {
            rising,
            nondecreasing,
            runs,
        };
        let huge = Datatype::vector(1 << 40, 1, 2, int).unwrap();
        assert_eq!(huge.run_order(), order(true, true, 1 << 40));
        let down = Datatype::indexed(&[1, 1], &[5, 2], int).unwrap();
        assert_eq!(down.run_order(), order(false, false, 2));
        let over = Datatype::indexed(&[2, 2], &[0, 1], int).unwrap();
        assert_eq!(over.run_order(), order(false, true, 2));
        let rows = Datatype::vector(3, 1, 2, int).unwrap();
        let wide = Datatype::hvector(4, 1, 24, &rows).unwrap();
        assert!(wide.run_order().rising);
        let close = Datatype::hvector(4, 1, 19, &rows).unwrap();
        assert_eq!(close.run_order(), order(false, true, 12));
        assert_eq!(Datatype::contiguous(0, int).unwrap().run_order().runs, 0);
    }

    #[test]
    fn a_subarray_is_regular() {
        let order = crate::Order::C;
        let int = Datatype::basic(Basic::Int);
        let block = Datatype::subarray(&[10, 20], &[4, 5], &[2, 3], order, int).unwrap();
        let regular = RegularRuns {
            at: 4 * 43,
            count: 4,
            stride: 80,
            block: 20,
        };
        assert_eq!(block.regular_runs(), Some(regular));
        let cube = Datatype::subarray(&[4, 4, 4], &[2, 2, 2], &[0, 0, 0], order, int).unwrap();
        assert_eq!(cube.regular_runs(), None);
        assert!(cube.run_order().rising);
    }
}
