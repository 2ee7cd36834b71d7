//! The origin's operations: puts, gets and accumulates become records of packets, or messages with
//! their data.

use super::card::charge;
use super::packets::{BYTES, Elements, Request as Record, put_head};
use super::pending::{
    AwaitedResponse, DataMessage, Destination, RemoteOperation, UNACKNOWLEDGED_MAX_BYTES, append,
    dense, lock,
};
use super::synchronisation::flush;
use super::{GET_NUMBER, Update, card};
use crate::buffer::{message_len, run, sink, source};
use crate::device::{self, Key, Pattern, SendMode, Tags};
use crate::pt2pt::Buffer;
use crate::win::accumulate::{Operands, element_of};
use crate::win::target::Target;
use crate::win::transfer::Way;
use crate::win::{Flavor, RmaCall, TargetBuffer, Win};
use crate::{Datatype, Request, Result};
use ferry_op::Predefined;
use std::borrow::Cow;
use std::sync::Arc;

/// The elements of a target buffer: where they begin, how many, and their type. They begin so many
/// bytes from the beginning of the target's memory, or at that address in a dynamic window.
fn elements_of<'a>(
    target_buffer: &TargetBuffer<'a>,
    win: &Win,
    target: &Target,
) -> (i64, i64, &'a Arc<Datatype>) {
    let offset = match win.flavor {
        Flavor::Dynamic => target_buffer.disp,
        _ => target_buffer.disp.wrapping_mul(target.disp_unit),
    };
    (offset, target_buffer.count, target_buffer.datatype)
}

/// The request of an operation that waits, if the program wants one.
fn operation_for(win: &Arc<Win>, target: &Target, wants: bool) -> Option<Arc<RemoteOperation>> {
    wants.then(|| RemoteOperation::new(win, target.rank))
}

fn request_of(operation: Option<Arc<RemoteOperation>>) -> Option<Arc<Request>> {
    operation.map(|operation| Request::work(None, operation))
}

/// Keeps what a target has not acknowledged within bounds.
fn throttle(win: &Win, target: &Target) -> Result<()> {
    if lock(&target.pending).unacknowledged_bytes < UNACKNOWLEDGED_MAX_BYTES {
        return Ok(());
    }
    flush(win, target)
}

/// Starts a put or a get: by the card if that does it, otherwise by packets.
///
/// # Safety
/// The origin is readable, or writable for a get, until it is complete.
pub(in crate::win) unsafe fn transfer(
    win: &Arc<Win>,
    target: &Target,
    way: Way,
    origin: &Buffer<'_>,
    target_buffer: &TargetBuffer<'_>,
    wants_request: bool,
) -> Result<Option<Arc<Request>>> {
    let len = message_len(origin.count, origin.datatype);
    if len == 0 {
        return Ok(None);
    }
    if target.key.is_some() {
        // SAFETY: the caller's promise.
        let done = unsafe { card::transfer(win, target, way, origin, target_buffer, len) }?;
        if done {
            return Ok(None);
        }
    }
    let start = match way {
        Way::Put => put,
        Way::Get => get,
    };
    // SAFETY: the caller's promise.
    unsafe { start(win, target, origin, target_buffer, len, wants_request) }
}

