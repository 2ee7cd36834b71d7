//! One trait for every wire, and one folder a wire.
//!
//! A transport knows processes and bytes. What it carries are *active messages*: a number that says
//! what the message is to the floor above, a short head and a body, delivered whole and in order
//! between two processes. Beside them it may offer bulk reads of a peer's memory.

pub mod connected;
pub mod model;
mod poll_throttle;
mod registry;
pub mod self_loop;
pub mod shm;
pub mod tcp;
pub mod tipc;
mod wakeup;

pub use registry::{TRANSPORT_NAMES, Transports, open};
pub use wakeup::Wakeup;

use std::num::NonZeroU32;

/// Who sleeps on a process's doorbell: those who ring it wake these and nobody else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Sleeper {
    /// The program's threads, in blocking calls.
    Program = 1,
    /// The progress thread.
    Progress = 2,
}

impl Sleeper {
    /// As the kernel's futexes tell sleepers apart.
    #[inline]
    pub fn bits(self) -> NonZeroU32 {
        NonZeroU32::MIN.saturating_add(self as u32 - 1)
    }
}

/// A process of the job, numbered across all nodes.
pub type ProcId = u32;

/// The body of an active message to send.
pub enum Body<'a> {
    /// One run of bytes.
    Bytes(&'a [u8]),
    /// So many bytes, to be written by the closure straight into the wire's memory. Called at most
    /// once, and only if the answer is [`Answer::Done`].
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
    /// Is the body empty?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What became of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Answer {
    /// The message is on its way; its memory may be used again.
    Done,
    /// No room now. The caller keeps the message and offers it again after a later
    /// [`Transport::poll`].
    Full,
}

/// Who receives what a transport delivers.
pub trait Inbox {
    /// A message has arrived; `bytes` is head and body in one run, valid during the call only. The
    /// bytes come from another process: the callee checks them. Returns whether it came before
    /// its receive, and is kept.
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool;
    /// What comes next lies in memory that has not been used before: its pages cost more than a
    /// copy.
    fn first_touch(&mut self) {}
    /// What arrives from now on comes by this wire, a place in [`TRANSPORT_NAMES`]; without a word, what is
    /// not this process's own by shared memory. For who counts.
    fn set_transport(&mut self, _wire: usize) {}
    /// Where the next bytes of a stream's body belong, at most `left` of them (what is left of the
    /// piece that is coming in). `None`, or no room: they come by [`Inbox::stream_part`]. Asked again
    /// before each read, and not kept beyond it.
    fn stream_buffer(
        &mut self,
        _from: ProcId,
        _message: u8,
        _head: &[u8],
        _left: usize,
    ) -> Option<&mut [u8]> {
        None
    }
    /// So many bytes of a stream's body have been put where [`Inbox::stream_buffer`] said.
    fn stream_placed(&mut self, _from: ProcId, _message: u8, _head: &[u8], _bytes: usize) {}
    /// The next bytes of a stream's body.
    fn stream_part(&mut self, _from: ProcId, _message: u8, _head: &[u8], _bytes: &[u8]) {}
    /// Bytes of what a card has begun to bring by itself ([`CardMemory::start_read`]), from offset `at`
    /// on.
    fn card_part(&mut self, _from: ProcId, _number: u32, _at: usize, _bytes: &[u8]) {}
    /// A whole message of `len` bytes, head and body, has begun to arrive; `start` is what is
    /// there. How many of these bytes are its head, if the rest is to come as a stream's body
    /// does; `None`: it is delivered when it is complete.
    fn on_message_start(
        &mut self,
        _from: ProcId,
        _message: u8,
        _start: &[u8],
        _len: usize,
    ) -> Option<usize> {
        None
    }
}

/// The answer to an announced message: what it is about.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Where its bytes belong; `None`: in several runs, or nowhere.
    pub address: Option<usize>,
    /// Its bytes.
    pub len: usize,
    /// The number that its body will come with …
    pub message: u8,
    /// … and the head.
    pub head: &'a [u8],
}

/// Can large messages be lent to a peer ([`Transport::stream_zero_copy`])?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroCopy {
    /// No.
    Never,
    /// Yes, and they are to be.
    Always,
    /// Yes, if that is found to be faster than a copy.
    IfFaster,
}

/// What [`Transport::stream`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streamed {
    /// Bytes taken off the front of the body.
    pub taken: usize,
    /// Other messages may be sent to this peer before the rest of the body; otherwise the rest
    /// must come first.
    pub between: bool,
}

