//! A collective call, and its three forms.

use super::executor::{self, Binding, BoundSchedule, CacheKey, CollTag, Form, Function, View};
use super::{node, select};
use crate::{Comm, Datatype, Op, Request, Result, overlap};
use ferry_schedule::{Collective, Root, Schedule};
use std::sync::Arc;

/// The operation of a call.
#[derive(Clone)]
pub enum What<'a> {
    /// A collective, with its counts; counts of types without bytes are 0.
    Collective(Collective<'a>),
    /// An exchange with neighbours ([`exchange_with`](super::exchange_with)).
    Exchange(Arc<Schedule>),
}

/// A collective call, its arguments checked.
#[derive(Clone)]
pub struct Call<'a> {
    /// The communicator.
    pub comm: &'a Arc<Comm>,
    /// Which collective.
    pub what: What<'a>,
    /// The send buffer.
    pub send: View<'a>,
    /// The receive buffer, or the only one.
    pub recv: View<'a>,
    /// A reduction's operation and type.
    pub reduction: Option<(&'a Arc<Op>, &'a Arc<Datatype>)>,
}

impl<'a> Call<'a> {
    fn schedule(&self) -> Arc<Schedule> {
        match &self.what {
            What::Collective(c) => select::schedule(self.comm, c),
            What::Exchange(schedule) => schedule.clone(),
        }
    }

    fn binding(&self) -> Binding<'a> {
        let What::Collective(what) = self.what else {
            return self.bound(-1);
        };
        let root = match what {
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
        self.bound(root)
    }

    fn bound(&self, root: i32) -> Binding<'a> {
        Binding {
            comm: self.comm,
            send: self.send,
            recv: self.recv,
            reduction: self.reduction,
            root,
        }
    }

    fn function(&self, form: Form) -> Function {
        match &self.what {
            What::Collective(what) => Function::of(what, form),
            What::Exchange(_) => Function::neighbourhood(form),
        }
    }

    /// The tag of the next collective on its communicator, which this is.
    fn next_tag(&self, form: Form, root: i32) -> CollTag {
        CollTag::next(self.comm, self.function(form), root)
    }

    fn bound_schedule(&self, form: Form) -> BoundSchedule {
        let b = self.binding();
        BoundSchedule::new(self.schedule(), &b, self.next_tag(form, b.root))
    }

    /// Executes it. Blocks until this rank's part is done.
    ///
    /// Errors: a message is of another call than this rank's, or has another length than this
    /// rank's arguments say. The first such message is told. The rest is executed all the same, so
    /// that other ranks do not wait.
    ///
    /// # Safety
    /// The buffers must be readable and writable as the arguments say.
    #[inline]
    pub unsafe fn run(&self) -> Result<()> {
        let b = self.binding();
        if let What::Collective(what) = &self.what {
            // SAFETY: the caller's promise.
            if let Some(result) = unsafe { node::run(what, &b) } {
                return result;
            }
            // SAFETY: the caller's promise.
            if let Some(result) = unsafe { overlap::run(what, &b, || self.schedule()) } {
                return result;
            }
        }
        let schedule = self.schedule();
        // SAFETY: the caller's promise.
        unsafe { executor::run(&schedule, &b, self.next_tag(Form::Blocking, b.root)) }
    }

    /// Starts it (MPI_I…). Does not block.
    ///
    /// # Safety
    /// The buffers must be readable and writable as the arguments say, and left alone, until the
    /// request completes.
    pub unsafe fn start(&self) -> Arc<Request> {
        let b = self.binding();
        let key = match &self.what {
            What::Collective(what) => {
                let setting = select::setting_for(self.comm, what.kind());
                CacheKey::new(what, setting.algorithm(), &b)
            }
            What::Exchange(_) => None,
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

    /// A persistent request for it (MPI_…_init), inactive. Does not block.
    ///
    /// # Safety
    /// Whenever the request is active, the buffers must be as for [`Call::start`].
    pub unsafe fn init(&self) -> Arc<Request> {
        let bound = self.bound_schedule(Form::Persistent);
        // SAFETY: the caller's promise.
        unsafe { bound.init() }
    }
}
