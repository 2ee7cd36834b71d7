//! Handles: 64-bit values that stand for objects.
//!
//! A handle is an index with a kind and a generation, never an address, so that a null, foreign,
//! freed or made-up handle is recognised instead of followed. Predefined handles are small numbers
//! (below 4096) that the ABI fixes.

use crate::constants;
use ferry_mpi::pt2pt::Message;
use ferry_mpi::{Comm, Datatype, Errhandler, Group, Info, Kind, Op, Request, Session};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A handle as C sees it: a pointer's worth of bits.
pub type Handle = u64;

/// Handles below this are predefined (MPI 5.0 chapter 21).
const PREDEFINED: Handle = 4096;

/// An object that programs know by a handle.
pub trait Object: Sized + Send + Sync + 'static {
    /// Tells its handles from those of other kinds; 1 to 127.
    const KIND: u32;
    /// The null handle.
    const NULL: Handle;
    /// What C calls its handles.
    const TYPE: &'static str;
    /// The error class for handles that stand for no such object.
    const ERROR: Kind;
    /// Where its objects are.
    fn table() -> &'static Table<Arc<Self>>;
    /// The object behind a predefined handle.
    fn predefined(handle: u32) -> Option<&'static Arc<Self>>;
    /// Stores the handle in its object. Callbacks of the program get it from there.
    fn set_handle(&self, handle: Handle);
    /// Whether this thread alone uses the table now. True only for objects that exist while the
    /// device does, in a program with one thread.
    #[inline]
    fn is_exclusive() -> bool {
        false
    }
}

/// The object behind `handle`, if it is valid and of that kind.
///
/// The reference lives until the handle is freed: a program must not free a handle while a call of
/// another of its threads uses it (MPI 5.0 §11.6.2). Whoever needs the object longer clones the
/// `Arc`.
#[inline]
pub fn get<T: Object>(handle: Handle) -> Option<&'static Arc<T>> {
    if handle < PREDEFINED {
        T::predefined(handle as u32)
    } else {
        T::table().get(handle)
    }
}

/// Makes a handle for an object.
#[inline]
pub fn insert<T: Object>(object: Arc<T>) -> Handle {
    let reference: *const T = &*object;
    let handle = T::table().insert_if(T::is_exclusive(), T::KIND, object);
    // SAFETY: the table keeps the object alive: nobody else knows the handle yet.
    unsafe { &*reference }.set_handle(handle);
    handle
}

/// Makes a handle before there is an object; `stand_in` answers to it until [`fill`].
pub fn reserve<T: Object>(stand_in: Arc<T>) -> Handle {
    T::table().insert(T::KIND, stand_in)
}

/// Puts the object behind a reserved handle, which the program must not have used so far. It may
/// have freed it: then nothing happens.
pub fn fill<T: Object>(handle: Handle, object: Arc<T>) {
    object.set_handle(handle);
    T::table().replace(handle, object);
}

/// Frees a handle and returns its object; `None` for handles that are predefined or invalid.
#[inline]
pub fn remove<T: Object>(handle: Handle) -> Option<Arc<T>> {
    if handle < PREDEFINED {
        None
    } else {
        T::table().remove_if(T::is_exclusive(), handle)
    }
}

/// Is this a predefined handle (which cannot be freed)?
pub fn is_predefined(handle: Handle) -> bool {
    handle < PREDEFINED
}

/// The int that stands for a handle in Fortran: small numbers for predefined ones, the index above
/// them for others. Handles of no object give that of the null handle.
pub fn to_int<T: Object>(handle: Handle) -> i32 {
    if handle < PREDEFINED {
        handle as i32
    } else if T::table().get(handle).is_some() {
        (handle as u32 as i32) + PREDEFINED as i32
    } else {
        T::NULL as i32
    }
}

/// The handle that an int stands for; the null handle if it stands for none.
pub fn from_int<T: Object>(number: i32) -> Handle {
    match u64::try_from(number) {
        Ok(small) if small < PREDEFINED => small,
        Ok(number) => T::table()
            .handle_at((number - PREDEFINED) as u32)
            .unwrap_or(T::NULL),
        Err(_) => T::NULL,
    }
}

/// [`to_int`] for kinds that have predefined handles only.
pub fn to_int_bare(c_type: &str, handle: Handle) -> i32 {
    if handle < PREDEFINED {
        handle as i32
    } else {
        null_of(c_type) as i32
    }
}

