//! The two paths of a large message within a node, and the measurement of a message.

use std::time::{Duration, Instant};

/// How the bytes of a large message get to its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Path {
    /// Pipelined copy: the receiver sends CTS, and the sender sends DATA in parts.
    Pipelined,
    /// Single copy: the receiver reads the sender's memory (CMA).
    SingleCopy,
}

impl Path {
    /// The other one of the two.
    pub fn other(self) -> Path {
        match self {
            Path::SingleCopy => Path::Pipelined,
            Path::Pipelined => Path::SingleCopy,
        }
    }
}

/// What the receiving process does while a large message is copied. Each state has measurements of
/// its own: other cores copy, and these have other work beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceiverState {
    /// A thread of the program that waits in MPI.
    Waiting,
    /// A thread of the program, while this process has large messages of its own to send. Those
    /// are measured as well: while one rank reads, its own messages wait.
    AlsoSending,
    /// A thread that shares its core: the progress thread, or a rank where ranks outnumber cores.
    /// Only the time of its own work counts, not the time at which the message is complete.
    SharedCore,
}

/// The measurement of a large message, for path selection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub path: Path,
    pub receiver_state: ReceiverState,
    pub size_class: usize,
    /// The trial to which it belongs.
    pub trial: Option<u32>,
    /// The number of first touches when the path was chosen.
    pub first_touches: u64,
    /// When the message matched its receive.
    pub matched_at: Instant,
    /// When the path was chosen.
    pub chosen_at: Instant,
    /// Time spent so far in copying parts out of the ring.
    pub copy_time: Duration,
}

impl Sample {
    /// Does the time count in which the parts are copied?
    #[inline]
    pub fn counts_copies(&self) -> bool {
        self.receiver_state == ReceiverState::SharedCore && self.trial.is_some()
    }

    /// Runs `copy`, which copies one part of the message, and measures it where that counts.
    #[inline]
    pub fn copy_part(&mut self, copy: impl FnOnce()) {
        let since = self.counts_copies().then(Instant::now);
        copy();
        if let Some(since) = since {
            self.copy_time += since.elapsed();
        }
    }

    /// Is the message part of a trial?
    pub fn is_trial(&self) -> bool {
        self.trial.is_some()
    }
}
