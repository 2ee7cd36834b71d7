//! How a rank stops, waits for its turn, and goes on.

use super::{Client, Event, Poll, sleep, wake_one};
use crate::kernel::encoding;
use crate::kernel::segment::state;
use crate::time::Time;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use std::sync::atomic::{AtomicU32, Ordering};

impl Client {
    /// Does [`Client::sync`], and [`Client::wait`] if nothing is there, in one stop.
    pub fn sync_or_wait(&mut self, poll_period: Time) {
        self.ensure_turn();
        if self.now() < self.horizon || self.concurrent {
            self.sync();
            return self.wait(poll_period);
        }
        let seen = self.stop(state::POLLING, poll_period);
        self.await_turn(seen);
        self.take_turn();
    }

    /// Waits until the card has something for this rank. Returns at once if it has.
    ///
    /// The clock is then at the time of that. With a `poll_period` it is at the first time from
    /// now, in steps of the period, that is not before that: a processor that polls sees it at its
    /// next poll.
    pub fn wait(&mut self, poll_period: Time) {
        if self.begin_wait(poll_period).is_some() {
            // Who calls this keeps the client meanwhile, so the wakeup word may wake another
            // thread.
            self.sleep_for_turn(self.seen_turn);
        }
        self.ensure_turn();
    }

    /// The first half of [`Client::wait`], for ranks with threads: the rank waits from here on.
    ///
    /// Returns `None` if there is something already, or if the rank has gone on. Otherwise sleep
    /// until the word is no longer the value that is returned with it ([`sleep`]), and go on with
    /// any call.
    ///
    /// Of several threads that sleep so, one is woken by what the model has for the rank. None is
    /// woken by a turn that another thread has asked for: who finds something for another thread
    /// raises the word ([`Client::wakeup_word`]). If another thread uses the client meanwhile, the
    /// rank does not wait any more until it calls this again.
    pub fn begin_wait(&mut self, poll_period: Time) -> Option<(&'static AtomicU32, u32)> {
        let mailbox = self.mailbox;
        if !self.waiting {
            self.ensure_turn();
            if !self.events.is_empty() || mailbox.more_events.load(Ordering::Relaxed) != 0 {
                return None;
            }
            self.waiting_state = match self.poll {
                Poll::Deferred => state::POLLING,
                _ => state::WAITING,
            };
        }
        if self.concurrent {
            // Loaded first: the model raises it once the rank has stopped.
            let seen = mailbox.wakeup.load(Ordering::SeqCst);
            self.stop_to_wait(poll_period);
            return self.has_no_turn().then_some((&mailbox.wakeup, seen));
        }
        self.stop_to_wait(poll_period);
        if self.yield_for_turn(self.seen_turn) {
            self.rejoin();
            return None;
        }
        // Set first, so that whoever raises the turn from here on wakes this rank.
        mailbox.asleep.store(1, Ordering::SeqCst);
        if !self.has_no_turn() {
            self.rejoin();
            return None;
        }
        Some((&mailbox.turn, self.seen_turn))
    }

    /// Stops, unless the rank has stopped already.
    fn stop_to_wait(&mut self, poll_period: Time) {
        if !self.waiting {
            self.seen_turn = self.stop(self.waiting_state, poll_period);
            self.waiting = true;
        }
    }

    /// Returns whether the waiting rank has not been given the turn yet.
    fn has_no_turn(&self) -> bool {
        self.mailbox.turn.load(Ordering::SeqCst) == self.seen_turn
    }

    /// The rank goes on after [`Client::begin_wait`], if it has not yet. Blocks until it has the
    /// turn. A rank that has left stays away.
    ///
    /// Returns whether the rank had to ask for the turn. Then the model had nothing for it.
    #[inline]
    pub fn resume(&mut self) -> bool {
        self.waiting && self.rejoin()
    }

