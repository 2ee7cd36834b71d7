//! What happens next: scheduled events and commands in order, and the ranks that go on.

use crate::kernel::encoding::{self, RECORD_MAX_BYTES};
use crate::kernel::{ModelSegment, Rank, Trace, Track};
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::RankUsage;

/// The order of entries: time, rank, events before commands, sequence number. It does not depend on
/// when a rank has handed its commands over.
pub(super) type Key = (Time, Rank, bool, u64);

/// What an entry of the calendar does.
pub(super) enum Action<E> {
    /// A rank's command reaches its card.
    Command { kind: u32, bytes: Vec<u8> },
    /// An event of the hardware.
    Event(E),
}

/// An entry of the calendar.
pub(super) struct Entry<E> {
    pub key: Key,
    pub action: Action<E>,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// What a rank does, as the model knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    /// It has the turn.
    Running,
    /// It waits until the card has something for it.
    Waiting,
    /// It waits unless something is there at its clock.
    Polling,
    /// It goes on when the model has reached its clock.
    Syncing,
    /// It takes no part any more.
    Left,
}

/// A rank, as the model knows it.
pub(super) struct RankContext {
    pub status: Status,
    pub clock: Time,
    /// How often it polls while it waits.
    pub poll_period: Time,
    /// How often it has changed between running and stopped. Tells a resume that is out of date
    /// from one that still holds.
    pub changes: u64,
    /// A resume is scheduled for it.
    pub resumes: bool,
    /// Encoded events that it has not been given.
    pub pending: Vec<u8>,
    /// One of these events is to wake it.
    pub wakes: bool,
    pub usage: RankUsage,
}

impl RankContext {
    pub fn new() -> RankContext {
        RankContext {
            status: Status::Running,
            clock: Time::ZERO,
            poll_period: Time::ZERO,
            changes: 0,
            resumes: false,
            pending: Vec::new(),
            wakes: false,
            usage: RankUsage::default(),
        }
    }
}

/// What a model's hardware can do: read the clock, schedule events, reach the ranks.
pub struct Kernel<E> {
    pub(super) segment: ModelSegment,
    pub(super) now: Time,
    pub(super) queue: BinaryHeap<Reverse<Entry<E>>>,
    /// What the model has just scheduled. It is not in the queue yet.
    pub(super) scheduled: Vec<Entry<E>>,
    /// Ranks that go on: time, rank, and [`RankContext::changes`] when it was scheduled.
    pub(super) resumes: BinaryHeap<Reverse<(Time, Rank, u64)>>,
    sequence: u64,
    pub(super) ranks: Vec<RankContext>,
    pub(super) trace: Option<Trace>,
    /// Why the job is to end.
    pub(super) failure: Option<String>,
}

