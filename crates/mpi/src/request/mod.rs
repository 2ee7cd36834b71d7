//! Requests (MPI 5.0 §3.7, §3.9, §13.2): handles of operations that the program starts and
//! completes.

mod generalized;
mod outcome;
mod pool;
mod waiting;
mod work;

pub use generalized::{Generalized, GeneralizedCallbacks};
pub use outcome::Outcome;

pub use pool::clear_pool;
pub use waiting::{test, test_one, wait_all, wait_any, wait_until, wait_until_all};
pub use work::{Flag, Work};

use crate::device::{self, Device, DeviceGuard, ReqId};
use crate::partitioned::Partitioned;
use crate::{Comm, Error, Identity, Result, err};
use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A started operation.
pub enum Active {
    /// In progress in the device.
    Device(ReqId),
    /// Complete since its start.
    Complete(Outcome),
    /// Background work (a collective), or the program's own operation.
    Work(Arc<dyn Work>),
}

/// Starts a persistent operation.
pub type Starter = Box<dyn FnMut(&mut Device) -> Active + Send>;

enum State {
    /// A persistent operation that is not started, or a completed operation.
    Inactive,
    Active(Active),
}

/// The kind of operation behind a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Send,
    Receive,
    /// The shared request of all sends that completed before their call returned.
    CompletedSend,
    /// A generalised request.
    Generalized,
    Other,
}

/// How an operation has ended that has not failed: what its status says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SuccessStatus {
    /// Nothing, of a send or a collective.
    Empty,
    /// A receive.
    Received {
        /// The sender's rank.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// Bytes received.
        bytes: u64,
    },
}

/// A request of the program.
pub struct Request {
    /// The handle.
    pub identity: Identity,
    /// Constant while the program has the request ([`pool`]).
    operation: UnsafeCell<Operation>,
    state: UnsafeCell<State>,
    persistent: Option<Box<Persistent>>,
    /// Work whose completion can be tested without the device's lock.
    flag: Option<WorkRef>,
}

/// What a persistent request has more.
struct Persistent {
    starter: UnsafeCell<Starter>,
    /// The operation, if it is a partitioned one.
    partitioned: Option<Arc<dyn Partitioned>>,
}

/// The request's reference to background work.
struct WorkRef(Arc<dyn Work>);

impl Drop for WorkRef {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The operation behind a request.
struct Operation {
    comm: Option<Arc<Comm>>,
    class: Class,
}

// SAFETY: `state` and the starter are accessed only with exclusive use of the device (see `state`).
// `operation` changes only while this is the only reference to the request.
unsafe impl Send for Request {}
// SAFETY: shared references access `state` and the starter only with exclusive use of the device.
// `operation` is constant while it is shared.
unsafe impl Sync for Request {}

impl Request {
    fn make(
        comm: Option<Arc<Comm>>,
        class: Class,
        state: State,
        persistent: Option<Box<Persistent>>,
    ) -> Arc<Request> {
        Arc::new(Request {
            identity: Identity::none(),
            operation: UnsafeCell::new(Operation { comm, class }),
            state: UnsafeCell::new(state),
            persistent,
            flag: None,
        })
    }

    fn make_persistent(
        comm: Option<Arc<Comm>>,
        class: Class,
        starter: Starter,
        partitioned: Option<Arc<dyn Partitioned>>,
    ) -> Arc<Request> {
        let starter = UnsafeCell::new(starter);
        let persistent = Box::new(Persistent {
            starter,
            partitioned,
        });
        Request::make(comm, class, State::Inactive, Some(persistent))
    }

    /// A send in progress.
    #[inline(always)]
    pub fn send(d: &mut Device, comm: &Arc<Comm>, active: Active) -> Arc<Request> {
        pool::make(d, comm, Class::Send, active)
    }

    /// A receive in progress.
    #[inline(always)]
    pub fn receive(d: &mut Device, comm: &Arc<Comm>, active: Active) -> Arc<Request> {
        pool::make(d, comm, Class::Receive, active)
    }

    #[inline]
    fn operation(&self) -> &Operation {
        // SAFETY: it changes only while there is one reference to the request.
        unsafe { &*self.operation.get() }
    }

