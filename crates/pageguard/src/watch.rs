//! The watching thread: it reads events of touched pages and of changes to the address space.

use crate::GuardError;
use crate::fork;
use crate::registry::{Registry, registry};
use crate::system::Userfaultfd;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Bytes of the thread's stack. A choice.
const STACK_BYTES: usize = 128 * 1024;

/// Written to the pipe to end the thread. No touched address is 0.
const STOP: u64 = 0;
/// Written to the pipe to have the thread list the descriptors again. No touched address is 1.
const RESCAN: u64 = 1;

/// The watching thread, and the pipe that wakes it.
pub(crate) struct Watch {
    thread: JoinHandle<()>,
    /// The end for writing. Each message is 8 bytes: an address whose touch a signal handler has
    /// seen, or one of [`STOP`] and [`RESCAN`].
    pub pipe: OwnedFd,
}

impl Watch {
    /// Starts the thread, unless it runs. The caller [prevents forks](fork::prevent): a thread that
    /// starts allocates memory, and does not read events yet.
    pub fn start(all: &mut Registry) -> Result<(), GuardError> {
        if let Some(watch) = &all.watch {
            watch.rescan();
            return Ok(());
        }
        let mut ends = [0; 2];
        // SAFETY: the array has room for both descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(GuardError::last_os_error("making a pipe"));
        }
        // SAFETY: new descriptors, owned by nobody else.
        let [read_end, write_end] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let (here, started) = mpsc::channel();
        let begun = ferry_job::start_thread("guard", STACK_BYTES, move || {
            let _ = here.send(());
            drop(here);
            run(&read_end);
        });
        let thread = begun.map_err(|cause| GuardError::System {
            attempted: "starting the thread that watches guarded pages",
            cause,
        })?;
        let _ = started.recv();
        all.watch = Some(Watch {
            thread,
            pipe: write_end,
        });
        Ok(())
    }

    /// Writes an address to the pipe.
    fn write(&self, address: u64) {
        let bytes = address.to_ne_bytes();
        // SAFETY: writes from an array of that length.
        unsafe { libc::write(self.pipe.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Stops the thread.
    pub fn stop(self) {
        self.write(STOP);
        // The thread does not panic: the whole process would end.
        let _ = self.thread.join();
    }

    /// Makes the thread list the descriptors again.
    pub fn rescan(&self) {
        self.write(RESCAN);
    }
}

/// The thread's loop.
fn run(pipe: &OwnedFd) {
    let mut fork_lock = fork::prevent_in_watching_thread();
    loop {
        let mut all = registry();
        let sources: Vec<Arc<Userfaultfd>> = all.spaces.iter().map(|s| s.faults.clone()).collect();
        let touched = std::mem::take(&mut all.touched);
        drop(all);
        for (guard, original) in touched {
            guard.on_touch(original);
        }
        let poll = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds: Vec<_> = sources.iter().map(|f| poll(f.as_raw_fd())).collect();
        fds.push(poll(pipe.as_raw_fd()));
        drop(fork_lock);
        // SAFETY: the array has as many entries as it says.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, -1) };
        fork_lock = fork::prevent_in_watching_thread();
        for (faults, fd) in sources.iter().zip(&fds) {
            if fd.revents & libc::POLLIN != 0 {
                read_events(faults);
            } else if fd.revents != 0 {
                // The child has ended.
                forget(faults);
            }
        }
        if fds[sources.len()].revents != 0 && !read_pipe(pipe) {
            return;
        }
    }
}

/// Reads what signal handlers have written. Returns false if the thread must end.
fn read_pipe(pipe: &OwnedFd) -> bool {
    let mut addresses = [0u64; 32];
    let room = size_of_val(&addresses);
    // SAFETY: the array has room for `room` bytes.
    let got = unsafe { libc::read(pipe.as_raw_fd(), addresses.as_mut_ptr().cast(), room) };
    for &address in &addresses[..usize::try_from(got).unwrap_or(0) / 8] {
        match address {
            STOP => return false,
            RESCAN => {}
            address => crate::protect::on_touch(address as usize),
        }
    }
    true
}

/// Reads events and applies them to the registry.
///
/// The program's memory may change as soon as an event has been read. No pages may be put back
/// before the registry knows of the event. So both happen under the registry's lock.
fn read_events(faults: &Arc<Userfaultfd>) {
    let mut all = registry();
    for event in faults.events() {
        all.apply(faults, event);
    }
}

/// Forgets a child that has ended.
fn forget(faults: &Arc<Userfaultfd>) {
    let mut all = registry();
    let own = all
        .spaces
        .first()
        .is_some_and(|s| Arc::ptr_eq(&s.faults, faults));
    if !own {
        all.spaces.retain(|s| !Arc::ptr_eq(&s.faults, faults));
    }
}
