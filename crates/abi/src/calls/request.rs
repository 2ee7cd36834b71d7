//! Completing operations, persistent starts, generalised requests, statuses (MPI 5.0 §3.7, §3.9,
//! §13.2).

mod generalized;

pub use generalized::*;

use crate::prelude::*;
use ferry_mpi::ErrorScope;
use ferry_mpi::device::DeviceGuard;
use ferry_mpi::request::{self, Outcome};
use smallvec::SmallVec;
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

/// Completes a request that is complete, as [`complete`] does, and stores its status, if it is a
/// send or a receive that has ended well. False: nothing was done.
#[inline(always)]
fn complete_well<R: RequestForm>(
    h: &mut R,
    req: &Arc<Request>,
    device: &mut Option<DeviceGuard>,
    status: OutStatus,
) -> bool {
    let d = device.get_or_insert_with(ferry_mpi::device::device);
    let Some(ended) = req.complete_well(d) else {
        return false;
    };
    if let Some(status) = status.get() {
        status.store_well(ended);
    }
    if !req.is_persistent() {
        free_handle(h, device);
    }
    true
}

/// Completes a request that is complete, stores its status and returns its error.
#[inline]
fn complete_one<R: RequestForm>(h: &mut R, req: &Arc<Request>, status: OutStatus) -> Result<()> {
    let mut device = None;
    let result = match complete_well(h, req, &mut device, status) {
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
        free_handle(h, device);
    }
}

/// Frees the handle of a completed request, which is not [`sent`].
#[inline(always)]
fn free_handle<R: RequestForm>(h: &mut R, device: &mut Option<DeviceGuard>) {
    // If another thread completes the same request, the program is in error. The handle is freed in
    // any case.
    let request = h.free();
    *h = R::null();
    let remaining = match (request, &mut *device) {
        (Some(request), Some(d)) => request.recycle(d),
        (request, _) => request,
    };
    if let Some(request) = remaining {
        drop_unlocked(request, device);
    }
}

/// Drops a request without the device's lock.
#[cold]
fn drop_unlocked(request: Arc<Request>, device: &mut Option<DeviceGuard>) {
    *device = None;
    drop(request);
}

/// A request of an array.
#[derive(Clone, Copy)]
struct ArrayRequest {
    /// Its index in the array.
    at: usize,
    request: &'static Arc<Request>,
}

impl std::ops::Deref for ArrayRequest {
    type Target = Request;
    #[inline]
    fn deref(&self) -> &Request {
        self.request
    }
}

/// Requests of an array. Short arrays need no heap memory.
type ArrayRequests = SmallVec<[ArrayRequest; 64]>;

/// Stores the outcome and returns its error.
fn finish(outcome: Outcome, status: OutStatus) -> Result<()> {
    status.store(&outcome);
    outcome.into_result().map(|_| ())
}

/// Checks that the requests of a call belong to one session, or all to the world model.
fn check_same_origin<'a>(requests: impl Iterator<Item = &'a Arc<Request>>) -> Result<()> {
    if !Session::opened() {
        return Ok(());
    }
    let mut comms = requests.filter_map(|req| req.comm());
    let Some(first) = comms.next() else {
        return Ok(());
    };
    comms.try_for_each(|comm| {
        first
            .group
            .check_same_origin(&comm.group)
            .map_err(|mismatch| err!(Request, "one request {mismatch}").on(first))
    })
}

/// The error of entry `at` of an array, whose handle does not fit the call.
#[cold]
fn of_entry(at: usize, e: &Error) -> Error {
    err!(Request, "array_of_requests[{at}]: {}", e.text())
}

/// The active requests of an array, with their indices.
fn active_requests<R: RequestForm>(handles: &[R]) -> Result<ArrayRequests> {
    let mut all = ArrayRequests::with_capacity(handles.len());
    for (at, &h) in handles.iter().enumerate() {
        match look_up(h).map_err(|e| of_entry(at, &e))? {
            Some(request) => all.push(ArrayRequest { at, request }),
            None => continue,
        }
    }
    check_same_origin(all.iter().map(|entry| entry.request))?;
    let mut d = ferry_mpi::device::device();
    all.retain(|entry| entry.is_active(&mut d));
    d.release();
    Ok(all)
}

