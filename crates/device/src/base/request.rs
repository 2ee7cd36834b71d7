//! Requests: pending operations and their completions.

use crate::base::buffer::{Sink, Source};
use crate::base::key::{ContextId, Envelope, ProcId};
use crate::base::message::Unexpected;
use crate::base::path::Sample;
use ferry_transport::short_copy;

/// The mode of a send: when it is complete (MPI 5.0 §3.4), and whether edges are sent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// Complete when the buffer may be used again.
    Standard,
    /// Complete when the buffer may be used again and the receive has matched.
    Synchronous,
    /// As `Standard`, but the edges of a large message are sent before its RTS, for a receiver with
    /// deferred receives. Only for peers with [`streams`](crate::Capabilities::streams).
    StandardWithEdges,
}

/// An operation of the device. It is valid until [`Device::take`](crate::Device::take) has returned
/// its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ReqId(pub(crate) u32);

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// For a receive: source, tag and length of the message. For a send: zeros.
    pub envelope: Envelope,
    /// Bytes that were stored in the receive buffer (less than `envelope.len` if the message was
    /// truncated).
    pub received: u64,
    /// Bytes for which the receive buffer has room.
    pub room: u64,
    /// The operation was cancelled before it matched.
    pub cancelled: bool,
    /// The error, if the operation failed.
    pub fault: Option<Fault>,
}

impl Completion {
    /// The completion of a send, or of an operation with MPI_PROC_NULL.
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
    /// The message was longer than the receive buffer. The bytes that fit are stored.
    #[error("the message of {sent} bytes is longer than the receive buffer of {room} bytes")]
    Truncated {
        /// Bytes sent.
        sent: u64,
        /// Bytes that fit.
        room: u64,
    },
    /// The transport has failed. [`last_failure`](crate::last_failure) says why.
    #[error("the transport failed")]
    Transport,
}

/// The operation of a request.
pub(crate) enum Operation {
    /// The slot is free.
    Free,
    /// An eager send that waits for room on its transport.
    SendQueued { source: Source },
    /// A synchronous eager send that waits for FIN.
    SendSync { to: ProcId },
    /// A send by rendezvous or speculative rendezvous.
    SendLarge {
        to: ProcId,
        source: Source,
        cts: Cts,
    },
    /// A receive. It has a `stream` once its message arrives in parts.
    Receive {
        context: ContextId,
        sink: Sink,
        stream: Option<Box<Stream>>,
    },
    /// A message that a matched probe has taken out of the unexpected queue.
    Message(Box<Unexpected>),
    /// A send that no transport has accepted.
    Failed,
}

impl Operation {
    /// Is there nothing to free when it is dropped?
    #[inline]
    fn is_plain(&self) -> bool {
        matches!(
            self,
            Operation::Free
                | Operation::SendSync { .. }
                | Operation::SendQueued {
                    source: Source::Bytes { .. }
                }
                | Operation::Receive {
                    sink: Sink::Bytes { .. },
                    stream: None,
                    ..
                }
        )
    }
}

/// Whether the receiver of a large message has sent CTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cts {
    /// The RTS is sent, and the CTS has not arrived.
    Awaited,
    /// The CTS has arrived.
    Received,
    /// The message is speculative: there is no CTS.
    NotNeeded,
}

/// A message that arrives in parts.
pub(crate) struct Stream {
    pub from: ProcId,
    /// Bytes that have arrived.
    pub received: u64,
    /// The measurement to which the message belongs.
    pub sample: Option<Sample>,
}

struct Slot {
    operation: Operation,
    done: bool,
    detached: bool,
    urgent: bool,
    completion: Completion,
}

/// All requests of a process.
pub(crate) struct Requests {
    slots: Vec<Slot>,
    free: Vec<u32>,
    started: u64,
    completed: u64,
    /// Pending large sends.
    large_sends: usize,
    /// Pending operations that [`Requests::mark_urgent`] has marked.
    urgent: usize,
}

impl Requests {
    /// No requests.
    pub fn new() -> Requests {
        Requests {
            slots: Vec::new(),
            free: Vec::new(),
            started: 0,
            completed: 0,
            large_sends: 0,
            urgent: 0,
        }
    }

    /// Adds an operation that starts. Its request is valid until [`Requests::take`].
    #[inline(always)]
    pub fn insert(&mut self, operation: Operation) -> ReqId {
        self.started += 1;
        self.large_sends += usize::from(matches!(operation, Operation::SendLarge { .. }));
        let Some(at) = self.free.pop() else {
            self.slots.push(Slot {
                operation,
                done: false,
                detached: false,
                urgent: false,
                completion: Completion::EMPTY,
            });
            return ReqId(self.slots.len() as u32 - 1);
        };
        // Field by field: moving a whole slot that was just written stalls on its stores.
        let slot = &mut self.slots[at as usize];
        debug_assert!(matches!(slot.operation, Operation::Free));
        // Assigning would first call what drops operations, for one that holds nothing.
        std::mem::forget(std::mem::replace(&mut slot.operation, operation));
        slot.done = false;
        slot.detached = false;
        slot.completion = Completion::EMPTY;
        ReqId(at)
    }

    /// The operation of a request that is not complete. `req` may be any number that a peer sent.
    #[inline]
    pub fn operation(&mut self, req: ReqId) -> Option<&mut Operation> {
        self.slots
            .get_mut(req.0 as usize)
            .filter(|s| !s.done)
            .map(|s| &mut s.operation)
    }

