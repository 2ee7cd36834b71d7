//! Building a layout from a type map. Neighbouring runs are merged.

use super::{Layout, Node, Parts, Runs};
use crate::Datatype;
use crate::constructor::Expansion;
use std::sync::Arc;

impl Datatype {
    /// The layout of one element.
    pub(crate) fn layout(&self) -> &Layout {
        self.layout.get_or_init(|| self.build())
    }

    fn build(&self) -> Layout {
        if self.shape.run {
            let at = self.shape.data.map_or(0, |d| d.0);
            return Layout::run(at, self.shape.size as u64);
        }
        match self.expansion() {
            Expansion::Leaf(basic) => {
                // Only a pair with padding in its middle is more than one run.
                let index_at = basic.form().index_offset() as i64;
                let crate::Form::Pair(value, index) = basic.form() else {
                    return Layout::EMPTY;
                };
                let mut list = List::default();
                list.push(Layout::run(0, value.form().size() as u64));
                list.push(Layout::run(index_at, index.form().size() as u64));
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
                    let part = block_of(block, old);
                    // Places without data, between displacements, may lie outside 64 bits.
                    list.push(Layout {
                        at: part.at.wrapping_add(at),
                        node: part.node,
                    });
                }
                list.finish()
            }
        }
    }
}

fn block_of(block: i64, old: &Datatype) -> Layout {
    if block <= 0 || old.shape.size == 0 {
        return Layout::EMPTY;
    }
    repeat(old.layout().clone(), block, old.extent())
}

/// `count` copies of `one`, `stride` bytes from one to the next.
pub(super) fn repeat(one: Layout, count: i64, stride: i64) -> Layout {
    let Layout { at, node } = one;
    let count = count.max(0) as u64;
    let node = match (count, node) {
        (0, _) | (_, Node::Empty) => return Layout::EMPTY,
        (1, node) => node,
        (_, Node::Contig(len)) if i128::from(stride) == i128::from(len) => {
            Node::Contig(len * count)
        }
        (_, Node::Contig(block)) => Node::Vector {
            count,
            stride,
            block,
        },
        (
            _,
            Node::Vector {
                count: inner,
                stride: step,
                block,
            },
        ) if step.wrapping_mul(inner as i64) == stride => Node::Vector {
            count: inner * count,
            stride: step,
            block,
        },
        (
            _,
            Node::Repeat {
                count: inner,
                stride: step,
                packed_len,
                child,
            },
        ) if step.wrapping_mul(inner as i64) == stride => Node::Repeat {
            count: inner * count,
            stride: step,
            packed_len,
            child,
        },
        (_, node) => Node::Repeat {
            count,
            stride,
            packed_len: node.size(),
            child: Arc::new(node),
        },
    };
    Layout { at, node }
}

/// Builds a list of nodes in packed order.
#[derive(Default)]
struct List {
    /// The runs, as long as all nodes are runs.
    runs: Vec<(i64, u64)>,
    parts: Vec<Layout>,
}

impl List {
    fn push(&mut self, part: Layout) {
        match part.node {
            Node::Empty => {}
            Node::Contig(len) if self.parts.is_empty() => match self.runs.last_mut() {
                Some((at, before)) if at.wrapping_add(*before as i64) == part.at => *before += len,
                _ => self.runs.push((part.at, len)),
            },
            Node::Contig(len) => match self.parts.last_mut() {
                Some(Layout {
                    at,
                    node: Node::Contig(before),
                }) if at.wrapping_add(*before as i64) == part.at => *before += len,
                _ => self.parts.push(part),
            },
            _ => {
                if !self.runs.is_empty() {
                    let runs = std::mem::take(&mut self.runs);
                    self.parts
                        .extend(runs.into_iter().map(|(at, len)| Layout::run(at, len)));
                }
                self.parts.push(part);
            }
        }
    }

