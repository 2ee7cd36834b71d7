//! Algorithms of MPI_Gather(v) and MPI_Scatter(v) (MPI 5.0 §6.5, §6.6).

use crate::step::{Builder, Peer, Piece, Team};

/// The blocks of an MPI_Gather or MPI_Scatter, all of one length.
#[derive(Clone, Copy)]
pub(crate) struct Uniform {
    /// Packed bytes of a block.
    pub(crate) bytes: i64,
    /// The block of rank 0 in the root's buffer. The others follow it in rank order. Significant
    /// only at the root.
    pub(crate) first: Piece,
    /// This rank's own block. `None` at a root whose block is in place.
    pub(crate) own: Option<Piece>,
}

impl Uniform {
    /// At the root: the blocks of `n` ranks from `rank` on.
    pub(crate) fn blocks(&self, rank: u32, n: u32) -> Piece {
        let units = self.first.count;
        self.first
            .part(i64::from(rank) * units, i64::from(n) * units)
    }
}

/// Each rank sends its block to the root. `block(r)`: where the root stores the block of rank r.
pub(crate) fn gather_flat(
    b: &mut Builder,
    t: Team,
    root: u32,
    own: Option<Piece>,
    block: &dyn Fn(u32) -> Piece,
) {
    if t.rank != root {
        return b.send(root, own.unwrap_or(Piece::EMPTY));
    }
    for i in 1..t.size {
        b.recv(t.after(i), block(t.after(i)));
    }
    if let Some(own) = own {
        b.copy(own, block(root));
    }
}

/// The root sends each rank its block. `block(r)`: where the root has the block of rank r.
pub(crate) fn scatter_flat(
    b: &mut Builder,
    t: Team,
    root: u32,
    own: Option<Piece>,
    block: &dyn Fn(u32) -> Piece,
) {
    if t.rank != root {
        return b.recv(root, own.unwrap_or(Piece::EMPTY));
    }
    for i in 1..t.size {
        b.send(t.after(i), block(t.after(i)));
    }
    if let Some(own) = own {
        b.copy(block(root), own);
    }
}

/// The root receives a block from every rank of the remote group.
pub(crate) fn gather_remote(b: &mut Builder, remote: u32, block: &dyn Fn(u32) -> Piece) {
    for r in 0..remote {
        b.recv_from(Peer::Remote(r), block(r));
    }
}

/// The root sends a block to every rank of the remote group.
pub(crate) fn scatter_remote(b: &mut Builder, remote: u32, block: &dyn Fn(u32) -> Piece) {
    for r in 0..remote {
        b.send_to(Peer::Remote(r), block(r));
    }
}

/// Gather along a binomial tree. A message has all blocks of a subtree.
pub(crate) fn gather_binomial(b: &mut Builder, t: Team, root: u32, x: Uniform) {
    let me = t.relative(root);
    let reach = subtree(me, t.size);
    if me == 0 {
        let mut copies = Vec::new();
        let mut mask = 1;
        while mask < t.size {
            let width = mask.min(t.size - mask);
            let (first, child) = (t.absolute(mask, root), t.absolute(mask, root));
            let before_wrap = width.min(t.size - first);
            if before_wrap == width {
                b.recv(child, x.blocks(first, width));
            } else {
                // The subtree's ranks wrap around, so its blocks are two runs of the buffer.
                let room = b.scratch(i64::from(width) * x.bytes);
                b.recv(child, room);
                let split = i64::from(before_wrap) * x.bytes;
                copies.push((room.part(0, split), x.blocks(first, before_wrap)));
                copies.push((
                    room.part(split, room.count - split),
                    x.blocks(0, width - before_wrap),
                ));
            }
            mask *= 2;
        }
        if let Some(own) = x.own {
            b.copy(own, x.blocks(root, 1));
        }
        b.sync();
        for (from, into) in copies {
            b.copy(from, into);
        }
        return;
    }
    let parent = t.absolute(me & (me - 1), root);
    let own = x.own.unwrap_or(Piece::EMPTY);
    if reach == 1 {
        return b.send(parent, own);
    }
    let room = b.scratch(i64::from(reach) * x.bytes);
    let mut mask = 1;
    while mask < reach {
        let width = mask.min(reach - mask);
        b.recv(
            t.absolute(me + mask, root),
            room.part(i64::from(mask) * x.bytes, i64::from(width) * x.bytes),
        );
        mask *= 2;
    }
    b.copy(own, room.part(0, x.bytes));
    b.sync();
    b.send(parent, room);
}

/// Scatter along a binomial tree. A message has all blocks of a subtree.
pub(crate) fn scatter_binomial(b: &mut Builder, t: Team, root: u32, x: Uniform) {
    let me = t.relative(root);
    let reach = subtree(me, t.size);
    let mut mask = reach.next_power_of_two();
    if me == 0 {
        while mask > 1 {
            mask /= 2;
            let width = mask.min(t.size - mask);
            let first = t.absolute(mask, root);
            let before_wrap = width.min(t.size - first);
            if before_wrap == width {
                b.send(first, x.blocks(first, width));
            } else {
                let room = b.scratch(i64::from(width) * x.bytes);
                let split = i64::from(before_wrap) * x.bytes;
                b.copy(x.blocks(first, before_wrap), room.part(0, split));
                b.copy(
                    x.blocks(0, width - before_wrap),
                    room.part(split, room.count - split),
                );
                b.send(first, room);
            }
        }
        if let Some(own) = x.own {
            b.copy(x.blocks(root, 1), own);
        }
        return;
    }
    let parent = t.absolute(me & (me - 1), root);
    let own = x.own.unwrap_or(Piece::EMPTY);
    if reach == 1 {
        return b.recv(parent, own);
    }
    let room = b.scratch(i64::from(reach) * x.bytes);
    b.recv(parent, room);
    b.sync();
    while mask > 1 {
        mask /= 2;
        let width = mask.min(reach - mask);
        b.send(
            t.absolute(me + mask, root),
            room.part(i64::from(mask) * x.bytes, i64::from(width) * x.bytes),
        );
    }
    b.copy(room.part(0, x.bytes), own);
}

/// Number of ranks in the subtree of the rank at distance `me` from the root.
fn subtree(me: u32, n: u32) -> u32 {
    if me == 0 {
        n
    } else {
        (1 << me.trailing_zeros()).min(n - me)
    }
}
