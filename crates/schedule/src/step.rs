//! The parts of a schedule: regions, pieces, steps, and the builder of schedules.

use crate::algorithm::Algorithm;

/// The memory in which a [`Piece`] lies. It also says what the piece's units are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Region {
    /// The send buffer, in elements of the send type.
    Send,
    /// The receive buffer (the only buffer, where there is one), in elements of the receive type.
    Recv,
    /// The receive buffer as the stream of bytes that a message of it would be.
    Packed,
    /// A temporary buffer of the executor's: elements of the reduction's type in a reduction,
    /// otherwise bytes.
    Tmp,
    /// The send blocks of a w-form, each with a type of its own: `at` is a block's index, `count`
    /// its packed bytes.
    SendBlock,
    /// The receive blocks of a w-form: `at` is a block's index, `count` its packed bytes.
    RecvBlock,
}

/// A part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Piece {
    /// The memory.
    pub region: Region,
    /// The first unit. It may be negative in the user's buffers, as displacements may.
    pub at: i64,
    /// How many units.
    pub count: i64,
}

impl Piece {
    /// No data.
    pub const EMPTY: Piece = Piece {
        region: Region::Tmp,
        at: 0,
        count: 0,
    };

    /// `count` units of `region` from `at` on.
    #[inline]
    pub const fn new(region: Region, at: i64, count: i64) -> Piece {
        Piece { region, at, count }
    }
    /// `count` units of the send buffer from `at` on.
    #[inline]
    pub const fn send(at: i64, count: i64) -> Piece {
        Piece::new(Region::Send, at, count)
    }
    /// `count` units of the receive buffer from `at` on.
    #[inline]
    pub const fn recv(at: i64, count: i64) -> Piece {
        Piece::new(Region::Recv, at, count)
    }
    /// `count` units from the `skip`-th on.
    #[inline]
    pub const fn part(self, skip: i64, count: i64) -> Piece {
        Piece {
            region: self.region,
            at: self.at + skip,
            count,
        }
    }
}

/// The other side of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Peer {
    /// A rank of the own group.
    Local(u32),
    /// A rank of an intercommunicator's remote group.
    Remote(u32),
}

/// One step of one rank's schedule.
///
/// Messages between two ranks match in the order of the steps on both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Starts sending a piece, which stays unchanged until the send is awaited.
    Send {
        /// To whom.
        peer: Peer,
        /// What.
        from: Piece,
    },
    /// Starts receiving into a piece, which nobody touches until the receive is awaited.
    Recv {
        /// From whom.
        peer: Peer,
        /// Into what. Exactly so much data comes.
        into: Piece,
    },
    /// Waits for all sends and receives among the steps before number `before`.
    Await {
        /// Index of the first step that is not waited for.
        before: u32,
    },
    /// `into[i] = from[i] op into[i]`. Where order matters, `from` is of lower ranks.
    Reduce {
        /// Left operand.
        from: Piece,
        /// Right operand, and result.
        into: Piece,
    },
    /// Copies one piece to another of the same packed size.
    Copy {
        /// From here.
        from: Piece,
        /// To there.
        into: Piece,
    },
}

/// One rank's part of a collective: a straight-line program. Sends and receives go on in the
/// background until they are awaited. After the last step all that is in flight is awaited.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule {
    /// The program.
    pub steps: Vec<Step>,
    /// Units of [`Region::Tmp`] that it uses.
    pub tmp: i64,
    /// The algorithm, where there was a choice.
    pub algorithm: Option<Algorithm>,
}

/// A group of ranks as one of them sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Team {
    /// This rank.
    pub rank: u32,
    /// Ranks in the group.
    pub size: u32,
}

impl Team {
    /// The rank `by` places after this one, cyclically.
    #[inline]
    pub(crate) fn after(self, by: u32) -> u32 {
        ((u64::from(self.rank) + u64::from(by)) % u64::from(self.size)) as u32
    }
    /// The rank `by` places before this one (`by` at most the size), cyclically.
    #[inline]
    pub(crate) fn before(self, by: u32) -> u32 {
        self.after(self.size - by)
    }
    /// This rank's distance from `root`, cyclically.
    #[inline]
    pub(crate) fn relative(self, root: u32) -> u32 {
        self.before(root)
    }
    /// The rank at distance `relative` from `root`.
    #[inline]
    pub(crate) fn absolute(self, relative: u32, root: u32) -> u32 {
        ((u64::from(relative) + u64::from(root)) % u64::from(self.size)) as u32
    }
}

/// A schedule under construction.
#[derive(Default)]
pub(crate) struct Builder {
    schedule: Schedule,
    awaited: usize,
}

