//! Large bodies that are lent to the system rather than copied into it (vmsplice(2), splice(2)).
//!
//! The peer's system copies once, out of the sender's own pages, if both are on one machine; a
//! network card reads them where they lie. Until the peer has read all, the pages must stay as they
//! are: that it has is said by its process, for what its system acknowledges may still lie in the
//! sender's memory.

use super::{Broken, write};
use crate::ProcId;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes that the pipe is to hold: as much as every process may ask for.
const ROOM: usize = 1024 * 1024;

/// Bytes given to the socket at once: as many whole pages as fit a packet of 64 KiB, header
/// included. More would be cut, and the rest go by itself or begin the next packet, whose pages
/// then lie across two.
const PACKET: usize = 15 * 4096;
/// Bytes put into the pipe at once.
const GIVEN: usize = 4 * PACKET;

/// The pipe by which pages are lent. A socket that has no room leaves pages in it, and then it
/// serves that one's peer alone.
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
    /// Can pages be lent to this peer now?
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
                    // These pages cannot be lent.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
    }

    /// Reads all that is there.
    fn drain(socket: &OwnedFd, into: &mut Vec<u8>) {
        let mut space = [0; 65536];
        while let Ok((n, _)) = recv(socket, &mut space, RecvFlags::DONTWAIT) {
            into.extend_from_slice(&space[..n]);
        }
    }

    #[test]
    fn all_bytes_arrive_and_a_full_socket_keeps_the_pipe() {
        let (near, far) = pair();
        let body: Vec<u8> = (0..5_000_003usize).map(|i| (i / 7) as u8).collect();
        let mut splice_pipe = SplicePipe::default();
        assert!(splice_pipe.serves(1));
        let mut at = splice_pipe.give(1, &near, &body).unwrap();
        assert!(at < body.len() && splice_pipe.left > 0);
        assert!(splice_pipe.serves(1) && !splice_pipe.serves(2));
        let mut came = Vec::new();
        while at < body.len() {
            drain(&far, &mut came);
            at += splice_pipe.give(1, &near, &body[at..]).unwrap();
        }
        drain(&far, &mut came);
        assert!(came == body);
        assert!(splice_pipe.serves(2));
    }

    #[test]
    fn what_is_left_of_a_peer_that_has_gone_reaches_nobody() {
        let (near, far) = pair();
        let mut splice_pipe = SplicePipe::default();
        assert!(splice_pipe.serves(1));
        let at = splice_pipe.give(1, &near, &vec![1; 3_000_000]).unwrap();
        assert!(at < 3_000_000);
        splice_pipe.forget(1);
        drop((near, far));
        let (near, far) = pair();
        assert!(splice_pipe.serves(2));
        assert_eq!(splice_pipe.give(2, &near, &[2; 5000]).unwrap(), 5000);
        let mut came = Vec::new();
        drain(&far, &mut came);
        assert!(came == [2; 5000]);
    }

    static RAISED: AtomicBool = AtomicBool::new(false);

    extern "C" fn raised(_: libc::c_int) {
        RAISED.store(true, Ordering::Relaxed);
    }

    #[test]
    fn a_broken_connection_is_an_error_and_no_signal() {
        let handler: extern "C" fn(libc::c_int) = raised;
        // SAFETY: the handler only stores a flag; nothing else in this process wants the signal.
        unsafe { libc::signal(libc::SIGPIPE, handler as libc::sighandler_t) };
        let (near, far) = pair();
        drop(far);
        let mut splice_pipe = SplicePipe::default();
        assert!(splice_pipe.serves(1));
        assert!(splice_pipe.give(1, &near, &[1; 100_000]).is_err());
        assert!(splice_pipe.serves(2), "nothing is left of it");
        assert!(!RAISED.load(Ordering::Relaxed));
    }
}
