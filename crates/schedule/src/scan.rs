//! Inclusive and exclusive scans (MPI 5.0 §6.11).

use crate::reduce::Operand;
use crate::step::{Builder, Piece, Team};

/// Recursive doubling; keeps the order of operands. `inclusive`: does a rank's result take in its
/// own contribution?
pub(crate) fn doubling(b: &mut Builder, t: Team, x: Operand, output: Piece, inclusive: bool) {
    if t.size == 1 {
        if inclusive {
            b.copy(x.input, output);
        }
        return;
    }
    let n = x.input.count;
    // `sum` is of the aligned block of ranks around this one, `output` of those in it up to (or
    // below) this one.
    let (mut sum, mut room) = (b.scratch(n), b.scratch(n));
    b.copy(x.input, sum);
    if inclusive {
        b.copy(x.input, output);
    }
    let mut begun = inclusive;
    let mut distance = 1;
    while distance < t.size {
        let other = t.rank ^ distance;
        if other < t.size {
            b.recv(other, room);
            b.send(other, sum);
            b.sync();
            if other < t.rank {
                if begun {
                    b.reduce(room, output);
                } else {
                    b.copy(room, output);
                    begun = true;
                }
                b.reduce(room, sum);
            } else if x.commutes {
                b.reduce(room, sum);
            } else {
                b.reduce(sum, room);
                std::mem::swap(&mut sum, &mut room);
            }
        }
        distance *= 2;
    }
}

/// From rank to rank; keeps the order of operands. n-1 messages in all.
pub(crate) fn chain(b: &mut Builder, t: Team, x: Operand, output: Piece, inclusive: bool) {
    let last = t.rank + 1 == t.size;
    if t.rank == 0 {
        if !last {
            b.send(1, x.input);
        }
        if inclusive {
            b.copy(x.input, output);
        }
        return;
    }
    // What comes is of all lower ranks.
    if inclusive {
        let room = b.scratch(output.count);
        b.recv(t.rank - 1, room);
        b.copy(x.input, output);
        b.sync();
        b.reduce(room, output);
        if !last {
            b.send(t.rank + 1, output);
        }
    } else if last {
        b.recv(t.rank - 1, output);
    } else {
        let room = b.scratch(output.count);
        b.copy(x.input, room);
        b.recv(t.rank - 1, output);
        b.sync();
        b.reduce(output, room);
        b.send(t.rank + 1, room);
    }
}
