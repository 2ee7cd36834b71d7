//! Going through a layout from any packed offset on: packing, unpacking, collecting runs.

use super::build::repeat;
use super::strided::{self, COLUMNS};
use super::{Node, Placed};
use crate::Datatype;

/// What is done with the runs, in packed order. A mover that has had enough has no room.
trait Mover {
    /// Packed bytes that it still takes.
    fn room(&self) -> u64;
    /// A run.
    ///
    /// # Safety
    /// `len` is at most [`Mover::room`]; the run is the user's memory.
    unsafe fn run(&mut self, at: *mut u8, len: u64);
    /// Equal runs.
    ///
    /// # Safety
    /// `count * block` is at most [`Mover::room`]; the runs are the user's memory.
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64);
    /// Equal runs at various places, counted from `base`.
    ///
    /// # Safety
    /// `at.len() * block` is at most [`Mover::room`]; the runs are the user's memory.
    unsafe fn spots(&mut self, base: *mut u8, at: &[i64], block: u64);
    /// `columns` times equal runs, each time `apart` bytes further, none over another. False: do it
    /// one by one.
    ///
    /// # Safety
    /// `columns * rows * block` is at most [`Mover::room`]; the runs are the user's memory.
    unsafe fn columns(
        &mut self,
        at: *mut u8,
        columns: u64,
        apart: i64,
        rows: u64,
        stride: i64,
        block: u64,
    ) -> bool;
    /// `count` structures of `unit` packed bytes, `stride` bytes from one to the next, none over
    /// another. False: do it one by one.
    ///
    /// # Safety
    /// `count * unit` is at most [`Mover::room`]; the runs are the user's memory.
    unsafe fn fields(
        &mut self,
        at: *mut u8,
        count: u64,
        stride: i64,
        fields: &[Field],
        unit: u64,
    ) -> bool;
}

/// A run in each element of an array of structures: where it lies in memory and in the packed
/// element, and its bytes.
type Field = (i64, u64, u64);
/// Structures of at most so many fields are moved field by field.
const FIELDS: usize = 12;
/// So many structures at a time: their memory stays in the cache until the last field has been
/// moved.
const TILE: u64 = 64;

