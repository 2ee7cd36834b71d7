//! Collectives between the two groups of an intercommunicator (MPI 5.0 §6.2.2, §6.2.3).

use crate::cost::Cost;
use crate::plan::{Collective, Root, at, input, prefix_sums};
use crate::reduce::{self, Operand};
use crate::step::{Builder, Peer, Piece, Region, Team};
use crate::{alltoall, barrier, bcast, gather};

/// The ranks that exchange messages for their groups.
const LEADER: u32 = 0;

pub(crate) fn plan(b: &mut Builder, t: Team, remote: u32, call: &Collective, cost: &Cost) {
    let leads = t.rank == LEADER;
    match *call {
        Collective::Barrier => {
            barrier::gather_signal(b, t);
            if leads {
                b.expect(Peer::Remote(LEADER));
                b.signal(Peer::Remote(LEADER));
                b.sync();
            }
            barrier::spread_signal(b, t);
        }
        Collective::Bcast { root, bytes } => {
            let data = Piece::new(Region::Packed, 0, bytes);
            match root {
                Root::This => b.send_to(Peer::Remote(LEADER), data),
                Root::Elsewhere => {}
                Root::Rank(root) => {
                    if leads {
                        b.recv_from(Peer::Remote(root), data);
                        b.sync();
                    }
                    bcast::binomial(b, t, LEADER, data);
                }
            }
        }
        Collective::Reduce { root, of, .. } => match root {
            Root::This => b.recv_from(Peer::Remote(LEADER), Piece::recv(0, of.count)),
            Root::Elsewhere => {}
            Root::Rank(root) => {
                let sum = local_sum(b, t, of.count, of.commutes);
                if leads {
                    b.send_to(Peer::Remote(root), sum);
                }
            }
        },
        Collective::Allreduce { of, .. } => {
            let sum = local_sum(b, t, of.count, of.commutes);
            let output = Piece::recv(0, of.count);
            if leads {
                b.recv_from(Peer::Remote(LEADER), output);
                b.send_to(Peer::Remote(LEADER), sum);
                b.sync();
            }
            bcast::binomial(b, t, LEADER, output);
        }
        Collective::Gather { root, block, .. } => {
            if block.bytes == 0 {
                return;
            }
            match root {
                Root::This => {
                    gather::gather_remote(b, remote, &|r| {
                        Piece::recv(i64::from(r) * block.recv, block.recv)
                    });
                }
                Root::Elsewhere => {}
                Root::Rank(root) => b.send_to(Peer::Remote(root), Piece::send(0, block.send)),
            }
        }
        Collective::Gatherv {
            root, send, recv, ..
        } => match root {
            Root::This => gather::gather_remote(b, remote, &|r| at(Region::Recv, recv, r)),
            Root::Elsewhere => {}
            Root::Rank(root) => b.send_to(Peer::Remote(root), Piece::send(0, send)),
        },
        Collective::Scatter { root, block, .. } => {
            if block.bytes == 0 {
                return;
            }
            match root {
                Root::This => {
                    gather::scatter_remote(b, remote, &|r| {
                        Piece::send(i64::from(r) * block.send, block.send)
                    });
                }
                Root::Elsewhere => {}
                Root::Rank(root) => b.recv_from(Peer::Remote(root), Piece::recv(0, block.recv)),
            }
        }
        Collective::Scatterv {
            root, send, recv, ..
        } => match root {
            Root::This => gather::scatter_remote(b, remote, &|r| at(Region::Send, send, r)),
            Root::Elsewhere => {}
            Root::Rank(root) => b.recv_from(Peer::Remote(root), Piece::recv(0, recv)),
        },
        Collective::Allgather { block, .. } => {
            let blocks = |r: u32| Piece::recv(i64::from(r) * block.recv, block.recv);
            to_leader(b, t, remote, block.send, &blocks);
            bcast::binomial(b, t, LEADER, Piece::recv(0, block.recv * i64::from(remote)));
        }
        Collective::Allgatherv {
            send, recv, size, ..
        } => {
            // Through a temporary buffer of packed blocks, so that gaps in the receive buffer stay
            // untouched.
            let starts = prefix_sums(recv.counts);
            let total = starts[remote as usize] * size;
            let room = b.scratch(total);
            let packed =
                |r: u32| room.part(starts[r as usize] * size, recv.counts[r as usize] * size);
            to_leader(b, t, remote, send, &packed);
            bcast::binomial(b, t, LEADER, room);
            b.sync();
            for r in 0..remote {
                b.copy(packed(r), at(Region::Recv, recv, r));
            }
        }
        Collective::Alltoall { block, .. } => {
            let inn = |r: u32| Piece::recv(i64::from(r) * block.recv, block.recv);
            let out = |r: u32| Piece::send(i64::from(r) * block.send, block.send);
            alltoall::remote(b, t, remote, &out, &inn, cost.window_peers);
        }
        Collective::Alltoallv { send, recv, .. } => {
            let (out, inn) = (
                |r: u32| at(Region::Send, send, r),
                |r: u32| at(Region::Recv, recv, r),
            );
            alltoall::remote(b, t, remote, &out, &inn, cost.window_peers);
        }
        Collective::Alltoallw { send, recv, .. } => {
            let out = |r: u32| Piece::new(Region::SendBlock, i64::from(r), send[r as usize]);
            let inn = |r: u32| Piece::new(Region::RecvBlock, i64::from(r), recv[r as usize]);
            alltoall::remote(b, t, remote, &out, &inn, cost.window_peers);
        }
        Collective::ReduceScatterBlock { of, .. } => {
            let total = of.count * i64::from(t.size);
            exchanged_shares(b, t, total, of.commutes, of.count, &|r| {
                i64::from(r) * of.count
            });
        }
        Collective::ReduceScatter { counts, of, .. } => {
            let starts = prefix_sums(counts);
            exchanged_shares(b, t, of.count, of.commutes, counts[t.rank as usize], &|r| {
                starts[r as usize]
            });
        }
        // Not defined between groups. The caller has refused them.
        Collective::Scan { .. } | Collective::Exscan { .. } => {}
    }
}

