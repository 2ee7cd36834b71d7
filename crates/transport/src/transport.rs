//! The contract of a transport: what it sends, reads and delivers.

use crate::{
    CardMemory, ForeignProcesses, Inbox, NodeCollectives, ProcId, ReadError, RemoteMemory,
    RendezvousOffload, Sleeper, TransportError, VirtualTime,
};
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;

/// Bytes of a fragment of a pipelined copy, where a transport has no reason for others. A choice.
pub const FRAGMENT_BYTES: usize = 16 * 1024;
/// Longest head of a fragment, bytes: what the layer above puts in front of one.
pub const FRAGMENT_HEAD_MAX_BYTES: usize = 16;
/// Bytes of the head of a short message: see [`Transports`](crate::Transports).
pub const SHORT_HEAD_BYTES: usize = 16;

/// The body of an active message to send.
pub enum Body<'a> {
    /// One run of bytes.
    Bytes(&'a [u8]),
    /// This many bytes, which the closure writes straight into the transport's memory. It is
    /// called only if the send returns [`SendStatus::Done`], for one run after the other.
    Fill(usize, &'a mut dyn FnMut(&mut [u8])),
}

impl Body<'_> {
    /// Bytes in the body.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(b) => b.len(),
            Body::Fill(n, _) => *n,
        }
    }
    /// Returns whether the body is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How a large message is cut into fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragments {
    /// Most bytes of the message in one.
    pub bytes: usize,
    /// The receiver waits for them: it copies each while it is written.
    pub awaited: bool,
}

/// What became of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum SendStatus {
    /// The message is on its way. Its memory may be used again.
    Done,
    /// There is no room now. The caller keeps the message and offers it again after a later
    /// [`Transport::poll`].
    Full,
}

/// Whether large messages go to a peer by zero copy ([`Transport::stream_zero_copy`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroCopy {
    /// No.
    Never,
    /// Yes.
    Always,
    /// Yes, if that is measured to be faster than a copy.
    IfFaster,
}

/// What [`Transport::stream`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streamed {
    /// Bytes taken off the front of the body.
    pub taken: usize,
    /// Other messages may be sent to this peer before the rest of the body. Otherwise the rest must
    /// come first.
    pub between: bool,
    /// The rest of the body is under way by itself: other bodies may be streamed beside it.
    pub under_way: bool,
}

/// One message of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchMessage<'a> {
    /// The message's number.
    pub message: u8,
    /// Its head.
    pub head: &'a [u8],
    /// Its body, or what is left of it.
    pub body: &'a [u8],
    /// It goes as by [`Transport::stream`], otherwise as by [`Transport::send`].
    pub stream: bool,
}

/// What [`Transport::send_batch`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchSent {
    /// Messages off the front of the batch that are on their way, bodies included.
    pub whole: usize,
    /// Bytes taken off the front of the next message's body. That message is a stream.
    pub taken: usize,
    /// Other messages may be sent to this peer before the rest of that body.
    pub between: bool,
}

/// What [`Transport::start_read`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadStart {
    /// All is copied.
    Done,
    /// The read of this number goes on.
    Pending(u32),
}

/// What a transport can do for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Largest active message, head and body, bytes.
    pub message_max: usize,
    /// Bytes of a fragment in a pipelined copy. Small enough that the receiver copies one while the
    /// next is written.
    pub fragment_max: usize,
    /// Largest message that is sent eagerly, bytes. Larger ones use a rendezvous.
    pub eager_max: usize,
    /// [`Transport::read`] works for this peer, as far as is known without having tried.
    pub remote_read: bool,
    /// Bytes from which a read is faster than a pipelined copy.
    pub read_min: usize,
    /// The peer is on this node, and boards can be shared with it.
    pub same_node: bool,
    /// [`Transport::stream`] works.
    pub stream: bool,
    /// [`Transport::send_batch`] works, and large messages cost less when several go at once.
    pub batch: bool,
}

/// A transport: ordered, reliable, one instance a process. Never blocks, except in
/// [`Transport::read`] and [`Transport::start_read`].
///
/// Five methods are required. The others have defaults that say "not offered".
pub trait Transport: Send {
    /// Its name in FERRY_TRANSPORTS and in reports.
    fn name(&self) -> &'static str;
    /// Returns whether it can carry messages to `peer` at all.
    fn reaches(&self, peer: ProcId) -> bool;
    /// What the transport can do for messages to `peer`.
    fn features(&self, peer: ProcId) -> Features;
    /// Sends an active message: copies it, or refuses it whole. `message` is any number but 255.
    ///
    /// Errors: the peer cannot be reached, or the connection to it is broken.
    fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError>;
    /// As [`Transport::send`], for an eager message, which may be
    /// [coalesced](Transport::set_coalescing).
    ///
    /// Errors: as there.
    fn send_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError> {
        self.send(to, message, head, body)
    }
    /// Delivers what has arrived, up to a fair share. Returns how many messages that was.
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError>;

    /// From now on eager messages that follow each other without a poll may, or must not, be kept
    /// until the next poll or for a moment. At first they must not. Control messages never are.
    fn set_coalescing(&mut self, _coalesces: bool) {}
    /// Sends what is kept. A poll does that, too, before it looks for messages.
    fn flush_coalesced(&mut self) {}

    /// The index in [`TRANSPORT_NAMES`](crate::TRANSPORT_NAMES) of what carries messages to `peer`.
    /// `None`: that of [`Transport::name`].
    fn name_index_for(&self, _peer: ProcId) -> Option<usize> {
        None
    }

