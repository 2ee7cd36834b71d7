//! Operations on up to 8 bytes of memory of a peer on the node that this process does not map.
//!
//! A target that polls in MPI does them itself, in less time than system calls take: the origin
//! leaves them in its update slot ([`UpdateSlot`]). If the target does not, the origin reads and
//! writes its memory. Accumulates happen under the target's accumulate lock in both ways, so that
//! it does not matter which of the two it is, or whether others do the same.
//!
//! [`UpdateSlot`]: crate::device::UpdateSlot

use super::shared_copy::CopyPart;
use super::target::Target;
use super::transfer::peer_error;
use super::{Flavor, TargetBuffer, Win};
use crate::device::{
    self, FindPeer, OfferState, Offered, PeerMemory, ReadError, UPDATE_WORDS, UpdateSlot,
};
use crate::pt2pt::Buffer;
use crate::{Datatype, Op, Result};
use ferry_datatype::Basic;
use ferry_job::RankStatus;
use ferry_op::Predefined;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an origin waits for a target that polls. A choice: about as long as the system calls
/// take.
const OFFER_TIME: Duration = Duration::from_micros(1);
/// How often it polls between two readings of the clock. A choice.
const POLLS_PER_CLOCK: u32 = 8;
/// How often it polls for the end of what the target has begun, before it yields its core each
/// time: the target may have lost its own. A choice: some microseconds.
const POLLS_BEFORE_YIELD: u32 = 200;
/// Yields between two looks whether the target has died. A choice.
const YIELDS_PER_POLL: u32 = 1000;
/// Updates that go by system calls after one that was taken back: the target does something else
/// in MPI than poll. A choice: waiting in vain costs a twentieth then.
const UPDATES_WITHOUT_OFFER: u32 = 16;

/// After so many updates that the target has not done it is woken. A choice: waking takes longer
/// than some updates.
const UPDATES_PER_WAKE: u32 = 8;
/// How often this number doubles while the target is woken in vain. A choice.
const WAKE_DOUBLINGS_MAX: u32 = 10;
/// It is woken only if updates come more often than this. A choice: it polls for a tenth of a
/// millisecond before it sleeps again.
const UPDATE_INTERVAL_NS: u64 = 20_000;

/// Operation of a short update: compare and swap. Others are those of [`Predefined`], and of
/// [`CopyPart`].
const SWAP: u32 = 0;
/// Operation of a short update: copies the origin's bytes.
const COPY: u32 = 1;
/// Operation of a short update: changes nothing.
const READ: u32 = 2;
/// Bytes of a short update.
const MAX_BYTES: usize = 8;

/// A short update: the words of an update slot.
///
/// ```text
/// word 0  bits 0-15 the type, 16-31 the operation, 32- the number of elements (bytes, if copied)
/// word 1  address in the target
/// word 2  the origin's elements
/// word 3  what is compared with
/// ```
#[derive(Clone, Copy)]
pub(super) struct ShortUpdate([u64; UPDATE_WORDS]);

impl ShortUpdate {
    /// The update of an accumulate of elements that are an array at the target and the origin.
    /// `None`: it is not one, or too long, or the operation is not predefined.
    ///
    /// # Safety
    /// The origin is readable.
    pub unsafe fn accumulate(
        op: &Op,
        origin: Option<&Buffer<'_>>,
        at: *mut u8,
        target_buffer: &TargetBuffer<'_>,
    ) -> Option<ShortUpdate> {
        let (basic, _) = elements(target_buffer)?;
        let op = op.predefined_kind()?;
        let value = match origin {
            Some(_) if op == Predefined::NoOp => 0,
            // SAFETY: the caller's promise.
            Some(origin) => unsafe { read(origin.address, target_buffer)? },
            None => 0,
        };
        Some(ShortUpdate::new(
            op as u32,
            basic,
            at,
            target_buffer,
            [value, 0],
        ))
    }

    /// The update of MPI_Compare_and_swap. `None`: the type is too long.
    ///
    /// # Safety
    /// `origin` and `compare` are readable.
    pub unsafe fn compare_and_swap(
        origin: *const u8,
        compare: *const u8,
        at: *mut u8,
        target_buffer: &TargetBuffer<'_>,
    ) -> Option<ShortUpdate> {
        let (basic, _) = elements(target_buffer)?;
        // SAFETY: the caller's promise.
        let values = unsafe { [read(origin, target_buffer)?, read(compare, target_buffer)?] };
        Some(ShortUpdate::new(SWAP, basic, at, target_buffer, values))
    }

