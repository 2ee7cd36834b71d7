//! Zero copy: large bodies go to the system by reference (vmsplice(2), splice(2)).
//!
//! If both processes are on one machine, the peer's system copies once, out of the sender's pages.
//! Otherwise the network card reads the pages. They must not change until the peer's process has
//! read all bytes. Only that process can tell: bytes that its system has acknowledged may still be
//! in the sender's pages only.

use super::send::{Pages, stream_start, write};
use super::{Broken, Conn, Direction};
use crate::{ProcId, ZeroCopy};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// Bytes that the pipe holds. The kernel's limit for processes without privileges
/// (/proc/sys/fs/pipe-max-size).
const PIPE_BYTES: usize = 1024 * 1024;

/// Bytes spliced into the socket at once: as many whole pages as fit a packet of 64 KiB, header
/// included. With more, the last page would lie across two packets. Measured
/// (docs/measured/tcp.md): 15 pages, 0.88 of the copied bandwidth, 16 pages 0.75 to 0.85.
const SPLICE_BYTES: usize = 15 * 4096;
/// Bytes put into the pipe at once. A choice: four packets, a quarter of the pipe.
const VMSPLICE_BYTES: usize = 4 * SPLICE_BYTES;

/// The pipe by which pages go by reference. A socket that has no room leaves pages in it. Until
/// they have gone, it serves that socket's peer alone.
#[derive(Default)]
pub struct SplicePipe {
    state: PipeState,
}

#[derive(Default)]
enum PipeState {
    /// Nobody has asked for it yet.
    #[default]
    Unmade,
    /// It works.
    Open(Pipe),
    /// The system refuses it, or makes it too small.
    Refused,
}

struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
    /// Bytes in it.
    filled: usize,
    /// The peer to which those bytes go.
    peer: ProcId,
}

impl Pipe {
    /// Makes a pipe of [`PIPE_BYTES`]. A user with many pipes gets small ones, by which bytes go
    /// slower than by copying.
    fn open() -> rustix::io::Result<Pipe> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&input, PIPE_BYTES)?;
        Ok(Pipe {
            output,
            input,
            filled: 0,
            peer: 0,
        })
    }
}

impl SplicePipe {
    /// Returns whether pages can go to this peer by reference now.
    pub fn serves(&mut self, peer: ProcId) -> bool {
        if let PipeState::Unmade = self.state {
            self.state = Pipe::open().map_or(PipeState::Refused, PipeState::Open);
        }
        match &self.state {
            PipeState::Open(pipe) => pipe.filled == 0 || pipe.peer == peer,
            _ => false,
        }
    }

    /// Drops what waits in the pipe for this peer: nothing more goes there.
    pub fn forget(&mut self, peer: ProcId) {
        if let PipeState::Open(pipe) = &self.state
            && pipe.filled > 0
            && pipe.peer == peer
        {
            self.state = PipeState::Unmade;
        }
    }

