//! Inclusive and exclusive scans (MPI 5.0 §6.11).

use crate::algorithm::Algorithm;
use crate::reduce::Operand;
use crate::step::{Builder, Piece, Team};

/// By `algorithm`: Chain, or else Doubling. `inclusive`: does a rank's result take in its own
/// contribution? If not, rank 0's output stays as it is.
pub(crate) fn run(
    b: &mut Builder,
    algorithm: Algorithm,
    t: Team,
    x: Operand,
    output: Piece,
    inclusive: bool,
) {
    match algorithm {
        Algorithm::Chain => chain(b, t, x, output, inclusive),
        _ => doubling(b, t, x, output, inclusive),
    }
}

/// Recursive doubling; keeps the order of operands.
fn doubling(b: &mut Builder, t: Team, x: Operand, output: Piece, inclusive: bool) {
    if t.size == 1 {
        if inclusive {
            b.copy(x.input, output);
        }
        return;
    }
    let n = x.input.count;
    // `sum`: the reduction over this rank's aligned block of `distance` ranks. `output`: the same
    // over the block's ranks up to this one, or below it if exclusive.
    let (mut sum, mut recv_buf) = (b.scratch(n), b.scratch(n));
    b.copy(x.input, sum);
    if inclusive {
        b.copy(x.input, output);
    }
    let mut has_output = inclusive;
    let mut distance = 1;
    while distance < t.size {
        let other = t.rank ^ distance;
        if other < t.size {
            b.recv(other, recv_buf);
            b.send(other, sum);
            b.sync();
            if other < t.rank {
                if has_output {
                    b.reduce(recv_buf, output);
                } else {
                    b.copy(recv_buf, output);
                    has_output = true;
                }
                b.reduce(recv_buf, sum);
            } else if x.commutes {
                b.reduce(recv_buf, sum);
            } else {
                b.reduce(sum, recv_buf);
                std::mem::swap(&mut sum, &mut recv_buf);
            }
        }
        distance *= 2;
    }
}

/// From rank to rank; keeps the order of operands. n-1 messages in all.
fn chain(b: &mut Builder, t: Team, x: Operand, output: Piece, inclusive: bool) {
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
    // The message is the reduction over all lower ranks.
    if inclusive {
        let recv_buf = b.scratch(output.count);
        b.recv(t.rank - 1, recv_buf);
        b.copy(x.input, output);
        b.sync();
        b.reduce(recv_buf, output);
        if !last {
            b.send(t.rank + 1, output);
        }
    } else if last {
        b.recv(t.rank - 1, output);
    } else {
        let recv_buf = b.scratch(output.count);
        b.copy(x.input, recv_buf);
        b.recv(t.rank - 1, output);
        b.sync();
        b.reduce(output, recv_buf);
        b.send(t.rank + 1, recv_buf);
    }
}
