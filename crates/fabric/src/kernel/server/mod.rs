//! The model's side: runs the hardware, and decides which rank goes on when.

mod calendar;
mod collect;
mod grant;
mod pace;

pub use calendar::Kernel;

use super::client::Cost;
use super::event_horizon::EventHorizon;
use super::handover::PolicySelector;
use super::segment::{COMMAND_KINDS, ModelSegment, state};
use super::trace::Trace;
use super::{InvalidCommand, Model, Rank};
use crate::time::Time;
use calendar::{Action, Entry, Status};
use pace::Pace;
use rustix::thread::{futex, sched_yield};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Turns of the loop in which the model looks whether all ranks have stopped, before it sleeps.
/// Only where each rank has a core and one is to spare.
const STOP_SPINS: u32 = 4000;

/// How a rank has spent its time.
#[derive(Clone, Debug, Default)]
pub struct RankUsage {
    /// Its clock when it stopped last.
    pub clock: Time,
    /// How long it has waited.
    pub waited: Time,
    /// Commands that it has issued.
    pub commands: u64,
    /// Messages that its program has sent, and their bytes. Known once it has left.
    pub sent: (u64, u64),
    /// What its work has cost, by cause.
    pub costs: BTreeMap<String, Cost>,
}

/// How a job ended.
#[derive(Debug)]
pub struct Completed<M> {
    /// The hardware.
    pub model: M,
    /// Virtual time at the end.
    pub time: Time,
    /// Commands of all ranks.
    pub commands: u64,
    /// Commands, events and resumed ranks.
    pub steps: u64,
    /// How often a rank was given the turn, and in how many rounds.
    pub turns: (u64, u64),
    /// Real time from when all ranks had joined.
    pub real: Duration,
    /// How each rank has spent its time.
    pub ranks: Vec<RankUsage>,
    /// The command that ended the job, and its rank.
    pub invalid: Option<(Rank, InvalidCommand)>,
    /// Why the hardware ended the job ([`Kernel::fail`]), if it did.
    pub failure: Option<String>,
}

/// A job on a model.
pub struct Server<M: Model> {
    model: M,
    kernel: Kernel<M::Event>,
    /// Ranks that have the turn, and when they got it, in the order of these times.
    running: Vec<(Rank, Time)>,
    /// For each of `running`: until when nothing changes for it.
    horizons: Vec<Time>,
    /// Resumes that [`Server::take_concurrent`] passes over. Kept to reuse its memory.
    later: Vec<Reverse<(Time, Rank, u64)>>,
    event_horizon: EventHorizon,
    lookahead: Time,
    /// When a rank went on last.
    latest: Time,
    response_times: [Time; COMMAND_KINDS],
    commands: u64,
    steps: u64,
    turns: (u64, u64),
    spins: u32,
    policies: PolicySelector,
    /// When the interval began by which the hand-over policy is measured.
    interval_began: Instant,
    deadlock_reported: bool,
    pace: Pace,
    /// A rank that did not wait was interrupted. It goes on when it waits.
    any_interrupted: bool,
    invalid: Option<(Rank, InvalidCommand)>,
}

