//! A process that waits for the one that works, and clears up after it if it is killed.

use std::io;

use ferry_launch::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

/// Signals that end the work.
const END_SIGNALS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Runs `work` in a child process and returns its exit status. If the child is killed, `clear_up`
/// runs here. If this process is killed, the child gets SIGTERM. To be called from the only thread
/// of the process.
///
/// # Errors
/// The system gives no process. Errors of `work` are printed by the child.
pub fn supervise(
    work: impl FnOnce() -> Result<u8, String>,
    clear_up: impl FnOnce(),
) -> Result<u8, String> {
    let own = std::process::id();
    // SAFETY: this process has one thread, so the child may go on as any program.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain system calls.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                if libc::getppid() as u32 != own {
                    libc::_exit(1);
                }
            }
            let status = work().unwrap_or_else(|text| {
                eprintln!("ferry: {text}");
                1
            });
            std::process::exit(status.into())
        }
        number => {
            let refused = |e: io::Error| format!("the process that works: {e}");
            let worker = Pid::from_raw(number).filter(|_| number > 0);
            let worker = worker.ok_or_else(|| refused(io::Error::last_os_error()))?;
            wait(worker, clear_up).map_err(refused)
        }
    }
}

/// Waits for the worker, and passes signals on to it.
fn wait(worker: Pid, clear_up: impl FnOnce()) -> io::Result<u8> {
    let signals = Signals::block_these(&END_SIGNALS)?;
    let ended = pidfd_open(worker, PidfdFlags::empty())?;
    loop {
        let mut fds = [signals.fd(), &ended].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let has_ended = !fds[1].revents().is_empty();
        while let Some(signal) = signals.next() {
            if let Some(signal) = Signal::from_named_raw(signal) {
                // It may just have ended.
                let _ = kill_process(worker, signal);
            }
        }
        if has_ended {
            break;
        }
    }
    let status = waitpid(Some(worker), WaitOptions::empty())?.map(|(_, status)| status);
    match status.and_then(|s| s.exit_status()) {
        Some(status) => Ok(status as u8),
        None => {
            clear_up();
            let signal = status.and_then(|s| s.terminating_signal());
            Ok(128 + signal.unwrap_or(0) as u8)
        }
    }
}
