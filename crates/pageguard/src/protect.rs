//! Guards by mprotect and SIGSEGV, for systems that do not move pages.
//!
//! Limits:
//!
//! - System calls on a guarded page fail with EFAULT.
//! - A page that the program moves (mremap) or drops (madvise) while it is guarded is not followed.
//! - A thread that blocks SIGSEGV dies where it should wait.
//! - The process dies if the program replaces the handler of SIGSEGV while pages are guarded.
//! - Stacks are refused.

use crate::guard::Guard;
use crate::registry::Registry;
use crate::system::{futex_wait, futex_wake};
use crate::watch::Watch;
use crate::{PAGE, Refusal};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Most runs that can be guarded at a time.
const RUNS_MAX: usize = 64;

/// A guarded run, as the signal handler sees it.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    /// A byte for each page, which is 1 if the page is closed. Never freed.
    closed: AtomicPtr<AtomicU8>,
}

static SLOTS: [Slot; RUNS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        closed: AtomicPtr::new(null_mut()),
    }
}; RUNS_MAX];
/// Changes whenever pages have been opened. Threads that wait for a page sleep on it.
static OPENED: AtomicU32 = AtomicU32::new(0);
/// Where the signal handler writes touched addresses.
static WATCH_PIPE: AtomicI32 = AtomicI32::new(-1);
/// The handler of SIGSEGV that was installed before. Never freed.
static PREVIOUS_ACTION: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());
/// Faults outside closed pages, by thread. A page that was opened between the fault and the handler
/// does not fault again.
static UNEXPLAINED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Guards in force, with a byte for each page of their runs.
type Guards = Vec<(Arc<Guard>, Vec<(usize, &'static [AtomicU8])>)>;
static GUARDS: Mutex<Guards> = Mutex::new(Vec::new());
/// Bytes for pages that no guard uses now.
static SPARE: Mutex<Vec<&'static [AtomicU8]>> = Mutex::new(Vec::new());

fn guards() -> MutexGuard<'static, Guards> {
    GUARDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process's memory as a file, which ignores the rights to pages.
fn memory() -> Result<&'static std::fs::File, Refusal> {
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
        .ok_or(Refusal::Memory("/proc/self/mem cannot be opened"))
}

/// Makes guards of this kind possible.
pub(crate) fn begin(all: &mut Registry) -> Result<(), Refusal> {
    memory()?;
    Watch::start(all)?;
    if let Some(watch) = &all.watch {
        WATCH_PIPE.store(watch.pipe.as_raw_fd(), SeqCst);
    }
    install()
}

/// Installs the handler of SIGSEGV in front of the present one.
fn install() -> Result<(), Refusal> {
    // SAFETY: both structures are valid, zeros included; the handler is safe in a signal.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGSEGV, null(), &raw mut now) != 0 {
            return Err(Refusal::last("looking at the handler of SIGSEGV"));
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
            _ => Err(Refusal::last("setting the handler of SIGSEGV")),
        }
    }
}