    /// The update that copies bytes to the target. `None`: too many.
    pub fn put(at: u64, bytes: &[u8]) -> Option<ShortUpdate> {
        let mut value = [0; MAX_BYTES];
        value.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let what = u64::from(COPY) << 16 | (bytes.len() as u64) << 32;
        Some(ShortUpdate([what, at, u64::from_ne_bytes(value), 0]))
    }

    /// The update that changes nothing, and returns `len` bytes. `None`: too many.
    pub fn get(at: u64, len: usize) -> Option<ShortUpdate> {
        let what = u64::from(READ) << 16 | (len as u64) << 32;
        let fits = (1..=MAX_BYTES).contains(&len);
        fits.then_some(ShortUpdate([what, at, 0, 0]))
    }

    fn new(
        op: u32,
        basic: Basic,
        at: *mut u8,
        target_buffer: &TargetBuffer<'_>,
        [value, compared]: [u64; 2],
    ) -> ShortUpdate {
        let what =
            u64::from(basic.value()) | u64::from(op) << 16 | (target_buffer.count as u64) << 32;
        ShortUpdate([what, at.addr() as u64, value, compared])
    }

    /// Does it replace the elements, whatever they are?
    fn replaces(self) -> bool {
        self.0[0] as u32 >> 16 == Predefined::Replace as u32
    }

    /// Does the update of the elements at `at`. Returns their old values. Does nothing if the words
    /// make no sense.
    ///
    /// # Safety
    /// The elements are writable, and nobody else changes them during the call but by atomics.
    unsafe fn apply(self, at: *mut u8) -> u64 {
        let [what, _, value, compared] = self.0;
        let (mut old, count) = (0u64, (what >> 32) as usize);
        let result: *mut u8 = (&raw mut old).cast();
        let origin: *const u8 = (&raw const value).cast();
        let compare: *const u8 = (&raw const compared).cast();
        let number = what as u32 >> 16;
        if matches!(number, COPY | READ) {
            let len = count.min(MAX_BYTES);
            let (from, to) = match number {
                COPY => (origin, at),
                _ => (at.cast_const(), result),
            };
            // SAFETY: the caller's promise; both the operand and the result have 8 bytes.
            unsafe { ferry_datatype::copy_run(from, to, len) };
            return old;
        }
        let Some(basic) = Basic::of_value(what as u32 & 0xffff) else {
            return 0;
        };
        let size = basic.form().size();
        if count.saturating_mul(size) > MAX_BYTES {
            return 0;
        }
        let atomic = Op::is_atomic(basic) && at.addr().is_multiple_of(size);
        // SAFETY: the caller's promise; the operands and the result have room for 8 bytes.
        unsafe {
            match (Op::predefined(number), atomic) {
                (Some(op), true) => op.apply_atomic(origin, at, Some(result), count, basic),
                (Some(op), false) => {
                    op.fetch_apply(origin, at, Some(result), count, Datatype::basic(basic));
                }
                (None, true) => ferry_op::compare_exchange(basic, compare, origin, at, result),
                (None, false) => {
                    ferry_op::compare_exchange_locked(basic, compare, origin, at, result);
                }
            }
        }
        old
    }
}

/// The elements of a short update: their type, and bytes in all. `None`: they are not predefined,
/// have padding (MPI_SHORT_INT), or are too long.
fn elements(target_buffer: &TargetBuffer<'_>) -> Option<(Basic, usize)> {
    let basic = target_buffer.datatype.basic_kind()?;
    let size = basic.form().size();
    let len = size.checked_mul(usize::try_from(target_buffer.count).ok()?)?;
    let dense = target_buffer.datatype.is_dense();
    (dense && (1..=MAX_BYTES).contains(&len)).then_some((basic, len))
}

/// # Safety
/// The elements at `from` are readable.
unsafe fn read(from: *const u8, target_buffer: &TargetBuffer<'_>) -> Option<u64> {
    let (_, len) = elements(target_buffer)?;
    let mut value = [0; MAX_BYTES];
    // SAFETY: the caller's promise; `len` is at most the array's.
    unsafe { value.as_mut_ptr().copy_from_nonoverlapping(from, len) };
    Some(u64::from_ne_bytes(value))
}

/// Does an update that a peer has left: one of this process's memory in a window.
pub(super) fn serve(find: FindPeer<'_>, words: [u64; UPDATE_WORDS]) -> u64 {
    if let Some(part) = CopyPart::of_words(words) {
        return part.copy(find);
    }
    let at = std::ptr::with_exposed_provenance_mut(words[1] as usize);
    // SAFETY: the origin has found that the elements are in the window, and has its accumulate
    // lock.
    unsafe { ShortUpdate(words).apply(at) }
}

