//! `ferry doctor --collectives`: which algorithms collectives use on this machine.

use ferry_schedule::{Cost, Kind, choices};

/// The choices for `ranks` ranks on one node, where the job may use `cores` cores.
pub fn report(ranks: u32, cores: u32) -> String {
    let cost = Cost::shared_memory(ranks, cores);
    let mut text = format!(
        "Collectives of {ranks} ranks on {cores} cores, by size in bytes: of the buffer (bcast, \
         reductions), of a rank's block\n\
         (gather, scatter, alltoall), of all blocks together (allgather, reduce_scatter)\n\n"
    );
    for kind in Kind::ALL {
        let line: Vec<String> = choices(kind, ranks, &cost)
            .into_iter()
            .map(|(from, algorithm)| match from {
                0 => algorithm.name().to_string(),
                _ => format!("from {} {}", size(from), algorithm.name()),
            })
            .collect();
        text += &format!("  {:<15} {}\n", kind.name(), line.join(", "));
    }
    text += &format!(
        "\nThe model: a message takes {:.1} us and {:.1} us of a core, from {} on {:.1} us more; a \
         byte {:.2} ns, reducing one {:.2} ns.\n\
         Where all ranks share a node and post at most {} bytes each, barrier, bcast, allgather, \
         alltoall, allreduce,\n\
         reduce_scatter_block and scans go by a board in the node's memory instead, from a \
         communicator's third such call on.\n\
         FERRY_COLL_<NAME>=<algorithm> (FERRY_COLL_ALLREDUCE=ring, ...) asks for another; what \
         cannot serve a call is not\n\
         used for it. FERRY_COLL_<NAME>=messages only avoids the board.\n",
        cost.latency_s * 1e6,
        cost.overhead_s * 1e6,
        size(i64::from(cost.eager_max_bytes)),
        cost.rendezvous_s * 1e6,
        cost.byte_s * 1e9,
        cost.reduce_byte_s * 1e9,
        ferry_transport::shm::POST_MAX_BYTES,
    );
    text
}

fn size(bytes: i64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_kind_and_its_choice_are_shown() {
        let text = super::report(8, 2);
        for kind in ferry_schedule::Kind::ALL {
            assert!(text.contains(kind.name()), "{text}");
        }
        assert!(
            text.contains("binomial") && text.contains("FERRY_COLL_"),
            "{text}"
        );
    }
}
