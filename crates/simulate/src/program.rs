//! All ranks' schedules in the form that the simulation runs: messages matched, sizes in bytes.

use crate::Error;
use ferry_schedule::{
    Algorithm, Collective, CommView, Cost, NodeMap, Peer, Piece, Region, Schedule, Step, Team, plan,
};

/// One step of a rank. Messages are numbered.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Starts to send a message.
    Send(u32),
    /// Posts the receive of a message.
    Recv(u32),
    /// Waits for the rank's first so many sends and receives.
    Await(u32),
    /// Computes or copies for so long, in ps. What follows each other is one step.
    Work(u64),
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub from: u32,
    pub to: u32,
    pub bytes: u64,
}

/// The programs of all ranks.
pub struct Program {
    pub ops: Vec<Op>,
    /// Where each rank's steps begin in `ops`, and where the last one's end.
    pub starts: Vec<usize>,
    pub messages: Vec<Message>,
    pub algorithm: Option<Algorithm>,
}

/// Steps of schedules that are looked at, for each message that may be simulated. Bruck's alltoall
/// copies every block in every round.
const STEPS_A_MESSAGE: u64 = 100;

/// One side of a message before both are matched.
struct Side {
    from: u32,
    to: u32,
    /// Its step, in `ops`.
    op: usize,
    bytes: u64,
}

/// Picoseconds.
pub fn picoseconds(seconds: f64) -> u64 {
    (seconds * 1e12).round() as u64
}

/// Bytes of a unit of a piece: an element in reductions, a byte in all other calls that
/// [`crate::call_of`] makes.
fn unit(call: &Collective<'_>) -> u64 {
    match call {
        Collective::Reduce { of, .. }
        | Collective::Allreduce { of, .. }
        | Collective::ReduceScatterBlock { of, .. }
        | Collective::Scan { of, .. } => of.element as u64,
        _ => 1,
    }
}

impl Program {
    /// Plans `call` for `ranks` ranks, which are on `nodes` if that makes two levels.
    ///
    /// Errors: TooManyMessages if they send more than `limit`, or have a hundred times as many
    /// steps; NotAllowed if the algorithm that is asked for cannot serve the call; Unmatched.
    pub fn new(
        ranks: u32,
        nodes: Option<&NodeMap>,
        call: &Collective<'_>,
        cost: &Cost,
        forced: Option<Algorithm>,
        limit: u64,
    ) -> Result<Program, Error> {
        let mut program = Program {
            ops: Vec::new(),
            starts: vec![0],
            messages: Vec::new(),
            algorithm: None,
        };
        let mut sides = Sides::default();
        let mut steps_seen = 0;
        for rank in 0..ranks {
            let team = Team { rank, size: ranks };
            let view = CommView {
                team,
                remote: None,
                nodes,
            };
            let Schedule {
                steps, algorithm, ..
            } = plan(view, call, cost, forced);
            if let Some(forced) = forced
                && algorithm.is_some_and(|a| a != forced)
            {
                return Err(Error::NotAllowed(forced.name()));
            }
            program.algorithm = algorithm;
            steps_seen += steps.len() as u64;
            program.add_rank(rank, &steps, unit(call), cost, &mut sides);
            if steps_seen > limit.saturating_mul(STEPS_A_MESSAGE)
                || sides.sends.len() as u64 > limit
            {
                return Err(Error::TooManyMessages(limit));
            }
        }
        program.match_messages(sides)?;
        Ok(program)
    }

    /// Adds a rank's steps, and the sides of its messages, which have no numbers yet. `unit`: bytes
    /// of a unit of a piece.
    fn add_rank(&mut self, rank: u32, steps: &[Step], unit: u64, cost: &Cost, sides: &mut Sides) {
        let bytes = |piece: Piece| match piece.region {
            Region::Packed => piece.count as u64,
            _ => piece.count as u64 * unit,
        };
        let work = |seconds: f64| Op::Work(picoseconds(seconds));
        let begin = self.ops.len();
        // Sends and receives before each step, for Await.
        let mut started = Vec::with_capacity(steps.len());
        let mut count = 0;
        for &step in steps {
            started.push(count);
            let op = self.ops.len();
            let next = match step {
                Step::Send {
                    peer: Peer::Local(to) | Peer::Remote(to),
                    from: piece,
                } => {
                    sides.sends.push(Side {
                        from: rank,
                        to,
                        op,
                        bytes: bytes(piece),
                    });
                    count += 1;
                    Op::Send(0)
                }
                Step::Recv {
                    peer: Peer::Local(from) | Peer::Remote(from),
                    into: piece,
                } => {
                    sides.receives.push(Side {
                        from,
                        to: rank,
                        op,
                        bytes: bytes(piece),
                    });
                    count += 1;
                    Op::Recv(0)
                }
                Step::Await { before } => {
                    Op::Await(started.get(before as usize).copied().unwrap_or(count))
                }
                Step::Reduce { into, .. } => work(bytes(into) as f64 * cost.reduce_byte_s),
                Step::Copy { into, .. } => {
                    work(cost.copy_s + bytes(into) as f64 * cost.copy_byte_s)
                }
            };
            match (next, self.ops[begin..].last_mut()) {
                (Op::Work(more), Some(Op::Work(time))) => *time += more,
                _ => self.ops.push(next),
            }
        }
        self.starts.push(self.ops.len());
    }

    /// Gives both sides of each message its number: between two ranks they match in order.
    fn match_messages(&mut self, sides: Sides) -> Result<(), Error> {
        let Sides {
            mut sends,
            mut receives,
        } = sides;
        sends.sort_unstable_by_key(|s| (s.from, s.to, s.op));
        receives.sort_unstable_by_key(|r| (r.from, r.to, r.op));
        if let Some((from, to)) = first_difference(&sends, &receives) {
            let count = |sides: &[Side]| {
                let of_pair = sides.iter().filter(|s| (s.from, s.to) == (from, to));
                of_pair.count() as u64
            };
            return Err(Error::Unmatched {
                from,
                to,
                sent: count(&sends),
                received: count(&receives),
            });
        }
        self.messages.reserve_exact(sends.len());
        for (number, (send, receive)) in sends.iter().zip(&receives).enumerate() {
            self.ops[send.op] = Op::Send(number as u32);
            self.ops[receive.op] = Op::Recv(number as u32);
            self.messages.push(Message {
                from: send.from,
                to: send.to,
                bytes: send.bytes,
            });
        }
        Ok(())
    }
}

/// The sides of all messages.
#[derive(Default)]
struct Sides {
    sends: Vec<Side>,
    receives: Vec<Side>,
}

/// The first pair of ranks whose sends and receives do not match.
fn first_difference(sends: &[Side], receives: &[Side]) -> Option<(u32, u32)> {
    let pair = |s: &Side| (s.from, s.to);
    let differ = |(s, r): (&Side, &Side)| pair(s) != pair(r) || s.bytes != r.bytes;
    match sends.iter().zip(receives).position(differ) {
        Some(at) => Some(pair(&sends[at]).min(pair(&receives[at]))),
        None => {
            let common = sends.len().min(receives.len());
            let longer = sends.get(common).or(receives.get(common));
            longer.map(pair)
        }
    }
}
