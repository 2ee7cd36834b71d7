//! A file's pages as memory of the process, for data that a program transfers again and again.
//!
//! A call on a file in memory looks up each page, and a write waits for the file's lock, which one
//! writer has at a time. Where the pages are mapped, a transfer is a copy. But mapping a page costs
//! more than a call, so a file is mapped when its data have been transferred twice on the average.
//!
//! What is written goes through a mapping only to a file in memory: on a disk it may turn out later
//! that there is no room. The end of the file is asked for at each transfer, and what reaches
//! beyond it goes by a call. If somebody cuts the file meanwhile, the copy ends ([`guarded_copy`]),
//! and a call tells what there is to tell.

use super::FileSystem;
use super::guarded_copy;
use rustix::fs::SeekFrom;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What lies behind these bytes of a file is not mapped.
const MAPPED_MAX_BYTES: u64 = 1 << 30;
/// Pages are mapped by chunks of so many bytes.
const CHUNK_BYTES: u64 = 64 << 10;
const CHUNKS: usize = (MAPPED_MAX_BYTES / CHUNK_BYTES) as usize;
/// Fewer transferred bytes are not worth a mapping. A choice.
const TRANSFERRED_MIN_BYTES: u64 = 1 << 20;
/// A file is mapped when so many times its touched chunks have been transferred.
const TRANSFERS_MIN: u64 = 2;
/// The time of modification is set at most once in as many ns, which is as fine as the system's.
const MODIFIED_NS: u64 = 4_000_000;
/// `f_type` of ext2 to ext4, and of XFS: what a mapping shows there is what pread(2) reads.
const MAPS_AS_READ: [u64; 2] = [0xef53, 0x5846_5342];

/// A set of chunks.
struct Chunks(Box<[AtomicU64]>);

