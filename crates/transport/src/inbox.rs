//! The inbox: what the layer above gives to a poll, to receive all that arrives.

use crate::ProcId;

/// Receives what a transport delivers. All bytes come from another process: the callee checks them.
pub trait Inbox {
    /// A message has arrived. `bytes` is its head and body in one run, valid during the call only.
    /// Returns true if the message is unexpected: its receive is not posted, and it is kept.
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool;
    /// A whole message of `len` bytes, head and body, has begun to arrive. `start` is what is
    /// there. Returns the bytes of its head if the rest is to come as a stream's body does.
    /// `None`: the message is delivered when it is complete.
    fn on_message_start(
        &mut self,
        _from: ProcId,
        _message: u8,
        _start: &[u8],
        _len: usize,
    ) -> Option<usize> {
        None
    }
    /// Where the next bytes of a stream's body belong, at most `remaining` of them: the rest of the
    /// frame that is coming in. `None`, or an empty buffer: they come by [`Inbox::stream_part`].
    /// Asked again before each read, and not kept beyond it.
    fn stream_buffer(
        &mut self,
        _from: ProcId,
        _message: u8,
        _head: &[u8],
        _left: usize,
    ) -> Option<&mut [u8]> {
        None
    }
    /// Returns whether a stream's bytes, which are about to come, would be kept because their
    /// receive is not posted.
    fn stream_is_unexpected(&self, _from: ProcId, _message: u8, _head: &[u8]) -> bool {
        false
    }
    /// This many bytes of a stream's body have been put where [`Inbox::stream_buffer`] said.
    fn stream_written(&mut self, _from: ProcId, _message: u8, _head: &[u8], _bytes: usize) {}
    /// The next bytes of a stream's body.
    fn stream_part(&mut self, _from: ProcId, _message: u8, _head: &[u8], _bytes: &[u8]) {}
    /// Returns whether messages with this number are fragments of a large one. Their bodies may
    /// arrive piece by piece: into [`Inbox::stream_buffer`], as [`Inbox::fragment_written`] then
    /// says, or by [`Inbox::fragment_part`].
    fn takes_fragments(&self, _message: u8) -> bool {
        false
    }
    /// This many bytes of a fragment have been put where [`Inbox::stream_buffer`] said. `last`: the
    /// fragment is complete.
    fn fragment_written(
        &mut self,
        _from: ProcId,
        _message: u8,
        _head: &[u8],
        _bytes: usize,
        _last: bool,
    ) {
    }
    /// The next bytes of a fragment. `last`: it is complete.
    fn fragment_part(
        &mut self,
        _from: ProcId,
        _message: u8,
        _head: &[u8],
        _bytes: &[u8],
        _last: bool,
    ) {
    }
    /// The next bytes of a card's read ([`CardMemory::start_read`](crate::CardMemory)) of this
    /// number, from offset `at` on.
    fn card_part(&mut self, _from: ProcId, _number: u32, _at: usize, _bytes: &[u8]) {}
    /// The next message is in memory that is touched for the first time. Its page faults cost more
    /// than a copy, so its time says nothing about later messages.
    fn first_touch(&mut self) {}
    /// Sets the transport by which messages arrive from now on, an index in
    /// [`TRANSPORT_NAMES`](crate::TRANSPORT_NAMES). At first it is shared memory. For counters.
    fn set_transport(&mut self, _index: usize) {}
}
