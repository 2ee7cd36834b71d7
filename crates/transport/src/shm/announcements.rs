//! Announcements of one process to another that may be withdrawn: who decides how their bytes go.
//!
//! An announcement has a slot, a word that both processes see. The sender sets it and announces the
//! message. Whoever clears it decides: the receiver, which reads the message where it lies or asks
//! for it, or the sender, which withdraws it and sends the bytes. A receiver that has come too late
//! gives back the slot, so that it never takes a later announcement for this one.
//! `tests/loom/announcements.rs` checks that exactly one of the two decides.

use super::memory::{AtomicU64, LINE_BYTES, Ordering};

/// Announcements of one process to another that may be open at a time: the bits of a word.
pub const ANNOUNCEMENTS_MAX: u32 = u64::BITS;

/// A word with a line of its own: what one process writes does not delay the other one elsewhere.
#[repr(C, align(64))]
struct Word(AtomicU64, [u64; LINE_BYTES / 8 - 1]);

impl Word {
    fn zero() -> Word {
        Word(AtomicU64::new(0), [0; LINE_BYTES / 8 - 1])
    }
}

/// The words of one direction. In shared memory, all zeros at first.
#[repr(C)]
pub struct AnnouncementWords {
    /// A bit for each slot that the receiver has given back.
    returned: Word,
    /// By slot: 1 if the announcement is open, and nobody has decided about it.
    open: [Word; ANNOUNCEMENTS_MAX as usize],
}

impl AnnouncementWords {
    /// With all slots free.
    pub fn free() -> AnnouncementWords {
        AnnouncementWords {
            returned: Word::zero(),
            open: std::array::from_fn(|_| Word::zero()),
        }
    }

    #[inline]
    fn word(&self, slot: u32) -> &AtomicU64 {
        &self.open[(slot % ANNOUNCEMENTS_MAX) as usize].0
    }

    /// For the sender: opens the announcement of a free slot. The message that names the slot is
    /// sent afterwards.
    #[inline]
    pub fn open(&self, slot: u32) {
        self.word(slot).store(1, Ordering::Release);
    }

    /// For the sender: withdraws an announcement. False: the receiver has decided, and answers.
    pub fn withdraw(&self, slot: u32) -> bool {
        // Who is late does not take the line from the other process.
        self.word(slot).load(Ordering::Acquire) == 1
            && self.word(slot).swap(0, Ordering::AcqRel) == 1
    }

    /// For the sender: the slots of withdrawn announcements that the receiver has given back, a bit
    /// for each.
    pub fn take_returned(&self) -> u64 {
        match self.returned.0.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.returned.0.swap(0, Ordering::AcqRel),
        }
    }

    /// For the receiver: takes the decision about an announced message. It will read it, or ask for
    /// it. False: the sender has withdrawn it. The slot is given back then.
    #[inline]
    pub fn claim(&self, slot: u32) -> bool {
        let claimed = self.word(slot).swap(0, Ordering::AcqRel) == 1;
        if !claimed {
            let bit = 1 << (slot % ANNOUNCEMENTS_MAX);
            self.returned.0.fetch_or(bit, Ordering::AcqRel);
        }
        claimed
    }
}

/// The words of both directions between this process and a peer.
#[derive(Clone, Copy)]
pub struct Announcements {
    /// For this process's messages.
    pub own: &'static AnnouncementWords,
    /// For the peer's.
    pub peers: &'static AnnouncementWords,
    /// This process announces messages so: each process of the node has a core of its own.
    pub core_each: bool,
}