/// The runs of a small node, if they ascend without overlap and span at most `room` bytes: then the
/// runs of elements `room` bytes apart do not overlap either, and may be moved in any order.
#[inline]
fn fields(node: &Node, room: u64) -> Option<([Field; FIELDS], usize)> {
    let mut list = [(0, 0, 0); FIELDS];
    let mut n = 0;
    let mut packed = 0;
    let mut push = |at: i64, len: u64| {
        list[n] = (at, packed, len);
        packed += len;
        n += 1;
    };
    match node {
        Node::Blocks {
            count,
            stride,
            block,
        } if *count <= FIELDS as u64 => {
            (0..*count as i64).for_each(|i| push(i.wrapping_mul(*stride), *block));
        }
        Node::Spots { at, block } if at.len() <= FIELDS => {
            at.iter().for_each(|at| push(*at, *block))
        }
        Node::Runs(runs) if runs.at.len() <= FIELDS => {
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

/// Columns further apart than this, in bytes, share no cache line.
const NEAR: u64 = 64;

/// Moves `count` copies of the node, `stride` bytes from one to the next, from packed byte `skip`
/// on.
///
/// # Safety
/// As for [`walk`].
#[inline]
unsafe fn walk_each<M: Mover>(
    node: &Node,
    base: *mut u8,
    count: u64,
    stride: i64,
    unit: u64,
    skip: u64,
    mover: &mut M,
) {
    let (mut i, mut part) = (skip / unit, skip % unit);
    let place = |i: u64| base.wrapping_offset((i as isize).wrapping_mul(stride as isize));
    // SAFETY: the caller's promise; `part` lies within the copy; lengths are checked against the
    // room.
    unsafe {
        if let Node::Blocks {
            count: rows,
            stride: step,
            block,
        } = node
            && (*block..=NEAR).contains(&stride.unsigned_abs())
            && step.unsigned_abs() / COLUMNS >= stride.unsigned_abs()
        {
            if part != 0 && i < count && mover.room() > 0 {
                walk(node, place(i), part, mover);
                (i, part) = (i + 1, 0);
            }
            loop {
                let columns = (count - i).min(mover.room() / unit).min(COLUMNS);
                if columns < 2 || !mover.columns(place(i), columns, stride, *rows, *step, *block) {
                    break;
                }
                i += columns;
            }
        }
        if count - i > TILE / 8
            && let Some((list, n)) = fields(node, stride.unsigned_abs())
        {
            if part != 0 && mover.room() > 0 {
                walk(node, place(i), part, mover);
                (i, part) = (i + 1, 0);
            }
            loop {
                let tile = (count - i).min(mover.room() / unit).min(TILE);
                if tile == 0 || !mover.fields(place(i), tile, stride, &list[..n], unit) {
                    break;
                }
                i += tile;
            }
        }
        while i < count && mover.room() > 0 {
            walk(node, place(i), part, mover);
            (i, part) = (i + 1, 0);
        }
    }
}

/// Moves the node's packed bytes from `skip` on, until its end or until the mover has no room.
///
/// # Safety
/// The node, based at `base`, must describe memory that the mover may use; `skip` is less than the
/// node's size.
unsafe fn walk<M: Mover>(node: &Node, base: *mut u8, skip: u64, mover: &mut M) {
    // SAFETY: lengths are cut to the room; addresses are those of the layout, vouched for by the
    // caller.
    unsafe {
        match node {
            Node::Empty => {}
            Node::Run(len) => {
                let len = (len - skip).min(mover.room());
                mover.run(base.wrapping_add(skip as usize), len);
            }
            Node::Blocks {
                count,
                stride,
                block,
            } => {
                let place =
                    |i: u64| base.wrapping_offset((i as isize).wrapping_mul(*stride as isize));
                let (mut i, part) = (skip / block, skip % block);
                if part != 0 {
                    let len = (block - part).min(mover.room());
                    mover.run(place(i).wrapping_add(part as usize), len);
                    i += 1;
                }
                let whole = (count - i).min(mover.room() / block);
                if whole > 0 {
                    mover.blocks(place(i), whole, *stride, *block);
                    i += whole;
                }
                let rest = mover.room();
                if i < *count && rest > 0 && rest < *block {
                    mover.run(place(i), rest);
                }
            }
            Node::Spots { at, block } => {
                let (mut i, part) = ((skip / block) as usize, skip % block);
                let place = |i: usize| base.wrapping_offset(at[i] as isize);
                if part != 0 {
                    let len = (block - part).min(mover.room());
                    mover.run(place(i).wrapping_add(part as usize), len);
                    i += 1;
                }
                let whole = (at.len() - i).min((mover.room() / block) as usize);
                mover.spots(base, &at[i..i + whole], *block);
                i += whole;
                let rest = mover.room();
                if i < at.len() && rest > 0 && rest < *block {
                    mover.run(place(i), rest);
                }
            }
            Node::Runs(runs) => {
                let (first, start) = if skip == 0 {
                    (0, 0)
                } else {
                    find(&runs.ends, skip)
                };
                let mut part = skip - start;
                let mut before = skip;
                for (at, end) in runs.at[first..].iter().zip(&runs.ends[first..]) {
                    let len = (end - before).min(mover.room());
                    if len == 0 {
                        return;
                    }
                    mover.run(
                        base.wrapping_offset(*at as isize)
                            .wrapping_add(part as usize),
                        len,
                    );
                    (part, before) = (0, *end);
                }
            }
            Node::Each {
                count,
                stride,
                unit,
                child,
            } => walk_each(child, base, *count, *stride, *unit, skip, mover),
            Node::Parts(list) => {
                let (first, start) = if skip == 0 {
                    (0, 0)
                } else {
                    find(&list.ends, skip)
                };
                let mut part = skip - start;
                for placed in &list.parts[first..] {
                    if mover.room() == 0 {
                        return;
                    }
                    walk(
                        &placed.node,
                        base.wrapping_offset(placed.at as isize),
                        part,
                        mover,
                    );
                    part = 0;
                }
            }
        }
    }
}

/// The part that holds packed byte `skip`, and where it starts.
fn find(ends: &[u64], skip: u64) -> (usize, u64) {
    let first = ends.partition_point(|end| *end <= skip);
    (first, if first == 0 { 0 } else { ends[first - 1] })
}

struct Packer<'a> {
    out: &'a mut [u8],
    done: usize,
}

impl Mover for Packer<'_> {
    #[inline]
    fn room(&self) -> u64 {
        (self.out.len() - self.done) as u64
    }
    #[inline]
    unsafe fn run(&mut self, at: *mut u8, len: u64) {
        let len = len as usize;
        // SAFETY: there is room, and the run is readable.
        unsafe { strided::copy_run(at, self.out.as_mut_ptr().add(self.done), len) };
        self.done += len;
    }
    #[inline]
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64) {
        // SAFETY: there is room, and the runs are readable.
        unsafe {
            let to = (self.out.as_mut_ptr().add(self.done), block as isize);
            strided::copy_steps((at, stride as isize), to, block as usize, count as usize);
        }
        self.done += (count * block) as usize;
    }
    #[inline]
    unsafe fn spots(&mut self, base: *mut u8, at: &[i64], block: u64) {
        // SAFETY: there is room, and the runs are readable.
        unsafe {
            strided::gather_spots(
                base,
                at,
                self.out.as_mut_ptr().add(self.done),
                block as usize,
            )
        };
        self.done += at.len() * block as usize;
    }
    #[inline]
    unsafe fn columns(
        &mut self,
        at: *mut u8,
        columns: u64,
        apart: i64,
        rows: u64,
        stride: i64,
        block: u64,
    ) -> bool {
        let apart = (apart as isize, (rows * block) as isize);
        // SAFETY: there is room, and the runs are readable.
        unsafe {
            let to = (self.out.as_mut_ptr().add(self.done), block as isize);
            strided::transpose(
                (at, stride as isize),
                to,
                apart,
                block as usize,
                rows as usize,
                columns as usize,
            );
        }
        self.done += (columns * rows * block) as usize;
        true
    }
    #[inline]
    unsafe fn fields(
        &mut self,
        at: *mut u8,
        count: u64,
        stride: i64,
        fields: &[Field],
        unit: u64,
    ) -> bool {
        for (place, start, len) in fields {
            let from = (
                at.cast_const().wrapping_offset(*place as isize),
                stride as isize,
            );
            // SAFETY: there is room, and the runs are readable.
            unsafe {
                let to = (
                    self.out.as_mut_ptr().add(self.done + *start as usize),
                    unit as isize,
                );
                strided::copy_steps(from, to, *len as usize, count as usize);
            }
        }
        self.done += (count * unit) as usize;
        true
    }
}

