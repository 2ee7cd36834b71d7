//! Zero copy: whether a large message to a peer goes to its transport by reference, or is copied
//! into it.
//!
//! Which way is faster depends on the machine: which side's core is busier, and what the system
//! charges for a page that is passed by reference. It also changes while a program runs. So both
//! ways are tried now and then, on messages of the program. A trial is a sequence of slots that use
//! both ways alternately. Other work on the machine then slows both ways equally.
//!
//! - Only long runs of messages count. The first bytes of a run fill the system's buffers and do
//!   not count. The trial measures how fast the receiver gets the rest.
//! - Bytes that arrive meanwhile also count. Of two ranks that exchange much data, each could gain
//!   by a way that costs the other one more. So messages that answer each other are one run.
//! - Messages in short runs are copied. So are all messages before the first trial.

use crate::base::buffer::Source;
use crate::base::header;
use crate::base::key::ProcId;
use crate::base::request::Operation;
use crate::protocol::engine::Worker;
use crate::queue::outgoing::{Outgoing, Payload};
use ferry_transport::ZeroCopy;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Minimum length of a message that goes by zero copy, bytes. For shorter ones the notification of
/// the system costs more than the copy (docs/transports/tcp.md).
pub(crate) const ZERO_COPY_MIN_BYTES: usize = 256 * 1024;
/// Bytes at the beginning of a run that do not count: what a connection's buffers may hold
/// (the usual limit of tcp_wmem, tcp(7)).
const SKIPPED_BYTES: usize = 4 << 20;
/// Bytes that are measured in one slot of a trial. A choice: about 2 ms at 4 GB/s.
const SLOT_BYTES: usize = 8 << 20;
/// Bytes that are measured in one slot where ranks share cores. A choice: each rank has its core
/// several times in it.
const SHARED_SLOT_BYTES: usize = 32 << 20;
/// Slots of a trial. Even slots use the current way, odd slots the other way. A choice.
const SLOTS: usize = 10;
/// After this many slots the trial ends if each slot of the other way took an eighth longer than
/// the slot before it. A choice.
const EARLY_END_SLOTS: usize = 4;
/// A run ends when all bytes are taken and no message is offered for this long, unless large
/// messages have arrived meanwhile, which this one may answer. A choice.
const PAUSE: Duration = Duration::from_micros(200);
/// A run ends when a message waits and no bytes are taken for this long: the receiver is busy
/// elsewhere. A choice: ranks that share a core have it for a few milliseconds each.
const STALL: Duration = Duration::from_millis(50);
/// A slot that is not full after this many times its bytes is not part of a long run: the trial is
/// given up. A choice.
const SLOT_BYTES_FACTOR_MAX: usize = 8;
/// Bytes before the first trial. A choice.
const FIRST_TRIAL_BYTES: u64 = 32 << 20;
/// Bytes before the next trial, after a trial that was undecided or changed something. Also before
/// the first trial where ranks share cores: one takes 360 MiB there. A choice.
const NEXT_TRIAL_BYTES: u64 = 1 << 30;
/// Maximum number of bytes between trials. The period doubles after each trial that changes
/// nothing. A choice.
const TRIAL_PERIOD_MAX_BYTES: u64 = 64 << 30;

/// Size classes: from 256 KiB, from 1 MiB and from 4 MiB.
pub(crate) const CLASSES: usize = 3;

/// The size class of a message of `len` bytes.
pub(crate) fn size_class(len: usize) -> usize {
    match len >> 20 {
        0 => 0,
        1..4 => 1,
        _ => 2,
    }
}

/// Bytes of large messages that a transport has taken.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    zero_copy: bool,
    bytes: usize,
    /// More was offered than was taken.
    waits: bool,
    /// Ranks outnumber cores.
    oversubscribed: bool,
    /// Bytes of large messages that have ever arrived in this process.
    received_bytes: u64,
}

/// The choice for each peer and size class.
pub(crate) struct ZeroCopySelector {
    /// Zero copy may be used at all.
    enabled: bool,
    /// The choices for peers where zero copy is a matter of speed.
    by_peer: HashMap<ProcId, [Choice; CLASSES]>,
}

