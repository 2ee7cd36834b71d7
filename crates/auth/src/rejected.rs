//! Why a connection is closed before it is open, and how many were closed for each reason.

use std::fmt;

use crate::message::VERSION;

/// Why a connection is closed before it is open. This is for the local log and counters. The other
/// side is told nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejected {
    /// The first bytes are not Ferry's.
    #[error("it does not speak Ferry's protocol")]
    UnknownProtocol,
    /// It is Ferry, but of another version.
    #[error(
        "it speaks version {theirs} of Ferry's connections, this process version {VERSION}: \
         run one version of Ferry on all hosts"
    )]
    Version {
        /// The version it speaks.
        theirs: u16,
    },
    /// It does not know the job's key, or bytes were changed on the way, or an old connection is
    /// being repeated.
    #[error("it could not prove that it belongs to this job")]
    Proof,
    /// It knows the key but names another job.
    #[error("it belongs to another job")]
    Job,
    /// It knows the key but wants another process, which may have had this address before.
    #[error("it wants another process of this job")]
    Process,
    /// It is a process of this job with which there is, or was, a connection already. Two that
    /// call each other at once come to this.
    #[error("this process and that one have a connection already")]
    Crossed,
    /// It knows the key, but connects for something that this listener does not do.
    #[error("it connects for another purpose")]
    Purpose,
    /// One side has FERRY_ENCRYPT=1 and the other has not.
    #[error("only one side encrypts: set FERRY_ENCRYPT the same for all ranks")]
    Encryption,
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random bytes")]
    Randomness,
    /// It did not finish the handshake in time.
    #[error("it did not finish the handshake in time")]
    TimedOut,
    /// It had to make room for others while too many were unfinished.
    #[error("too many unfinished connections at once")]
    BacklogFull,
    /// It closed the connection before the handshake was over.
    #[error("it closed the connection before the handshake was over")]
    Closed,
}

/// How many connections were rejected, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RejectionCounts {
    /// Spoke another protocol.
    pub unknown_protocol: u64,
    /// Spoke another version.
    pub version: u64,
    /// Could not prove that they belong to the job.
    pub proof: u64,
    /// Knew the key, but wanted another job, process or purpose, or disagreed about encryption.
    pub misdirected: u64,
    /// Belong to the job, and were one too many: two processes called each other at once.
    pub crossed: u64,
    /// Did not finish in time.
    pub timed_out: u64,
    /// Had to make room.
    pub backlog_full: u64,
    /// Went away before the end of the handshake.
    pub closed: u64,
}

impl RejectionCounts {
    /// Counts one. True if this one is worth a line in the log: the first, tenth, hundredth … of
    /// its kind. So a flood does not fill a disk.
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
            Rejected::UnknownProtocol => &mut self.unknown_protocol,
            Rejected::Version { .. } => &mut self.version,
            Rejected::Proof => &mut self.proof,
            Rejected::Job
            | Rejected::Process
            | Rejected::Purpose
            | Rejected::Encryption
            | Rejected::Randomness => &mut self.misdirected,
            Rejected::Crossed => &mut self.crossed,
            Rejected::TimedOut => &mut self.timed_out,
            Rejected::BacklogFull => &mut self.backlog_full,
            Rejected::Closed => &mut self.closed,
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|&(n, _)| n).sum()
    }

    fn kinds(&self) -> [(u64, &'static str); 8] {
        [
            (self.unknown_protocol, "spoke something else"),
            (self.version, "of another version"),
            (self.proof, "without proof"),
            (self.misdirected, "misdirected"),
            (self.crossed, "crossed"),
            (self.timed_out, "too slow"),
            (self.backlog_full, "too many at once"),
            (self.closed, "gone early"),
        ]
    }
}

/// `3 connections refused (2 spoke something else, 1 too slow)`
impl fmt::Display for RejectionCounts {
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
