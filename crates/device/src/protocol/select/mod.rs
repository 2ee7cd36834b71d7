//! Path selection: which of single copy and pipelined copy a large message within a node takes.
//!
//! Single copy reads the sender's memory: one copy, but through the kernel. Pipelined copy goes
//! through the ring: two copies, but by two cores at the same time and without a system call. Which
//! is faster depends on processor and kernel, by factors. So each size class tries both paths on
//! its first messages ([`trial`]), takes the faster one, and tries the other one again now and
//! then.

mod trial;

use crate::base::key::ProcId;
use crate::base::path::{Path, ReceiverState, Sample};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use trial::{Stage, Trials};

/// Size classes: up to 64 KiB, then below 128 KiB, 512 KiB, 2 MiB and 8 MiB, and from 8 MiB on.
pub(crate) const CLASSES: usize = 6;
/// Longest message of the smallest size class, bytes: what would be eager if it were not announced.
const SMALLEST_CLASS_MAX_BYTES: u64 = 64 * 1024;
/// Maximum number of messages in a row that follow a peer's choice. A choice.
const FOLLOWED_MESSAGES_MAX: u8 = 64;

/// The size class of a message of `len` bytes.
pub(crate) fn size_class(len: u64) -> usize {
    if len <= SMALLEST_CLASS_MAX_BYTES {
        return 0;
    }
    let over = (len >> 15).checked_ilog2().map_or(0, |l| l / 2 + 1);
    (over as usize).min(CLASSES - 1)
}

/// Measured times and pending messages.
pub(crate) struct PathSelector {
    /// By [`ReceiverState`] and size class.
    trials: [[Trials; CLASSES]; 3],
    /// When the last message ended, and its path: those behind it in the queue began only then.
    last_ended: Option<(Instant, Path)>,
    /// When the first of the pending messages matched, and the number of first touches then. If
    /// none is pending, the values of the last ones.
    busy_since: Option<(Instant, u64)>,
    /// How often a part was copied through memory that was not used before.
    first_touches: u64,
    /// Pending messages, by path.
    pending: [u32; 2],
    /// By peer and size class: the path that the peer has chosen for a message of this process, and
    /// how many of the peer's messages have followed it.
    followed: HashMap<ProcId, [Option<(Path, u8)>; CLASSES]>,
}

impl Default for PathSelector {
    fn default() -> PathSelector {
        let mut trials = [Trials::of_size_classes(1); 3];
        trials[ReceiverState::AlsoSending as usize] = Trials::of_size_classes(2);
        PathSelector {
            trials,
            last_ended: None,
            busy_since: None,
            first_touches: 0,
            pending: [0; 2],
            followed: HashMap::new(),
        }
    }
}

impl PathSelector {
    /// Chooses the path of a message of `len` bytes that matched at `matched_at`. This process may
    /// have done other things since. [`PathSelector::record`] gets the sample when the message has
    /// ended.
    pub fn choose(
        &mut self,
        receiver_state: ReceiverState,
        from: ProcId,
        len: u64,
        matched_at: Instant,
    ) -> Sample {
        let size_class = size_class(len);
        let (path, trial) = match receiver_state {
            ReceiverState::AlsoSending => self.follow(from, size_class),
            _ => None,
        }
        .map(|path| (path, None))
        .unwrap_or_else(|| self.trials[receiver_state as usize][size_class].choose());
        if self.pending == [0; 2] {
            self.busy_since = Some((matched_at, self.first_touches));
        }
        self.pending[path as usize] += 1;
        Sample {
            path,
            receiver_state,
            size_class,
            trial,
            first_touches: self.first_touches,
            matched_at,
            chosen_at: Instant::now(),
            copy_time: Duration::ZERO,
        }
    }

    /// Should a message of `len` bytes, whose path was not chosen yet, wait for those of a trial?
    pub fn holds(&mut self, receiver_state: ReceiverState, len: u64) -> bool {
        // Where a core is shared, waiting means to sleep.
        receiver_state != ReceiverState::SharedCore
            && self.trials[receiver_state as usize][size_class(len)].holds()
    }

