//! Taking what stopped ranks leave in their mailboxes: commands, clocks, figures for reports.

use super::Server;
use super::calendar::{Action, Entry, Status};
use crate::kernel::encoding;
use crate::kernel::segment::state;
use crate::kernel::{InvalidCommand, Model, Observers, Rank, Track};
use crate::time::Time;
use std::cmp::Reverse;
use std::sync::atomic::Ordering;

impl<M: Model> Server<M> {
    /// Takes what the stopped ranks leave, in the order of their numbers.
    pub(super) fn collect(&mut self) {
        let mut running = std::mem::take(&mut self.running);
        running.sort_unstable();
        let mut bytes = Vec::new();
        for (rank, _) in running {
            self.collect_from(rank, &mut bytes);
        }
        let header = self.kernel.segment.header();
        if header.resume_requests.swap(0, Ordering::SeqCst) == 0 && !self.any_interrupted {
            return;
        }
        let real = self.pace.now();
        self.any_interrupted = false;
        for rank in 0..self.kernel.ranks() {
            let mailbox = self.kernel.segment.mailbox(rank);
            let resumes = mailbox.state.load(Ordering::SeqCst) == state::RESUMING;
            let interrupted = mailbox.interrupted.load(Ordering::SeqCst) != 0;
            let context = &mut self.kernel.ranks[rank as usize];
            if resumes {
                context.changes += 1;
                context.status = Status::Syncing;
                let (time, changes) = (context.clock.max(real), context.changes);
                self.kernel.schedule_resume(time, rank, changes);
                self.deadlock_reported = false;
            } else if interrupted && context.status == Status::Waiting {
                mailbox.interrupted.store(0, Ordering::SeqCst);
                self.kernel.wake_at(rank, real);
                self.deadlock_reported = false;
            } else {
                self.any_interrupted |= interrupted && context.status != Status::Left;
            }
        }
    }

    fn collect_from(&mut self, rank: Rank, bytes: &mut Vec<u8>) {
        let segment = self.kernel.segment.clone();
        let mailbox = segment.mailbox(rank);
        let state = mailbox.state.load(Ordering::SeqCst);
        let began = self.kernel.ranks[rank as usize].clock;
        if state == state::RUNNING || state == state::ABSENT {
            // Its process has ended in the middle of something.
            self.kernel.ranks[rank as usize].status = Status::Left;
            return;
        }
        let clock = Time::ps(mailbox.clock.load(Ordering::Relaxed)).max(began);
        segment.take_commands(rank, bytes);
        let mut rest = &bytes[..];
        while let Some(record) = encoding::take(&mut rest) {
            let time = record.time.clamp(began, clock);
            self.take_record(rank, time, record.kind, record.bytes);
        }
        if !rest.is_empty() {
            let what = InvalidCommand("its list of commands cannot be read");
            self.invalid = Some((rank, what));
        }
        let context = &mut self.kernel.ranks[rank as usize];
        context.clock = clock;
        context.poll_period = Time::ps(mailbox.poll_period.load(Ordering::Relaxed));
        context.changes += 1;
        context.resumes = false;
        let changes = context.changes;
        context.status = match state {
            state::WAITING if !context.wakes => Status::Waiting,
            state::WAITING => {
                context.resumes = true;
                Status::Waiting
            }
            state::SYNCING => Status::Syncing,
            state::POLLING => Status::Polling,
            // It has left. One that asks to go on is seen to by `collect`.
            _ => Status::Left,
        };
        if context.resumes || matches!(context.status, Status::Syncing | Status::Polling) {
            self.kernel.schedule_resume(clock, rank, changes);
        }
    }

    /// One record that a rank has left: a command, or one of the kernel's own kinds.
    fn take_record(&mut self, rank: Rank, time: Time, kind: u32, bytes: &[u8]) {
        match kind {
            encoding::COST => self.add_cost(rank, bytes),
            encoding::SENT => {
                if let ([messages, bytes], []) = bytes.as_chunks::<8>() {
                    let sent = (u64::from_le_bytes(*messages), u64::from_le_bytes(*bytes));
                    self.kernel.ranks[rank as usize].usage.sent = sent;
                }
            }
            encoding::SPAN => {
                if let Some((span, name)) = bytes.split_first_chunk() {
                    let end = time + Time::ps(u64::from_le_bytes(*span));
                    let name = String::from_utf8_lossy(name);
                    self.kernel.span(Track::Rank(rank), &name, time, end);
                }
            }
            kind => {
                let counted = u64::from(self.model.is_counted(kind));
                self.commands += counted;
                self.kernel.ranks[rank as usize].usage.commands += counted;
                let bytes = bytes.to_vec();
                let key = self.kernel.key(time, rank, true);
                let action = Action::Command { kind, bytes };
                let response = self.response_times.get(kind as usize);
                let response = response.copied().unwrap_or(Time::ZERO);
                self.event_horizon
                    .add(key.0, Observers::Rank(rank, response));
                self.kernel.queue.push(Reverse(Entry { key, action }));
            }
        }
    }

    fn add_cost(&mut self, rank: Rank, bytes: &[u8]) {
        let Some((times, rest)) = bytes.split_first_chunk() else {
            return;
        };
        let Some((time, cause)) = rest.split_first_chunk() else {
            return;
        };
        let cause = String::from_utf8_lossy(cause).into_owned();
        let usage = &mut self.kernel.ranks[rank as usize].usage;
        let cost = usage.costs.entry(cause).or_default();
        cost.times = cost.times.saturating_add(u64::from_le_bytes(*times));
        cost.time += Time::ps(u64::from_le_bytes(*time));
    }
}
