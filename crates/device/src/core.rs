//! The device itself.

use crate::buffer::{Sink, Source};
use crate::key::{Envelope, Key, Pattern, ProcId};
use crate::request::{Completion, ReqId};

/// When a send is complete (MPI 5.0 §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// When the buffer may be used again.
    Standard,
    /// When, besides, the receive has matched.
    Synchronous,
}

/// What the device can do for a peer; the floor above asks this, never which transport it is.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Largest message, in bytes, that is sent without asking the receiver first.
    pub eager_max: usize,
    /// The peer shares this process's memory system.
    pub same_node: bool,
}

/// Work that goes on whenever the device makes progress (a collective's schedule).
pub trait Background: Send {
    /// Does what can be done now, without blocking. Returns true when all is done; it is then dropped.
    fn advance(&mut self, device: &mut Device) -> bool;
}

/// The device of one process.
pub struct Device {}

#[allow(unused_variables)]
impl Device {
    /// This process's number.
    pub fn me(&self) -> ProcId { todo!() }
    /// Processes in the job.
    pub fn size(&self) -> u32 { todo!() }
    /// What can be done for `peer`.
    pub fn capabilities(&self, peer: ProcId) -> Capabilities { todo!() }
    /// Starts a send. `None`: complete already, the buffer may be used again.
    ///
    /// # Safety
    /// The memory behind `source` must stay valid and unchanged until completion.
    pub unsafe fn send(&mut self, to: ProcId, key: Key, source: Source, mode: SendMode) -> Option<ReqId> { todo!() }
    /// Starts a receive.
    ///
    /// # Safety
    /// The memory behind `sink` must stay valid, and nobody else may touch it, until completion.
    pub unsafe fn receive(&mut self, pattern: Pattern, sink: Sink) -> ReqId { todo!() }
    /// Looks for a message that matches without receiving it. Makes no progress by itself.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Envelope> { todo!() }
    /// Takes the first message that matches out of the queue, to be received by [`Device::receive_matched`].
    pub fn matched_probe(&mut self, pattern: &Pattern) -> Option<(ReqId, Envelope)> { todo!() }
    /// Receives a message taken by [`Device::matched_probe`]; `message` becomes the receive's request.
    ///
    /// # Safety
    /// As for [`Device::receive`].
    pub unsafe fn receive_matched(&mut self, message: ReqId, sink: Sink) -> ReqId { todo!() }
    /// Cancels a receive that has not matched. Returns whether it was cancelled; the request completes either way.
    pub fn cancel_receive(&mut self, req: ReqId) -> bool { todo!() }
    /// Has the operation completed?
    #[inline]
    pub fn is_complete(&self, req: ReqId) -> bool { todo!() }
    /// The completion of a completed operation; frees the request. Panics if it is not complete.
    pub fn take(&mut self, req: ReqId) -> Completion { todo!() }
    /// How a completed operation ended, leaving the request in place.
    pub fn peek(&self, req: ReqId) -> Option<Completion> { todo!() }
    /// Nobody will ask for this request any more: it is freed when it completes.
    pub fn detach(&mut self, req: ReqId) { todo!() }
    /// Moves whatever can be moved, without blocking. Returns whether anything happened.
    pub fn progress(&mut self) -> bool { todo!() }
    /// Hands over work to go on in the background.
    pub fn add_background(&mut self, work: Box<dyn Background>) { todo!() }
}
