//! The mistake that a hanging job looks like.

use std::collections::BTreeMap;
use std::fmt::Write;

use ferry_job::PEER_OWN_PROGRAM;

use super::agreements::agreements;
use super::snapshot::RankView;
use super::table::{activities, bytes_in_words, ranks_named};
use super::windows::window_waits;

/// Likely mistakes, the surest first. At least one for a job that hangs.
pub fn mistakes(ranks: &[RankView]) -> Vec<String> {
    let mut found = Vec::new();
    agreements(ranks, &mut found);
    collective_mistakes(ranks, &mut found);
    window_waits(ranks, &mut found);
    finished_peers(ranks, &mut found);
    cycles(ranks, &mut found);
    generalised_requests(ranks, &mut found);
    partitions_not_ready(ranks, &mut found);
    if found.is_empty() {
        unexplained_waits(ranks, &mut found);
    }
    if found.is_empty() && ranks.iter().any(RankView::waits) {
        found.push(
            "no rank will send what the others wait for; compare tags, communicators and the \
             number of sends and receives"
                .into(),
        );
    }
    found.truncate(6);
    found
}

/// Communicators whose members are in different collectives, or partly in none.
fn collective_mistakes(ranks: &[RankView], found: &mut Vec<String>) {
    let mut comms: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks
        .iter()
        .enumerate()
        .filter(|(_, r)| r.waits() && r.is_collective() && !r.is_agreement())
    {
        comms.entry(rank.context & !3).or_default().push(number);
    }
    for (context, inside) in comms {
        let first = &ranks[inside[0]];
        let comm = first.comm_shown();
        let same = |of: &dyn Fn(&RankView) -> bool| -> (Vec<usize>, Vec<usize>) {
            inside.iter().partition(|&&r| of(&ranks[r]))
        };
        let differs = |r: &RankView| {
            r.function() != first.function() && r.names_function() && first.names_function()
        };
        let (alike, others) = same(&|r| !differs(r));
        if let Some(&other) = others.first() {
            found.push(format!(
                "{} {} in {} but {} in {}: all ranks of {comm} must call the same collectives in \
                 the same order",
                ranks_named(&alike),
                if alike.len() == 1 { "is" } else { "are" },
                first.call_in_words(),
                ranks_named(
                    &others
                        .iter()
                        .copied()
                        .filter(|&r| ranks[r].function() == ranks[other].function())
                        .collect::<Vec<_>>()
                ),
                ranks[other].call_in_words(),
            ));
            continue;
        }
        let gave_other = |r: &RankView| r.root != first.root && r.function() == first.function();
        let (alike, others) = same(&|r| !gave_other(r));
        if let Some(&other) = others.first() {
            found.push(format!(
                "in {} on {comm}, {} gave root {} but {} root {}: all must give the same root",
                first.function(),
                ranks_named(&alike),
                first.root,
                ranks_named(
                    &others
                        .iter()
                        .copied()
                        .filter(|&r| ranks[r].root == ranks[other].root)
                        .collect::<Vec<_>>()
                ),
                ranks[other].root,
            ));
            continue;
        }
        if let Some(lengths) = lengths_that_differ(ranks, &inside) {
            found.push(lengths);
            continue;
        }
        if first.collective > 0
            && let (alike, others) = same(&|r| r.collective == first.collective)
            && let Some(&other) = others.first()
        {
            found.push(format!(
                "{} in collective #{} of {comm} ({}) but {} in #{}: somebody has called one more \
                 or one less, or ranks give counts that differ",
                ranks_named(&alike),
                first.collective,
                first.call_in_words(),
                ranks_named(&others),
                ranks[other].collective,
            ));
        }
        missing_members(ranks, context, &inside, found);
    }
}

/// Collectives in which the data of all ranks are as long.
const SAME_LENGTHS: [&str; 9] = [
    "bcast",
    "reduce",
    "allreduce",
    "allgather",
    "alltoall",
    "reduce_scatter_block",
    "scan",
    "exscan",
    "reduce_scatter",
];

