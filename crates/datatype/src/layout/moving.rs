//! Going through a layout from any packed offset on: packing, unpacking, collecting runs.

use super::build::repeat;
use super::{Node, Placed, strided};
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
}

/// Moves the node's packed bytes from `skip` on, until its end or until the mover has no room.
///
/// # Safety
/// The node, based at `base`, must describe memory that the mover may use; `skip` is less than the node's size.
unsafe fn walk<M: Mover>(node: &Node, base: *mut u8, skip: u64, mover: &mut M) {
    // SAFETY: lengths are cut to the room; addresses are those of the layout, vouched for by the caller.
    unsafe {
        match node {
            Node::Empty => {}
            Node::Run(len) => {
                let len = (len - skip).min(mover.room());
                mover.run(base.wrapping_add(skip as usize), len);
            }
            Node::Blocks { count, stride, block } => {
                let place = |i: u64| base.wrapping_offset((i as isize).wrapping_mul(*stride as isize));
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
                let mut part = skip % block;
                for at in &at[(skip / block) as usize..] {
                    let len = (block - part).min(mover.room());
                    if len == 0 {
                        return;
                    }
                    mover.run(base.wrapping_offset(*at as isize).wrapping_add(part as usize), len);
                    part = 0;
                }
            }
            Node::Runs(runs) => {
                let first = runs.ends.partition_point(|end| *end <= skip);
                let mut from = skip;
                let start = if first == 0 { 0 } else { runs.ends[first - 1] };
                let mut part = skip - start;
                for (at, end) in runs.at[first..].iter().zip(&runs.ends[first..]) {
                    let len = (end - from).min(mover.room());
                    if len == 0 {
                        return;
                    }
                    mover.run(base.wrapping_offset(*at as isize).wrapping_add(part as usize), len);
                    (part, from) = (0, *end);
                }
            }
            Node::Each { count, stride, unit, child } => {
                let mut part = skip % unit;
                let mut i = skip / unit;
                while i < *count && mover.room() > 0 {
                    walk(child, base.wrapping_offset((i as isize).wrapping_mul(*stride as isize)), part, mover);
                    part = 0;
                    i += 1;
                }
            }
            Node::Parts(list) => {
                let first = list.ends.partition_point(|end| *end <= skip);
                let start = if first == 0 { 0 } else { list.ends[first - 1] };
                let mut part = skip - start;
                for placed in &list.parts[first..] {
                    if mover.room() == 0 {
                        return;
                    }
                    walk(&placed.node, base.wrapping_offset(placed.at as isize), part, mover);
                    part = 0;
                }
            }
        }
    }
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
        unsafe { std::ptr::copy_nonoverlapping(at, self.out.as_mut_ptr().add(self.done), len) };
        self.done += len;
    }
    #[inline]
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64) {
        // SAFETY: there is room, and the runs are readable.
        unsafe { strided::gather(at, stride, self.out.as_mut_ptr().add(self.done), block as usize, count as usize) };
        self.done += (count * block) as usize;
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
        unsafe { std::ptr::copy_nonoverlapping(self.data.as_ptr().add(self.done), at, len) };
        self.done += len;
    }
    #[inline]
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64) {
        // SAFETY: there are so many bytes, and the runs are writable.
        unsafe { strided::scatter(self.data.as_ptr().add(self.done), at, stride, block as usize, count as usize) };
        self.done += (count * block) as usize;
    }
}

struct Collector<'a> {
    runs: &'a mut Vec<(*mut u8, usize)>,
    covered: u64,
}

impl Mover for Collector<'_> {
    #[inline]
    fn room(&self) -> u64 {
        if self.runs.len() == self.runs.capacity() { 0 } else { u64::MAX }
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
            unsafe { self.run(at.wrapping_offset((i as isize).wrapping_mul(stride as isize)), block) };
        }
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
            Node::Blocks { count: n, stride, .. } if stride.wrapping_mul(*n as i64) == extent => {
                repeat(one.clone(), count, extent)
            }
            node => {
                let first = buf.wrapping_offset(one.at as isize);
                let unit = self.shape.size as u64;
                let (mut i, mut part) = ((offset / unit) as i64, offset % unit);
                while i < count && mover.room() > 0 {
                    let base = first.wrapping_offset((i as isize).wrapping_mul(extent as isize));
                    // SAFETY: the caller's promise; `part` lies within the element.
                    unsafe { walk(node, base, part, mover) };
                    part = 0;
                    i += 1;
                }
                return;
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

    /// Copies packed bytes from `offset` on of `count` elements at `buf` into `out`, and returns how many: `out` may end amid
    /// an element. Packed order is that of the type map, without padding.
    ///
    /// # Safety
    /// The elements' data bytes must be readable and not overlap `out`.
    pub unsafe fn pack(&self, buf: *const u8, count: i64, offset: u64, out: &mut [u8]) -> usize {
        let len = self.left(count, offset).min(out.len() as u64) as usize;
        if len > 0 {
            let mut packer = Packer { out: &mut out[..len], done: 0 };
            // SAFETY: the caller's promise; a packer only reads through the pointer.
            unsafe { self.traverse(buf.cast_mut(), count, offset, &mut packer) };
        }
        len
    }

    /// Stores `data` as the packed bytes from `offset` on of `count` elements at `buf`, and returns how many there was
    /// room for.
    ///
    /// # Safety
    /// The elements' data bytes must be writable and not overlap `data`.
    pub unsafe fn unpack(&self, buf: *mut u8, count: i64, offset: u64, data: &[u8]) -> usize {
        let len = self.left(count, offset).min(data.len() as u64) as usize;
        if len > 0 {
            let mut unpacker = Unpacker { data: &data[..len], done: 0 };
            // SAFETY: the caller's promise.
            unsafe { self.traverse(buf, count, offset, &mut unpacker) };
        }
        len
    }

    /// Pushes the memory runs (address, bytes) that hold packed bytes from `offset` on of `count` elements at `buf`, until
    /// `runs` is full (it is not made to grow) or the elements end. Returns how many packed bytes these runs hold.
    #[allow(clippy::not_unsafe_ptr_arg_deref)] // the addresses are noted, nothing is read or written
    pub fn runs(&self, buf: *mut u8, count: i64, offset: u64, runs: &mut Vec<(*mut u8, usize)>) -> u64 {
        let mut collector = Collector { runs, covered: 0 };
        if self.left(count, offset) > 0 {
            // SAFETY: a collector notes addresses and touches no memory.
            unsafe { self.traverse(buf, count, offset, &mut collector) };
        }
        collector.covered
    }
}