/// Starts a put by packets.
///
/// # Safety
/// As for [`transfer`].
unsafe fn put(
    win: &Arc<Win>,
    target: &Target,
    origin: &Buffer<'_>,
    target_buffer: &TargetBuffer<'_>,
    len: usize,
    wants_request: bool,
) -> Result<Option<Arc<Request>>> {
    let there = elements_of(target_buffer, win, target);
    let mut pending = lock(&target.pending);
    if let Some(elements) = dense(there)
        && pending.has_room(len)
        && win.card.put_max == 0
    {
        let out = pending.record(win);
        put_head(out, elements, len);
        // SAFETY: the caller's promise.
        unsafe { append(out, origin, len) };
        return Ok(None);
    }
    drop(pending);
    throttle(win, target)?;
    let d = &mut *device::device();
    let mut pending = lock(&target.pending);
    pending.prepare(target, d)?;
    let elements = pending.elements(win, target, d, there)?;
    if len <= pending.inline_max() {
        pending.make_room(win, target, d, len);
        charge(d, (origin.address, origin.count, origin.datatype), false);
        let out = pending.record(win);
        put_head(out, elements, len);
        // SAFETY: the caller's promise.
        unsafe { append(out, origin, len) };
        return Ok(None);
    }
    let number = pending.next_data_number();
    pending.make_room(win, target, d, 0);
    Record::LargePut(elements, number).put(pending.record(win));
    pending.send(win, target, d);
    let key = Key {
        context: win.comm.context,
        source: win.rank(),
        tag: number,
    };
    let data = source(origin.address, origin.count, origin.datatype);
    // SAFETY: the caller's promise.
    let Some(req) = (unsafe { d.send(target.process, key, data, SendMode::Standard) }) else {
        return Ok(None);
    };
    let operation = operation_for(win, target, wants_request);
    pending.push_data_message(DataMessage {
        req,
        number: None,
        operation: operation.clone(),
    });
    Ok(request_of(operation))
}

/// Starts a get by packets.
///
/// # Safety
/// As for [`transfer`].
unsafe fn get(
    win: &Arc<Win>,
    target: &Target,
    origin: &Buffer<'_>,
    target_buffer: &TargetBuffer<'_>,
    len: usize,
    wants_request: bool,
) -> Result<Option<Arc<Request>>> {
    throttle(win, target)?;
    let there = elements_of(target_buffer, win, target);
    let operation = operation_for(win, target, wants_request);
    let d = &mut *device::device();
    let mut pending = lock(&target.pending);
    pending.prepare(target, d)?;
    let elements = pending.elements(win, target, d, there)?;
    pending.make_room(win, target, d, 0);
    if len <= pending.inline_max() {
        Record::Get(elements).put(pending.record(win));
        pending.push_awaited(AwaitedResponse {
            destination: Destination::whole(origin, len),
            operation: operation.clone(),
            last: true,
        });
        return Ok(request_of(operation));
    }
    let number = pending.next_data_number() | GET_NUMBER;
    let pattern = Pattern {
        context: win.comm.context,
        source: Some(target.rank),
        tag: Tags::one(number),
    };
    let room = sink(origin.address, origin.count, origin.datatype);
    // SAFETY: the caller's promise.
    let req = unsafe { d.receive_from(target.process, pattern, room) };
    Record::LargeGet(elements, number).put(pending.record(win));
    pending.send(win, target, d);
    pending.push_data_message(DataMessage {
        req,
        number: Some(number),
        operation: operation.clone(),
    });
    Ok(request_of(operation))
}

/// A part of an accumulate: elements at the target, and the packed operands that belong to them.
struct Part<'a> {
    at: (i64, i64, &'a Arc<Datatype>),
    /// Packed bytes before it.
    offset: usize,
    len: usize,
}

