//! Guards of both kinds, on memory of this process. Where the system gives no userfaultfd with
//! moves, those tests say so and pass the rest.

#![allow(clippy::single_range_in_vec_init)] // one run of pages

mod memory;

use ferry_pageguard::{Guard, Kind, PAGE_BYTES, whole_pages};
use memory::*;
use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: the pages that a fork makes common to two processes cannot be moved, and a
/// guard on them is refused.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn whoever_touches_a_page_waits_until_it_is_opened() {
    let _alone = alone();
    for kind in kinds() {
        let map = Map::new(8);
        let span = map.at + 100..map.at + map.len - 50;
        let run = whole_pages(span.clone());
        let (owner, touched) = told();
        let guard = Guard::begin(kind, &span, vec![run.clone()], owner).unwrap();
        assert_eq!((map.byte(0), map.byte(map.len - 1)), (b'-', b'-'));
        std::thread::scope(|s| {
            let reader = s.spawn(|| map.byte(3 * PAGE_BYTES + 5));
            let at = touched.recv().unwrap();
            assert_eq!(at / PAGE_BYTES, map.at / PAGE_BYTES + 3, "{kind:?}");
            land(&guard, map.at + 3 * PAGE_BYTES..map.at + 4 * PAGE_BYTES);
            guard.open(map.at + 3 * PAGE_BYTES..map.at + 4 * PAGE_BYTES);
            assert_eq!(
                reader.join().unwrap(),
                data(map.at + 3 * PAGE_BYTES + 5),
                "{kind:?}"
            );
            // Writes wait as well, and come after the data.
            let writer = s.spawn(|| map.set(5 * PAGE_BYTES, 77));
            touched.recv().unwrap();
            land(&guard, run.clone());
            guard.end();
            writer.join().unwrap();
        });
        assert_eq!(map.byte(5 * PAGE_BYTES), 77);
        assert_eq!(
            map.byte(5 * PAGE_BYTES + 1),
            data(map.at + 5 * PAGE_BYTES + 1)
        );
        assert_eq!(
            map.byte(100),
            b'-',
            "a partial page is the program's all the time"
        );
    }
}

#[test]
fn a_system_call_waits_too() {
    let _alone = alone();
    if !moves() {
        return;
    }
    let map = Map::new(4);
    let (owner, touched) = told();
    let guard = Guard::begin(Kind::Move, &map.pages(), vec![map.pages()], owner).unwrap();
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    std::thread::scope(|s| {
        let (at, len) = (map.at, map.len);
        // SAFETY: the buffer is mapped.
        let writer = s.spawn(move || unsafe { libc::write(ends[1], at as *const _, len) });
        touched.recv().unwrap();
        land(&guard, map.pages());
        guard.end();
        assert_eq!(writer.join().unwrap(), map.len as isize);
    });
    let mut got = vec![0u8; map.len];
    // SAFETY: room for so many bytes.
    let n = unsafe { libc::read(ends[0], got.as_mut_ptr().cast(), got.len()) };
    assert_eq!(n, map.len as isize);
    assert!(got.iter().enumerate().all(|(i, &b)| b == data(map.at + i)));
    for end in ends {
        // SAFETY: this test's own.
        unsafe { libc::close(end) };
    }
}

#[test]
fn a_child_gets_its_data_too() {
    let _alone = alone();
    if !moves() || !ferry_pageguard::survives_fork() {
        return;
    }
    let map = Map::new(6);
    let (owner, touched) = told();
    let guard = Guard::begin(Kind::Move, &map.pages(), vec![map.pages()], owner).unwrap();
    land(&guard, map.at..map.at + PAGE_BYTES);
    guard.open(map.at..map.at + PAGE_BYTES);
    // SAFETY: the child only reads memory and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let right = (0..map.len).all(|i| map.byte(i) == data(map.at + i));
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { 42 } else { 1 }) };
    }
    touched.recv().unwrap();
    land(&guard, map.pages());
    guard.open(map.at + PAGE_BYTES..map.at + 3 * PAGE_BYTES);
    map.set(PAGE_BYTES, 1);
    guard.end();
    let mut status = 0;
    // SAFETY: this test's own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 42);
}

