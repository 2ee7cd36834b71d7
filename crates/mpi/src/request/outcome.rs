//! Outcomes of operations: what MPI_Status holds (MPI 5.0 §3.2.5).

use crate::device::{Completion, Envelope, Fault, last_failure};
use crate::pt2pt::From;
use crate::{Comm, Error, Kind, Result, err};
use std::sync::Arc;

/// How an operation ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Who sent the message. [`From::Any`] in an empty status.
    pub source: From,
    /// Its tag; `None` in an empty status.
    pub tag: Option<u32>,
    /// Bytes received, as packed.
    pub bytes: u64,
    /// The operation was cancelled.
    pub cancelled: bool,
    /// What went wrong.
    pub error: Option<Error>,
}

impl Outcome {
    /// The empty status.
    pub const EMPTY: Outcome = Outcome {
        source: From::Any,
        tag: None,
        bytes: 0,
        cancelled: false,
        error: None,
    };
    /// A send's end.
    pub const SENT: Outcome = Outcome::EMPTY;
    /// The end of a receive or probe from MPI_PROC_NULL.
    pub const FROM_PROC_NULL: Outcome = Outcome {
        source: From::ProcNull,
        ..Outcome::EMPTY
    };

    /// What a probe found.
    pub fn of_envelope(e: &Envelope) -> Outcome {
        Outcome {
            source: From::Rank(e.source),
            tag: Some(e.tag),
            bytes: e.len,
            cancelled: false,
            error: None,
        }
    }

    /// A send's or a receive's end in `comm`.
    #[inline]
    pub fn of(ended: &Completion, comm: &Arc<Comm>, is_send: bool) -> Outcome {
        if is_send {
            Outcome::of_send(ended, comm)
        } else {
            Outcome::of_receive(ended, comm)
        }
    }

    /// A send's end.
    #[inline]
    pub fn of_send(ended: &Completion, comm: &Arc<Comm>) -> Outcome {
        let error = ended.fault.map(|f| error_of(f, comm));
        Outcome {
            cancelled: ended.cancelled,
            error,
            ..Outcome::SENT
        }
    }

    /// A receive's end.
    #[inline]
    pub fn of_receive(ended: &Completion, comm: &Arc<Comm>) -> Outcome {
        if ended.cancelled {
            return Outcome {
                cancelled: true,
                ..Outcome::EMPTY
            };
        }
        if ended.received != ended.room && ended.fault.is_none() && comm.has_exact_lengths() {
            return Outcome {
                bytes: ended.received,
                error: Some(too_short(ended).on(comm)),
                ..Outcome::of_envelope(&ended.envelope)
            };
        }
        let error = ended.fault.map(|f| {
            let mut e = error_of(f, comm);
            if let Fault::Truncated { sent, room } = f {
                let Envelope { source, tag, .. } = ended.envelope;
                e = err!(
                    Truncate,
                    "the message from rank {source} with tag {tag} has {sent} \
                     bytes, but the receive buffer has room for {room}"
                )
                .on(comm);
            }
            e
        });
        Outcome {
            bytes: ended.received,
            error,
            ..Outcome::of_envelope(&ended.envelope)
        }
    }

    /// The outcome, or its error.
    #[inline]
    pub fn into_result(mut self) -> Result<Outcome> {
        match self.error.take() {
            None => Ok(self),
            Some(e) => Err(e),
        }
    }
}

#[cold]
fn too_short(ended: &Completion) -> Error {
    let Envelope { source, tag, len } = ended.envelope;
    err!(
        Truncate,
        "the message from rank {source} with tag {tag} has {len} bytes and the receive buffer room \
         for {}, but the communicator's info says mpi_assert_exact_length",
        ended.room
    )
}

#[cold]
fn error_of(fault: Fault, comm: &Arc<Comm>) -> Error {
    match fault {
        Fault::Truncated { sent, room } => err!(
            Truncate,
            "the message has {sent} bytes, but the receive buffer has room for {room}"
        )
        .on(comm),
        Fault::Transport => {
            let cause = last_failure().unwrap_or_else(|| fault.to_string());
            Error::new(Kind::Other, cause).on(comm)
        }
    }
}
