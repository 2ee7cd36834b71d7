//! The parent-death watcher: a process that ends the rest of the job if mpiexec is killed.
//!
//! Ranks die with mpiexec by PR_SET_PDEATHSIG, but processes that they have started do not. The
//! watcher sleeps on a pipe whose other end only mpiexec holds. When that end closes, it kills the
//! process groups of all ranks whose end mpiexec had not seen.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

/// mpiexec's handle on the watcher.
pub struct ParentDeathWatcher {
    pid: i32,
    /// The pipe's end that closes with mpiexec.
    _lifeline: OwnedFd,
    groups: &'static [AtomicI32],
}

impl ParentDeathWatcher {
    /// Starts the watcher for `ranks` ranks. To be called while this process has one thread and
    /// little memory to copy.
    pub fn start(ranks: u32) -> io::Result<ParentDeathWatcher> {
        let groups = shared_numbers(ranks as usize)?;
        let (watched, lifeline) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: this process has one thread; the child makes system calls only.
        match unsafe { libc::fork() } {
            0 => watch(watched, lifeline, groups),
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(ParentDeathWatcher {
                pid,
                _lifeline: lifeline,
                groups,
            }),
        }
    }

    /// A rank's process group, or 0 before it starts. The rank itself writes it. Its copy of the
    /// pipe's end closes only when it executes its program, so the watcher never looks before the
    /// group is written.
    pub fn group(&self, rank: usize) -> &AtomicI32 {
        &self.groups[rank]
    }

    /// A rank has ended. Its process group's number may be reused soon.
    pub fn ended(&self, rank: usize) {
        self.groups[rank].store(0, Ordering::Relaxed);
    }
}

impl Drop for ParentDeathWatcher {
    fn drop(&mut self) {
        // SAFETY: our own child, not yet waited for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, ptr::null_mut(), 0);
        }
    }
}

/// Zeroed numbers that parent and child share.
fn shared_numbers(n: usize) -> io::Result<&'static [AtomicI32]> {
    // SAFETY: a new anonymous mapping, placed by the kernel.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            n * size_of::<AtomicI32>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: page aligned, zeroed, long enough, never unmapped.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), n) })
}

/// Main function of the watcher.
fn watch(watched: OwnedFd, lifeline: OwnedFd, groups: &[AtomicI32]) -> ! {
    drop(lifeline);
    // SAFETY: system calls only. A session of its own keeps it from the terminal's signals; the
    // standard descriptors are closed so that whoever reads mpiexec's output sees its end.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"mpiexec-watcher".as_ptr());
        for fd in 0..3 {
            libc::close(fd);
        }
        let mut byte = 0u8;
        while libc::read(watched.as_raw_fd(), ptr::from_mut(&mut byte).cast(), 1) < 0 {}
        for group in groups {
            let group = group.load(Ordering::Relaxed);
            if group > 1 {
                libc::kill(-group, libc::SIGKILL);
            }
        }
        libc::_exit(0)
    }
}
