//! MPI_Accumulate, MPI_Get_accumulate, MPI_Fetch_and_op, MPI_Compare_and_swap and their forms with
//! requests (MPI 5.0 §12.3.3 to §12.3.5).
//!
//! Each element is updated atomically. In memory that all its users map, a CPU atomic does that
//! where there is one. Otherwise the target's accumulate lock is held. Operations of one origin
//! take effect in their order.

use super::remote::Update;
use super::short_update::ShortUpdate;
use super::target::{Reach, Target};
use super::transfer::{complete_request, copy_peer, direct, passive, peer_error, same_size};
use super::{RmaCall, TargetBuffer, Win, remote};
use crate::buffer::message_len;
use crate::device::PeerMemory;
use crate::pt2pt::Buffer;
use crate::request::Request;
use crate::{Datatype, Op, Result, err};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use std::sync::Arc;

/// Bytes of the largest predefined type.
const ELEMENT_MAX_BYTES: usize = 64;

/// What an accumulate reads and writes at the origin.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    /// What is combined with the target. `None` for MPI_NO_OP without one.
    pub origin: Option<Buffer<'a>>,
    /// Where the target's old values go.
    pub result: Option<Buffer<'a>>,
}

impl Win {
    /// Starts an accumulate: `target = origin op target`. Complete on return if the target is on
    /// this node.
    ///
    /// Errors: as [`Win::put`]; Op or Type if the operation is not defined on the target's
    /// elements.
    ///
    /// # Safety
    /// The origin is readable and the result writable until it is complete. They do not overlap.
    #[inline(always)]
    pub unsafe fn accumulate(
        self: &Arc<Win>,
        operands: Operands<'_>,
        target_buffer: TargetBuffer<'_>,
        op: &Arc<Op>,
        call: &'static str,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.update(operands, op, RmaCall::new(&target_buffer, call)) }.map(drop)
    }

