//! Requests: operations under way, and how they ended.

use crate::base::buffer::{Sink, Source};
use crate::base::key::{ContextId, Envelope, ProcId};
use crate::matching::Unexpected;
use crate::protocol::select::Measured;

/// An operation under way in the device. It stays valid until [`Device::take`](crate::Device::take)
/// has returned its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ReqId(pub(crate) u32);

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// For a receive: who sent what. For a send: zeros.
    pub envelope: Envelope,
    /// Bytes that were stored in the receive buffer (less than `envelope.len` if the message was
    /// truncated).
    pub received: u64,
    /// Bytes for which the receive buffer has room.
    pub room: u64,
    /// The operation was cancelled before it matched.
    pub cancelled: bool,
    /// What went wrong, if anything did.
    pub fault: Option<Fault>,
}

impl Completion {
    /// The completion of a send, or of an operation with nobody (MPI_PROC_NULL).
    pub const EMPTY: Completion = Completion {
        envelope: Envelope {
            source: 0,
            tag: 0,
            len: 0,
        },
        received: 0,
        room: 0,
        cancelled: false,
        fault: None,
    };
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The message was longer than the receive buffer; what fits was stored.
    #[error("the message of {sent} bytes is longer than the receive buffer of {room} bytes")]
    Truncated {
        /// Bytes sent.
        sent: u64,
        /// Bytes that fit.
        room: u64,
    },
    /// The transport could not carry the message; [`last_failure`](crate::last_failure) says what broke it.
    #[error("the transport failed")]
    Transport,
}

/// What a request stands for.
pub(crate) enum Operation {
    /// The slot is free.
    Free,
    /// A send that waits for room on its wire.
    SendQueued { source: Source },
    /// A synchronous send whose receiver has yet to match.
    SendWaiting { to: ProcId },
    /// A send of a message that is too large to be put on its wire as a whole.
    SendLarge {
        to: ProcId,
        source: Source,
        asked: Asked,
    },
    /// A receive; `stream`: its message comes piece by piece.
    Receive {
        context: ContextId,
        sink: Sink,
        stream: Option<Box<Stream>>,
    },
    /// A message that a matched probe has taken.
    Message(Box<Unexpected>),
    /// It could not even be started.
    Failed,
}

/// Does the receiver of a large message ask for it piece by piece?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// It may; it has been told of the message.
    NotYet,
    /// It has.
    Yes,
    /// It need not, and cannot: the message goes at once.
    Needless,
}

/// A message that comes piece by piece.
pub(crate) struct Stream {
    pub from: ProcId,
    /// Bytes that have come.
    pub got: u64,
    /// If how long they take says something.
    pub measured: Option<Measured>,
}

struct Slot {
    operation: Operation,
    done: bool,
    detached: bool,
    pressing: bool,
    completion: Completion,
}

/// All requests of a process.
pub(crate) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    started: u64,
    completed: u64,
    /// Large sends under way.
    large: usize,
    /// Operations marked by [`Requests::press`] that are under way.
    pressing: usize,
}

impl Requests {
    pub fn new() -> Requests {
        Requests {
            slots: Vec::new(),
            free: Vec::new(),
            started: 0,
            completed: 0,
            large: 0,
            pressing: 0,
        }
    }

    #[inline]
    pub fn insert(&mut self, operation: Operation) -> ReqId {
        self.started += 1;
        self.large += usize::from(matches!(operation, Operation::SendLarge { .. }));
        let Some(at) = self.free.pop() else {
            self.slots.push(Slot {
                operation,
                done: false,
                detached: false,
                pressing: false,
                completion: Completion::EMPTY,
            });
            return ReqId(self.slots.len() as u32 - 1);
        };
        // Field by field: what is put together elsewhere and then moved as a whole waits for its
        // stores.
        let slot = &mut self.slots[at as usize];
        slot.operation = operation;
        slot.done = false;
        slot.detached = false;
        slot.completion = Completion::EMPTY;
        ReqId(at)
    }

