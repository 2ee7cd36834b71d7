//! What a transport does whose hardware takes part in a rendezvous.

use crate::ProcId;

/// A transport whose hardware prepares for the body of a large message.
///
/// The body goes after a request to send (RTS) and a clear to send (CTS). Both are messages of the
/// layer above; the transport is told of them just before they are sent.
pub trait RendezvousOffload {
    /// The next message to `to` is an RTS for a body of `len` bytes.
    fn before_rts(&mut self, to: ProcId, len: usize);
    /// The next message to `from` is the CTS for a body that `from` has announced. A card that
    /// writes into the receiver's memory can prepare that memory now.
    fn before_cts(&mut self, from: ProcId, what: &Expected<'_>);
    /// A peer is lost. The memory of bodies that it has not sent, or not taken, is in other use
    /// from now on.
    fn forget_peer(&mut self, peer: ProcId);
}

/// The body that a CTS asks for.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Where its bytes belong. `None`: in several runs, or nowhere.
    pub address: Option<usize>,
    /// Its bytes.
    pub len: usize,
    /// The message number with which the body will come.
    pub message: u8,
    /// The head with which the body will come.
    pub head: &'a [u8],
}
