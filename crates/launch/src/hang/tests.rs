//! What is said of jobs that hang.

use ferry_job::{PEER_OWN_PROGRAM, TAG_WINDOW_COMPLETE, TAG_WINDOW_LOCK, TAG_WINDOW_POST};

use super::mistakes::mistakes;
use super::table::list;
use super::*;
use crate::protocol::AwaitedView;

const SECOND: u64 = 1_000_000_000;

fn waiting(call: &str, peer: i32, tag: i32) -> RankView {
    RankView {
        phase: RankPhase::Running,
        asleep: true,
        call: call.into(),
        since: SECOND,
        context: 0,
        comm: String::new(),
        awaits_unknown: false,
        has_parted: false,
        known_jobs: Vec::new(),
        peer_elsewhere: None,
        comm_size: 0,
        peer,
        tag,
        collective: 0,
        root: -1,
        operation: String::new(),
        awaited_count: 0,
        awaited: Vec::new(),
        sent: 5,
        received: 5,
    }
}
fn collective(call: &str, number: u64, root: i32) -> RankView {
    RankView {
        context: 1,
        collective: number,
        root,
        ..waiting(call, -2, -1)
    }
}
fn ended(phase: RankPhase) -> RankView {
    RankView {
        phase,
        asleep: false,
        ..waiting("", -1, -1)
    }
}
fn said(ranks: &[RankView]) -> String {
    mistakes(ranks).join("\n")
}

#[test]
fn two_receives_facing_each_other() {
    let ranks = [waiting("MPI_Recv", 1, 3), waiting("MPI_Recv", 0, 3)];
    assert!(stalled_state(&ranks).is_some());
    let text = said(&ranks);
    assert!(
        text.contains("ranks 0 and 1 wait for each other, all receiving"),
        "{text}"
    );
    let table = report(&ranks, 3 * SECOND);
    assert!(
        table.contains("MPI_Recv  MPI_COMM_WORLD  rank 1     3    2.0 s"),
        "{table}"
    );
}

#[test]
fn a_ring_of_sends() {
    let ranks = [
        waiting("MPI_Send", 1, 0),
        waiting("MPI_Ssend", 2, 0),
        waiting("MPI_Send", 0, 0),
        ended(RankPhase::Finalized),
    ];
    let text = said(&ranks);
    assert!(
        text.contains("0 → 1 → 2 → 0") && text.contains("all sending"),
        "{text}"
    );
}

#[test]
fn waiting_for_oneself() {
    assert!(said(&[waiting("MPI_Recv", 0, 0)]).contains("for itself"));
}

#[test]
fn a_peer_that_has_finished() {
    let text = said(&[waiting("MPI_Recv", 1, 7), ended(RankPhase::Exited)]);
    assert!(
        text.contains("rank 0 waits in MPI_Recv (tag 7) for rank 1, which has ended"),
        "{text}"
    );
    let text = said(&[waiting("MPI_Probe", -1, 7), waiting("MPI_Recv", -1, 7)]);
    assert!(
        text.contains("any rank, but nobody sends: all receive"),
        "{text}"
    );
    let text = said(&[waiting("MPI_Probe", -1, 7), ended(RankPhase::Finalized)]);
    assert!(
        text.contains("any rank, but all others have finished"),
        "{text}"
    );
}

#[test]
fn several_requests() {
    let one = |operation: &str, peer, tag, collective| AwaitedView {
        operation: operation.into(),
        context: 0,
        peer,
        tag,
        collective,
    };
    let awaited = vec![
        one("a receive", 1, 7, 0),
        one("a send", 1, -1, 0),
        one("MPI_Ibarrier", -2, -1, 3),
    ];
    let all = RankView {
        operation: "a receive".into(),
        awaited_count: 5,
        awaited: awaited.clone(),
        ..waiting("MPI_Waitall", 1, 7)
    };
    let any = RankView {
        awaited_count: 3,
        awaited,
        ..waiting("MPI_Waitany", -2, -1)
    };
    let table = report(&[all.clone(), any.clone()], 3 * SECOND);
    let requests = "a receive from rank 1, tag 7, on MPI_COMM_WORLD; a send to rank 1 on \
                    MPI_COMM_WORLD; MPI_Ibarrier on MPI_COMM_WORLD (collective #3)";
    for text in [
        "rank 1, 4 more".into(),
        "3 requests".into(),
        format!("rank 0, MPI_Waitall: {requests}; 2 more\n"),
        format!("rank 1, MPI_Waitany: {requests}\n"),
    ] {
        assert!(table.contains(&text), "{text}: {table}");
    }
    // All have to be complete: the first is enough for a cycle.
    let text = said(&[all.clone(), waiting("MPI_Recv", 0, 2)]);
    assert!(
        text.contains("ranks 0 and 1 wait for each other, all receiving"),
        "{text}"
    );
    let text = said(&[all, any]);
    assert!(
        text.contains("rank 0 waits in MPI_Waitall (tag 7) for rank 1"),
        "{text}"
    );
}

