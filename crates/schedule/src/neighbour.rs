//! Neighbourhood collectives (MPI 5.0 §8.6): every process exchanges with its neighbours in a
//! topology.

use crate::plan::Block;
use crate::step::{Builder, Piece, Schedule};

/// Receives from each source and sends to each destination, all at once. A rank may appear several
/// times. Its messages match in the order of the lists.
pub fn exchange(receives: &[(u32, Piece)], sends: &[(u32, Piece)]) -> Schedule {
    let mut b = Builder::default();
    for &(source, into) in receives {
        b.recv(source, into);
    }
    for &(destination, from) in sends {
        b.send(destination, from);
    }
    b.finish()
}

/// A neighbourhood collective whose blocks all have one length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourExchange {
    /// MPI_Neighbor_allgather: all neighbours get the same block.
    Allgather(Block),
    /// MPI_Neighbor_alltoall: each neighbour gets its own block.
    Alltoall(Block),
}

impl NeighbourExchange {
    /// What all blocks are like.
    #[inline]
    pub fn block(&self) -> Block {
        let (NeighbourExchange::Allgather(block) | NeighbourExchange::Alltoall(block)) = *self;
        block
    }

    /// What the `i`-th destination gets.
    #[inline]
    pub fn send_piece(&self, i: usize) -> Piece {
        match *self {
            NeighbourExchange::Allgather(block) => Piece::send(0, block.send),
            NeighbourExchange::Alltoall(block) => Piece::send(i as i64 * block.send, block.send),
        }
    }

    /// Where the data of the `i`-th source go.
    #[inline]
    pub fn receive_piece(&self, i: usize) -> Piece {
        let block = self.block();
        Piece::recv(i as i64 * block.recv, block.recv)
    }
}
