//! Feeds mutated bytes to parsers of foreign bytes.
//!
//! Each crate that reads bytes from outside has tests named `fuzz_…` that call [`fuzz`]. In an
//! ordinary test run each takes a fraction of a second, with the same bytes every time; with
//! `FERRY_FUZZ_SECONDS=60` each runs that long with bytes never tried before (`make fuzz`). A
//! failure prints the bytes and how to run them again.
//!
//! There is no coverage measurement on stable Rust. Instead the target says what came of its input
//! (which error, how many fields): an input with an outcome not seen before joins those that later
//! inputs are made from.
//!
//! ```
//! let seeds = [b"4 ranks".to_vec()];
//! ferry_fuzz::fuzz("numbers", &seeds, |bytes| {
//!     std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<u32>().ok())
//! });
//! ```

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// How long a target is fed where the environment does not say.
const DEFAULT_DURATION: Duration = Duration::from_millis(150);
/// A target that takes longer than this for one input hangs.
const INPUT_LIMIT: Duration = Duration::from_secs(5);
/// Inputs kept to make others from.
const CORPUS_MAX: usize = 512;
/// Longest input made, bytes.
const INPUT_MAX_BYTES: usize = 8192;

/// Feeds `target` with mutations of `seeds`; it panics on what must not happen and otherwise
/// returns what came of the input.
pub fn fuzz<O: Hash>(name: &str, seeds: &[Vec<u8>], mut target: impl FnMut(&[u8]) -> O) {
    let seconds = std::env::var("FERRY_FUZZ_SECONDS")
        .ok()
        .and_then(|v| v.parse().ok());
    let given = std::env::var("FERRY_FUZZ_SEED")
        .ok()
        .and_then(|v| v.parse().ok());
    let seed = given.unwrap_or_else(|| {
        // The same bytes in every ordinary run, others in each long one.
        let clock = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(0, |d| d.as_nanos() as u64);
        hash_of(&name) ^ if seconds.is_some() { clock } else { 0 }
    });
    let end = Instant::now() + seconds.map_or(DEFAULT_DURATION, Duration::from_secs);
    let mut random = Random(seed | 1);
    let mut corpus: Vec<Vec<u8>> = seeds.to_vec();
    corpus.push(Vec::new());
    let mut outcomes = HashSet::new();
    let first = corpus.clone();
    for bytes in &first {
        outcomes.insert(hash_of(&run(name, seed, bytes, &mut target)));
    }
    while Instant::now() < end {
        for _ in 0..16 {
            let bytes = mutated(&corpus, &mut random);
            let outcome = hash_of(&run(name, seed, &bytes, &mut target));
            if outcomes.len() < 1 << 16 && outcomes.insert(outcome) {
                if corpus.len() < CORPUS_MAX {
                    corpus.push(bytes);
                } else {
                    let at = random.below(CORPUS_MAX);
                    corpus[at] = bytes;
                }
            }
        }
    }
}

/// Gives the target one input, and says which if it panics.
fn run<O>(name: &str, seed: u64, bytes: &[u8], target: &mut impl FnMut(&[u8]) -> O) -> O {
    struct ReportOnPanic<'a>(&'a str, u64, &'a [u8]);
    impl Drop for ReportOnPanic<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let ReportOnPanic(name, seed, bytes) = self;
                eprintln!(
                    "{name} failed (FERRY_FUZZ_SEED={seed}) on {} bytes: {}",
                    bytes.len(),
                    bytes.escape_ascii()
                );
            }
        }
    }
    let report = ReportOnPanic(name, seed, bytes);
    let start = Instant::now();
    let outcome = target(bytes);
    let took = start.elapsed();
    assert!(took < INPUT_LIMIT, "{name} took {took:?} for one input");
    drop(report);
    outcome
}

fn hash_of(v: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    v.hash(&mut hasher);
    hasher.finish()
}

/// Pseudo-random numbers (xorshift).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence that depends on `seed` alone.
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }
    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            0
        } else {
            (self.number() >> 16) as usize % n
        }
    }
}

/// Numbers at which length checks go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// A few changes to one input, or to two joined.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(9) {
            0 if !bytes.is_empty() => {
                let at = at % bytes.len();
                bytes[at] ^= 1 << random.below(8);
            }
            1 if !bytes.is_empty() => {
                let at = at % bytes.len();
                bytes[at] = random.number() as u8;
            }
            2 => bytes.insert(at, random.number() as u8),
            3 => bytes.truncate(at),
            4 => {
                let end = (at + 1 + random.below(16)).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            5 => {
                // A number at an edge, or near it, where a field may begin.
                let width = [1, 2, 4, 8][random.below(4)];
                let edge = EDGES[random.below(EDGES.len())]
                    .wrapping_add(random.below(3) as u64)
                    .wrapping_sub(1);
                let at = at / width * width;
                if at + width <= bytes.len() {
                    bytes[at..at + width].copy_from_slice(&edge.to_le_bytes()[..width]);
                }
            }
            6 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            7 => {
                let end = (at + 1 + random.below(64)).min(bytes.len());
                let piece = bytes[at.min(end)..end].to_vec();
                for (i, b) in piece.into_iter().enumerate() {
                    bytes.insert(at + i, b);
                }
            }
            _ => {
                for _ in 0..random.below(24) {
                    bytes.push(random.number() as u8);
                }
            }
        }
    }
    bytes.truncate(INPUT_MAX_BYTES);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_fault_is_found() {
        // Only bytes that keep the magic and claim too much reach the fault.
        let found = std::panic::catch_unwind(|| {
            fuzz("planted", &[b"magic\x02ab".to_vec()], |bytes| {
                let Some(rest) = bytes.strip_prefix(b"magic") else {
                    return 0;
                };
                let Some((&n, rest)) = rest.split_first() else {
                    return 1;
                };
                rest[..n as usize].len()
            });
        });
        assert!(found.is_err());
    }

    #[test]
    fn an_ordinary_run_is_the_same_each_time() {
        let gather = || {
            let (mut corpus, mut random) = (vec![vec![1, 2, 3]], Random::new(7));
            for _ in 0..200 {
                let next = mutated(&corpus, &mut random);
                corpus.push(next);
            }
            corpus
        };
        assert_eq!(gather(), gather());
    }
}