#[test]
fn the_function_that_has_started_a_request() {
    let started = |operation: &str| RankView {
        operation: operation.into(),
        ..collective("MPI_Wait", 4, -1)
    };
    let text = said(&[started("MPI_Ibarrier"), started("MPI_Iallgather")]);
    assert!(
        text.contains("rank 0 is in MPI_Wait for MPI_Ibarrier but rank 1 in MPI_Wait for MPI_Iall"),
        "{text}"
    );
    let text = said(&[started("MPI_Ibarrier"), waiting("MPI_Recv", -1, 3)]);
    assert!(
        text.contains("rank 0 waits in MPI_Wait for MPI_Ibarrier (collective #4)"),
        "{text}"
    );
}

#[test]
fn a_partition_that_is_not_ready() {
    let one = RankView {
        operation: "MPI_Psend_init, 1 of 4 not ready".into(),
        ..waiting("MPI_Wait", -2, -1)
    };
    let text = said(&[one]);
    assert!(
        text.contains("MPI_Wait for MPI_Psend_init, 1 of 4 not ready")
            && text.contains("MPI_Pready"),
        "{text}"
    );
}

#[test]
fn a_generalised_request() {
    let ranks = [
        waiting("MPI_Wait", PEER_OWN_PROGRAM, -1),
        ended(RankPhase::Finalized),
    ];
    assert!(report(&ranks, 2 * SECOND).contains("its own program"));
    let text = said(&ranks);
    assert!(
        text.starts_with("rank 0 waits in MPI_Wait for generalised requests")
            && !text.contains("no rank will send"),
        "{text}"
    );
}

#[test]
fn a_lock_that_a_finished_rank_holds() {
    let of_window = |call: &str, peer, tag, root| RankView {
        comm: "window grid".into(),
        context: 8,
        root,
        ..waiting(call, peer, tag)
    };
    let lock = of_window("MPI_Win_lock", 1, TAG_WINDOW_LOCK, 2);
    let ranks = [lock, ended(RankPhase::Finalized), waiting("MPI_Recv", 0, 4)];
    let text = said(&ranks);
    assert!(
        text.contains("rank 0 waits in MPI_Win_lock on window grid for the lock of rank 2, which")
            && text.contains("rank 1 holds: who locks a window has to unlock it. Rank 1 has fin"),
        "{text}"
    );
    let table = report(&ranks, 3 * SECOND);
    let row = "window grid     the lock of rank 2, which rank 1 holds       2.0 s";
    assert!(table.contains(row), "{table}");
    let text = said(&[
        of_window("MPI_Win_start", 1, TAG_WINDOW_POST, -1),
        of_window("MPI_Win_wait", -2, TAG_WINDOW_COMPLETE, -1),
    ]);
    assert!(
        text.contains("rank 0 waits in MPI_Win_start on window grid for MPI_Win_post of rank 1")
            && text.contains("rank 1 waits in MPI_Win_wait on window grid for MPI_Win_complete"),
        "{text}"
    );
    let text = said(&[
        ended(RankPhase::Finalized),
        of_window("MPI_Win_wait", 0, TAG_WINDOW_COMPLETE, -1),
    ]);
    assert!(
        text.contains("rank 1 waits in MPI_Win_wait on window grid for MPI_Win_complete of rank 0")
            && text.contains("Rank 0 has fin"),
        "{text}"
    );
}

#[test]
fn a_collective_that_not_all_enter() {
    let text = said(&[
        collective("MPI_Barrier", 3, -1),
        collective("MPI_Barrier", 3, -1),
        waiting("MPI_Recv", 0, 4),
    ]);
    assert!(
        text.contains(
            "ranks 0, 1 wait in MPI_Barrier on MPI_COMM_WORLD, which not all have entered: "
        ),
        "{text}"
    );
    assert!(
        text.contains("rank 2 is in MPI_Recv with rank 0, tag 4"),
        "{text}"
    );
}