#[test]
fn what_the_program_does_to_its_memory_is_followed() {
    let _alone = alone();
    if !moves() {
        return;
    }
    let map = Map::new(16);
    let (owner, _touched) = told();
    let guard = Guard::begin(Kind::Move, &map.pages(), vec![map.pages()], owner).unwrap();
    land(&guard, map.pages());
    let page = |n: usize| map.at + n * PAGE_BYTES;
    let elsewhere = Map::new(2);
    // SAFETY: the test's own memory, of which it keeps no references.
    unsafe {
        // Pages 4 and 5 go elsewhere, 8 and 9 are dropped, 12 is unmapped.
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let to = libc::mremap(
            page(4) as *mut _,
            2 * PAGE_BYTES,
            2 * PAGE_BYTES,
            flags,
            elsewhere.at as *mut libc::c_void,
        );
        assert_eq!(to as usize, elsewhere.at);
        assert_eq!(
            libc::madvise(page(8) as *mut _, 2 * PAGE_BYTES, libc::MADV_DONTNEED),
            0
        );
        assert_eq!(libc::munmap(page(12) as *mut _, PAGE_BYTES), 0);
    }
    guard.end();
    for n in [0, 1, 2, 3, 6, 7, 10, 11, 13, 14, 15] {
        assert_eq!(peek(page(n) + 9), data(page(n) + 9), "page {n}");
    }
    assert_eq!(elsewhere.byte(9), data(page(4) + 9));
    assert_eq!(elsewhere.byte(PAGE_BYTES + 9), data(page(5) + 9));
    assert_eq!((peek(page(8)), peek(page(9))), (0, 0));
}

#[test]
fn rights_taken_meanwhile_do_not_lose_data() {
    let _alone = alone();
    if !moves() {
        return;
    }
    let map = Map::new(4);
    let (owner, _touched) = told();
    let guard = Guard::begin(Kind::Move, &map.pages(), vec![map.pages()], owner).unwrap();
    land(&guard, map.pages());
    // SAFETY: the test's own memory.
    let taken = unsafe {
        libc::mprotect(
            (map.at + PAGE_BYTES) as *mut _,
            2 * PAGE_BYTES,
            libc::PROT_READ,
        )
    };
    assert_eq!(taken, 0);
    guard.end();
    assert!((0..map.len).all(|i| map.byte(i) == data(map.at + i)));
}

/// Pages that nobody has written yet, or that a child has, too: they cannot move as they are.
#[test]
fn pages_that_are_not_there_or_not_alone_are_made_so() {
    let _alone = alone();
    for kind in kinds() {
        let map = Map::new(8);
        // SAFETY: the test's own memory.
        unsafe {
            libc::madvise(
                (map.at + 5 * PAGE_BYTES) as *mut _,
                3 * PAGE_BYTES,
                libc::MADV_DONTNEED,
            )
        };
        assert_eq!(map.byte(6 * PAGE_BYTES), 0, "read, and not written");
        // SAFETY: the child only waits for its end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::pause() };
        }
        map.set(0, b'-'); // this one is its own again
        let halves = vec![
            map.at..map.at + 2 * PAGE_BYTES,
            map.at + 3 * PAGE_BYTES..map.at + map.len,
        ];
        let (owner, _touched) = told();
        let guard = Guard::begin(kind, &map.pages(), halves.clone(), owner).unwrap();
        halves.iter().for_each(|half| land(&guard, half.clone()));
        guard.end();
        // SAFETY: this test's own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let right =
            |at: usize| halves.iter().any(|half| half.contains(&at)) == (peek(at) == data(at));
        assert!(
            map.pages().all(|at| right(at) || data(at) == b'-'),
            "{kind:?}"
        );
        assert_eq!(map.byte(2 * PAGE_BYTES), b'-');
    }
}