    /// Sends from the front of `body`, straight from where it lies, as much as there is room for.
    /// The receiver's [`Inbox`] gets the bytes as they come, each time with `message` and the same
    /// `head`. Bodies are not kept apart: the head says which one it is. Works where
    /// [`Features::stream`] says so.
    ///
    /// Errors: the peer cannot be reached, or the connection to it is broken.
    fn stream(
        &mut self,
        to: ProcId,
        _message: u8,
        _head: &[u8],
        _body: &[u8],
    ) -> Result<Streamed, TransportError> {
        Err(TransportError::Unreachable {
            peer: to,
            tried: self.name().into(),
        })
    }
    /// Whether [`Transport::stream_zero_copy`] serves this peer now.
    fn zero_copy(&self, _peer: ProcId) -> ZeroCopy {
        ZeroCopy::Never
    }
    /// As [`Transport::stream`], but the systems on the way may read `body` where it lies. The body
    /// must stay as it is until the receiver has said that it has all of it.
    ///
    /// Errors: the peer cannot be reached, or the connection to it is broken.
    fn stream_zero_copy(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.stream(to, message, head, body)
    }
    /// Sends messages from the front of `messages`, in their order, as many as there is room for.
    /// Works where [`Features::batch`] says so.
    ///
    /// Apart from [`Transport::send`], which is the hot path of small messages and need not prepare
    /// for several.
    ///
    /// Errors: the peer cannot be reached, or the connection to it is broken.
    fn send_batch(
        &mut self,
        _to: ProcId,
        _messages: &[BatchMessage<'_>],
    ) -> Result<BatchSent, TransportError> {
        Ok(BatchSent::default())
    }
    /// The fragments in which a message whose head has `head` bytes goes to `peer` now. `awaited`:
    /// its receiver is known to wait for it.
    fn fragments(&self, peer: ProcId, head: usize, awaited: bool) -> Fragments {
        let max = self.features(peer).fragment_max;
        Fragments {
            bytes: max - head.saturating_sub(FRAGMENT_HEAD_MAX_BYTES),
            awaited,
        }
    }
    /// Sends a fragment of a large message, as [`Transport::send`] does. `awaited`: its receiver
    /// waits for it ([`Fragments::awaited`]).
    ///
    /// Errors: as for [`Transport::send`].
    fn send_fragment(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
        _awaited: bool,
    ) -> Result<SendStatus, TransportError> {
        self.send(to, message, head, body)
    }
    /// Fragments that have gone to this peer, or come from it, through memory that was touched for
    /// the first time. Their time says nothing about later ones.
    fn first_touches(&self, _peer: ProcId) -> u64 {
        0
    }
    /// Returns whether a message that got [`SendStatus::Done`] still waits in this process for
    /// room.
    fn has_unsent(&self) -> bool {
        false
    }
    /// Tells the peers that this process has sent all that it wants to. Returns whether all has
    /// reached them. To be called again until it has. A later send revokes it.
    fn settle(&mut self) -> bool {
        true
    }

    /// Copies from the peer's memory at `address` into the local runs (address, bytes), in order,
    /// all or nothing. Blocks for the copy's duration.
    ///
    /// # Safety
    /// The local runs must be writable.
    unsafe fn read(
        &mut self,
        _from: ProcId,
        _address: u64,
        _into: &[(*mut u8, usize)],
    ) -> Result<(), ReadError> {
        Err(ReadError::Refused)
    }
    /// Begins to copy `len` bytes from the peer's memory at `address` to `into`. The peer may do a
    /// part of it. Blocks while this process copies. [`Transport::finished_read`] tells when a
    /// pending read has ended.
    ///
    /// # Safety
    /// The memory must be writable, and nobody else may touch it until the read has ended.
    unsafe fn start_read(
        &mut self,
        from: ProcId,
        address: u64,
        into: *mut u8,
        len: usize,
    ) -> Result<ReadStart, ReadError> {
        // SAFETY: the caller's promise.
        unsafe { self.read(from, address, &[(into, len)]) }.map(|()| ReadStart::Done)
    }
    /// The number and the result of a read from this peer that has ended. Blocks while this process
    /// copies what the peer has left.
    fn finished_read(&mut self, _from: ProcId) -> Option<(u32, Result<(), ReadError>)> {
        None
    }

    /// Prepares for the sleep of `who`: what arrives from now on wakes the process, and so does
    /// room for a message that got [`SendStatus::Full`]. The caller polls once more before it
    /// sleeps.
    fn arm(&mut self, _who: Sleeper) {}
    /// Ends what [`Transport::arm`] began: the process does not sleep any more.
    fn disarm(&mut self) {}
    /// A descriptor that is readable when this transport has something, for a process that sleeps.
    /// `None`: the wakeup word is enough.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// The word on which this process can sleep, and which the transport's peers change and wake.
    fn wakeup_word(&self) -> Option<&'static AtomicU32> {
        None
    }
    /// Bytes of an incoming stream that may collect before the progress thread is woken, from the
    /// next [`Transport::arm`] on. 0: the first bytes wake it. Anything else wakes it at once.
    fn set_receive_low_water(&mut self, _bytes: usize) {}

    /// Processes of other jobs, if it reaches them.
    fn foreign_processes(&mut self) -> Option<&mut dyn ForeignProcesses> {
        None
    }
    /// Its virtual time, on a modelled machine.
    fn virtual_time(&mut self) -> Option<&mut dyn VirtualTime> {
        None
    }
    /// Its hardware's part in a rendezvous.
    fn rendezvous_offload(&mut self) -> Option<&mut dyn RendezvousOffload> {
        None
    }
    /// Memory on a modelled card, if the machine's programs have any.
    fn card_memory(&mut self) -> Option<&mut dyn CardMemory> {
        None
    }
    /// Memory of other processes that its card reaches without their processors.
    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        None
    }
    /// Its boards for collectives among processes of one node.
    fn node_collectives(&mut self) -> Option<&mut dyn NodeCollectives> {
        None
    }
}
