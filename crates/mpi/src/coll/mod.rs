//! Collective communication (MPI 5.0 chapter 6): a call becomes a schedule, the schedule runs on the device.
//!
//! One [`Call`] serves all forms: blocking ([`Call::run`]), non-blocking ([`Call::start`]) and persistent ([`Call::init`]).

mod memory;
mod plans;
mod run;

pub use ferry_schedule::{Collective, Reduction, Root, Varying};
pub use memory::{Block, View};
pub use plans::Plans;

use crate::{Comm, Datatype, Op, Request, Result};
use run::{Binding, Lasting};
use std::sync::Arc;

/// A collective call, its arguments checked.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The communicator.
    pub comm: &'a Arc<Comm>,
    /// Which collective, with its counts; counts of types without bytes are 0.
    pub what: Collective<'a>,
    /// The send buffer.
    pub send: View<'a>,
    /// The receive buffer, or the only one.
    pub recv: View<'a>,
    /// A reduction's operation and type.
    pub reduction: Option<(&'a Arc<Op>, &'a Arc<Datatype>)>,
}

impl<'a> Call<'a> {
    fn binding(&self) -> Binding<'a> {
        let root = match self.what {
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
        Binding { comm: self.comm, send: self.send, recv: self.recv, reduction: self.reduction, root }
    }

    /// Carries it out; blocks until this rank's part is done.
    ///
    /// Errors: a message has another length than this rank's arguments say (the first such; the rest is carried out all the
    /// same, so that other ranks do not wait).
    ///
    /// # Safety
    /// The buffers must be readable and writable as the arguments say.
    #[inline]
    pub unsafe fn run(&self) -> Result<()> {
        let schedule = plans::schedule(self.comm, &self.what);
        // SAFETY: the caller's promise.
        unsafe { run::run(&schedule, &self.binding()) }
    }

    /// Starts it (MPI_I…). Does not block.
    ///
    /// # Safety
    /// The buffers must be readable and writable as the arguments say, and left alone, until the request completes.
    pub unsafe fn start(&self) -> Arc<Request> {
        let lasting = Lasting::new(plans::schedule(self.comm, &self.what), &self.binding());
        // SAFETY: the caller's promise.
        unsafe { lasting.start() }
    }

    /// A persistent request for it (MPI_…_init), inactive. Does not block.
    ///
    /// # Safety
    /// Whenever the request is active, the buffers must be as for [`Call::start`].
    pub unsafe fn init(&self) -> Arc<Request> {
        let lasting = Lasting::new(plans::schedule(self.comm, &self.what), &self.binding());
        // SAFETY: the caller's promise.
        unsafe { lasting.init() }
    }
}
