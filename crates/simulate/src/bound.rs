//! What no algorithm can do without: a lower bound of the time of a collective.

use crate::network::LINK_LATENCY_S;
use crate::program::picoseconds;
use crate::run::Job;
use ferry_schedule::{Cost, Kind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A lower bound of seconds: until one rank's news have reached all, or until the bytes that must
/// cross a node's link have done so, whichever is more.
///
/// - Broadcast: some byte leaves the root's node after all others, and is news in the other nodes
///   then. Reductions to a rank, and scans, are the same backwards.
/// - All-to-all with one rank a node: what forwards blocks saves messages and costs bytes. The
///   bound is that of algorithms in which all ranks send to the same distances (Bruck et al. 1997).
pub fn bound(kind: Kind, bytes: u64, job: &Job<'_>) -> f64 {
    let nodes = job.ranks.div_ceil(job.per_node);
    if nodes < 2 {
        return 0.;
    }
    let message = message_s(&job.cost);
    let byte_s = job.cost.byte_s;
    let (m, here) = (bytes as f64, f64::from(job.per_node.min(job.ranks)));
    let others = f64::from(job.ranks) - here;
    let rooted = |job| m * byte_s + news(job, job.per_node);
    let crossing = |bytes: f64| message + bytes * byte_s;
    let needed = match kind {
        Kind::Barrier => 0.,
        Kind::Bcast | Kind::Reduce | Kind::Scan => rooted(job),
        // A node's share of the sum needs the other nodes' parts of it, and goes to all of them.
        Kind::Allreduce => {
            let nodes = f64::from(nodes);
            rooted(job).max(crossing(m * 2. * (nodes - 1.) / nodes))
        }
        Kind::Gather | Kind::Scatter | Kind::Allgather | Kind::Allgatherv | Kind::ReduceScatter => {
            crossing(others * m)
        }
        Kind::Alltoall if job.per_node == 1 => alltoall(job, m),
        Kind::Alltoall => crossing(here * others * m),
    };
    news(job, 1).max(needed)
}

/// A message between nodes of no bytes, from its send until the receiver goes on.
fn message_s(cost: &Cost) -> f64 {
    cost.latency_s + 2. * LINK_LATENCY_S
}

/// Seconds until all ranks know what `first` ranks of one node knew, at least (Karp et al. 1993,
/// optimal broadcast in LogP, in two levels). Each rank that knows it sends it on all the time,
/// between nodes and at the same time within its own. Whom a message between nodes reaches has a
/// node of its own to tell it to.
fn news(job: &Job<'_>, first: u32) -> f64 {
    let nodes = job.ranks.div_ceil(job.per_node);
    let within = Cost::shared_memory(job.per_node, job.per_node);
    let gap = |cost: &Cost| picoseconds(cost.overhead_s / 2.).max(1);
    // Of a message between nodes, and of one within a node.
    let latency = [
        picoseconds(message_s(&job.cost)),
        picoseconds(within.latency_s),
    ];
    let gap = [gap(&job.cost), gap(&within)];
    // When each rank's next message comes: whether within a node, and which.
    let mut coming = BinaryHeap::new();
    let mut told = vec![first];
    let mut ranks = first;
    let mut now = 0;
    for local in [0, 1] {
        for _ in 0..first {
            coming.push(Reverse((latency[local], local, 0)));
        }
    }
    while told.len() < nodes as usize || ranks < job.ranks {
        let Some(Reverse((time, local, node))) = coming.pop() else {
            break;
        };
        if local == 1 && told[node] == job.per_node {
            continue;
        }
        now = time;
        ranks += 1;
        coming.push(Reverse((time + gap[local], local, node)));
        let node = match local {
            0 => told.len(),
            _ => node,
        };
        if local == 0 {
            told.push(0);
        }
        told[node] += 1;
        coming.push(Reverse((time + latency[0], 0, node)));
        coming.push(Reverse((time + latency[1], 1, node)));
    }
    now as f64 * 1e-12
}

/// Seconds of an all-to-all of blocks of `m` bytes, one rank a node, in which all ranks send to the
/// same distances. `k` messages reach as many ranks at once, k (k - 1) / 2 in two hops, and so on;
/// each hop of a block costs its bytes.
fn alltoall(job: &Job<'_>, m: f64) -> f64 {
    let others = f64::from(job.ranks) - 1.;
    let hops = |k: u32| {
        let (mut left, mut hops, mut reached) = (others, 0., 1.);
        for i in 1..=k {
            reached *= f64::from(k - i + 1) / f64::from(i);
            let taken = f64::min(reached, left);
            hops += taken * f64::from(i);
            left -= taken;
            if left <= 0. {
                return hops;
            }
        }
        f64::INFINITY
    };
    let work_s = |k: u32| f64::from(k) * job.cost.overhead_s;
    let bytes_s = |k: u32| hops(k) * m * job.cost.byte_s;
    let enough = (1..job.ranks).find(|&k| work_s(k) >= bytes_s(k));
    match enough {
        // One message fewer has too many bytes.
        Some(k) => work_s(k).min(bytes_s(k - 1)),
        None => message_s(&job.cost) + bytes_s(job.ranks - 1),
    }
}
