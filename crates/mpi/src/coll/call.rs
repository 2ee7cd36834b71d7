//! A collective call with checked arguments, and its three forms: blocking, non-blocking and
//! persistent.

use super::executor::{self, BoundSchedule, CacheKey, CollArgs, CollTag, Form, Function, View};
use super::{node, select};
use crate::{Comm, Datatype, Op, Request, Result, overlap};
use ferry_schedule::{Collective, Root, Schedule};
use std::sync::Arc;

/// The collective operation of a call.
#[derive(Clone)]
pub enum CollectiveOperation<'a> {
    /// A collective, with its counts; counts of types without bytes are 0.
    Collective(Collective<'a>),
    /// A neighbourhood collective, as the schedule that
    /// [`exchange_with`](super::exchange_with) makes.
    Neighbourhood(Arc<Schedule>),
}

/// A collective call, its arguments checked.
#[derive(Clone)]
pub struct Call<'a> {
    /// The communicator.
    pub comm: &'a Arc<Comm>,
    /// The collective operation.
    pub operation: CollectiveOperation<'a>,
    /// The send buffer.
    pub send: View<'a>,
    /// The receive buffer. The only buffer of MPI_Bcast.
    pub recv: View<'a>,
    /// The operation and the datatype of a reduction.
    pub reduction: Option<(&'a Arc<Op>, &'a Arc<Datatype>)>,
}

impl<'a> Call<'a> {
    fn schedule(&self) -> Arc<Schedule> {
        match &self.operation {
            CollectiveOperation::Collective(c) => select::schedule(self.comm, c),
            CollectiveOperation::Neighbourhood(schedule) => schedule.clone(),
        }
    }

    fn args(&self) -> CollArgs<'a> {
        let CollectiveOperation::Collective(collective) = self.operation else {
            return self.args_with_root(-1);
        };
        let root = match collective {
            Collective::Bcast { root, .. }
            | Collective::Reduce { root, .. }
            | Collective::Gather { root, .. }
            | Collective::Gatherv { root, .. }
            | Collective::Scatter { root, .. }
            | Collective::Scatterv { root, .. } => match root {
                Root::Rank(r) => r as i32,
                Root::This => self.comm.rank() as i32,
                Root::Elsewhere => -1,
            },
            _ => -1,
        };
        self.args_with_root(root)
    }

    fn args_with_root(&self, root: i32) -> CollArgs<'a> {
        CollArgs {
            comm: self.comm,
            send: self.send,
            recv: self.recv,
            reduction: self.reduction,
            root,
        }
    }

    fn function(&self, form: Form) -> Function {
        match &self.operation {
            CollectiveOperation::Collective(collective) => Function::of(collective, form),
            CollectiveOperation::Neighbourhood(_) => Function::neighbourhood(form),
        }
    }

    /// The tag of this call: the next one on its communicator.
    fn next_tag(&self, form: Form, root: i32) -> CollTag {
        CollTag::next(self.comm, self.function(form), root)
    }

    fn bound_schedule(&self, form: Form) -> BoundSchedule {
        let b = self.args();
        BoundSchedule::new(self.schedule(), &b, self.next_tag(form, b.root))
    }

    /// Runs the call. Blocks until this rank's part is done.
    ///
    /// # Errors
    /// A message belongs to another collective call, or its length differs from this rank's
    /// arguments. The error reports the first such message. The other steps still run, so that the
    /// other ranks do not hang.
    ///
    /// # Safety
    /// The buffers must be readable and writable as the arguments say.
    #[inline]
    pub unsafe fn run(&self) -> Result<()> {
        let b = self.args();
        if let CollectiveOperation::Collective(collective) = &self.operation {
            // SAFETY: the caller's promise.
            if let Some(result) = unsafe { node::run(collective, &b) } {
                return result;
            }
            // SAFETY: the caller's promise.
            if let Some(result) = unsafe { overlap::run(collective, &b, || self.schedule()) } {
                return result;
            }
        }
        let schedule = self.schedule();
        // SAFETY: the caller's promise.
        unsafe { executor::run(&schedule, &b, self.next_tag(Form::Blocking, b.root)) }
    }

    /// Starts the call (MPI_I…). Does not block.
    ///
    /// # Safety
    /// The buffers must be readable and writable as the arguments say. The program must not use
    /// them until the request completes.
    pub unsafe fn start(&self) -> Arc<Request> {
        let b = self.args();
        let key = match &self.operation {
            CollectiveOperation::Collective(collective) => {
                let setting = select::setting_for(self.comm, collective.kind());
                CacheKey::new(collective, setting.algorithm(), &b)
            }
            CollectiveOperation::Neighbourhood(_) => None,
        };
        let cache = &self.comm.coll.request_cache;
        let function = self.function(Form::NonBlocking);
        // SAFETY: the caller's promise.
        if let Some(request) = key.and_then(|key| unsafe { cache.restart(&key, &b, function) }) {
            return request;
        }
        let bound = BoundSchedule::new(
            self.schedule(),
            &b,
            CollTag::next(self.comm, function, b.root),
        );
        // SAFETY: the caller's promise.
        unsafe {
            match key {
                Some(key) => cache.start_and_cache(key, &b, bound),
                None => bound.start(),
            }
        }
    }

    /// Makes an inactive persistent request for the call (MPI_…_init). Does not block.
    ///
    /// # Safety
    /// Whenever the request is active, the buffers must be as for [`Call::start`].
    pub unsafe fn init(&self) -> Arc<Request> {
        let bound = self.bound_schedule(Form::Persistent);
        // SAFETY: the caller's promise.
        unsafe { bound.init() }
    }
}
