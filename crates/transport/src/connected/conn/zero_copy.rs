//! Large bodies that are given to the system by reference rather than copied into it (vmsplice(2),
//! splice(2)).
//!
//! The peer's system copies once, out of the sender's own pages, if both are on one machine; a
//! network card reads them where they lie. Until the peer has read all, the pages must stay as they
//! are: that it has is said by its process, for what its system acknowledges may still lie in the
//! sender's memory.

use super::send::{stream_start, write};
use super::{Broken, Conn};
use crate::{ProcId, ZeroCopy};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Bytes that the pipe is to hold: as much as every process may ask for.
const ROOM: usize = 1024 * 1024;

/// Bytes given to the socket at once: as many whole pages as fit a packet of 64 KiB, header
/// included. More would be cut, and the rest go by itself or begin the next packet, whose pages
/// then lie across two.
const PACKET: usize = 15 * 4096;
/// Bytes put into the pipe at once.
const GIVEN: usize = 4 * PACKET;

/// The pipe by which pages go by reference. A socket that has no room leaves pages in it, and then
/// it serves that one's peer alone.
#[derive(Default)]
pub struct SplicePipe {
    ends: Option<(OwnedFd, OwnedFd)>,
    /// Bytes in it …
    left: usize,
    /// … and whose they are.
    whose: ProcId,
    /// The system will not have it.
    refused: bool,
}

impl SplicePipe {
    /// Returns whether pages can go to this peer by reference now.
    pub fn serves(&mut self, peer: ProcId) -> bool {
        if self.refused || self.left > 0 && self.whose != peer {
            return false;
        }
        if self.ends.is_none() {
            match pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) {
                Ok((out, into)) => {
                    // By a small one, which is all that a user with many has, bytes go slower than
                    // by copying.
                    self.refused = fcntl_setpipe_size(&into, ROOM).is_err();
                    self.ends = Some((out, into));
                }
                Err(_) => self.refused = true,
            }
        }
        !self.refused
    }

    /// Nothing more goes to this peer.
    pub fn forget(&mut self, peer: ProcId) {
        if self.left > 0 && self.whose == peer {
            self.empty();
        }
    }

    fn empty(&mut self) {
        (self.ends, self.left) = (None, 0);
    }

    /// Gives the socket the pages of `body`, of which the pipe may hold the first already. Returns
    /// how many bytes it took.
    pub fn give(&mut self, peer: ProcId, socket: &OwnedFd, body: &[u8]) -> Result<usize, Broken> {
        let mut gone = 0;
        let quiet = Quiet::new();
        while gone < body.len() {
            let Some((out, into)) = &self.ends else { break };
            if self.left == 0 {
                let next = &body[gone..body.len().min(gone + GIVEN)];
                let run = libc::iovec {
                    iov_base: next.as_ptr().cast_mut().cast(),
                    iov_len: next.len(),
                };
                // SAFETY: the system only reads `run` and takes references to the pages that it
                // names, which lie in a live slice.
                let n = unsafe {
                    libc::vmsplice(into.as_raw_fd(), &raw const run, 1, libc::SPLICE_F_NONBLOCK)
                };
                let Ok(n @ 1..) = usize::try_from(n) else {
                    // These pages cannot go by reference.
                    let mut most = usize::MAX;
                    return Ok(gone + write(socket, &mut most, &[], &body[gone..])?);
                };
                (self.left, self.whose) = (n, peer);
            }
            // No SPLICE_F_MORE: what a call gives is a packet, and another's bytes are not to fill
            // it up.
            let none = std::ptr::null_mut();
            // SAFETY: two descriptors that are open, and no offsets.
            let n = unsafe {
                libc::splice(
                    out.as_raw_fd(),
                    none,
                    socket.as_raw_fd(),
                    none,
                    self.left.min(PACKET),
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            match usize::try_from(n) {
                Ok(0) => break,
                Ok(n) => {
                    gone += n;
                    self.left -= n;
                }
                Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                    Some(Errno::AGAIN) => break,
                    Some(Errno::INTR) => {}
                    Some(Errno::INVAL) => {
                        self.empty();
                        self.refused = true;
                    }
                    other => {
                        self.empty();
                        if other == Some(Errno::PIPE) {
                            quiet.swallow();
                        }
                        return Err(Broken::System(other.unwrap_or(Errno::IO)));
                    }
                },
            }
        }
        Ok(gone)
    }
}

/// While it lives, writing to a connection that has broken raises no signal: splice(2) cannot be
/// told so.
struct Quiet {
    before: libc::sigset_t,
    /// SIGPIPE was blocked before, or had come: it is the program's.
    theirs: bool,
}

fn pipe_signal() -> libc::sigset_t {
    // SAFETY: sigemptyset initializes the set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        set
    }
}

impl Quiet {
    fn new() -> Quiet {
        let set = pipe_signal();
        // SAFETY: only this thread's mask changes; `before` is written before it is read.
        unsafe {
            let mut before = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            let theirs = libc::sigismember(&raw const before, libc::SIGPIPE) == 1;
            Quiet { before, theirs }
        }
    }

    /// Takes the signal that has come.
    #[cold]
    fn swallow(&self) {
        if self.theirs {
            return;
        }
        let set = pipe_signal();
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the set and the time are read only; no information is asked for.
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now) };
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: this thread's own mask, as it was.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

impl Conn {
    /// As [`Conn::stream`], but the bytes go to the system by reference, where that works.
    pub fn stream_zero_copy(
        &mut self,
        pipe: &mut SplicePipe,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<usize, Broken> {
        if self.zero_copy() == ZeroCopy::Never || !pipe.serves(self.peer) {
            return self.stream(message, head, body);
        }
        if self.is_behind() {
            self.flush()?;
        }
        if self.stream_left == 0 && !self.is_behind() {
            let len = body.len().min(self.stream_max);
            let (start, n) = stream_start(message, head, len);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::MORE;
            let gone = match rustix::net::send(&self.socket, &start[..n], flags) {
                Ok(gone) => gone,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
                Err(e) => return Err(Broken::System(e)),
            };
            self.farewell_said = false;
            self.stream_left = len;
            if gone < n {
                self.keep(&start[..n], &[], gone);
            }
        }
        if self.is_behind() {
            return Ok(0);
        }
        self.lent = true;
        let piece = &body[..self.stream_left.min(body.len())];
        let taken = pipe.give(self.peer, &self.socket, piece)?;
        self.stream_left -= taken;
        Ok(taken)
    }

    /// Nothing more goes this way, whatever its system still holds: what went by reference is the
    /// program's again, and must not go with other bytes in it.
    pub fn give_up(&self) {
        if self.lent {
            // It is closed at once then, and its peer's system told so. If it is refused, the
            // system goes on trying for a while.
            let _ = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }
}

#[cfg(test)]
mod tests;