impl Default for ZeroCopySelector {
    fn default() -> ZeroCopySelector {
        ZeroCopySelector {
            enabled: true,
            by_peer: HashMap::new(),
        }
    }
}

impl ZeroCopySelector {
    /// May zero copy be used at all?
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// From now on all messages are copied.
    pub fn disable(&mut self) {
        self.enabled = false;
    }

    /// Are transfers to this peer measured?
    pub fn measures(&self, to: ProcId) -> bool {
        self.by_peer.contains_key(&to)
    }
}

impl Worker {
    /// Would a speculative message of `len` bytes to this peer go by zero copy?
    pub fn prefers_zero_copy(&mut self, to: ProcId, len: usize) -> bool {
        len >= ZERO_COPY_MIN_BYTES
            && match self.transports.zero_copy(to) {
                ZeroCopy::Never => false,
                ZeroCopy::Always => true,
                ZeroCopy::IfFaster => {
                    let choices = self.engine.zero_copy.by_peer.get(&to);
                    choices.is_some_and(|c| c[size_class(len)].is_zero_copy())
                }
            }
    }

    /// Does this queued message go by zero copy? That is decided when it is first offered; its
    /// header says so.
    pub fn choose_zero_copy(&mut self, to: ProcId, next: &mut Outgoing) -> bool {
        let Payload::Stream {
            req,
            zero_copy_decided,
            ..
        } = &mut next.payload
        else {
            return false;
        };
        // The decision stands: the header may have gone without any of its bytes.
        if std::mem::replace(zero_copy_decided, true) {
            return next.message == header::ZCOPY_DATA;
        }
        let req = *req;
        let Some(Operation::SendLarge {
            source: Source::Bytes { len, .. },
            ..
        }) = self.engine.requests.operation(req)
        else {
            return false;
        };
        if *len < ZERO_COPY_MIN_BYTES || !self.engine.zero_copy.enabled {
            return false;
        }
        let zero_copy = match self.transports.zero_copy(to) {
            ZeroCopy::Never => false,
            ZeroCopy::Always => true,
            ZeroCopy::IfFaster => {
                let oversubscribed = self.oversubscribed;
                let choices = self.engine.zero_copy.by_peer.entry(to);
                let choices = choices.or_insert_with(|| Choice::of_classes(oversubscribed));
                let choice = &mut choices[size_class(*len)];
                choice.offered(self.engine.streams.received_bytes(), Instant::now);
                choice.is_zero_copy()
            }
        };
        if zero_copy {
            next.message = header::ZCOPY_DATA;
            next.head = next.head.u32(req.0);
        }
        zero_copy
    }

    /// Measures `bytes` bytes of large messages of a size class, which the transport has taken.
    /// `waits`: more was offered.
    pub fn record_transfer(
        &mut self,
        to: ProcId,
        class: usize,
        zero_copy: bool,
        bytes: usize,
        waits: bool,
    ) {
        if bytes > 0
            && let Some(choices) = self.engine.zero_copy.by_peer.get_mut(&to)
        {
            let transfer = Transfer {
                zero_copy,
                bytes,
                waits,
                oversubscribed: self.oversubscribed,
                received_bytes: self.engine.streams.received_bytes(),
            };
            choices[class].record(transfer, Instant::now);
        }
    }
}

/// The choice for one peer and one size class.
#[derive(Debug)]
struct Choice {
    zero_copy: bool,
    /// Bytes until the next trial.
    next_trial_bytes: u64,
    /// Bytes between that trial and the one after it.
    period_bytes: u64,
    trial: Option<Trial>,
}

#[derive(Debug)]
struct Trial {
    slot: usize,
    /// Bytes to measure in a slot.
    slot_bytes: usize,
    /// Bytes of this slot, whether they count or not.
    bytes: usize,
    /// Bytes of this run that are still to be left out.
    to_skip: usize,
    /// Bytes of this run that count.
    counted: usize,
    /// When the last byte went that does not count.
    since: Instant,
    /// Bytes that had arrived until then.
    received_bytes: u64,
    /// When bytes were last taken.
    last: Instant,
    /// Bytes that had arrived until then.
    received_bytes_last: u64,
    /// More was offered than was taken then.
    waits: bool,
    times: [Duration; SLOTS],
}

