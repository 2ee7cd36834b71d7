//! The record of one call.

use super::SiteId;
use std::time::{Duration, Instant};

/// How a call went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum CallMode {
    #[default]
    Unknown,
    Blocking,
    Traced,
    Overlapped,
}

/// The record of one call.
#[derive(Default)]
pub(in crate::overlap) struct Record {
    pub(super) site: SiteId,
    pub(super) mode: CallMode,
    pub(super) begun: Option<Instant>,
    /// Time spent in the call.
    pub(super) in_call: Duration,
    /// Time that threads of the program waited at guarded pages.
    pub waited: Duration,
    pub faults: u64,
    pub(super) order: Vec<u32>,
    /// When all data had arrived.
    pub ended: Option<Instant>,
    pub(super) bytes: usize,
}

impl Record {
    fn new(site: SiteId, mode: CallMode, begun: Instant, bytes: usize) -> Record {
        Record {
            site,
            mode,
            begun: Some(begun),
            in_call: begun.elapsed(),
            bytes,
            ..Record::default()
        }
    }
    /// A blocking call that has just ended.
    pub fn blocking(site: SiteId, begun: Instant, bytes: usize) -> Record {
        Record::new(site, CallMode::Blocking, begun, bytes)
    }
    /// A blocking call that has just ended, and whose buffers are guarded from now on.
    pub fn traced(site: SiteId, begun: Instant, bytes: usize) -> Record {
        Record::new(site, CallMode::Traced, begun, bytes)
    }
    /// A call that is to overlap.
    pub fn overlapped(site: SiteId, begun: Instant, bytes: usize) -> Record {
        Record::new(site, CallMode::Overlapped, begun, bytes)
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
