//! The table behind the handles of one kind of object: a growing list of slots. The slots' tags say
//! whether a handle is valid.

use super::Handle;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Slots of a table's first chunk. Each further chunk has twice as many.
const FIRST_CHUNK_SLOTS: u32 = 64;
/// Maximum number of chunks. Together they hold every index of 31 bits that is not a predefined
/// handle.
const CHUNKS_MAX: usize = 25;

struct Slot<V> {
    /// In use: the upper half of the handle. Free: the next generation, without a kind.
    tag: AtomicU32,
    /// Free: the next free slot, plus one.
    next: AtomicU32,
    value: UnsafeCell<MaybeUninit<V>>,
}

/// A growing table from handles to values. Lookups take no lock and write nothing.
pub struct Table<V> {
    chunks: [AtomicPtr<Slot<V>>; CHUNKS_MAX],
    /// Lower half: the first free slot plus one. Upper half: a count against the ABA problem.
    free: AtomicU64,
    /// Number of slots that have been used.
    used: AtomicU32,
}

// SAFETY: a value is written before its tag is published. Only the thread that withdrew the tag
// takes it out.
unsafe impl<V: Send + Sync> Sync for Table<V> {}

const KIND_SHIFT: u32 = 24;
const GENERATION_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl<V> Table<V> {
    /// An empty table.
    pub const fn new() -> Table<V> {
        Table {
            chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS_MAX],
            free: AtomicU64::new(0),
            used: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn chunk_and_offset(index: u32) -> (usize, usize) {
        let n = index / FIRST_CHUNK_SLOTS + 1;
        let chunk = 31 - n.leading_zeros();
        (
            chunk as usize,
            (index - ((1 << chunk) - 1) * FIRST_CHUNK_SLOTS) as usize,
        )
    }

    /// The handles of all values.
    pub fn handles(&self) -> Vec<Handle> {
        let handles = (0..).map_while(|index| self.slot(index).map(|_| self.handle_at(index)));
        handles.flatten().collect()
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<V>> {
        // Most programs have few objects of a kind.
        let (chunk, at) = if index < FIRST_CHUNK_SLOTS {
            (&self.chunks[0], index as usize)
        } else {
            let (chunk, at) = Self::chunk_and_offset(index);
            (self.chunks.get(chunk)?, at)
        };
        let first = chunk.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: a chunk is never freed and has room for each of its indices.
        Some(unsafe { &*first.add(at) })
    }

    /// The value of a handle.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&V> {
        let tag = (handle >> 32) as u32;
        let slot = self.slot(handle as u32)?;
        // Without a kind it would match the tag of a free slot.
        if slot.tag.load(Ordering::Acquire) != tag || tag <= GENERATION_MASK {
            return None;
        }
        // SAFETY: the tag says that the slot holds a value, which was written before the tag. The
        // program must not free the handle while the reference lives: see `get` above.
        Some(unsafe { (*slot.value.get()).assume_init_ref() })
    }

    /// The value of a handle, if it is one of the first that the table has had. In fewer
    /// instructions than [`Table::get`].
    #[inline(always)]
    pub fn get_early(&self, handle: Handle) -> Option<&V> {
        if handle as u32 >= FIRST_CHUNK_SLOTS {
            return None;
        }
        self.get(handle)
    }

    /// The value at `index`, whatever the generation of its handle.
    #[inline]
    pub fn get_at(&self, index: u32) -> Option<&V> {
        let slot = self.slot(index)?;
        if slot.tag.load(Ordering::Acquire) <= GENERATION_MASK {
            return None;
        }
        // SAFETY: as in `get`.
        Some(unsafe { (*slot.value.get()).assume_init_ref() })
    }

    /// The handle of the value at `index`.
    pub fn handle_at(&self, index: u32) -> Option<Handle> {
        let tag = self.slot(index)?.tag.load(Ordering::Acquire);
        (tag > GENERATION_MASK).then_some(u64::from(tag) << 32 | u64::from(index))
    }

    /// Stores a value under a new handle of kind `kind`.
    pub fn insert(&self, kind: u32, value: V) -> Handle {
        self.insert_if(false, kind, value)
    }

    /// [`Table::insert`]. With `exclusive`, no other thread uses the table now. Then no locked
    /// instruction is needed, which would take as long as the rest of a small message.
    #[inline]
    pub fn insert_if(&self, exclusive: bool, kind: u32, value: V) -> Handle {
        let index = match self.pop(exclusive) {
            Some(index) => index,
            None => self.fresh(),
        };
        let Some(slot) = self.slot(index) else {
            unreachable!("the slot was there or has been made")
        };
        let tag = slot.tag.load(Ordering::Relaxed) | kind << KIND_SHIFT;
        // SAFETY: the slot is free, and this thread took it from the list.
        unsafe { (*slot.value.get()).write(value) };
        slot.tag.store(tag, Ordering::Release);
        u64::from(tag) << 32 | u64::from(index)
    }

    /// Changes the value of a handle to which no reference exists. False if the handle is invalid.
    pub fn replace(&self, handle: Handle, value: V) -> bool {
        let Some(slot) = self.slot(handle as u32) else {
            return false;
        };
        if slot.tag.load(Ordering::Acquire) != (handle >> 32) as u32 {
            return false;
        }
        // SAFETY: the tag says that the slot holds a value. The caller promises that it is not in
        // use.
        drop(std::mem::replace(
            unsafe { (*slot.value.get()).assume_init_mut() },
            value,
        ));
        true
    }

    /// Takes a value out and invalidates its handle.
    pub fn remove(&self, handle: Handle) -> Option<V> {
        self.remove_if(false, handle)
    }

    /// [`Table::remove`]; `exclusive` as in [`Table::insert_if`].
    #[inline]
    pub fn remove_if(&self, exclusive: bool, handle: Handle) -> Option<V> {
        let index = handle as u32;
        let slot = self.slot(index)?;
        self.take(exclusive, index, slot, (handle >> 32) as u32)
    }

    /// Takes the value at `index` out, whatever the generation of its handle.
    #[inline]
    pub fn remove_at_if(&self, exclusive: bool, index: u32) -> Option<V> {
        let slot = self.slot(index)?;
        self.take(exclusive, index, slot, slot.tag.load(Ordering::Relaxed))
    }

    /// Takes a value out of its slot if that has this tag.
    #[inline(always)]
    fn take(&self, exclusive: bool, index: u32, slot: &Slot<V>, tag: u32) -> Option<V> {
        if tag <= GENERATION_MASK {
            return None;
        }
        let next = tag.wrapping_add(1) & GENERATION_MASK;
        if exclusive {
            if slot.tag.load(Ordering::Relaxed) != tag {
                return None;
            }
            slot.tag.store(next, Ordering::Relaxed);
        } else {
            slot.tag
                .compare_exchange(tag, next, Ordering::Acquire, Ordering::Relaxed)
                .ok()?;
        }
        // SAFETY: the tag said that there is a value, and this thread withdrew the tag.
        let value = unsafe { (*slot.value.get()).assume_init_read() };
        self.push(exclusive, index, slot);
        Some(value)
    }

    #[inline]
    fn pop(&self, exclusive: bool) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let index = (head as u32).checked_sub(1)?;
            let next = self.slot(index)?.next.load(Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next);
            if exclusive {
                self.free.store(new, Ordering::Relaxed);
                return Some(index);
            }
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(index),
                Err(now) => head = now,
            }
        }
    }

    #[inline]
    fn push(&self, exclusive: bool, index: u32, slot: &Slot<V>) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            slot.next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
            if exclusive {
                self.free.store(new, Ordering::Release);
                return;
            }
            match self
                .free
                .compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Allocates a slot that has not been used before.
    #[cold]
    fn fresh(&self) -> u32 {
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        let (chunk, _) = Self::chunk_and_offset(index);
        assert!(chunk < CHUNKS_MAX, "more objects of one kind than handles");
        let first = &self.chunks[chunk];
        if first.load(Ordering::Acquire).is_null() {
            let slots: Box<[Slot<V>]> = (0..FIRST_CHUNK_SLOTS << chunk)
                .map(|_| Slot {
                    tag: AtomicU32::new(0),
                    next: AtomicU32::new(0),
                    value: UnsafeCell::new(MaybeUninit::uninit()),
                })
                .collect();
            let made = Box::into_raw(slots);
            let old = first.compare_exchange(
                null_mut(),
                made.cast(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if old.is_err() {
                // SAFETY: another thread has published its chunk first, so no other code has seen
                // this one.
                drop(unsafe { Box::from_raw(made) });
            }
        }
        index
    }
}