    /// The operation of a request that is not complete. Tolerates numbers that a peer made up.
    #[inline]
    pub fn operation(&mut self, req: ReqId) -> Option<&mut Operation> {
        self.slots
            .get_mut(req.0 as usize)
            .filter(|s| !s.done)
            .map(|s| &mut s.operation)
    }

    pub fn set_envelope(&mut self, req: ReqId, envelope: Envelope) {
        self.slots[req.0 as usize].completion.envelope = envelope;
    }

    pub fn envelope(&self, req: ReqId) -> Envelope {
        self.slots[req.0 as usize].completion.envelope
    }

    /// As [`Requests::envelope`], for a number that a peer may have made up.
    pub fn envelope_of(&self, req: ReqId) -> Option<Envelope> {
        self.slots
            .get(req.0 as usize)
            .map(|s| s.completion.envelope)
    }

    /// The operation has ended. Its buffers are let go.
    #[inline]
    pub fn complete(&mut self, req: ReqId, completion: Completion) {
        self.completed += 1;
        let slot = &mut self.slots[req.0 as usize];
        self.large -= usize::from(matches!(slot.operation, Operation::SendLarge { .. }));
        self.pressing -= usize::from(slot.pressing);
        slot.pressing = false;
        slot.operation = Operation::Free;
        slot.completion = completion;
        slot.done = true;
        if slot.detached {
            self.free.push(req.0);
        }
    }

    #[inline]
    pub fn is_complete(&self, req: ReqId) -> bool {
        self.slots[req.0 as usize].done
    }

    #[inline]
    pub fn take(&mut self, req: ReqId) -> Completion {
        let slot = &mut self.slots[req.0 as usize];
        assert!(
            slot.done,
            "the completion of an operation under way was asked for"
        );
        self.free.push(req.0);
        slot.completion
    }

    pub fn peek(&self, req: ReqId) -> Option<Completion> {
        let slot = &self.slots[req.0 as usize];
        slot.done.then_some(slot.completion)
    }

    pub fn detach(&mut self, req: ReqId) {
        let slot = &mut self.slots[req.0 as usize];
        slot.detached = true;
        if slot.done {
            self.free.push(req.0);
        }
    }

    /// Operations completed so far.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Large sends under way.
    pub fn large(&self) -> usize {
        self.large
    }

    /// Others wait for this operation's progress, not only the program for its end.
    pub fn press(&mut self, req: ReqId) {
        if let Some(slot) = self.slots.get_mut(req.0 as usize)
            && !slot.done
            && !slot.pressing
        {
            slot.pressing = true;
            self.pressing += 1;
        }
    }

    /// Operations under way on whose progress others wait.
    pub fn pressing(&self) -> usize {
        self.large + self.pressing
    }

    /// Operations under way.
    pub fn open(&self) -> u64 {
        self.started - self.completed
    }

    /// Is a send under way?
    pub fn sends_pending(&self) -> bool {
        self.slots.iter().any(|s| {
            use Operation::{SendLarge, SendQueued, SendWaiting};
            matches!(
                s.operation,
                SendQueued { .. } | SendWaiting { .. } | SendLarge { .. }
            )
        })
    }

    /// Everything that is under way.
    pub fn under_way(&self) -> impl Iterator<Item = (ReqId, &Operation)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| !slot.done)
            .map(|(at, slot)| (ReqId(at as u32), &slot.operation))
    }

    /// Completes an operation with a fault, if it is under way.
    pub fn fail(&mut self, req: ReqId, fault: Fault) {
        let slot = &self.slots[req.0 as usize];
        if !slot.done {
            let completion = Completion {
                fault: Some(fault),
                ..slot.completion
            };
            self.complete(req, completion);
        }
    }

    /// Completes everything that is under way with a fault.
    pub fn fail_all(&mut self, fault: Fault) {
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if !slot.done && !matches!(slot.operation, Operation::Free | Operation::Message(_)) {
                let completion = Completion {
                    fault: Some(fault),
                    ..slot.completion
                };
                self.complete(ReqId(at as u32), completion);
            }
        }
    }
}