impl Chunks {
    fn new() -> Chunks {
        Chunks(
            (0..CHUNKS.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    fn contains(&self, chunk: usize) -> bool {
        self.0[chunk / 64].load(Relaxed) & (1 << (chunk % 64)) != 0
    }

    /// Returns whether it is new.
    fn insert(&self, chunk: usize) -> bool {
        !self.contains(chunk) && {
            let bit = 1 << (chunk % 64);
            self.0[chunk / 64].fetch_or(bit, Relaxed) & bit == 0
        }
    }
}

/// The mapping of a file, or what has to be known before it is made.
pub(super) struct Mapped {
    touched: Chunks,
    touched_bytes: AtomicU64,
    transferred_bytes: AtomicU64,
    /// `None`: it cannot be mapped.
    mapping: OnceLock<Option<Mapping>>,
}

/// What it takes to map a file.
pub(super) struct Candidate<'a> {
    pub fd: BorrowedFd<'a>,
    pub can_read: bool,
    pub can_write: bool,
    pub file_system: FileSystem,
}

/// The pages.
struct Mapping {
    at: *mut u8,
    writable: bool,
    /// Chunks whose pages are in the process's tables.
    present: Chunks,
    /// The system cannot map pages in advance.
    refused: AtomicBool,
    /// When the time of modification was set, ns of a clock.
    modified_ns: AtomicU64,
}

// SAFETY: the pages belong to the file, and are accessed by copies only.
unsafe impl Send for Mapping {}
// SAFETY: as above; what threads write at the same time is theirs to order, as with pwrite.
unsafe impl Sync for Mapping {}

impl Mapped {
    pub fn new() -> Mapped {
        Mapped {
            touched: Chunks::new(),
            touched_bytes: AtomicU64::new(0),
            transferred_bytes: AtomicU64::new(0),
            mapping: OnceLock::new(),
        }
    }

    /// Reads all of `buf`. False: a call has to.
    #[inline]
    pub fn read(&self, file: &Candidate<'_>, buf: &mut [u8], offset: u64) -> bool {
        let Some(mapping) = self.mapping(file, offset, buf.len()) else {
            return false;
        };
        if !mapping.reaches(file.fd, offset, buf.len()) {
            return false;
        }
        let at = mapping.at.wrapping_add(offset as usize);
        // SAFETY: the range lies within the mapping, and `buf` has so many bytes.
        unsafe { guarded_copy::copy(buf.as_mut_ptr(), at, buf.len()) == buf.len() }
    }

    /// Writes all of `buf`. False: a call has to.
    #[inline]
    pub fn write(&self, file: &Candidate<'_>, buf: &[u8], offset: u64) -> bool {
        let Some(mapping) = self.mapping(file, offset, buf.len()) else {
            return false;
        };
        if !mapping.writable || !mapping.reaches(file.fd, offset, buf.len()) {
            return false;
        }
        let at = mapping.at.wrapping_add(offset as usize);
        // SAFETY: the range lies within the mapping, and `buf` has so many bytes.
        let done = unsafe { guarded_copy::copy(at, buf.as_ptr(), buf.len()) };
        mapping.modified(file.fd);
        done == buf.len()
    }

    /// The mapping, if there is one and it has the range.
    #[inline]
    fn mapping(&self, file: &Candidate<'_>, offset: u64, len: usize) -> Option<&Mapping> {
        if offset.checked_add(len as u64)? > MAPPED_MAX_BYTES || len == 0 {
            return None;
        }
        match self.mapping.get() {
            Some(mapping) => mapping.as_ref(),
            None => self.count(file, offset, len as u64),
        }
    }

    /// Counts a transfer, and makes the mapping when its time has come.
    #[cold]
    fn count(&self, file: &Candidate<'_>, offset: u64, len: u64) -> Option<&Mapping> {
        let chunks = chunks(offset, len);
        let new = chunks.filter(|&chunk| self.touched.insert(chunk)).count() as u64;
        // Threads may count less than there was: the mapping is made a little later then.
        let touched = self.touched_bytes.load(Relaxed) + new * CHUNK_BYTES;
        let transferred = self.transferred_bytes.load(Relaxed) + len;
        self.touched_bytes.store(touched, Relaxed);
        self.transferred_bytes.store(transferred, Relaxed);
        if transferred < TRANSFERRED_MIN_BYTES.max(TRANSFERS_MIN.saturating_mul(touched)) {
            return None;
        }
        if !file.can_be_mapped() {
            return self.mapping.get_or_init(|| None).as_ref();
        }
        if !file.is_whole() {
            self.transferred_bytes.store(0, Relaxed);
            return None;
        }
        self.mapping.get_or_init(|| Mapping::new(file)).as_ref()
    }
}

/// The chunks of a range.
fn chunks(offset: u64, len: u64) -> std::ops::Range<usize> {
    (offset / CHUNK_BYTES) as usize..(offset + len).div_ceil(CHUNK_BYTES) as usize
}

impl Candidate<'_> {
    fn can_be_mapped(&self) -> bool {
        if !self.can_read {
            return false;
        }
        match self.file_system {
            FileSystem::Tmpfs => true,
            FileSystem::Local => rustix::fs::fstatfs(self.fd)
                .is_ok_and(|found| MAPS_AS_READ.contains(&(found.f_type as u64 & 0xffff_ffff))),
            _ => false,
        }
    }

    /// Has the file all its pages? A mapping would give memory to holes that are only read.
    fn is_whole(&self) -> bool {
        let found = rustix::fs::fstat(self.fd);
        found.is_ok_and(|s| s.st_size > 0 && s.st_blocks.saturating_mul(512) >= s.st_size)
    }

    /// May what is written go through the mapping? Not to a program: the system takes rights away
    /// from one when it is written.
    fn maps_writes(&self) -> bool {
        self.can_write
            && self.file_system == FileSystem::Tmpfs
            && rustix::fs::fstat(self.fd).is_ok_and(|s| s.st_mode & 0o7111 == 0)
    }
}

impl Mapping {
    fn new(file: &Candidate<'_>) -> Option<Mapping> {
        if !guarded_copy::install() {
            return None;
        }
        let len = MAPPED_MAX_BYTES as usize;
        let map = |rights| {
            // SAFETY: the system chooses addresses that are free.
            unsafe {
                rustix::mm::mmap(
                    std::ptr::null_mut(),
                    len,
                    rights,
                    MapFlags::SHARED,
                    file.fd,
                    0,
                )
            }
        };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let (at, writable) = match file.maps_writes().then(|| map(both)) {
            Some(Ok(at)) => (at, true),
            _ => (map(ProtFlags::READ).ok()?, false),
        };
        Some(Mapping {
            at: at.cast(),
            writable,
            present: Chunks::new(),
            refused: AtomicBool::new(false),
            modified_ns: AtomicU64::new(0),
        })
    }