/// One of several messages that are sent together.
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
    /// So many messages off the front are on their way, bodies and all.
    pub whole: usize,
    /// Bytes taken off the front of the body of the next one, a stream.
    pub taken: usize,
    /// Other messages may be sent to this peer before the rest of that body.
    pub between: bool,
}

/// Bytes of a piece, [`Features::fragment_max`], where the wire has no reason for others.
pub const FRAGMENT_BYTES: usize = 16 * 1024;
/// Bytes that the head of a piece takes at most.
pub const FRAGMENT_HEAD_MAX_BYTES: usize = 16;

/// What a transport can do for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Largest active message (head and body), bytes.
    pub message_max: usize,
    /// Bytes of a piece of a message that is sent piece by piece: few enough that the receiver
    /// copies one while the next is written.
    pub fragment_max: usize,
    /// The size, in bytes, from which asking first is worth while: smaller messages are sent at
    /// once.
    pub eager_max: usize,
    /// [`Transport::read`] works for this peer, as far as is known without having tried.
    pub remote_read: bool,
    /// The size, in bytes, from which a read is faster than sending pieces while both sides copy.
    pub read_min: usize,
    /// The peer is on this node, and boards can be shared with it.
    pub same_node: bool,
    /// [`Transport::stream`] works.
    pub stream: bool,
    /// [`Transport::send_batch`] works, and large messages cost less when several of them go at
    /// once.
    pub batch: bool,
}

