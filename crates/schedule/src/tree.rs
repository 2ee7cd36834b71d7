//! Binary trees in the order of ranks, down and up which segments flow (Sanders, Speck, Träff
//! 2009: two-tree algorithms for full bandwidth broadcast, reduction and scan).
//!
//! Nodes have labels from 1. A subtree is a run of labels, so that it lies within few nodes of a
//! machine, and sums of subtrees keep the order of operands. Leaves are the odd labels.

use crate::step::{Builder, Piece};

/// A node of the tree of labels 1 to `size`.
#[derive(Clone, Copy)]
pub(crate) struct Node {
    label: u32,
    size: u32,
}

impl Node {
    /// The node with that label.
    pub(crate) fn new(label: u32, size: u32) -> Node {
        debug_assert!(label >= 1 && label <= size);
        Node { label, size }
    }

    /// The lowest bit of the label: a subtree has so many labels on each side of its root, at most,
    /// the root counted.
    fn reach(self) -> u32 {
        self.label & self.label.wrapping_neg()
    }

    /// The label of the node above.
    pub(crate) fn parent(self) -> Option<u32> {
        let without = self.label - self.reach();
        let above = u64::from(without) | u64::from(self.reach()) << 1;
        // Above the end of the tree the next lower node takes its place.
        let above = if above > u64::from(self.size) {
            without
        } else {
            above as u32
        };
        (above > 0).then_some(above)
    }

    /// The root of the left subtree. Who has a right one has a left one.
    pub(crate) fn left(self) -> Option<u32> {
        (self.reach() > 1).then(|| self.label - self.reach() / 2)
    }

    /// The root of the right subtree.
    pub(crate) fn right(self) -> Option<u32> {
        let mut reach = self.reach() / 2;
        while reach > 0 && u64::from(self.label) + u64::from(reach) > u64::from(self.size) {
            reach /= 2;
        }
        (reach > 0).then(|| self.label + reach)
    }

    /// Are there labels before those of its subtree?
    pub(crate) fn has_lower(self) -> bool {
        self.label > self.reach()
    }

    /// Are there labels behind those of its subtree?
    pub(crate) fn has_higher(self) -> bool {
        u64::from(self.label) + u64::from(self.reach()) <= u64::from(self.size)
    }

    /// Nodes above.
    pub(crate) fn depth(self) -> i64 {
        let above = |&label: &u32| Node { label, ..self }.parent();
        std::iter::successors(self.parent(), above).count() as i64
    }
}

/// Levels that a tree of so many nodes has at most.
pub(crate) fn levels(size: u32) -> i64 {
    i64::from(u32::BITS - size.leading_zeros())
}

/// Segment `k` of a piece, of `segment` units each.
pub(crate) fn segment_of(whole: Piece, segment: i64, k: i64) -> Piece {
    whole.part(k * segment, segment.min(whole.count - k * segment))
}

/// How many segments a piece has.
pub(crate) fn segments(whole: Piece, segment: i64) -> i64 {
    (whole.count + segment - 1) / segment
}

/// What a rank does with one segment, once the messages for it are there.
pub(crate) struct Task<T> {
    /// When, in steps of the pipeline. The tasks that send its messages are `Flow::level_steps`
    /// earlier.
    pub(crate) time: i64,
    /// Which one.
    pub(crate) what: T,
    /// The messages: from whom, and where to.
    pub(crate) receives: [Option<(u32, Piece)>; 2],
}

/// How tasks follow each other.
#[derive(Clone, Copy)]
pub(crate) struct Flow {
    /// Steps that a segment takes from one level of a tree to the next.
    pub(crate) level_steps: i64,
}

/// Room for the messages of one kind of task, a segment each.
pub(crate) struct Rooms {
    all: Piece,
    segment: i64,
    rooms: i64,
}

impl Rooms {
    /// Room for segment `k` of all that use it in turns, which is `like` that one.
    pub(crate) fn of(&self, k: i64, like: Piece) -> Piece {
        self.all.part(k % self.rooms * self.segment, like.count)
    }
}

impl Flow {
    /// Tasks whose messages are received ahead. A send is waited for as many tasks later. By then
    /// its receiver has posted it, also if nothing is sent before it is received: a step has two
    /// tasks at most, so these last from one level to the next. So no circle of ranks waits.
    fn tasks_ahead(self) -> usize {
        2 * self.level_steps as usize
    }

    /// Room for segments of `whole`: for as many tasks as receive ahead or still send, and two.
    pub(crate) fn rooms(self, b: &mut Builder, whole: Piece, segment: i64) -> Rooms {
        let rooms = segments(whole, segment).min(2 * self.tasks_ahead() as i64 + 2);
        let segment = segment.min(whole.count);
        Rooms {
            all: b.scratch(rooms * segment),
            segment,
            rooms,
        }
    }

    /// Carries out tasks in the order of their times.
    pub(crate) fn run<T>(
        self,
        b: &mut Builder,
        mut tasks: Vec<Task<T>>,
        mut act: impl FnMut(&mut Builder, &T),
    ) {
        tasks.sort_by_key(|task| task.time);
        let mut posted = Vec::with_capacity(tasks.len());
        for (i, task) in tasks.iter().enumerate() {
            while let Some(next) = tasks.get(posted.len())
                && posted.len() <= i + self.tasks_ahead()
            {
                for (peer, into) in next.receives.into_iter().flatten() {
                    b.recv(peer, into);
                }
                posted.push(b.mark());
            }
            b.sync_before(posted[i]);
            act(b, &task.what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_and_children_agree_and_subtrees_are_runs() {
        for size in 1..=300 {
            let mut roots = 0;
            for label in 1..=size {
                let node = Node::new(label, size);
                for (child, is_left) in [(node.left(), true), (node.right(), false)] {
                    let Some(child) = child else { continue };
                    assert_eq!(Node::new(child, size).parent(), Some(label), "{size}");
                    assert_eq!(child < label, is_left);
                }
                match node.parent() {
                    None => roots += 1,
                    Some(parent) => {
                        let above = Node::new(parent, size);
                        let children = [above.left(), above.right()];
                        assert!(children.contains(&Some(label)), "{label} of {size}");
                    }
                }
                assert!(node.depth() < levels(size));
                let (from, to) = run_of(node);
                assert_eq!(node.has_lower(), from > 1, "{label} of {size}");
                assert_eq!(node.has_higher(), to < size, "{label} of {size}");
            }
            assert_eq!(roots, 1);
        }
    }

    /// The first and the last label of a subtree.
    fn run_of(node: Node) -> (u32, u32) {
        let of = |label| run_of(Node::new(label, node.size));
        let left = node.left().map_or((node.label, node.label - 1), of);
        let right = node.right().map_or((node.label + 1, node.label), of);
        assert_eq!((left.1 + 1, right.0), (node.label, node.label + 1));
        (left.0, right.1)
    }
}
