//! Neighbourhood collectives (MPI 5.0 §8.6): every process exchanges with its neighbours in a
//! topology.

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
