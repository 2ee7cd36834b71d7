//! Giving the turn: which ranks go on together, and until when each may run undisturbed.

use super::Server;
use super::calendar::Status;
use crate::kernel::client::wake_one;
use crate::kernel::encoding;
use crate::kernel::handover::HandoverPolicy;
use crate::kernel::segment::{ModelSegment, QUEUE_MAX_BYTES, state};
use crate::kernel::{Model, Rank, Track};
use crate::time::Time;
use rustix::thread::futex;
use std::cmp::Reverse;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl<M: Model> Server<M> {
    /// Adds to `running` every rank that resumes before anything can affect it: an event under way,
    /// or a rank that resumes earlier.
    pub(super) fn take_concurrent(&mut self) {
        let now = self.kernel.now;
        let end = now + self.lookahead;
        let mut later = std::mem::take(&mut self.later);
        while let Some(&Reverse((time, rank, changes))) = self.kernel.resumes.peek()
            && time < end
        {
            self.kernel.resumes.pop();
            if !self.is_current(rank, changes) || self.running.iter().any(|r| r.0 == rank) {
                continue;
            }
            if time < self.event_horizon.earliest(rank, now) {
                if !self.starts_to_wait(rank) {
                    self.steps += 1;
                    self.running.push((rank, time));
                }
            } else {
                later.push(Reverse((time, rank, changes)));
            }
        }
        self.kernel.resumes.extend(later.drain(..));
        self.later = later;
    }

    /// Finds each running rank's horizon: the earliest time at which an event under way, or another
    /// rank's next action, can affect it.
    fn find_horizons(&mut self) {
        let hardware = self.kernel.queue.peek().map_or(Time::MAX, |e| e.0.key.0);
        let resume = self.kernel.resumes.peek().map_or(Time::MAX, |e| e.0.0);
        let first = self.running.first().map_or(Time::MAX, |r| r.1);
        let second = self.running.get(1).map_or(Time::MAX, |r| r.1);
        self.horizons.clear();
        for (place, &(rank, _)) in self.running.iter().enumerate() {
            let others = if place == 0 { second } else { first };
            let reached = hardware.min(resume).min(others) + self.lookahead;
            let seen = self.event_horizon.earliest(rank, self.kernel.now);
            self.horizons.push(seen.min(reached));
        }
    }

    /// Gives the turn to those in `running`.
    pub(super) fn grant_turns(&mut self) {
        self.deadlock_reported = false;
        self.turns.0 += self.running.len() as u64;
        self.turns.1 += 1;
        self.find_horizons();
        let segment = self.kernel.segment.clone();
        let header = segment.header();
        if self.policies.count_round(self.running.len() as u64) {
            let began = std::mem::replace(&mut self.interval_began, Instant::now());
            let policy = self.policies.select(self.interval_began - began);
            let HandoverPolicy { yields, cores, .. } = policy;
            header.yields.store(yields, Ordering::Relaxed);
            header.cores.store(cores, Ordering::Relaxed);
        }
        let now = self.kernel.now;
        header.now.store(now.as_ps(), Ordering::Relaxed);
        header.commands.store(self.commands, Ordering::Relaxed);
        header
            .running
            .store(self.running.len() as u32, Ordering::SeqCst);
        for place in 0..self.running.len() {
            let (rank, now) = self.running[place];
            self.grant_turn(&segment, rank, now, self.horizons[place]);
        }
    }

    fn grant_turn(&mut self, segment: &ModelSegment, rank: Rank, now: Time, horizon: Time) {
        let context = &mut self.kernel.ranks[rank as usize];
        let began = context.clock;
        self.latest = self.latest.max(now);
        if context.status == Status::Waiting {
            context.usage.waited += now - began;
        }
        let waited = context.status == Status::Waiting && now > began;
        let found = context.status == Status::Polling;
        context.clock = now.max(began);
        context.status = Status::Running;
        (context.resumes, context.wakes) = (false, false);
        context.changes += 1;
        let mailbox = segment.mailbox(rank);
        let more = deliver(segment, rank, &mut context.pending);
        mailbox
            .more_events
            .store(u32::from(more), Ordering::Relaxed);
        mailbox
            .poll_found
            .store(u32::from(found), Ordering::Relaxed);
        mailbox
            .clock
            .store(context.clock.as_ps(), Ordering::Relaxed);
        let horizon = if more { Time::ZERO } else { horizon };
        mailbox.horizon.store(horizon.as_ps(), Ordering::Relaxed);
        if waited {
            self.kernel.span(Track::Rank(rank), "waits", began, now);
        }
        // A request to go on that comes just now is granted by this turn.
        let before = mailbox.state.swap(state::RUNNING, Ordering::SeqCst);
        mailbox.turn.fetch_add(1, Ordering::SeqCst);
        if mailbox.asleep.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&mailbox.turn, futex::Flags::empty(), i32::MAX as u32);
        }
        // Nobody has asked for this turn: one of the rank's threads has to take it.
        if before == state::WAITING && mailbox.concurrent.load(Ordering::Relaxed) != 0 {
            wake_one(&mailbox.wakeup);
        }
    }
}

/// Moves as many of a rank's events into its mailbox as fit. Returns whether some are left.
fn deliver(segment: &ModelSegment, rank: Rank, pending: &mut Vec<u8>) -> bool {
    if pending.is_empty() {
        return false;
    }
    let mut fits = pending.len();
    if fits > QUEUE_MAX_BYTES {
        let mut rest = &pending[..];
        loop {
            let before = rest.len();
            if encoding::take(&mut rest).is_none() || pending.len() - rest.len() > QUEUE_MAX_BYTES {
                fits = pending.len() - before;
                break;
            }
        }
    }
    segment.put_events(rank, &pending[..fits]);
    pending.drain(..fits);
    !pending.is_empty()
}
