//! Collectives between the two groups of an intercommunicator (MPI 5.0 §6.2.2, §6.2.3). There is
//! one algorithm for each: rank 0 of a group, its leader, exchanges messages for it.

use crate::cost::Cost;
use crate::plan::{Block, Collective, Reduction, Root, Varying, at, input, prefix_sums};
use crate::reduce::{self, Operand};
use crate::step::{Builder, Peer, Piece, Region, Team};
use crate::{alltoall, barrier, bcast, gather};

/// The rank of each group that exchanges messages for it.
const LEADER: u32 = 0;

/// Appends the steps of rank `t.rank` to `b`. `remote`: ranks of the remote group.
pub(crate) fn plan(b: &mut Builder, t: Team, remote: u32, call: &Collective, cost: &Cost) {
    let mut planner = Planner {
        b,
        t,
        remote,
        window: cost.window_peers,
    };
    match *call {
        Collective::Barrier => planner.barrier(),
        Collective::Bcast { root, bytes } => planner.bcast(root, bytes),
        Collective::Reduce { root, of, .. } => planner.reduce(root, of),
        Collective::Allreduce { of, .. } => planner.allreduce(of),
        Collective::Gather { root, block, .. } => planner.gather(root, block),
        Collective::Gatherv {
            root, send, recv, ..
        } => planner.gatherv(root, send, recv),
        Collective::Scatter { root, block, .. } => planner.scatter(root, block),
        Collective::Scatterv {
            root, send, recv, ..
        } => planner.scatterv(root, send, recv),
        Collective::Allgather { block, .. } => planner.allgather(block),
        Collective::Allgatherv {
            send, recv, size, ..
        } => planner.allgatherv(send, recv, size),
        Collective::Alltoall { block, .. } => planner.alltoall(block),
        Collective::Alltoallv { send, recv, .. } => planner.alltoallv(send, recv),
        Collective::Alltoallw { send, recv, .. } => planner.alltoallw(send, recv),
        Collective::ReduceScatterBlock { of, .. } => planner.reduce_scatter_block(of),
        Collective::ReduceScatter { counts, of, .. } => planner.reduce_scatter(counts, of),
        // Not defined between groups. The caller has refused them.
        Collective::Scan { .. } | Collective::Exscan { .. } => {}
    }
}

/// Plans one call.
struct Planner<'a> {
    b: &'a mut Builder,
    t: Team,
    /// Ranks of the remote group.
    remote: u32,
    /// Peers with which an all-to-all exchanges at a time.
    window: u32,
}

