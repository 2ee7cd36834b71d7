//! The members of a window as targets: how this process reaches the memory of each, and whether it
//! has access now. Made when a target is first used.

use super::control::{Block, Control, NodeMembers};
use super::fence::full_barrier;
use super::put_queue::PutQueue;
use super::remote;
use super::short_update::Offers;
use super::transfer_queue::TransferQueue;
use crate::ProcId;
use crate::device::{PeerMemory, SegmentKey, UpdateSlot};
use crate::state_lock::StateLock;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence};

/// How the memory of a target is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// It is mapped here: by loads, stores and CPU atomics.
    Mapped,
    /// It is a peer's own memory, on this node: by process_vm_readv(2) and process_vm_writev(2).
    Peer(PeerMemory),
    /// By packets to the target's service.
    Remote,
}

/// No access now.
pub(super) const CLOSED: u32 = 0;
/// Bit of [`Target::access`]: this process has locked the target.
pub(super) const LOCKED: u32 = 1;
/// Bit of [`Target::access`]: the lock is exclusive.
pub(super) const EXCLUSIVE: u32 = 2;
/// Bit of [`Target::access`]: the program has asserted that the lock is not needed.
pub(super) const NO_CHECK: u32 = 4;
/// Bit of [`Target::access`]: locked by MPI_Win_lock_all.
pub(super) const ALL: u32 = 8;
/// Bit of [`Target::access`]: it is in the group of MPI_Win_start.
pub(super) const STARTED: u32 = 16;

/// A member of a window, as a target.
pub(super) struct Target {
    /// Its rank in the window.
    pub rank: u32,
    /// Its process.
    pub process: ProcId,
    /// Its memory. In this process's addresses if it is mapped, otherwise in the target's own.
    /// Null for a dynamic window.
    pub base: *mut u8,
    /// Bytes of its memory.
    pub size: u64,
    /// Its displacement unit, bytes.
    pub disp_unit: i64,
    pub reach: Reach,
    /// Elements are accumulated by CPU atomics: all who use the memory map it.
    pub atomics: bool,
    /// Which member of the node it is. `None`: it is on another node.
    pub member: Option<usize>,
    /// Names its memory to this process's card, on a modelled machine.
    pub key: Option<SegmentKey>,
    /// Bytes of its memory, if operations of dense types go there by loads and stores: it is mapped
    /// and displacements count from `base`. Otherwise 0.
    pub direct_size: u64,
    /// Where a peer that polls does short updates of its memory.
    pub update_slot: Option<&'static UpdateSlot>,
    /// What became of updates that were to be left there.
    pub offers: Offers,
    /// Small puts to a peer's memory.
    pub puts: StateLock<PutQueue>,
    /// There are any.
    pub has_puts: AtomicBool,
    /// Longer puts, or gets, on a peer's memory.
    pub transfers: StateLock<TransferQueue>,
    /// There are any.
    pub has_transfers: AtomicBool,
    /// Something has been stored in its mapped memory by plain stores since the last full barrier.
    pub stored: AtomicBool,
    /// Whether this process has access now, and by what: [`CLOSED`], or bits.
    pub access: AtomicU32,
    /// Operations under way to it.
    pub pending: Mutex<remote::Pending>,
    /// The target that was made before it. [`Targets`] sets it.
    pub older: *const Target,
}

// SAFETY: `base` is an address of the program's memory, which MPI's rules protect. What `older`
// points to is a target of the same table.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

impl Target {
    /// Notes that plain stores have gone to its mapped memory. Called after them.
    #[inline]
    pub fn note_stores(&self) {
        self.stored.store(true, Ordering::Release);
    }

