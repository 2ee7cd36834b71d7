//! A rank's side of the simulation: its clock, the commands that it issues, and its card's events.

mod wait;

use super::segment::{Mailbox, ModelSegment, QUEUE_MAX_BYTES, state};
use super::{Rank, encoding};
use crate::time::Time;
use encoding::RECORD_MAX_BYTES;
use rustix::thread::futex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Turns of the loop in which a rank looks for its turn before it sleeps. Only where each rank has
/// a core and one is to spare.
const TURN_SPINS: u32 = 2000;

/// Something that the card has for its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it came.
    pub time: Time,
    /// What it is, in the card's own numbers.
    pub kind: u32,
    /// What it carries.
    pub bytes: Vec<u8>,
}

/// What work of one kind has cost a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often.
    pub times: u64,
    /// In all.
    pub time: Time,
}

/// How far a rank is with a poll of its card.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Poll {
    /// The next poll is a new one.
    New,
    /// The next poll is a new one and may be deferred.
    Deferrable,
    /// A poll has begun and is deferred until the rank waits.
    Deferred,
    /// The deferred poll is done. The next one begins with what it has found.
    Done,
}

/// A rank's access to its card and to virtual time. Not shared between threads: who uses it holds
/// the device.
pub struct Client {
    segment: &'static ModelSegment,
    me: Rank,
    mailbox: &'static Mailbox,
    /// Picoseconds. Shared with what tells the program the time.
    clock: &'static AtomicU64,
    /// Nothing changes for the rank before this time unless it issues commands.
    horizon: Time,
    /// Encoded commands that have not been handed over.
    commands: Vec<u8>,
    /// Events that have come and have not been taken.
    events: VecDeque<Event>,
    /// Encoded events as they were in the mailbox. Kept to reuse its memory.
    encoded_events: Vec<u8>,
    /// Something has come since the rank last polled and found nothing more.
    unseen: bool,
    /// The rank has waited and time has passed, since [`Client::take_waited`].
    waited: bool,
    /// The rank has said that it waits, and has not gone on since.
    waiting: bool,
    /// [`Mailbox::turn`] when the rank last waited or left.
    seen_turn: u32,
    /// State in which it waits: `WAITING` or `POLLING`.
    waiting_state: u32,
    poll: Poll,
    /// Several threads may call MPI at once.
    concurrent: bool,
    left: bool,
    costs: Vec<(&'static str, Cost)>,
    /// Messages and bytes that the program has sent.
    sent: (u64, u64),
    traced: bool,
    spins: u32,
    /// Number of cores that the ranks were spread over when this one last looked.
    cores: u32,
}

impl Client {
    /// Rank `me` joins the job. Its first [`Client::sync`] or wait ends when all ranks have joined.
    pub fn join(segment: ModelSegment, me: Rank) -> Client {
        let segment: &'static ModelSegment = Box::leak(Box::new(segment));
        let mailbox = segment.mailbox(me);
        mailbox.state.store(state::RUNNING, Ordering::SeqCst);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Client {
            segment,
            me,
            mailbox,
            clock: Box::leak(Box::new(AtomicU64::new(0))),
            horizon: Time::ZERO,
            commands: Vec::new(),
            events: VecDeque::new(),
            encoded_events: Vec::new(),
            unseen: false,
            waited: false,
            waiting: false,
            seen_turn: 0,
            waiting_state: state::WAITING,
            poll: Poll::New,
            concurrent: false,
            left: false,
            costs: Vec::new(),
            sent: (0, 0),
            traced: segment.header().traced.load(Ordering::Relaxed) != 0,
            spins: if cores > segment.ranks() as usize {
                TURN_SPINS
            } else {
                0
            },
            cores: 1,
        }
    }

    /// This rank.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.segment.ranks()
    }

    /// Several threads of this rank may call MPI at once. While one waits another may go on.
    pub fn set_concurrent(&mut self) {
        self.mailbox.concurrent.store(1, Ordering::Relaxed);
        self.concurrent = true;
    }

