//! Where connections wait until they have proved who they are, and what is counted of those that
//! could not.

use std::fmt;
use std::time::{Duration, Instant};

use crate::handshake::Rejected;

/// Connections whose handshake is not over: a bounded number of them, each for a bounded time, so
/// that neither a flood nor connections that never say anything keep the job's own from coming in.
///
/// `T` is whatever the transport keeps for one (a socket and a [`crate::Handshake`], say). The
/// owner feeds the handshakes and takes finished ones out.
#[derive(Debug)]
pub struct Porch<T> {
    waiting: Vec<Waiting<T>>,
    capacity: usize,
    patience: Duration,
    next: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    ticket: u64,
    until: Instant,
    known: bool,
    what: T,
}

impl<T> Porch<T> {
    /// Room for `capacity` (at least 1) at once, `patience` for each.
    pub fn new(capacity: usize, patience: Duration) -> Porch<T> {
        Porch {
            waiting: Vec::new(),
            capacity: capacity.max(1),
            patience,
            next: 0,
        }
    }

    /// Lets one in, under the ticket that is returned. If there is no room, the one that has waited
    /// longest has to go and is returned: of those that have said no good hello yet, if there
    /// are any (see [`Porch::know`]).
    pub fn enter(&mut self, what: T, now: Instant) -> (u64, Option<T>) {
        let out = if self.waiting.len() < self.capacity {
            None
        } else {
            // Tickets rise in the order of the vector, so the first found has waited longest.
            let at = self.waiting.iter().position(|w| !w.known).unwrap_or(0);
            Some(self.waiting.remove(at).what)
        };
        let ticket = self.next;
        self.next += 1;
        self.waiting.push(Waiting {
            ticket,
            until: now + self.patience,
            known: false,
            what,
        });
        (ticket, out)
    }

    /// Notes that this one's hello was good ([`crate::Handshake::has_hello`]): it goes only after
    /// all the others.
    pub fn know(&mut self, ticket: u64) {
        if let Ok(at) = self.find(ticket) {
            self.waiting[at].known = true;
        }
    }

    /// The one with this ticket, unless it has gone.
    pub fn one(&mut self, ticket: u64) -> Option<&mut T> {
        let at = self.find(ticket).ok()?;
        Some(&mut self.waiting[at].what)
    }

    /// Takes one out: its handshake is over, well or not.
    pub fn leave(&mut self, ticket: u64) -> Option<T> {
        let at = self.find(ticket).ok()?;
        Some(self.waiting.remove(at).what)
    }

    /// Takes out one whose time is over; call it until there is none.
    pub fn late(&mut self, now: Instant) -> Option<T> {
        // All have the same patience, so the first to come is the first to be late.
        if self.waiting.first()?.until > now {
            return None;
        }
        Some(self.waiting.remove(0).what)
    }

    /// When the next one will be late.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.first().map(|w| w.until)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The tickets of all that wait, longest first.
    pub fn tickets(&self) -> impl Iterator<Item = u64> + '_ {
        self.waiting.iter().map(|w| w.ticket)
    }

    fn find(&self, ticket: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&ticket, |w| w.ticket)
    }
}

/// How many connections were sent away, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drops {
    /// Spoke something else.
    pub strangers: u64,
    /// Another version.
    pub versions: u64,
    /// Could not prove that they belong to the job.
    pub proofs: u64,
    /// Knew the key, but wanted another job, process or purpose, or disagreed about encryption.
    pub misdirected: u64,
    /// Belong to the job, and were one too many: two processes called each other at once.
    pub crossed: u64,
    /// Did not finish in time.
    pub late: u64,
    /// Had to make room.
    pub crowded: u64,
    /// Went away before the end of the handshake.
    pub closed: u64,
}

impl Drops {
    /// Counts one. True if this one is worth a line in the log: the first, tenth, hundredth … of
    /// its kind, so that a flood does not fill a disk.
    pub fn count(&mut self, why: Rejected) -> bool {
        let kind = self.kind(why);
        *kind += 1;
        let mut n = *kind;
        while n.is_multiple_of(10) {
            n /= 10;
        }
        n == 1
    }

    /// How many there were of this kind.
    pub fn of(&self, why: Rejected) -> u64 {
        let mut copy = *self;
        *copy.kind(why)
    }

    fn kind(&mut self, why: Rejected) -> &mut u64 {
        match why {
            Rejected::Stranger => &mut self.strangers,
            Rejected::Version { .. } => &mut self.versions,
            Rejected::Proof => &mut self.proofs,
            Rejected::Job
            | Rejected::Process
            | Rejected::Purpose
            | Rejected::Encryption
            | Rejected::Randomness => &mut self.misdirected,
            Rejected::Crossed => &mut self.crossed,
            Rejected::Late => &mut self.late,
            Rejected::Crowded => &mut self.crowded,
            Rejected::Closed => &mut self.closed,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|&(n, _)| n).sum()
    }

    fn kinds(&self) -> [(u64, &'static str); 8] {
        [
            (self.strangers, "spoke something else"),
            (self.versions, "of another version"),
            (self.proofs, "without proof"),
            (self.misdirected, "misdirected"),
            (self.crossed, "crossed"),
            (self.late, "too slow"),
            (self.crowded, "too many at once"),
            (self.closed, "gone early"),
        ]
    }
}

/// `3 connections refused (2 spoke something else, 1 too slow)`
impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} connections refused", self.total())?;
        let mut before = " (";
        for (n, what) in self.kinds() {
            if n > 0 {
                write!(f, "{before}{n} {what}")?;
                before = ", ";
            }
        }
        if before == ", " {
            f.write_str(")")
        } else {
            Ok(())
        }
    }
}