    /// Background work. Errors are raised on `comm`, if given.
    pub fn work(comm: Option<Arc<Comm>>, work: Arc<dyn Work>) -> Arc<Request> {
        Request::make(comm, Class::Other, State::Active(Active::Work(work)), None)
    }

    /// A generalised request (MPI_Grequest_start).
    pub fn general_work(work: Arc<Generalized>) -> Arc<Request> {
        let state = State::Active(Active::Work(work));
        Request::make(None, Class::Generalized, state, None)
    }

    /// Background work whose completion can be tested without the device's lock.
    pub fn flagged(comm: Option<Arc<Comm>>, flag: Arc<dyn Work>) -> Arc<Request> {
        let class = Class::Other;
        Arc::new(Request {
            identity: Identity::none(),
            operation: UnsafeCell::new(Operation { comm, class }),
            state: UnsafeCell::new(State::Active(Active::Work(flag.clone()))),
            persistent: None,
            flag: Some(WorkRef(flag)),
        })
    }

    /// Makes the request active again for another run of its work, which is returned. `None` if the
    /// work is of another type, or needs the device's lock to test its completion.
    pub fn renew<W: Work>(&mut self) -> Option<Arc<W>> {
        let work: Arc<dyn Any + Send + Sync> = self.flag.as_ref()?.0.clone();
        let work: Arc<W> = work.downcast().ok()?;
        let state = self.state.get_mut();
        if let State::Inactive = state {
            *state = State::Active(Active::Work(work.clone()));
        }
        Some(work)
    }

    /// Is the work complete without an error? Needs no lock. False for operations of other kinds.
    pub fn has_ended_well(&self) -> bool {
        let flag = self.flag.as_ref();
        flag.is_some_and(|f| f.0.has_ended_well())
    }

    /// Has the progress thread completed it without an error? Needs no lock. The outcome is then
    /// the empty status, so `complete` need not be called.
    #[inline]
    pub fn is_complete_without_lock(&self) -> bool {
        self.has_ended_well() && device::has_progress_thread()
    }

    /// An operation that is complete already.
    pub fn ended(outcome: Outcome) -> Arc<Request> {
        Request::make(
            None,
            Class::Other,
            State::Active(Active::Complete(outcome)),
            None,
        )
    }

    /// The shared request of sends that completed before their call returned. It stays complete.
    pub fn sent() -> Arc<Request> {
        let state = State::Active(Active::Complete(Outcome::SENT));
        Request::make(None, Class::CompletedSend, state, None)
    }

    /// A persistent send or receive, inactive.
    pub fn persistent(comm: Option<Arc<Comm>>, is_send: bool, starter: Starter) -> Arc<Request> {
        let class = if is_send { Class::Send } else { Class::Receive };
        Request::make_persistent(comm, class, starter, None)
    }

    /// A persistent collective, inactive.
    pub fn persistent_work(comm: Option<Arc<Comm>>, starter: Starter) -> Arc<Request> {
        Request::make_persistent(comm, Class::Other, starter, None)
    }

    /// A partitioned operation, inactive.
    pub fn partitioned_work(
        comm: &Arc<Comm>,
        operation: Arc<dyn Partitioned>,
        starter: Starter,
    ) -> Arc<Request> {
        Request::make_persistent(Some(comm.clone()), Class::Other, starter, Some(operation))
    }

    /// The communicator on which errors are raised, if there is one.
    pub fn comm(&self) -> Option<&Arc<Comm>> {
        self.operation().comm.as_ref()
    }

    /// Is it persistent? Then it stays after completion.
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.persistent.is_some()
    }

    #[inline]
    #[allow(clippy::mut_from_ref)] // the device's exclusive use is the lock of every request
    fn state<'a>(&'a self, _exclusive: &'a mut Device) -> &'a mut State {
        // SAFETY: `&mut Device` exists once at a time in the process, so there is no other
        // reference to the state.
        unsafe { &mut *self.state.get() }
    }