    /// [`Win::accumulate`] with a request (MPI_Raccumulate, MPI_Rget_accumulate).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn raccumulate(
        self: &Arc<Win>,
        operands: Operands<'_>,
        target_buffer: TargetBuffer<'_>,
        op: &Arc<Op>,
        call: &'static str,
    ) -> Result<Arc<Request>> {
        // SAFETY: the caller's promise.
        let started =
            unsafe { self.update(operands, op, RmaCall::with_request(&target_buffer, call)) }?;
        Ok(started.unwrap_or_else(complete_request))
    }

    /// # Safety
    /// As for `accumulate`.
    #[inline(always)]
    unsafe fn update(
        self: &Arc<Win>,
        operands: Operands<'_>,
        op: &Arc<Op>,
        rma: RmaCall<'_>,
    ) -> Result<Option<Arc<Request>>> {
        let target_buffer = rma.target_buffer;
        let target = self.open_target(target_buffer.rank, rma.call)?;
        if rma.wants_request {
            passive(target, rma.call)?;
        }
        if target.atomics
            && let Some(basic) = target_buffer.datatype.basic_kind()
            && Op::is_atomic(basic)
            && let Some((at, _)) = direct(target, target_buffer)
            && at.addr() & (target_buffer.datatype.size() as usize - 1) == 0
            && is_array_of(&operands.origin, target_buffer)
            && is_array_of(&operands.result, target_buffer)
        {
            op.check_accumulate(target_buffer.datatype)?;
            let origin = operands
                .origin
                .map_or(std::ptr::null(), |o| o.address.cast_const());
            let result = operands.result.map(|r| r.address);
            // SAFETY: the caller's promise; the target's range was checked, and it is aligned to
            // its size, which is a power of two for what has atomics.
            unsafe { op.apply_atomic(origin, at, result, target_buffer.count as usize, basic) };
            if result.is_none() && op.predefined_kind() == Some(Predefined::Replace) {
                target.note_stores();
            }
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe { self.update_other(target, operands, op, rma) }
    }

    /// An accumulate that no CPU atomics do.
    ///
    /// # Safety
    /// As for `accumulate`.
    #[inline(never)]
    unsafe fn update_other(
        self: &Arc<Win>,
        target: &Target,
        operands: Operands<'_>,
        op: &Arc<Op>,
        rma: RmaCall<'_>,
    ) -> Result<Option<Arc<Request>>> {
        let RmaCall {
            target_buffer,
            call,
            ..
        } = rma;
        let at = self.locate(target, target_buffer, call)?;
        self.drain_puts(target)?;
        if target_buffer.count > 0 {
            check_elements(op, target_buffer.datatype, call)?;
        }
        let reads_origin = op.predefined_kind() != Some(Predefined::NoOp);
        let operands = Operands {
            origin: operands.origin.filter(|_| reads_origin),
            ..operands
        };
        if let Some(origin) = &operands.origin {
            same_size(origin, target_buffer.count, target_buffer.datatype, call)?;
        }
        if let Some(result) = &operands.result {
            same_size(result, target_buffer.count, target_buffer.datatype, call)?;
        }
        if target.reach == Reach::Remote {
            // SAFETY: the caller's promise.
            return unsafe { remote::accumulate(self, target, operands, Update::Op(op), rma) };
        }
        let len = message_len(target_buffer.count, target_buffer.datatype);
        if len == 0 {
            return Ok(None);
        }
        let is_array = is_array_of(&operands.origin, target_buffer)
            && is_array_of(&operands.result, target_buffer);
        if let Reach::Peer(memory) = target.reach
            && is_array
        {
            // SAFETY: the caller's promise.
            let short =
                unsafe { ShortUpdate::accumulate(op, operands.origin.as_ref(), at, target_buffer) };
            if let Some(update) = short {
                let (peer, result) = ((target, memory), operands.result.map(|r| r.address));
                // SAFETY: the caller's promise.
                return unsafe { self.update_short(peer, update, result, target_buffer, call) }
                    .map(|()| None);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.update_packed(target, operands, op, at, rma) }.map(|()| None)
    }

    /// An accumulate on memory of this node, with packed operands. `at`: what [`Win::locate`] has
    /// found.
    ///
    /// # Safety
    /// As for `accumulate`.
    unsafe fn update_packed(
        &self,
        target: &Target,
        operands: Operands<'_>,
        op: &Op,
        at: *mut u8,
        rma: RmaCall<'_>,
    ) -> Result<()> {
        let RmaCall {
            target_buffer,
            call,
            ..
        } = rma;
        let len = message_len(target_buffer.count, target_buffer.datatype);
        // SAFETY: the caller's promise.
        let packed = operands
            .origin
            .map(|origin| unsafe { Packed::of(&origin, len) });
        let from = packed.as_ref().map_or(std::ptr::null(), Packed::address);
        let mut old = operands.result.map(|result| Packed::room(&result, len));
        let to = old.as_mut().map(Packed::address_mut);
        match target.reach {
            Reach::Mapped => {
                let elements = (at, target_buffer.count, &**target_buffer.datatype);
                let needs_lock =
                    !target.atomics || Op::needs_lock((at.cast_const(), elements.1, elements.2));
                // SAFETY: the target's range was checked; operands are packed, and long enough.
                let apply = || unsafe { op.accumulate(from, elements, to, target.atomics) };
                if needs_lock {
                    self.with_accumulate_lock(target, apply);
                } else {
                    apply();
                }
                target.note_stores();
            }
            Reach::Peer(memory) => {
                let elements = (at, target_buffer.count, &**target_buffer.datatype);
                let kind = op.predefined_kind();
                let writes = kind != Some(Predefined::NoOp);
                self.with_accumulate_lock(target, || {
                    if kind == Some(Predefined::Replace) && to.is_none() {
                        let packed = (from.cast_mut(), len as i64, &**Datatype::basic(Basic::Byte));
                        // SAFETY: the operands are packed, and have so many bytes.
                        return unsafe { copy_peer(memory, true, packed, elements) };
                    }
                    update_peer(memory, elements, writes, |values, element| {
                        let stride = element.extent();
                        let n = len / element.size().max(1) as usize;
                        // SAFETY: `values` are as many elements as the operands have.
                        unsafe { op.fetch_apply_packed(from, (values, stride), to, n, element) };
                    })
                })
                .map_err(|e| peer_error(e, target, call))?;
            }
            Reach::Remote => {}
        }
        if let (Some(old), Some(result)) = (&old, &operands.result) {
            // SAFETY: the caller's promise.
            unsafe { old.unpack_into(result) };
        }
        Ok(())
    }

    /// MPI_Compare_and_swap of one element. Each buffer has one element of the target's type.
    ///
    /// Errors: as [`Win::accumulate`]; Type if the type is not one that is compared.
    ///
    /// # Safety
    /// `origin` and `compare` are readable and `result` is writable until it is complete.
    #[inline]
    pub unsafe fn compare_and_swap(
        self: &Arc<Win>,
        origin: *const u8,
        compare: *const u8,
        result: *mut u8,
        target_buffer: TargetBuffer<'_>,
    ) -> Result<()> {
        let call = "MPI_Compare_and_swap";
        let target = self.open_target(target_buffer.rank, call)?;
        if target.atomics
            && let Some(basic) = target_buffer.datatype.basic_kind()
            && Op::is_atomic(basic)
            && let Some((at, size)) = direct(target, &target_buffer)
            && at.addr() & (size - 1) == 0
        {
            ferry_op::check_compare_and_swap(target_buffer.datatype)?;
            // SAFETY: the caller's promise; the target's range was checked, and it is aligned.
            unsafe { ferry_op::compare_exchange(basic, compare, origin, at, result) };
            return Ok(());
        }
        let at = self.locate(target, &target_buffer, call)?;
        self.drain_puts(target)?;
        ferry_op::check_compare_and_swap(target_buffer.datatype)?;
        let Some(basic) = target_buffer.datatype.basic_kind() else {
            return Ok(());
        };
        let size = basic.form().size();
        if target.reach == Reach::Mapped {
            if target.atomics && Op::is_atomic(basic) && at.addr().is_multiple_of(size) {
                // SAFETY: the caller's promise; the target's range was checked, and it is aligned.
                unsafe { ferry_op::compare_exchange(basic, compare, origin, at, result) };
            } else {
                self.with_accumulate_lock(target, || {
                    // SAFETY: as above, and this process has the target's lock.
                    unsafe { ferry_op::compare_exchange_locked(basic, compare, origin, at, result) }
                });
            }
            return Ok(());
        }
        let one = |address: *mut u8| Buffer {
            address,
            count: 1,
            datatype: target_buffer.datatype,
        };
        if let Reach::Peer(memory) = target.reach {
            // SAFETY: the caller's promise.
            let short =
                unsafe { ShortUpdate::compare_and_swap(origin, compare, at, &target_buffer) };
            if let Some(update) = short {
                let peer = (target, memory);
                // SAFETY: the caller's promise.
                return unsafe {
                    self.update_short(peer, update, Some(result), &target_buffer, call)
                };
            }
            let elements = (at, 1, &**target_buffer.datatype);
            let copied = self.with_accumulate_lock(target, || {
                update_peer(memory, elements, true, |value, _| {
                    // SAFETY: the caller's promise; `value` is one element.
                    unsafe {
                        ferry_op::compare_exchange_locked(basic, compare, origin, value, result);
                    }
                })
            });
            return copied.map_err(|e| peer_error(e, target, call));
        }
        let operands = Operands {
            origin: Some(one(origin.cast_mut())),
            result: Some(one(result)),
        };
        let (update, rma) = (
            Update::CompareAndSwap(compare),
            RmaCall::new(&target_buffer, call),
        );
        // SAFETY: the caller's promise.
        unsafe { remote::accumulate(self, target, operands, update, rma) }.map(drop)
    }
}

/// Is the buffer an array like the target's, or none?
#[inline]
fn is_array_of(buffer: &Option<Buffer<'_>>, target_buffer: &TargetBuffer<'_>) -> bool {
    buffer.as_ref().is_none_or(|b| {
        b.count == target_buffer.count && Arc::ptr_eq(b.datatype, target_buffer.datatype)
    })
}

/// Checks that an operation is defined on the elements of a type.
///
/// Errors: Op, Type.
fn check_elements(op: &Op, datatype: &Datatype, call: &str) -> Result<()> {
    match element_of(datatype) {
        Some(element) => Ok(op.check_accumulate(&element)?),
        None if datatype.size() == 0 => Ok(()),
        None => Err(err!(
            Type,
            "{call}: the target's datatype is made of several predefined types, but has to be made \
             of one"
        )),
    }
}

/// Packed operands: the program's memory if it is one run, otherwise a copy.
enum Packed {
    InPlace(*mut u8),
    Copy(Vec<u8>),
}

impl Packed {
    /// The elements of a buffer.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn of(buffer: &Buffer<'_>, len: usize) -> Packed {
        match crate::buffer::run(buffer.address, buffer.count, buffer.datatype) {
            Some(at) => Packed::InPlace(at),
            None => {
                let mut bytes = vec![0; len];
                // SAFETY: the caller's promise.
                unsafe {
                    buffer
                        .datatype
                        .pack(buffer.address, buffer.count, 0, &mut bytes)
                };
                Packed::Copy(bytes)
            }
        }
    }

    /// Room for what is to be unpacked into a buffer.
    fn room(buffer: &Buffer<'_>, len: usize) -> Packed {
        match crate::buffer::run(buffer.address, buffer.count, buffer.datatype) {
            Some(at) => Packed::InPlace(at),
            None => Packed::Copy(vec![0; len]),
        }
    }

    fn address(&self) -> *const u8 {
        match self {
            Packed::InPlace(at) => *at,
            Packed::Copy(bytes) => bytes.as_ptr(),
        }
    }

    fn address_mut(&mut self) -> *mut u8 {
        match self {
            Packed::InPlace(at) => *at,
            Packed::Copy(bytes) => bytes.as_mut_ptr(),
        }
    }

    /// # Safety
    /// The buffer is writable.
    unsafe fn unpack_into(&self, buffer: &Buffer<'_>) {
        if let Packed::Copy(bytes) = self {
            // SAFETY: the caller's promise.
            unsafe {
                buffer
                    .datatype
                    .unpack(buffer.address, buffer.count, 0, bytes)
            };
        }
    }
}