/// The error of an array completion in which the operation of entry `at` failed.
fn in_status(at: usize, first: &Error) -> Error {
    let error = err!(InStatus, "array_of_requests[{at}] failed: {}", first.text());
    match first.scope() {
        Some(ErrorScope::Comm(comm)) => error.on(comm),
        Some(ErrorScope::Win(win)) => error.on_win(win),
        Some(ErrorScope::File(file)) => error.on_file(file),
        None => error,
    }
}

/// Completes all of `ready`. `status_index` gives the index of each status. Errors of single
/// operations go into their statuses.
fn complete_each<R: RequestForm>(
    handles: &mut [R],
    ready: &[ArrayRequest],
    statuses: &OutStatuses,
    status_index: impl Fn(usize, usize) -> usize,
) -> Result<()> {
    let mut failed = None;
    let mut device = None;
    for (nth, &ArrayRequest { at, request }) in ready.iter().enumerate() {
        let status = statuses.at(status_index(nth, at));
        if failed.is_none() && complete_well(&mut handles[at], request, &mut device, status) {
            continue;
        }
        let outcome = complete(&mut handles[at], request, &mut device);
        if failed.is_none() {
            let Some(e) = &outcome.error else {
                status.store(&outcome);
                continue;
            };
            failed = Some(in_status(at, e));
            for (nth, well) in ready[..nth].iter().enumerate() {
                statuses.at(status_index(nth, well.at)).set_success();
            }
        }
        status.store_with_error(&outcome);
    }
    drop(device);
    failed.map_or(Ok(()), Err)
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
            request::wait_all(&[&**req]);
            complete_one(request, req, status)
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
    let done = request::test(|d| req.is_complete(d));
    flag.set(done);
    if done {
        complete_one(request, req, status)
    } else {
        Ok(())
    }
}

/// Stores empty statuses for an array completion without active requests.
fn empty_statuses(count: usize, statuses: &OutStatuses) {
    for at in 0..count {
        statuses.at(at).store_empty();
    }
}

pub fn waitall<R: RequestForm>(
    _count: i64,
    array_of_requests: &mut [R],
    array_of_statuses: OutStatuses,
) -> Result<()> {
    for h in array_of_requests.iter_mut() {
        take_completed_send(h);
    }
    let all = active_requests(array_of_requests)?;
    request::wait_all(&all);
    if all.len() < array_of_requests.len() {
        empty_statuses(array_of_requests.len(), &array_of_statuses);
    }
    complete_each(array_of_requests, &all, &array_of_statuses, |_, at| at)
}

pub fn testall<R: RequestForm>(
    _count: i64,
    array_of_requests: &mut [R],
    flag: OutFlag,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let all = active_requests(array_of_requests)?;
    let done = request::test(|d| all.iter().all(|r| r.is_complete(d)));
    flag.set(done);
    if !done {
        return Ok(());
    }
    if all.len() < array_of_requests.len() {
        empty_statuses(array_of_requests.len(), &array_of_statuses);
    }
    complete_each(array_of_requests, &all, &array_of_statuses, |_, at| at)
}

pub fn waitany<R: RequestForm>(
    _count: i64,
    array_of_requests: &mut [R],
    indx: Out<i32>,
    status: OutStatus,
) -> Result<()> {
    let all = active_requests(array_of_requests)?;
    if all.is_empty() {
        indx.set(constants::MPI_UNDEFINED);
        return finish(Outcome::EMPTY, status);
    }
    let ArrayRequest { at, request } = all[request::wait_any(&all)];
    indx.set(at as i32);
    complete_one(&mut array_of_requests[at], request, status)
}

pub fn testany<R: RequestForm>(
    _count: i64,
    array_of_requests: &mut [R],
    indx: Out<i32>,
    flag: OutFlag,
    status: OutStatus,
) -> Result<()> {
    let all = active_requests(array_of_requests)?;
    if all.is_empty() {
        flag.set(true);
        indx.set(constants::MPI_UNDEFINED);
        return finish(Outcome::EMPTY, status);
    }
    let mut found = None;
    let done = request::test(|d| {
        found = all.iter().find(|r| r.is_complete(d));
        found.is_some()
    });
    flag.set(done);
    match found {
        Some(&ArrayRequest { at, request }) => {
            indx.set(at as i32);
            complete_one(&mut array_of_requests[at], request, status)
        }
        None => {
            indx.set(constants::MPI_UNDEFINED);
            Ok(())
        }
    }
}

/// Those of `all` that can be completed now.
fn ready(all: &[ArrayRequest]) -> ArrayRequests {
    let mut d = ferry_mpi::device::device();
    all.iter()
        .filter(|r| r.is_complete(&mut d))
        .copied()
        .collect()
}

