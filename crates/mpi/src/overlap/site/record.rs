//! What is noted of one call.

use super::Number;
use std::time::{Duration, Instant};

/// How a call went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Way {
    #[default]
    Unknown,
    Blocking,
    Traced,
    Overlapped,
}

/// What is noted of one call.
#[derive(Default)]
pub(in crate::overlap) struct Record {
    pub(super) site: Number,
    pub(super) way: Way,
    pub(super) begun: Option<Instant>,
    /// In the call.
    pub(super) in_call: Duration,
    /// Threads of the program waited so long at guarded pages.
    pub waited: Duration,
    pub faults: u64,
    pub(super) order: Vec<u32>,
    /// All was there.
    pub ended: Option<Instant>,
    pub(super) bytes: usize,
}

impl Record {
    fn new(site: Number, way: Way, begun: Instant, bytes: usize) -> Record {
        Record {
            site,
            way,
            begun: Some(begun),
            in_call: begun.elapsed(),
            bytes,
            ..Record::default()
        }
    }
    /// A blocking call that has just ended.
    pub fn blocking(site: Number, begun: Instant, bytes: usize) -> Record {
        Record::new(site, Way::Blocking, begun, bytes)
    }
    /// The same, whose buffers will be watched.
    pub fn traced(site: Number, begun: Instant, bytes: usize) -> Record {
        Record::new(site, Way::Traced, begun, bytes)
    }
    /// A call that is to overlap.
    pub fn overlapped(site: Number, begun: Instant, bytes: usize) -> Record {
        Record::new(site, Way::Overlapped, begun, bytes)
    }
    /// The call returns.
    pub fn returned(&mut self) {
        self.in_call = self.begun.map_or(Duration::ZERO, |b| b.elapsed());
    }
    /// What `peer` sends has been touched.
    pub fn touched(&mut self, peer: u32, _at: Instant) {
        if !self.order.contains(&peer) {
            self.order.push(peer);
        }
    }
}