    /// Does the range lie within the file, and are its pages there?
    #[inline]
    fn reaches(&self, fd: BorrowedFd<'_>, offset: u64, len: usize) -> bool {
        // The position of the descriptor means nothing: all calls tell theirs.
        let end = rustix::fs::seek(fd, SeekFrom::End(0));
        if !end.is_ok_and(|end| offset + len as u64 <= end) {
            return false;
        }
        let mut chunks = chunks(offset, len as u64);
        chunks.all(|chunk| self.present.contains(chunk)) || self.bring(offset, len as u64)
    }

    /// Maps the pages of a range. A single page that is touched costs a fault, which takes as long
    /// as several pages here.
    #[cold]
    fn bring(&self, offset: u64, len: u64) -> bool {
        if self.refused.load(Relaxed) {
            return false;
        }
        let advice = match self.writable {
            true => Advice::LinuxPopulateWrite,
            false => Advice::LinuxPopulateRead,
        };
        let mut chunks = chunks(offset, len).peekable();
        while let Some(first) = chunks.next() {
            if self.present.contains(first) {
                continue;
            }
            let mut end = first + 1;
            while chunks
                .next_if(|&chunk| !self.present.contains(chunk))
                .is_some()
            {
                end += 1;
            }
            let last = (end as u64 * CHUNK_BYTES).min((offset + len).next_multiple_of(4096));
            let start = first as u64 * CHUNK_BYTES;
            let at = self.at.wrapping_add(start as usize);
            // SAFETY: the range lies within the mapping; its bytes stay as they are.
            let done = unsafe { rustix::mm::madvise(at.cast(), (last - start) as usize, advice) };
            if let Err(error) = done {
                self.refused
                    .store(error == rustix::io::Errno::INVAL, Relaxed);
                return false;
            }
            for chunk in first..end {
                self.present.insert(chunk);
            }
        }
        true
    }