    /// Replaces a state that owns nothing: inactive, or in progress in the device. Unlike an
    /// assignment, it does not look whether the old state has background work to release.
    #[inline(always)]
    fn overwrite_state(&self, d: &mut Device, new: State) {
        let old = std::mem::replace(self.state(d), new);
        debug_assert!(matches!(
            old,
            State::Inactive | State::Active(Active::Device(_))
        ));
        std::mem::forget(old);
    }

    /// Is it active: started and not yet completed by the program?
    pub fn is_active(&self, d: &mut Device) -> bool {
        matches!(self.state(d), State::Active(_))
    }

    /// Can it be completed now? True for inactive requests.
    #[inline]
    pub fn is_complete(&self, d: &mut Device) -> bool {
        match self.state(d) {
            State::Inactive | State::Active(Active::Complete(_)) => true,
            State::Active(Active::Device(req)) => {
                let req = *req;
                d.is_complete(req)
            }
            State::Active(Active::Work(work)) => match &self.flag {
                Some(WorkRef(flag)) => flag.is_done(d),
                None => work.clone().is_done(d),
            },
        }
    }

    /// Completes the request, which becomes inactive. The operation must be complete. `held` is the
    /// device's lock. It is taken here if it is `None`, and dropped before the program's callbacks
    /// run.
    #[inline]
    pub fn complete(&self, held: &mut Option<DeviceGuard>) -> Outcome {
        if self.operation().class == Class::CompletedSend {
            return Outcome::SENT;
        }
        let d = held.get_or_insert_with(device::device);
        match std::mem::replace(self.state(d), State::Inactive) {
            State::Inactive => Outcome::EMPTY,
            State::Active(Active::Complete(outcome)) => outcome,
            State::Active(Active::Device(req)) => {
                let ended = d.take(req);
                self.outcome_of(&ended)
            }
            State::Active(Active::Work(work)) => {
                *held = None;
                let outcome = work.outcome();
                match work.free() {
                    Err(e) if outcome.error.is_none() => Outcome {
                        error: Some(e),
                        ..outcome
                    },
                    _ => outcome,
                }
            }
        }
    }

    /// Completes the operation, if it is complete and has succeeded. Returns what its status says.
    /// `None`: nothing was done; some kinds of work leave it to [`Request::complete`].
    #[inline(always)]
    pub fn complete_successful(&self, d: &mut Device) -> Option<SuccessStatus> {
        let operation = self.operation();
        let req = match self.state(d) {
            State::Active(Active::Device(req)) => *req,
            // A persistent send whose message was gone when it started.
            State::Active(Active::Complete(outcome))
                if operation.class == Class::Send && outcome.error.is_none() =>
            {
                *self.state(d) = State::Inactive;
                return Some(SuccessStatus::Empty);
            }
            State::Active(Active::Work(_)) => return self.complete_successful_work(d),
            _ => return None,
        };
        let may_be_short = || {
            let comm = operation.comm.as_ref();
            comm.is_some_and(|c| !c.has_exact_lengths())
        };
        let (envelope, bytes) = d.take_successful(req, may_be_short)?;
        self.overwrite_state(d, State::Inactive);
        Some(match operation.class {
            Class::Receive => SuccessStatus::Received {
                source: envelope.source,
                tag: envelope.tag,
                bytes,
            },
            _ => SuccessStatus::Empty,
        })
    }

    /// [`Request::complete_successful`] of background work.
    #[inline(never)]
    fn complete_successful_work(&self, d: &mut Device) -> Option<SuccessStatus> {
        let ended = match (&self.flag, self.state(d)) {
            (Some(WorkRef(flag)), _) => flag.end_successful(d),
            (None, State::Active(Active::Work(work))) => work.clone().end_successful(d),
            _ => None,
        }?;
        *self.state(d) = State::Inactive;
        Some(ended)
    }

    /// Ends a collective that the library has started for itself, and that needs no cleaning up.
    /// `None`: it is not complete.
    pub(crate) fn end_background(&self, d: &mut Device) -> Option<Result<()>> {
        if !self.is_complete(d) {
            return None;
        }
        match std::mem::replace(self.state(d), State::Inactive) {
            State::Active(Active::Work(work)) => Some(work.outcome().into_result().map(drop)),
            _ => Some(Ok(())),
        }
    }