impl Choice {
    /// Before the first trial, which comes later where ranks outnumber cores.
    fn new(oversubscribed: bool) -> Choice {
        Choice {
            zero_copy: false,
            next_trial_bytes: if oversubscribed {
                NEXT_TRIAL_BYTES
            } else {
                FIRST_TRIAL_BYTES
            },
            period_bytes: NEXT_TRIAL_BYTES,
            trial: None,
        }
    }

    /// One for each size class.
    fn of_classes(oversubscribed: bool) -> [Choice; CLASSES] {
        std::array::from_fn(|_| Choice::new(oversubscribed))
    }

    /// Does the next message go by zero copy?
    fn is_zero_copy(&self) -> bool {
        let other = self.trial.as_ref().is_some_and(|t| t.slot % 2 == 1);
        self.zero_copy != other
    }

    /// A message is offered. `received_bytes`: as in [`Transfer`]. `now` reads the clock.
    fn offered(&mut self, received_bytes: u64, now: impl FnOnce() -> Instant) {
        if let Some(trial) = &mut self.trial {
            trial.offered(received_bytes, now());
        }
    }

    /// Bytes have been taken. `now` reads the clock.
    fn record(&mut self, transfer: Transfer, now: impl FnOnce() -> Instant) {
        let expected = self.is_zero_copy();
        let Some(trial) = &mut self.trial else {
            let bytes = transfer.bytes as u64;
            self.next_trial_bytes = self.next_trial_bytes.saturating_sub(bytes);
            if self.next_trial_bytes == 0 {
                self.trial = Some(Trial::new(transfer.oversubscribed, now()));
            }
            return;
        };
        let hopeless = trial.record(transfer.zero_copy == expected, transfer, now());
        if trial.slot == SLOTS {
            let times = trial.times;
            self.decide(&times);
        } else if trial.is_lost() {
            self.wait((self.period_bytes * 2).min(TRIAL_PERIOD_MAX_BYTES));
        } else if hopeless {
            self.wait(self.period_bytes);
        }
    }

    fn wait(&mut self, bytes: u64) {
        (self.trial, self.next_trial_bytes, self.period_bytes) = (None, bytes, bytes);
    }

    /// Ends a trial. The other way is taken if it was a tenth faster in the best of its slots and
    /// faster in the median one. Some slots of either way are slow because the machine has other
    /// work; those do not decide.
    fn decide(&mut self, times: &[Duration; SLOTS]) {
        let sorted = |from: usize| {
            let mut of: Vec<Duration> = times.iter().skip(from).step_by(2).copied().collect();
            of.sort_unstable();
            of
        };
        let (used, other) = (sorted(0), sorted(1));
        let (best, median) = (0, SLOTS / 4);
        if other[best] * 11 < used[best] * 10 && other[median] < used[median] {
            self.zero_copy = !self.zero_copy;
            self.wait(NEXT_TRIAL_BYTES);
        } else if other[best] >= used[best] && other[median] >= used[median] {
            self.wait((self.period_bytes * 2).min(TRIAL_PERIOD_MAX_BYTES));
        } else {
            self.wait(self.period_bytes);
        }
    }
}

impl Trial {
    fn new(oversubscribed: bool, now: Instant) -> Trial {
        Trial {
            slot: 0,
            slot_bytes: if oversubscribed {
                SHARED_SLOT_BYTES
            } else {
                SLOT_BYTES
            },
            bytes: 0,
            to_skip: SKIPPED_BYTES,
            counted: 0,
            since: now,
            received_bytes: 0,
            last: now,
            received_bytes_last: 0,
            waits: false,
            times: [Duration::ZERO; SLOTS],
        }
    }

    /// Another run begins.
    fn begin_run(&mut self) {
        (self.to_skip, self.counted) = (SKIPPED_BYTES, 0);
    }

    /// Has the other way been so slow that the rest of the trial would only cost time?
    fn is_lost(&self) -> bool {
        self.slot == EARLY_END_SLOTS
            && self.times[..EARLY_END_SLOTS]
                .chunks_exact(2)
                .all(|t| t[1] * 8 > t[0] * 9)
    }

