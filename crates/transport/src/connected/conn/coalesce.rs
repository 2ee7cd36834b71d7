//! Coalescing: short messages that follow each other go to the socket in one system call.
//!
//! A *run* is what the process sends to one peer between two of its polls. All but the first
//! message of a run are kept; the first, too, once several runs were long ([`Runs`]), so that a
//! single message is not delayed. What is kept goes at the next poll, when it is
//! [`COALESCED_BYTES`], or by the flush thread (`flush_thread`) if the program calls nothing for
//! [`FLUSH_DELAY`]. Encrypted connections keep nothing.

use super::frame::{self, HEADER_BYTES, Kind};
use super::send::write;
use super::{Conn, Direction, FlushThread};
use crate::Body;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Kept bytes that go at once. A choice: half a packet of the largest size (64 KiB), so that the
/// peer reads while the next are collected.
const COALESCED_BYTES: usize = 32 * 1024;
/// Longest message that is kept, bytes. A choice: the layer above batches longer ones.
const COALESCED_MESSAGE_MAX_BYTES: usize = 16 * 1024;
/// How long bytes are kept while the program is outside of MPI. A choice: what a wakeup of the
/// flush thread costs is a few percent of it.
pub const FLUSH_DELAY: Duration = Duration::from_micros(100);
/// The flush thread forgets a connection that has kept nothing at this many looks in a row. A
/// choice: to list it again may need a system call.
const IDLE_LOOKS_MAX: u32 = 10;

/// A run of at least this many messages is long. A choice: its first message waits for the others
/// for less than the system call takes that it saves.
const LONG_RUN_MESSAGES: u32 = 16;
/// After this many long runs one after the other, the first message of a run is kept, too. A
/// choice: what such a program sends next is another long run.
const LONG_RUNS_MIN: u32 = 4;

/// The runs of a connection: how many messages follow each other between two polls.
pub struct Runs {
    /// The poll that the present run follows.
    after_poll: u64,
    /// Messages of the present run.
    messages: u32,
    /// Long runs one after the other, up to [`LONG_RUNS_MIN`].
    long_runs: u32,
}

impl Runs {
    pub(super) const NONE: Runs = Runs {
        after_poll: u64::MAX,
        messages: 0,
        long_runs: 0,
    };

    /// Counts a message that is sent after `polls` polls. Returns whether it is to be kept.
    #[inline]
    pub fn count(&mut self, polls: u64) -> bool {
        if self.after_poll == polls {
            self.messages = self.messages.saturating_add(1);
            return true;
        }
        self.long_runs = match self.messages >= LONG_RUN_MESSAGES {
            true => LONG_RUNS_MIN.min(self.long_runs + 1),
            false => 0,
        };
        self.after_poll = polls;
        self.messages = 1;
        self.long_runs == LONG_RUNS_MIN
    }
}

/// What a connection has kept. Shared with the flush thread.
pub struct Coalesced {
    socket: Arc<OwnedFd>,
    kept: Mutex<Kept>,
}

struct Kept {
    bytes: Vec<u8>,
    /// Bytes at the front that the socket has taken.
    sent: usize,
    /// When the first of them was kept.
    since: Instant,
    write_max: usize,
    /// The flush thread looks here.
    listed: bool,
    /// Looks of the flush thread in a row that found nothing.
    idle_looks: u32,
    /// The flush thread has sent something: the program was outside of MPI in the middle of a run.
    interrupted: bool,
}