    /// Gives the socket the pages of `body`. The first of them may be in the pipe already. Returns
    /// how many bytes the socket took.
    pub fn send(&mut self, peer: ProcId, socket: &OwnedFd, body: &[u8]) -> Result<usize, Broken> {
        let mut sent = 0;
        let signal = BlockedSigpipe::new();
        while sent < body.len() {
            let PipeState::Open(pipe) = &mut self.state else {
                break;
            };
            if pipe.filled == 0 {
                let next = &body[sent..body.len().min(sent + VMSPLICE_BYTES)];
                let run = libc::iovec {
                    iov_base: next.as_ptr().cast_mut().cast(),
                    iov_len: next.len(),
                };
                // SAFETY: the system only reads `run` and takes references to the pages that it
                // names, which lie in a live slice.
                let n = unsafe {
                    libc::vmsplice(
                        pipe.input.as_raw_fd(),
                        &raw const run,
                        1,
                        libc::SPLICE_F_NONBLOCK,
                    )
                };
                let Ok(n @ 1..) = usize::try_from(n) else {
                    // These pages cannot go by reference.
                    let mut write_max = usize::MAX;
                    return Ok(sent + write(socket, &mut write_max, &[], &body[sent..])?);
                };
                (pipe.filled, pipe.peer) = (n, peer);
            }
            // Without SPLICE_F_MORE each call makes a packet of its own. The next call's bytes are
            // not to fill it up.
            let none = std::ptr::null_mut();
            // SAFETY: two descriptors that are open, and no offsets.
            let n = unsafe {
                libc::splice(
                    pipe.output.as_raw_fd(),
                    none,
                    socket.as_raw_fd(),
                    none,
                    pipe.filled.min(SPLICE_BYTES),
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            match usize::try_from(n) {
                Ok(0) => break,
                Ok(n) => {
                    sent += n;
                    pipe.filled -= n;
                }
                Err(_) => match Errno::from_io_error(&std::io::Error::last_os_error()) {
                    Some(Errno::AGAIN) => break,
                    Some(Errno::INTR) => {}
                    Some(Errno::INVAL) => self.state = PipeState::Refused,
                    other => {
                        self.state = PipeState::Unmade;
                        if other == Some(Errno::PIPE) {
                            signal.take();
                        }
                        return Err(Broken::System(other.unwrap_or(Errno::IO)));
                    }
                },
            }
        }
        Ok(sent)
    }
}

/// Blocks SIGPIPE in this thread while it lives. splice(2) to a broken connection raises that
/// signal, and has no flag against it.
struct BlockedSigpipe {
    /// The thread's signal mask before.
    before: libc::sigset_t,
    /// The program had blocked SIGPIPE itself, so a pending one is the program's.
    was_blocked: bool,
}

/// A set with SIGPIPE alone.
fn sigpipe() -> libc::sigset_t {
    // SAFETY: sigemptyset initializes the set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGPIPE);
        set
    }
}

impl BlockedSigpipe {
    fn new() -> BlockedSigpipe {
        let set = sigpipe();
        // SAFETY: only this thread's mask changes; `before` is written before it is read.
        unsafe {
            let mut before = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            let was_blocked = libc::sigismember(&raw const before, libc::SIGPIPE) == 1;
            BlockedSigpipe {
                before,
                was_blocked,
            }
        }
    }

    /// Takes the signal that was raised.
    #[cold]
    fn take(&self) {
        if self.was_blocked {
            return;
        }
        let set = sigpipe();
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the set and the time are read only; no information is asked for.
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now) };
    }
}

impl Drop for BlockedSigpipe {
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
    /// Sends from the front of a stream's body as [`Conn::stream`] does. Where that works, the
    /// bytes go to the system by reference.
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
        let sender = &mut self.sender;
        if sender.stream_left == 0 && !sender.is_behind() {
            let len = body.len().min(sender.stream_max);
            let (start, n) = stream_start(message, head, len);
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::MORE;
            let sent = match rustix::net::send(&self.socket, &start[..n], flags) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(0),
                Err(e) => return Err(Broken::System(e)),
            };
            sender.direction = Direction::Open;
            sender.stream_left = len;
            if sent < n {
                sender.queue_rest(&start[..n], &[], sent);
            }
        }
        if sender.is_behind() {
            return Ok(0);
        }
        sender.pages = Pages::Referenced;
        let part = &body[..sender.stream_left.min(body.len())];
        let taken = pipe.send(self.peer, &self.socket, part)?;
        sender.stream_left -= taken;
        Ok(taken)
    }

    /// Prepares to drop the connection. Pages that went by reference are the program's again, and
    /// must not go out later with other bytes in them. So such a connection is reset when it is
    /// closed, whatever its system still holds.
    pub fn give_up(&self) {
        if self.sender.pages == Pages::Referenced {
            // If this is refused, the system goes on trying for a while.
            let _ = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        }
    }
}

#[cfg(test)]
mod tests;
