//! Which calls go by a board, and what tells them apart there.

use super::*;
use crate::coll::executor::NEW_WINDOW;
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::Block;
use ferry_schedule::Reduction;

fn allreduce(count: i64, op: &Arc<Op>, t: &Arc<Datatype>) -> Option<BoardCall> {
    let of = Reduction {
        count,
        element: t.size(),
        commutes: true,
    };
    plan_call(
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
    let most = POST_MAX_BYTES as i64 / 8;
    assert!(allreduce(1, sum, double).is_some() && allreduce(most, sum, double).is_some());
    assert!(allreduce(most + 1, sum, double).is_none() && allreduce(0, sum, double).is_none());
    let own = Op::user(Box::new(|_, _, _, _| ()), true);
    assert!(allreduce(1, &own, double).is_none());
    let barrier = plan_call(&Collective::Barrier, 0, 4, None).unwrap();
    assert_eq!(barrier.len, 0);
    let huge = Block {
        send: i64::MAX / 2,
        recv: i64::MAX / 2,
        bytes: i64::MAX / 2,
    };
    assert!(
        plan_call(
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
    let p = plan_call(&call, 0, 4, Some((sum, double)));
    assert!(p.is_some_and(|p| p.op.flat_only()), "not on a board");
}

#[test]
fn an_allgather_in_place_posts_the_ranks_own_block() {
    let block = Block {
        send: 0,
        recv: 3,
        bytes: 12,
    };
    let p = plan_call(
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
fn what_is_posted_tells_collectives_roots_and_lengths_apart() {
    let call = |op, len| BoardCall {
        op,
        len,
        input: Piece::EMPTY,
        in_place: false,
    };
    let all = [
        call(BoardOp::Bcast { root: 0 }, 8),
        call(BoardOp::Bcast { root: 1 }, 8),
        call(BoardOp::Bcast { root: 0 }, 4),
        call(BoardOp::Allreduce, 8),
        call(BoardOp::Scan { inclusive: true }, 8),
        call(BoardOp::Scan { inclusive: false }, 8),
    ];
    let own = all.map(|call| call.posted(-1));
    let window = call(BoardOp::Allreduce, 8).posted(NEW_WINDOW);
    let posted = [own.as_slice(), &[window]].concat();
    for (i, a) in posted.iter().enumerate() {
        assert!(posted[..i].iter().all(|b| a != b));
    }
    let text = |i: usize| {
        posted[0]
            .disagreement(3, Some(posted[i]), 4)
            .text()
            .to_owned()
    };
    assert!(
        text(1)
            .contains("3 is in MPI_Bcast with root 1 where this rank is in MPI_Bcast with root 0")
    );
    assert!(text(2).contains("with 4 bytes, this rank with 8"));
    assert!(text(5).contains("MPI_Exscan"));
    assert!(text(6).contains("3 is in a call that makes a window"));
}

#[test]
fn neighbours_post_what_they_send_and_expect_what_they_receive() {
    let byte = Datatype::basic(Basic::Byte);
    let send = View::Uniform {
        address: std::ptr::null_mut(),
        count: 0,
        datatype: byte,
    };
    let plan = |sent: i64, received: i64| {
        let block = Block {
            send: sent,
            recv: received,
            bytes: received,
        };
        plan_exchange(&NeighbourExchange::Alltoall(block), 4, &send)
    };
    let (one, other) = (plan(8, 16).unwrap(), plan(16, 8).unwrap());
    assert_eq!((one.posted(-1).len, one.expected(-1).len), (32, 64));
    assert_eq!(one.posted(-1), other.expected(-1));
    assert!(one.posted(-1).agrees_with(other.posted(-1)));
    assert!(plan(0, 8).is_some() && plan(8, 0).is_some() && plan(0, 0).is_none());
    let most = POST_MAX_BYTES as i64 / 4;
    assert!(plan(most, 1).is_some() && plan(1, most).is_some());
    assert!(plan(most + 1, 1).is_none() && plan(1, most + 1).is_none());
    let allgather = NeighbourExchange::Allgather(Block {
        send: 32,
        recv: 32,
        bytes: 32,
    });
    let allgather = plan_exchange(&allgather, 4, &send).unwrap();
    assert!(!allgather.posted(-1).agrees_with(one.posted(-1)));
    assert!(allgather.op.flat_only() && allgather.op.sets_up());
}