    fn offered(&mut self, received_bytes: u64, now: Instant) {
        let arrived = received_bytes.saturating_sub(self.received_bytes_last);
        let answers = arrived >= ZERO_COPY_MIN_BYTES as u64;
        if !self.waits && !answers && now.duration_since(self.last) > PAUSE {
            self.begin_run();
        }
    }

    /// As [`Choice::record`]. Returns true if the slot will never be full.
    fn record(&mut self, as_expected: bool, transfer: Transfer, now: Instant) -> bool {
        self.bytes += transfer.bytes;
        if !as_expected || now.duration_since(self.last) > STALL {
            self.begin_run();
        }
        (self.last, self.waits) = (now, transfer.waits);
        self.received_bytes_last = transfer.received_bytes;
        if self.to_skip > 0 {
            self.to_skip = self.to_skip.saturating_sub(transfer.bytes);
            (self.since, self.received_bytes) = (now, transfer.received_bytes);
        } else {
            self.counted += transfer.bytes;
        }
        if self.counted < self.slot_bytes {
            return self.bytes > SLOT_BYTES_FACTOR_MAX * (SKIPPED_BYTES + self.slot_bytes);
        }
        // The time for the same number of bytes in every slot, and of both directions together.
        let time = now.duration_since(self.since).as_secs_f64();
        let received = transfer.received_bytes.saturating_sub(self.received_bytes);
        let moved = self.counted as f64 + received as f64;
        let time = time * self.slot_bytes as f64 / moved;
        self.times[self.slot] = Duration::from_secs_f64(time);
        self.slot += 1;
        self.bytes = 0;
        self.begin_run();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `total` bytes in runs of `run` pieces of 1 MiB, which take `micros` µs each when
    /// copied and by zero copy. Returns how many went by zero copy.
    fn send(choice: &mut Choice, total: u64, run: u64, micros: [u64; 2], at: &mut Instant) -> u64 {
        exchange(choice, total, run, micros, [0, 0], at)
    }

    /// As [`send`], while bytes arrive: `received_bytes` with each copied piece, and with each one
    /// by zero copy.
    fn exchange(
        choice: &mut Choice,
        total: u64,
        run: u64,
        micros: [u64; 2],
        received_bytes: [u64; 2],
        at: &mut Instant,
    ) -> u64 {
        let (mut by_reference, mut received) = (0, 0);
        for i in 0..total >> 20 {
            let zero_copy = choice.is_zero_copy();
            by_reference += u64::from(zero_copy);
            choice.offered(received, || *at);
            *at += Duration::from_micros(micros[usize::from(zero_copy)]);
            received += received_bytes[usize::from(zero_copy)];
            let transfer = Transfer {
                zero_copy,
                bytes: 1 << 20,
                waits: false,
                oversubscribed: false,
                received_bytes: received,
            };
            choice.record(transfer, || *at);
            if i % run == run - 1 {
                *at += Duration::from_millis(1);
            }
        }
        by_reference
    }

    #[test]
    fn the_faster_way_is_found_and_left_when_it_gets_slow() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        assert!(!choice.is_zero_copy(), "at first all is copied");
        send(&mut choice, 512 << 20, 64, [100, 80], &mut now);
        assert!(choice.is_zero_copy());
        send(&mut choice, 3 << 30, 64, [100, 130], &mut now);
        assert!(!choice.is_zero_copy());
    }

    #[test]
    fn a_gain_at_the_cost_of_the_other_direction_is_rejected() {
        let both_gain = [1 << 20, 1 << 20];
        let other_loses = [1 << 20, 1 << 19];
        for (received_bytes, gains) in [(both_gain, true), (other_loses, false)] {
            let (mut choice, mut now) = (Choice::new(false), Instant::now());
            exchange(
                &mut choice,
                512 << 20,
                64,
                [100, 80],
                received_bytes,
                &mut now,
            );
            assert_eq!(choice.is_zero_copy(), gains, "{received_bytes:?}");
        }
    }

