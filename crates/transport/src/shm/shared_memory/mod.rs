//! Memory that the processes of a node share beside the rings: ranges of the arena in the node's
//! segment. Memory of windows (MPI 5.0 §12.2.2, §12.2.3) lies there.
//!
//! A counter in the arena's first page says where the next range begins. The arena is longer than
//! what any job allocates. Pages of released ranges go back to the system, but for a few short ones
//! that the process which has released them hands out again, cleared ([`RangeCache`]).
//!
//! It needs no transport: processes of a node that send their messages by TCP can share it, too.

mod range_cache;

use ferry_job::Segment;
use range_cache::{KEPT_RANGE_MAX_BYTES, PAGE_BYTES, RangeCache};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Alignment of ranges, bytes: the largest page that a system may have.
const ALIGN_BYTES: u64 = 64 * 1024;
/// Alignment, bytes, of ranges that are at least as long: a huge page of x86-64, and of arm64 with
/// pages of 4 KiB.
const HUGE_PAGE_BYTES: u64 = 2 * 1024 * 1024;

/// The arena of the node's segment, in one process.
#[derive(Clone)]
pub struct SharedMemory(Arc<Arena>);

struct Arena {
    fd: OwnedFd,
    /// Offset of the arena in the segment.
    offset: u64,
    bytes: u64,
    /// The arena's first page, from the first allocation on.
    first_page: OnceLock<Pages>,
    cache: Mutex<RangeCache>,
}

/// A range of the arena. Means the same in all processes of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedRange {
    /// Where it begins, bytes from the beginning of the arena.
    pub offset: u64,
    /// Its length, bytes.
    pub len: u64,
}

/// A range of the arena in this process's addresses. When it is dropped, nobody uses an address in
/// it any more.
pub struct Mapping {
    pages: Option<Pages>,
    base: *mut u8,
    range: SharedRange,
    arena: Arc<Arena>,
}

// SAFETY: the memory is shared between processes by design. A mapping itself does not change, and
// it can be unmapped by any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Addresses of this process that show a part of the arena. Unmapped when dropped.
#[derive(Debug)]
struct Pages {
    base: *mut u8,
    len: usize,
}

// SAFETY: as for `Mapping`.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl SharedMemory {
    /// The arena of `segment`. `None`: it has none, or no descriptor is free.
    pub fn new(segment: &Segment) -> Option<SharedMemory> {
        let layout = &segment.layout;
        if layout.arena_bytes == 0 {
            return None;
        }
        Some(SharedMemory(Arc::new(Arena {
            fd: segment.fd.try_clone().ok()?,
            offset: layout.arena_offset,
            bytes: layout.arena_bytes,
            first_page: OnceLock::new(),
            cache: Mutex::default(),
        })))
    }

    /// A range of zeros, `bytes` long (at least 1), that begins at a page, and that nobody else
    /// uses. It costs memory where it is touched, or was by what this process has released.
    ///
    /// Errors: the arena has no room for it (ENOMEM), or its first page cannot be mapped.
    pub fn allocate(&self, bytes: u64) -> io::Result<SharedRange> {
        let len = bytes.max(1);
        match self.reuse(len) {
            Some(range) => Ok(range),
            None => self.allocate_new(len),
        }
    }

    /// A range that this process has released, cleared.
    fn reuse(&self, len: u64) -> Option<SharedRange> {
        let before = self.0.cache().take_range(len)?;
        let Ok(mapping) = self.map(before) else {
            self.0.punch(before);
            return None;
        };
        let whole_pages = mapping.len().next_multiple_of(PAGE_BYTES as usize);
        // SAFETY: the mapping has whole pages. Nobody uses them: the range was released, and is not
        // handed out yet.
        unsafe { mapping.base.write_bytes(0, whole_pages) };
        Some(SharedRange { len, ..before })
    }

    fn allocate_new(&self, len: u64) -> io::Result<SharedRange> {
        let next = self.next()?;
        let align = if len < HUGE_PAGE_BYTES {
            ALIGN_BYTES
        } else {
            HUGE_PAGE_BYTES
        };
        // Aligned in the file, as its huge pages are.
        let begin = |next: u64| {
            let at = self.0.offset + next.max(ALIGN_BYTES);
            Some(at.checked_next_multiple_of(align)? - self.0.offset)
        };
        let end = |next| {
            let end = begin(next)?.checked_add(len)?;
            let end = end.checked_next_multiple_of(ALIGN_BYTES)?;
            (end <= self.0.bytes).then_some(end)
        };
        let before = next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, end)
            .ok();
        let offset = before.and_then(begin).ok_or(Errno::NOMEM)?;
        Ok(SharedRange { offset, len })
    }

    /// Maps `range`, for reading and writing.
    ///
    /// Errors: it is not in the arena (EINVAL), or the system refuses, such as at the limit on
    /// address space.
    pub fn map(&self, range: SharedRange) -> io::Result<Mapping> {
        if !self.0.contains(range) {
            return Err(Errno::INVAL.into());
        }
        let kept = match range.len {
            ..=KEPT_RANGE_MAX_BYTES => self.0.cache().take_mapping(range.offset),
            _ => None,
        };
        let pages = match kept {
            Some(pages) => pages,
            None => self.0.map(range)?,
        };
        Ok(Mapping {
            base: pages.base,
            pages: Some(pages),
            range,
            arena: self.0.clone(),
        })
    }

    /// Nobody uses `range` any more: no process reads or writes it from now on, but by mapping it
    /// when it is handed out again. Gives its memory back to the system, or keeps it for
    /// [`SharedMemory::allocate`].
    pub fn release(&self, range: SharedRange) {
        if !self.0.contains(range) {
            return;
        }
        let given_back = self.0.cache().keep_range(range);
        if let Some(range) = given_back {
            self.0.punch(range);
        }
    }

    /// Where the next range begins at the earliest, bytes from the beginning of the arena. 0: no
    /// range was handed out yet.
    fn next(&self) -> io::Result<&AtomicU64> {
        let page = match self.0.first_page.get() {
            Some(page) => page,
            None => {
                let page = self.0.map(SharedRange {
                    offset: 0,
                    len: ALIGN_BYTES,
                })?;
                self.0.first_page.get_or_init(|| page)
            }
        };
        // SAFETY: the first word of a mapping, which stays until the arena is dropped. All
        // processes use it as an atomic word.
        Ok(unsafe { AtomicU64::from_ptr(page.base.cast()) })
    }
}

