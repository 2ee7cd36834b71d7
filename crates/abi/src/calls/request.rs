//! Completing operations, persistent starts, generalised requests, statuses (MPI 5.0 §3.7, §3.9,
//! §13.2).

mod generalized;

pub use generalized::*;

use crate::prelude::*;
use ferry_mpi::device::DeviceGuard;
use ferry_mpi::request::{self, Outcome};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// The request behind a handle; `None` for MPI_REQUEST_NULL.
#[inline]
fn look_up(h: Handle) -> Result<Option<&'static Arc<Request>>> {
    if h == constants::MPI_REQUEST_NULL {
        Ok(None)
    } else {
        handle::get::<Request>(h).map(Some).ok_or_else(|| {
            err!(
                Request,
                "request is no valid request handle (freed, or never set)"
            )
        })
    }
}

/// The handle of all sends that had ended before their call returned: there is nothing to tell one
/// from the other.
#[inline]
pub fn sent() -> Handle {
    static SENT: OnceLock<Handle> = OnceLock::new();
    *SENT.get_or_init(|| handle::insert(Request::sent()))
}

/// Takes the request's handle from the program if it is [`sent`]. Its status is the empty one.
#[inline]
fn take_sent(h: &mut Handle) -> bool {
    let is_sent = *h == sent();
    if is_sent {
        *h = constants::MPI_REQUEST_NULL;
    }
    is_sent
}

/// Completes a request that can be, and lets go of its handle unless it is persistent. `held`: see
/// [`Request::complete`].
#[inline]
fn complete(h: &mut Handle, req: &Arc<Request>, held: &mut Option<DeviceGuard>) -> Outcome {
    let mut outcome = req.complete(held);
    if let (Some(e), Some(comm)) = (&outcome.error, req.comm())
        && e.scope().is_none()
    {
        outcome.error = Some(e.clone().on(comm));
    }
    if !req.is_persistent() {
        let_go(h, held);
    }
    outcome
}

/// Gives up the handle of a request that is complete. `held`: see [`Request::complete`].
#[inline]
fn let_go(h: &mut Handle, held: &mut Option<DeviceGuard>) {
    if take_sent(h) {
        return;
    }
    // Another thread that completes the same request is the program's mistake; the handle is gone
    // either way.
    let gone = handle::remove::<Request>(*h);
    *h = constants::MPI_REQUEST_NULL;
    let rest = match (gone, &mut *held) {
        (Some(gone), Some(d)) => gone.recycle(d),
        (gone, _) => gone,
    };
    if rest.is_some() {
        *held = None;
    }
}

/// A request in an array that is to be completed.
#[derive(Clone, Copy)]
struct Listed {
    /// Its place in the array.
    at: usize,
    request: &'static Arc<Request>,
}

impl std::ops::Deref for Listed {
    type Target = Request;
    #[inline]
    fn deref(&self) -> &Request {
        self.request
    }
}

/// Those of an array; mostly so few that no memory has to be asked for.
type List = SmallVec<[Listed; 64]>;

/// Stores the outcome and hands its error on.
fn finish(outcome: Outcome, status: OutStatus) -> Result<()> {
    status.store(&outcome);
    outcome.into_result().map(|_| ())
}

