//! mpiexec's own standard output and error: a queue that is written without blocking.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

/// While this many bytes wait to be written, nothing more is read from the ranks. Enough to keep
/// the reader of the output busy; small beside the ranks.
pub(super) const QUEUE_HIGH_BYTES: usize = 1 << 20;

/// The descriptor of a channel and the queue before it.
pub(super) struct Sink {
    pub(super) number: RawFd,
    pub(super) kind: SinkKind,
    pub(super) queue: Vec<u8>,
    pub(super) written: usize,
    pub(super) broken: bool,
    pub(super) terminal: bool,
    /// The stream whose unfinished line was written last.
    pub(super) inside: Option<usize>,
}

pub(super) enum SinkKind {
    /// A pipe or terminal, opened again as non-blocking. The shared open file description stays
    /// blocking.
    Reopened(OwnedFd),
    Socket,
    /// A pipe that could not be opened again. Written in pieces of PIPE_BUF when poll says that
    /// there is room.
    Careful,
    /// A regular file. It always takes all.
    File,
}

impl Sink {
    pub(super) fn new(number: RawFd) -> Sink {
        // SAFETY: Rust's runtime sees to it that 1 and 2 are open, and nobody closes them.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let kind = match fstat(fd).map(|s| FileType::from_raw_mode(s.st_mode)) {
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                let again = format!("/proc/self/fd/{number}");
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                open(again, flags, Mode::empty()).map_or(SinkKind::Careful, SinkKind::Reopened)
            }
            Ok(FileType::Socket) => SinkKind::Socket,
            _ => SinkKind::File,
        };
        let terminal = rustix::termios::isatty(fd);
        Sink {
            number,
            kind,
            queue: Vec::new(),
            written: 0,
            broken: false,
            terminal,
            inside: None,
        }
    }

    pub(super) fn waiting(&self) -> &[u8] {
        &self.queue[self.written..]
    }

    pub(super) fn descriptor(&self) -> RawFd {
        match &self.kind {
            SinkKind::Reopened(fd) => fd.as_raw_fd(),
            _ => self.number,
        }
    }

    /// Queues `first` and `rest`, which belong together. `continued`: the beginning of the line is
    /// queued already.
    pub(super) fn put(
        &mut self,
        stream: usize,
        label: bool,
        continued: bool,
        first: &[u8],
        rest: &[u8],
    ) {
        if self.broken || first.is_empty() && rest.is_empty() {
            return;
        }
        let mut starts_line = !continued || self.inside != Some(stream);
        if self.inside.is_some_and(|owner| owner != stream) {
            self.queue.push(b'\n');
        }
        if label && stream != usize::MAX {
            let label = format!("[{}] ", stream / 2);
            for piece in [first, rest] {
                for line in piece.split_inclusive(|&b| b == b'\n') {
                    if starts_line {
                        self.queue.extend_from_slice(label.as_bytes());
                    }
                    self.queue.extend_from_slice(line);
                    starts_line = line.ends_with(b"\n");
                }
            }
        } else {
            self.queue.extend_from_slice(first);
            self.queue.extend_from_slice(rest);
        }
        self.inside = (self.queue.last() != Some(&b'\n')).then_some(stream);
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.written < self.queue.len() {
            match self.write_some() {
                Ok(n) => self.written += n,
                Err(Errno::AGAIN) => {
                    // Free the written part of the queue.
                    if self.written > QUEUE_HIGH_BYTES {
                        self.queue.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(e) => {
                    self.broken = true;
                    self.queue.clear();
                    self.written = 0;
                    return Err(e.into());
                }
            }
        }
        self.queue.clear();
        self.written = 0;
        Ok(())
    }

    fn write_some(&self) -> Result<usize, Errno> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::net::{SendFlags, send};
        // SAFETY: as in `new`.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        let bytes = self.waiting();
        match &self.kind {
            SinkKind::Reopened(fd) => rustix::io::write(fd, bytes),
            SinkKind::Socket => send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            SinkKind::File => rustix::io::write(fd, bytes),
            SinkKind::Careful => {
                let mut ready = [PollFd::new(&fd, PollFlags::OUT)];
                if poll(
                    &mut ready,
                    Some(&Timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    }),
                )? == 0
                {
                    return Err(Errno::AGAIN);
                }
                // A pipe that is ready takes at least PIPE_BUF bytes.
                rustix::io::write(fd, &bytes[..bytes.len().min(libc::PIPE_BUF)])
            }
        }
    }
}