impl Arena {
    fn cache(&self) -> MutexGuard<'_, RangeCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the memory of `range` back to the system.
    fn punch(&self, range: SharedRange) {
        let _ = fallocate(
            &self.fd,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            self.offset + range.offset,
            range.len.next_multiple_of(ALIGN_BYTES),
        );
    }

    /// Does `range` lie in the arena, where ranges may begin?
    fn contains(&self, range: SharedRange) -> bool {
        let end = range.offset.checked_add(range.len);
        range.len > 0
            && range.offset.is_multiple_of(ALIGN_BYTES)
            && end.is_some_and(|end| end <= self.bytes)
    }

    /// Maps `range`, to the end of what it takes of the arena if it is short: its mapping may be
    /// used again for any range that begins there.
    fn map(&self, range: SharedRange) -> io::Result<Pages> {
        let len = usize::try_from(range.len.max(ALIGN_BYTES)).map_err(|_| Errno::NOMEM)?;
        let base = map_shared(&self.fd, self.offset + range.offset, len)?;
        Ok(Pages { base, len })
    }
}

/// Maps `len` bytes of the segment `fd` at `offset`, for reading and writing.
pub(super) fn map_shared(fd: &OwnedFd, offset: u64, len: usize) -> io::Result<*mut u8> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            access,
            MapFlags::SHARED,
            fd,
            offset,
        )
    }?;
    Ok(base.cast())
}

