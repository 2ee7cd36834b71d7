//! What flows through the trees of [`crate::tree`] in segments: its loads, how long segments are.

use crate::algorithm::{Algorithm, Kind};
use crate::cost::load::{Load, Loads};
use crate::cost::{Cost, Problem};

/// The shortest segment, unless the longest is shorter. A choice.
const SEGMENT_MIN_BYTES: i64 = 1 << 10;

/// Fewer ranks do not choose a pipeline. A choice: what it costs on few ranks was not measured.
const PIPELINE_MIN_RANKS: u32 = 32;

/// What a segment costs the rank that has most to do with it.
pub(crate) struct Pipeline {
    /// Levels that a segment passes, each a message.
    levels: f64,
    /// Messages sent and received.
    messages: f64,
    /// How often a segment goes over the rank's link in one direction.
    crossings: f64,
    /// How often it is reduced.
    reductions: f64,
    /// How often all ranks together send it and reduce it.
    sent: f64,
}

impl Problem {
    /// The pipeline of an algorithm, if it is one.
    pub(crate) fn pipeline(&self, algorithm: Algorithm) -> Option<Pipeline> {
        let others = f64::from(self.ranks) - 1.;
        let levels = f64::from(self.ranks.next_power_of_two().ilog2());
        Some(match (self.kind, algorithm) {
            (Kind::Bcast | Kind::Reduce, Algorithm::TwoTrees) => Pipeline {
                levels,
                messages: 2.,
                crossings: 1.,
                reductions: if self.kind == Kind::Reduce { 1. } else { 0. },
                sent: others,
            },
            // At last the tree's root sends it to the call's.
            (Kind::Reduce, Algorithm::BinaryTree) => Pipeline {
                levels: levels + 1.,
                messages: 3.,
                crossings: 2.,
                reductions: 2.,
                sent: others,
            },
            // Up and down.
            (Kind::Scan, Algorithm::BinaryTree) => Pipeline {
                levels: 2. * levels,
                messages: 6.,
                crossings: 3.,
                reductions: 3.,
                sent: 2. * others,
            },
            _ => return None,
        })
    }

    /// Are trees in segments worth a thought? They send many messages, each of which wakes a rank.
    /// So each needs a core.
    pub(crate) fn may_pipeline(&self, cost: &Cost) -> bool {
        self.ranks >= PIPELINE_MIN_RANKS && self.ranks <= cost.cores
    }

    /// Units of a segment if data of this problem's bytes have `count` units. It depends on nothing
    /// that differs from rank to rank.
    pub(crate) fn segment(&self, algorithm: Algorithm, cost: &Cost, count: i64) -> i64 {
        let bytes = match self.pipeline(algorithm) {
            Some(pipeline) => pipeline.segment_bytes(self, cost),
            None => i64::from(cost.segment_bytes),
        };
        let unit = (self.bytes / count.max(1)).max(1);
        (bytes / unit).max(1)
    }
}

impl Pipeline {
    /// The length of segments that is quickest: the longest, or that halved some times.
    fn segment_bytes(&self, problem: &Problem, cost: &Cost) -> i64 {
        let halve = |&bytes: &i64| (bytes / 2 >= SEGMENT_MIN_BYTES).then_some(bytes / 2);
        let lengths = std::iter::successors(Some(i64::from(cost.segment_bytes)), halve);
        let seconds = |&bytes: &i64| {
            let path = self.path(problem.bytes as f64, bytes as f64, cost);
            path.messages * cost.latency_s + cost.bytes_s(path)
        };
        let quicker = |a: &i64, b: &i64| seconds(a).total_cmp(&seconds(b));
        lengths.min_by(quicker).unwrap_or(1)
    }

    /// The first segment through all levels, and behind it one after the other.
    fn path(&self, bytes: f64, segment: f64, cost: &Cost) -> Load {
        let segments = (bytes / segment).ceil().max(1.);
        let segment = bytes / segments;
        let side_s = cost.overhead_s / 2.;
        let work_s = self.messages * side_s + self.reductions * segment * cost.reduce_byte_s;
        let step_s = work_s.max(self.crossings * segment * cost.byte_s);
        // On half of the levels another rank comes first: with a message, and its bytes.
        let levels_s = self.levels * (cost.latency_s + side_s / 2.);
        Load {
            messages: (levels_s + (segments - 1.) * step_s) / cost.latency_s,
            count: self.levels + segments,
            bytes: 1.5 * self.levels * segment,
            reduced: self.levels * self.reductions.min(2.) * segment,
            ..Load::default()
        }
    }

    /// The loads of a call.
    pub(crate) fn loads(&self, problem: &Problem, cost: &Cost) -> Loads {
        let bytes = problem.bytes as f64;
        let segment = self.segment_bytes(problem, cost) as f64;
        let segments = (bytes / segment).ceil().max(1.);
        let reduced = if self.reductions > 0. {
            self.sent * bytes
        } else {
            0.
        };
        Loads {
            path: self.path(bytes, segment, cost),
            work: Load {
                messages: self.sent * segments,
                count: self.sent * segments,
                bytes: self.sent * bytes,
                reduced,
                ..Load::default()
            },
        }
    }
}