impl<M: Model> Server<M> {
    /// A server for the ranks that will join `segment`.
    pub fn new(segment: ModelSegment, model: M, trace: Option<Trace>) -> Server<M> {
        let ranks = segment.ranks();
        let mut response_times = [Time::ZERO; COMMAND_KINDS];
        for (kind, response) in (0..).zip(&mut response_times) {
            *response = model.response_time(kind);
            let published = &segment.header().response_times[kind as usize];
            published.store(response.as_ps(), Ordering::Relaxed);
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = segment.cpus();
        Server {
            event_horizon: EventHorizon::new((0..ranks).map(|r| model.node_of(r)).collect()),
            lookahead: model.lookahead().max(Time::ps(1)),
            latest: Time::ZERO,
            response_times,
            model,
            kernel: Kernel::new(segment, trace),
            running: (0..ranks).map(|r| (r, Time::ZERO)).collect(),
            horizons: Vec::new(),
            later: Vec::new(),
            commands: 0,
            steps: 0,
            turns: (0, 0),
            spins: if cores > ranks as usize {
                STOP_SPINS
            } else {
                0
            },
            policies: PolicySelector::new(ranks, cpus),
            interval_began: Instant::now(),
            deadlock_reported: false,
            pace: Pace::default(),
            any_interrupted: false,
            invalid: None,
        }
    }

    /// Runs the job until it is closed ([`ModelSegment::close`]). Calls `on_deadlock` when every
    /// rank waits and nothing is under way; not again before something moves.
    pub fn run(mut self, mut on_deadlock: impl FnMut(Time)) -> Completed<M> {
        let mut began = None;
        loop {
            self.await_stops();
            if began.is_none() {
                began = Some(Instant::now());
                self.pace = Pace::begin(self.kernel.segment.header());
            }
            self.collect();
            if self.invalid.is_some() {
                break;
            }
            self.advance();
            if self.invalid.is_some() || self.kernel.failure.is_some() {
                break;
            }
            if !self.running.is_empty() || self.kernel.is_busy() || self.any_interrupted {
                continue;
            }
            // Nothing is under way, so nobody goes on by itself. What changes after this load also
            // changes the wakeup word.
            let seen = self.kernel.segment.header().wakeup.load(Ordering::SeqCst);
            if self.is_closing() {
                break;
            }
            if self.is_deadlocked() && !self.deadlock_reported {
                self.deadlock_reported = true;
                self.kernel.failure = self.model.deadlock();
                if self.kernel.failure.is_some() {
                    break;
                }
                on_deadlock(self.kernel.now);
            }
            self.sleep(seen);
        }
        let time = self.kernel.now.max(self.latest);
        let ranks = std::mem::take(&mut self.kernel.ranks);
        if let Some(trace) = self.kernel.trace.take() {
            trace.end();
        }
        Completed {
            model: self.model,
            time,
            commands: self.commands,
            steps: self.steps,
            turns: self.turns,
            real: began.map_or(Duration::ZERO, |b| b.elapsed()),
            ranks: ranks
                .into_iter()
                .map(|context| RankUsage {
                    clock: context.clock,
                    ..context.usage
                })
                .collect(),
            invalid: self.invalid,
            failure: self.kernel.failure,
        }
    }

    fn is_closing(&self) -> bool {
        self.kernel.segment.header().closing.load(Ordering::SeqCst) != 0
    }

    /// Returns whether every rank waits or has ended, at least one waits, and none can go on by
    /// itself. One that has left can come back while its process lives.
    fn is_deadlocked(&self) -> bool {
        let segment = &self.kernel.segment;
        let mut waiting = false;
        for (rank, context) in (0..).zip(&self.kernel.ranks) {
            let mailbox = segment.mailbox(rank);
            if mailbox.exited.load(Ordering::SeqCst) != 0 {
                continue;
            }
            let concurrent = mailbox.concurrent.load(Ordering::Relaxed) != 0;
            if concurrent || context.status == Status::Left {
                return false;
            }
            waiting = true;
        }
        waiting
    }

    /// Blocks until every rank that has the turn has stopped or ended.
    fn await_stops(&mut self) {
        let segment = self.kernel.segment.clone();
        let header = segment.header();
        let stopped = |&(rank, _): &(Rank, Time)| {
            let mailbox = segment.mailbox(rank);
            let state = mailbox.state.load(Ordering::SeqCst);
            (state != state::RUNNING && state != state::ABSENT)
                || mailbox.exited.load(Ordering::SeqCst) != 0
        };
        for _ in 0..self.policies.current().model_yields {
            if header.running.load(Ordering::SeqCst) == 0 {
                break;
            }
            sched_yield();
        }
        let mut spins = self.spins;
        while spins > 0 && header.running.load(Ordering::SeqCst) != 0 {
            spins -= 1;
            std::hint::spin_loop();
        }
        loop {
            if self.running.iter().all(stopped) {
                return;
            }
            let seen = header.wakeup.load(Ordering::SeqCst);
            header.asleep.store(1, Ordering::SeqCst);
            if self.running.iter().all(stopped) {
                break;
            }
            if header.running.load(Ordering::SeqCst) == 0 {
                // All have counted themselves out. The last of them will not wake the model again.
                sched_yield();
                continue;
            }
            let _ = futex::wait(&header.wakeup, futex::Flags::empty(), seen, None);
        }
        header.asleep.store(0, Ordering::SeqCst);
    }

    /// Sleeps until a rank asks to go on, a process ends, or the job is closed.
    fn sleep(&mut self, seen: u32) {
        let header = self.kernel.segment.header();
        header.asleep.store(1, Ordering::SeqCst);
        if header.resume_requests.load(Ordering::SeqCst) == 0 && !self.is_closing() {
            let header = self.kernel.segment.header();
            let _ = futex::wait(&header.wakeup, futex::Flags::empty(), seen, None);
        }
        self.kernel
            .segment
            .header()
            .asleep
            .store(0, Ordering::SeqCst);
    }

    /// Does what is due, in order, until a rank goes on or nothing is left.
    fn advance(&mut self) {
        while self.running.is_empty() {
            let hardware = self.kernel.queue.peek().map(|e| e.0.key);
            let resume = self.kernel.resumes.peek().map(|e| e.0.0);
            let next = [hardware.map(|key| key.0), resume]
                .into_iter()
                .flatten()
                .min();
            if let Some(next) = next
                && !self.pace.await_time(next, self.kernel.segment.header())
            {
                return;
            }
            // At one instant the hardware goes before the programs.
            match (hardware, resume) {
                (None, None) => return,
                (Some(key), resume) if resume.is_none_or(|r| key.0 <= r) => {
                    let Some(Reverse(entry)) = self.kernel.queue.pop() else {
                        return;
                    };
                    if let Err(invalid) = self.step(entry) {
                        self.invalid = Some((key.1, invalid));
                    }
                    if self.invalid.is_some() || self.kernel.failure.is_some() {
                        return;
                    }
                }
                _ => self.take_resume(),
            }
        }
        self.take_concurrent();
        self.grant_turns();
    }

    /// Does one entry of the calendar.
    fn step(&mut self, entry: Entry<M::Event>) -> Result<(), InvalidCommand> {
        let (time, rank, ..) = entry.key;
        self.advance_to(time);
        match entry.action {
            Action::Command { kind, bytes } => {
                self.model.command(rank, kind, &bytes, &mut self.kernel)?
            }
            Action::Event(event) => self.model.event(event, &mut self.kernel),
        }
        let Kernel {
            scheduled, queue, ..
        } = &mut self.kernel;
        for entry in scheduled.drain(..) {
            if let Action::Event(event) = &entry.action {
                let observers = self.model.observers(event);
                self.event_horizon.add(entry.key.0, observers);
            }
            queue.push(Reverse(entry));
        }
        Ok(())
    }

    /// The next rank goes on, unless its resume is out of date.
    fn take_resume(&mut self) {
        if let Some(Reverse((time, rank, changes))) = self.kernel.resumes.pop()
            && self.is_current(rank, changes)
            && !self.starts_to_wait(rank)
        {
            self.advance_to(time);
            self.running.push((rank, time));
        }
    }

    /// A polling rank for which nothing is there waits from now on. Returns whether it does.
    fn starts_to_wait(&mut self, rank: Rank) -> bool {
        let context = &mut self.kernel.ranks[rank as usize];
        let waits = context.status == Status::Polling && context.pending.is_empty();
        if waits {
            context.status = Status::Waiting;
        }
        waits
    }

    fn advance_to(&mut self, time: Time) {
        self.steps += 1;
        self.kernel.now = time;
    }

    /// Returns whether a resume that was scheduled at `changes` still holds.
    fn is_current(&self, rank: Rank, changes: u64) -> bool {
        let context = &self.kernel.ranks[rank as usize];
        let mailbox = self.kernel.segment.mailbox(rank);
        let exited = mailbox.exited.load(Ordering::Relaxed) != 0;
        context.changes == changes && !exited && context.status != Status::Left
    }
}

#[cfg(test)]
mod tests;