    /// What the threads of a rank that has several sleep on ([`Client::begin_wait`]).
    pub fn wakeup_word(&self) -> &'static AtomicU32 {
        &self.mailbox.wakeup
    }

    /// Wakes one of the rank's sleeping threads, for what is there for it.
    pub fn wake_another_thread(&self) {
        wake_one(&self.mailbox.wakeup);
    }

    /// Returns whether the rank waits.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Hands the turn to the model. Returns what [`Mailbox::turn`](super::Mailbox::turn) was.
    pub(super) fn stop(&mut self, state: u32, poll_period: Time) -> u32 {
        let mailbox = self.mailbox;
        self.segment.put_commands(self.me, &self.commands);
        self.commands.clear();
        mailbox
            .clock
            .store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        mailbox
            .poll_period
            .store(poll_period.as_ps(), Ordering::Relaxed);
        let seen = mailbox.turn.load(Ordering::SeqCst);
        // Counted before the state is set: a rank that is seen to have stopped will not count
        // itself out of a later round.
        let header = self.segment.header();
        let last = header.running.fetch_sub(1, Ordering::SeqCst) == 1;
        mailbox.state.store(state, Ordering::SeqCst);
        if last || header.exited.load(Ordering::SeqCst) != 0 {
            self.segment.wake_model();
        }
        seen
    }

    /// Hands the core over, as often as the policy says, until `turn` is no longer `seen`. Returns
    /// false if it still is.
    fn yield_for_turn(&self, seen: u32) -> bool {
        // Another thread of this rank may have more use for the core than the other ranks.
        let yields = match self.concurrent {
            true => 0,
            false => self.segment.header().yields.load(Ordering::Relaxed),
        };
        (0..yields).any(|_| {
            sched_yield();
            self.mailbox.turn.load(Ordering::SeqCst) != seen
        })
    }

    /// Migrates to the core that this rank has if the ranks are spread over `cores` of them. A
    /// program that has been bound otherwise stays where it is.
    #[cold]
    fn migrate(&mut self, cores: u32) {
        let only = |cpu: Option<usize>| {
            let mut set = CpuSet::new();
            set.set(cpu.filter(|c| *c < CpuSet::MAX_CPU)?);
            Some(set)
        };
        let before = only(self.segment.cpu_of(self.me, self.cores));
        let after = only(self.segment.cpu_of(self.me, cores));
        self.cores = cores;
        if self.concurrent || after == before || sched_getaffinity(None).ok() != before {
            return;
        }
        if let Some(after) = after {
            // If this is refused, the rank works where it is.
            let _ = sched_setaffinity(None, &after);
        }
    }

    /// Blocks until `turn` is no longer `seen`.
    pub(super) fn await_turn(&self, seen: u32) {
        if self.yield_for_turn(seen) {
            return;
        }
        for _ in 0..self.spins {
            if self.mailbox.turn.load(Ordering::Acquire) != seen {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleep_for_turn(seen);
    }

    /// Sleeps until `turn` is no longer `seen`.
    fn sleep_for_turn(&self, seen: u32) {
        self.mailbox.asleep.store(1, Ordering::SeqCst);
        sleep(&self.mailbox.turn, seen);
    }

    /// The rank has the turn: takes what came.
    pub(super) fn take_turn(&mut self) {
        let mailbox = self.mailbox;
        mailbox.asleep.store(0, Ordering::Relaxed);
        let cores = self.segment.header().cores.load(Ordering::Relaxed);
        if cores != self.cores && cores > 0 {
            self.migrate(cores);
        }
        let found = mailbox.poll_found.load(Ordering::Relaxed) != 0;
        self.poll = match self.poll {
            Poll::Deferred if found => Poll::Done,
            _ => Poll::New,
        };
        let clock = mailbox.clock.load(Ordering::Relaxed);
        // The program may have asked for the time meanwhile, in another thread.
        let before = self.clock.fetch_max(clock, Ordering::Relaxed);
        self.waited |= clock > before;
        self.horizon = Time::ps(mailbox.horizon.load(Ordering::Relaxed));
        let mut encoded = std::mem::take(&mut self.encoded_events);
        self.segment.take_events(self.me, &mut encoded);
        self.unseen |= !encoded.is_empty();
        let mut bytes = &encoded[..];
        while let Some(record) = encoding::take(&mut bytes) {
            self.events.push_back(Event {
                time: record.time,
                kind: record.kind,
                bytes: record.bytes.to_vec(),
            });
        }
        self.encoded_events = encoded;
    }

    /// Makes sure that the rank has the turn. Takes it if the model has given it, and asks for it
    /// otherwise. Blocks until then.
    #[inline]
    pub(super) fn ensure_turn(&mut self) {
        if self.waiting || self.left {
            self.rejoin();
        }
    }

    /// Goes on after waiting or leaving. Returns whether the rank had to ask for the turn.
    #[cold]
    fn rejoin(&mut self) -> bool {
        let mailbox = self.mailbox;
        let from = if self.left {
            state::LEFT
        } else {
            self.waiting_state
        };
        let order = Ordering::SeqCst;
        let asks = mailbox
            .state
            .compare_exchange(from, state::RESUMING, order, order)
            .is_ok();
        if asks {
            self.segment.header().resume_requests.fetch_add(1, order);
            self.segment.wake_model();
        }
        // The state alone does not say that the rank has the turn. `turn` is raised after the
        // state: who stopped again in between would take it for the next turn's.
        self.sleep_for_turn(self.seen_turn);
        (self.waiting, self.left) = (false, false);
        self.take_turn();
        asks
    }
}
