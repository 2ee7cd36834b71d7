//! The cost model of Bruck's all-to-all: what it moves in a base, and which base is quickest.

use crate::cost::load::{Load, Loads};
use crate::cost::{Cost, Problem};

/// Fewer ranks use base 2. A choice: others were not measured on few ranks.
const RADIX_MIN_RANKS: u32 = 32;

/// What one rank moves in all rounds of a base.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    rounds: f64,
    pub(crate) messages: f64,
    /// Blocks sent.
    pub(crate) blocks: f64,
    /// Blocks copied, and in how many copies.
    copied: f64,
    copies: f64,
}

impl Moved {
    fn new(ranks: u32, radix: u32) -> Moved {
        let n = f64::from(ranks);
        // Into the slots, and out of them.
        let mut moved = Moved {
            copied: 2. * n,
            copies: 2. + n,
            ..Moved::default()
        };
        let mut stride = 1;
        while stride < ranks {
            let digits = radix.min(ranks.div_ceil(stride));
            let messages = f64::from(digits - 1);
            let blocks = n - n / f64::from(digits);
            moved.rounds += 1.;
            moved.messages += messages;
            moved.blocks += blocks;
            let above = stride.saturating_mul(radix);
            // The last digit's messages are a run each, which is not copied.
            if above < ranks {
                moved.copied += 2. * blocks;
                moved.copies += 2. * blocks / f64::from(stride);
            }
            stride = above;
        }
        moved
    }
}

impl Problem {
    /// What one rank moves.
    pub(crate) fn bruck_moved(&self, radix: u32) -> Moved {
        Moved::new(self.ranks, radix)
    }

    /// The quickest base: the least for a number of rounds. One round would be as many messages as
    /// there are ranks, with copies.
    pub(crate) fn bruck_radix(&self, cost: &Cost) -> u32 {
        if self.ranks < RADIX_MIN_RANKS || self.ranks > cost.cores {
            return 2;
        }
        let most = self.ranks.next_power_of_two().ilog2();
        let radixes = (2..=most).map(|rounds| {
            let root = f64::from(self.ranks).powf(1. / f64::from(rounds));
            // Roundings: no round more for them.
            let low = (root - 1e-9).ceil().max(2.) as u32;
            let reaches =
                |radix: &u32| u64::from(*radix).saturating_pow(rounds) >= self.ranks.into();
            if reaches(&low) { low } else { low + 1 }
        });
        let seconds = |radix: u32| {
            let path = self.bruck_loads(radix, cost).path;
            path.messages * cost.latency_s + cost.bytes_s(path)
        };
        let quickest = radixes.min_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
        quickest.unwrap_or(2)
    }

    /// The loads in a base.
    pub(crate) fn bruck_loads(&self, radix: u32, cost: &Cost) -> Loads {
        let (n, m) = (f64::from(self.ranks), self.bytes as f64);
        let moved = self.bruck_moved(radix);
        let Moved {
            rounds, messages, ..
        } = moved;
        // Messages of a round do not wait for each other.
        let chain = rounds + (messages - rounds) * (cost.overhead_s / cost.latency_s).min(1.);
        Loads {
            path: Load::sent(chain, moved.blocks * m)
                .with_count(messages)
                .copied(moved.copied * m)
                .with_copies(moved.copies),
            work: Load::sent(n * messages, n * moved.blocks * m)
                .copied(n * moved.copied * m)
                .with_copies(n * moved.copies),
        }
    }
}