impl Mapping {
    /// The address of its first byte, at a page.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Its length, bytes; never 0.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        // `map` has found that an address space has room for it.
        self.range.len as usize
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mapping({:?} at {:?})", self.range, self.base)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(pages) = self.pages.take() else {
            return;
        };
        if self.range.len <= KEPT_RANGE_MAX_BYTES {
            let oldest = self.arena.cache().keep_mapping(self.range.offset, pages);
            // Unmapped without the lock.
            drop(oldest);
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: made by `map`, and nobody uses an address of dropped pages.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::range_cache::KEPT_MAX;
    use super::*;
    use ferry_job::ARENA_BYTES;

    fn two_processes() -> (SharedMemory, SharedMemory, Segment) {
        let segment = Segment::create(2).unwrap();
        let opened = Segment::open(segment.fd.try_clone().unwrap(), 2, None).unwrap();
        let memory = SharedMemory::new(&segment).unwrap();
        (memory, SharedMemory::new(&opened).unwrap(), segment)
    }

    fn blocks(segment: &Segment) -> i64 {
        rustix::fs::fstat(&segment.fd).unwrap().st_blocks
    }

    #[test]
    fn both_processes_see_what_one_has_written() {
        let (one, other, _segment) = two_processes();
        let range = one.allocate(100_000).unwrap();
        let (a, b) = (one.map(range).unwrap(), other.map(range).unwrap());
        assert_eq!(
            (a.len(), a.base().addr() % 4096, b.len()),
            (100_000, 0, 100_000)
        );
        // SAFETY: both mappings have 100,000 bytes, and only this thread uses them.
        unsafe {
            assert_eq!(b.base().add(99_999).read(), 0);
            a.base().add(99_999).write(7);
            assert_eq!(b.base().add(99_999).read_volatile(), 7);
        }
    }

    #[test]
    fn ranges_of_many_threads_and_processes_never_meet() {
        let (one, other, _segment) = two_processes();
        let mut ranges: Vec<SharedRange> = std::thread::scope(|s| {
            let threads = [&one, &other, &one, &other].map(|memory| {
                s.spawn(move || {
                    let lengths = [0, 1, 65_536, 65_537, 3 << 20, 1 << 40];
                    let all = (0..60).map(|i| memory.allocate(lengths[i % 6]).unwrap());
                    all.collect::<Vec<_>>()
                })
            });
            threads
                .into_iter()
                .flat_map(|t| t.join().unwrap())
                .collect()
        });
        ranges.sort_by_key(|r| r.offset);
        assert!(ranges[0].offset >= ALIGN_BYTES, "the counter's page");
        for pair in ranges.windows(2) {
            assert!(pair[0].offset + pair[0].len <= pair[1].offset, "{pair:?}");
        }
        for range in ranges {
            assert_eq!(range.offset % ALIGN_BYTES, 0);
            let huge = range.len >= HUGE_PAGE_BYTES;
            assert!(!huge || (one.0.offset + range.offset) % HUGE_PAGE_BYTES == 0);
        }
    }

    #[test]
    fn memory_is_taken_when_touched_and_given_back_by_release() {
        let (memory, _, segment) = two_processes();
        let range = memory.allocate(8 << 20).unwrap();
        let neighbour = memory.allocate(1).unwrap();
        let mapping = memory.map(range).unwrap();
        let beside = memory.map(neighbour).unwrap();
        let before = blocks(&segment);
        // SAFETY: the mapping has 8 MiB, its neighbour one byte; only this thread uses them.
        unsafe {
            mapping.base().write_bytes(1, 4 << 20);
            beside.base().write(3);
        }
        assert!(blocks(&segment) >= before + (4 << 20) / 512);
        assert!(blocks(&segment) < before + (7 << 20) / 512);
        drop(mapping);
        memory.release(range);
        assert!(blocks(&segment) <= before + (64 << 10) / 512);
        // SAFETY: as above.
        assert_eq!(unsafe { beside.base().read() }, 3);
    }

    #[test]
    fn a_short_range_that_was_released_is_used_again_cleared() {
        let (one, other, segment) = two_processes();
        let first = one.allocate(5000).unwrap();
        let (a, b) = (one.map(first).unwrap(), other.map(first).unwrap());
        let places = (a.base(), b.base());
        // SAFETY: the mapping has 5000 bytes, which only this thread uses.
        unsafe { b.base().write_bytes(7, 5000) };
        drop((a, b));
        let before = blocks(&segment);
        one.release(first);
        assert_eq!(blocks(&segment), before, "it is kept");
        let [longer, shorter] = [8193, 4096].map(|len| one.allocate(len).unwrap());
        assert!(longer.offset != first.offset && shorter.offset != first.offset);
        let again = one.allocate(8192).unwrap();
        assert_eq!((again.offset, again.len), (first.offset, 8192));
        assert_ne!(one.allocate(8192).unwrap().offset, again.offset);
        let (a, b) = (one.map(again).unwrap(), other.map(again).unwrap());
        assert_eq!((a.base(), b.base(), a.len()), (places.0, places.1, 8192));
        // SAFETY: the mapping has 8192 bytes, which nobody changes.
        let bytes = unsafe { std::slice::from_raw_parts(b.base(), 8192) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert_eq!(blocks(&segment), before);
        // What another process has released is its own.
        drop((a, b));
        one.release(again);
        assert_ne!(other.allocate(8192).unwrap().offset, again.offset);
    }

    #[test]
    fn few_ranges_and_mappings_are_kept() {
        let (one, _, segment) = two_processes();
        let all: Vec<_> = (0..50)
            .map(|_| one.allocate(ALIGN_BYTES).unwrap())
            .collect();
        let mappings: Vec<_> = all.iter().map(|range| one.map(*range).unwrap()).collect();
        let before = blocks(&segment);
        for mapping in &mappings {
            // SAFETY: the mapping is that long, and only this thread uses it.
            unsafe { mapping.base().write_bytes(1, mapping.len()) };
        }
        drop(mappings);
        all.iter().for_each(|range| one.release(*range));
        let kept = KEPT_MAX as u64 * KEPT_RANGE_MAX_BYTES;
        assert_eq!(blocks(&segment) - before, kept as i64 / 512);
        // Those that were released last are the first to be used again.
        for range in all.iter().rev().take(KEPT_MAX) {
            assert_eq!(one.allocate(ALIGN_BYTES).unwrap(), *range);
            assert!(one.0.cache().take_mapping(range.offset).is_some());
        }
        assert!(one.allocate(ALIGN_BYTES).unwrap().offset > all[49].offset);
        assert!(
            all.iter()
                .all(|r| one.0.cache().take_mapping(r.offset).is_none())
        );
    }

    #[test]
    fn what_is_not_in_the_arena_is_refused() {
        let (memory, ..) = two_processes();
        assert!(memory.allocate(ARENA_BYTES).is_err());
        assert!(memory.allocate(u64::MAX).is_err());
        memory.allocate(1).unwrap();
        for (offset, len) in [
            (ARENA_BYTES, 1),
            (ARENA_BYTES - ALIGN_BYTES, ALIGN_BYTES + 1),
            (u64::MAX - ALIGN_BYTES + 1, ALIGN_BYTES),
            (ALIGN_BYTES, 0),
            (ALIGN_BYTES + 8, 8),
        ] {
            let range = SharedRange { offset, len };
            assert!(memory.map(range).is_err(), "{range:?}");
            memory.release(range);
        }
    }
}
