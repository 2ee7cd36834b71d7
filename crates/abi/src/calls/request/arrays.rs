//! Completing several requests of an array: MPI_Waitall, MPI_Testall, MPI_Waitany, MPI_Testany,
//! MPI_Waitsome, MPI_Testsome (MPI 5.0 §3.7.5).

use super::{
    Completed, complete, complete_one, complete_successful, complete_successful_locked, finish,
    look_up, peek, sent,
};
use crate::prelude::*;
use ferry_mpi::ErrorScope;
use ferry_mpi::request::{self, Outcome};
use smallvec::SmallVec;
use std::cell::Cell;

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

/// Checks that the requests of a call belong to one session, or all to the world model.
pub(super) fn check_same_origin<'a>(
    requests: impl Iterator<Item = &'a Arc<Request>>,
) -> Result<()> {
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
pub(super) fn of_entry(at: usize, e: &Error) -> Error {
    err!(Request, "array_of_requests[{at}]: {}", e.text())
}

/// Adds the active requests of an array, with their indices, to `all`, which is empty. Not
/// returned, because moving room for 64 takes as long as completing a few.
fn active_requests<R: RequestForm>(handles: &[R], all: &mut ArrayRequests) -> Result<()> {
    all.reserve(handles.len());
    let mut d = ferry_mpi::device::device();
    for (at, &h) in handles.iter().enumerate() {
        match look_up(h).map_err(|e| of_entry(at, &e))? {
            Some(request) if request.is_active(&mut d) => all.push(ArrayRequest { at, request }),
            _ => continue,
        }
    }
    d.release();
    check_same_origin(handles.iter().filter_map(|h| h.request()))
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

/// Completes all of `ready` but the first `completed`, which have succeeded. `status_index` gives
/// the index of each status. Errors of single operations go into their statuses.
fn complete_each<R: RequestForm>(
    handles: &mut [R],
    ready: &[ArrayRequest],
    completed: usize,
    statuses: &OutStatuses,
    status_index: impl Fn(usize, usize) -> usize,
) -> Result<()> {
    let mut failed = None;
    let mut device = None;
    for (nth, &ArrayRequest { at, request }) in ready.iter().enumerate().skip(completed) {
        let status = statuses.at(status_index(nth, at));
        if failed.is_none()
            && complete_successful_locked(&mut handles[at], request, &mut device, status)
        {
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
    let (sent, null) = (R::of(sent()), R::null());
    for h in array_of_requests.iter_mut().filter(|h| **h == sent) {
        *h = null;
    }
    let mut all = ArrayRequests::new();
    active_requests(array_of_requests, &mut all)?;
    if all.len() < array_of_requests.len() {
        empty_statuses(array_of_requests.len(), &array_of_statuses);
    }
    // In their order, as long as they succeed: each is looked at once.
    let (completed, mut unused) = (Cell::new(0), Vec::new());
    request::wait_until_all(&all, &completed, |d| {
        while let Some(&ArrayRequest { at, request }) = all.get(completed.get()) {
            let status = array_of_statuses.at(at);
            match complete_successful(&mut array_of_requests[at], request, d, status) {
                Some(Completed { unused: request }) => unused.extend(request),
                None => return request.is_complete(d),
            }
            completed.set(completed.get() + 1);
        }
        true
    });
    drop(unused);
    let completed = completed.get();
    if completed == all.len() {
        return Ok(());
    }
    request::wait_all(&all[completed..]);
    let statuses = &array_of_statuses;
    complete_each(array_of_requests, &all, completed, statuses, |_, at| at)
}

pub fn testall<R: RequestForm>(
    _count: i64,
    array_of_requests: &mut [R],
    flag: OutFlag,
    array_of_statuses: OutStatuses,
) -> Result<()> {
    let mut all = ArrayRequests::new();
    active_requests(array_of_requests, &mut all)?;
    let done = request::test(|d| all.iter().all(|r| r.is_complete(d)));
    flag.set(done);
    if !done {
        return Ok(());
    }
    if all.len() < array_of_requests.len() {
        empty_statuses(array_of_requests.len(), &array_of_statuses);
    }
    complete_each(array_of_requests, &all, 0, &array_of_statuses, |_, at| at)
}

pub fn waitany<R: RequestForm>(
    _count: i64,
    array_of_requests: &mut [R],
    indx: Out<i32>,
    status: OutStatus,
) -> Result<()> {
    let mut all = ArrayRequests::new();
    active_requests(array_of_requests, &mut all)?;
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
    let mut all = ArrayRequests::new();
    active_requests(array_of_requests, &mut all)?;
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

/// The requests among `all` that can be completed now.
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
    let mut all = ArrayRequests::new();
    active_requests(handles, &mut all)?;
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
    complete_each(handles, &ready, 0, statuses, |nth, _| nth)
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
    let mut all = ArrayRequests::new();
    active_requests(array_of_requests, &mut all)?;
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
    let mut all = ArrayRequests::new();
    active_requests(array_of_requests, &mut all)?;
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