/// Ranks that take part in one collective with lengths that differ, where all should be as long.
fn lengths_that_differ(ranks: &[RankView], inside: &[usize]) -> Option<String> {
    let first = &ranks[inside[0]];
    let function = first.function().strip_prefix("MPI_")?.to_lowercase();
    let function = function.strip_suffix("_init").unwrap_or(&function);
    let is_one = |name: &&str| *name == function || function.strip_prefix('i') == Some(name);
    SAME_LENGTHS.iter().find(|name| is_one(name))?;
    let mut lengths: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for &number in inside {
        let rank = &ranks[number];
        if let (Some(bytes), true) = (rank.bytes(), rank.collective == first.collective) {
            lengths.entry(bytes).or_default().push(number);
        }
    }
    if lengths.len() < 2 {
        return None;
    }
    let texts: Vec<String> = lengths
        .iter()
        .take(3)
        .map(|(&bytes, who)| format!("{} with {}", ranks_named(who), bytes_in_words(bytes)))
        .collect();
    Some(format!(
        "ranks take part in {} (collective #{}) on {} with lengths that differ: {}. All must give \
         counts and datatypes that agree",
        first.call_in_words(),
        first.collective,
        first.comm_shown(),
        texts.join("; ")
    ))
}

/// Members that are not in the collective in which others wait.
fn missing_members(ranks: &[RankView], context: u64, inside: &[usize], found: &mut Vec<String>) {
    let first = &ranks[inside[0]];
    let size = if first.comm_size > 0 {
        first.comm_size as usize
    } else {
        ranks.len()
    };
    if inside.len() >= size {
        return;
    }
    let call = match first.waits_for_request() {
        true if first.names_function() => {
            format!(
                "{} (collective #{})",
                first.call_in_words(),
                first.collective
            )
        }
        true => format!("{} for collective #{}", first.call, first.collective),
        false => first.call.clone(),
    };
    let who = ranks_named(inside);
    let wait = if inside.len() == 1 { "waits" } else { "wait" };
    // Only for MPI_COMM_WORLD and communicators of its size is it known who the members are.
    if context == 0 || size == ranks.len() {
        let missing: Vec<usize> = (0..ranks.len()).filter(|r| !inside.contains(r)).collect();
        let or_unlike = match first.has_counts() {
            true => ", or not with the same counts and root",
            false => "",
        };
        found.push(format!(
            "{who} {wait} in {call} on {}, which not all have entered{or_unlike}: {}",
            first.comm_shown(),
            activities(ranks, &missing)
        ));
    } else {
        found.push(format!(
            "{who} {wait} in {call} on {}, which has {size} ranks: {} of them {} not in it",
            first.comm_shown(),
            size - inside.len(),
            if size - inside.len() == 1 {
                "is"
            } else {
                "are"
            },
        ));
    }
}

/// Ranks that wait for a rank that has finished.
fn finished_peers(ranks: &[RankView], found: &mut Vec<String>) {
    let mut by_peer: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        if let Some(peer) = rank
            .waited_for(ranks.len())
            .filter(|&p| ranks[p].has_finished())
        {
            by_peer.entry(peer).or_default().push(number);
        }
    }
    for (peer, waiting) in by_peer {
        let one = &ranks[waiting[0]];
        let verb = if waiting.len() == 1 { "waits" } else { "wait" };
        let (more, fewer) = match one.sends() {
            true => ("sends", "receives"),
            false => ("receives", "sends"),
        };
        found.push(format!(
            "{} {verb} in {}{} for rank {peer}, which {}: there are more {more} than {fewer}, or a \
             tag or communicator differs",
            ranks_named(&waiting),
            one.call,
            one.tag_in_words(),
            ranks[peer].activity(),
        ));
    }
    let any: Vec<usize> = (0..ranks.len())
        .filter(|&r| ranks[r].waits() && !ranks[r].is_collective() && ranks[r].peer == -1)
        .collect();
    let others_finished = (0..ranks.len()).all(|r| any.contains(&r) || ranks[r].has_finished());
    if let (Some(&one), true) = (any.first(), others_finished) {
        found.push(format!(
            "{} {} in {} for a message from any rank, but {}",
            ranks_named(&any),
            if any.len() == 1 { "waits" } else { "wait" },
            ranks[one].call,
            match any.len() == ranks.len() {
                true if any.len() == 1 => "there is no other",
                true => "nobody sends: all receive",
                false => "all others have finished",
            }
        ));
    }
}

