//! Unit tests of peer memory, in one process: against a byte model, and at the system's limits.

use super::*;
use proptest::prelude::*;

fn own() -> PeerMemory {
    PeerMemory::new(std::process::id() as i32)
}

/// Lengths of runs that together have `total` bytes; `cuts` places where they may be divided.
fn lengths(total: usize, cuts: &[usize]) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|c| c % (total + 1)).collect();
    ends.sort_unstable();
    ends.push(total);
    let begins = std::iter::once(0).chain(ends.iter().copied());
    begins.zip(&ends).map(|(begin, end)| end - begin).collect()
}

/// Places runs of these lengths in `room` bytes, in an order by `seed`, with gaps.
fn place(lengths: &[usize], seed: u64) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| (i as u64 + 1).wrapping_mul(seed | 1).rotate_left(17));
    let mut at = vec![0; lengths.len()];
    let mut end = 0;
    for i in order {
        end += (seed >> (i % 13)) as usize % 7;
        at[i] = end;
        end += lengths[i];
    }
    (at, end)
}

proptest! {
    #[test]
    fn copies_what_the_model_copies(
        total in 0..20_000usize,
        here in prop::collection::vec(any::<usize>(), 0..200),
        there in prop::collection::vec(any::<usize>(), 0..200),
        seed in any::<u64>(),
        writes in any::<bool>(),
    ) {
        let (here, there) = (lengths(total, &here), lengths(total, &there));
        let (from, into) = if writes { (&here, &there) } else { (&there, &here) };
        let (from_at, from_room) = place(from, seed);
        let (into_at, into_room) = place(into, seed.rotate_right(23));
        let source: Vec<u8> = (0..from_room).map(|i| (i * 7 + i / 251) as u8 | 1).collect();
        let mut target = vec![0u8; into_room];
        let mut model = target.clone();
        let bytes = from.iter().zip(&from_at).flat_map(|(len, at)| &source[*at..at + len]);
        let places = into.iter().zip(&into_at).flat_map(|(len, at)| *at..at + len);
        for (place, byte) in places.zip(bytes) {
            model[place] = *byte;
        }
        let (source, base) = (source.as_ptr(), target.as_mut_ptr());
        let from = from.iter().zip(&from_at);
        let into = into.iter().zip(&into_at);
        let copied = if writes {
            let local: Vec<_> = from.map(|(len, at)| (source.wrapping_add(*at), *len)).collect();
            let remote: Vec<_> =
                into.map(|(len, at)| (base.wrapping_add(*at).addr() as u64, *len)).collect();
            // SAFETY: the local runs lie in `source`, the remote ones in `target`.
            unsafe { own().write(&local, &remote) }
        } else {
            let remote: Vec<_> =
                from.map(|(len, at)| (source.wrapping_add(*at).addr() as u64, *len)).collect();
            let local: Vec<_> = into.map(|(len, at)| (base.wrapping_add(*at), *len)).collect();
            // SAFETY: the local runs lie in `target`, the remote ones in `source`.
            unsafe { own().read(&remote, &local) }
        };
        prop_assert_eq!(copied, Ok(()));
        prop_assert_eq!(target, model);
    }
}

/// Pages of this process of which the second of three cannot be touched.
struct Pages(*mut u8);

impl Pages {
    fn new() -> Pages {
        // SAFETY: a new mapping, and a change of one of its pages.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(std::ptr::null_mut(), 3 * 4096, access, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            assert_eq!(
                libc::mprotect(base.byte_add(4096), 4096, libc::PROT_NONE),
                0
            );
            Pages(base.cast())
        }
    }
}

#[test]
fn a_remote_page_that_cannot_be_touched_is_an_error() {
    let pages = Pages::new();
    let mut bytes = vec![0u8; 3 * 4096];
    let local = bytes.as_mut_ptr();
    let fault = Err(ReadError::Failed(libc::EFAULT));
    let at = pages.0.addr() as u64;
    // SAFETY: the local runs lie in `bytes`.
    unsafe {
        assert_eq!(own().read(&[(at, 3 * 4096)], &[(local, 3 * 4096)]), fault);
        assert_eq!(own().write(&[(local, 8)], &[(at + 4096, 8)]), fault);
        let remote = [(at, 4096), (at + 8192, 4096)];
        assert_eq!(own().read(&remote, &[(local, 8192)]), Ok(()));
        assert_eq!(own().read(&[(8, 0), (at, 1)], &[(local, 1)]), Ok(()));
        assert_eq!(own().read(&[], &[]), Ok(()));
        assert_eq!(own().read(&[(8, 0)], &[(local, 0)]), Ok(()), "no bytes");
    }
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let mut byte = 0u8;
    // SAFETY: `byte` is writable.
    let read = unsafe { PeerMemory::new(i32::MAX).read(&[(8, 1)], &[(&raw mut byte, 1)]) };
    assert_eq!(read, Err(ReadError::Failed(libc::ESRCH)));
}

/// Memory of many GiB that shares its pages: no more than a system call takes at once.
#[test]
fn a_copy_that_is_longer_than_one_system_call_takes_is_whole() {
    const PIECE: usize = 64 << 20;
    const PIECES: usize = 33;
    let fd = rustix::fs::memfd_create("long", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, PIECE as u64).unwrap();
    // The same bytes again and again, from 2 GiB of addresses that cost the memory of one piece.
    use std::os::fd::AsRawFd;
    // SAFETY: new mappings, over a reservation of this test's own.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = PIECE * PIECES;
        let base = libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        for i in 0..PIECES {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let at = base.byte_add(i * PIECE);
            assert_eq!(libc::mmap(at, PIECE, access, flags, fd.as_raw_fd(), 0), at);
        }
        base.cast::<u8>()
    };
    let mut last = vec![0u8; PIECE];
    let target = last.as_mut_ptr();
    // SAFETY: the last byte of the mapping.
    unsafe { base.add(PIECE * PIECES - 1).write(9) };
    // All pieces go to the same one, so the test needs little memory.
    let local = vec![(target, PIECE); PIECES];
    // SAFETY: `last` has one piece.
    unsafe {
        let remote = [(base.addr() as u64, PIECE * PIECES)];
        assert_eq!(own().read(&remote, &local), Ok(()));
    }
    assert_eq!((last[0], last[PIECE - 1]), (0, 9));
}
