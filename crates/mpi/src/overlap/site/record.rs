//! The record of one call at a site: how it went, and what was measured.

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
    pub fault_wait: Duration,
    /// Touches of guarded pages.
    pub faults: u64,
    /// Peers in the order in which the program read their data.
    pub(super) order: Vec<u32>,
    /// When all data had arrived.
    pub data_complete: Option<Instant>,
    /// Bytes that the call moved.
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

    /// Records that the call returns now.
    pub fn record_return(&mut self) {
        self.in_call = self.begun.map_or(Duration::ZERO, |b| b.elapsed());
    }

    /// Records that the program has touched what `peer` sends.
    pub fn record_touch(&mut self, peer: u32) {
        if !self.order.contains(&peer) {
            self.order.push(peer);
        }
    }
}
