//! Which calls go by a board, and what tells them apart there.

use super::*;
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::Block;

fn allreduce(count: i64, op: &Arc<Op>, t: &Arc<Datatype>) -> Option<Plan> {
    let of = Reduction {
        count,
        element: t.size(),
        commutes: true,
    };
    plan(
        &Collective::Allreduce {
            of,
            in_place: false,
        },
        0,
        4,
        Some((op, t)),
    )
}

#[test]
fn only_small_data_and_known_operations_go_by_board() {
    let (sum, double) = (Op::of(Predefined::Sum), Datatype::basic(Basic::Double));
    let most = (SLOT_MAX_BYTES - MARK) as i64 / 8;
    assert!(allreduce(1, sum, double).is_some() && allreduce(most, sum, double).is_some());
    assert!(allreduce(most + 1, sum, double).is_none() && allreduce(0, sum, double).is_none());
    let own = Op::user(Box::new(|_, _, _, _| ()), true);
    assert!(allreduce(1, &own, double).is_none());
    let barrier = plan(&Collective::Barrier, 0, 4, None).unwrap();
    assert_eq!(barrier.len, 0);
    let huge = Block {
        send: i64::MAX / 2,
        recv: i64::MAX / 2,
        bytes: i64::MAX / 2,
    };
    assert!(
        plan(
            &Collective::Alltoall {
                block: huge,
                in_place: false
            },
            0,
            4,
            None
        )
        .is_none()
    );
    let reduce = Reduction {
        count: 1,
        element: 8,
        commutes: true,
    };
    let call = Collective::Reduce {
        root: Root::Rank(0),
        of: reduce,
        in_place: false,
    };
    let p = plan(&call, 0, 4, Some((sum, double)));
    assert!(p.is_some_and(|p| p.job.for_few()), "not on a board");
}

#[test]
fn an_allgather_in_place_posts_the_ranks_own_block() {
    let block = Block {
        send: 0,
        recv: 3,
        bytes: 12,
    };
    let p = plan(
        &Collective::Allgather {
            block,
            in_place: true,
        },
        2,
        4,
        None,
    )
    .unwrap();
    assert_eq!((p.input, p.len), (Piece::recv(6, 3), 12));
}

#[test]
fn marks_tell_collectives_roots_and_lengths_apart() {
    let p = |job, len| {
        mark(&Plan {
            job,
            len,
            input: Piece::EMPTY,
            in_place: false,
        })
    };
    let all = [
        p(Job::Bcast { root: 0 }, 8),
        p(Job::Bcast { root: 1 }, 8),
        p(Job::Bcast { root: 0 }, 4),
        p(Job::Allreduce, 8),
        p(Job::Scan { inclusive: true }, 8),
        p(Job::Scan { inclusive: false }, 8),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(*a != 0 && all[..i].iter().all(|b| a != b));
    }
}
