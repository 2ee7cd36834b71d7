//! Standard input of mpiexec, for the ranks that read it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::options::StdinTarget;
use crate::protocol::CHUNK_MAX_BYTES;

/// How ranks get their standard input.
pub enum Input {
    /// All ranks read nothing.
    Nothing,
    /// This rank has mpiexec's own descriptor, and reads no more of it than it needs.
    Inherited(u32),
    /// mpiexec reads and copies. For terminals, which only the foreground process group may read,
    /// and for several readers.
    Copied(StdinCopier),
    /// mpiexec reads and sends to the hosts whose ranks read.
    Sent(StdinSender),
}

/// Reads standard input for other hosts, one chunk at a time.
pub struct StdinSender {
    /// Hosts that have not acknowledged the last chunk.
    pub outstanding_acks: usize,
    /// All ranks that read run.
    pub enabled: bool,
    ended: bool,
    terminal: bool,
    in_background: bool,
}

/// Copies standard input into pipes.
pub struct StdinCopier {
    target: StdinTarget,
    writers: Vec<Writer>,
    buffer: Vec<u8>,
    ended: bool,
    terminal: bool,
    /// Not in the terminal's foreground: reading would stop mpiexec.
    in_background: bool,
}

struct Writer {
    pipe: OwnedFd,
    at: usize,
}

/// What to poll for.
#[derive(Debug, PartialEq)]
pub enum WaitFor {
    /// Standard input to become readable.
    Input,
    /// Room in one of these pipes.
    Room(Vec<RawFd>),
    /// Nothing now.
    Nothing,
}

impl Input {
    /// Chooses the way that fits. `remote`: ranks are on other hosts.
    pub fn new(target: StdinTarget, remote: bool) -> Input {
        let terminal = rustix::termios::isatty(standard_input());
        match target {
            StdinTarget::None => Input::Nothing,
            _ if remote => Input::Sent(StdinSender {
                outstanding_acks: 0,
                enabled: false,
                ended: false,
                terminal,
                in_background: false,
            }),
            StdinTarget::Rank(rank) if !terminal => Input::Inherited(rank),
            _ => Input::Copied(StdinCopier {
                target,
                writers: Vec::new(),
                buffer: Vec::new(),
                ended: false,
                terminal,
                in_background: false,
            }),
        }
    }
}

impl StdinSender {
    /// What to wait for.
    pub fn waits_for(&self) -> WaitFor {
        if self.enabled && !self.ended && !self.in_background && self.outstanding_acks == 0 {
            WaitFor::Input
        } else {
            WaitFor::Nothing
        }
    }

    /// Reads once. Returns a chunk, an empty one at the end, or `None` if there is nothing now.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        if is_background(self.terminal) {
            self.in_background = true;
            return None;
        }
        let mut piece = vec![0; CHUNK_MAX_BYTES];
        let n = match rustix::io::read(standard_input(), piece.as_mut_slice()) {
            Ok(n) => n,
            Err(Errno::INTR | Errno::AGAIN) => return None,
            Err(_) => 0,
        };
        self.ended = n == 0;
        piece.truncate(n);
        Some(piece)
    }

    /// mpiexec may be in the foreground again.
    pub fn resume(&mut self) {
        self.in_background = false;
    }
}

/// Not in the terminal's foreground: reading would stop mpiexec.
fn is_background(terminal: bool) -> bool {
    // SAFETY: asks for numbers only.
    terminal && unsafe { libc::tcgetpgrp(0) != libc::getpgrp() }
}

impl StdinCopier {
    /// For an agent, which gets standard input from mpiexec.
    pub fn for_agent() -> StdinCopier {
        StdinCopier {
            target: StdinTarget::All,
            writers: Vec::new(),
            buffer: Vec::new(),
            ended: false,
            terminal: false,
            in_background: false,
        }
    }

    /// A chunk from mpiexec. Empty at the end.
    pub fn offer(&mut self, bytes: Vec<u8>) {
        self.ended = bytes.is_empty();
        self.buffer = bytes;
        self.writers.iter_mut().for_each(|w| w.at = 0);
        self.write();
    }

    /// All readers have taken the last chunk, or are gone.
    pub fn is_empty(&self) -> bool {
        self.writers.iter().all(|w| w.at == self.buffer.len())
    }

    /// A pipe's reading end for a rank. `None` if the rank does not read.
    pub fn reader(&mut self, rank: u32) -> io::Result<Option<OwnedFd>> {
        if self.target != StdinTarget::All && self.target != StdinTarget::Rank(rank) {
            return Ok(None);
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&writer, OFlags::NONBLOCK)?;
        self.writers.push(Writer {
            pipe: writer,
            at: 0,
        });
        Ok(Some(reader))
    }

    /// What to wait for.
    pub fn waits_for(&self) -> WaitFor {
        if self.writers.is_empty() || self.in_background {
            WaitFor::Nothing
        } else if self.writers.iter().all(|w| w.at == self.buffer.len()) {
            if self.ended {
                WaitFor::Nothing
            } else {
                WaitFor::Input
            }
        } else {
            let behind = self.writers.iter().filter(|w| w.at < self.buffer.len());
            WaitFor::Room(behind.map(|w| w.pipe.as_raw_fd()).collect())
        }
    }

    /// mpiexec may be in the foreground again.
    pub fn resume(&mut self) {
        self.in_background = false;
    }

    /// Standard input is readable: reads once and writes to the pipes.
    pub fn read(&mut self) {
        if is_background(self.terminal) {
            self.in_background = true;
            return;
        }
        self.buffer.resize(CHUNK_MAX_BYTES, 0);
        let n = match rustix::io::read(standard_input(), self.buffer.as_mut_slice()) {
            Ok(n) => n,
            Err(Errno::INTR | Errno::AGAIN) => {
                self.buffer.truncate(0);
                self.writers.iter_mut().for_each(|w| w.at = 0);
                return;
            }
            Err(_) => 0,
        };
        self.buffer.truncate(n);
        self.ended = n == 0;
        self.writers.iter_mut().for_each(|w| w.at = 0);
        self.write();
    }

    /// Writes what the pipes take. A reader that is gone is removed. At the end of the input the
    /// pipes are closed.
    pub fn write(&mut self) {
        let buffer = &self.buffer;
        self.writers.retain_mut(|writer| {
            while writer.at < buffer.len() {
                match rustix::io::write(&writer.pipe, &buffer[writer.at..]) {
                    Ok(n) => writer.at += n,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(_) => return false,
                }
            }
            true
        });
        if self.ended {
            self.writers.retain(|w| w.at < self.buffer.len());
        }
    }
}

/// Descriptor 0.
pub fn standard_input() -> BorrowedFd<'static> {
    // SAFETY: Rust's runtime sees to it that 0 is open, and nobody closes it.
    unsafe { BorrowedFd::borrow_raw(0) }
}