    fn finish(mut self) -> Layout {
        if self.parts.is_empty() {
            return runs(&self.runs);
        }
        if self.parts.len() == 1 {
            return self.parts.swap_remove(0);
        }
        let ends = ends(self.parts.iter().map(|p| p.node.size()));
        Layout {
            at: 0,
            node: Node::Struct(Arc::new(Parts {
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

/// Most runs of a pattern that is looked for.
const PATTERN_MAX_RUNS: usize = 12;
/// Least number of runs that are worth a node of their own.
const NODE_MIN_RUNS: usize = 64;

/// Makes nodes of the runs. Runs in a regular pattern become repetitions.
fn runs(list: &[(i64, u64)]) -> Layout {
    let mut parts = Vec::new();
    let (mut done, mut i) = (0, 0);
    while i + NODE_MIN_RUNS <= list.len() {
        let (period, len) = (1..=PATTERN_MAX_RUNS)
            .map(|period| (period, regular(&list[i..], period)))
            .max_by_key(|&(period, len)| (len, PATTERN_MAX_RUNS - period))
            .unwrap_or((1, 0));
        if len < NODE_MIN_RUNS {
            // A long pattern may begin where a short one ends.
            i += (len / 2).max(1);
            continue;
        }
        parts.push(plain(&list[done..i]));
        parts.push(repeated(&list[i..i + len], period));
        i += len;
        done = i;
    }
    if parts.is_empty() {
        return plain(list);
    }
    parts.push(plain(&list[done..]));
    let mut all = List::default();
    parts.into_iter().for_each(|part| all.push(part));
    all.finish()
}

/// Number of runs at the front that are whole repetitions of the first `period` runs at equal
/// distances. 0 if they could not be moved field by field.
fn regular(list: &[(i64, u64)], period: usize) -> usize {
    let Some(&(second, _)) = list.get(period) else {
        return 0;
    };
    let (first, last) = (list[0].0, list[period - 1]);
    let stride = second.wrapping_sub(first);
    let alike = list.iter().zip(&list[period..]);
    let more = alike
        .take_while(|(one, next)| next.1 == one.1 && next.0.wrapping_sub(one.0) == stride)
        .count();
    let len = (period + more) / period * period;
    if len < NODE_MIN_RUNS {
        return len;
    }
    let ascends = list[..period]
        .windows(2)
        .all(|w| w[1].0.wrapping_sub(w[0].0) >= w[0].1 as i64);
    let span = last.0.wrapping_sub(first) as u64 + last.1;
    if ascends && span <= stride.unsigned_abs() {
        len
    } else {
        0
    }
}

/// Whole repetitions of the first `period` runs.
fn repeated(list: &[(i64, u64)], period: usize) -> Layout {
    let at = list[0].0;
    let child: Vec<_> = list[..period]
        .iter()
        .map(|r| (r.0.wrapping_sub(at), r.1))
        .collect();
    let one = plain(&child);
    let repeated = repeat(
        one,
        (list.len() / period) as i64,
        list[period].0.wrapping_sub(at),
    );
    Layout {
        at: repeated.at.wrapping_add(at),
        node: repeated.node,
    }
}

/// The runs one by one.
fn plain(list: &[(i64, u64)]) -> Layout {
    let (at, len) = match list {
        [] => return Layout::EMPTY,
        [(at, len)] => return Layout::run(*at, *len),
        [(at, len), ..] => (*at, *len),
    };
    if list.iter().any(|r| r.1 != len) {
        let (places, ends) = (
            list.iter().map(|r| r.0).collect(),
            ends(list.iter().map(|r| r.1)),
        );
        return Layout {
            at: 0,
            node: Node::Indexed(Arc::new(Runs { at: places, ends })),
        };
    }
    let stride = list[1].0.wrapping_sub(at);
    if list
        .windows(2)
        .all(|w| w[1].0.wrapping_sub(w[0].0) == stride)
    {
        return Layout {
            at,
            node: Node::Vector {
                count: list.len() as u64,
                stride,
                block: len,
            },
        };
    }
    Layout {
        at: 0,
        node: Node::BlockIndexed {
            at: list.iter().map(|r| r.0).collect(),
            block: len,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The runs of a layout, in packed order, and how many nodes it has.
    fn flat(node: &Node, at: i64, all: &mut Vec<(i64, u64)>) -> usize {
        match node {
            Node::Empty => 0,
            Node::Contig(len) => {
                all.push((at, *len));
                1
            }
            Node::Vector {
                count,
                stride,
                block,
            } => {
                all.extend((0..*count as i64).map(|i| (at + i * stride, *block)));
                1
            }
            Node::BlockIndexed { at: places, block } => {
                all.extend(places.iter().map(|place| (at + place, *block)));
                1
            }
            Node::Indexed(runs) => {
                let mut before = 0;
                for (place, end) in runs.at.iter().zip(&runs.ends) {
                    all.push((at + place, end - before));
                    before = *end;
                }
                1
            }
            Node::Repeat {
                count,
                stride,
                child,
                packed_len,
            } => {
                assert_eq!(*packed_len, child.size());
                let nodes = (0..*count as i64).map(|i| flat(child, at + i * stride, all));
                1 + nodes.max().unwrap_or(0)
            }
            Node::Struct(list) => {
                let parts = list.parts.iter();
                1 + parts.map(|p| flat(&p.node, at + p.at, all)).sum::<usize>()
            }
        }
    }

    /// A pattern, how often it comes, and the gap behind each.
    fn stretch() -> impl Strategy<Value = (Vec<(u8, u8)>, usize, u8)> {
        let pattern = prop::collection::vec((1u8..9, 1u8..9), 1..15);
        (pattern, prop_oneof![Just(1usize), 1usize..200], 1u8..9)
    }

    proptest! {
        #[test]
        fn runs_stay_the_same_whatever_patterns_are_found(
            stretches in prop::collection::vec(stretch(), 0..6),
            down in any::<bool>(),
        ) {
            let (mut list, mut at) = (Vec::new(), 0i64);
            for (pattern, times, gap) in stretches {
                for _ in 0..times {
                    for (len, space) in &pattern {
                        list.push((at, u64::from(*len)));
                        at += i64::from(*len) + i64::from(*space);
                    }
                    at += i64::from(gap);
                }
            }
            if down {
                list.reverse();
            }
            let part = runs(&list);
            let mut found = Vec::new();
            flat(&part.node, part.at, &mut found);
            prop_assert_eq!(found, list);
        }
    }

    #[test]
    fn a_pattern_between_others_is_one_node() {
        let head = [(0, 4), (7, 1), (9, 4)];
        let pattern = (0..1000).flat_map(|i| [(100 + 20 * i, 4), (108 + 20 * i, 8)]);
        let tail = (0..1000).map(|i| (50_000 + 16 * i, 8));
        let list: Vec<(i64, u64)> = head.into_iter().chain(pattern).chain(tail).collect();
        let part = runs(&list);
        let mut found = Vec::new();
        let nodes = flat(&part.node, part.at, &mut found);
        assert_eq!(found, list);
        assert!(nodes <= 6, "{nodes} nodes");
    }

    #[test]
    fn what_lies_over_itself_is_left_as_it_is() {
        let list: Vec<(i64, u64)> = (0..100)
            .flat_map(|i| [(4 * i, 4), (4 * i + 2, 4)])
            .collect();
        let part = runs(&list);
        let mut found = Vec::new();
        flat(&part.node, part.at, &mut found);
        assert_eq!(found, list);
        assert!(matches!(
            part.node,
            Node::Vector { .. } | Node::BlockIndexed { .. }
        ));
    }
}