impl Kept {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Hands the socket what it has room for. A fault is found by reading.
    fn write(&mut self, socket: &OwnedFd) {
        let rest = &self.bytes[self.sent..];
        self.sent += write(socket, &mut self.write_max, rest, &[]).unwrap_or(0);
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
}

impl Coalesced {
    fn new(socket: Arc<OwnedFd>, write_max: usize) -> Arc<Coalesced> {
        let kept = Mutex::new(Kept {
            bytes: Vec::new(),
            sent: 0,
            since: Instant::now(),
            write_max,
            listed: false,
            idle_looks: 0,
            interrupted: false,
        });
        Arc::new(Coalesced { socket, kept })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what is older than [`FLUSH_DELAY`]. Returns whether the flush thread looks again.
    pub fn flush_old(&self) -> bool {
        let mut kept = self.kept();
        if kept.is_empty() {
            kept.idle_looks += 1;
            kept.listed = kept.idle_looks < IDLE_LOOKS_MAX;
            return kept.listed;
        }
        kept.idle_looks = 0;
        if kept.since.elapsed() >= FLUSH_DELAY {
            kept.interrupted = true;
            kept.write(&self.socket);
        }
        true
    }
}

impl Conn {
    /// Keeps a message for others to follow it. False: it must be sent by [`Conn::send`].
    #[inline]
    pub fn coalesce(
        &mut self,
        thread: &mut FlushThread,
        message: u8,
        head: &[u8],
        body: &Body<'_>,
    ) -> bool {
        let Body::Bytes(bytes) = *body else {
            return false;
        };
        let len = head.len() + bytes.len();
        if len > COALESCED_MESSAGE_MAX_BYTES
            || self.seal.is_some()
            || self.sender.is_behind()
            || self.in_stream()
        {
            return false;
        }
        let (socket, write_max) = (&self.socket, self.sender.write_max);
        let coalesced = self
            .coalesced
            .get_or_insert_with(|| Coalesced::new(socket.clone(), write_max));
        let mut kept = coalesced.kept();
        if std::mem::take(&mut kept.interrupted) {
            self.runs.long_runs = 0;
        }
        if kept.is_empty() {
            if !kept.listed {
                kept.listed = thread.list(coalesced);
                if !kept.listed {
                    return false;
                }
            }
            kept.idle_looks = 0;
            kept.since = Instant::now();
        }
        let header = frame::header(Kind::Whole, message, 0, len);
        kept.bytes.reserve(HEADER_BYTES + len);
        kept.bytes.extend_from_slice(&header);
        kept.bytes.extend_from_slice(head);
        kept.bytes.extend_from_slice(bytes);
        if kept.bytes.len() - kept.sent >= COALESCED_BYTES {
            kept.write(&self.socket);
            self.sender.write_max = self.sender.write_max.min(kept.write_max);
        }
        self.keeps = !kept.is_empty();
        // The socket is full: what it did not take goes to the queue, which is bounded.
        let full = kept.bytes.len() - kept.sent >= COALESCED_BYTES;
        drop(kept);
        if full {
            self.take_coalesced();
        }
        self.sender.direction = Direction::Open;
        true
    }

    /// Moves what was kept to the queue, in front of what is sent next.
    #[inline]
    pub(super) fn take_coalesced(&mut self) {
        if self.keeps {
            self.take_kept();
        }
    }

    fn take_kept(&mut self) {
        self.keeps = false;
        let Some(coalesced) = &self.coalesced else {
            return;
        };
        let mut kept = coalesced.kept();
        if kept.is_empty() {
            return;
        }
        // Nothing is kept while the queue has bytes, so the queue is empty.
        debug_assert!(!self.sender.is_behind());
        self.sender.queue.clear();
        std::mem::swap(&mut self.sender.queue, &mut kept.bytes);
        self.sender.queue_sent = std::mem::take(&mut kept.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::{LONG_RUN_MESSAGES, LONG_RUNS_MIN, Runs};

    /// Counts `messages` after poll `poll`; returns whether the first of them is kept.
    fn run(runs: &mut Runs, poll: u64, messages: u32) -> bool {
        let first = runs.count(poll);
        for _ in 1..messages {
            assert!(runs.count(poll), "a message that follows another is kept");
        }
        first
    }

    #[test]
    fn first_message_is_kept_after_long_runs_only() {
        let mut runs = Runs::NONE;
        for poll in 0..u64::from(LONG_RUNS_MIN) {
            assert!(!run(&mut runs, poll, LONG_RUN_MESSAGES), "run {poll}");
        }
        assert!(run(&mut runs, 10, LONG_RUN_MESSAGES));
        assert!(run(&mut runs, 20, LONG_RUN_MESSAGES - 1));
        assert!(!run(&mut runs, 30, LONG_RUN_MESSAGES), "after a short run");
        assert!(!run(&mut runs, 31, 1));
    }

    #[test]
    fn single_messages_are_never_kept() {
        let mut runs = Runs::NONE;
        assert!((0..100).all(|poll| !runs.count(poll)));
    }
}
