//! MPI_Put, MPI_Get and their forms with requests (MPI 5.0 §12.3.1, §12.3.2, §12.3.5).

use super::epoch::FENCE_EPOCH;
use super::target::{CLOSED, LOCKED, Reach, Target};
use super::{Flavor, RmaCall, TargetBuffer, Win, remote};
use crate::buffer::message_len;
use crate::device::{PeerMemory, ReadError};
use crate::pt2pt::Buffer;
use crate::request::{Outcome, Request};
use crate::{Datatype, Result, err};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Runs of one side that are listed at a time, for a peer's memory.
const RUNS_MAX: usize = 1024;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Put,
    Get,
}

impl Way {
    /// Its call, for messages.
    pub fn call(self) -> &'static str {
        match self {
            Way::Put => "MPI_Put",
            Way::Get => "MPI_Get",
        }
    }
}

impl Win {
    /// Starts a put. On a node it is complete when this returns, and for others to see once the
    /// target is flushed.
    ///
    /// Errors: RmaSync outside an access epoch to the rank; RmaRange beyond its memory; Truncate if
    /// the origin has another number of bytes than the target.
    ///
    /// # Safety
    /// The origin is readable, and does not change until the put is complete.
    #[inline(always)]
    pub unsafe fn put(
        self: &Arc<Win>,
        origin: Buffer<'_>,
        target_buffer: TargetBuffer<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Way::Put, origin, RmaCall::new(&target_buffer, "MPI_Put")) }
            .map(drop)
    }

    /// Starts a get. On a node it is complete when this returns.
    ///
    /// Errors: as [`Win::put`].
    ///
    /// # Safety
    /// The origin is writable, and not used until the get is complete.
    #[inline(always)]
    pub unsafe fn get(
        self: &Arc<Win>,
        origin: Buffer<'_>,
        target_buffer: TargetBuffer<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer(Way::Get, origin, RmaCall::new(&target_buffer, "MPI_Get")) }
            .map(drop)
    }

    /// [`Win::put`] with a request (MPI_Rput).
    ///
    /// # Safety
    /// As for [`Win::put`].
    pub unsafe fn rput(
        self: &Arc<Win>,
        origin: Buffer<'_>,
        target_buffer: TargetBuffer<'_>,
    ) -> Result<Arc<Request>> {
        let rma = RmaCall::with_request(&target_buffer, "MPI_Rput");
        // SAFETY: the caller's promise.
        let started = unsafe { self.transfer(Way::Put, origin, rma) }?;
        Ok(started.unwrap_or_else(complete_request))
    }

    /// [`Win::get`] with a request (MPI_Rget).
    ///
    /// # Safety
    /// As for [`Win::get`].
    pub unsafe fn rget(
        self: &Arc<Win>,
        origin: Buffer<'_>,
        target_buffer: TargetBuffer<'_>,
    ) -> Result<Arc<Request>> {
        let rma = RmaCall::with_request(&target_buffer, "MPI_Rget");
        // SAFETY: the caller's promise.
        let started = unsafe { self.transfer(Way::Get, origin, rma) }?;
        Ok(started.unwrap_or_else(complete_request))
    }

    /// Returns the request if the operation is not complete and `wants_request`.
    ///
    /// # Safety
    /// The origin is readable or writable, as the way says.
    #[inline(always)]
    unsafe fn transfer(
        self: &Arc<Win>,
        way: Way,
        origin: Buffer<'_>,
        rma: RmaCall<'_>,
    ) -> Result<Option<Arc<Request>>> {
        let target_buffer = rma.target_buffer;
        let target = self.open_target(target_buffer.rank, rma.call)?;
        if rma.wants_request {
            passive(target, rma.call)?;
        }
        if let Some((at, len)) = direct(target, target_buffer)
            && is_same(&origin, target_buffer)
        {
            let (from, to) = match way {
                Way::Put => (origin.address.cast_const(), at),
                Way::Get => (at.cast_const(), origin.address),
            };
            // SAFETY: the caller's promise; the target's range was checked.
            unsafe { ferry_datatype::copy_run(from, to, len) };
            if way == Way::Put {
                target.note_stores();
            }
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe { self.transfer_other(way, target, origin, rma) }
    }

    /// A transfer that is more than one copy of contiguous bytes to or from mapped memory.
    ///
    /// # Safety
    /// As for `transfer`.
    #[inline(never)]
    unsafe fn transfer_other(
        self: &Arc<Win>,
        way: Way,
        target: &Target,
        origin: Buffer<'_>,
        rma: RmaCall<'_>,
    ) -> Result<Option<Arc<Request>>> {
        let RmaCall {
            target_buffer,
            call,
            wants_request,
        } = rma;
        let at = self.locate(target, target_buffer, call)?;
        same_size(&origin, target_buffer.count, target_buffer.datatype, call)?;
        let here = (origin.address, origin.count, &**origin.datatype);
        let there = (at, target_buffer.count, &**target_buffer.datatype);
        match (target.reach, way) {
            (Reach::Mapped, Way::Put) => {
                let from = (here.0.cast_const(), here.1, here.2);
                // SAFETY: the caller's promise; the target's range was checked.
                unsafe { Datatype::copy_typed(from, there) };
                target.note_stores();
            }
            (Reach::Mapped, Way::Get) => {
                let from = (there.0.cast_const(), there.1, there.2);
                // SAFETY: as above.
                unsafe { Datatype::copy_typed(from, here) };
            }
            (Reach::Peer(memory), way) => {
                let (Some(near), Some(far)) = (one_run(here), one_run(there)) else {
                    self.drain_puts(target)?;
                    // SAFETY: the caller's promise.
                    let copied = unsafe { copy_peer(memory, way == Way::Put, here, there) };
                    return copied
                        .map_err(|e| peer_error(e, target, call))
                        .map(|()| None);
                };
                let len = message_len(origin.count, origin.datatype);
                let far = far.addr() as u64;
                // What has a request is complete when this returns.
                if wants_request {
                    self.drain_puts(target)?;
                // SAFETY: the caller's promise.
                } else if unsafe { self.queue_transfer(target, way, near, far, len) }? {
                    return Ok(None);
                }
                // SAFETY: as above.
                if way == Way::Put && unsafe { self.queue_put(target, near, far, len) }? {
                    return Ok(None);
                }
                self.drain_puts(target)?;
                let short = match way {
                    // SAFETY: as above.
                    Way::Get => unsafe { self.get_short(target, far, near, len) },
                    Way::Put => None,
                };
                let copied = short.unwrap_or_else(|| {
                    // SAFETY: as above.
                    unsafe { self.copy_with_target((target, memory), way, near, far, len) }
                });
                copied.map_err(|e| peer_error(e, target, call))?;
            }
            (Reach::Remote, way) => {
                // SAFETY: the caller's promise.
                return unsafe {
                    remote::transfer(self, target, way, &origin, target_buffer, wants_request)
                };
            }
        }
        Ok(None)
    }

    /// The target, to which this process has access.
    ///
    /// Errors: Rank; RmaSync outside an access epoch.
    #[inline]
    pub(super) fn open_target(&self, rank: u32, call: &str) -> Result<&Target> {
        let target = self.target(rank)?;
        if target.access.load(Ordering::Relaxed) == CLOSED
            && self.epochs.fence.load(Ordering::Relaxed) != FENCE_EPOCH
        {
            self.open_access(target, call)?;
        }
        Ok(target)
    }

    /// The address of an operation's first element at the target: in this process if it is mapped,
    /// otherwise in the target's.
    ///
    /// Errors: RmaRange if an element is not in the target's memory.
    pub(super) fn locate(
        &self,
        target: &Target,
        target_buffer: &TargetBuffer<'_>,
        call: &str,
    ) -> Result<*mut u8> {
        if self.flavor == Flavor::Dynamic {
            return self.locate_attached(target, target_buffer, call);
        }
        let (low, end) = target_buffer.datatype.span(target_buffer.count)?;
        let offset = target_buffer.disp.checked_mul(target.disp_unit);
        let fits = offset.is_some_and(|offset| {
            let (first, last) = (offset.checked_add(low), offset.checked_add(end));
            matches!((first, last), (Some(first), Some(last))
                if first >= 0 && last >= 0 && last as u64 <= target.size)
        });
        match offset {
            Some(offset) if fits => Ok(target.base.wrapping_offset(offset as isize)),
            // An operation without elements goes nowhere.
            _ if end == low => Ok(target.base),
            _ => Err(out_of_range(target, target_buffer, (low, end), call)),
        }
    }
}