/// Calls `f` for parts of at most `max` bytes, in order.
fn in_parts(
    (offset, count, datatype): (i64, i64, &Arc<Datatype>),
    max: usize,
    mut f: impl FnMut(Part<'_>) -> Result<()>,
) -> Result<()> {
    let len = message_len(count, datatype);
    if len <= max {
        let at = (offset, count, datatype);
        return f(Part { at, offset: 0, len });
    }
    let Some(element) = element_of(datatype) else {
        return Ok(());
    };
    let size = element.size().max(1) as usize;
    let (mut done, mut result) = (0, Ok(()));
    // Only its distance from the beginning matters.
    let base = std::ptr::without_provenance_mut::<u8>(offset as usize);
    datatype.elements_at(base, count, |at, n, stride| {
        let step = if stride == element.extent() {
            (max / size).max(1) as i64
        } else {
            1
        };
        let (mut first, n) = (0, n as i64);
        while first < n && result.is_ok() {
            let count = step.min(n - first);
            let at = (at.addr() as i64).wrapping_add(first.wrapping_mul(stride));
            let len = count as usize * size;
            let at = (at, count, &element);
            let offset = done;
            result = f(Part { at, offset, len });
            done += len;
            first += count;
        }
    });
    result
}

/// The operands of an accumulate as its packets carry them, `len` bytes each: those of the origin,
/// in place if they are contiguous; of MPI_Compare_and_swap first what it compares with.
///
/// # Safety
/// The origin is readable, and does not change while what is returned is used.
unsafe fn packed_operands<'a>(
    update: Update<'_>,
    origin: Option<&Buffer<'a>>,
    len: usize,
) -> Cow<'a, [u8]> {
    let Some(origin) = origin else {
        return Cow::Borrowed(&[]);
    };
    let mut packed = Vec::new();
    match update {
        Update::Op(_) => {
            if let Some(at) = run(origin.address, origin.count, origin.datatype) {
                // SAFETY: the caller's promise.
                return Cow::Borrowed(unsafe { std::slice::from_raw_parts(at, len) });
            }
        }
        Update::CompareAndSwap(compare) => {
            // SAFETY: the caller's promise: it is one element.
            packed.extend_from_slice(unsafe { std::slice::from_raw_parts(compare, len) });
        }
    }
    // SAFETY: the caller's promise.
    unsafe { append(&mut packed, origin, len) };
    Cow::Owned(packed)
}

/// Starts an accumulate.
///
/// # Safety
/// The origin is readable and the result writable until it is complete.
pub(in crate::win) unsafe fn accumulate(
    win: &Arc<Win>,
    target: &Target,
    operands: Operands<'_>,
    update: Update<'_>,
    rma: RmaCall<'_>,
) -> Result<Option<Arc<Request>>> {
    let Operands { origin, result } = operands;
    let RmaCall {
        target_buffer,
        wants_request,
        ..
    } = rma;
    let len = message_len(target_buffer.count, target_buffer.datatype);
    if len == 0 {
        return Ok(None);
    }
    throttle(win, target)?;
    let there = elements_of(target_buffer, win, target);
    // SAFETY: the caller's promise.
    let packed = unsafe { packed_operands(update, origin.as_ref(), len) };
    let data = &*packed;
    let op = match update {
        Update::Op(op) if origin.is_some() => op.predefined_kind().unwrap_or(Predefined::NoOp),
        _ => Predefined::NoOp,
    };
    let operation = operation_for(win, target, wants_request && result.is_some());
    let d = &mut *device::device();
    if let Some(origin) = &origin {
        charge(d, (origin.address, origin.count, origin.datatype), false);
    }
    let mut pending = lock(&target.pending);
    pending.prepare(target, d)?;
    let max = pending.inline_max();
    in_parts(there, max, |part| {
        let (offset, count, datatype) = part.at;
        let elements = Elements {
            offset,
            count: count as u64,
            datatype: pending.refer_to(win, target, d, datatype)?,
        };
        debug_assert_ne!(elements.datatype, BYTES);
        let data = match update {
            Update::Op(_) if data.is_empty() => data,
            Update::Op(_) => &data[part.offset..part.offset + part.len],
            Update::CompareAndSwap(_) => data,
        };
        pending.make_room(win, target, d, data.len());
        let record = match update {
            Update::Op(_) => Record::Accumulate {
                elements,
                op: op as u32,
                fetches: result.is_some(),
                data,
            },
            Update::CompareAndSwap(_) => Record::CompareAndSwap(elements, data),
        };
        record.put(pending.record(win));
        if let Some(result) = &result {
            let last = part.offset + part.len == len;
            pending.push_awaited(AwaitedResponse {
                destination: Destination::part(result, part.offset as u64, part.len),
                operation: operation.clone(),
                last,
            });
        }
        Ok(())
    })?;
    Ok(request_of(operation))
}
