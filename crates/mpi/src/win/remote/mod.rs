//! One-sided operations by packets, where memory is not reached directly.

#![allow(dead_code, reason = "operations between hosts are not written yet")]

use super::target::Target;
use super::{Place, Win};
use crate::pt2pt::Buffer;
use crate::{Op, Request, Result, err};
use std::sync::Arc;

/// Operations under way to one target.
#[derive(Default)]
pub(super) struct Pending {}

/// A window's part of the service.
#[derive(Default)]
pub(super) struct State {}

fn missing<T>() -> Result<T> {
    Err(err!(
        UnsupportedOperation,
        "one-sided operations between hosts"
    ))
}

/// The operation of an accumulate.
#[derive(Clone, Copy)]
pub(super) enum Update<'a> {
    /// `target = origin op target`.
    Op(&'a Arc<Op>),
    /// MPI_Compare_and_swap with this value.
    CompareAndSwap(*const u8),
}

/// The window takes part in the service from now on.
pub(super) fn register(_win: &Arc<Win>) {}

/// The window is about to be freed: all members have completed their operations.
pub(super) fn unregister(_win: &Arc<Win>) {}

/// Starts a put.
///
/// # Safety
/// The origin is readable until it is complete.
pub(super) unsafe fn put(
    _win: &Arc<Win>,
    _target: &Target,
    _origin: Buffer<'_>,
    _place: &Place<'_>,
    _wants_request: bool,
) -> Result<Option<Arc<Request>>> {
    missing()
}

/// Starts a get.
///
/// # Safety
/// The origin is writable until it is complete.
pub(super) unsafe fn get(
    _win: &Arc<Win>,
    _target: &Target,
    _origin: Buffer<'_>,
    _place: &Place<'_>,
    _wants_request: bool,
) -> Result<Option<Arc<Request>>> {
    missing()
}

/// Starts an accumulate.
///
/// # Safety
/// The origin is readable and the result writable until it is complete.
pub(super) unsafe fn accumulate(
    _win: &Arc<Win>,
    _target: &Target,
    _origin: Option<Buffer<'_>>,
    _result: Option<Buffer<'_>>,
    _place: &Place<'_>,
    _update: Update<'_>,
    _wants_request: bool,
) -> Result<Option<Arc<Request>>> {
    missing()
}

/// Blocks until the target has done all operations.
pub(super) fn flush(_win: &Win, _target: &Target) -> Result<()> {
    Ok(())
}

/// As [`flush`], for all targets.
pub(super) fn flush_all(_win: &Win) -> Result<()> {
    Ok(())
}

/// Blocks until the origin's buffers can be used again.
pub(super) fn flush_local(_win: &Win, _target: &Target) -> Result<()> {
    Ok(())
}

/// As [`flush_local`], for all targets.
pub(super) fn flush_local_all(_win: &Win) -> Result<()> {
    Ok(())
}

/// Asks for the lock of a target on another node. Does not block: later operations wait for it at
/// the target.
pub(super) fn lock(_win: &Win, _target: &Target, _exclusive: bool) -> Result<()> {
    missing()
}

/// Releases the lock. Blocks until the target has done all operations and released it.
pub(super) fn unlock(_win: &Win, _target: &Target) -> Result<()> {
    missing()
}

/// Tells an origin on another node that this process has posted (MPI_Win_post).
pub(super) fn post(_win: &Win, _rank: u32) -> Result<()> {
    missing()
}

/// Has the target on another node posted? If so, the post is used up.
pub(super) fn take_post(_win: &Win, _rank: u32) -> bool {
    false
}

/// Tells a target that is reached by packets or on another node that this origin has completed
/// (MPI_Win_complete), once all operations before it are done there.
pub(super) fn complete(_win: &Win, _target: &Target) -> Result<()> {
    missing()
}