    /// Sets the time of modification, which the system does at calls only.
    #[inline]
    fn modified(&self, fd: BorrowedFd<'_>) {
        let now_ns = ferry_job::clock::monotonic();
        if now_ns.saturating_sub(self.modified_ns.load(Relaxed)) >= MODIFIED_NS {
            self.modified_ns.store(now_ns, Relaxed);
            // SAFETY: the descriptor is open. Without times it sets the present, which who may
            // write may do. A failure changes a time only.
            unsafe { libc::futimens(fd.as_raw_fd(), std::ptr::null()) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these are the pages that were mapped, and nothing refers to them any more.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), MAPPED_MAX_BYTES as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const LEN: usize = 1 << 20;

    /// A file in memory, which has no name any more, and its bytes.
    fn file() -> (File, Vec<u8>) {
        let path = format!("/dev/shm/ferry-io-{}-mapped", std::process::id());
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        (file, bytes)
    }

    fn candidate(file: &File) -> Candidate<'_> {
        Candidate {
            fd: file.as_fd(),
            can_read: true,
            can_write: true,
            file_system: FileSystem::Tmpfs,
        }
    }

    /// Transfers until the file is mapped.
    fn mapped(file: &Candidate<'_>) -> Mapped {
        let mapped = Mapped::new();
        let mut buf = vec![0; LEN];
        assert!(!mapped.read(file, &mut buf, 0));
        assert!(
            mapped.read(file, &mut buf, 0),
            "not mapped at the second transfer"
        );
        mapped
    }

    #[test]
    fn data_are_those_of_the_file() {
        let (file, bytes) = file();
        let candidate = candidate(&file);
        let mapped = mapped(&candidate);
        let mut buf = vec![0; 70_000];
        assert!(mapped.read(&candidate, &mut buf, 1001));
        assert_eq!(buf, bytes[1001..71_001]);
        let before = file.metadata().unwrap();
        assert!(mapped.write(&candidate, &[7; 5000], 99));
        let mut all = vec![0; LEN];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(all[99..5099], [7; 5000]);
        assert_eq!((&all[..99], &all[5099..]), (&bytes[..99], &bytes[5099..]));
        let after = file.metadata().unwrap();
        let time = |m: &std::fs::Metadata| (m.mtime(), m.mtime_nsec());
        assert!(time(&after) >= time(&before) && after.len() == before.len());
    }

    #[test]
    fn what_reaches_beyond_the_end_is_left_to_calls() {
        let (file, bytes) = file();
        let candidate = candidate(&file);
        let mapped = mapped(&candidate);
        let mut buf = vec![0; 100];
        assert!(!mapped.read(&candidate, &mut buf, LEN as u64 - 99));
        assert!(!mapped.write(&candidate, &buf, LEN as u64 - 99));
        file.set_len(5000).unwrap();
        assert!(!mapped.read(&candidate, &mut buf, 4901));
        assert!(mapped.read(&candidate, &mut buf, 4900));
        assert_eq!(buf, bytes[4900..5000]);
        // Longer again: what was cut off is zeros, in the mapping, too.
        file.set_len(LEN as u64).unwrap();
        assert!(mapped.read(&candidate, &mut buf, 4950));
        assert_eq!((&buf[..50], &buf[50..]), (&bytes[4950..5000], &[0; 50][..]));
        assert!(mapped.read(&candidate, &mut buf, 500_000));
        assert_eq!(buf, [0; 100]);
    }

    #[test]
    fn a_copy_ends_where_somebody_has_cut_the_file() {
        let (file, bytes) = file();
        let candidate = candidate(&file);
        let mapped = mapped(&candidate);
        let at = mapped.mapping.get().unwrap().as_ref().unwrap().at;
        file.set_len(8192).unwrap();
        let mut buf = vec![0; 3 * 4096];
        // SAFETY: the range lies within the mapping.
        let read = unsafe { guarded_copy::copy(buf.as_mut_ptr(), at, buf.len()) };
        assert_eq!((read, &buf[..8192]), (8192, &bytes[..8192]));
        // SAFETY: as above.
        let written = unsafe { guarded_copy::copy(at.wrapping_add(1), buf.as_ptr(), buf.len()) };
        assert_eq!(written, 8191 / 64 * 64);
        assert_eq!(file.metadata().unwrap().len(), 8192);
    }

    #[test]
    fn holes_and_programs_are_not_mapped_for_writing() {
        let (file, bytes) = file();
        let candidate = candidate(&file);
        file.set_len(2 * LEN as u64).unwrap();
        let mapped = Mapped::new();
        for _ in 0..5 {
            assert!(
                !mapped.write(&candidate, &bytes, 0),
                "a file with holes is mapped"
            );
        }
        file.set_len(LEN as u64).unwrap();
        let mut permissions = file.metadata().unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        file.set_permissions(permissions).unwrap();
        let mapped = self::mapped(&candidate);
        assert!(!mapped.write(&candidate, &bytes, 0));
    }
}
