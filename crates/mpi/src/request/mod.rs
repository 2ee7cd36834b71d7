//! Requests (MPI 5.0 §3.7, §3.9, §13.2): operations that the program started and will complete.

mod generalized;
mod outcome;
mod pool;

pub use generalized::{Generalized, GeneralizedCallbacks};
pub use outcome::Outcome;

pub use pool::clear_pool;

use crate::device::{self, Describe, Device, DeviceGuard, ReqId, WaitingFor};
use crate::partitioned::Partitioned;
use crate::{Comm, Error, Identity, Result, err};
use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// An operation as it stands once started.
pub enum Active {
    /// Under way in the device.
    Device(ReqId),
    /// It ended as it was started.
    Ended(Outcome),
    /// Work in the background (a collective), or of the program itself.
    Work(Arc<dyn Work>),
}

/// Something that completes some time.
pub trait Work: Any + Send + Sync {
    /// Has it completed? Called under the device's lock.
    fn is_done(&self, d: &mut Device) -> bool;
    /// How it ended, each time the same; called without the device's lock, after it is done.
    fn outcome(&self) -> Outcome;
    /// The program asks that it be cancelled. Called without the device's lock.
    fn cancel(&self) -> Result<()> {
        Ok(())
    }
    /// The program frees the request. Called without the device's lock.
    fn free(&self) -> Result<()> {
        Ok(())
    }
    /// What it is, if the program must complete it and may neither cancel it nor, while it is under
    /// way, free its request (MPI 5.0 sections 4.2.1 and 6.12).
    fn must_be_completed(&self) -> Option<&'static str> {
        None
    }
    /// A generalised request, to be completed by the program.
    fn general(&self) -> Option<&Generalized> {
        None
    }
    /// Has it ended, without an error? Asked without the device.
    fn has_ended_well(&self) -> bool {
        false
    }
    /// The program has done with its request, and this with what it used, if it has ended.
    fn release(&self) {}
    /// A partitioned operation.
    fn partitioned(&self) -> Option<&dyn Partitioned> {
        None
    }
}

/// The completion of background work: set once by the work, watched by its request.
#[derive(Debug, Default)]
pub struct Flag {
    done: AtomicBool,
    error: OnceLock<Error>,
}

impl Flag {
    /// The work has ended.
    pub fn set(&self, result: Result<()>) {
        if let Err(e) = result {
            let _ = self.error.set(e);
        }
        self.done.store(true, Ordering::Release);
    }

    /// It is to be done once more, having ended well.
    pub fn clear(&self) {
        self.done.store(false, Ordering::Relaxed);
    }

