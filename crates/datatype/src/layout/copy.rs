//! Copies between two layouts in one process: what MPI_Put and MPI_Get are on a node.

use super::strided;
use super::traverse::{Field, RunVisitor};
use crate::Datatype;

/// Elements in memory: address, number, type.
pub type Elements<'a, P> = (P, i64, &'a Datatype);

/// Bytes that are packed and unpacked at a time. They stay in the first-level cache.
const CHUNK_BYTES: usize = 16 << 10;
/// The same for few bytes: clearing a whole chunk would take longer than the copy.
const SMALL_CHUNK_BYTES: usize = 512;

impl Datatype {
    /// Copies the bytes of one sequence of elements into those of another, in packed order. No
    /// buffer of the whole size is needed. If the sizes differ, the smaller one counts.
    ///
    /// # Safety
    /// The data bytes of `from` must be readable and those of `to` writable. They may overlap only
    /// if each side is one run.
    #[inline]
    pub unsafe fn copy_typed(from: Elements<*const u8>, to: Elements<*mut u8>) {
        // SAFETY: the caller's promise.
        unsafe {
            if from.2.is_dense() && to.2.is_dense() {
                let len = from.2.remaining(from.1, 0).min(to.2.remaining(to.1, 0));
                copy_run(from.0, to.0, len as usize)
            } else {
                copy_gaps(from, to)
            }
        }
    }
}

/// Copies a run. The usual sizes are a move each: another process sees them whole.
///
/// # Safety
/// As for `std::ptr::copy`.
#[inline(always)]
pub unsafe fn copy_run(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match len {
            8 => to
                .cast::<u64>()
                .write_unaligned(from.cast::<u64>().read_unaligned()),
            4 => to
                .cast::<u32>()
                .write_unaligned(from.cast::<u32>().read_unaligned()),
            2 => to
                .cast::<u16>()
                .write_unaligned(from.cast::<u16>().read_unaligned()),
            1 => to.write(from.read()),
            ..=32 => strided::copy_run(from, to, len),
            _ => std::ptr::copy(from, to, len),
        }
    }
}

/// At least one type has gaps, or does not begin at the element's address.
///
/// # Safety
/// As for [`Datatype::copy_typed`].
#[inline(never)]
unsafe fn copy_gaps(from: Elements<*const u8>, to: Elements<*mut u8>) {
    let ((source, from_count, from_type), (target, to_count, to_type)) = (from, to);
    let bytes = from_type
        .remaining(from_count, 0)
        .min(to_type.remaining(to_count, 0));
    if bytes == 0 {
        return;
    }
    // SAFETY: the caller's promise. A run's bytes are initialised memory of the program.
    unsafe {
        let (from_run, to_run) = (from_type.run(from_count), to_type.run(to_count));
        if let (Some((from_at, _)), Some((to_at, _))) = (from_run, to_run) {
            let source = source.wrapping_offset(from_at as isize);
            copy_run(
                source,
                target.wrapping_offset(to_at as isize),
                bytes as usize,
            );
        } else if let Some((at, len)) = from_run {
            let source = source.wrapping_offset(at as isize);
            let packed = std::slice::from_raw_parts(source, len.min(bytes) as usize);
            to_type.unpack(target, to_count, 0, packed);
        } else if let Some((at, len)) = to_run {
            let target = target.wrapping_offset(at as isize);
            let packed = std::slice::from_raw_parts_mut(target, len.min(bytes) as usize);
            from_type.pack(source, from_count, 0, packed);
        } else if std::ptr::eq(from_type, to_type) && from_count == to_count {
            let distance = target.addr().wrapping_sub(source.addr()) as isize;
            let mut mover = Mover {
                to: target,
                distance,
            };
            from_type.traverse(source.cast_mut(), from_count, 0, &mut mover);
        } else if bytes <= SMALL_CHUNK_BYTES as u64 {
            through_chunks::<SMALL_CHUNK_BYTES>(from, to, bytes);
        } else {
            through_chunks::<CHUNK_BYTES>(from, to, bytes);
        }
    }
}

/// # Safety
/// As for [`Datatype::copy_typed`].
#[inline(never)] // The chunk lies on the stack for as long as it is needed.
unsafe fn through_chunks<const N: usize>(
    (source, from_count, from_type): Elements<*const u8>,
    (target, to_count, to_type): Elements<*mut u8>,
    bytes: u64,
) {
    let mut chunk = [0; N];
    let mut offset = 0;
    while offset < bytes {
        let len = (bytes - offset).min(N as u64) as usize;
        // SAFETY: the caller's promise.
        unsafe {
            from_type.pack(source, from_count, offset, &mut chunk[..len]);
            to_type.unpack(target, to_count, offset, &chunk[..len]);
        }
        offset += len as u64;
    }
}

/// Copies each run of a layout to the same place of another buffer, `distance` bytes further.
struct Mover {
    /// The other buffer. Its address gives the pointers their provenance.
    to: *mut u8,
    distance: isize,
}

impl Mover {
    fn target(&self, at: *mut u8) -> *mut u8 {
        self.to
            .with_addr(at.addr().wrapping_add_signed(self.distance))
    }
}

impl RunVisitor for Mover {
    #[inline]
    fn room(&self) -> u64 {
        u64::MAX
    }
    #[inline]
    unsafe fn run(&mut self, at: *mut u8, len: u64) {
        // SAFETY: the run is readable, and its place in the other buffer is writable.
        unsafe { strided::copy_run(at, self.target(at), len as usize) }
    }
    #[inline]
    unsafe fn blocks(&mut self, at: *mut u8, count: u64, stride: i64, block: u64) {
        let stride = stride as isize;
        let (from, to) = ((at.cast_const(), stride), (self.target(at), stride));
        // SAFETY: as for `run`.
        unsafe { strided::copy_steps(from, to, block as usize, count as usize) }
    }
    #[inline]
    unsafe fn block_indexed(&mut self, base: *mut u8, at: &[i64], block: u64) {
        for at in at {
            // SAFETY: as for `run`.
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