    /// A large send whose announcement was withdrawn becomes a queued eager one.
    pub fn make_queued(&mut self, req: ReqId) {
        let operation = &mut self.slots[req.0 as usize].operation;
        match std::mem::replace(operation, Operation::Free) {
            Operation::SendLarge { source, .. } => {
                *operation = Operation::SendQueued { source };
                self.large_sends -= 1;
            }
            other => *operation = other,
        }
    }

    /// Keeps the envelope of the message that has matched a receive.
    pub fn set_envelope(&mut self, req: ReqId, envelope: Envelope) {
        self.slots[req.0 as usize].completion.envelope = envelope;
    }

    /// The envelope that [`Requests::set_envelope`] has kept.
    pub fn envelope(&self, req: ReqId) -> Envelope {
        self.slots[req.0 as usize].completion.envelope
    }

    /// As [`Requests::envelope`], where `req` may be any number that a peer sent.
    pub fn envelope_of(&self, req: ReqId) -> Option<Envelope> {
        self.slots
            .get(req.0 as usize)
            .map(|s| s.completion.envelope)
    }

    /// Completes an operation and drops its buffers.
    #[inline]
    pub fn complete(&mut self, req: ReqId, completion: Completion) {
        self.completed += 1;
        let slot = &mut self.slots[req.0 as usize];
        self.large_sends -= usize::from(matches!(slot.operation, Operation::SendLarge { .. }));
        self.urgent -= usize::from(slot.urgent);
        slot.urgent = false;
        if slot.operation.is_plain() {
            std::mem::forget(std::mem::replace(&mut slot.operation, Operation::Free));
        } else {
            slot.operation = Operation::Free;
        }
        slot.completion = completion;
        slot.done = true;
        if slot.detached {
            self.free.push(req.0);
        }
    }

    /// Stores a whole message in a receive's buffer, and completes the receive. False: nothing was
    /// done, because the buffer is not a run of bytes with room for it, or the request is no
    /// receive that waits for a message.
    ///
    /// # Safety
    /// The receive's buffer must be writable.
    #[inline(always)]
    pub unsafe fn deliver(&mut self, req: ReqId, envelope: Envelope, bytes: &[u8]) -> bool {
        let Some(slot) = self.slots.get_mut(req.0 as usize) else {
            return false;
        };
        let Operation::Receive {
            sink: Sink::Bytes { ptr, cap },
            stream: None,
            ..
        } = slot.operation
        else {
            return false;
        };
        if slot.done || slot.urgent || slot.detached || cap < bytes.len() {
            return false;
        }
        if !bytes.is_empty() {
            // SAFETY: the caller's promise; there is room.
            unsafe { short_copy(bytes.as_ptr(), ptr, bytes.len()) };
        }
        self.completed += 1;
        // Nothing is freed that the operation holds: see `Operation::is_plain`.
        std::mem::forget(std::mem::replace(&mut slot.operation, Operation::Free));
        slot.completion = Completion {
            envelope,
            received: bytes.len() as u64,
            room: cap as u64,
            cancelled: false,
            fault: None,
        };
        slot.done = true;
        true
    }

    /// Is the operation complete?
    #[inline]
    pub fn is_complete(&self, req: ReqId) -> bool {
        self.slots[req.0 as usize].done
    }

    /// The completion of a complete operation, whose request is free after that.
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

    /// As [`Requests::take`], if the operation is complete, has neither failed nor been cancelled,
    /// and has filled the buffer, or `is_well` agrees. Returns the envelope and the bytes received.
    #[inline(always)]
    pub fn take_successful(
        &mut self,
        req: ReqId,
        is_well: impl FnOnce() -> bool,
    ) -> Option<(Envelope, u64)> {
        let slot = &self.slots[req.0 as usize];
        let ended = &slot.completion;
        if !slot.done
            || ended.fault.is_some()
            || ended.cancelled
            || ended.received != ended.room && !is_well()
        {
            return None;
        }
        self.free.push(req.0);
        Some((ended.envelope, ended.received))
    }

    /// The completion of an operation, if it is complete. The request stays.
    pub fn peek(&self, req: ReqId) -> Option<Completion> {
        let slot = &self.slots[req.0 as usize];
        slot.done.then_some(slot.completion)
    }

    /// Frees the request as soon as its operation is complete: nobody takes its completion.
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

    /// Pending large sends.
    pub fn large_sends(&self) -> usize {
        self.large_sends
    }

    /// Marks an operation on whose progress other processes wait.
    pub fn mark_urgent(&mut self, req: ReqId) {
        if let Some(slot) = self.slots.get_mut(req.0 as usize)
            && !slot.done
            && !slot.urgent
        {
            slot.urgent = true;
            self.urgent += 1;
        }
    }

    /// Pending operations on whose progress other processes wait.
    pub fn urgent(&self) -> usize {
        self.large_sends + self.urgent
    }

    /// Pending operations.
    pub fn pending(&self) -> u64 {
        self.started - self.completed
    }

    /// Is a send pending?
    pub fn sends_pending(&self) -> bool {
        self.slots.iter().any(|s| {
            use Operation::{SendLarge, SendQueued, SendSync};
            matches!(
                s.operation,
                SendQueued { .. } | SendSync { .. } | SendLarge { .. }
            )
        })
    }

    /// All pending operations.
    pub fn iter_pending(&self) -> impl Iterator<Item = (ReqId, &Operation)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| !slot.done)
            .map(|(at, slot)| (ReqId(at as u32), &slot.operation))
    }

    /// Completes an operation with a fault, if it is pending.
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

    /// Completes all pending operations with a fault.
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