    #[test]
    fn messages_that_answer_each_other_are_a_run() {
        for (answers, gains) in [(true, true), (false, false)] {
            let (mut choice, mut at) = (Choice::new(false), Instant::now());
            let mut received_bytes = 0;
            for _ in 0..200 {
                let zero_copy = choice.is_zero_copy();
                choice.offered(received_bytes, || at);
                at += Duration::from_micros(if zero_copy { 500 } else { 1000 });
                let transfer = Transfer {
                    zero_copy,
                    bytes: 4 << 20,
                    waits: false,
                    oversubscribed: false,
                    received_bytes,
                };
                choice.record(transfer, || at);
                at += Duration::from_micros(1000);
                received_bytes += if answers { 4 << 20 } else { 4 };
            }
            assert_eq!(choice.is_zero_copy(), gains, "{answers}");
        }
    }

    #[test]
    fn the_faster_way_is_found_with_slow_messages() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        send(&mut choice, 512 << 20, 64, [1000, 800], &mut now);
        assert!(choice.is_zero_copy());
    }

    #[test]
    fn a_small_gain_changes_nothing() {
        for micros in [[100, 100], [100, 95], [100, 130]] {
            let (mut choice, mut now) = (Choice::new(false), Instant::now());
            let by_reference = send(&mut choice, 64 << 30, 64, micros, &mut now);
            assert!(!choice.is_zero_copy(), "{micros:?}");
            let most = if micros[1] < 100 { 64 * 64 } else { 9 * 64 };
            assert!(
                (1..most).contains(&by_reference),
                "{micros:?}: {by_reference} MiB were tried"
            );
        }
    }

    #[test]
    fn a_much_slower_way_is_given_up_early() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        let by_reference = send(&mut choice, 1 << 30, 64, [100, 150], &mut now);
        let slot = (SKIPPED_BYTES + SLOT_BYTES) as u64 >> 20;
        assert!(!choice.is_zero_copy() && choice.trial.is_none());
        assert!(
            by_reference <= 2 * slot + 2,
            "{by_reference} MiB were tried"
        );
        // The result may have been chance: it is tried again.
        send(&mut choice, 3 << 30, 64, [100, 80], &mut now);
        assert!(choice.is_zero_copy());
    }

    #[test]
    fn slow_slots_do_not_decide() {
        let (mut choice, mut at) = (Choice::new(false), Instant::now());
        // Each way is disturbed for a while in some slots. Zero copy is slower by itself.
        for i in 0..400u64 {
            let zero_copy = choice.is_zero_copy();
            choice.offered(0, || at);
            let other_work = if i % 40 < 12 { 500 } else { 0 };
            at += Duration::from_micros(if zero_copy { 120 } else { 100 + other_work });
            let transfer = Transfer {
                zero_copy,
                bytes: 1 << 20,
                waits: true,
                oversubscribed: false,
                received_bytes: 0,
            };
            choice.record(transfer, || at);
        }
        assert!(!choice.is_zero_copy() && choice.trial.is_none());
    }

    #[test]
    fn messages_are_copied_at_first() {
        let zero_copy = |shared| Choice::of_classes(shared).map(|c| c.is_zero_copy());
        assert_eq!(zero_copy(false), [false; CLASSES]);
        assert_eq!(zero_copy(true), [false; CLASSES]);
        assert_eq!(
            [ZERO_COPY_MIN_BYTES, (1 << 20) - 1, 1 << 20, 4 << 20].map(size_class),
            [0, 0, 1, 2]
        );
    }

    #[test]
    fn short_runs_are_copied() {
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        assert_eq!(send(&mut choice, 8 << 30, 8, [100, 50], &mut now), 0);
        // A trial that long runs have begun is given up when only short ones follow.
        let (mut choice, mut now) = (Choice::new(false), Instant::now());
        send(
            &mut choice,
            FIRST_TRIAL_BYTES + (16 << 20),
            64,
            [100, 80],
            &mut now,
        );
        assert!(choice.is_zero_copy(), "the other way is tried");
        let by_reference = send(&mut choice, 900 << 20, 8, [100, 80], &mut now);
        assert!(
            !choice.is_zero_copy()
                && by_reference
                    <= (2 * SLOT_BYTES_FACTOR_MAX * (SKIPPED_BYTES + SLOT_BYTES)) as u64 >> 20
        );
    }
}
