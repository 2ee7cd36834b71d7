//! What a card's driver software offers to the transport above it.

use crate::kernel::{Client, Rank};
use crate::remote_memory::{RemoteError, RemoteMemory};
use crate::time::Time;

/// Sizes that hold for each message of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest message, head and body together, bytes.
    pub message_max: usize,
    /// Largest message that is sent eagerly, bytes.
    pub eager_max: usize,
}

/// The body of a message to send.
pub enum Body<'a> {
    /// One run of bytes.
    Bytes(&'a [u8]),
    /// A number of bytes, written by the closure. It is called once, and only if the message is
    /// taken.
    Fill(usize, &'a mut dyn FnMut(&mut [u8])),
}

impl Body<'_> {
    /// Bytes in the body.
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(b) => b.len(),
            Body::Fill(n, _) => *n,
        }
    }
    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends the body's bytes to `out`.
    pub fn append_to(self, out: &mut Vec<u8>) {
        match self {
            Body::Bytes(bytes) => out.extend_from_slice(bytes),
            Body::Fill(len, fill) => {
                let at = out.len();
                out.resize(at + len, 0);
                fill(&mut out[at..]);
            }
        }
    }
}

/// A large message whose receive has matched. The receiver's CTS asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Where its bytes belong. `None`: in several runs, or nowhere.
    pub address: Option<usize>,
    /// Its bytes.
    pub len: usize,
    /// The message number of its body.
    pub message: u8,
    /// The head of its body.
    pub head: &'a [u8],
}

/// Receives what has arrived. Implemented by the transport.
pub trait Upcall {
    /// A message arrived, head and body in one run.
    fn on_message(&mut self, from: Rank, message: u8, bytes: &[u8]);
    /// Returns where the next bytes of a large body belong, of which at most `left` come. `None`:
    /// they go to [`Upcall::stream_part`].
    fn stream_buffer(
        &mut self,
        from: Rank,
        message: u8,
        head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]>;
    /// `bytes` bytes have been put into the buffer that [`Upcall::stream_buffer`] returned.
    fn stream_placed(&mut self, from: Rank, message: u8, head: &[u8], bytes: usize);
    /// The next bytes of a large body.
    fn stream_part(&mut self, from: Rank, message: u8, head: &[u8], bytes: &[u8]);
    /// Bytes that [`CardMemory::start_read`] reads, from offset `at` on.
    fn card_part(&mut self, _from: Rank, _read: u32, _at: usize, _bytes: &[u8]) {}
}

/// A run of memory: its address in this process, and its bytes.
pub type Run = (usize, usize);

/// Memory on a rank's card in which the program has buffers, and what the card does with them
/// without the processor.
pub trait CardMemory {
    /// Its address range in this process.
    fn range(&self, c: &Client) -> (usize, usize);
    /// Largest message in it that is sent eagerly, bytes.
    fn eager_max(&self) -> usize;
    /// Allocates `bytes` bytes at a multiple of `alignment`, a power of two. `None`: there is no
    /// room.
    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize>;
    /// Frees what [`CardMemory::allocate`] gave. Returns false if it gave no such thing.
    fn release(&mut self, c: &Client, address: usize) -> bool;
    /// Returns whether a receiver's card can read a message that lies in these runs.
    fn can_describe(&self, c: &Client, runs: &[Run]) -> bool;
    /// The next message announces one that lies in these runs.
    fn set_source(&mut self, c: &Client, runs: &[Run]);
    /// Starts to read the message of `bytes` bytes that `from` has announced under the number
    /// `request`. It goes into these runs of the card's memory, or to [`Upcall::card_part`].
    ///
    /// Returns the number of the read. `None`: the card cannot read it, and the message must be
    /// asked for.
    fn start_read(
        &mut self,
        c: &mut Client,
        from: Rank,
        request: u32,
        bytes: u64,
        into: Option<&[Run]>,
    ) -> Option<u32>;
    /// The number of a read from there that has finished since this was last asked.
    fn finished_read(&mut self, from: Rank) -> Option<u32>;
    /// Charges what it costs the processor to read these runs of the card's memory. Blocks until it
    /// has them.
    fn charge_load(&mut self, c: &mut Client, runs: &[Run]);
    /// Charges what it costs the processor to write these runs of the card's memory. The bytes are
    /// there already. Blocks until the card has them.
    fn charge_store(&mut self, c: &mut Client, runs: &[Run]);
}