impl Win {
    /// May peers leave updates with this process?
    pub(super) fn has_short_updates(&self) -> bool {
        matches!(self.flavor, Flavor::Create | Flavor::Dynamic) && self.members.len() > 1
    }

    /// Has the target do an update, if it polls. `None`: it does not, and has not done it.
    ///
    /// Errors: the target has died.
    #[inline]
    pub(super) fn offer(
        &self,
        target: &Target,
        update: ShortUpdate,
    ) -> Option<std::result::Result<u64, ReadError>> {
        let slot = target.update_slot?;
        if target.offers.pauses() {
            return None;
        }
        let ended = leave(target, slot, update.0, || {});
        target.offers.note(ended);
        if let Some(member) = target.member
            && target.offers.wakes(RankStatus::now)
        {
            self.wake(&mut device::device(), member);
        }
        match ended {
            Offered::Done(old) => Some(Ok(old)),
            Offered::Abandoned => Some(Err(ReadError::Failed(libc::ESRCH))),
            Offered::TakenBack | Offered::Refused => None,
        }
    }

    /// Gets `len` bytes at `from` from a target that polls. `None`: it does not, or they are too
    /// many.
    ///
    /// # Safety
    /// `to` is writable for them.
    pub(super) unsafe fn get_short(
        &self,
        target: &Target,
        from: u64,
        to: *mut u8,
        len: usize,
    ) -> Option<std::result::Result<(), ReadError>> {
        let done = self.offer(target, ShortUpdate::get(from, len)?)?;
        let copied = done.map(|value| {
            // SAFETY: the caller's promise; at most 8 bytes.
            unsafe { ferry_datatype::copy_run((&raw const value).cast(), to, len) }
        });
        Some(copied)
    }

    /// Does a short update of a peer's memory. The old values go to `result`, if there is one.
    ///
    /// Errors: RmaRange if the memory cannot be accessed.
    ///
    /// # Safety
    /// `result` is writable for the elements.
    pub(super) unsafe fn update_short(
        &self,
        (target, memory): (&Target, PeerMemory),
        update: ShortUpdate,
        result: Option<*mut u8>,
        target_buffer: &TargetBuffer<'_>,
        call: &str,
    ) -> Result<()> {
        let len = elements(target_buffer).map_or(0, |(_, len)| len);
        let old = self.with_accumulate_lock(target, || match self.offer(target, update) {
            Some(done) => done,
            None => update_by_copies(memory, update, len, result.is_some()),
        });
        let old = old.map_err(|e| peer_error(e, target, call))?.to_ne_bytes();
        if let Some(result) = result {
            // SAFETY: the caller's promise.
            unsafe { result.copy_from_nonoverlapping(old.as_ptr(), len) };
        }
        Ok(())
    }
}

/// What became of the updates that one origin was to leave with a target.
#[derive(Default)]
pub(super) struct Offers {
    /// So many updates are not offered from now on.
    paused: AtomicU32,
    /// Updates since the last that the target did, or since the target was woken.
    refused: AtomicU32,
    /// How often the target was woken since the last update that it did.
    woken: AtomicU32,
    /// When the first of those that were refused came, nanoseconds.
    since_ns: AtomicU64,
}

