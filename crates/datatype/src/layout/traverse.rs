//! Traversal of a layout, from any packed offset on.

use super::build::repeat;
use super::strided::COLUMNS_MAX;
use super::{Layout, Node, Parts, Runs};
use crate::Datatype;

/// What is done with the runs of a layout, in packed order. A visitor that has had enough has no
/// room.
pub(super) trait RunVisitor {
    /// Packed bytes that it still takes.
    fn room(&self) -> u64;
    /// Moves a run.
    ///
    /// # Safety
    /// `len` is at most [`RunVisitor::room`]; the run is the user's memory.
    unsafe fn run(&mut self, at: *mut u8, len: u64);
    /// Moves equal runs, `stride` bytes from one to the next.
    ///
    /// # Safety
    /// `count * block` is at most [`RunVisitor::room`]; the runs are the user's memory.
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64);
    /// Moves equal runs at the offsets `at` from `base`.
    ///
    /// # Safety
    /// `at.len() * block` is at most [`RunVisitor::room`]; the runs are the user's memory.
    unsafe fn block_indexed(&mut self, base: *mut u8, at: &[i64], block: u64);
    /// Moves `columns` times `rows` equal runs, each time `column_stride` bytes further. They do
    /// not overlap. Returns false to have them moved one by one.
    ///
    /// # Safety
    /// `columns * rows * block` is at most [`RunVisitor::room`]; the runs are the user's memory.
    unsafe fn columns(
        &mut self,
        at: *mut u8,
        columns: u64,
        column_stride: i64,
        rows: u64,
        stride: i64,
        block: u64,
    ) -> bool;
    /// Moves `count` structures of `packed_len` packed bytes, `stride` bytes from one to the next.
    /// They do not overlap. Returns false to have them moved one by one.
    ///
    /// # Safety
    /// `count * packed_len` is at most [`RunVisitor::room`]; the runs are the user's memory.
    unsafe fn fields(
        &mut self,
        at: *mut u8,
        count: u64,
        stride: i64,
        fields: &[Field],
        packed_len: u64,
    ) -> bool;
}

/// A run in each element of an array of structures: its offset in memory, its offset in the packed
/// element, and its bytes.
pub(super) type Field = (i64, u64, u64);
/// Most fields of a structure that is moved field by field.
const FIELDS_MAX: usize = 12;
/// Structures that are moved field by field at a time. Their memory stays in the cache until the
/// last field has been moved.
const TILE_STRUCTS: u64 = 64;

/// The runs of a small node. `None` if there are more than [`FIELDS_MAX`], if they do not ascend,
/// if they overlap, or if they span more than `room` bytes.
///
/// The runs of elements that are `room` bytes apart do not overlap then, and can be moved in any
/// order.
#[inline]
fn fields(node: &Node, room: u64) -> Option<([Field; FIELDS_MAX], usize)> {
    let mut list = [(0, 0, 0); FIELDS_MAX];
    let mut n = 0;
    let mut packed = 0;
    let mut push = |at: i64, len: u64| {
        list[n] = (at, packed, len);
        packed += len;
        n += 1;
    };
    match node {
        Node::Vector {
            count,
            stride,
            block,
        } if *count <= FIELDS_MAX as u64 => {
            (0..*count as i64).for_each(|i| push(i.wrapping_mul(*stride), *block));
        }
        Node::BlockIndexed { at, block } if at.len() <= FIELDS_MAX => {
            at.iter().for_each(|at| push(*at, *block))
        }
        Node::Indexed(runs) if runs.at.len() <= FIELDS_MAX => {
            let mut before = 0;
            for (at, end) in runs.at.iter().zip(&runs.ends) {
                push(*at, end - before);
                before = *end;
            }
        }
        _ => return None,
    }
    let used = &list[..n];
    if !used
        .windows(2)
        .all(|w| w[1].0.wrapping_sub(w[0].0) >= w[0].2 as i64)
    {
        return None;
    }
    let ((first, ..), (last, _, len)) = (used.first()?, used.last()?);
    let span = last.wrapping_sub(*first) as u64 + len;
    (span <= room).then_some((list, n))
}

/// Columns that are further apart than this share no cache line.
const CACHE_LINE_BYTES: u64 = 64;

