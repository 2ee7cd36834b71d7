//! Transfers by io_uring, one ring a process.
//!
//! Any thread submits. One thread sleeps in the kernel until completions come, resubmits short
//! transfers, and calls what operations call at their end.
//!
//! Each transfer is marked for the kernel's own threads (`IOSQE_ASYNC`). Otherwise the kernel would
//! finish a read that waits for the device by interrupting the submitter, whose own system calls
//! see that (`EINTR`).
//!
//! Where the kernel refuses a submission for good, the ring is broken: it gets no more transfers,
//! and whoever holds one does it otherwise. What the kernel has already comes back as before.

use super::{Direction, STACK_BYTES, Transfer};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Entries of the submission queue. A submission takes one, and gives it back at once.
const ENTRIES: u32 = 64;
/// Transfers that the kernel has at a time, at most. Their completions fit the completion queue,
/// which has twice [`ENTRIES`]; one place is for the end.
const KERNEL_MAX_TRANSFERS: usize = 2 * ENTRIES as usize - 1;
/// Bytes that one entry transfers at most: Linux cuts longer ones to this (`MAX_RW_COUNT`).
const ENTRY_MAX_BYTES: usize = 0x7fff_f000;
/// `IORING_ENTER_GETEVENTS` of io_uring_enter(2): wait for completions.
const ENTER_GETEVENTS: u32 = 1;
/// Tag of the entry that ends the completion thread. Other tags are addresses.
const END_TAG: u64 = 0;

/// A ring and its completion thread.
pub(super) struct Ring {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    ring: IoUring,
    /// Guards the submission queue, too.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Transfers that the kernel has.
    in_kernel: usize,
    /// Transfers that wait for room.
    waiting: VecDeque<Box<Transfer>>,
    /// The kernel has refused a submission, which lies in the queue for ever.
    broken: bool,
}

impl Ring {
    /// Makes a ring. `None` if the kernel refuses: too old, forbidden, or out of locked memory.
    pub fn start() -> Option<Ring> {
        let ring = IoUring::builder().dontfork().build(ENTRIES).ok()?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe).ok()?;
        let codes = [opcode::Read::CODE, opcode::Write::CODE, opcode::Nop::CODE];
        if !codes.iter().all(|code| probe.is_supported(*code)) || !ring.params().is_feature_nodrop()
        {
            return None;
        }
        let shared = Arc::new(Shared {
            ring,
            state: Mutex::default(),
        });
        let completions = shared.clone();
        let thread = ferry_job::start_thread("io-ring", STACK_BYTES, move || completions.work());
        Some(Ring {
            shared,
            thread: thread.ok()?,
        })
    }

    /// Starts a transfer, or gives it back if the ring is broken. It does not block.
    pub fn start_transfer(&self, transfer: Transfer) -> Option<Transfer> {
        self.shared.start(Box::new(transfer)).map(|back| *back)
    }

    /// Ends the completion thread. No transfer is under way. That of a broken ring cannot be woken,
    /// and sleeps until the process ends.
    pub fn stop(self) {
        let end = opcode::Nop::new().build().user_data(END_TAG);
        if self.shared.submit(&mut self.shared.state(), &end) {
            // A thread that has panicked has ended the process.
            let _ = self.thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the transfer back if the ring is broken.
    fn start(&self, transfer: Box<Transfer>) -> Option<Box<Transfer>> {
        let mut state = self.state();
        if state.in_kernel < KERNEL_MAX_TRANSFERS {
            return self.give(&mut state, transfer);
        }
        state.waiting.push_back(transfer);
        None
    }

    /// Gives a transfer to the kernel, or back if that refuses it.
    fn give(
        &self,
        state: &mut MutexGuard<'_, State>,
        transfer: Box<Transfer>,
    ) -> Option<Box<Transfer>> {
        let Some(fd) = transfer.file.fd() else {
            // Only files with a descriptor come here.
            return Some(transfer);
        };
        let fd = types::Fd(fd.as_raw_fd());
        let len = (transfer.len - transfer.done).min(ENTRY_MAX_BYTES) as u32;
        let buf = transfer.buf.wrapping_add(transfer.done);
        let offset = transfer.offset.saturating_add(transfer.done as u64);
        let entry = match transfer.direction {
            Direction::Read => opcode::Read::new(fd, buf, len).offset(offset).build(),
            Direction::Write => opcode::Write::new(fd, buf, len).offset(offset).build(),
        };
        let tag = Box::into_raw(transfer);
        let entry = entry.flags(squeue::Flags::ASYNC).user_data(tag as u64);
        if self.submit(state, &entry) {
            state.in_kernel += 1;
            return None;
        }
        // SAFETY: made above, and the kernel has not taken it.
        Some(unsafe { Box::from_raw(tag) })
    }

    /// Submits an entry. The guard is that of this ring's state: one thread submits at a time.
    /// Returns whether the kernel has taken it.
    fn submit(&self, state: &mut MutexGuard<'_, State>, entry: &squeue::Entry) -> bool {
        if state.broken {
            return false;
        }
        // SAFETY: the guard keeps other threads from the submission queue.
        let mut queue = unsafe { self.ring.submission_shared() };
        // SAFETY: what the entry points to lives until its completion: the transfer keeps file and
        // memory. The queue is empty, so there is room.
        let pushed = unsafe { queue.push(entry) };
        drop(queue);
        debug_assert!(pushed.is_ok());
        loop {
            match self.ring.submit() {
                Ok(0) => {}
                Ok(_) => return true,
                // The kernel is short of memory for a moment, or a signal came.
                Err(error) if retry(&error) => {}
                // A filter of system calls, for example, that came after the ring was made.
                Err(_) => {
                    state.broken = true;
                    return false;
                }
            }
            std::thread::yield_now();
        }
    }

    /// The completion thread.
    fn work(&self) {
        loop {
            self.wait();
            loop {
                // SAFETY: only this thread takes completions.
                let next = unsafe { self.ring.completion_shared() }.next();
                let Some(completion) = next else {
                    break;
                };
                if completion.user_data() == END_TAG {
                    return;
                }
                let result = match completion.result() {
                    n if n < 0 => Err(io::Error::from_raw_os_error(-n)),
                    n => Ok(n as usize),
                };
                // SAFETY: the tag is that of `give`, and comes back once.
                let transfer = unsafe { Box::from_raw(completion.user_data() as *mut Transfer) };
                self.on_completion(*transfer, result);
            }
        }
    }

    /// Sleeps until there is a completion, or a signal comes.
    fn wait(&self) {
        // SAFETY: no argument is passed.
        let waited = unsafe {
            self.ring
                .submitter()
                .enter::<()>(0, 1, ENTER_GETEVENTS, None)
        };
        if waited.is_err_and(|error| !retry(&error)) {
            // A ring is readable when it has completions, which fit its queue.
            // SAFETY: the ring, and so its descriptor, lives as long as this.
            let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
            let mut ring = [PollFd::from_borrowed_fd(ring, PollFlags::IN)];
            if rustix::event::poll(&mut ring, None).is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn on_completion(&self, transfer: Transfer, result: io::Result<usize>) {
        // Without the lock: the end of an operation may start the next one.
        let mut rest = transfer.advance(result).map(Box::new);
        let mut state = self.state();
        state.in_kernel -= 1;
        while let Some(next) = rest.take().or_else(|| state.waiting.pop_front()) {
            let Some(back) = self.give(&mut state, next) else {
                return;
            };
            drop(state);
            back.run();
            state = self.state();
        }
    }
}

/// Errors of io_uring_enter(2) that pass.
fn retry(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}
