//! The program's own handler of SIGSEGV stays in force beside guards. A process of its own: a
//! handler is the whole process's.

mod memory;

use ferry_pageguard::{Guard, PAGE_BYTES};
use memory::*;

static SEGV_SEEN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn the_programs_own(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system's own structure; the page is the test's.
    unsafe {
        let at = (*info).si_addr() as usize;
        SEGV_SEEN.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        libc::mprotect(
            (at / PAGE_BYTES * PAGE_BYTES) as *mut _,
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
        );
    }
}

#[test]
fn a_fault_of_the_programs_own_goes_to_its_handler() {
    let own = Map::new(1);
    // SAFETY: the handler is safe in a signal; the memory is the test's.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = the_programs_own as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
    for kind in kinds() {
        let map = Map::new(4);
        let (owner, touched) = told();
        let guard = Guard::begin(kind, &map.pages(), vec![map.pages()], owner).unwrap();
        let before = SEGV_SEEN.load(std::sync::atomic::Ordering::SeqCst);
        // SAFETY: the page is the test's own mapping.
        unsafe { libc::mprotect(own.at as *mut _, PAGE_BYTES, libc::PROT_NONE) };
        own.set(3, 3);
        assert_eq!(
            SEGV_SEEN.load(std::sync::atomic::Ordering::SeqCst),
            before + 1,
            "{kind:?}"
        );
        std::thread::scope(|s| {
            let reader = s.spawn(|| map.byte(7));
            touched.recv().unwrap();
            land(&guard, map.pages());
            guard.end();
            assert_eq!(reader.join().unwrap(), data(map.at + 7));
        });
        assert_eq!(
            SEGV_SEEN.load(std::sync::atomic::Ordering::SeqCst),
            before + 1,
            "{kind:?}"
        );
    }
}