impl<E> Kernel<E> {
    pub(super) fn new(segment: ModelSegment, trace: Option<Trace>) -> Kernel<E> {
        Kernel {
            now: Time::ZERO,
            queue: BinaryHeap::new(),
            scheduled: Vec::new(),
            resumes: BinaryHeap::new(),
            sequence: 0,
            ranks: (0..segment.ranks()).map(|_| RankContext::new()).collect(),
            trace,
            failure: None,
            segment,
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Schedules `event` for `time`, or for now if that has passed. `owner` orders it among events
    /// of the same instant. Events of one instant and owner come in the order of their scheduling.
    pub fn schedule_at(&mut self, time: Time, owner: Rank, event: E) {
        let key = self.key(time, owner, false);
        let action = Action::Event(event);
        self.scheduled.push(Entry { key, action });
    }

    /// Schedules `event` for `delay` from now.
    pub fn schedule_after(&mut self, delay: Time, owner: Rank, event: E) {
        self.schedule_at(self.now + delay, owner, event);
    }

    /// Returns whether something is due, now or later.
    pub(super) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.resumes.is_empty()
    }

    pub(super) fn key(&mut self, time: Time, rank: Rank, is_command: bool) -> Key {
        self.sequence += 1;
        (time.max(self.now), rank, is_command, self.sequence)
    }

    pub(super) fn schedule_resume(&mut self, time: Time, rank: Rank, changes: u64) {
        let time = time.max(self.now);
        self.resumes.push(Reverse((time, rank, changes)));
    }

    /// Gives a rank an [`Event`](crate::Event) and wakes it if it waits. At most
    /// [`RECORD_MAX_BYTES`] bytes; panics if there are more.
    pub fn notify(&mut self, rank: Rank, kind: u32, parts: &[&[u8]]) {
        self.post(rank, kind, parts);
        self.ranks[rank as usize].wakes = true;
        self.wake(rank);
    }

    /// Gives a rank an event without waking it. The rank gets it when it next goes on. Panics like
    /// [`Kernel::notify`].
    pub fn post(&mut self, rank: Rank, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        assert!(len <= RECORD_MAX_BYTES, "an event of {len} bytes");
        let pending = &mut self.ranks[rank as usize].pending;
        encoding::append(pending, self.now, kind, parts);
    }

    /// Lets a waiting rank go on, with or without an event. What it waits for may be in the memory
    /// that its card maps.
    pub fn wake(&mut self, rank: Rank) {
        self.wake_at(rank, self.now);
    }

    /// As [`Kernel::wake`], at `time` if that is later than now.
    pub(super) fn wake_at(&mut self, rank: Rank, time: Time) {
        let now = self.now.max(time);
        let context = &mut self.ranks[rank as usize];
        if context.status != Status::Waiting || context.resumes {
            return;
        }
        context.resumes = true;
        let time = next_poll(context.clock, now, context.poll_period);
        let changes = context.changes;
        self.schedule_resume(time, rank, changes);
    }

    /// Writes into the memory that the rank's card maps. Panics beyond its end.
    pub fn write(&self, rank: Rank, at: usize, bytes: &[u8]) {
        self.segment.write(rank, at, bytes);
    }

    /// Reads the memory that the rank's card maps. Panics beyond its end.
    pub fn read(&self, rank: Rank, at: usize, bytes: &mut [u8]) {
        self.segment.read(rank, at, bytes);
    }

    /// Adds a span to the timeline, if one is written.
    pub fn span(&mut self, track: Track, name: &str, began: Time, ended: Time) {
        if let Some(trace) = &mut self.trace {
            trace.span(track, name, began, ended);
        }
    }

    /// Ends the job for this reason. The first reason counts.
    pub fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    /// Returns whether a timeline is written.
    pub fn is_traced(&self) -> bool {
        self.trace.is_some()
    }
}

/// Tests drive a model without ranks.
#[cfg(test)]
impl<E> Kernel<E> {
    /// A kernel whose calendar is empty.
    pub(crate) fn of(segment: ModelSegment) -> Kernel<E> {
        Kernel::new(segment, None)
    }

    /// Advances the clock to the next event and takes it.
    pub(crate) fn next_event(&mut self) -> Option<E> {
        self.queue.extend(self.scheduled.drain(..).map(Reverse));
        let Reverse(entry) = self.queue.pop()?;
        self.now = entry.key.0;
        match entry.action {
            Action::Event(event) => Some(event),
            Action::Command { .. } => None,
        }
    }

    /// Takes what has come for a rank: times, kinds and bytes.
    pub(crate) fn take_events(&mut self, rank: Rank) -> Vec<(Time, u32, Vec<u8>)> {
        let pending = std::mem::take(&mut self.ranks[rank as usize].pending);
        let (mut rest, mut events) = (&pending[..], Vec::new());
        while let Some(record) = encoding::take(&mut rest) {
            events.push((record.time, record.kind, record.bytes.to_vec()));
        }
        events
    }

    /// Why the job is to end.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

/// The first of the times `from`, `from + period`, … that is not before `now`.
pub(super) fn next_poll(from: Time, now: Time, period: Time) -> Time {
    if now <= from {
        return from;
    }
    match period.as_ps() {
        0 => now,
        p => from + period * (now - from).as_ps().div_ceil(p),
    }
}