    /// A full barrier behind what this process has stored in the target's mapped memory. Nothing is
    /// to be done if that was by atomics only: on x86-64 each of them is such a barrier itself.
    ///
    /// Another thread that takes the note away has seen it, and hence the stores are visible.
    #[inline]
    pub fn order_stores(&self) {
        if cfg!(not(all(target_arch = "x86_64", not(miri)))) {
            self.stored.store(false, Ordering::Relaxed);
            full_barrier();
        } else if self.stored.load(Ordering::Acquire) {
            // The locked instruction that takes the note away is the barrier. One on the stack
            // would make the return from here wait.
            compiler_fence(Ordering::SeqCst);
            self.stored.swap(false, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// Its control block. `None`: it is on another node.
    #[inline]
    pub fn block<'a>(&self, control: &'a Control) -> Option<&'a Block> {
        Some(control.block(self.member?))
    }
}

/// Targets in one chunk of the table.
const CHUNK: usize = 64;

type Chunk = [AtomicPtr<Target>; CHUNK];

/// The targets that have been used, by rank. Lookups take no lock.
pub(super) struct Targets {
    chunks: Box<[AtomicPtr<Chunk>]>,
    size: u32,
    /// The target that was made last, the first of a list by [`Target::older`].
    newest: AtomicPtr<Target>,
    /// Locked while a target is made.
    making: Mutex<()>,
}

impl Targets {
    /// For a window with `size` ranks.
    pub fn new(size: u32) -> Targets {
        let chunks = (size as usize).div_ceil(CHUNK);
        Targets {
            chunks: (0..chunks).map(|_| AtomicPtr::new(null_mut())).collect(),
            size,
            newest: AtomicPtr::new(null_mut()),
            making: Mutex::default(),
        }
    }

    /// The number of ranks.
    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The target `rank`, if it has been used before.
    #[inline]
    pub fn known(&self, rank: u32) -> Option<&Target> {
        let rank = rank as usize;
        let chunk = self.chunks.get(rank / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: a chunk lives as long as the table.
        let target = unsafe { chunk.as_ref()? }[rank % CHUNK].load(Ordering::Acquire);
        // SAFETY: as above.
        unsafe { target.as_ref() }
    }

    /// The target `rank`, which is less than the size. `make` makes it if it is not known.
    pub fn get_or_make(&self, rank: u32, make: impl FnOnce() -> Target) -> &Target {
        let _one = self.making.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = self.known(rank) {
            return known;
        }
        let (slot, at) = (&self.chunks[rank as usize / CHUNK], rank as usize % CHUNK);
        let mut chunk = slot.load(Ordering::Acquire);
        if chunk.is_null() {
            chunk = Box::into_raw(Box::new([const { AtomicPtr::new(null_mut()) }; CHUNK]));
            slot.store(chunk, Ordering::Release);
        }
        let mut target = Box::new(make());
        target.older = self.newest.load(Ordering::Relaxed);
        let target = Box::into_raw(target);
        self.newest.store(target, Ordering::Release);
        // SAFETY: chunk and target were made above or before, and live as long as the table.
        unsafe {
            (&(*chunk))[at].store(target, Ordering::Release);
            &*target
        }
    }

    /// All targets that have been used, the last one first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Target> {
        // SAFETY: a target lives as long as the table.
        let newest = unsafe { self.newest.load(Ordering::Acquire).as_ref() };
        // SAFETY: as above.
        std::iter::successors(newest, |target| unsafe { target.older.as_ref() })
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        for chunk in &mut self.chunks {
            let chunk = *chunk.get_mut();
            if chunk.is_null() {
                continue;
            }
            // SAFETY: made by `Box::into_raw`, and nobody has a reference any more.
            let mut chunk = unsafe { Box::from_raw(chunk) };
            for target in chunk.iter_mut().map(AtomicPtr::get_mut) {
                if !target.is_null() {
                    // SAFETY: as above.
                    drop(unsafe { Box::from_raw(*target) });
                }
            }
        }
    }
}

/// Size, displacement unit and key of the memory of each rank of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Extents {
    /// All ranks have the same.
    Same(Extent),
    /// In rank order.
    Each(Box<[Extent]>),
}

/// One rank's memory: size and displacement unit, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    pub size: u64,
    pub disp_unit: i64,
    /// Names it to the cards of the others.
    pub key: Option<SegmentKey>,
}

impl Extents {
    /// In rank order. Kept once if all are the same.
    pub fn new(all: Vec<Extent>) -> Extents {
        match all.first() {
            Some(&first) if all.iter().all(|e| *e == first) => Extents::Same(first),
            _ => Extents::Each(all.into()),
        }
    }

    /// Those of `rank`.
    pub fn of(&self, rank: u32) -> Extent {
        match self {
            Extents::Same(extent) => *extent,
            Extents::Each(all) => all[rank as usize],
        }
    }
}

/// Ranks of the same node, in rank order, among all ranks of a group.
pub(super) fn node_members(size: u32, on_node: impl Fn(u32) -> bool) -> NodeMembers {
    NodeMembers::new((0..size).filter(|&rank| on_node(rank)).collect(), size)
}
