//! Guards by mprotect and SIGSEGV, for systems that do not move pages.
//!
//! Limits:
//!
//! - System calls on a guarded page fail with EFAULT.
//! - The guard does not follow a page that the program moves (mremap) or drops (madvise).
//! - A thread that blocks SIGSEGV is killed at a guarded page instead of waiting.
//! - The process dies if the program replaces the handler of SIGSEGV while pages are guarded.
//! - Stacks cannot be guarded.

use crate::guard::Guard;
use crate::registry::Registry;
use crate::system::{futex_wait, futex_wake};
use crate::watch::Watch;
use crate::{GuardError, PAGE_BYTES};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Most runs of pages that can be guarded at a time.
const RUNS_MAX: usize = 64;

/// A guarded run, as the signal handler sees it.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// One byte per page: 1 while the page is closed. Never freed.
    closed: AtomicPtr<AtomicU8>,
}

static SLOTS: [Slot; RUNS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        closed: AtomicPtr::new(null_mut()),
    }
}; RUNS_MAX];
/// Incremented when pages have been opened. A futex: threads that wait for a page sleep on it.
static OPENED: AtomicU32 = AtomicU32::new(0);
/// The pipe into which the signal handler writes touched addresses.
static WATCH_PIPE: AtomicI32 = AtomicI32::new(-1);
/// The handler of SIGSEGV that was installed before this one. Never freed.
static PREVIOUS_ACTION: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());
/// Last fault outside closed pages, by thread. A page that was opened between the fault and the
/// handler does not fault again. A fault of the program's own does.
static LAST_FAULTS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Guards in force, with one byte per page of their runs.
type Guards = Vec<(Arc<Guard>, Vec<(usize, &'static [AtomicU8])>)>;
static GUARDS: Mutex<Guards> = Mutex::new(Vec::new());
/// Arrays of page bytes that no guard uses at the moment.
static FREE_BYTES: Mutex<Vec<&'static [AtomicU8]>> = Mutex::new(Vec::new());

fn guards() -> MutexGuard<'static, Guards> {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process's memory as a file. Writing to it ignores the protection of pages.
fn memory() -> Result<&'static std::fs::File, GuardError> {
    static MEMORY: OnceLock<Option<std::fs::File>> = OnceLock::new();
    let open = || {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/proc/self/mem")
            .ok()
    };
    MEMORY
        .get_or_init(open)
        .as_ref()
        .ok_or(GuardError::Unsupported("/proc/self/mem cannot be opened"))
}

/// Enables guards of this kind.
pub(crate) fn begin(all: &mut Registry) -> Result<(), GuardError> {
    memory()?;
    Watch::start(all)?;
    if let Some(watch) = &all.watch {
        WATCH_PIPE.store(watch.pipe.as_raw_fd(), SeqCst);
    }
    install()
}

/// Installs the handler of SIGSEGV. It calls the present one for faults that are not its own.
fn install() -> Result<(), GuardError> {
    // SAFETY: both structures are valid, zeros included; the handler is safe in a signal.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGSEGV, null(), &raw mut now) != 0 {
            return Err(GuardError::last_os_error(
                "looking at the handler of SIGSEGV",
            ));
        }
        if now.sa_sigaction == on_fault as *const () as usize {
            return Ok(());
        }
        PREVIOUS_ACTION.store(Box::into_raw(Box::new(now)), SeqCst);
        let mut own = std::mem::zeroed::<libc::sigaction>();
        own.sa_sigaction = on_fault as *const () as usize;
        own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
        match libc::sigaction(libc::SIGSEGV, &raw const own, null_mut()) {
            0 => Ok(()),
            _ => Err(GuardError::last_os_error("setting the handler of SIGSEGV")),
        }
    }
}

