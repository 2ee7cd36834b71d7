//! The thread that hears of touched pages and of changes to the address space.

use crate::Refusal;
use crate::fork;
use crate::registry::{Registry, registry};
use crate::system::Faults;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Bytes of the thread's stack.
const STACK: usize = 128 * 1024;

/// The thread, and the pipe that wakes it.
pub(crate) struct Watch {
    thread: JoinHandle<()>,
    /// Addresses, 8 bytes each: touched, as a signal handler says; 0: end.
    pub tell: OwnedFd,
}

impl Watch {
    /// Starts it unless it is there. No fork may begin meanwhile ([`fork::none`]): a thread that is
    /// not yet itself needs memory, and hears of nothing.
    pub fn start(all: &mut Registry) -> Result<(), Refusal> {
        if let Some(watch) = &all.watch {
            watch.nudge();
            return Ok(());
        }
        let mut ends = [0; 2];
        // SAFETY: the array has room for both descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(Refusal::last("making a pipe"));
        }
        // SAFETY: new descriptors, owned by nobody else.
        let [hear, tell] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let (here, started) = mpsc::channel();
        let begun = ferry_job::start_thread("guard", STACK, move || {
            let _ = here.send(());
            drop(here);
            run(&hear);
        });
        let thread = begun.map_err(|cause| Refusal::System {
            attempted: "starting the thread that watches guarded pages",
            cause,
        })?;
        let _ = started.recv();
        all.watch = Some(Watch { thread, tell });
        Ok(())
    }

    /// Tells it of an address.
    fn say(&self, address: u64) {
        let bytes = address.to_ne_bytes();
        // SAFETY: writes from an array of so many bytes.
        unsafe { libc::write(self.tell.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Ends it.
    pub fn stop(self) {
        self.say(0);
        // It does not panic: where it would, the whole process ends.
        let _ = self.thread.join();
    }

    /// Has it look again which descriptors there are.
    pub fn nudge(&self) {
        self.say(1); // nobody's
    }
}

fn run(hear: &OwnedFd) {
    let mut awake = fork::wake_up();
    loop {
        let mut all = registry();
        let sources: Vec<Arc<Faults>> = all.spaces.iter().map(|s| s.faults.clone()).collect();
        let touched = std::mem::take(&mut all.touched);
        drop(all);
        for (guard, original) in touched {
            guard.touched(original);
        }
        let poll = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds: Vec<_> = sources.iter().map(|f| poll(f.as_raw_fd())).collect();
        fds.push(poll(hear.as_raw_fd()));
        drop(awake);
        // SAFETY: the array has as many entries as it says.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, -1) };
        awake = fork::wake_up();
        for (faults, fd) in sources.iter().zip(&fds) {
            if fd.revents & libc::POLLIN != 0 {
                hear_of(faults);
            } else if fd.revents != 0 {
                // The child has ended.
                forget(faults);
            }
        }
        if fds[sources.len()].revents != 0 && !listen(hear) {
            return;
        }
    }
}

/// What signal handlers have said. False: the end.
fn listen(hear: &OwnedFd) -> bool {
    let mut said = [0u64; 32];
    let room = size_of_val(&said);
    // SAFETY: the array has room for so many bytes.
    let got = unsafe { libc::read(hear.as_raw_fd(), said.as_mut_ptr().cast(), room) };
    for &address in &said[..usize::try_from(got).unwrap_or(0) / 8] {
        match address as usize {
            0 => return false,
            1 => {}
            address => crate::protect::touched(address),
        }
    }
    true
}

/// Reads what there is to hear and notes it. Memory may change from the moment on at which an event
/// is read, so nobody may put pages back between that and what is noted of it here: both happen
/// with the registry.
fn hear_of(faults: &Arc<Faults>) {
    let mut all = registry();
    for event in faults.events() {
        all.note(faults, event);
    }
}

fn forget(faults: &Arc<Faults>) {
    let mut all = registry();
    let own = all
        .spaces
        .first()
        .is_some_and(|s| Arc::ptr_eq(&s.faults, faults));
    if !own {
        all.spaces.retain(|s| !Arc::ptr_eq(&s.faults, faults));
    }
}
