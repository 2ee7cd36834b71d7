//! Packing, unpacking and listing runs: what is done with a layout's bytes.

use super::strided;
use super::traverse::{Field, RunVisitor};
use crate::Datatype;

/// Copies runs to packed bytes.
struct Packer<'a> {
    out: &'a mut [u8],
    /// Bytes packed so far.
    done: usize,
}

impl RunVisitor for Packer<'_> {
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
    unsafe fn block_indexed(&mut self, base: *mut u8, at: &[i64], block: u64) {
        // SAFETY: there is room, and the runs are readable.
        unsafe {
            strided::gather_blocks(
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
        column_stride: i64,
        rows: u64,
        stride: i64,
        block: u64,
    ) -> bool {
        let column_strides = (column_stride as isize, (rows * block) as isize);
        // SAFETY: there is room, and the runs are readable.
        unsafe {
            let to = (self.out.as_mut_ptr().add(self.done), block as isize);
            strided::transpose(
                (at, stride as isize),
                to,
                column_strides,
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
        packed_len: u64,
    ) -> bool {
        for (offset, packed, len) in fields {
            let from = (
                at.cast_const().wrapping_offset(*offset as isize),
                stride as isize,
            );
            // SAFETY: there is room, and the runs are readable.
            unsafe {
                let to = (
                    self.out.as_mut_ptr().add(self.done + *packed as usize),
                    packed_len as isize,
                );
                strided::copy_steps(from, to, *len as usize, count as usize);
            }
        }
        self.done += (count * packed_len) as usize;
        true
    }
}

/// Copies packed bytes to runs.
struct Unpacker<'a> {
    data: &'a [u8],
    /// Bytes unpacked so far.
    done: usize,
}

impl RunVisitor for Unpacker<'_> {
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
    unsafe fn block_indexed(&mut self, base: *mut u8, at: &[i64], block: u64) {
        // SAFETY: there are so many bytes, and the runs are writable.
        unsafe {
            strided::scatter_blocks(self.data.as_ptr().add(self.done), base, at, block as usize)
        };
        self.done += at.len() * block as usize;
    }
    #[inline]
    unsafe fn columns(
        &mut self,
        at: *mut u8,
        columns: u64,
        column_stride: i64,
        rows: u64,
        stride: i64,
        block: u64,
    ) -> bool {
        let column_strides = ((rows * block) as isize, column_stride as isize);
        // SAFETY: there are so many bytes, and the runs are writable.
        unsafe {
            let from = (self.data.as_ptr().add(self.done), block as isize);
            strided::transpose(
                from,
                (at, stride as isize),
                column_strides,
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
        packed_len: u64,
    ) -> bool {
        for (offset, packed, len) in fields {
            let to = (at.wrapping_offset(*offset as isize), stride as isize);
            // SAFETY: there are so many bytes, and the runs are writable.
            unsafe {
                let from = (
                    self.data.as_ptr().add(self.done + *packed as usize),
                    packed_len as isize,
                );
                strided::copy_steps(from, to, *len as usize, count as usize);
            }
        }
        self.done += (count * packed_len) as usize;
        true
    }
}

/// Lists runs.
struct Collector<'a> {
    runs: &'a mut Vec<(*mut u8, usize)>,
    /// Packed bytes of the runs so far.
    bytes: u64,
}

impl RunVisitor for Collector<'_> {
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
        self.bytes += len;
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
    unsafe fn block_indexed(&mut self, base: *mut u8, at: &[i64], block: u64) {
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
    /// Packed bytes of `count` elements from `offset` on.
    #[inline]
    pub(super) fn remaining(&self, count: i64, offset: u64) -> u64 {
        let total = (count.max(0) as u64).saturating_mul(self.shape.size as u64);
        total.saturating_sub(offset)
    }

    /// Packs `count` elements at `buf` into `out`, from packed byte `offset` on. Returns the number
    /// of bytes. `out` may end amid an element. Packed order is that of the type map, without
    /// padding.
    ///
    /// # Safety
    /// The elements' data bytes must be readable and not overlap `out`.
    pub unsafe fn pack(&self, buf: *const u8, count: i64, offset: u64, out: &mut [u8]) -> usize {
        let len = self.remaining(count, offset).min(out.len() as u64) as usize;
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

    /// Unpacks `data` into `count` elements at `buf`, from packed byte `offset` on. Returns the
    /// number of bytes that the elements had room for.
    ///
    /// # Safety
    /// The elements' data bytes must be writable and not overlap `data`.
    pub unsafe fn unpack(&self, buf: *mut u8, count: i64, offset: u64, data: &[u8]) -> usize {
        let len = self.remaining(count, offset).min(data.len() as u64) as usize;
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

    /// Pushes the memory runs (address, bytes) of `count` elements at `buf`, from packed byte
    /// `offset` on. Ends when the elements end, or when `runs` has reached its capacity. Returns
    /// the number of packed bytes in these runs.
    #[allow(clippy::not_unsafe_ptr_arg_deref)] // The addresses are listed, not read or written.
    pub fn runs(
        &self,
        buf: *mut u8,
        count: i64,
        offset: u64,
        runs: &mut Vec<(*mut u8, usize)>,
    ) -> u64 {
        let mut collector = Collector { runs, bytes: 0 };
        if self.remaining(count, offset) > 0 {
            // SAFETY: a collector lists addresses and touches no memory.
            unsafe { self.traverse(buf, count, offset, &mut collector) };
        }
        collector.bytes
    }
}