#[test]
fn different_collectives() {
    let text = said(&[
        collective("MPI_Bcast", 1, 0),
        collective("MPI_Reduce", 1, 0),
        collective("MPI_Bcast", 1, 0),
    ]);
    assert!(
        text.contains("ranks 0, 2 are in MPI_Bcast but rank 1 in MPI_Reduce"),
        "{text}"
    );
}

#[test]
fn different_roots() {
    let text = said(&[collective("MPI_Bcast", 1, 1), collective("MPI_Bcast", 1, 0)]);
    assert!(
        text.contains("rank 0 gave root 1 but rank 1 root 0"),
        "{text}"
    );
}

#[test]
fn one_collective_too_many() {
    let text = said(&[
        collective("MPI_Barrier", 4, -1),
        collective("MPI_Barrier", 5, -1),
    ]);
    assert!(text.contains("#4") && text.contains("#5"), "{text}");
}

/// Which collective a request is for is known by its number.
#[test]
fn requests_of_collectives() {
    let text = said(&[
        collective("MPI_Wait", 4, -1),
        collective("MPI_Allreduce", 4, -1),
        collective("MPI_Waitall", 5, -1),
        waiting("MPI_Recv", 0, 4),
    ]);
    assert!(
        text.contains("ranks 0, 1 in collective #4 of MPI_COMM_WORLD (MPI_Wait) but rank 2 in #5"),
        "{text}"
    );
    assert!(
        !text.contains("same collectives in the same order"),
        "{text}"
    );
    assert!(text.contains("rank 3 is in MPI_Recv with rank 0"), "{text}");
    let table = report(&[collective("MPI_Wait", 4, -1)], 3 * SECOND);
    assert!(table.contains("collective #4"), "{table}");
}

#[test]
fn a_small_communicator_knows_only_how_many() {
    let part = RankView {
        context: 0x100 | 1,
        comm_size: 3,
        comm: "rows".into(),
        ..collective("MPI_Allreduce", 1, -1)
    };
    let text = said(&[
        part.clone(),
        part,
        waiting("MPI_Recv", 0, 0),
        waiting("MPI_Recv", 1, 0),
        ended(RankPhase::Exited),
    ]);
    assert!(
        text.contains("on rows, which has 3 ranks: 1 of them is not in it"),
        "{text}"
    );
}

#[test]
fn a_wait_for_somebody_busy_elsewhere() {
    let text = said(&[waiting("MPI_Recv", 1, 0), waiting("MPI_Recv", -1, 9)]);
    assert!(
        text.contains(
            "rank 0 waits in MPI_Recv (tag 0) for rank 1, which is in MPI_Recv from any rank"
        ),
        "{text}"
    );
}

#[test]
fn a_job_that_may_go_on_is_no_hang() {
    let busy = RankView {
        asleep: false,
        ..waiting("", -1, -1)
    };
    assert!(stalled_state(&[waiting("MPI_Recv", 1, 0), busy]).is_none());
    assert!(stalled_state(&[waiting("MPI_Recv", 1, 0), ended(RankPhase::Started)]).is_none());
    let in_flight = RankView {
        sent: 6,
        ..waiting("MPI_Recv", 0, 0)
    };
    assert!(stalled_state(&[waiting("MPI_Recv", 1, 0), in_flight]).is_none());
    assert!(stalled_state(&[ended(RankPhase::Finalized), ended(RankPhase::Exited)]).is_none());
}

#[test]
fn a_message_to_a_finished_rank_is_never_taken() {
    let sender = RankView {
        sent: 6,
        ..collective("MPI_Barrier", 1, -1)
    };
    let ranks = [sender, ended(RankPhase::Exited)];
    assert!(stalled_state(&ranks).is_some());
    let text = said(&ranks);
    assert!(
        text.contains("rank 0 waits in MPI_Barrier") && text.contains("rank 1 has ended"),
        "{text}"
    );
}

/// Waits in a call that makes an object, for a message of `peer`.
fn agreement(call: &str, context: u64, peer: i32) -> RankView {
    RankView {
        context,
        comm_size: 3,
        ..waiting(call, peer, -1)
    }
}