/// Completes the requests that can be completed, in array order (MPI_Waitsome, MPI_Testsome).
/// `poll` first waits for or tests the active ones.
fn complete_some<R: RequestForm>(
    handles: &mut [R],
    poll: impl FnOnce(&[ArrayRequest]),
    outcount: Out<i32>,
    indices: OutInts,
    statuses: &OutStatuses,
) -> Result<()> {
    let all = active_requests(handles)?;
    if all.is_empty() {
        outcount.set(constants::MPI_UNDEFINED);
        return Ok(());
    }
    poll(&all);
    let ready = ready(&all);
    outcount.set(ready.len() as i32);
    for (nth, entry) in ready.iter().enumerate() {
        indices.set(nth, entry.at as i32);
    }
    complete_each(handles, &ready, statuses, |nth, _| nth)
}

pub fn waitsome<R: RequestForm>(
    _incount: i64,
    array_of_requests: &mut [R],
    outcount: Out<i32>,
    array_of_indices: OutInts,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let wait = |all: &[ArrayRequest]| {
        request::wait_any(all);
    };
    complete_some(
        array_of_requests,
        wait,
        outcount,
        array_of_indices,
        &array_of_statuses,
    )
}

pub fn testsome<R: RequestForm>(
    _incount: i64,
    array_of_requests: &mut [R],
    outcount: Out<i32>,
    array_of_indices: OutInts,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let test = |all: &[ArrayRequest]| {
        request::test(|d| all.iter().any(|r| r.is_complete(d)));
    };
    complete_some(
        array_of_requests,
        test,
        outcount,
        array_of_indices,
        &array_of_statuses,
    )
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

pub fn request_get_status_all(
    _count: i64,
    array_of_requests: &[Handle],
    flag: OutFlag,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let mut outcomes = Vec::with_capacity(array_of_requests.len());
    for &h in array_of_requests {
        match peek(h)? {
            Some(outcome) => outcomes.push(outcome),
            None => {
                flag.set(false);
                return Ok(());
            }
        }
    }
    flag.set(true);
    for (at, outcome) in outcomes.iter().enumerate() {
        array_of_statuses.at(at).store(outcome);
    }
    Ok(())
}

pub fn request_get_status_any(
    _count: i64,
    array_of_requests: &[Handle],
    indx: Out<i32>,
    flag: OutFlag,
    status: OutStatus,
) -> Result<()> {
    let all = active_requests(array_of_requests)?;
    for ArrayRequest { at, request } in &all {
        if let Some(outcome) = request.peek() {
            flag.set(true);
            indx.set(*at as i32);
            status.store(&outcome);
            return Ok(());
        }
    }
    indx.set(constants::MPI_UNDEFINED);
    flag.set(all.is_empty());
    if all.is_empty() {
        status.store_with_error(&Outcome::EMPTY);
    }
    Ok(())
}

pub fn request_get_status_some(
    _incount: i64,
    array_of_requests: &[Handle],
    outcount: Out<i32>,
    array_of_indices: OutInts,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let all = active_requests(array_of_requests)?;
    if all.is_empty() {
        outcount.set(constants::MPI_UNDEFINED);
        return Ok(());
    }
    let mut found = 0;
    for ArrayRequest { at, request } in &all {
        if let Some(outcome) = request.peek() {
            array_of_indices.set(found, *at as i32);
            array_of_statuses.at(found).store(&outcome);
            found += 1;
        }
    }
    outcount.set(found as i32);
    Ok(())
}

/// The request behind a handle, which must not be null.
fn non_null(h: Handle) -> Result<&'static Arc<Request>> {
    look_up(h)?.ok_or_else(|| err!(Request, "request is MPI_REQUEST_NULL"))
}

pub fn start(request: &mut Handle) -> Result<()> {
    non_null(*request)?.start()
}

pub fn startall(_count: i64, array_of_requests: &mut [Handle]) -> Result<()> {
    let all = array_of_requests
        .iter()
        .enumerate()
        .map(|(at, &h)| non_null(h).map_err(|e| of_entry(at, &e)))
        .collect::<Result<Vec<_>>>()?;
    check_same_origin(all.iter().copied())?;
    all.iter()
        .enumerate()
        .try_for_each(|(at, req)| req.start().map_err(|e| of_entry(at, &e)))
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
