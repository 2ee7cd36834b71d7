//! MPI_Win_post and MPI_Win_complete by notifications of the card (a doorbell), on a modelled
//! machine whose card has them.
//!
//! A notification is one byte: the window's slot, and which of the two it stands for. The ranks of
//! a window agree on a slot that is free in all of them. Where there is none, or the card has no
//! notifications, packets take their place. So they do for MPI_Win_complete after operations by
//! packets, which a notification may overtake.

use super::pending::lock;
use super::service;
use crate::device::{Device, ProcId};
use crate::win::Win;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Windows that can have a slot at a time: a byte less the bit that tells the call.
const SLOTS: u32 = 128;
/// No slot.
pub(in crate::win) const NO_SLOT: u32 = u32::MAX;

/// Which windows have the slots: their contexts; 0 for a free one.
static TAKEN: Mutex<[u64; SLOTS as usize]> = Mutex::new([0; SLOTS as usize]);
/// A slot has been taken: notifications may come.
static EXPECTED: AtomicBool = AtomicBool::new(false);

/// Which call a notification stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    Post = 0,
    Complete = 1,
}

/// The slots of this process that are taken: a bit for each.
pub(in crate::win) fn taken() -> u128 {
    let taken = lock(&TAKEN);
    let bits = taken.iter().zip(0..).filter(|(context, _)| **context != 0);
    bits.map(|(_, slot)| 1 << slot).sum()
}

/// A slot that none of these has. [`NO_SLOT`]: there is none.
pub(in crate::win) fn free_slot(taken: u128) -> u32 {
    match taken.trailing_ones() {
        SLOTS.. => NO_SLOT,
        slot => slot,
    }
}

/// The slot of a window. Empty if it has none.
pub(in crate::win) struct Slot(AtomicU32);

impl Slot {
    /// Takes a slot for the window of this context. Without one if it is taken: a window that
    /// another thread makes has been faster.
    pub fn take(slot: u32, context: u64) -> Slot {
        let mut taken = lock(&TAKEN);
        let found = match taken.get_mut(slot as usize) {
            Some(at) if *at == 0 => {
                *at = context;
                EXPECTED.store(true, Ordering::Relaxed);
                slot
            }
            _ => NO_SLOT,
        };
        Slot(AtomicU32::new(found))
    }

    /// Has the window one?
    pub fn is_some(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NO_SLOT
    }

    /// Gives the slot up.
    pub fn give_up(&self) {
        let slot = self.0.swap(NO_SLOT, Ordering::Relaxed);
        if let Some(at) = lock(&TAKEN).get_mut(slot as usize) {
            *at = 0;
        }
    }
}

/// Notifies a process behind what the card has put there. Returns false if that is not possible.
pub(super) fn notify(win: &Win, d: &mut Device, process: ProcId, notice: Notice) -> bool {
    let slot = win.slot.0.load(Ordering::Relaxed);
    let Some(memory) = d.remote_memory().filter(|_| slot != NO_SLOT) else {
        return false;
    };
    memory
        .notify(process, (slot << 1) as u8 | notice as u8)
        .is_ok()
}

/// Takes the notifications that have come.
pub(super) fn advance(d: &mut Device) {
    if !EXPECTED.load(Ordering::Relaxed) {
        return;
    }
    while let Some((from, number)) = d.remote_memory().and_then(|m| m.notification()) {
        let context = lock(&TAKEN)[usize::from(number >> 1)];
        let Some(win) = service::window(context) else {
            continue;
        };
        let Some(rank) = win.comm.group.rank_of(from) else {
            continue;
        };
        match number & 1 {
            0 => service::on_post(&win, rank),
            _ => service::on_complete(&win, d),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_slot_is_chosen() {
        assert_eq!(free_slot(0), 0);
        assert_eq!(free_slot(0b1011), 2);
        assert_eq!(free_slot(u128::MAX >> 1), 127);
        assert_eq!(free_slot(u128::MAX), NO_SLOT);
    }

    #[test]
    fn a_slot_is_one_windows() {
        let (first, second) = (Slot::take(5, 77), Slot::take(5, 78));
        assert!(first.is_some() && !second.is_some());
        assert_ne!(taken() & 1 << 5, 0);
        second.give_up();
        assert_ne!(taken() & 1 << 5, 0);
        first.give_up();
        assert_eq!(taken() & 1 << 5, 0);
        assert!(!Slot::take(NO_SLOT, 79).is_some());
    }
}