/// Reads a peer's elements into an array, lets `f` change it, and writes them back if `writes`. `f`
/// gets the array's address and the type of its elements. The caller has the target's lock.
fn update_peer(
    memory: PeerMemory,
    (at, count, datatype): (*mut u8, i64, &Datatype),
    writes: bool,
    f: impl FnOnce(*mut u8, &Arc<Datatype>),
) -> std::result::Result<(), crate::device::ReadError> {
    let Some(element) = element_of(datatype) else {
        return Ok(());
    };
    let len = message_len(count, datatype);
    let (mut few, mut many) = ([0u64; ELEMENT_MAX_BYTES / 8], Vec::new());
    let n = (len / element.size().max(1) as usize) as i64;
    let bytes = (n as usize).saturating_mul(element.extent().max(1) as usize);
    let array: *mut u8 = if bytes <= ELEMENT_MAX_BYTES {
        few.as_mut_ptr().cast()
    } else {
        many.resize(bytes.div_ceil(8), 0u64);
        many.as_mut_ptr().cast()
    };
    let (here, there) = ((array, n, &*element), (at, count, datatype));
    // SAFETY: the array has room for n elements.
    unsafe { copy_peer(memory, false, here, there) }?;
    f(array, &element);
    if !writes {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { copy_peer(memory, true, here, there) }
}

/// The predefined type of all elements of a type, if they have one.
pub(super) fn element_of(datatype: &Datatype) -> Option<Arc<Datatype>> {
    match (datatype.basic_kind(), datatype.pair()) {
        (Some(basic), _) => Some(Datatype::basic(basic).clone()),
        (None, Some((value, index))) => {
            let (value, index) = (Datatype::basic(value), Datatype::basic(index));
            Datatype::value_index(value, index).ok().flatten()
        }
        (None, None) => datatype
            .uniform_basic()
            .map(|basic| Datatype::basic(basic).clone()),
    }
}