    /// Has it?
    #[inline]
    pub fn is_set(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

impl Work for Flag {
    fn is_done(&self, _d: &mut Device) -> bool {
        self.is_set()
    }
    fn must_be_completed(&self) -> Option<&'static str> {
        Some("collective")
    }
    fn outcome(&self) -> Outcome {
        Outcome {
            error: self.error.get().cloned(),
            ..Outcome::EMPTY
        }
    }
    #[inline]
    fn has_ended_well(&self) -> bool {
        self.is_set() && self.error.get().is_none()
    }
}

/// What starts a persistent operation.
pub type Starter = Box<dyn FnMut(&mut Device) -> Active + Send>;

enum State {
    /// A persistent operation that has not been started, or one that has been completed.
    Inactive,
    Active(Active),
}

/// What kind of operation a request stands for.
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

/// An operation that the program started and will complete.
pub struct Request {
    /// The handle.
    pub identity: Identity,
    /// Fixed while the program has the request ([`pool`]).
    of: UnsafeCell<Of>,
    state: UnsafeCell<State>,
    starter: Option<UnsafeCell<Starter>>,
    /// Says that it is complete to who has not the device.
    flag: Option<Ended>,
}

/// The end of background work, as its request sees it.
struct Ended(Arc<dyn Work>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// What a request is of.
struct Of {
    comm: Option<Arc<Comm>>,
    class: Class,
}

// SAFETY: `state` and `starter` are reached only with exclusive use of the device (see `state`);
// `of` changes only while nobody else knows the request.
unsafe impl Send for Request {}
// SAFETY: shared references reach `state` and `starter` only with exclusive use of the device, and
// read `of`, which is fixed then.
unsafe impl Sync for Request {}

impl Request {
    fn make(
        comm: Option<Arc<Comm>>,
        class: Class,
        state: State,
        starter: Option<Starter>,
    ) -> Arc<Request> {
        let starter = starter.map(UnsafeCell::new);
        Arc::new(Request {
            identity: Identity::none(),
            of: UnsafeCell::new(Of { comm, class }),
            state: UnsafeCell::new(state),
            starter,
            flag: None,
        })
    }

    /// A send under way.
    #[inline]
    pub fn send(d: &mut Device, comm: &Arc<Comm>, active: Active) -> Arc<Request> {
        pool::make(d, comm, Class::Send, active)
    }

    /// A receive under way.
    #[inline]
    pub fn receive(d: &mut Device, comm: &Arc<Comm>, active: Active) -> Arc<Request> {
        pool::make(d, comm, Class::Receive, active)
    }

    #[inline]
    fn of(&self) -> &Of {
        // SAFETY: it changes only while nobody else knows the request.
        unsafe { &*self.of.get() }
    }

    /// Work under way; errors go to `comm`, if given.
    pub fn work(comm: Option<Arc<Comm>>, work: Arc<dyn Work>) -> Arc<Request> {
        Request::make(comm, Class::Other, State::Active(Active::Work(work)), None)
    }

    /// An operation of the program's own (MPI_Grequest_start).
    pub fn general_work(work: Arc<Generalized>) -> Arc<Request> {
        let state = State::Active(Active::Work(work));
        Request::make(None, Class::Generalized, state, None)
    }

    /// Work under way that says by itself when it is complete.
    pub fn flagged(comm: Option<Arc<Comm>>, flag: Arc<dyn Work>) -> Arc<Request> {
        let class = Class::Other;
        Arc::new(Request {
            identity: Identity::none(),
            of: UnsafeCell::new(Of { comm, class }),
            state: UnsafeCell::new(State::Active(Active::Work(flag.clone()))),
            starter: None,
            flag: Some(Ended(flag)),
        })
    }

    /// The work is to be done once more; it is returned. `None`: it is of another kind, or does not
    /// say by itself when it is complete.
    pub fn renew<W: Work>(&mut self) -> Option<Arc<W>> {
        let work: Arc<dyn Any + Send + Sync> = self.flag.as_ref()?.0.clone();
        let work: Arc<W> = work.downcast().ok()?;
        let state = self.state.get_mut();
        if let State::Inactive = state {
            *state = State::Active(Active::Work(work.clone()));
        }
        Some(work)
    }

    /// Has work that says by itself when it is complete ended, without an error? Asked without the
    /// device.
    pub fn has_ended_well(&self) -> bool {
        let flag = self.flag.as_ref();
        flag.is_some_and(|f| f.0.has_ended_well())
    }

    /// Has the progress thread ended it, without an error? Nobody's lock is needed to know that,
    /// and the program, which has done with the request then, need not complete it: there is
    /// nothing to tell.
    #[inline]
    pub fn ended_already(&self) -> bool {
        self.has_ended_well() && device::has_progress_thread()
    }

    /// An operation that ended as it was started.
    pub fn ended(outcome: Outcome) -> Arc<Request> {
        Request::make(
            None,
            Class::Other,
            State::Active(Active::Ended(outcome)),
            None,
        )
    }

    /// Stands for all sends that ended well as they were started; it stays complete.
    pub fn sent() -> Arc<Request> {
        let state = State::Active(Active::Ended(Outcome::SENT));
        Request::make(None, Class::CompletedSend, state, None)
    }

    /// A persistent send or receive, inactive.
    pub fn persistent(comm: Option<Arc<Comm>>, is_send: bool, starter: Starter) -> Arc<Request> {
        let class = if is_send { Class::Send } else { Class::Receive };
        Request::make(comm, class, State::Inactive, Some(starter))
    }

    /// A persistent collective, inactive.
    pub fn persistent_work(comm: Option<Arc<Comm>>, starter: Starter) -> Arc<Request> {
        Request::make(comm, Class::Other, State::Inactive, Some(starter))
    }

    /// The communicator whose error handler hears of errors, if there is one.
    pub fn comm(&self) -> Option<&Arc<Comm>> {
        self.of().comm.as_ref()
    }

    /// Is it persistent (kept after completion)?
    #[inline]
    pub fn is_persistent(&self) -> bool {
        self.starter.is_some()
    }

    #[inline]
    #[allow(clippy::mut_from_ref)] // the device's exclusive use is the lock of every request
    fn state<'a>(&'a self, _exclusive: &'a mut Device) -> &'a mut State {
        // SAFETY: `&mut Device` exists once at a time in the process, so no other reference to the
        // state does.
        unsafe { &mut *self.state.get() }
    }

    /// Is it started and not yet completed by the program?
    pub fn is_active(&self, d: &mut Device) -> bool {
        matches!(self.state(d), State::Active(_))
    }

    /// Could it be completed now? Inactive requests could.
    #[inline]
    pub fn is_complete(&self, d: &mut Device) -> bool {
        match self.state(d) {
            State::Inactive | State::Active(Active::Ended(_)) => true,
            State::Active(Active::Device(req)) => {
                let req = *req;
                d.is_complete(req)
            }
            State::Active(Active::Work(work)) => {
                let work = work.clone();
                work.is_done(d)
            }
        }
    }

    /// Completes it: it becomes inactive. It must be complete. `held`: the device, taken here if it
    /// is not there, and let go where the program's own functions may be called.
    #[inline]
    pub fn complete(&self, held: &mut Option<DeviceGuard>) -> Outcome {
        if self.of().class == Class::CompletedSend {
            return Outcome::SENT;
        }
        let d = held.get_or_insert_with(device::device);
        match std::mem::replace(self.state(d), State::Inactive) {
            State::Inactive => Outcome::EMPTY,
            State::Active(Active::Ended(outcome)) => outcome,
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

    fn outcome_of(&self, ended: &device::Completion) -> Outcome {
        let of = self.of();
        match &of.comm {
            Some(comm) => Outcome::of(ended, comm, of.class == Class::Send),
            None => Outcome::EMPTY,
        }
    }

    /// How it would complete, leaving it as it is (MPI_Request_get_status). `None`: it is not
    /// complete. Makes progress.
    pub fn peek(&self) -> Option<Outcome> {
        let ended = device::poll_once(|d| {
            if !self.is_complete(d) {
                return None;
            }
            match self.state(d) {
                State::Inactive => Some(Ok(Outcome::EMPTY)),
                State::Active(Active::Ended(outcome)) => Some(Ok(outcome.clone())),
                State::Active(Active::Device(req)) => {
                    let req = *req;
                    d.peek(req).map(|ended| Ok(self.outcome_of(&ended)))
                }
                State::Active(Active::Work(work)) => Some(Err(work.clone())),
            }
        })?;
        // What the program's own function says is asked without the device.
        Some(ended.unwrap_or_else(|work| work.outcome()))
    }

    /// Starts a persistent operation (MPI_Start).
    pub fn start(&self) -> Result<()> {
        let Some(starter) = &self.starter else {
            return Err(err!(Request, "the request is not persistent"));
        };
        let mut d = device::device();
        if self.is_active(&mut d) {
            return Err(err!(
                Request,
                "the request is active already: complete it before starting it again"
            ));
        }
        // SAFETY: as for `state`: the device is exclusively ours.
        let starter = unsafe { &mut *starter.get() };
        let active = starter(&mut d);
        *self.state(&mut d) = State::Active(active);
        Ok(())
    }

    /// Asks that it be cancelled (MPI_Cancel). Receives that have not matched are; everything else
    /// completes as it would.
    pub fn cancel(&self) -> Result<()> {
        let mut d = device::device();
        match self.state(&mut d) {
            State::Active(Active::Device(req)) if self.of().class == Class::Receive => {
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

    /// The program lets go of it; what is under way goes on (MPI_Request_free). Errors: a
    /// collective or partitioned operation that has not ended.
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

    /// The partitioned operation under way that it is, if it is one.
    pub fn partitioned<R>(&self, f: impl FnOnce(&dyn Partitioned) -> R) -> Option<R> {
        let mut d = device::device();
        let State::Active(Active::Work(work)) = self.state(&mut d) else {
            return None;
        };
        let work = work.clone();
        drop(d);
        work.partitioned().map(f)
    }

    /// The generalised request that it is, if it is one.
    pub fn general<R>(&self, f: impl FnOnce(&Generalized) -> R) -> Option<R> {
        let mut d = device::device();
        let State::Active(Active::Work(work)) = self.state(&mut d) else {
            return None;
        };
        let work = work.clone();
        drop(d);
        work.general().map(f)
    }

    /// An error of a call about this request belongs to its communicator.
    pub fn locate(&self, error: Error) -> Error {
        match self.comm() {
            Some(comm) => error.on(comm),
            None => error,
        }
    }

    fn waiting_for(&self) -> WaitingFor<'_> {
        WaitingFor {
            context: self.comm().map_or(device::ContextId::WORLD, |c| c.context),
            peer: match self.of().class {
                Class::Generalized => ferry_job::PEER_OWN_PROGRAM,
                _ => ferry_job::PEER_SEVERAL,
            },
            tag: -1,
            details: Some(self),
        }
    }
}

impl Describe for Request {
    /// Of a receive that has met no message yet, from whom it is to come, too.
    fn describe(&self, d: &mut Device, status: &ferry_job::RankStatus) {
        let Some(comm) = self.comm() else { return };
        comm.describe(d, status);
        let &mut State::Active(Active::Device(req)) = self.state(d) else {
            return;
        };
        if let Some(asked) = d.posted_pattern(req) {
            let peer = asked.source.map_or(-1, |rank| comm.peer(rank) as i32);
            let tag = asked.tag.only().map_or(-1, |tag| tag as i32);
            status.peer.store(peer, Ordering::Relaxed);
            status.tag.store(tag, Ordering::Relaxed);
        }
    }
}

/// What mpiexec's hang report shows for a wait for `requests`; `one` is the first of them.
#[inline]
fn waiting_for<'a>(one: &'a Request, requests: &[impl Deref<Target = Request>]) -> WaitingFor<'a> {
    let is_general = |r: &Request| r.of().class == Class::Generalized;
    if requests.len() == 1 || is_general(one) && requests.iter().all(|r| is_general(r)) {
        one.waiting_for()
    } else {
        WaitingFor::SEVERAL
    }
}

/// Blocks until all of `requests` can be completed.
#[inline]
pub fn wait_all(requests: &[impl Deref<Target = Request>]) {
    let mut first = 0;
    let Some(one) = requests.first() else { return };
    let what = waiting_for(one, requests);
    device::wait_until(&what, |d| {
        while first < requests.len() && requests[first].is_complete(d) {
            first += 1;
        }
        first == requests.len()
    });
}

/// Blocks until one of `requests`, of which there is at least one active, can be completed; returns
/// which.
pub fn wait_any(requests: &[impl Deref<Target = Request>]) -> usize {
    let mut found = 0;
    let Some(one) = requests.first() else {
        return 0;
    };
    device::wait_until(&waiting_for(one, requests), |d| {
        match requests.iter().position(|r| r.is_complete(d)) {
            Some(at) => {
                found = at;
                true
            }
            None => false,
        }
    });
    found
}

/// Makes progress once unless `done` at once; returns what `done` said last.
pub fn test(mut done: impl FnMut(&mut Device) -> bool) -> bool {
    device::poll_once(|d| done(d).then_some(())).is_some()
}
