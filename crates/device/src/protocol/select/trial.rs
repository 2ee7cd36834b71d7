//! Measured trials of the two paths for messages of one size class.

use crate::base::path::Path;

/// Minimum number of messages on each path in a trial. A choice. Further messages before the end of
/// a part take the same path. Otherwise the work for messages of the other path would be measured
/// with them.
pub(super) const TRIAL_MESSAGES: u32 = 6;
/// Messages at the beginning of each part that do not count: earlier ones are still pending. A
/// choice.
const WARMUP_MESSAGES: u32 = 2;
/// The same for the smallest size class. Its messages fit a cell each, so that the first ones may
/// all have been written before they are read. A choice: more than a pair has cells.
pub(super) const SMALLEST_WARMUP_MESSAGES: u32 = 18;
/// Messages that count. The slowest of them is left out: it may have waited for something else.
pub(super) const MEASURED_MESSAGES: u32 = TRIAL_MESSAGES - WARMUP_MESSAGES;
/// Maximum number of further messages that do not count, because their memory was not used before,
/// or because others took the other path at the same time. A choice. In a program with only such
/// messages they count.
pub(super) const DISTURBED_MESSAGES_MAX: u32 = 64;
/// Messages between the first trial of a size class and the second. Doubled by each trial with the
/// same result. A choice.
pub(super) const TRIAL_PERIOD_MIN_MESSAGES: u32 = 32;
/// Maximum number of messages between two trials. A choice.
pub(super) const TRIAL_PERIOD_MAX_MESSAGES: u32 = 4096;
/// Maximum number of polls during which messages are held back without one of the trial's ending. A
/// choice: some milliseconds. One of them may never end: its sender has withdrawn it.
pub(super) const HELD_POLLS_MAX: u32 = 100_000;
/// Maximum part of the time of all messages that the slower messages of a trial cost. A choice. If
/// a trial costs more, trials are rarer.
const TRIAL_COST_MAX_FRACTION: f64 = 0.01;
/// The factor by which a trial can make a path look slower than before: the process may have lost
/// its core meanwhile. A trial that is faster by this factor replaces the earlier ones: nothing
/// makes a copy look faster than it is.
const SLOWDOWN_MAX_FACTOR: f64 = 2.0;
/// How much a slower trial counts beside the earlier ones: two of them in a row may have been
/// disturbed. A choice.
const SLOWDOWN_WEIGHT: f64 = 0.25;

/// What has been measured of one path in one size class.
#[derive(Clone, Copy, Default)]
pub(super) struct Measurement {
    /// Seconds and bytes of the messages of the present trial that count.
    sum: (f64, f64),
    /// Seconds and bytes of the slowest of them.
    slowest: (f64, f64),
    /// The number of these messages.
    pub messages: u32,
    /// Seconds per byte, from all trials.
    pub known: Option<f64>,
}

impl Measurement {
    /// A trial begins.
    pub fn begin(&mut self) {
        *self = Measurement {
            known: self.known,
            ..Measurement::default()
        };
    }

    /// A message of `len` bytes took `seconds`. Returns whether `enough` messages have been
    /// counted.
    pub fn record(&mut self, len: u64, seconds: f64, enough: u32) -> bool {
        let len = len as f64;
        self.sum = (self.sum.0 + seconds, self.sum.1 + len);
        if seconds * self.slowest.1 >= self.slowest.0 * len {
            self.slowest = (seconds, len);
        }
        self.messages += 1;
        let complete = self.messages >= enough;
        if complete {
            let new = self.latest();
            self.known = Some(match self.known {
                Some(old) if new * SLOWDOWN_MAX_FACTOR < old => new,
                Some(old) if new < old => (old + new) / 2.0,
                Some(old) => old + (new.min(SLOWDOWN_MAX_FACTOR * old) - old) * SLOWDOWN_WEIGHT,
                None => new,
            });
        }
        complete
    }

    /// Seconds per byte, from the present trial.
    pub fn latest(&self) -> f64 {
        (self.sum.0 - self.slowest.0) / (self.sum.1 - self.slowest.1).max(1.0)
    }
}

/// What the next message is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// A trial of this path.
    Trial(Path),
    /// The trial has ended: all messages go the path that it found.
    Settled,
}

/// The trials of one size class.
#[derive(Clone, Copy)]
pub(super) struct Trials {
    /// By path.
    pub measurements: [Measurement; 2],
    pub stage: Stage,
    /// Messages whose path was chosen in the present stage.
    chosen: u32,
    /// Messages that have ended without being counted: the first ones.
    warmup: u32,
    /// Messages of each part of a trial that are not to be counted.
    warmup_max: u32,
    /// Messages that have ended without being counted: those that were disturbed.
    disturbed: u32,
    /// Messages that end for each one whose path is chosen: two if this process's own count.
    pub each: u32,
    /// This process's own messages that are still to end in this stage.
    own_pending: u32,
    /// Messages whose path was chosen in the present stage and that have ended.
    ended: u32,
    /// Polls since then that held messages back.
    held: u32,
    /// The number of trials so far.
    pub trials: u32,
    /// Messages that the latest trial has sent by single copy.
    single_copies: u32,
    /// Messages between the end of a trial and the beginning of the next.
    period: u32,
    /// The path that the trials have found.
    pub choice: Path,
}

