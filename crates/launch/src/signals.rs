//! Signals to this process, as events.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{mem, ptr};

/// Signals that mpiexec reads through a descriptor.
const HANDLED_SIGNALS: [c_int; 9] = [
    libc::SIGCHLD,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];
/// Signals that are reset to their default action in ranks. Rust's runtime ignores SIGPIPE. Shells
/// ignore the others in background jobs, and ranks would not see what mpiexec forwards.
pub const DEFAULT_SIGNALS: [c_int; 4] = [libc::SIGPIPE, libc::SIGINT, libc::SIGQUIT, libc::SIGXFSZ];

/// Signals that are read from a descriptor.
pub struct Signals {
    fd: OwnedFd,
    /// The signal mask from before.
    pub original_mask: libc::sigset_t,
}

impl Signals {
    /// Blocks mpiexec's signals. From now on they come through the descriptor.
    pub fn block() -> io::Result<Signals> {
        Signals::block_these(&HANDLED_SIGNALS)
    }

    /// Blocks these signals. From now on they come through the descriptor. To be called while this
    /// process has one thread.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn block_these(signals: &[c_int]) -> io::Result<Signals> {
        // SAFETY: plain system calls on local sets and no handlers; this process has one thread.
        unsafe {
            let mut taken: libc::sigset_t = mem::zeroed();
            let mut original_mask: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&mut taken);
            for &signal in signals {
                let mut action: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, ptr::null(), &mut action);
                let ignored = action.sa_sigaction == libc::SIG_IGN;
                // Under nohup SIGHUP is ignored, and stays so.
                if ignored && matches!(signal, libc::SIGHUP | libc::SIGTSTP) {
                    continue;
                }
                if ignored {
                    libc::signal(signal, libc::SIG_DFL);
                }
                libc::sigaddset(&mut taken, signal);
            }
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::sigprocmask(libc::SIG_BLOCK, &taken, &mut original_mask);
            let fd = libc::signalfd(-1, &taken, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals {
                fd: OwnedFd::from_raw_fd(fd),
                original_mask,
            })
        }
    }

    /// The descriptor to poll.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The next pending signal.
    pub fn next(&self) -> Option<c_int> {
        // SAFETY: the kernel writes one whole signalfd_siginfo or nothing.
        unsafe {
            let mut info: libc::signalfd_siginfo = mem::zeroed();
            let size = size_of::<libc::signalfd_siginfo>();
            let n = libc::read(self.fd.as_raw_fd(), ptr::from_mut(&mut info).cast(), size);
            (n == size as isize).then_some(info.ssi_signo as c_int)
        }
    }
}

/// Sends a signal to a process group. One that is gone is ignored.
pub fn send_to_group(group: i32, signal: c_int) {
    if group > 1 {
        // SAFETY: a plain system call.
        unsafe { libc::kill(-group, signal) };
    }
}

/// A signal's number and meaning: "signal 11 (Segmentation fault)".
pub fn described(signal: c_int) -> String {
    // SAFETY: strsignal returns a string that is valid until its next call, by the one thread there
    // is.
    let name = unsafe {
        let text = libc::strsignal(signal);
        if text.is_null() {
            String::new()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    };
    format!("signal {signal} ({name})")
}