/// Hands bytes of a large body to where they belong.
pub fn deliver_stream(up: &mut dyn Upcall, from: Rank, message: u8, head: &[u8], mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let placed = match up.stream_buffer(from, message, head, bytes.len()) {
            Some(buffer) if !buffer.is_empty() => {
                let n = buffer.len().min(bytes.len());
                buffer[..n].copy_from_slice(&bytes[..n]);
                n
            }
            _ => 0,
        };
        if placed == 0 {
            return up.stream_part(from, message, head, bytes);
        }
        up.stream_placed(from, message, head, placed);
        bytes = &bytes[placed..];
    }
}

/// A peer's driver has sent bytes that are not valid. The text says what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {0} sent {1}")]
pub struct Malformed(pub Rank, pub &'static str);

impl From<Malformed> for RemoteError {
    fn from(Malformed(from, what): Malformed) -> RemoteError {
        RemoteError::Malformed(from, what)
    }
}

/// A network interface of the host. Neither call blocks.
pub trait Interface {
    /// Takes the next frame that the host sends. Returns its bytes. `None`: there is none.
    fn read(&mut self, frame: &mut [u8]) -> Option<usize>;
    /// Gives the host a frame. Returns false if the host does not take it: the frame is lost.
    fn write(&mut self, frame: &[u8]) -> bool;
}

/// The driver of a rank's card. It charges its work to the rank's clock. It blocks only for the
/// model to catch up with that clock.
pub trait Driver: Send {
    /// What can be sent to `peer`.
    fn limits(&self, peer: Rank) -> Limits;
    /// Sends a message. Returns true if it is copied, and false if there is no room. In that case
    /// there will be an event for this rank when there is room.
    fn send(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: Body<'_>) -> bool;
    /// The next message to `to` is the RTS of a large message of `len` bytes.
    fn before_rts(&mut self, _c: &mut Client, _to: Rank, _len: usize) {}
    /// The next message to `from` is the CTS of a large message. A driver whose card writes there
    /// keeps the address: the memory stays valid, and nobody has a reference to it, until the
    /// message has come.
    fn before_cts(&mut self, _c: &mut Client, _from: Rank, _what: &Expected<'_>) {}
    /// Sends from the front of a large body, straight from where it lies. `body` is what is left of
    /// it; call again until that is nothing. Returns how many more of its bytes are no longer
    /// needed. A driver whose card reads there keeps the address: what is left of the body stays
    /// where it is, and nobody writes to it, until all of it has been taken.
    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize;
    /// Returns whether several large bodies to one peer are sent side by side. Otherwise each waits
    /// for the end of the one before it.
    fn streams_side_by_side(&self) -> bool {
        false
    }
    /// A peer is lost. What was promised for messages to it and from it, such as the memory of
    /// [`Driver::before_cts`], holds no longer.
    fn forget_peer(&mut self, _c: &mut Client, _peer: Rank) {}
    /// Takes what has arrived. Returns the number of messages and of parts of large ones.
    ///
    /// # Errors
    /// A peer has sent bytes that are not valid.
    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Malformed>;
    /// Returns whether nothing is left to do for what has been sent.
    fn settle(&mut self, _c: &mut Client) -> bool {
        true
    }
    /// Carries the frames of a network interface, too, beside the messages. The job has `ports` of
    /// them. Each poll takes what the interface has. Only for cards that have a channel for frames.
    fn set_interface(&mut self, _ports: u32, _interface: Box<dyn Interface + Send>) {}
    /// Memory on the card, if programs have any.
    fn memory(&self) -> Option<&dyn CardMemory> {
        None
    }
    /// Memory on the card, to be changed.
    fn memory_mut(&mut self) -> Option<&mut dyn CardMemory> {
        None
    }
    /// Memory of other ranks, if the card reaches it without their processors.
    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        None
    }
    /// How often a waiting rank polls. Zero: an interrupt wakes it.
    fn poll_period(&self) -> Time;
}