/// The leader's sum over its own group, in the leader's temporary buffer.
fn local_sum(b: &mut Builder, t: Team, count: i64, commutes: bool) -> Piece {
    let x = Operand {
        input: input(count, false),
        commutes,
    };
    if count == 0 {
        return Piece::EMPTY;
    }
    let sum = if t.rank == LEADER {
        b.scratch(count)
    } else {
        Piece::EMPTY
    };
    reduce::binomial(b, t, LEADER, x, sum);
    b.sync();
    sum
}

/// Each rank sends its block to the other group's leader, which puts rank r's at `block(r)`.
fn to_leader(b: &mut Builder, t: Team, remote: u32, send: i64, block: &dyn Fn(u32) -> Piece) {
    if t.rank == LEADER {
        gather::gather_remote(b, remote, block);
    }
    b.send_to(Peer::Remote(LEADER), Piece::send(0, send));
    b.sync();
}

/// Each group's sum goes to the other's leader, which scatters the shares.
fn exchanged_shares(
    b: &mut Builder,
    t: Team,
    total: i64,
    commutes: bool,
    own: i64,
    start: &dyn Fn(u32) -> i64,
) {
    let sum = local_sum(b, t, total, commutes);
    let mut theirs = Piece::EMPTY;
    if t.rank == LEADER {
        theirs = b.scratch(total);
        b.recv_from(Peer::Remote(LEADER), theirs);
        b.send_to(Peer::Remote(LEADER), sum);
        b.sync();
    }
    let share = |r: u32| theirs.part(start(r), start(r + 1) - start(r));
    gather::scatter_flat(b, t, LEADER, Some(Piece::recv(0, own)), &share);
}