struct Unpacker<'a> {
    data: &'a [u8],
    done: usize,
}

impl Mover for Unpacker<'_> {
    #[inline]
    fn room(&self) -> u64 {
        (self.data.len() - self.done) as u64
    }
    #[inline]
    unsafe fn run(&mut self, at: *mut u8, len: u64) {
        let len = len as usize;
        // SAFETY: there are so many bytes, and the run is writable.
        unsafe { strided::copy_run(self.data.as_ptr().add(self.done), at, len) };
        self.done += len;
    }
    #[inline]
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64) {
        // SAFETY: there are so many bytes, and the runs are writable.
        unsafe {
            let from = (self.data.as_ptr().add(self.done), block as isize);
            strided::copy_steps(from, (at, stride as isize), block as usize, count as usize);
        }
        self.done += (count * block) as usize;
    }
    #[inline]
    unsafe fn spots(&mut self, base: *mut u8, at: &[i64], block: u64) {
        // SAFETY: there are so many bytes, and the runs are writable.
        unsafe {
            strided::scatter_spots(self.data.as_ptr().add(self.done), base, at, block as usize)
        };
        self.done += at.len() * block as usize;
    }
    #[inline]
    unsafe fn columns(
        &mut self,
        at: *mut u8,
        columns: u64,
        apart: i64,
        rows: u64,
        stride: i64,
        block: u64,
    ) -> bool {
        let apart = ((rows * block) as isize, apart as isize);
        // SAFETY: there are so many bytes, and the runs are writable.
        unsafe {
            let from = (self.data.as_ptr().add(self.done), block as isize);
            strided::transpose(
                from,
                (at, stride as isize),
                apart,
                block as usize,
                rows as usize,
                columns as usize,
            );
        }
        self.done += (columns * rows * block) as usize;
        true
    }
    #[inline]
    unsafe fn fields(
        &mut self,
        at: *mut u8,
        count: u64,
        stride: i64,
        fields: &[Field],
        unit: u64,
    ) -> bool {
        for (place, start, len) in fields {
            let to = (at.wrapping_offset(*place as isize), stride as isize);
            // SAFETY: there are so many bytes, and the runs are writable.
            unsafe {
                let from = (
                    self.data.as_ptr().add(self.done + *start as usize),
                    unit as isize,
                );
                strided::copy_steps(from, to, *len as usize, count as usize);
            }
        }
        self.done += (count * unit) as usize;
        true
    }
}

struct Collector<'a> {
    runs: &'a mut Vec<(*mut u8, usize)>,
    covered: u64,
}

