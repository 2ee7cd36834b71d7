//! The control page of each process of a node, which its peers read and write: its wakeup word,
//! which peers have something for it, and how to reach its memory.

use crate::Sleeper;
use crate::shm::update_slot::UpdateSlot;
use crate::shm::wakeup_word;
use crate::wakeup;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of a bitmap over the node's processes. A choice: as many as three bitmaps leave room for
/// in a page.
const BITMAP_WORDS: usize = 128;
/// Most processes of one job on one node: the bits of a bitmap.
pub const LOCAL_RANKS_MAX: usize = BITMAP_WORDS * 64;
/// Bytes of a [`Control`]: one page, on x86-64 and most arm64 systems.
pub const CONTROL_BYTES: usize = 4096;

/// The control page of one process.
#[repr(C, align(4096))]
pub struct Control {
    /// [`AWAKE`], [`ASLEEP_ON_SOCKET`], or the bits of the threads that sleep on the wakeup word
    /// ([`Sleeper::bits`](crate::Sleeper::bits)). Who has brought the process something swaps this
    /// to [`AWAKE`], and wakes whom it found.
    pub asleep: AtomicU32,
    /// The futex word on which the process sleeps ([`wakeup_word`]).
    pub wakeup_word: AtomicU32,
    _line0: [u32; 14],
    /// Grows with each peer that asks this process to open its rings.
    pub ring_open_requests: AtomicU32,
    /// Grows with each copy on a peer's copy table with which this process may assist.
    pub assist_requests: AtomicU32,
    _line1: [u32; 14],
    /// The process's id. 0: it has not started yet.
    pub pid: AtomicU32,
    /// The core on which the process's program last waited for long, plus 1. 0: not known.
    pub core: AtomicU32,
    /// Address of a word in the process's private memory, by which peers find out whether they can
    /// read that memory.
    pub probe_address: AtomicU64,
    /// The value of that word.
    pub probe_value: AtomicU64,
    /// Not 0: others are not to write the process's private memory, for a tool looks at each access
    /// and would not see theirs ([`Control::refuse_writes`]).
    refuses_writes: AtomicU32,
    /// Not 0: the process's program has yielded its core, or sleeps.
    pub off_core: AtomicU32,
    _line2: [u32; 8],
    /// A bit for each peer that has asked this process to open its rings.
    pub rings_opened: [AtomicU64; BITMAP_WORDS],
    /// A bit for each peer that has written since this process last looked. On large nodes only.
    pub active: [AtomicU64; BITMAP_WORDS],
    /// A bit for each peer whose copy table has something for this process.
    pub assist_requested_by: [AtomicU64; BITMAP_WORDS],
    /// The name of the socket that wakes the process when it is [`ASLEEP_ON_SOCKET`].
    pub wakeup_socket: AtomicU64,
    _line3: [u64; 7],
    /// Where peers leave short updates of the process's memory while it polls.
    pub updates: UpdateSlot,
    _rest: [u64; 80],
}

/// Value of [`Control::asleep`]: the process does not sleep.
pub const AWAKE: u32 = 0;
/// Value of [`Control::asleep`]: the process waits for descriptors, too. A datagram to its wakeup
/// socket wakes it. A bit that no [`Sleeper`] has.
pub const ASLEEP_ON_SOCKET: u32 = 1 << 31;

const _: () = assert!(size_of::<Control>() == CONTROL_BYTES);

impl Control {
    /// Asks the peers to leave the process's private memory as it is.
    pub fn refuse_writes(&self) {
        self.refuses_writes.store(1, Ordering::Relaxed);
    }

    /// Returns whether the process has asked for that.
    pub fn refuses_writes(&self) -> bool {
        self.refuses_writes.load(Ordering::Relaxed) != 0
    }

    /// Wakes the process if it sleeps. The caller's message must have been published with a full
    /// barrier.
    #[inline]
    pub fn wake_if_asleep(&self) {
        if self.asleep.load(Ordering::Relaxed) != AWAKE {
            self.wake_sleeper();
        }
    }

    /// Wakes the process if its program sleeps. For what a progress thread can do nothing about.
    /// The caller's data must have been published with a full barrier.
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
                wakeup::wake_socket(self.wakeup_socket.load(Ordering::SeqCst));
            }
            Some(who) => {
                let sleeps =
                    wakeup_word::signal(&self.wakeup_word, who == Sleeper::Progress.bits());
                if sleeps {
                    wakeup::wake(&self.wakeup_word, who);
                }
            }
        }
    }
}

/// Wakes a process of the node.
#[derive(Clone, Copy)]
pub struct Waker(pub(super) &'static Control);

impl Waker {
    /// Wakes the process if a thread of its program sleeps, as far as one can tell, for what its
    /// progress thread can do nothing about. What the process is to see must have been written with
    /// a full barrier.
    #[inline]
    pub fn wake(&self) {
        self.0.wake_program_if_asleep();
    }

    /// Wakes the process if any thread of it sleeps, its progress thread as well.
    #[inline]
    pub fn wake_any(&self) {
        self.0.wake_if_asleep();
    }
}