/// A wire. Ordered, reliable, one instance a process. Never blocks, but for [`Transport::read`].
pub trait Transport: Send {
    /// Its name in FERRY_TRANSPORTS and in reports.
    fn name(&self) -> &'static str;
    /// The name of what carries messages to `peer`, for a wire that has several ways.
    fn name_for(&self, _peer: ProcId) -> &'static str {
        self.name()
    }
    /// Can it carry messages to `peer` at all?
    fn reaches(&self, peer: ProcId) -> bool;
    /// What it can do for `peer`.
    fn features(&self, peer: ProcId) -> Features;
    /// Sends an active message: copied, or not at all. `message` is any number but 255.
    ///
    /// Errors: the wire to this peer cannot be set up or is broken.
    fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<Answer, TransportError>;
    /// Delivers what has arrived, up to a fair share; returns how many messages that was.
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError>;

    /// Sends from the front of `body` straight from where it lies, as much as there is room for;
    /// the receiver's [`Inbox`] gets the bytes as they come, each time with `message` and the
    /// same `head`. Bodies are not kept apart: whoever begins another one says so in its
    /// head. Where [`Features::stream`] says that it works.
    ///
    /// Errors: the wire to this peer cannot be set up or is broken.
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
    /// Can bytes be lent to this peer now ([`Transport::stream_zero_copy`])?
    fn zero_copy(&self, _peer: ProcId) -> ZeroCopy {
        ZeroCopy::Never
    }
    /// As [`Transport::stream`], but the systems on the way may read `body` where it lies until the
    /// receiver has got all of it: it must stay as it is until that one has said so.
    ///
    /// Errors: the wire to this peer cannot be set up or is broken.
    fn stream_zero_copy(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<Streamed, TransportError> {
        self.stream(to, message, head, body)
    }
    /// Sends messages in their order, as many from the front as there is room for. Where
    /// [`Features::together`] says that it works.
    ///
    /// Errors: the wire to this peer cannot be set up or is broken.
    fn send_batch(
        &mut self,
        _to: ProcId,
        _parcels: &[BatchMessage<'_>],
    ) -> Result<BatchSent, TransportError> {
        Ok(BatchSent::default())
    }
    /// The next message to `to` before_rts a body of `len` bytes.
    fn before_rts(&mut self, _to: ProcId, _len: usize) {}
    /// The next message to `from` asks for a body that it has announced: a wire that writes into
    /// the receiver's memory can see to that memory now.
    fn before_cts(&mut self, _from: ProcId, _what: &Expected<'_>) {}
    /// On a wire with a time of its own: if the next poll brings nothing, the process rests
    /// ([`Transport::idle`]); both may then be one.
    fn will_idle(&mut self) {}
    /// The last poll was put off until then: whoever does not rest must poll again.
    fn poll_deferred(&self) -> bool {
        false
    }
    /// On a wire with a time of its own: this process waits from now on. Returns a word and what it
    /// holds: sleep until it holds something else ([`model::sleep`]). `None`: something is
    /// there, or the wire has no such time.
    fn idle(&mut self) -> Option<(&'static std::sync::atomic::AtomicU32, u32)> {
        None
    }
    /// On such a wire: a thread of the process is in MPI, …
    fn enter_mpi(&mut self) {}
    /// … and goes again. `sleepers`: others of its threads wait there; `left`: the process has done
    /// with MPI.
    fn leave_mpi(&mut self, _sleepers: bool, _left: bool) {}
    /// On such a wire: so many messages, and bytes in them, the program has sent so far by it.
    fn note_sent(&mut self, _messages: u64, _bytes: u64) {}
    /// Memory on a modelled card, if the machine's programs have any.
    fn card_memory(&mut self) -> Option<&mut dyn CardMemory> {
        None
    }
    /// Does anything that was answered [`Answer::Done`] still wait in this process for room?
    fn has_unsent(&self) -> bool {
        false
    }
    /// The process has sent all it wants to: tells the peers so, and answers whether all has
    /// reached them. To be asked again until it has; sending again takes it back.
    fn settle(&mut self) -> bool {
        true
    }
    /// A descriptor that can be read from when this transport has something, for a process that
    /// sleeps. `None`: the doorbell is enough.
    fn event_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
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
    /// Begins to copy `len` bytes from the peer's memory at `address` to `into`; the peer may do a
    /// part of it. Blocks while it copies itself. [`Transport::finished_read`] tells when what has
    /// begun has ended.
    ///
    /// # Safety
    /// The memory must be writable, and nobody else may touch it until the copy has ended.
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
    /// A copy from this peer that has begun and has now ended: its number, and how. Blocks while it
    /// copies what the peer has left.
    fn finished_read(&mut self, _from: ProcId) -> Option<(u32, Result<(), ReadError>)> {
        None
    }
    /// Of a stream that is coming in, so many bytes may gather before the progress thread is woken,
    /// from the next [`Transport::arm`] on; 0: it is woken by the first ones. Whatever else
    /// comes wakes it at once.
    fn set_receive_low_water(&mut self, _bytes: usize) {}
    /// Before `who` sleeps on the process's doorbell: asks that whatever arrives from now on, and
    /// room for a message that was answered [`Answer::Full`], ring it. Whoever arms polls once
    /// more before sleeping.
    fn arm(&mut self, _who: Sleeper) {}
    /// Back from sleep, or not gone to it.
    fn disarm(&mut self) {}
    /// Bytes of the pieces in which a message of `len` bytes goes to `peer` now. `awaited`: its
    /// receiver is known to wait for it.
    fn fragment_bytes(&self, peer: ProcId, _len: usize, _awaited: bool) -> usize {
        self.features(peer).fragment_max
    }
    /// How many pieces have gone to this peer, or come from it, through memory that had not been
    /// used before: what they took says nothing of later ones.
    fn first_touches(&self, _peer: ProcId) -> u64 {
        0
    }
    /// A thread of this process's program waits on this core. Is that also where another process's
    /// program waits, or last did?
    fn shares_core(&self, _core: u32) -> bool {
        false
    }
    /// Does `peer`'s progress thread poll its bell just now? Then what is sent to it is seen to at
    /// once, and takes no time from its program.
    fn progress_polls(&self, _peer: ProcId) -> bool {
        false
    }
    /// Names the cores on which programs of the node's processes wait, or last did, this process's
    /// among them.
    fn for_each_waiting_core(&self, _each: &mut dyn FnMut(u32)) {}
    /// ZeroCopy a board of this process's to a group of `members` processes of its node, itself among
    /// them: its number, for [`Transport::counter_board`]. `None`: this wire has none (any more).
    fn allocate_board(&mut self, _members: u32) -> Option<u32> {
        None
    }
    /// A member's view of board `number` of process `owner`. `None`: it cannot be had.
    fn counter_board(
        &mut self,
        _owner: ProcId,
        _number: u32,
        _members: u32,
    ) -> Option<shm::CounterBoard> {
        None
    }
    /// Member `me`'s view of the same as a round, for few members: whoever is given one view of it
    /// must be given no other. `None`: it cannot be had.
    fn flat_board(
        &mut self,
        _owner: ProcId,
        _number: u32,
        _members: u32,
        _me: u32,
    ) -> Option<shm::FlatBoard> {
        None
    }
    /// By which `peer` is woken, where others do not need this wire for that.
    fn waker(&self, _peer: ProcId) -> Option<shm::Waker> {
        None
    }
    /// Wakes `peer` if a thread of its program sleeps on its doorbell, as far as one can tell. What
    /// it is to see must have been written with a full barrier.
    fn wake_program(&self, _peer: ProcId) {}
    /// The word on which this process can sleep and which the transport's peers change and wake, if
    /// this transport has one.
    fn wakeup_word(&self) -> Option<&'static std::sync::atomic::AtomicU32> {
        None
    }
}

/// Memory on a modelled card in which a program has buffers, and what the card does with them by
/// itself. A run is an address in this process, and bytes.
pub trait CardMemory {
    /// Where it lies in this process.
    fn range(&self) -> std::ops::Range<usize>;
    /// Messages in it up to this are sent without asking first, bytes.
    fn eager_max(&self) -> usize;
    /// So many bytes of it, at a multiple of `alignment` (a power of two). `None`: there are none
    /// left.
    fn allocate(&mut self, bytes: usize, alignment: usize) -> Option<*mut u8>;
    /// Takes back what [`CardMemory::allocate`] gave. False: it gave no such thing.
    fn release(&mut self, address: usize) -> bool;
    /// Can a receiver's card get a message that lies in these runs?
    fn describes(&self, runs: &[(usize, usize)]) -> bool;
    /// The next message before_rts one that lies in these runs.
    fn lies(&mut self, runs: &[(usize, usize)]);
    /// Begins to bring the message of `bytes` bytes that `from` has announced as its request so and
    /// so: into these runs of the card's memory, or by [`Inbox::card_part`]. Returns its
    /// number. `None`: it must be asked for.
    fn start_read(
        &mut self,
        from: ProcId,
        request: u32,
        bytes: u64,
        into: Option<&[(usize, usize)]>,
    ) -> Option<u32>;
    /// The number of one from there that has been brought since this was last asked.
    fn finished_read(&mut self, from: ProcId) -> Option<u32>;
    /// The processor brings what lies in these runs of the card's memory to itself, …
    fn take_out(&mut self, runs: &[(usize, usize)]);
    /// … or has just written it there: what the accesses cost. Blocks until they are done.
    fn put_in(&mut self, runs: &[(usize, usize)]);
}

/// What [`Transport::start_read`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadStart {
    /// All is copied.
    Done,
    /// Copy number so and so goes on.
    Pending(u32),
}

