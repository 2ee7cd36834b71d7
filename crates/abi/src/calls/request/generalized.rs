//! Generalised requests (MPI 5.0 §13.2).

use super::non_null;
use crate::prelude::*;
use ferry_mpi::request::{Generalized, GeneralizedCallbacks, Outcome};

/// The C functions of a generalised request.
struct Functions {
    query: QueryFunction,
    free: FreeFunction,
    cancel: CancelFunction,
    extra_state: *mut c_void,
}

// SAFETY: the pointer is the program's. MPI passes it only to the program's functions, on the
// thread that completes the request.
unsafe impl Send for Functions {}
// SAFETY: the pointer is only copied. MPI never dereferences it.
unsafe impl Sync for Functions {}

/// A callback's return value as a result.
fn callback_result(name: &str, code: i32) -> Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(Error::new(
            Kind::Code(code),
            format!("{name} returned {code}"),
        ))
    }
}

impl GeneralizedCallbacks for Functions {
    fn query(&self) -> Outcome {
        let mut status = Status::EMPTY;
        // SAFETY: the program's own function, called as MPI 5.0 §13.2 says.
        let code = unsafe { (self.query)(self.extra_state, &raw mut status) };
        let mut outcome = status.outcome();
        if let Err(e) = callback_result("query_fn", code) {
            outcome.error = Some(e);
        }
        outcome
    }
    fn free(&self) -> Result<()> {
        // SAFETY: the program's own function, called with the pointer given for it (MPI 5.0 §13.2).
        callback_result("free_fn", unsafe { (self.free)(self.extra_state) })
    }
    fn cancel(&self, complete: bool) -> Result<()> {
        // SAFETY: the program's own function, called with the pointer given for it (MPI 5.0 §13.2).
        callback_result("cancel_fn", unsafe {
            (self.cancel)(self.extra_state, i32::from(complete))
        })
    }
}

pub fn grequest_start(
    query_fn: QueryFunction,
    free_fn: FreeFunction,
    cancel_fn: CancelFunction,
    extra_state: *mut c_void,
    request: Out<Handle>,
) -> Result<()> {
    let functions = Functions {
        query: query_fn,
        free: free_fn,
        cancel: cancel_fn,
        extra_state,
    };
    let work = Arc::new(Generalized::new(Box::new(functions)));
    request.set(handle::insert(Request::general_work(work)));
    Ok(())
}

pub fn grequest_complete(request: Handle) -> Result<()> {
    match non_null(request)?.general(Generalized::complete) {
        Some(result) => result,
        None => Err(err!(Request, "the request is not a generalised request")),
    }
}
