//! What a card's driver software offers to the transport above it.

use crate::{Client, Rank, Time};

/// What goes with each message of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest message (head and body), bytes.
    pub message_max: usize,
    /// Messages up to this are sent without asking the receiver first, bytes.
    pub eager_max: usize,
}

/// The body of a message to send.
pub enum Body<'a> {
    /// One run of bytes.
    Bytes(&'a [u8]),
    /// So many bytes, written by the closure: once, and only if the message is taken.
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
    /// Is the body empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Its bytes, at the end of `out`.
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

/// A large message whose receive has matched: what the receiver's answer is about.
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

/// Who gets what has come.
pub trait Upcall {
    /// A message, head and body in one run.
    fn arrived(&mut self, from: Rank, message: u8, bytes: &[u8]);
    /// Where the next of at most `left` bytes of a large body belong; `None`: they are taken by
    /// [`Upcall::part`].
    fn room(&mut self, from: Rank, message: u8, head: &[u8], left: usize) -> Option<&mut [u8]>;
    /// So many bytes have been put there.
    fn placed(&mut self, from: Rank, message: u8, head: &[u8], bytes: usize);
    /// The next bytes of a large body.
    fn part(&mut self, from: Rank, message: u8, head: &[u8], bytes: &[u8]);
    /// Bytes of what [`CardMemory::fetch`] has begun, from offset `at` on.
    fn fetched(&mut self, _from: Rank, _number: u32, _at: usize, _bytes: &[u8]) {}
}

/// A run of memory: address in this process, bytes.
pub type Run = (usize, usize);

/// Memory on the card in which a program has buffers, and what the card does with them by itself.
/// All of it for one rank.
pub trait CardMemory {
    /// Where it lies in this process, from … to.
    fn range(&self, c: &Client) -> (usize, usize);
    /// Messages in it up to this are sent without asking first, bytes.
    fn eager_max(&self) -> usize;
    /// So many bytes of it, at a multiple of `alignment` (a power of two). `None`: there are none
    /// left.
    fn allocate(&mut self, c: &Client, bytes: usize, alignment: usize) -> Option<usize>;
    /// Takes back what [`CardMemory::allocate`] gave. False: it gave no such thing.
    fn release(&mut self, c: &Client, address: usize) -> bool;
    /// Can a receiver's card get a message that lies in these runs?
    fn describes(&self, c: &Client, runs: &[Run]) -> bool;
    /// The next message announces one that lies in these runs.
    fn lies(&mut self, c: &Client, runs: &[Run]);
    /// Begins to bring the message of `bytes` bytes that `from` has announced as its request so and
    /// so: into these runs of the card's memory, or by [`Upcall::fetched`]. Returns its number.
    /// `None`: it must be asked for.
    fn fetch(
        &mut self,
        c: &mut Client,
        from: Rank,
        request: u32,
        bytes: u64,
        into: Option<&[Run]>,
    ) -> Option<u32>;
    /// The number of one from there that has been brought since this was last asked.
    fn fetched(&mut self, from: Rank) -> Option<u32>;
    /// The processor brings what lies in these runs of the card's memory to itself, …
    fn take_out(&mut self, c: &mut Client, runs: &[Run]);
    /// … or has just written it there: what the accesses cost. Blocks until they are done.
    fn put_in(&mut self, c: &mut Client, runs: &[Run]);
}

/// Hands up bytes of a large body, to where they belong.
pub fn hand_up(up: &mut dyn Upcall, from: Rank, message: u8, head: &[u8], mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let placed = match up.room(from, message, head, bytes.len()) {
            Some(room) if !room.is_empty() => {
                let n = room.len().min(bytes.len());
                room[..n].copy_from_slice(&bytes[..n]);
                n
            }
            _ => 0,
        };
        if placed == 0 {
            return up.part(from, message, head, bytes);
        }
        up.placed(from, message, head, placed);
        bytes = &bytes[placed..];
    }
}

/// What a peer's driver has sent makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {0} sent {1}")]
pub struct Garbled(pub Rank, pub &'static str);

/// The driver of a rank's card. Charges what it does to the rank's clock, and never blocks but for
/// the model's sake.
pub trait Driver: Send {
    /// What can be sent to `peer`.
    fn limits(&self, peer: Rank) -> Limits;
    /// Sends a message: copied, or not at all (false: no room; there is an event for this rank when
    /// there is).
    fn send(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: Body<'_>) -> bool;
    /// The next message to `to` announces a large one of `len` bytes.
    fn announces(&mut self, _c: &mut Client, _to: Rank, _len: usize) {}
    /// The next message to `from` asks for a large one that it has announced.
    fn expects(&mut self, _c: &mut Client, _from: Rank, _what: &Expected<'_>) {}
    /// Sends of the front of a large body, straight from where it lies; returns how many bytes more
    /// of it are no longer needed. Called with what is left until that is nothing.
    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize;
    /// Looks for what has come, and hands it up. Returns how many messages, or parts of large ones,
    /// that was.
    ///
    /// Errors: a peer has sent what makes no sense.
    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Garbled>;
    /// Is there nothing left to do for what has been sent?
    fn settled(&mut self, _c: &mut Client) -> bool {
        true
    }
    /// Memory on the card, if programs have any.
    fn memory(&self) -> Option<&dyn CardMemory> {
        None
    }
    /// The same, to do something with it.
    fn memory_mut(&mut self) -> Option<&mut dyn CardMemory> {
        None
    }
    /// How often a rank that waits looks; zero: an interrupt wakes it.
    fn period(&self) -> Time;
}