#[test]
fn a_call_that_makes_an_object_and_who_has_not_made_it() {
    let ranks = [
        agreement("MPI_Comm_dup", 2, 2),
        agreement("MPI_Comm_dup", 2, 0),
        waiting("MPI_Recv", 0, 5),
    ];
    let text = said(&ranks);
    assert_eq!(
        text.lines().next(),
        Some(
            "ranks 0, 1 wait in MPI_Comm_dup, a collective call on MPI_COMM_WORLD that not all \
             have made: rank 2 is in MPI_Recv with rank 0, tag 5, on MPI_COMM_WORLD"
        )
    );
    let table = report(&ranks, 2 * SECOND);
    assert!(
        table.contains("MPI_COMM_WORLD  rank 2, collective"),
        "{table}"
    );
}

#[test]
fn a_rank_that_is_ahead_is_not_taken_for_one_that_is_missing() {
    // Rank 2 waits for rank 1. Rank 0 has done its part, and goes on to another collective.
    let ranks = [
        collective("MPI_Barrier", 4, -1),
        waiting("MPI_Recv", 0, 5),
        agreement("MPI_Comm_split", 2, 1),
    ];
    let text = said(&ranks);
    assert!(
        text.starts_with(
            "rank 2 waits in MPI_Comm_split, a collective call on MPI_COMM_WORLD that not all \
             have made: rank 1 is in MPI_Recv"
        ),
        "{text}"
    );
    assert!(!text.contains("same order"), "{text}");
}

#[test]
fn another_collective_instead_of_a_call_that_makes_an_object() {
    let ranks = [
        agreement("MPI_Win_create", 2, 2),
        agreement("MPI_Win_create", 2, 0),
        collective("MPI_Barrier", 4, -1),
    ];
    let text = said(&ranks);
    assert!(
        text.starts_with(
            "ranks 0, 1 are in MPI_Win_create but rank 2 in MPI_Barrier: all ranks of \
             MPI_COMM_WORLD must call the same collectives in the same order"
        ),
        "{text}"
    );
}

#[test]
fn leaders_that_do_not_meet() {
    // Each leader waits for the other, in an agreement of its own communicator.
    let ranks = [
        agreement("MPI_Intercomm_create", 0x12, 1),
        agreement("MPI_Intercomm_create", 0x22, 0),
    ];
    let text = said(&ranks);
    assert!(
        text.contains("compare leaders, tags and the peer communicator"),
        "{text}"
    );
    // Some members of a group: the communicator is none, and its ranks are not known.
    let ranks = [
        agreement("MPI_Comm_create_group", 3, 1),
        ended(RankPhase::Finalized),
    ];
    let text = said(&ranks);
    assert!(
        text.contains(
            "a collective call on a group of 3 that not all have made: rank 1 has finished"
        ),
        "{text}"
    );
}

#[test]
fn lengths_that_differ_are_told() {
    let of = |call: &str, bytes| RankView {
        tag: bytes,
        ..collective(call, 7, -1)
    };
    let ranks = |call: &str| [of(call, 8), of(call, 8), of(call, 65536)];
    let text = said(&ranks("MPI_Allreduce"));
    assert!(
        text.contains(
            "MPI_Allreduce (collective #7) on MPI_COMM_WORLD with lengths that differ: ranks 0, 1 \
             with 8 bytes; rank 2 with 65536 bytes"
        ),
        "{text}"
    );
    let table = report(&ranks("MPI_Allreduce"), 2 * SECOND);
    assert!(table.contains("collective #7, 65536 bytes"), "{table}");
    // The root has more than the others.
    let text = said(&ranks("MPI_Gather"));
    assert!(!text.contains("lengths that differ"), "{text}");
    let same = [of("MPI_Bcast", 8), of("MPI_Bcast", 8)];
    assert!(!said(&same).contains("lengths"));
}

#[test]
fn moving_between_two_looks_is_seen() {
    let before = [waiting("MPI_Recv", 1, 0), waiting("MPI_Recv", 0, 0)];
    let mut after = before.clone();
    assert_eq!(stalled_state(&before), stalled_state(&after));
    after[1].since += 1;
    assert_ne!(stalled_state(&before), stalled_state(&after));
}

#[test]
fn a_big_job_makes_a_short_table() {
    let mut ranks = vec![collective("MPI_Barrier", 1, -1); 511];
    ranks.push(ended(RankPhase::Exited));
    let text = report(&ranks, 2 * SECOND);
    assert!(text.lines().count() <= 5, "{text}");
    assert!(text.contains("0-510"), "{text}");
}

#[test]
fn lists_of_ranks() {
    assert_eq!(list(&[0, 1, 2, 3, 7]), "0-3, 7");
    assert_eq!(list(&[0, 1, 5, 6]), "0, 1, 5, 6");
}