#[cold]
fn out_of_range(
    target: &Target,
    target_buffer: &TargetBuffer<'_>,
    span: (i64, i64),
    call: &str,
) -> crate::Error {
    let (unit, size) = (target.disp_unit, target.size);
    let units = if unit == 1 {
        String::new()
    } else {
        format!(" (in units of {unit} bytes)")
    };
    err!(
        RmaRange,
        "{call} to rank {}: displacement {}{units} and {} reach beyond its window of {size} bytes",
        target.rank,
        target_buffer.disp,
        elements_text(target_buffer, span)
    )
}

/// The elements of an operation in messages: "7 elements of 8 bytes (56 in all)".
pub(super) fn elements_text(target_buffer: &TargetBuffer<'_>, (low, end): (i64, i64)) -> String {
    let size = target_buffer.datatype.size();
    let elements = if target_buffer.count == 1 {
        "1 element".into()
    } else {
        format!("{} elements", target_buffer.count)
    };
    let all = end.saturating_sub(low);
    let bytes = size.saturating_mul(target_buffer.count);
    let spread = if all == bytes && low == 0 {
        format!("{bytes} in all")
    } else {
        format!("bytes {low} to {end} from there")
    };
    format!("{elements} of {size} bytes ({spread})")
}

/// Checks that an operation may have a request: it is in a passive-target epoch (MPI 5.0 §12.3.5).
#[inline]
pub(super) fn passive(target: &Target, call: &str) -> Result<()> {
    if target.access.load(Ordering::Relaxed) & LOCKED == 0 {
        return Err(err!(
            RmaSync,
            "{call} to rank {} in an epoch of MPI_Win_fence or MPI_Win_start: operations with a \
             request are for passive-target epochs",
            target.rank
        ));
    }
    Ok(())
}