/// Moves `count` copies of the node, `stride` bytes from one to the next, from packed byte `skip`
/// on.
///
/// # Safety
/// As for [`walk`].
#[inline]
unsafe fn walk_each<M: RunVisitor>(
    node: &Node,
    base: *mut u8,
    count: u64,
    stride: i64,
    packed_len: u64,
    skip: u64,
    visitor: &mut M,
) {
    let (mut i, mut part) = (skip / packed_len, skip % packed_len);
    let address = |i: u64| base.wrapping_offset((i as isize).wrapping_mul(stride as isize));
    // SAFETY: the caller's promise; `part` lies within the copy; lengths are checked against the
    // room.
    unsafe {
        if let Node::Vector {
            count: rows,
            stride: step,
            block,
        } = node
            && (*block..=CACHE_LINE_BYTES).contains(&stride.unsigned_abs())
            && step.unsigned_abs() / COLUMNS_MAX >= stride.unsigned_abs()
        {
            if part != 0 && i < count && visitor.room() > 0 {
                walk(node, address(i), part, visitor);
                (i, part) = (i + 1, 0);
            }
            loop {
                let columns = (count - i)
                    .min(visitor.room() / packed_len)
                    .min(COLUMNS_MAX);
                if columns < 2
                    || !visitor.columns(address(i), columns, stride, *rows, *step, *block)
                {
                    break;
                }
                i += columns;
            }
        }
        if count - i > TILE_STRUCTS / 8
            && let Some((list, n)) = fields(node, stride.unsigned_abs())
        {
            if part != 0 && visitor.room() > 0 {
                walk(node, address(i), part, visitor);
                (i, part) = (i + 1, 0);
            }
            loop {
                let tile = (count - i)
                    .min(visitor.room() / packed_len)
                    .min(TILE_STRUCTS);
                if tile == 0 || !visitor.fields(address(i), tile, stride, &list[..n], packed_len) {
                    break;
                }
                i += tile;
            }
        }
        while i < count && visitor.room() > 0 {
            walk(node, address(i), part, visitor);
            (i, part) = (i + 1, 0);
        }
    }
}

/// Moves the node's packed bytes from `skip` on, until its end or until the visitor has no room.
///
/// # Safety
/// The node, based at `base`, must describe memory that the visitor may use; `skip` is less than
/// the node's size.
unsafe fn walk<M: RunVisitor>(node: &Node, base: *mut u8, skip: u64, visitor: &mut M) {
    // SAFETY: the caller's promise. The length of a run is cut to the room.
    unsafe {
        match node {
            Node::Empty => {}
            Node::Contig(len) => {
                let len = (len - skip).min(visitor.room());
                visitor.run(base.wrapping_add(skip as usize), len);
            }
            Node::Vector {
                count,
                stride,
                block,
            } => walk_vector((*count, *stride, *block), base, skip, visitor),
            Node::BlockIndexed { at, block } => walk_block_indexed(at, *block, base, skip, visitor),
            Node::Indexed(runs) => walk_indexed(runs, base, skip, visitor),
            Node::Repeat {
                count,
                stride,
                packed_len,
                child,
            } => walk_each(child, base, *count, *stride, *packed_len, skip, visitor),
            Node::Struct(list) => walk_struct(list, base, skip, visitor),
        }
    }
}

/// Moves `count` equal runs of `block` bytes, `stride` bytes from one to the next.
///
/// # Safety
/// As for [`walk`].
#[inline(always)]
unsafe fn walk_vector<M: RunVisitor>(
    (count, stride, block): (u64, i64, u64),
    base: *mut u8,
    skip: u64,
    visitor: &mut M,
) {
    let address = |i: u64| base.wrapping_offset((i as isize).wrapping_mul(stride as isize));
    let (mut i, part) = (skip / block, skip % block);
    // SAFETY: the caller's promise; lengths are cut to the room.
    unsafe {
        if part != 0 {
            let len = (block - part).min(visitor.room());
            visitor.run(address(i).wrapping_add(part as usize), len);
            i += 1;
        }
        let whole = (count - i).min(visitor.room() / block);
        if whole > 0 {
            visitor.blocks(address(i), whole, stride, block);
            i += whole;
        }
        let rest = visitor.room();
        if i < count && rest > 0 && rest < block {
            visitor.run(address(i), rest);
        }
    }
}