/// [`from_int`] for kinds that have predefined handles only.
pub fn from_int_bare(c_type: &str, number: i32) -> Handle {
    match u64::try_from(number) {
        Ok(small) if small < PREDEFINED => small,
        _ => null_of(c_type),
    }
}

fn null_of(c_type: &str) -> Handle {
    match c_type {
        "MPI_Win" => constants::MPI_WIN_NULL,
        _ => constants::MPI_FILE_NULL,
    }
}

/// Slots of a table's first chunk. Each further chunk has twice as many.
const FIRST_CHUNK_SLOTS: u32 = 64;
/// Chunks that a table may have: together they hold every index of 31 bits that is not a
/// predefined handle.
const MAX_CHUNKS: usize = 25;

struct Slot<V> {
    /// The upper half of the handle while the slot is in use; the next generation, without a kind,
    /// while it is free.
    tag: AtomicU32,
    /// While free: the next free slot, plus one.
    next: AtomicU32,
    value: UnsafeCell<MaybeUninit<V>>,
}

/// A growing table from handles to values. Reading takes no lock and writes nothing.
pub struct Table<V> {
    chunks: [AtomicPtr<Slot<V>>; MAX_CHUNKS],
    /// The first free slot plus one, and in the upper half a count against mistaking an old list
    /// for the present one.
    free: AtomicU64,
    /// Slots that have ever been used.
    used: AtomicU32,
}

// SAFETY: a value is written before its tag is published and taken out only by the one thread that
// withdrew the tag.
unsafe impl<V: Send + Sync> Sync for Table<V> {}

const KIND_SHIFT: u32 = 24;
const GENERATION_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl<V> Table<V> {
    /// An empty table.
    pub const fn new() -> Table<V> {
        Table {
            chunks: [const { AtomicPtr::new(null_mut()) }; MAX_CHUNKS],
            free: AtomicU64::new(0),
            used: AtomicU32::new(0),
        }
    }

    #[inline]
    fn chunk_and_offset(index: u32) -> (usize, usize) {
        let n = index / FIRST_CHUNK_SLOTS + 1;
        let chunk = 31 - n.leading_zeros();
        (
            chunk as usize,
            (index - ((1 << chunk) - 1) * FIRST_CHUNK_SLOTS) as usize,
        )
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<V>> {
        let (chunk, at) = Self::chunk_and_offset(index);
        let first = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: a chunk lives for ever and has room for every index that belongs to it.
        Some(unsafe { &*first.add(at) })
    }

    /// The value of a handle.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&V> {
        let tag = (handle >> 32) as u32;
        let slot = self.slot(handle as u32)?;
        // Without a kind it would be taken for the tag of a free slot.
        if slot.tag.load(Ordering::Acquire) != tag || tag <= GENERATION_MASK {
            return None;
        }
        // SAFETY: the tag says that the slot holds a value, written before the tag. That it is not
        // taken out while the reference lives is the program's duty: see `get` above.
        Some(unsafe { (*slot.value.get()).assume_init_ref() })
    }

    /// The handle of the value at `index`.
    pub fn handle_at(&self, index: u32) -> Option<Handle> {
        let tag = self.slot(index)?.tag.load(Ordering::Acquire);
        (tag > GENERATION_MASK).then_some(u64::from(tag) << 32 | u64::from(index))
    }

    /// Stores a value under a new handle of that kind.
    pub fn insert(&self, kind: u32, value: V) -> Handle {
        self.insert_if(false, kind, value)
    }

    /// [`Table::insert`]; `exclusive`: no other thread uses the table now, so that no locked
    /// instruction is needed, which take as long as the rest of a small message.
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
        // SAFETY: the slot is free and belongs to this thread alone, which took it from the list.
        unsafe { (*slot.value.get()).write(value) };
        slot.tag.store(tag, Ordering::Release);
        u64::from(tag) << 32 | u64::from(index)
    }

    /// Changes the value of a handle, to which nobody holds a reference; false if the handle is
    /// invalid.
    pub fn replace(&self, handle: Handle, value: V) -> bool {
        let Some(slot) = self.slot(handle as u32) else {
            return false;
        };
        if slot.tag.load(Ordering::Acquire) != (handle >> 32) as u32 {
            return false;
        }
        // SAFETY: the tag says that the slot holds a value; that nobody uses it is the caller's
        // promise.
        drop(std::mem::replace(
            unsafe { (*slot.value.get()).assume_init_mut() },
            value,
        ));
        true
    }

    /// Takes a value out. Its handle is invalid from now on.
    pub fn remove(&self, handle: Handle) -> Option<V> {
        self.remove_if(false, handle)
    }

    /// [`Table::remove`]; `exclusive` as in [`Table::insert_if`].
    #[inline]
    pub fn remove_if(&self, exclusive: bool, handle: Handle) -> Option<V> {
        let index = handle as u32;
        let slot = self.slot(index)?;
        let tag = (handle >> 32) as u32;
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
        // SAFETY: the tag said that there is a value, and only this thread has withdrawn it.
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

    /// A slot that has never been used.
    #[cold]
    fn fresh(&self) -> u32 {
        let index = self.used.fetch_add(1, Ordering::Relaxed);
        let (chunk, _) = Self::chunk_and_offset(index);
        assert!(chunk < MAX_CHUNKS, "more objects of one kind than handles");
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
                // SAFETY: another thread was faster, so nobody has seen this chunk.
                drop(unsafe { Box::from_raw(made) });
            }
        }
        index
    }
}

