//! What the cost model chooses.

use ferry_schedule::{Algorithm, Cost, Kind, Problem};

#[test]
fn names_are_distinct_and_found() {
    for a in Algorithm::ALL {
        assert_eq!(Algorithm::from_name(a.name()), Some(a));
    }
}

#[test]
fn crowded_nodes_get_few_messages_and_big_data_few_bytes() {
    let crowded = Cost::shared_memory(32, 2);
    let p = |kind, ranks, bytes| Problem {
        kind,
        ranks,
        bytes,
        commutes: true,
        nodes: None,
    };
    assert_eq!(
        p(Kind::Barrier, 32, 0).choose(&crowded, None),
        Algorithm::Binomial
    );
    assert_eq!(
        p(Kind::Allreduce, 32, 8).choose(&crowded, None),
        Algorithm::ReduceBcast
    );
    let roomy = Cost::shared_memory(8, 8);
    assert_eq!(
        p(Kind::Barrier, 8, 0).choose(&roomy, None),
        Algorithm::Dissemination
    );
    assert_eq!(
        p(Kind::Allreduce, 8, 8).choose(&roomy, None),
        Algorithm::Doubling
    );
    assert!(matches!(
        p(Kind::Allreduce, 8, 8 << 20).choose(&roomy, None),
        Algorithm::Halving | Algorithm::Ring
    ));
    assert_ne!(
        p(Kind::Bcast, 8, 64 << 20).choose(&roomy, None),
        Algorithm::Binomial
    );
    assert_eq!(
        p(Kind::Bcast, 8, 8).choose(&roomy, Some(Algorithm::Flat)),
        Algorithm::Flat
    );
    // Where ranks share cores, a rank between the root and another one would have to get a core.
    let shared = Cost::shared_memory(16, 2);
    assert_eq!(
        p(Kind::Bcast, 16, 4096).choose(&shared, None),
        Algorithm::Flat
    );
    assert_ne!(
        p(Kind::Bcast, 16, 64 << 10).choose(&shared, None),
        Algorithm::Flat
    );
    // One that cannot serve the call is not forced upon it.
    let ordered = Problem {
        commutes: false,
        ..p(Kind::Allreduce, 8, 8 << 20)
    };
    assert_ne!(
        ordered.choose(&roomy, Some(Algorithm::Ring)),
        Algorithm::Ring
    );
}

#[test]
fn trees_in_segments_are_for_long_data_of_many_ranks_with_a_core_each() {
    let chosen = |kind, ranks, bytes, cost: &Cost| {
        let problem = Problem {
            kind,
            ranks,
            bytes,
            commutes: true,
            nodes: None,
        };
        problem.choose(cost, None)
    };
    let tree = |kind| match kind {
        Kind::Scan => Algorithm::BinaryTree,
        _ => Algorithm::TwoTrees,
    };
    let crowded = Cost::shared_memory(64, 2);
    for kind in [Kind::Bcast, Kind::Reduce, Kind::Scan] {
        assert_eq!(chosen(kind, 4096, 1 << 20, &Cost::network()), tree(kind));
        assert_ne!(chosen(kind, 4096, 8, &Cost::network()), tree(kind));
        for bytes in [8, 1 << 16, 1 << 20] {
            assert_ne!(chosen(kind, 16, bytes, &Cost::network()), tree(kind));
            assert_ne!(chosen(kind, 64, bytes, &crowded), tree(kind));
        }
    }
}