/// Where an operation goes that only needs loads and stores, and its bytes: the target is mapped,
/// the elements are one run of at least a byte, and in its memory.
#[inline(always)]
pub(super) fn direct(
    target: &Target,
    target_buffer: &TargetBuffer<'_>,
) -> Option<(*mut u8, usize)> {
    let (size, unit) = (target.direct_size, target.disp_unit as u64);
    if !target_buffer.datatype.is_dense() {
        return None;
    }
    let len = (target_buffer.datatype.size() as u64).checked_mul(target_buffer.count as u64)?;
    let offset = u64::try_from(target_buffer.disp).ok()?.checked_mul(unit)?;
    let fits = len > 0 && offset <= size && len <= size - offset;
    fits.then(|| (target.base.wrapping_add(offset as usize), len as usize))
}

/// Are the elements at the origin as many of the same type, or as many bytes without gaps?
#[inline(always)]
fn is_same(origin: &Buffer<'_>, target_buffer: &TargetBuffer<'_>) -> bool {
    if Arc::ptr_eq(origin.datatype, target_buffer.datatype) {
        return origin.count == target_buffer.count;
    }
    origin.datatype.is_dense()
        && message_len(origin.count, origin.datatype)
            == message_len(target_buffer.count, target_buffer.datatype)
}

/// The request of an operation that was complete when its call returned.
#[cold]
pub(super) fn complete_request() -> Arc<Request> {
    Request::ended(Outcome::EMPTY)
}