impl Trials {
    /// Before the first trial. `each`: messages that end for each one whose path is chosen.
    pub fn new(each: u32) -> Trials {
        Trials {
            measurements: [Measurement::default(); 2],
            stage: Stage::Trial(Path::SingleCopy),
            chosen: 0,
            warmup: 0,
            warmup_max: WARMUP_MESSAGES * each,
            disturbed: 0,
            each,
            own_pending: 0,
            ended: 0,
            held: 0,
            trials: 0,
            single_copies: 0,
            period: TRIAL_PERIOD_MIN_MESSAGES,
            choice: Path::SingleCopy,
        }
    }

    /// As [`Trials::new`], of all size classes.
    pub fn of_size_classes<const CLASSES: usize>(each: u32) -> [Trials; CLASSES] {
        let mut trials = [Trials::new(each); CLASSES];
        trials[0].warmup_max = SMALLEST_WARMUP_MESSAGES * each;
        trials
    }

    /// Begins a stage.
    pub fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        (self.chosen, self.warmup) = (0, 0);
        (self.disturbed, self.own_pending) = (0, 0);
        (self.ended, self.held) = (0, 0);
    }

    /// Should the next message wait? So it is while a trial of pipelined copy has as many messages
    /// in progress as it still has to count: more of them would only be slow. Single copy needs no
    /// such rule, since a message has been read when it is chosen.
    pub fn holds(&mut self) -> bool {
        if self.stage != Stage::Trial(Path::Pipelined) || self.held >= HELD_POLLS_MAX {
            return false;
        }
        let counted = self.warmup + self.measurements[Path::Pipelined as usize].messages;
        let to_count = (self.warmup_max + MEASURED_MESSAGES * self.each).saturating_sub(counted);
        let in_progress = self.chosen.saturating_sub(self.ended);
        let holds = in_progress >= to_count.div_ceil(self.each).max(1);
        self.held += u32::from(holds);
        holds
    }

    /// Holds no more messages back in this stage: the process is about to sleep.
    pub fn hold_no_more(&mut self) {
        self.held = HELD_POLLS_MAX;
    }

    /// A message whose path was chosen in the present stage has ended.
    pub fn end_one(&mut self) {
        self.ended += 1;
        if self.held < HELD_POLLS_MAX {
            self.held = 0;
        }
    }

    /// The next message's path, and the trial of which it is a part.
    pub fn choose(&mut self) -> (Path, Option<u32>) {
        if self.stage == Stage::Settled && self.chosen >= self.period {
            self.trials = self.trials.saturating_add(1);
            self.measurements.iter_mut().for_each(Measurement::begin);
            self.enter(Stage::Trial(Path::SingleCopy));
        }
        self.chosen += 1;
        match self.stage {
            Stage::Trial(path) => {
                let trial = self.trials;
                self.own_pending += self.each - 1;
                // Messages that were to be counted may never end: their sender is dead, say.
                if self.chosen >= TRIAL_PERIOD_MAX_MESSAGES {
                    self.enter(Stage::Settled);
                }
                (path, Some(trial))
            }
            Stage::Settled => (self.choice, None),
        }
    }

    /// Counts `messages` speculative messages towards the next trial.
    pub fn count_speculative(&mut self, messages: u32) {
        if self.stage == Stage::Settled {
            self.chosen = self.chosen.saturating_add(messages);
        }
    }

    /// One of this process's own messages has ended. Returns whether it is part of a trial of
    /// `path`.
    pub fn take_own(&mut self, path: Path) -> bool {
        let counts = self.stage == Stage::Trial(path) && self.own_pending > 0;
        if counts {
            self.own_pending -= 1;
        }
        counts
    }

    /// A message of the present trial took `seconds`. `undisturbed`: others will take as long.
    pub fn record(&mut self, path: Path, len: u64, seconds: f64, undisturbed: bool) {
        if self.stage != Stage::Trial(path) {
            return;
        }
        if !undisturbed && self.disturbed < DISTURBED_MESSAGES_MAX {
            self.disturbed += 1;
            return;
        }
        if self.warmup < self.warmup_max {
            self.warmup += 1;
            return;
        }
        if self.measurements[path as usize].record(len, seconds, MEASURED_MESSAGES * self.each) {
            match path {
                Path::SingleCopy => {
                    // The cost of the trial, if pipelined copy is faster.
                    self.single_copies = self.chosen;
                    self.enter(Stage::Trial(Path::Pipelined));
                }
                Path::Pipelined => self.decide(),
            }
        }
    }

    /// Ends a trial.
    fn decide(&mut self) {
        let faster = |pipelined: f64, single: f64| {
            if pipelined < single {
                Path::Pipelined
            } else {
                Path::SingleCopy
            }
        };
        let [latest_pipelined, latest_single] = self.measurements.map(|m| m.latest());
        let [pipelined, single] = self
            .measurements
            .map(|m| m.known.unwrap_or_else(|| m.latest()));
        let choice = faster(pipelined, single);
        let same = self.trials == 0 || choice == self.choice;
        if !same || faster(latest_pipelined, latest_single) != choice {
            self.period = TRIAL_PERIOD_MIN_MESSAGES;
        } else if self.trials > 0 {
            let slower = pipelined.max(single) / pipelined.min(single).max(f64::MIN_POSITIVE) - 1.0;
            let slow_messages = match choice {
                Path::SingleCopy => self.chosen,
                Path::Pipelined => self.single_copies,
            };
            // Only after the first trial, which may have been disturbed.
            let affordable = f64::from(slow_messages) * slower / TRIAL_COST_MAX_FRACTION;
            self.period = (2 * self.period)
                .max(affordable as u32)
                .min(TRIAL_PERIOD_MAX_MESSAGES);
        }
        self.choice = choice;
        self.enter(Stage::Settled);
    }
}