    /// The rank's clock in picoseconds, for what tells the program the time. Lives as long as the
    /// process.
    pub fn clock(&self) -> &'static AtomicU64 {
        self.clock
    }

    /// The rank's virtual time.
    #[inline]
    pub fn now(&self) -> Time {
        Time::ps(self.clock.load(Ordering::Relaxed))
    }

    /// Advances the rank's clock by `cost`: its processor works on `cause`.
    #[inline]
    pub fn charge(&mut self, cause: &'static str, cost: Time) {
        self.ensure_turn();
        let began = self.now();
        self.clock.store((began + cost).as_ps(), Ordering::Relaxed);
        // Causes are few, and each is one string of the driver's.
        let known = self.costs.iter_mut().find(|(c, _)| std::ptr::eq(*c, cause));
        let entry = match known {
            Some((_, entry)) => entry,
            None => {
                self.costs.push((cause, Cost::default()));
                let last = self.costs.len() - 1;
                &mut self.costs[last].1
            }
        };
        entry.times += 1;
        entry.time += cost;
        if self.traced && cost > Time::ZERO {
            let span = [&cost.as_ps().to_le_bytes()[..], cause.as_bytes()];
            self.append(began, encoding::SPAN, &span);
        }
    }

    /// What the work has cost so far, by cause.
    pub fn costs(&self) -> &[(&'static str, Cost)] {
        &self.costs
    }

    /// Issues a command at the rank's clock. Returns at once.
    ///
    /// `kind` and the bytes are the card's business: at most [`RECORD_MAX_BYTES`] in all parts
    /// together, and what the card needs of the rank's memory is among them. What the card makes of
    /// it is seen after the next [`Client::sync`] or wait. Panics if the command is too long.
    pub fn command(&mut self, kind: u32, parts: &[&[u8]]) {
        debug_assert!(kind < encoding::KERNEL_KINDS);
        self.ensure_turn();
        let now = self.now();
        self.append(now, kind, parts);
        let response_times = &self.segment.header().response_times;
        let response = response_times.get(kind as usize);
        let response = response.map_or(0, |r| r.load(Ordering::Relaxed));
        self.horizon = self.horizon.min(now + Time::ps(response));
    }

    fn append(&mut self, time: Time, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        assert!(len <= RECORD_MAX_BYTES, "a command of {len} bytes");
        if self.commands.len() + encoding::encoded_len(len) > QUEUE_MAX_BYTES {
            self.catch_up();
        }
        encoding::append(&mut self.commands, time, kind, parts);
    }

    /// Lets the model do everything up to the rank's clock. Events and the card's memory are then
    /// as they are at this time. Blocks until the other ranks have stopped, too.
    pub fn sync(&mut self) {
        self.ensure_turn();
        if self.now() >= self.horizon {
            self.catch_up();
        }
    }

    #[cold]
    fn catch_up(&mut self) {
        let seen = self.stop(state::SYNCING, Time::ZERO);
        self.await_turn(seen);
        self.take_turn();
    }

    /// The caller's next poll is followed by a wait ([`Client::begin_wait`]) if it finds nothing.
    /// Then the poll may be deferred until the wait, and both are one stop.
    pub fn may_defer_poll(&mut self) {
        // Another thread may go on in the middle.
        if !self.concurrent && self.poll == Poll::New {
            self.poll = Poll::Deferrable;
        }
    }

    /// A poll begins. Returns false if it is the end of a deferred one; then events and memory are
    /// as of the rank's clock.
    pub fn begin_poll(&mut self) -> bool {
        match std::mem::replace(&mut self.poll, Poll::New) {
            Poll::Deferred => {
                self.sync();
                false
            }
            Poll::Done => false,
            before => {
                self.poll = before;
                true
            }
        }
    }

    /// Returns whether the poll that has begun can be deferred. Not if something is known to be
    /// there.
    pub fn can_defer_poll(&self) -> bool {
        let known =
            !self.events.is_empty() || self.mailbox.more_events.load(Ordering::Relaxed) != 0;
        self.poll == Poll::Deferrable && self.now() >= self.horizon && !known
    }

    /// Defers the poll that has begun.
    pub fn defer_poll(&mut self) {
        self.poll = Poll::Deferred;
    }

    /// The poll has ended. `found`: there was something.
    pub fn end_poll(&mut self, found: bool) {
        self.unseen &= found;
        if self.poll == Poll::Deferrable {
            self.poll = Poll::New;
        }
    }

    /// Returns whether something may have come that the rank has not seen. A turn that it took to
    /// issue commands may have brought it.
    pub fn has_unseen_events(&self) -> bool {
        self.unseen
    }

    /// Returns whether the rank has waited, and time has passed meanwhile, since this was last
    /// asked. A driver that sleeps while it waits pays for the interrupt and for its waking then.
    pub fn take_waited(&mut self) -> bool {
        std::mem::take(&mut self.waited)
    }

    /// Returns whether a poll has been deferred and not been done yet.
    pub fn is_poll_deferred(&self) -> bool {
        self.poll == Poll::Deferred
    }

    /// The next thing that the card has for this rank, if it came before the last [`Client::sync`]
    /// or wait. First come, first served.
    #[inline]
    pub fn event(&mut self) -> Option<Event> {
        if self.events.is_empty() && self.mailbox.more_events.load(Ordering::Relaxed) != 0 {
            self.sync();
        }
        self.events.pop_front()
    }

    /// Returns whether there are events to be taken.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The rank takes no part any more. What it has issued is still done. Its next call brings it
    /// back, at the time that it is then.
    pub fn leave(&mut self) {
        self.ensure_turn();
        for (cause, cost) in std::mem::take(&mut self.costs) {
            let numbers = [cost.times.to_le_bytes(), cost.time.as_ps().to_le_bytes()];
            let now = self.now();
            let parts = [numbers.as_flattened(), cause.as_bytes()];
            self.append(now, encoding::COST, &parts);
        }
        let sent = [self.sent.0.to_le_bytes(), self.sent.1.to_le_bytes()];
        let now = self.now();
        self.append(now, encoding::SENT, &[sent.as_flattened()]);
        self.seen_turn = self.stop(state::LEFT, Time::ZERO);
        self.left = true;
    }

    /// Messages and bytes that the rank's program has sent so far, for the report.
    pub fn set_sent(&mut self, messages: u64, bytes: u64) {
        self.sent = (messages, bytes);
    }

    /// Returns whether the rank has left.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Reads the memory that the card maps, from byte `at` on, as of the last [`Client::sync`] or
    /// wait. Panics beyond the end.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        self.segment.read(self.me, at, bytes);
    }

    /// Start and length in bytes of the memory that the card maps. Lives as long as the process.
    pub fn mapped_memory(&self) -> (*mut u8, usize) {
        (
            self.segment.mapped_memory(self.me),
            self.segment.mapped_bytes(),
        )
    }

    /// Reads a word of the memory that the card maps. Panics beyond the end.
    #[inline]
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le(self.segment.word(self.me, at))
    }

    /// Writes into the memory that the card maps. Only for memory that the card reads on a command
    /// that says so. Panics beyond the end.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.ensure_turn();
        self.segment.write(self.me, at, bytes);
    }
}

/// Raises a wakeup word and wakes one of those who sleep on it.
pub(super) fn wake_one(word: &AtomicU32) {
    word.fetch_add(1, Ordering::SeqCst);
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Sleeps until `word` is no longer `seen`.
pub fn sleep(word: &AtomicU32, seen: u32) {
    while word.load(Ordering::SeqCst) == seen {
        let _ = futex::wait(word, futex::Flags::empty(), seen, None);
    }
}

#[cfg(test)]
mod tests;
