//! Making a layout from a type map, with neighbours merged on the way.

use super::{Node, Parts, Placed, Runs};
use crate::Datatype;
use crate::recipe::Expansion;
use std::sync::Arc;

impl Datatype {
    /// The layout of one element.
    pub(crate) fn layout(&self) -> &Placed {
        self.layout.get_or_init(|| self.build())
    }

    fn build(&self) -> Placed {
        if self.shape.run {
            let at = self.shape.data.map_or(0, |d| d.0);
            return Placed::run(at, self.shape.size as u64);
        }
        match self.expansion() {
            Expansion::Leaf(basic) => {
                // Only a pair with padding in its middle is no single run.
                let index_at = basic.form().index_offset() as i64;
                let crate::Form::Pair(value, index) = basic.form() else {
                    return Placed::EMPTY;
                };
                let mut list = List::default();
                list.push(Placed::run(0, value.form().size() as u64));
                list.push(Placed::run(index_at, index.form().size() as u64));
                list.finish()
            }
            Expansion::Repeat {
                count,
                stride,
                block,
                old,
            } => repeat(block_of(block, old), count, stride),
            Expansion::List(blocks) => {
                let mut list = List::default();
                for (at, block, old) in blocks {
                    let placed = block_of(block, old);
                    list.push(Placed {
                        at: placed.at + at,
                        node: placed.node,
                    });
                }
                list.finish()
            }
        }
    }
}

fn block_of(block: i64, old: &Datatype) -> Placed {
    if block <= 0 || old.shape.size == 0 {
        return Placed::EMPTY;
    }
    repeat(old.layout().clone(), block, old.extent())
}

/// `count` times `one`, `stride` bytes from one to the next.
pub(super) fn repeat(one: Placed, count: i64, stride: i64) -> Placed {
    let Placed { at, node } = one;
    let count = count.max(0) as u64;
    let node = match (count, node) {
        (0, _) | (_, Node::Empty) => return Placed::EMPTY,
        (1, node) => node,
        (_, Node::Run(len)) if i128::from(stride) == i128::from(len) => Node::Run(len * count),
        (_, Node::Run(block)) => Node::Blocks {
            count,
            stride,
            block,
        },
        (
            _,
            Node::Blocks {
                count: inner,
                stride: step,
                block,
            },
        ) if step.wrapping_mul(inner as i64) == stride => Node::Blocks {
            count: inner * count,
            stride: step,
            block,
        },
        (
            _,
            Node::Each {
                count: inner,
                stride: step,
                unit,
                child,
            },
        ) if step.wrapping_mul(inner as i64) == stride => Node::Each {
            count: inner * count,
            stride: step,
            unit,
            child,
        },
        (_, node) => Node::Each {
            count,
            stride,
            unit: node.size(),
            child: Arc::new(node),
        },
    };
    Placed { at, node }
}

/// Things one after the other in packed order.
#[derive(Default)]
struct List {
    /// As long as all are runs, only these.
    runs: Vec<(i64, u64)>,
    parts: Vec<Placed>,
}

impl List {
    fn push(&mut self, placed: Placed) {
        match placed.node {
            Node::Empty => {}
            Node::Run(len) if self.parts.is_empty() => match self.runs.last_mut() {
                Some((at, before)) if *at + *before as i64 == placed.at => *before += len,
                _ => self.runs.push((placed.at, len)),
            },
            Node::Run(len) => match self.parts.last_mut() {
                Some(Placed {
                    at,
                    node: Node::Run(before),
                }) if *at + *before as i64 == placed.at => *before += len,
                _ => self.parts.push(placed),
            },
            _ => {
                if !self.runs.is_empty() {
                    let runs = std::mem::take(&mut self.runs);
                    self.parts
                        .extend(runs.into_iter().map(|(at, len)| Placed::run(at, len)));
                }
                self.parts.push(placed);
            }
        }
    }

    fn finish(mut self) -> Placed {
        if self.parts.is_empty() {
            return runs(&self.runs);
        }
        if self.parts.len() == 1 {
            return self.parts.swap_remove(0);
        }
        let ends = ends(self.parts.iter().map(|p| p.node.size()));
        Placed {
            at: 0,
            node: Node::Parts(Arc::new(Parts {
                parts: self.parts.into(),
                ends,
            })),
        }
    }
}

fn ends(sizes: impl Iterator<Item = u64>) -> Box<[u64]> {
    sizes
        .scan(0, |end, size| {
            *end += size;
            Some(*end)
        })
        .collect()
}

fn runs(list: &[(i64, u64)]) -> Placed {
    let (at, len) = match list {
        [] => return Placed::EMPTY,
        [(at, len)] => return Placed::run(*at, *len),
        [(at, len), ..] => (*at, *len),
    };
    if list.iter().any(|r| r.1 != len) {
        let (places, ends) = (
            list.iter().map(|r| r.0).collect(),
            ends(list.iter().map(|r| r.1)),
        );
        return Placed {
            at: 0,
            node: Node::Runs(Arc::new(Runs { at: places, ends })),
        };
    }
    let stride = list[1].0 - at;
    if list.windows(2).all(|w| w[1].0 - w[0].0 == stride) {
        return Placed {
            at,
            node: Node::Blocks {
                count: list.len() as u64,
                stride,
                block: len,
            },
        };
    }
    Placed {
        at: 0,
        node: Node::Spots {
            at: list.iter().map(|r| r.0).collect(),
            block: len,
        },
    }
}