impl Mover for Collector<'_> {
    #[inline]
    fn room(&self) -> u64 {
        if self.runs.len() == self.runs.capacity() {
            0
        } else {
            u64::MAX
        }
    }
    #[inline]
    unsafe fn run(&mut self, at: *mut u8, len: u64) {
        if len == 0 {
            return;
        }
        self.covered += len;
        match self.runs.last_mut() {
            Some((start, before)) if start.wrapping_add(*before) == at => *before += len as usize,
            _ => self.runs.push((at, len as usize)),
        }
    }
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64) {
        for i in 0..count {
            if self.room() == 0 {
                return;
            }
            // SAFETY: one of the runs that the caller vouches for.
            unsafe {
                self.run(
                    at.wrapping_offset((i as isize).wrapping_mul(stride as isize)),
                    block,
                )
            };
        }
    }
    unsafe fn spots(&mut self, base: *mut u8, at: &[i64], block: u64) {
        for at in at {
            if self.room() == 0 {
                return;
            }
            // SAFETY: one of the runs that the caller vouches for.
            unsafe { self.run(base.wrapping_offset(*at as isize), block) };
        }
    }
    unsafe fn columns(&mut self, _: *mut u8, _: u64, _: i64, _: u64, _: i64, _: u64) -> bool {
        false
    }
    unsafe fn fields(&mut self, _: *mut u8, _: u64, _: i64, _: &[Field], _: u64) -> bool {
        false
    }
}

impl Datatype {
    /// Goes through `count` elements at `buf` from packed byte `offset` on.
    ///
    /// # Safety
    /// As for [`walk`]; `offset` is less than the message's size.
    #[inline]
    unsafe fn traverse<M: Mover>(&self, buf: *mut u8, count: i64, offset: u64, mover: &mut M) {
        let one = self.layout();
        let extent = self.extent();
        let Placed { at, node } = match &one.node {
            // These become one node, without allocation.
            Node::Run(_) => repeat(one.clone(), count, extent),
            Node::Blocks {
                count: n, stride, ..
            } if stride.wrapping_mul(*n as i64) == extent => repeat(one.clone(), count, extent),
            node => {
                let (base, unit) = (buf.wrapping_offset(one.at as isize), self.shape.size as u64);
                // SAFETY: the caller's promise.
                return unsafe { walk_each(node, base, count as u64, extent, unit, offset, mover) };
            }
        };
        // SAFETY: the caller's promise.
        unsafe { walk(&node, buf.wrapping_offset(at as isize), offset, mover) }
    }

    /// Packed bytes of `count` elements from `offset` on.
    fn left(&self, count: i64, offset: u64) -> u64 {
        let total = (count.max(0) as u64).saturating_mul(self.shape.size as u64);
        total.saturating_sub(offset)
    }

    /// Copies packed bytes from `offset` on of `count` elements at `buf` into `out`, and returns
    /// how many: `out` may end amid an element. Packed order is that of the type map, without
    /// padding.
    ///
    /// # Safety
    /// The elements' data bytes must be readable and not overlap `out`.
    pub unsafe fn pack(&self, buf: *const u8, count: i64, offset: u64, out: &mut [u8]) -> usize {
        let len = self.left(count, offset).min(out.len() as u64) as usize;
        if len > 0 {
            let mut packer = Packer {
                out: &mut out[..len],
                done: 0,
            };
            // SAFETY: the caller's promise; a packer only reads through the pointer.
            unsafe { self.traverse(buf.cast_mut(), count, offset, &mut packer) };
        }
        len
    }

    /// Stores `data` as the packed bytes from `offset` on of `count` elements at `buf`, and returns
    /// how many there was room for.
    ///
    /// # Safety
    /// The elements' data bytes must be writable and not overlap `data`.
    pub unsafe fn unpack(&self, buf: *mut u8, count: i64, offset: u64, data: &[u8]) -> usize {
        let len = self.left(count, offset).min(data.len() as u64) as usize;
        if len > 0 {
            let mut unpacker = Unpacker {
                data: &data[..len],
                done: 0,
            };
            // SAFETY: the caller's promise.
            unsafe { self.traverse(buf, count, offset, &mut unpacker) };
        }
        len
    }

    /// Pushes the memory runs (address, bytes) that hold packed bytes from `offset` on of `count`
    /// elements at `buf`, until `runs` is full (it is not made to grow) or the elements end.
    /// Returns how many packed bytes these runs hold.
    #[allow(clippy::not_unsafe_ptr_arg_deref)] // the addresses are noted, nothing is read or written
    pub fn runs(
        &self,
        buf: *mut u8,
        count: i64,
        offset: u64,
        runs: &mut Vec<(*mut u8, usize)>,
    ) -> u64 {
        let mut collector = Collector { runs, covered: 0 };
        if self.left(count, offset) > 0 {
            // SAFETY: a collector notes addresses and touches no memory.
            unsafe { self.traverse(buf, count, offset, &mut collector) };
        }
        collector.covered
    }
}