impl Offers {
    /// Is the next update not to be offered?
    #[inline]
    pub fn pauses(&self) -> bool {
        let left = self.paused.load(Ordering::Relaxed);
        if left > 0 {
            self.paused.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// The next updates are not offered.
    pub fn pause(&self) {
        self.paused.store(UPDATES_WITHOUT_OFFER, Ordering::Relaxed);
    }

    /// Notes what became of an update.
    #[inline]
    fn note(&self, ended: Offered) {
        let (refused, woken) = (&self.refused, &self.woken);
        match ended {
            Offered::Done(_) if refused.load(Ordering::Relaxed) != 0 => {
                refused.store(0, Ordering::Relaxed);
                woken.store(0, Ordering::Relaxed);
            }
            Offered::Done(_) | Offered::Abandoned => {}
            Offered::Refused => {
                refused.fetch_add(1, Ordering::Relaxed);
            }
            Offered::TakenBack => self.pause(),
        }
    }

    /// Is the target to be woken, if it sleeps in MPI? It is if updates follow each other closely.
    /// While it is woken in vain, the number of updates doubles. `now`: the clock, nanoseconds.
    #[inline]
    fn wakes(&self, now: impl FnOnce() -> u64) -> bool {
        let refused = self.refused.load(Ordering::Relaxed);
        let woken = self.woken.load(Ordering::Relaxed);
        if refused == 1 {
            self.since_ns.store(now(), Ordering::Relaxed);
            return false;
        }
        if refused < UPDATES_PER_WAKE << woken.min(WAKE_DOUBLINGS_MAX) {
            return false;
        }
        let elapsed = now().saturating_sub(self.since_ns.load(Ordering::Relaxed));
        self.refused.store(0, Ordering::Relaxed);
        let wakes = elapsed / u64::from(refused) < UPDATE_INTERVAL_NS;
        if wakes {
            self.woken.store(woken + 1, Ordering::Relaxed);
        }
        wakes
    }
}

/// Leaves an update with a target that polls. Does `meanwhile`, again and again, while it waits.
#[inline]
pub(super) fn leave(
    target: &Target,
    slot: &UpdateSlot,
    words: [u64; UPDATE_WORDS],
    mut meanwhile: impl FnMut(),
) -> Offered {
    let (since, polls) = (Cell::new(None), Cell::new(0u32));
    slot.offer(words, |state| {
        meanwhile();
        polls.set(polls.get() + 1);
        match state {
            OfferState::Offered => {
                std::hint::spin_loop();
                if !polls.get().is_multiple_of(POLLS_PER_CLOCK) {
                    return true;
                }
                let now = Instant::now();
                let first = since.get().unwrap_or(now);
                since.set(Some(first));
                now - first < OFFER_TIME
            }
            OfferState::Taken if polls.get() < POLLS_BEFORE_YIELD => {
                std::hint::spin_loop();
                true
            }
            OfferState::Taken => {
                std::thread::yield_now();
                !polls.get().is_multiple_of(YIELDS_PER_POLL)
                    || device::poll_once(|d| d.is_lost(target.process).then_some(())).is_none()
            }
        }
    })
}

/// Does an update of a peer's memory by system calls. Returns the old values, if they are wanted.
fn update_by_copies(
    memory: PeerMemory,
    update: ShortUpdate,
    len: usize,
    wants_old: bool,
) -> std::result::Result<u64, ReadError> {
    let mut value = 0u64;
    let here: *mut u8 = (&raw mut value).cast();
    let there = [(update.0[1], len)];
    if update.replaces() && !wants_old {
        let new: *const u8 = (&raw const update.0[2]).cast();
        // SAFETY: a word has room for the elements.
        unsafe { memory.write(&[(new, len)], &there) }?;
        return Ok(0);
    }
    // SAFETY: `value` has room for the elements.
    unsafe { memory.read(&there, &[(here, len)]) }?;
    let before = value;
    // SAFETY: as above.
    let old = unsafe { update.apply(here) };
    if value != before {
        // SAFETY: as above.
        unsafe { memory.write(&[(here.cast_const(), len)], &there) }?;
    }
    Ok(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn target_buffer(datatype: &Arc<Datatype>, count: i64) -> TargetBuffer<'_> {
        TargetBuffer {
            rank: 0,
            disp: 0,
            count,
            datatype,
        }
    }

    /// The update of `memory` by `op` with `value`, and the old value.
    fn updated<T: Copy>(op: Predefined, basic: Basic, memory: &mut [T], value: &[T]) -> u64 {
        let t = Datatype::basic(basic);
        let target_buffer = target_buffer(t, value.len() as i64);
        let at: *mut u8 = memory.as_mut_ptr().cast();
        let origin = Buffer {
            address: value.as_ptr().cast_mut().cast(),
            count: value.len() as i64,
            datatype: t,
        };
        // SAFETY: arrays of the type.
        unsafe {
            let update =
                ShortUpdate::accumulate(Op::of(op), Some(&origin), at, &target_buffer).unwrap();
            update.apply(at)
        }
    }

    #[test]
    fn each_size_is_updated_and_its_neighbours_are_not() {
        let mut bytes = [1u8, 2, 3, 4];
        let old = updated(Predefined::Sum, Basic::Uint8, &mut bytes[1..], &[5]);
        assert_eq!((bytes, old.to_ne_bytes()[0]), ([1, 7, 3, 4], 2));
        let mut ints = [1i32, 2, 3, 4];
        let old = updated(Predefined::Max, Basic::Int32, &mut ints[1..], &[7, -7]);
        assert_eq!(ints, [1, 7, 3, 4]);
        assert_eq!(
            old,
            u64::from_ne_bytes([2i32, 3].map(i32::to_ne_bytes).concat().try_into().unwrap())
        );
        let mut doubles = [1.5f64, 2.5];
        let old = updated(Predefined::Prod, Basic::Double, &mut doubles, &[4.0]);
        assert_eq!((doubles, f64::from_bits(old)), ([6.0, 2.5], 1.5));
    }

    #[test]
    fn bytes_are_put_and_got() {
        let mut bytes = *b"0123456789abcdef";
        let at = bytes.as_mut_ptr();
        let put = ShortUpdate::put(1, b"xyz").unwrap();
        // SAFETY: within the array.
        unsafe { put.apply(at.add(1)) };
        let get = ShortUpdate::get(1, 8).unwrap();
        // SAFETY: as above.
        let got = unsafe { get.apply(at) };
        assert_eq!(got.to_ne_bytes(), *b"0xyz4567");
        assert_eq!(bytes, *b"0xyz456789abcdef");
        assert!(ShortUpdate::put(1, &[0; 9]).is_none() && ShortUpdate::get(1, 9).is_none());
    }

    #[test]
    fn what_lies_askew_is_updated_too() {
        let mut bytes = [0u8; 16];
        let at = bytes[3..].as_mut_ptr();
        let t = Datatype::basic(Basic::Int64);
        let (one, two) = (1i64, 2i64);
        let (one, two): (*const u8, *const u8) = ((&raw const one).cast(), (&raw const two).cast());
        let target_buffer = target_buffer(t, 1);
        // SAFETY: 8 bytes each.
        unsafe {
            let zero = [0u8; 8];
            let swap =
                ShortUpdate::compare_and_swap(one, zero.as_ptr(), at, &target_buffer).unwrap();
            assert_eq!((swap.apply(at), swap.apply(at)), (0, 1));
            let swap = ShortUpdate::compare_and_swap(two, one, at, &target_buffer).unwrap();
            assert_eq!((swap.apply(at), swap.apply(at)), (1, 2));
        }
        assert_eq!(i64::from_ne_bytes(bytes[3..11].try_into().unwrap()), 2);
        assert!(bytes[..3].iter().chain(&bytes[11..]).all(|b| *b == 0));
    }

    /// How many of `updates` updates that come `apart_ns` apart wake the target.
    fn wakes(offers: &Offers, updates: u64, apart_ns: u64) -> usize {
        let one = |i: &u64| {
            offers.note(Offered::Refused);
            offers.wakes(|| i * apart_ns)
        };
        (0..updates).filter(one).count()
    }

    #[test]
    fn who_sleeps_is_woken_for_updates_that_follow_each_other_closely() {
        let offers = Offers::default();
        assert_eq!(wakes(&offers, 1000, 1_000_000), 0);
        // After 8, then after 16 more, and so on: the target does none.
        assert_eq!(wakes(&offers, 8 * 127, 1000), 7);
        offers.note(Offered::Refused);
        offers.note(Offered::Done(1));
        assert_eq!((wakes(&offers, 7, 1), wakes(&offers, 1, 1)), (0, 1));
    }

    #[test]
    fn what_is_taken_back_makes_a_pause() {
        let offers = Offers::default();
        assert!(!offers.pauses());
        offers.note(Offered::TakenBack);
        let paused = (0..100).take_while(|_| offers.pauses()).count();
        assert_eq!(paused, UPDATES_WITHOUT_OFFER as usize);
    }

    #[test]
    fn long_updates_are_not_short() {
        let (at, op) = (std::ptr::dangling_mut(), Op::of(Predefined::Sum));
        for (basic, count, short) in [
            (Basic::Int64, 1, true),
            (Basic::Int64, 2, false),
            (Basic::Int32, 2, true),
            (Basic::Int32, 0, false),
            (Basic::Int8, 8, true),
            (Basic::Int8, 9, false),
            (Basic::Int8, i64::MAX, false),
            (Basic::CDoubleComplex, 1, false),
            (Basic::ShortInt, 1, false),
            (Basic::FloatInt, 1, true),
        ] {
            let target_buffer = target_buffer(Datatype::basic(basic), count);
            // SAFETY: without an origin nothing is read.
            let update = unsafe { ShortUpdate::accumulate(op, None, at, &target_buffer) };
            assert_eq!(update.is_some(), short, "{count} {basic:?}");
        }
    }
}