impl Planner<'_> {
    fn leads(&self) -> bool {
        self.t.rank == LEADER
    }

    /// MPI_Barrier.
    fn barrier(&mut self) {
        barrier::gather_signal(self.b, self.t);
        if self.leads() {
            self.b.expect(Peer::Remote(LEADER));
            self.b.signal(Peer::Remote(LEADER));
            self.b.sync();
        }
        barrier::spread_signal(self.b, self.t);
    }

    /// MPI_Bcast: from the root to the other group's leader, which passes the data on.
    fn bcast(&mut self, root: Root, bytes: i64) {
        let data = Piece::new(Region::Packed, 0, bytes);
        match root {
            Root::This => self.b.send_to(Peer::Remote(LEADER), data),
            Root::Elsewhere => {}
            Root::Rank(root) => {
                if self.leads() {
                    self.b.recv_from(Peer::Remote(root), data);
                    self.b.sync();
                }
                bcast::binomial(self.b, self.t, LEADER, data);
            }
        }
    }

    /// MPI_Reduce: the leader of the group without the root sends its group's sum to the root.
    fn reduce(&mut self, root: Root, of: Reduction) {
        match root {
            Root::This => {
                let output = Piece::recv(0, of.count);
                self.b.recv_from(Peer::Remote(LEADER), output);
            }
            Root::Elsewhere => {}
            Root::Rank(root) => {
                let sum = self.local_sum(of.count, of.commutes);
                if self.leads() {
                    self.b.send_to(Peer::Remote(root), sum);
                }
            }
        }
    }

    /// MPI_Allreduce: each group gets the other's sum.
    fn allreduce(&mut self, of: Reduction) {
        let sum = self.local_sum(of.count, of.commutes);
        let output = Piece::recv(0, of.count);
        if self.leads() {
            self.b.recv_from(Peer::Remote(LEADER), output);
            self.b.send_to(Peer::Remote(LEADER), sum);
            self.b.sync();
        }
        bcast::binomial(self.b, self.t, LEADER, output);
    }

    /// MPI_Gather.
    fn gather(&mut self, root: Root, block: Block) {
        if block.bytes > 0 {
            let own = Piece::send(0, block.send);
            self.gather_blocks(root, own, &uniform(Region::Recv, block.recv));
        }
    }

    /// MPI_Gatherv.
    fn gatherv(&mut self, root: Root, send: i64, recv: Varying) {
        self.gather_blocks(root, Piece::send(0, send), &|r| at(Region::Recv, recv, r));
    }

    /// Each rank of the group without the root sends its own block to the root, which puts rank r's
    /// at `block(r)`.
    fn gather_blocks(&mut self, root: Root, own: Piece, block: &dyn Fn(u32) -> Piece) {
        match root {
            Root::This => gather::gather_remote(self.b, self.remote, block),
            Root::Elsewhere => {}
            Root::Rank(root) => self.b.send_to(Peer::Remote(root), own),
        }
    }

    /// MPI_Scatter.
    fn scatter(&mut self, root: Root, block: Block) {
        if block.bytes > 0 {
            let own = Piece::recv(0, block.recv);
            self.scatter_blocks(root, own, &uniform(Region::Send, block.send));
        }
    }

    /// MPI_Scatterv.
    fn scatterv(&mut self, root: Root, send: Varying, recv: i64) {
        self.scatter_blocks(root, Piece::recv(0, recv), &|r| at(Region::Send, send, r));
    }

    /// The root sends `block(r)` to rank r of the other group, which receives it as its own.
    fn scatter_blocks(&mut self, root: Root, own: Piece, block: &dyn Fn(u32) -> Piece) {
        match root {
            Root::This => gather::scatter_remote(self.b, self.remote, block),
            Root::Elsewhere => {}
            Root::Rank(root) => self.b.recv_from(Peer::Remote(root), own),
        }
    }

    /// MPI_Allgather.
    fn allgather(&mut self, block: Block) {
        self.gather_at_leader(block.send, &uniform(Region::Recv, block.recv));
        let all = Piece::recv(0, block.recv * i64::from(self.remote));
        bcast::binomial(self.b, self.t, LEADER, all);
    }

    /// MPI_Allgatherv: through a temporary buffer of packed blocks, so that gaps in the receive
    /// buffer stay untouched. `size`: packed bytes of an element.
    fn allgatherv(&mut self, send: i64, recv: Varying, size: i64) {
        let starts = prefix_sums(recv.counts);
        let total = starts[self.remote as usize] * size;
        let room = self.b.scratch(total);
        let packed = |r: u32| room.part(starts[r as usize] * size, recv.counts[r as usize] * size);
        self.gather_at_leader(send, &packed);
        bcast::binomial(self.b, self.t, LEADER, room);
        self.b.sync();
        for r in 0..self.remote {
            self.b.copy(packed(r), at(Region::Recv, recv, r));
        }
    }

    /// Each rank sends its block to the other group's leader, which puts rank r's at `block(r)`.
    fn gather_at_leader(&mut self, send: i64, block: &dyn Fn(u32) -> Piece) {
        if self.leads() {
            gather::gather_remote(self.b, self.remote, block);
        }
        self.b.send_to(Peer::Remote(LEADER), Piece::send(0, send));
        self.b.sync();
    }

    /// MPI_Alltoall.
    fn alltoall(&mut self, block: Block) {
        let out = uniform(Region::Send, block.send);
        let inn = uniform(Region::Recv, block.recv);
        alltoall::remote(self.b, self.t, self.remote, &out, &inn, self.window);
    }

    /// MPI_Alltoallv.
    fn alltoallv(&mut self, send: Varying, recv: Varying) {
        let out = |r: u32| at(Region::Send, send, r);
        let inn = |r: u32| at(Region::Recv, recv, r);
        alltoall::remote(self.b, self.t, self.remote, &out, &inn, self.window);
    }

    /// MPI_Alltoallw.
    fn alltoallw(&mut self, send: &[i64], recv: &[i64]) {
        let out = |r: u32| Piece::new(Region::SendBlock, i64::from(r), send[r as usize]);
        let inn = |r: u32| Piece::new(Region::RecvBlock, i64::from(r), recv[r as usize]);
        alltoall::remote(self.b, self.t, self.remote, &out, &inn, self.window);
    }

    /// MPI_Reduce_scatter_block.
    fn reduce_scatter_block(&mut self, of: Reduction) {
        let total = of.count * i64::from(self.t.size);
        let start = |r: u32| i64::from(r) * of.count;
        self.exchange_shares(total, of.commutes, of.count, &start);
    }

    /// MPI_Reduce_scatter.
    fn reduce_scatter(&mut self, counts: &[i64], of: Reduction) {
        let starts = prefix_sums(counts);
        let own = counts[self.t.rank as usize];
        let start = |r: u32| starts[r as usize];
        self.exchange_shares(of.count, of.commutes, own, &start);
    }

    /// Each group's sum of `total` elements goes to the other's leader, which scatters the shares.
    /// Rank r's share begins at `start(r)`; this rank's has `own` elements.
    fn exchange_shares(
        &mut self,
        total: i64,
        commutes: bool,
        own: i64,
        start: &dyn Fn(u32) -> i64,
    ) {
        let local = self.local_sum(total, commutes);
        let mut remote = Piece::EMPTY;
        if self.leads() {
            remote = self.b.scratch(total);
            self.b.recv_from(Peer::Remote(LEADER), remote);
            self.b.send_to(Peer::Remote(LEADER), local);
            self.b.sync();
        }
        let share = |r: u32| remote.part(start(r), start(r + 1) - start(r));
        gather::scatter_flat(self.b, self.t, LEADER, Some(Piece::recv(0, own)), &share);
    }

    /// The leader's sum over its own group, in the leader's temporary buffer.
    fn local_sum(&mut self, count: i64, commutes: bool) -> Piece {
        if count == 0 {
            return Piece::EMPTY;
        }
        let x = Operand {
            input: input(count, false),
            commutes,
        };
        let sum = match self.leads() {
            true => self.b.scratch(count),
            false => Piece::EMPTY,
        };
        reduce::binomial(self.b, self.t, LEADER, x, sum);
        self.b.sync();
        sum
    }
}

/// Blocks of `units` each in `region`, in rank order.
fn uniform(region: Region, units: i64) -> impl Fn(u32) -> Piece {
    move |r| Piece::new(region, i64::from(r) * units, units)
}