macro_rules! object {
    ($type:ty, $kind:literal, $null:ident, $c:literal, $error:ident, $set_handle:expr, $predefined:expr,
        $exclusive:expr) => {
        impl Object for $type {
            const KIND: u32 = $kind;
            const NULL: Handle = constants::$null;
            const TYPE: &'static str = $c;
            const ERROR: Kind = Kind::$error;
            #[inline]
            fn table() -> &'static Table<Arc<Self>> {
                static TABLE: Table<Arc<$type>> = Table::new();
                &TABLE
            }
            #[inline]
            fn predefined(handle: u32) -> Option<&'static Arc<Self>> {
                let find: fn(u32) -> Option<&'static Arc<Self>> = $predefined;
                find(handle)
            }
            #[inline]
            fn set_handle(&self, handle: Handle) {
                let store: fn(&Self, Handle) = $set_handle;
                store(self, handle);
            }
            #[inline]
            fn is_exclusive() -> bool {
                let exclusive: fn() -> bool = $exclusive;
                exclusive()
            }
        }
    };
}

object!(
    Comm,
    1,
    MPI_COMM_NULL,
    "MPI_Comm",
    Comm,
    |c, h| c.identity.set(h),
    |h| {
        match u64::from(h) {
            constants::MPI_COMM_WORLD => ferry_mpi::process::in_world().map(|p| &p.world),
            constants::MPI_COMM_SELF => ferry_mpi::process::in_world().map(|p| &p.itself),
            _ => None,
        }
    },
    || false
);
object!(
    Group,
    2,
    MPI_GROUP_NULL,
    "MPI_Group",
    Group,
    |g, h| g.identity.set(h),
    |h| { (u64::from(h) == constants::MPI_GROUP_EMPTY).then(crate::calls::group::empty) },
    || false
);
object!(
    Datatype,
    3,
    MPI_DATATYPE_NULL,
    "MPI_Datatype",
    Type,
    |t, h| t.handle.store(h, Ordering::Relaxed),
    Datatype::predefined,
    || false
);
object!(
    Op,
    4,
    MPI_OP_NULL,
    "MPI_Op",
    Op,
    |o, h| o.handle.store(h, Ordering::Relaxed),
    Op::predefined,
    || false
);
object!(
    Info,
    5,
    MPI_INFO_NULL,
    "MPI_Info",
    Info,
    |i, h| i.identity.set(h),
    |h| { (u64::from(h) == constants::MPI_INFO_ENV).then(crate::calls::info::environment) },
    || false
);
object!(
    Errhandler,
    6,
    MPI_ERRHANDLER_NULL,
    "MPI_Errhandler",
    ErrhandlerArg,
    |e, h| e.identity.set(h),
    |h| {
        match u64::from(h) {
            constants::MPI_ERRORS_ARE_FATAL => Some(Errhandler::fatal()),
            constants::MPI_ERRORS_ABORT => Some(Errhandler::abort()),
            constants::MPI_ERRORS_RETURN => Some(Errhandler::returning()),
            _ => None,
        }
    },
    || false
);
object!(
    Request,
    7,
    MPI_REQUEST_NULL,
    "MPI_Request",
    Request,
    |r, h| r.identity.set(h),
    |_| None,
    ferry_mpi::device::is_alone
);
object!(
    Message,
    8,
    MPI_MESSAGE_NULL,
    "MPI_Message",
    Request,
    |_, _| {},
    |_| None,
    ferry_mpi::device::is_alone
);
object!(
    Session,
    9,
    MPI_SESSION_NULL,
    "MPI_Session",
    Session,
    |s, h| s.identity.set(h),
    |_| None,
    || false
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// What a program does with handles.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32, bool),
        /// Frees the so-manieth handle ever made, which may be freed already.
        Remove(prop::sample::Index, bool),
        /// Looks up any bits.
        Look(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (any::<u32>(), any::<bool>()).prop_map(|(v, a)| Step::Insert(v, a)),
            3 => (any::<prop::sample::Index>(), any::<bool>())
                .prop_map(|(w, a)| Step::Remove(w, a)),
            1 => any::<u64>().prop_map(Step::Look),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        #[test]
        fn it_is_a_map_from_handles_never_used_twice(steps in steps()) {
            let table: Table<u32> = Table::new();
            let (mut made, mut live) = (Vec::new(), HashMap::new());
            for step in steps {
                match step {
                    Step::Insert(value, alone) => {
                        let handle = table.insert_if(alone, 9, value);
                        prop_assert!(!made.contains(&handle));
                        made.push(handle);
                        live.insert(handle, value);
                    }
                    Step::Remove(which, alone) if !made.is_empty() => {
                        let handle = *which.get(&made);
                        prop_assert_eq!(table.remove_if(alone, handle), live.remove(&handle));
                    }
                    Step::Remove(..) => {}
                    Step::Look(bits) => prop_assert_eq!(table.get(bits), live.get(&bits)),
                }
            }
            for handle in made {
                prop_assert_eq!(table.get(handle), live.get(&handle));
            }
        }
    }

    #[test]
    fn a_handle_finds_its_value_until_it_is_freed() {
        let table: Table<String> = Table::new();
        let a = table.insert(3, "a".into());
        let b = table.insert(3, "b".into());
        assert!(a >= PREDEFINED && a != b);
        assert_eq!(table.get(a).map(String::as_str), Some("a"));
        assert_eq!(table.remove(a).as_deref(), Some("a"));
        assert_eq!(table.get(a), None);
        assert_eq!(table.remove(a), None);
        let c = table.insert(3, "c".into());
        assert_eq!(c as u32, a as u32, "the slot is used again");
        assert_ne!(c, a);
        assert_eq!(table.get(a), None);
        assert_eq!(table.get(b).map(String::as_str), Some("b"));
    }

    #[test]
    fn made_up_handles_are_recognised() {
        let table: Table<u8> = Table::new();
        let h = table.insert(5, 1);
        for bad in [
            0,
            1,
            4095,
            4096,
            u64::MAX,
            h ^ 1 << 32,
            h ^ 1 << 56,
            h + 1,
            h & 0xffff_ffff,
            0x7fff_1234_5678,
        ] {
            assert_eq!(table.get(bad), None, "{bad:#x}");
            assert_eq!(table.remove(bad), None, "{bad:#x}");
        }
        assert_eq!(table.handle_at(h as u32), Some(h));
        table.remove(h);
        assert_eq!(table.handle_at(h as u32), None);
        assert_eq!(table.handle_at(u32::MAX), None);
    }

    #[test]
    fn it_grows_over_its_chunks() {
        let table: Table<u32> = Table::new();
        let all: Vec<_> = (0..5000).map(|n| table.insert(1, n)).collect();
        for (n, h) in all.iter().enumerate() {
            assert_eq!(table.get(*h), Some(&(n as u32)));
        }
        let places: std::collections::HashSet<_> =
            (0..5000).map(Table::<u32>::chunk_and_offset).collect();
        assert_eq!(places.len(), 5000);
    }

    #[test]
    fn threads_share_it() {
        static TABLE: Table<u64> = Table::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for n in 0..2000 {
                        mine.push((TABLE.insert(2, thread << 32 | n), thread << 32 | n));
                        if n % 3 == 0 {
                            let (h, v) = mine.swap_remove(mine.len() / 2);
                            assert_eq!(TABLE.remove(h), Some(v));
                        }
                    }
                    for (h, v) in mine {
                        assert_eq!(TABLE.get(h), Some(&v));
                        assert_eq!(TABLE.remove(h), Some(v));
                    }
                });
            }
        });
    }
}