/// Checks that requests that meet in a call come from one session, or all from the world model.
fn same_origin<'a>(requests: impl Iterator<Item = &'a Arc<Request>>) -> Result<()> {
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

/// The requests behind an array's handles that are active (neither null nor inactive), with their
/// places.
fn active(handles: &[Handle]) -> Result<List> {
    let mut all = List::with_capacity(handles.len());
    for (at, &h) in handles.iter().enumerate() {
        match look_up(h).map_err(|e| err!(Request, "array_of_requests[{at}]: {}", e.text()))? {
            Some(request) => all.push(Listed { at, request }),
            None => continue,
        }
    }
    same_origin(all.iter().map(|listed| listed.request))?;
    let mut d = ferry_mpi::device::device();
    all.retain(|listed| listed.is_active(&mut d));
    Ok(all)
}

/// What an array completion says when one of its operations failed.
fn in_status(first: &Error) -> Error {
    let error = err!(InStatus, "one of the operations failed: {}", first.text());
    match first.scope() {
        Some(comm) => error.on(comm),
        None => error,
    }
}

/// Completes all of `ready`; statuses at the places given by `place`. Errors of single operations
/// go into their statuses.
fn complete_each(
    handles: &mut [Handle],
    ready: &[Listed],
    statuses: &OutStatuses,
    place: impl Fn(usize, usize) -> usize,
) -> Result<()> {
    let mut failed = None;
    let mut held = None;
    for (nth, &Listed { at, request }) in ready.iter().enumerate() {
        let outcome = complete(&mut handles[at], request, &mut held);
        let status = statuses.at(place(nth, at));
        if failed.is_none() {
            let Some(e) = &outcome.error else {
                status.store(&outcome);
                continue;
            };
            failed = Some(in_status(e));
            for (nth, well) in ready[..nth].iter().enumerate() {
                statuses.at(place(nth, well.at)).set_success();
            }
        }
        status.store_with_error(&outcome);
    }
    drop(held);
    failed.map_or(Ok(()), Err)
}

pub fn wait(request: &mut Handle, status: OutStatus) -> Result<()> {
    if take_sent(request) {
        return finish(Outcome::EMPTY, status);
    }
    match look_up(*request)? {
        None => finish(Outcome::EMPTY, status),
        Some(req) => {
            if req.is_complete_without_lock() {
                let_go(request, &mut None);
                return finish(Outcome::EMPTY, status);
            }
            request::wait_all(&[&**req]);
            finish(complete(request, req, &mut None), status)
        }
    }
}

pub fn test(request: &mut Handle, flag: OutFlag, status: OutStatus) -> Result<()> {
    if take_sent(request) {
        flag.set(true);
        return finish(Outcome::EMPTY, status);
    }
    let Some(req) = look_up(*request)? else {
        flag.set(true);
        return finish(Outcome::EMPTY, status);
    };
    if req.is_complete_without_lock() {
        flag.set(true);
        let_go(request, &mut None);
        return finish(Outcome::EMPTY, status);
    }
    let done = request::test(|d| req.is_complete(d));
    flag.set(done);
    if done {
        finish(complete(request, req, &mut None), status)
    } else {
        Ok(())
    }
}

/// Writes empty statuses where an array completion completes nothing.
fn empty_statuses(count: usize, statuses: &OutStatuses) {
    for at in 0..count {
        statuses.at(at).store_empty();
    }
}

pub fn waitall(
    _count: i64,
    array_of_requests: &mut [Handle],
    array_of_statuses: OutStatuses,
) -> Result<()> {
    for h in array_of_requests.iter_mut() {
        take_sent(h);
    }
    let all = active(array_of_requests)?;
    request::wait_all(&all);
    if all.len() < array_of_requests.len() {
        empty_statuses(array_of_requests.len(), &array_of_statuses);
    }
    complete_each(array_of_requests, &all, &array_of_statuses, |_, at| at)
}

pub fn testall(
    _count: i64,
    array_of_requests: &mut [Handle],
    flag: OutFlag,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let all = active(array_of_requests)?;
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

pub fn waitany(
    _count: i64,
    array_of_requests: &mut [Handle],
    indx: Out<i32>,
    status: OutStatus,
) -> Result<()> {
    let all = active(array_of_requests)?;
    if all.is_empty() {
        indx.set(constants::MPI_UNDEFINED);
        return finish(Outcome::EMPTY, status);
    }
    let Listed { at, request } = all[request::wait_any(&all)];
    indx.set(at as i32);
    finish(
        complete(&mut array_of_requests[at], request, &mut None),
        status,
    )
}

pub fn testany(
    _count: i64,
    array_of_requests: &mut [Handle],
    indx: Out<i32>,
    flag: OutFlag,
    status: OutStatus,
) -> Result<()> {
    let all = active(array_of_requests)?;
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
        Some(&Listed { at, request }) => {
            indx.set(at as i32);
            finish(
                complete(&mut array_of_requests[at], request, &mut None),
                status,
            )
        }
        None => {
            indx.set(constants::MPI_UNDEFINED);
            Ok(())
        }
    }
}

/// Those of `all` that can be completed now.
fn ready(all: &[Listed]) -> List {
    let mut d = ferry_mpi::device::device();
    all.iter()
        .filter(|r| r.is_complete(&mut d))
        .copied()
        .collect()
}

/// Completes what can be, first places first (MPI_Waitsome, MPI_Testsome), once `look` has seen to
/// the active requests.
fn complete_some(
    handles: &mut [Handle],
    look: impl FnOnce(&[Listed]),
    outcount: Out<i32>,
    indices: OutInts,
    statuses: &OutStatuses,
) -> Result<()> {
    let all = active(handles)?;
    if all.is_empty() {
        outcount.set(constants::MPI_UNDEFINED);
        return Ok(());
    }
    look(&all);
    let ready = ready(&all);
    outcount.set(ready.len() as i32);
    for (nth, listed) in ready.iter().enumerate() {
        indices.set(nth, listed.at as i32);
    }
    complete_each(handles, &ready, statuses, |nth, _| nth)
}

pub fn waitsome(
    _incount: i64,
    array_of_requests: &mut [Handle],
    outcount: Out<i32>,
    array_of_indices: OutInts,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let wait = |all: &[Listed]| {
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

pub fn testsome(
    _incount: i64,
    array_of_requests: &mut [Handle],
    outcount: Out<i32>,
    array_of_indices: OutInts,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let test = |all: &[Listed]| {
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

/// How a request would complete, without completing it. `None`: it would not yet.
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
    let all = active(array_of_requests)?;
    for Listed { at, request } in &all {
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
    let all = active(array_of_requests)?;
    if all.is_empty() {
        outcount.set(constants::MPI_UNDEFINED);
        return Ok(());
    }
    let mut found = 0;
    for Listed { at, request } in &all {
        if let Some(outcome) = request.peek() {
            array_of_indices.set(found, *at as i32);
            array_of_statuses.at(found).store(&outcome);
            found += 1;
        }
    }
    outcount.set(found as i32);
    Ok(())
}

/// The request behind a handle that must not be null.
fn present(h: Handle) -> Result<&'static Arc<Request>> {
    look_up(h)?.ok_or_else(|| err!(Request, "request is MPI_REQUEST_NULL"))
}

pub fn start(request: &mut Handle) -> Result<()> {
    present(*request)?.start()
}

pub fn startall(_count: i64, array_of_requests: &mut [Handle]) -> Result<()> {
    let all = array_of_requests
        .iter()
        .map(|&h| present(h))
        .collect::<Result<Vec<_>>>()?;
    same_origin(all.iter().copied())?;
    all.iter().try_for_each(|req| req.start())
}

pub fn cancel(request: &mut Handle) -> Result<()> {
    present(*request)?.cancel()
}

pub fn request_free(request: &mut Handle) -> Result<()> {
    let req = present(*request)?;
    if take_sent(request) {
        return Ok(());
    }
    req.free()?;
    // The table's reference goes; what is under way keeps what it needs.
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

/// Reads and writes of a status's public fields.
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
