//! Reads status pages.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use ferry_job::{RankState, RankStatus};

use super::snapshot::{RankPhase, RankView};
use crate::protocol::{AwaitedView, StatusPage};

/// Copies a status page. Call and communicator names only with `texts`. The caller fills in `awake`
/// and `age`.
pub fn page_of(rank: u32, status: &RankStatus, texts: bool) -> StatusPage {
    let asleep = status.asleep.load(Acquire) != 0;
    StatusPage {
        rank,
        state: status.state.load(Acquire),
        asleep,
        awake: false,
        call: if texts { status.call.load(Relaxed) } else { 0 },
        age: 0,
        context: status.context.load(Relaxed),
        comm: if texts {
            status.comm_name.text()
        } else {
            String::new()
        },
        awaits_unknown: status.awaits_unknown.load(Relaxed) != 0,
        has_parted: status.parted.load(Relaxed) != 0,
        known_jobs: known_jobs(status),
        peer_rank: status.peer_rank.load(Relaxed),
        peer_job: status.peer_job.load(Relaxed),
        comm_size: status.comm_size.load(Relaxed),
        peer: status.peer.load(Relaxed),
        tag: status.tag.load(Relaxed),
        collective: status.collective.load(Relaxed),
        root: status.root.load(Relaxed),
        operation: if texts {
            status.operation.text()
        } else {
            String::new()
        },
        awaited_count: status.awaited_count.load(Relaxed),
        awaited: if texts { awaited(status) } else { Vec::new() },
        sent: status.sent.load(Relaxed),
        received: status.received.load(Relaxed),
    }
}

/// The requests that a page names.
fn awaited(status: &RankStatus) -> Vec<AwaitedView> {
    let count = status.awaited_count.load(Relaxed) as usize;
    let named = status.awaited.iter().take(count);
    named
        .map(|one| AwaitedView {
            operation: one.operation.text(),
            context: one.context.load(Relaxed),
            peer: one.peer.load(Relaxed),
            tag: one.tag.load(Relaxed),
            collective: one.collective.load(Relaxed),
        })
        .collect()
}

/// The other jobs that a page names.
fn known_jobs(status: &RankStatus) -> Vec<u64> {
    let all = status.known_jobs.iter().map(|job| job.load(Relaxed));
    all.take_while(|&job| job != 0).collect()
}

/// What the hang report needs of a page. For a rank that has not ended.
pub fn view_of(page: &StatusPage, since: u64) -> RankView {
    RankView {
        phase: match RankState::from_number(page.state) {
            RankState::Started => RankPhase::Started,
            RankState::Running => RankPhase::Running,
            _ => RankPhase::Finalized,
        },
        asleep: page.asleep,
        call: if page.call == 0 {
            String::new()
        } else {
            ferry_api::name_of(page.call).unwrap_or_else(|| "a call".into())
        },
        since,
        context: page.context,
        comm: page.comm.clone(),
        awaits_unknown: page.awaits_unknown,
        has_parted: page.has_parted,
        known_jobs: page.known_jobs.clone(),
        peer_elsewhere: (page.peer_job != 0).then_some((page.peer_job, page.peer_rank)),
        comm_size: page.comm_size,
        peer: page.peer,
        tag: page.tag,
        collective: page.collective,
        root: page.root,
        operation: page.operation.clone(),
        awaited_count: page.awaited_count,
        awaited: page.awaited.clone(),
        sent: page.sent,
        received: page.received,
    }
}
