//! Collective calls that make or free an object, such as MPI_Comm_dup, MPI_Win_create and
//! MPI_File_open: ranks that wait in one for a rank that has not called it.

use std::collections::BTreeMap;

use super::snapshot::RankView;
use super::table::{activities, ranks_named};

/// Each such call in which ranks wait, with the ranks that they wait for.
pub(super) fn agreements(ranks: &[RankView], found: &mut Vec<String>) {
    let mut calls: BTreeMap<(u64, &str), Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        if rank.waits() && rank.is_agreement() {
            let call = (rank.context, rank.call.as_str());
            calls.entry(call).or_default().push(number);
        }
    }
    for ((context, call), inside) in calls {
        let comm = ranks[inside[0]].comm_shown();
        let mut absent: Vec<usize> = inside
            .iter()
            .filter_map(|&r| awaited(&ranks[r], ranks))
            .filter(|&peer| !ranks[peer].waits() || ranks[peer].call != call)
            .collect();
        absent.sort_unstable();
        absent.dedup();
        if absent.is_empty() {
            continue;
        }
        let elsewhere = |r: &&usize| calls_other(&ranks[**r], context);
        if let Some(&other) = absent.iter().find(elsewhere) {
            found.push(format!(
                "{} {} in {call} but {} in {}: all ranks of {comm} must call the same collectives \
                 in the same order",
                ranks_named(&inside),
                if inside.len() == 1 { "is" } else { "are" },
                ranks_named(&[other]),
                ranks[other].call_in_words(),
            ));
            continue;
        }
        found.push(format!(
            "{} {} in {call}, a collective call on {comm} that not all have made: {}",
            ranks_named(&inside),
            if inside.len() == 1 { "waits" } else { "wait" },
            activities(ranks, &absent),
        ));
    }
    leaders(ranks, found);
}

/// Leaders of two groups that wait for each other, each in the agreement of its own group.
fn leaders(ranks: &[RankView], found: &mut Vec<String>) {
    for (one, rank) in ranks.iter().enumerate() {
        let Some(other) = awaited(rank, ranks).filter(|&other| one < other) else {
            continue;
        };
        let theirs = &ranks[other];
        let are_in = |r: &RankView| r.waits() && r.is_agreement() && r.call == rank.call;
        if are_in(rank) && are_in(theirs) && awaited(theirs, ranks) == Some(one) {
            found.push(format!(
                "ranks {one} and {other} wait for each other in {}, one on {} and one on {}: \
                 compare leaders, tags and the peer communicator",
                rank.call,
                rank.comm_shown(),
                theirs.comm_shown()
            ));
        }
    }
}

/// The rank of this job that a rank waits for.
fn awaited(rank: &RankView, ranks: &[RankView]) -> Option<usize> {
    let peer = usize::try_from(rank.peer).ok()?;
    (rank.peer_elsewhere.is_none() && peer < ranks.len()).then_some(peer)
}

/// Is the rank in another collective on the communicator of this context?
fn calls_other(rank: &RankView, context: u64) -> bool {
    rank.waits() && rank.is_collective() && rank.context & !3 == context & !3 && context & 3 != 3
}
