//! Completing operations, persistent starts, generalised requests, statuses (MPI 5.0 §3.7, §3.9,
//! §13.2).

mod arrays;
mod generalized;

pub use arrays::*;
use arrays::{check_same_origin, of_entry};
pub use generalized::*;

use crate::prelude::*;
use ferry_mpi::device::{Device, DeviceGuard};
use ferry_mpi::request::{self, Outcome};
use std::sync::OnceLock;

/// The request behind a handle. `None` for MPI_REQUEST_NULL.
#[inline]
fn look_up<R: RequestForm>(h: R) -> Result<Option<&'static Arc<Request>>> {
    if h == R::null() {
        Ok(None)
    } else {
        h.request().map(Some).ok_or_else(|| {
            err!(
                Request,
                "request is no valid request handle (freed, or never set)"
            )
        })
    }
}

/// The one handle of all sends that were complete before their call returned. Their statuses are
/// all empty, so they can share it.
#[inline]
pub fn sent() -> Handle {
    static SENT: OnceLock<Handle> = OnceLock::new();
    *SENT.get_or_init(|| handle::insert(Request::sent()))
}

/// Sets the handle to MPI_REQUEST_NULL if it is [`sent`]. The status of such a request is empty.
#[inline]
fn take_completed_send<R: RequestForm>(h: &mut R) -> bool {
    let is_sent = *h == R::of(sent());
    if is_sent {
        *h = R::null();
    }
    is_sent
}

/// Completes a request and releases its handle unless it is persistent. `device`: see
/// [`Request::complete`].
#[inline]
fn complete<R: RequestForm>(
    h: &mut R,
    req: &Arc<Request>,
    device: &mut Option<DeviceGuard>,
) -> Outcome {
    let mut outcome = req.complete(device);
    if let (Some(e), Some(comm)) = (&outcome.error, req.comm())
        && e.scope().is_none()
    {
        outcome.error = Some(e.clone().on(comm));
    }
    if !req.is_persistent() {
        release_handle(h, device);
    }
    outcome
}

/// A request that has been completed.
struct Completed {
    /// The request if it is of no more use: to be dropped without the device's lock.
    unused: Option<Arc<Request>>,
}

/// Completes a request, as [`complete`] does, and stores its status, if it is a send or a receive
/// that has succeeded. `None`: nothing was done.
#[inline(always)]
fn complete_successful<R: RequestForm>(
    h: &mut R,
    req: &Arc<Request>,
    d: &mut Device,
    status: OutStatus,
) -> Option<Completed> {
    let ended = req.complete_successful(d)?;
    if let Some(status) = status.get() {
        status.store_success(ended);
    }
    let unused = match req.is_persistent() {
        true => None,
        false => free_handle(h, Some(d)),
    };
    Some(Completed { unused })
}

/// [`complete_successful`], which drops what is of no more use. `device` as for [`complete`].
/// False: nothing was done.
#[inline(always)]
fn complete_successful_locked<R: RequestForm>(
    h: &mut R,
    req: &Arc<Request>,
    device: &mut Option<DeviceGuard>,
    status: OutStatus,
) -> bool {
    let d = device.get_or_insert_with(ferry_mpi::device::device);
    let Some(Completed { unused }) = complete_successful(h, req, d, status) else {
        return false;
    };
    drop_unlocked(unused, device);
    true
}

/// Completes a request that is complete, stores its status and returns its error.
#[inline]
fn complete_one<R: RequestForm>(h: &mut R, req: &Arc<Request>, status: OutStatus) -> Result<()> {
    let mut device = None;
    let result = match complete_successful_locked(h, req, &mut device, status) {
        true => Ok(()),
        false => finish(complete(h, req, &mut device), status),
    };
    if let Some(device) = device {
        device.release();
    }
    result
}

/// Releases the handle of a completed request. `device`: see [`Request::complete`].
#[inline]
fn release_handle<R: RequestForm>(h: &mut R, device: &mut Option<DeviceGuard>) {
    if !take_completed_send(h) {
        let unused = free_handle(h, device.as_deref_mut());
        drop_unlocked(unused, device);
    }
}

/// Frees the handle of a completed request, which is not [`sent`]. Returns the request if it is of
/// no more use: to be dropped without the device's lock.
#[inline(always)]
fn free_handle<R: RequestForm>(h: &mut R, device: Option<&mut Device>) -> Option<Arc<Request>> {
    // If another thread completes the same request, the program is in error. The handle is freed in
    // any case.
    let request = h.free();
    *h = R::null();
    match (request, device) {
        (Some(request), Some(d)) => request.recycle(d),
        (request, _) => request,
    }
}