#[test]
fn huge_pages_move_and_come_back() {
    let _alone = alone();
    for kind in kinds() {
        let map = Map::new(4 * 512);
        // SAFETY: advice on the test's own memory.
        unsafe {
            libc::madvise(map.at as *mut _, map.len, libc::MADV_HUGEPAGE);
            libc::madvise(map.at as *mut _, map.len, 25);
        }
        let span = map.at + 8..map.at + map.len - 8;
        let (owner, _touched) = told();
        let guard = Guard::begin(kind, &span, vec![whole_pages(span.clone())], owner).unwrap();
        land(&guard, span.clone());
        for step in 0..8 {
            let part = map.at + step * map.len / 8..map.at + (step + 1) * map.len / 8;
            guard.open(part);
        }
        guard.end();
        assert!(whole_pages(span).all(|at| peek(at) == data(at)), "{kind:?}");
    }
}

#[test]
fn memory_that_cannot_be_guarded_is_left_as_it_is() {
    let _alone = alone();
    let len = 4 * PAGE_BYTES;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) } as usize;
    for kind in kinds() {
        let (owner, _touched) = told();
        // SAFETY: the test's own memory.
        unsafe { (at as *mut u8).write_bytes(9, len) };
        assert!(Guard::begin(kind, &(at..at + len), vec![at..at + len], owner.clone()).is_err());
        assert_eq!((peek(at), peek(at + len - 1)), (9, 9));
        assert!(Guard::begin(kind, &(at..at + len), vec![at + 1..at + len], owner).is_err());
    }
    // Half of it not writable: nothing is lost of the other half.
    let map = Map::new(4);
    // SAFETY: the test's own memory.
    unsafe {
        libc::mprotect(
            (map.at + 2 * PAGE_BYTES) as *mut _,
            2 * PAGE_BYTES,
            libc::PROT_READ,
        )
    };
    for kind in kinds() {
        let (owner, _touched) = told();
        let halves = vec![
            map.at..map.at + 2 * PAGE_BYTES,
            map.at + 2 * PAGE_BYTES..map.at + 4 * PAGE_BYTES,
        ];
        assert!(Guard::begin(kind, &map.pages(), halves, owner).is_err());
        assert!((0..map.len).all(|i| map.byte(i) == b'-'));
    }
}

#[test]
fn blocks_of_the_arena_are_apart_and_come_back() {
    let _alone = alone();
    let mut state = 12345u64;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut held: Vec<(*mut u8, Layout, u8)> = Vec::new();
    for turn in 0..20_000u32 {
        if held.len() < 200 && next(2) == 0 {
            let bits = 1 + next(16);
            let size = 1 + next(1 << bits) as usize;
            let align = 1 << next(13);
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the layout has a size; blocks are used as long as they are.
            unsafe {
                let zeroed = next(2) == 0;
                let at = if zeroed {
                    OWN.alloc_zeroed(layout)
                } else {
                    OWN.alloc(layout)
                };
                assert!(!at.is_null() && (at as usize).is_multiple_of(layout.align()));
                if zeroed {
                    assert!((0..size).all(|i| *at.add(i) == 0));
                }
                at.write_bytes(turn as u8, size);
                held.push((at, layout, turn as u8));
            }
        } else if !held.is_empty() {
            let which = next(held.len() as u64) as usize;
            let (at, layout, mark) = held.swap_remove(which);
            // SAFETY: the piece was got from this allocator with this layout, and is held by nobody
            // else.
            unsafe {
                assert!((0..layout.size()).all(|i| *at.add(i) == mark));
                if next(3) == 0 {
                    let size = 1 + next(5000) as usize;
                    let to = OWN.realloc(at, layout, size);
                    assert!((0..layout.size().min(size)).all(|i| *to.add(i) == mark));
                    OWN.dealloc(to, Layout::from_size_align(size, layout.align()).unwrap());
                } else {
                    OWN.dealloc(at, layout);
                }
            }
        }
    }
}