/// Checks that the runs are private, readable and writable memory, and not a stack.
pub(crate) fn check(runs: &[Range<usize>]) -> Result<(), GuardError> {
    install()?;
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|cause| GuardError::System {
        attempted: "reading /proc/self/maps",
        cause,
    })?;
    let here = &raw const maps as usize;
    let mut areas = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else {
            continue;
        };
        let bounds = range.split_once('-').and_then(|(a, b)| {
            let number = |s| usize::from_str_radix(s, 16).ok();
            Some(number(a)?..number(b)?)
        });
        if let Some(area) = bounds {
            let stack = area.contains(&here) || line.ends_with("[stack]");
            areas.push((area, rights == "rw-p" && !stack));
        }
    }
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            match areas.iter().find(|(a, _)| a.contains(&at)) {
                Some((area, true)) => at = area.end,
                _ => {
                    return Err(GuardError::Unsupported(
                        "a stack, or memory that is shared or not writable, is left alone by \
                         mprotect",
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Copies the pages to the shadow, and removes all access to them.
pub(crate) fn close(guard: &Arc<Guard>) -> Result<(), GuardError> {
    let mut pages = Vec::new();
    let mut slots = SLOTS.iter();
    for run in guard.runs() {
        let Some(slot) = slots.find(|s| s.end.load(SeqCst) == 0) else {
            free_slots(guard.runs());
            return Err(GuardError::Unsupported("too many runs are guarded"));
        };
        let bytes = bytes(run.len() / PAGE_BYTES);
        slot.closed.store(bytes.as_ptr().cast_mut(), SeqCst);
        slot.start.store(run.start, SeqCst);
        slot.end.store(run.end, SeqCst);
        pages.push((run.start, bytes));
    }
    for (run, (_, bytes)) in guard.runs().iter().zip(&pages) {
        for byte in bytes.iter() {
            byte.store(1, SeqCst);
        }
        let shadow = run.start.wrapping_add(guard.delta()) as *mut u8;
        // SAFETY: `check` has found the pages readable. The shadow is as long, and does not
        // overlap.
        unsafe { shadow.copy_from_nonoverlapping(run.start as *const u8, run.len()) };
        // SAFETY: pages of the program's buffer. A thread that touches them waits in the handler.
        if unsafe { libc::mprotect(run.start as *mut _, run.len(), libc::PROT_NONE) } != 0 {
            let guard_error = GuardError::last_os_error("mprotect");
            guards().push((guard.clone(), pages.clone()));
            for run in guard.runs() {
                // SAFETY: this restores the access from before. The pages keep their data.
                unsafe {
                    libc::mprotect(
                        run.start as *mut _,
                        run.len(),
                        libc::PROT_READ | libc::PROT_WRITE,
                    )
                };
            }
            for (_, bytes) in &pages {
                bytes.iter().for_each(|b| b.store(0, SeqCst));
            }
            forget(guard);
            return Err(guard_error);
        }
    }
    guards().push((guard.clone(), pages));
    Ok(())
}

/// An array with one byte for each of `pages` pages.
fn bytes(pages: usize) -> &'static [AtomicU8] {
    let mut free = FREE_BYTES.lock().unwrap_or_else(PoisonError::into_inner);
    match free.iter().position(|s| s.len() >= pages) {
        Some(at) => free.swap_remove(at),
        None => Box::leak(
            (0..pages.next_power_of_two())
                .map(|_| AtomicU8::new(0))
                .collect(),
        ),
    }
}

pub(crate) fn put_back(guard: &Guard, pages: &Range<usize>) {
    let closed = guards()
        .iter()
        .find(|(g, _)| std::ptr::eq(&**g, guard))
        .map(|(_, pages)| pages.clone())
        .unwrap_or_default();
    for (run, (start, bytes)) in guard.runs().iter().zip(closed) {
        let (from, to) = (run.start.max(pages.start), run.end.min(pages.end));
        let mut at = from;
        while at < to {
            let page = |at: usize| &bytes[(at - start) / PAGE_BYTES];
            if page(at).load(SeqCst) == 0 {
                at += PAGE_BYTES;
                continue;
            }
            let first = at;
            while at < to && page(at).load(SeqCst) == 1 {
                at += PAGE_BYTES;
            }
            fill(guard, first..at);
            for byte in &bytes[(first - start) / PAGE_BYTES..(at - start) / PAGE_BYTES] {
                byte.store(0, SeqCst);
            }
        }
    }
    OPENED.fetch_add(1, SeqCst);
    futex_wake(&OPENED);
}

/// Writes the data of closed pages, then restores access to them. Pages that the program has
/// unmapped or replaced stay as they are.
fn fill(guard: &Guard, pages: Range<usize>) {
    let Ok(memory) = memory() else { return };
    if is_readable(pages.start) {
        return;
    }
    let shadow = pages.start.wrapping_add(guard.delta());
    // SAFETY: the shadow is this guard's own memory, and no longer written.
    let data = unsafe { std::slice::from_raw_parts(shadow as *const u8, pages.len()) };
    if memory.write_all_at(data, pages.start as u64).is_ok() {
        // SAFETY: the pages are the program's buffer. They were readable and writable before.
        unsafe {
            libc::mprotect(
                pages.start as *mut _,
                pages.len(),
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
    }
}

fn is_readable(address: usize) -> bool {
    let mut byte = 0u8;
    let to = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let from = libc::iovec {
        iov_base: address as *mut _,
        iov_len: 1,
    };
    // SAFETY: reads one byte of this process into `byte`, or fails.
    unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) == 1 }
}

pub(crate) fn forget(guard: &Guard) {
    free_slots(guard.runs());
    let mut all = guards();
    if let Some(at) = all.iter().position(|(g, _)| std::ptr::eq(&**g, guard)) {
        let (_, pages) = all.swap_remove(at);
        let mut free = FREE_BYTES.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(pages.into_iter().map(|(_, bytes)| bytes));
    }
}

fn free_slots(runs: &[Range<usize>]) {
    for slot in &SLOTS {
        if runs
            .iter()
            .any(|r| r.start == slot.start.load(SeqCst) && r.end == slot.end.load(SeqCst))
        {
            slot.end.store(0, SeqCst);
        }
    }
}

/// Handles an address that the signal handler has reported.
pub(crate) fn on_touch(address: usize) {
    let guard = guards()
        .iter()
        .find(|(g, _)| g.runs().iter().any(|r| r.contains(&address)))
        .map(|(g, _)| g.clone());
    if let Some(guard) = guard {
        guard.on_touch(address);
    }
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes a valid siginfo of a fault. errno is this thread's, and restored.
    unsafe {
        let address = (*info).si_addr() as usize;
        let errno = *libc::__errno_location();
        let waited = wait_if_guarded(address);
        *libc::__errno_location() = errno;
        if !waited {
            call_previous_handler(signal, info, context);
        }
    }
}

/// Waits until the page of this address is open, if it is guarded. Returns false if the fault is
/// the program's own.
fn wait_if_guarded(address: usize) -> bool {
    for slot in &SLOTS {
        let (start, end) = (slot.start.load(SeqCst), slot.end.load(SeqCst));
        let closed = slot.closed.load(SeqCst);
        if !(start..end).contains(&address) || closed.is_null() {
            continue;
        }
        let mut reported = false;
        loop {
            let seen = OPENED.load(SeqCst);
            // SAFETY: the array has a byte for each page of the run, and is never freed.
            if unsafe { (*closed.add((address - start) / PAGE_BYTES)).load(SeqCst) } == 0 {
                break;
            }
            if !reported {
                reported = true;
                let message = address.to_ne_bytes();
                // SAFETY: this writes eight bytes of the stack to a pipe that does not block.
                unsafe {
                    libc::write(
                        WATCH_PIPE.load(SeqCst),
                        message.as_ptr().cast(),
                        message.len(),
                    )
                };
            }
            futex_wait(&OPENED, seen);
        }
        // The page has been opened, or the program has no access here either. In the second case
        // the fault repeats.
        return !is_repeated(address);
    }
    // The guard may have ended between the fault and this check.
    OPENED.load(SeqCst) != 0 && !is_repeated(address)
}

/// Returns whether this thread's last fault was the same, with no page opened in between.
fn is_repeated(address: usize) -> bool {
    // SAFETY: this only reads the thread's id.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    let mark = (address as u64) ^ (thread << 40) ^ u64::from(OPENED.load(SeqCst)).rotate_right(8);
    LAST_FAULTS[thread as usize % LAST_FAULTS.len()].swap(mark, SeqCst) == mark
}

/// Does what would have happened without this handler.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn call_previous_handler(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let before = PREVIOUS_ACTION.load(SeqCst);
    // SAFETY: the structure is never freed. The program's handler is called as the system would
    // call it, with the signals blocked that its action names.
    unsafe {
        let default =
            before.is_null() || matches!((*before).sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        if default {
            // The instruction faults again, and the process ends by the default action.
            libc::signal(signal, libc::SIG_DFL);
            return;
        }
        let action = *before;
        let mut blocked = action.sa_mask;
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut blocked, signal);
        }
        if action.sa_flags & libc::SA_RESETHAND != 0 {
            (*before).sa_sigaction = libc::SIG_DFL;
        }
        let mut mask = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut mask);
        if action.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(action.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(i32) = std::mem::transmute(action.sa_sigaction);
            handler(signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, null_mut());
    }
}