    /// The process is about to sleep: no message is held back any more.
    pub fn hold_no_more(&mut self) {
        let all = self.trials.iter_mut().flatten();
        all.for_each(Trials::hold_no_more);
    }

    /// A part is copied through memory that was not used before: the times of the pending messages
    /// do not predict those of later ones.
    pub fn count_first_touch(&mut self) {
        self.first_touches += 1;
    }

    /// `messages` speculative messages of about `len` bytes have arrived.
    pub fn count_speculative(&mut self, len: u64, messages: u32) {
        for of_copier in &mut self.trials {
            of_copier[size_class(len)].count_speculative(messages);
        }
    }

    /// `peer`, which chooses for both, has chosen this path for a message of `len` bytes.
    pub fn follow_next(&mut self, peer: ProcId, len: u64, path: Path) {
        self.followed.entry(peer).or_default()[size_class(len)] = Some((path, 0));
    }

    /// The path that a peer has chosen for both. Of two processes that exchange messages only one
    /// chooses. Otherwise neither would ever find pipelined copy faster: while one reads, it does
    /// not write the parts that the other one has requested.
    fn follow(&mut self, peer: ProcId, size_class: usize) -> Option<Path> {
        let known = &mut self.followed.get_mut(&peer)?[size_class];
        let (path, messages) = known.as_mut()?;
        *messages += 1;
        let path = *path;
        if *messages >= FOLLOWED_MESSAGES_MAX {
            *known = None;
        }
        Some(path)
    }

    /// A message that could go its path since `since` has ended now. Returns how long it took after
    /// the message before it, and whether no message took the other path meanwhile.
    fn end(&mut self, path: Path, since: Instant) -> (Duration, bool) {
        let now = Instant::now();
        let before = self.last_ended.replace((now, path)).filter(|b| b.0 > since);
        let since = before.map_or(since, |(ended, _)| ended);
        let others = self.pending[path.other() as usize];
        let apart = others == 0 && before.is_none_or(|(_, p)| p == path);
        (now.saturating_duration_since(since), apart)
    }

    /// A message of `len` bytes has ended now. `writes`: parts of this process's messages to the
    /// same peer wait to be written.
    pub fn record(&mut self, len: u64, sample: Sample, writes: bool) {
        let path = sample.path;
        self.abandon(sample);
        let (took, apart) = self.end(path, sample.matched_at);
        let apart = apart && !(writes && path == Path::SingleCopy);
        let first_touches = self.first_touches;
        let trials = &mut self.trials[sample.receiver_state as usize][sample.size_class];
        if sample.trial != Some(trials.trials) {
            return;
        }
        if trials.stage == Stage::Trial(path) {
            trials.end_one();
        }
        let took = match (sample.receiver_state, path) {
            // The sender works as long.
            (ReceiverState::SharedCore, Path::Pipelined) => 2 * sample.copy_time,
            (ReceiverState::SharedCore, Path::SingleCopy) => sample.chosen_at.elapsed(),
            _ => took,
        };
        let warm = sample.first_touches == first_touches || path == Path::SingleCopy;
        trials.record(path, len, took.as_secs_f64(), apart && warm);
    }

    /// A message of this process of `len` bytes has ended now. Its receiver follows this process's
    /// choice. `writes`: as for [`PathSelector::record`].
    pub fn record_own(&mut self, len: u64, path: Path, writes: bool) {
        let size_class = size_class(len);
        if !self.trials[ReceiverState::AlsoSending as usize][size_class].take_own(path) {
            return;
        }
        let Some((busy_since, first_touches)) = self.busy_since else {
            return;
        };
        let (took, apart) = self.end(path, busy_since);
        let apart = apart && !(writes && path == Path::SingleCopy);
        let warm = first_touches == self.first_touches || path == Path::SingleCopy;
        let trials = &mut self.trials[ReceiverState::AlsoSending as usize][size_class];
        trials.record(path, len, took.as_secs_f64(), apart && warm);
    }

    /// A message is not pending any more, and is not measured.
    pub fn abandon(&mut self, sample: Sample) {
        let pending = &mut self.pending[sample.path as usize];
        *pending = pending.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