/// Drops a request without the device's lock.
#[inline(always)]
fn drop_unlocked(unused: Option<Arc<Request>>, device: &mut Option<DeviceGuard>) {
    if let Some(request) = unused {
        drop_request(request, device);
    }
}

#[cold]
fn drop_request(request: Arc<Request>, device: &mut Option<DeviceGuard>) {
    *device = None;
    drop(request);
}

/// Stores the outcome and returns its error.
fn finish(outcome: Outcome, status: OutStatus) -> Result<()> {
    status.store(&outcome);
    outcome.into_result().map(|_| ())
}

pub fn wait<R: RequestForm>(request: &mut R, status: OutStatus) -> Result<()> {
    if take_completed_send(request) {
        return finish(Outcome::EMPTY, status);
    }
    match look_up(*request)? {
        None => finish(Outcome::EMPTY, status),
        Some(req) => {
            if req.is_complete_without_lock() {
                release_handle(request, &mut None);
                return finish(Outcome::EMPTY, status);
            }
            let mut completed = None;
            request::wait_until(&[&**req], |d| {
                completed = complete_successful(request, req, d, status);
                completed.is_some() || req.is_complete(d)
            });
            match completed {
                Some(_) => Ok(()),
                None => complete_one(request, req, status),
            }
        }
    }
}

pub fn test<R: RequestForm>(request: &mut R, flag: OutFlag, status: OutStatus) -> Result<()> {
    if take_completed_send(request) {
        flag.set(true);
        return finish(Outcome::EMPTY, status);
    }
    let Some(req) = look_up(*request)? else {
        flag.set(true);
        return finish(Outcome::EMPTY, status);
    };
    if req.is_complete_without_lock() {
        flag.set(true);
        release_handle(request, &mut None);
        return finish(Outcome::EMPTY, status);
    }
    let done = request::test_one(req);
    flag.set(done);
    if done {
        complete_one(request, req, status)
    } else {
        Ok(())
    }
}

/// The outcome of a request, without completing it. `None` if it is not complete.
fn peek(h: Handle) -> Result<Option<Outcome>> {
    Ok(match look_up(h)? {
        None => Some(Outcome::EMPTY),
        Some(req) => req.peek(),
    })
}

pub fn request_get_status(request: Handle, flag: OutFlag, status: OutStatus) -> Result<()> {
    let outcome = peek(request)?;
    flag.set(outcome.is_some());
    if let Some(outcome) = outcome {
        status.store(&outcome);
    }
    Ok(())
}

/// The request behind a handle, which must not be null.
fn non_null(h: Handle) -> Result<&'static Arc<Request>> {
    look_up(h)?.ok_or_else(|| err!(Request, "request is MPI_REQUEST_NULL"))
}

pub fn start(request: &mut Handle) -> Result<()> {
    non_null(*request)?.start(&mut ferry_mpi::device::device())
}

pub fn startall(_count: i64, array_of_requests: &mut [Handle]) -> Result<()> {
    let entry = |at: usize, h: Handle| non_null(h).map_err(|e| of_entry(at, &e));
    for (at, &h) in array_of_requests.iter().enumerate() {
        entry(at, h)?;
    }
    check_same_origin(array_of_requests.iter().filter_map(|h| h.request()))?;
    let mut d = ferry_mpi::device::device();
    for (at, &h) in array_of_requests.iter().enumerate() {
        let started = entry(at, h)?.start(&mut d);
        started.map_err(|e| of_entry(at, &e))?;
    }
    Ok(())
}

pub fn cancel(request: &mut Handle) -> Result<()> {
    non_null(*request)?.cancel()
}

pub fn request_free(request: &mut Handle) -> Result<()> {
    let req = non_null(*request)?;
    if take_completed_send(request) {
        return Ok(());
    }
    req.free()?;
    // Drops the table's reference. An active operation keeps its own.
    drop(handle::remove::<Request>(*request));
    *request = constants::MPI_REQUEST_NULL;
    Ok(())
}

pub fn test_cancelled(status: &Status, flag: OutFlag) -> Result<()> {
    flag.set(status.is_cancelled());
    Ok(())
}

pub fn status_set_cancelled(status: &mut Status, flag: bool) -> Result<()> {
    status.set_cancelled(flag);
    Ok(())
}

/// Getters and setters of a status's public fields.
macro_rules! fields {
    ($($get:ident $set:ident $field:ident;)*) => {$(
        pub fn $get(status: &Status, value: Out<i32>) -> Result<()> {
            value.set(status.$field);
            Ok(())
        }
        pub fn $set(status: &mut Status, value: i32) -> Result<()> {
            status.$field = value;
            Ok(())
        }
    )*};
}
fields! {
    status_get_source status_set_source source;
    status_get_tag status_set_tag tag;
    status_get_error status_set_error error;
}
