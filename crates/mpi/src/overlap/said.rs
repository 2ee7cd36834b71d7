//! What ranks say to each other of their calls.

use super::pending::PENDING;
use super::site::{self, Record};
use super::verdict::{self, Saying};
use crate::device::{self, ProcId};
use std::sync::atomic::Ordering;

/// What others have said of calls since the last time.
pub(super) fn said() -> Vec<(ProcId, Saying)> {
    let mut d = device::device();
    let said = std::iter::from_fn(|| d.next_control())
        .filter_map(|(from, note)| Some((from, verdict::saying(note)?)))
        .collect();
    d.drop_within_call();
    said
}

pub(super) fn say(sayings: &[(ProcId, Saying)]) {
    if sayings.is_empty() {
        return;
    }
    let mut d = device::device();
    for (to, saying) in sayings {
        d.send_control(*to, verdict::note(saying));
    }
}

pub(super) fn open_span(record: Record) {
    if site::open_span(record) {
        PENDING.fetch_add(1, Ordering::Relaxed);
    }
}