/// Checks that all of it is private memory that can be read and written, and no stack.
pub(crate) fn check(runs: &[Range<usize>]) -> Result<(), Refusal> {
    install()?;
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|cause| Refusal::System {
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
                    return Err(Refusal::Memory(
                        "a stack, or memory that is shared or not writable, is left alone by \
                         mprotect",
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Copies the pages to the shadow, and takes the rights to them away.
pub(crate) fn take_away(guard: &Arc<Guard>) -> Result<(), Refusal> {
    let mut pages = Vec::new();
    let mut slots = SLOTS.iter();
    for run in guard.runs() {
        let Some(slot) = slots.find(|s| s.end.load(SeqCst) == 0) else {
            close_slots(guard.runs());
            return Err(Refusal::Memory("too many runs are guarded"));
        };
        let bytes = bytes(run.len() / PAGE);
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
        // SAFETY: the pages can be read, as has been checked; the shadow is as long, and apart.
        unsafe { shadow.copy_from_nonoverlapping(run.start as *const u8, run.len()) };
        // SAFETY: pages of the program's buffer; whoever touches them waits in the handler.
        if unsafe { libc::mprotect(run.start as *mut _, run.len(), libc::PROT_NONE) } != 0 {
            let refusal = Refusal::last("mprotect");
            guards().push((guard.clone(), pages.clone()));
            for run in guard.runs() {
                // SAFETY: as they were before; no data are lost, as no rights were.
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
            return Err(refusal);
        }
    }
    guards().push((guard.clone(), pages));
    Ok(())
}

/// Bytes for this many pages.
fn bytes(pages: usize) -> &'static [AtomicU8] {
    let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
    match spare.iter().position(|s| s.len() >= pages) {
        Some(at) => spare.swap_remove(at),
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
            let page = |at: usize| &bytes[(at - start) / PAGE];
            if page(at).load(SeqCst) == 0 {
                at += PAGE;
                continue;
            }
            let first = at;
            while at < to && page(at).load(SeqCst) == 1 {
                at += PAGE;
            }
            fill(guard, first..at);
            for byte in &bytes[(first - start) / PAGE..(at - start) / PAGE] {
                byte.store(0, SeqCst);
            }
        }
    }
    OPENED.fetch_add(1, SeqCst);
    futex_wake(&OPENED);
}

/// Writes behind the guard, then lifts it. What the program has unmapped or replaced is left alone.
fn fill(guard: &Guard, pages: Range<usize>) {
    let Ok(memory) = memory() else { return };
    if is_readable(pages.start) {
        return;
    }
    let shadow = pages.start.wrapping_add(guard.delta());
    // SAFETY: the shadow is this guard's own memory, and written no more.
    let data = unsafe { std::slice::from_raw_parts(shadow as *const u8, pages.len()) };
    if memory.write_all_at(data, pages.start as u64).is_ok() {
        // SAFETY: the pages are the program's buffer, readable and writable before.
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
    close_slots(guard.runs());
    let mut all = guards();
    if let Some(at) = all.iter().position(|(g, _)| std::ptr::eq(&**g, guard)) {
        let (_, pages) = all.swap_remove(at);
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        spare.extend(pages.into_iter().map(|(_, bytes)| bytes));
    }
}

fn close_slots(runs: &[Range<usize>]) {
    for slot in &SLOTS {
        if runs
            .iter()
            .any(|r| r.start == slot.start.load(SeqCst) && r.end == slot.end.load(SeqCst))
        {
            slot.end.store(0, SeqCst);
        }
    }
}

/// The signal handler has seen a touch.
pub(crate) fn touched(address: usize) {
    let guard = guards()
        .iter()
        .find(|(g, _)| g.runs().iter().any(|r| r.contains(&address)))
        .map(|(g, _)| g.clone());
    if let Some(guard) = guard {
        guard.touched(address);
    }
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes a valid siginfo of a fault; errno is this thread's, and put back.
    unsafe {
        let address = (*info).si_addr() as usize;
        let errno = *libc::__errno_location();
        let waited = waits(address);
        *libc::__errno_location() = errno;
        if !waited {
            chain(signal, info, context);
        }
    }
}

/// Waits if the address is guarded. False: this fault is the program's own.
fn waits(address: usize) -> bool {
    for slot in &SLOTS {
        let (start, end) = (slot.start.load(SeqCst), slot.end.load(SeqCst));
        let closed = slot.closed.load(SeqCst);
        if !(start..end).contains(&address) || closed.is_null() {
            continue;
        }
        let mut told = false;
        loop {
            let seen = OPENED.load(SeqCst);
            // SAFETY: a byte for each page of the run, never freed.
            if unsafe { (*closed.add((address - start) / PAGE)).load(SeqCst) } == 0 {
                break;
            }
            if !told {
                told = true;
                let said = address.to_ne_bytes();
                // SAFETY: writes eight bytes of its own to a pipe that does not block.
                unsafe { libc::write(WATCH_PIPE.load(SeqCst), said.as_ptr().cast(), said.len()) };
            }
            futex_wait(&OPENED, seen);
        }
        // It may have been opened, or the program may have done something here for which it earns
        // this fault: see whether it comes again.
        return !comes_again(address);
    }
    // Opened, and the guard ended, between the fault and the look?
    OPENED.load(SeqCst) != 0 && !comes_again(address)
}

/// Has this thread just had the same fault, with nothing opened in between?
fn comes_again(address: usize) -> bool {
    // SAFETY: asks for the thread's number.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
    let mark = (address as u64) ^ (thread << 40) ^ u64::from(OPENED.load(SeqCst)).rotate_right(8);
    UNEXPLAINED[thread as usize % UNEXPLAINED.len()].swap(mark, SeqCst) == mark
}

/// What would have happened without this handler.
///
/// # Safety
/// The arguments are those of a signal handler.
unsafe fn chain(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = PREVIOUS_ACTION.load(SeqCst);
    // SAFETY: never freed; the program's handler is called as the system would, with the signals
    // blocked that it asks for.
    unsafe {
        let default =
            before.is_null() || matches!((*before).sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        if default {
            // The instruction faults again, and the process ends as it should.
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