/// Checks that the origin has as many bytes as the target.
///
/// Errors: Truncate.
pub(super) fn same_size(
    origin: &Buffer<'_>,
    count: i64,
    datatype: &Datatype,
    call: &str,
) -> Result<()> {
    let (here, there) = (
        message_len(origin.count, origin.datatype),
        message_len(count, datatype),
    );
    if here == there {
        Ok(())
    } else {
        Err(err!(
            Truncate,
            "{call} with {here} bytes at the origin and {there} bytes at the target: their types \
             have to match"
        ))
    }
}

/// Address, count and type of elements.
type Elements<'a> = (*mut u8, i64, &'a Datatype);

/// Copies elements to or from a peer's memory. Both sides have the same number of bytes.
///
/// # Safety
/// The elements `here` are readable, or writable unless `write`.
pub(super) unsafe fn copy_peer(
    memory: PeerMemory,
    write: bool,
    here: Elements<'_>,
    there: Elements<'_>,
) -> std::result::Result<(), ReadError> {
    let len = message_len(here.1, here.2);
    if let (Some(from), Some(to)) = (one_run(here), one_run(there)) {
        // SAFETY: the caller's promise.
        return unsafe { copy_runs(memory, write, &[(from, len)], &[(to.addr() as u64, len)]) };
    }
    let list = |(address, count, t): Elements<'_>, offset: u64| {
        let mut runs = Vec::with_capacity(RUNS_MAX);
        let bytes = match one_run((address, count, t)) {
            Some(at) => {
                let rest = len - offset as usize;
                runs.push((at.wrapping_add(offset as usize), rest));
                rest as u64
            }
            None => t.runs(address, count, offset, &mut runs),
        };
        (runs, bytes)
    };
    let mut done = 0;
    while done < len as u64 {
        let ((mut near, a), (mut far, b)) = (list(here, done), list(there, done));
        let bytes = a.min(b);
        if bytes == 0 {
            break;
        }
        cut(&mut near, bytes);
        cut(&mut far, bytes);
        let far: Vec<(u64, usize)> = far
            .into_iter()
            .map(|(at, len)| (at.addr() as u64, len))
            .collect();
        // SAFETY: the caller's promise.
        unsafe { copy_runs(memory, write, &near, &far) }?;
        done += bytes;
    }
    Ok(())
}

/// The address of elements that are one run.
fn one_run((address, count, t): Elements<'_>) -> Option<*mut u8> {
    crate::buffer::run(address, count, t)
}

/// Leaves the first `bytes` bytes of a list of runs.
fn cut(runs: &mut Vec<(*mut u8, usize)>, bytes: u64) {
    let mut left = bytes as usize;
    let mut kept = 0;
    for run in runs.iter_mut() {
        if left == 0 {
            break;
        }
        run.1 = run.1.min(left);
        left -= run.1;
        kept += 1;
    }
    runs.truncate(kept);
}

/// # Safety
/// The runs `near` are readable, or writable unless `write`.
pub(super) unsafe fn copy_runs(
    memory: PeerMemory,
    write: bool,
    near: &[(*mut u8, usize)],
    far: &[(u64, usize)],
) -> std::result::Result<(), ReadError> {
    if !write {
        // SAFETY: the caller's promise.
        return unsafe { memory.read(far, near) };
    }
    if let &[(at, len)] = near {
        // SAFETY: the caller's promise.
        return unsafe { memory.write(&[(at.cast_const(), len)], far) };
    }
    let near: Vec<(*const u8, usize)> = near
        .iter()
        .map(|&(at, len)| (at.cast_const(), len))
        .collect();
    // SAFETY: the caller's promise.
    unsafe { memory.write(&near, far) }
}

/// The error of a peer's memory that cannot be accessed.
#[cold]
pub(super) fn peer_error(e: ReadError, target: &Target, call: &str) -> crate::Error {
    match e {
        ReadError::Refused => err!(
            Other,
            "{call}: the system refuses access to the memory of rank {} (process_vm_writev)",
            target.rank
        ),
        ReadError::Failed(number) => {
            let cause = std::io::Error::from_raw_os_error(number);
            err!(
                RmaRange,
                "{call}: memory of rank {} that is part of the window cannot be accessed there: \
                 {cause}",
                target.rank
            )
        }
    }
}