/// Cycles: ranks that each wait for the next.
fn cycles(ranks: &[RankView], found: &mut Vec<String>) {
    let mut seen = vec![0usize; ranks.len()];
    for start in 0..ranks.len() {
        let mut path = Vec::new();
        let mut at = start;
        let next = loop {
            if seen[at] != 0 {
                break (seen[at] == start + 1).then_some(at);
            }
            seen[at] = start + 1;
            path.push(at);
            match ranks[at].waited_for(ranks.len()) {
                Some(peer) => at = peer,
                None => break None,
            }
        };
        let Some(entry) = next else { continue };
        let ring: Vec<usize> = path.iter().copied().skip_while(|&r| r != entry).collect();
        found.push(ring_in_words(ranks, &ring));
    }
}

fn ring_in_words(ranks: &[RankView], ring: &[usize]) -> String {
    let receives = |r: &usize| ranks[*r].receives();
    let sends = |r: &usize| ranks[*r].sends();
    if let [alone] = ring {
        return format!(
            "rank {alone} waits in {} for itself; nobody else can end that",
            ranks[*alone].call
        );
    }
    let mut who = if ring.len() == 2 {
        format!("ranks {} and {} wait for each other", ring[0], ring[1])
    } else if ring.len() <= 8 {
        let mut chain: Vec<String> = ring.iter().map(usize::to_string).collect();
        chain.push(ring[0].to_string());
        format!("ranks wait for each other in a ring: {}", chain.join(" → "))
    } else {
        format!(
            "{} ranks wait for each other in a ring: {} → {} → {} → …",
            ring.len(),
            ring[0],
            ring[1],
            ring[2]
        )
    };
    let _ = if ring.iter().all(receives) {
        write!(
            who,
            ", all receiving: nobody sends first (or a message came with another tag or on another \
             communicator)"
        )
    } else if ring.iter().all(sends) {
        write!(
            who,
            ", all sending: a send of this size (or a synchronous one) returns only when its \
             receive is there; use MPI_Sendrecv or MPI_Isend"
        )
    } else {
        let calls: Vec<String> = ring
            .iter()
            .take(4)
            .map(|&r| format!("{r} in {}{}", ranks[r].call, ranks[r].tag_in_words()))
            .collect();
        write!(
            who,
            ": {}; compare tags and communicators",
            calls.join(", ")
        )
    };
    who
}

/// Ranks that wait for generalised requests, which only their own program completes.
fn generalised_requests(ranks: &[RankView], found: &mut Vec<String>) {
    let mut by_call: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        if rank.waits() && !rank.is_collective() && rank.peer == PEER_OWN_PROGRAM {
            by_call.entry(&rank.call).or_default().push(number);
        }
    }
    for (call, who) in by_call {
        found.push(format!(
            "{} {} in {call} for generalised requests, which only {} own program can complete \
             (MPI_Grequest_complete): before the wait, or in another thread, which may call MPI \
             meanwhile only if the program has asked for MPI_THREAD_MULTIPLE",
            ranks_named(&who),
            if who.len() == 1 { "waits" } else { "wait" },
            if who.len() == 1 { "its" } else { "their" },
        ));
    }
}

/// Ranks that wait for a partitioned send of which they have not released all partitions.
fn partitions_not_ready(ranks: &[RankView], found: &mut Vec<String>) {
    for (number, rank) in ranks.iter().enumerate() {
        if rank.waits() && rank.operation.ends_with("not ready") {
            found.push(format!(
                "rank {number} waits in {}: its own program has to call MPI_Pready for each \
                 partition",
                rank.call_in_words()
            ));
        }
    }
}

/// Without cycles and finished peers: what each awaited rank does instead.
fn unexplained_waits(ranks: &[RankView], found: &mut Vec<String>) {
    for (number, rank) in ranks.iter().enumerate() {
        if let Some(peer) = rank.waited_for(ranks.len()) {
            found.push(format!(
                "rank {number} waits in {}{} for rank {peer}, which {}",
                rank.call,
                rank.tag_in_words(),
                ranks[peer].activity()
            ));
        }
    }
}