/// A peer's memory could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// This wire, or this system's policy, does not allow it for this peer; it never will in this
    /// job.
    #[error("reading the peer's memory is not allowed")]
    Refused,
    /// The peer's memory is not there (a wrong address, or the peer has ended).
    #[error("the peer's memory could not be read (errno {0})")]
    Failed(i32),
}

/// Why a transport could not be set up or used.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A system call was refused.
    #[error("{attempted}: {cause}; {advice}")]
    Refused {
        /// What was tried.
        attempted: String,
        /// What the system said.
        cause: std::io::Error,
        /// What to set.
        advice: &'static str,
    },
    /// What a peer wrote makes no sense.
    #[error(
        "process {peer} wrote {what} into its ring: it is broken, or another program wrote over it"
    )]
    Malformed {
        /// The peer.
        peer: ProcId,
        /// What was found.
        what: &'static str,
    },
    /// No wire leads there.
    #[error("no transport reaches process {peer} (tried: {tried})")]
    Unreachable {
        /// The peer.
        peer: ProcId,
        /// Transports that were asked.
        tried: String,
    },
    /// A peer that was, or should have been, there cannot be spoken to any more.
    #[error("process {peer} on host {host}: {what}")]
    Lost {
        /// The peer.
        peer: ProcId,
        /// The peer's host.
        host: String,
        /// What is known.
        what: String,
    },
    /// This host has no address for TCP.
    #[error("TCP between hosts: {0}; FERRY_TCP_IF=name,… or network,… chooses interfaces")]
    NoAddress(String),
    /// A setting has a value that makes no sense.
    #[error("{name} is {value:?}; it should be {wanted}")]
    Setting {
        /// The environment variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it can be.
        wanted: &'static str,
    },
    /// The modelled machine cannot be used.
    #[error("the modelled machine (mpiexec --machine): {0}")]
    Machine(String),
    /// The launcher's directory does not work.
    #[error(transparent)]
    Directory(#[from] ferry_job::JobError),
}

impl TransportError {
    /// The one peer that this is about, if it is about one.
    pub fn peer(&self) -> Option<ProcId> {
        match self {
            TransportError::Malformed { peer, .. }
            | TransportError::Unreachable { peer, .. }
            | TransportError::Lost { peer, .. } => Some(*peer),
            _ => None,
        }
    }
}