impl Builder {
    pub(crate) fn finish(self) -> Schedule {
        self.schedule
    }
    /// Sets the schedule's algorithm.
    pub(crate) fn name(&mut self, algorithm: Option<Algorithm>) {
        self.schedule.algorithm = algorithm;
    }
    /// Allocates `units` of [`Region::Tmp`].
    pub(crate) fn scratch(&mut self, units: i64) -> Piece {
        let at = self.schedule.tmp;
        self.schedule.tmp += units;
        Piece::new(Region::Tmp, at, units)
    }
    /// Adds the steps that `steps` adds for a team of these ranks of the group: its rank i is
    /// `ranks[i]`.
    pub(crate) fn among(&mut self, ranks: &[u32], steps: impl FnOnce(&mut Builder)) {
        let from = self.mark();
        steps(self);
        for step in &mut self.schedule.steps[from..] {
            if let Step::Send { peer, .. } | Step::Recv { peer, .. } = step
                && let Peer::Local(rank) = peer
            {
                *rank = ranks[*rank as usize];
            }
        }
    }
    /// Sends a piece to a rank of the own group. An empty piece is not sent: its receiver knows
    /// that it is empty.
    pub(crate) fn send(&mut self, to: u32, from: Piece) {
        self.send_to(Peer::Local(to), from);
    }
    /// Receives a piece from a rank of the own group.
    pub(crate) fn recv(&mut self, from: u32, into: Piece) {
        self.recv_from(Peer::Local(from), into);
    }
    pub(crate) fn send_to(&mut self, peer: Peer, from: Piece) {
        if from.count != 0 {
            self.schedule.steps.push(Step::Send { peer, from });
        }
    }
    pub(crate) fn recv_from(&mut self, peer: Peer, into: Piece) {
        if into.count != 0 {
            self.schedule.steps.push(Step::Recv { peer, into });
        }
    }
    /// Sends an empty message.
    pub(crate) fn signal(&mut self, peer: Peer) {
        self.schedule.steps.push(Step::Send {
            peer,
            from: Piece::EMPTY,
        });
    }
    /// Receives an empty message.
    pub(crate) fn expect(&mut self, peer: Peer) {
        self.schedule.steps.push(Step::Recv {
            peer,
            into: Piece::EMPTY,
        });
    }
    pub(crate) fn reduce(&mut self, from: Piece, into: Piece) {
        if into.count != 0 {
            self.schedule.steps.push(Step::Reduce { from, into });
        }
    }
    /// Copies, unless there is nothing to copy or both are the same place.
    pub(crate) fn copy(&mut self, from: Piece, into: Piece) {
        if from.count != 0 && from != into {
            self.schedule.steps.push(Step::Copy { from, into });
        }
    }
    /// The number of the next step, for [`Builder::sync_before`].
    pub(crate) fn mark(&self) -> usize {
        self.schedule.steps.len()
    }
    /// Waits for all that was started before `mark`.
    pub(crate) fn sync_before(&mut self, mark: usize) {
        let in_flight = self.schedule.steps[self.awaited.min(mark)..mark]
            .iter()
            .any(|s| matches!(s, Step::Send { .. } | Step::Recv { .. }));
        if in_flight {
            self.schedule.steps.push(Step::Await {
                before: mark as u32,
            });
        }
        self.awaited = self.awaited.max(mark);
    }
    /// Waits for all that was started so far.
    pub(crate) fn sync(&mut self) {
        self.sync_before(self.mark());
    }
}

/// Where the `i`-th of `n` nearly equal parts of `count` units begins. It ends where part `i + 1`
/// begins.
#[inline]
pub(crate) fn cut(count: i64, n: u32, i: u32) -> i64 {
    (i128::from(count) * i128::from(i) / i128::from(n)) as i64
}

/// Units `from..to`, by [`cut`], of `whole`.
pub(crate) fn parts(whole: Piece, n: u32, from: u32, to: u32) -> Piece {
    let begin = cut(whole.count, n, from);
    whole.part(begin, cut(whole.count, n, to) - begin)
}

/// The greatest power of two that is at most `n`.
pub(crate) fn power_below(n: u32) -> u32 {
    1 << n.ilog2()
}

/// The bits of `place`, of `power` places, a power of two, in reverse. Neighbours come to lie far
/// from each other: where a range is halved again and again, those near each other in the team,
/// often on one node, exchange the large halves.
pub(crate) fn reversed(place: u32, power: u32) -> u32 {
    match power {
        1 => place,
        power => place.reverse_bits() >> (u32::BITS - power.ilog2()),
    }
}
