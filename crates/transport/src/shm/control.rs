//! What each process of a node keeps in the segment for its peers there: its doorbell, who has
//! something for it, and how to reach its memory.

use crate::Sleeper;
use crate::shm::wakeup_word;
use rustix::thread::futex;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of a bitmap over the node's processes.
const WORDS: usize = 128;
/// Most processes of one job on one node.
pub const LOCAL_RANKS_MAX: usize = WORDS * 64;
/// Bytes of a [`Control`]: one page.
pub const CONTROL_BYTES: usize = 4096;

/// One process's page.
#[repr(C, align(4096))]
pub struct Control {
    /// Not [`AWAKE`]: the process sleeps, or is about to; whoever has brought it something swaps
    /// this to 0 and rings. Unless it is [`ASLEEP_ON_SOCKET`], the bits of who sleeps on the wakeup
    /// word ([`Sleeper::bits`](crate::Sleeper::bits)).
    pub asleep: AtomicU32,
    /// Changed by each ring; the futex word on which the process sleeps, and whether its progress
    /// thread polls it ([`word`]).
    pub wakeup_word: AtomicU32,
    _line0: [u32; 14],
    /// Changed whenever a peer has opened a ring to this process.
    pub ring_open_requests: AtomicU32,
    /// Changed whenever a peer has put on its copy table something that this process may help to
    /// copy.
    pub assist_requests: AtomicU32,
    _line1: [u32; 14],
    /// The process's id; 0 until it has started.
    pub pid: AtomicU32,
    /// The core on which the process's program last waited for long, plus 1; 0: not known.
    pub core: AtomicU32,
    /// Address of `probe`'s twin in the process's private memory, and what it holds.
    pub probe_address: AtomicU64,
    /// What stands at `probe_address`.
    pub probe_value: AtomicU64,
    _line2: [u32; 10],
    /// A bit for each peer that has opened a ring to this process.
    pub rings_opened: [AtomicU64; WORDS],
    /// A bit for each peer that has written since this process last looked (large nodes only).
    pub active: [AtomicU64; WORDS],
    /// A bit for each peer whose copy table this process should look at.
    pub assist_wanted_by: [AtomicU64; WORDS],
    /// The name of the socket at which the process can be woken when it sleeps
    /// [`ASLEEP_ON_SOCKET`].
    pub wakeup_socket: AtomicU64,
    _rest: [u64; 103],
}

/// The process does not sleep.
pub const AWAKE: u32 = 0;
/// It waits for descriptors, too: a datagram to its wakeup socket wakes it.
pub const ASLEEP_ON_SOCKET: u32 = 1 << 31;

const _: () = assert!(size_of::<Control>() == CONTROL_BYTES);

impl Control {
    /// Wakes the process if it sleeps. The caller's message must have been published with a full
    /// barrier.
    #[inline]
    pub fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) != AWAKE {
            self.wake_sleeper();
        }
    }

    /// The same for what a progress thread can do nothing about.
    #[inline]
    pub fn wake_program_if_asleep(&self) {
        let asleep = self.asleep.load(Ordering::Relaxed);
        if asleep != AWAKE && asleep != Sleeper::Progress.bits().get() {
            self.wake_sleeper();
        }
    }

    /// Wakes the process if it still sleeps.
    #[cold]
    fn wake_sleeper(&self) {
        match NonZeroU32::new(self.asleep.swap(AWAKE, Ordering::SeqCst)) {
            None => {}
            Some(who) if who.get() == ASLEEP_ON_SOCKET => {
                crate::wakeup::wake_socket(self.wakeup_socket.load(Ordering::SeqCst));
            }
            Some(who) => {
                let sleeps =
                    wakeup_word::signal(&self.wakeup_word, who == Sleeper::Progress.bits());
                if sleeps {
                    wake(&self.wakeup_word, who);
                }
            }
        }
    }
}

/// By which a process of the node is woken for what a progress thread can do nothing about.
pub struct Waker(pub(super) &'static Control);

impl Waker {
    /// Wakes it if a thread of its program sleeps, as far as one can tell. What it is to see must
    /// have been written with a full barrier.
    #[inline]
    pub fn wake(&self) {
        self.0.wake_program_if_asleep();
    }
}

/// Wakes those threads, of any process, that sleep on `word` with one of the bits `who`.
pub fn wake(word: &AtomicU32, who: NonZeroU32) {
    let _ = futex::wake_bitset(word, futex::Flags::empty(), i32::MAX as u32, who);
}