    fn outcome_of(&self, ended: &device::Completion) -> Outcome {
        let operation = self.operation();
        match &operation.comm {
            Some(comm) => Outcome::of(ended, comm, operation.class == Class::Send),
            None => Outcome::EMPTY,
        }
    }

    /// The outcome, without completing the request (MPI_Request_get_status). `None` if the
    /// operation is not complete. Makes progress.
    pub fn peek(&self) -> Option<Outcome> {
        let ended = device::poll_once(|d| {
            if !self.is_complete(d) {
                return None;
            }
            match self.state(d) {
                State::Inactive => Some(Ok(Outcome::EMPTY)),
                State::Active(Active::Complete(outcome)) => Some(Ok(outcome.clone())),
                State::Active(Active::Device(req)) => {
                    let req = *req;
                    d.peek(req).map(|ended| Ok(self.outcome_of(&ended)))
                }
                State::Active(Active::Work(work)) => Some(Err(work.clone())),
            }
        })?;
        // Callbacks of the program run without the device's lock.
        Some(ended.unwrap_or_else(|work| work.outcome()))
    }

    /// Starts a persistent operation (MPI_Start).
    pub fn start(&self, d: &mut Device) -> Result<()> {
        let Some(persistent) = &self.persistent else {
            return Err(err!(Request, "the request is not persistent"));
        };
        if self.is_active(d) {
            return Err(err!(
                Request,
                "the request is active already: complete it before starting it again"
            ));
        }
        // SAFETY: as for `state`: the device is exclusively ours.
        let starter = unsafe { &mut *persistent.starter.get() };
        let active = starter(d);
        self.overwrite_state(d, State::Active(active));
        Ok(())
    }

    /// Cancels the operation (MPI_Cancel). Only receives that have not matched are cancelled. Other
    /// operations complete normally.
    pub fn cancel(&self) -> Result<()> {
        let mut d = device::device();
        match self.state(&mut d) {
            State::Active(Active::Device(req)) if self.operation().class == Class::Receive => {
                let req = *req;
                d.cancel_receive(req);
                Ok(())
            }
            State::Active(Active::Work(work)) => {
                let work = work.clone();
                drop(d);
                match work.must_be_completed() {
                    Some(what) => {
                        Err(self.locate(err!(Request, "a {what} operation cannot be cancelled")))
                    }
                    None => work.cancel(),
                }
            }
            State::Active(_) => Ok(()),
            State::Inactive => Err(err!(Request, "the request is not active")),
        }
    }

    /// Frees the request (MPI_Request_free). The operation continues.
    ///
    /// Errors: a collective or partitioned operation that is not complete.
    pub fn free(&self) -> Result<()> {
        let mut d = device::device();
        if let State::Active(Active::Work(work)) = self.state(&mut d)
            && let Some(what) = work.must_be_completed()
            && !work.clone().is_done(&mut d)
        {
            return Err(self.locate(err!(
                Request,
                "the {what} operation has not ended: complete it before its request is freed"
            )));
        }
        match std::mem::replace(self.state(&mut d), State::Inactive) {
            State::Active(Active::Device(req)) => d.detach(req),
            State::Active(Active::Work(work)) => {
                drop(d);
                return work.free();
            }
            _ => {}
        }
        Ok(())
    }

    /// The partitioned operation, if it is an active one.
    #[inline]
    pub fn partitioned(&self) -> Option<&dyn Partitioned> {
        let operation = self.persistent.as_ref()?.partitioned.as_deref()?;
        operation.is_active().then_some(operation)
    }

    /// Calls `f` with the generalised request, if it is one.
    pub fn general<R>(&self, f: impl FnOnce(&Generalized) -> R) -> Option<R> {
        let mut d = device::device();
        let State::Active(Active::Work(work)) = self.state(&mut d) else {
            return None;
        };
        let work = work.clone();
        drop(d);
        work.general().map(f)
    }

    /// Sets the communicator of an error in a call about this request.
    pub fn locate(&self, error: Error) -> Error {
        match self.comm() {
            Some(comm) => error.on(comm),
            None => error,
        }
    }
}
