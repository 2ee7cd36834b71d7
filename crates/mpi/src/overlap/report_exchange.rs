//! Exchange of reports: ranks send each other the times of their calls.

use super::pending::PENDING;
use super::site::{self, Record};
use super::verdict::{self, Report};
use crate::device::{self, ProcId};
use std::sync::atomic::Ordering;

/// The reports that have arrived since the last call.
pub(super) fn receive_reports() -> Vec<(ProcId, Report)> {
    let mut d = device::device();
    let reports = std::iter::from_fn(|| d.next_control())
        .filter_map(|(from, message)| Some((from, verdict::decode(message)?)))
        .collect();
    d.drop_within_call();
    reports
}

pub(super) fn send_reports(reports: &[(ProcId, Report)]) {
    if reports.is_empty() {
        return;
    }
    let mut d = device::device();
    for (to, report) in reports {
        d.send_control(*to, verdict::encode(report));
    }
}

pub(super) fn open_span(record: Record) {
    if site::open_span(record) {
        PENDING.fetch_add(1, Ordering::Relaxed);
    }
}