/// Moves equal runs of `block` bytes at the offsets `at`.
///
/// # Safety
/// As for [`walk`].
#[inline(always)]
unsafe fn walk_block_indexed<M: RunVisitor>(
    at: &[i64],
    block: u64,
    base: *mut u8,
    skip: u64,
    visitor: &mut M,
) {
    let address = |i: usize| base.wrapping_offset(at[i] as isize);
    let (mut i, part) = ((skip / block) as usize, skip % block);
    // SAFETY: the caller's promise; lengths are cut to the room.
    unsafe {
        if part != 0 {
            let len = (block - part).min(visitor.room());
            visitor.run(address(i).wrapping_add(part as usize), len);
            i += 1;
        }
        let whole = (at.len() - i).min((visitor.room() / block) as usize);
        visitor.block_indexed(base, &at[i..i + whole], block);
        i += whole;
        let rest = visitor.room();
        if i < at.len() && rest > 0 && rest < block {
            visitor.run(address(i), rest);
        }
    }
}

/// Moves runs of any offsets and lengths.
///
/// # Safety
/// As for [`walk`].
#[inline(always)]
unsafe fn walk_indexed<M: RunVisitor>(runs: &Runs, base: *mut u8, skip: u64, visitor: &mut M) {
    let (first, start) = find(&runs.ends, skip);
    let mut part = skip - start;
    let mut before = skip;
    for (at, end) in runs.at[first..].iter().zip(&runs.ends[first..]) {
        let len = (end - before).min(visitor.room());
        if len == 0 {
            return;
        }
        let address = base.wrapping_offset(*at as isize);
        // SAFETY: the caller's promise; the length is cut to the room.
        unsafe { visitor.run(address.wrapping_add(part as usize), len) };
        (part, before) = (0, *end);
    }
}

/// Moves one node after the other.
///
/// # Safety
/// As for [`walk`].
#[inline(always)]
unsafe fn walk_struct<M: RunVisitor>(list: &Parts, base: *mut u8, skip: u64, visitor: &mut M) {
    let (first, start) = find(&list.ends, skip);
    let mut part = skip - start;
    for child in &list.parts[first..] {
        if visitor.room() == 0 {
            return;
        }
        let address = base.wrapping_offset(child.at as isize);
        // SAFETY: the caller's promise.
        unsafe { walk(&child.node, address, part, visitor) };
        part = 0;
    }
}

/// The part that holds packed byte `skip`: its number, and the packed offset where it starts.
#[inline]
fn find(ends: &[u64], skip: u64) -> (usize, u64) {
    if skip == 0 {
        return (0, 0);
    }
    let first = ends.partition_point(|end| *end <= skip);
    (first, if first == 0 { 0 } else { ends[first - 1] })
}

impl Datatype {
    /// Traverses `count` elements at `buf` from packed byte `offset` on.
    ///
    /// # Safety
    /// As for [`walk`]; `offset` is less than the message's size.
    #[inline]
    pub(super) unsafe fn traverse<M: RunVisitor>(
        &self,
        buf: *mut u8,
        count: i64,
        offset: u64,
        visitor: &mut M,
    ) {
        let one = self.layout();
        let extent = self.extent();
        let Layout { at, node } = match &one.node {
            // These elements are one node, which needs no allocation.
            Node::Contig(_) => repeat(one.clone(), count, extent),
            Node::Vector {
                count: n, stride, ..
            } if stride.wrapping_mul(*n as i64) == extent => repeat(one.clone(), count, extent),
            node => {
                let (base, packed_len) =
                    (buf.wrapping_offset(one.at as isize), self.shape.size as u64);
                // SAFETY: the caller's promise.
                return unsafe {
                    walk_each(
                        node,
                        base,
                        count as u64,
                        extent,
                        packed_len,
                        offset,
                        visitor,
                    )
                };
            }
        };
        // SAFETY: the caller's promise.
        unsafe { walk(&node, buf.wrapping_offset(at as isize), offset, visitor) }
    }
}
