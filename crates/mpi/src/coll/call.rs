//! A collective call with checked arguments, and its three forms: blocking, non-blocking and
//! persistent.

use super::executor::{
    self, BoundSchedule, CallToCache, CollArgs, CollTag, Form, Function, NEW_WINDOW, Name,
    Operation, View,
};
use super::{neighbour, node, select};
use crate::{Comm, Datatype, Op, Request, Result, overlap};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::{Collective, NeighbourExchange, Reduction, Root, Schedule};
use std::sync::Arc;

/// The collective operation of a call.
#[derive(Clone)]
pub enum CollectiveOperation<'a> {
    /// A collective, with its counts; counts of types without bytes are 0.
    Collective(Collective<'a>),
    /// A neighbourhood collective with blocks of one length; its communicator has a topology.
    /// Counts of types without bytes are 0.
    Exchange(NeighbourExchange),
    /// Another neighbourhood collective, as the schedule that
    /// [`exchange_with`](super::exchange_with) makes.
    Neighbourhood(Arc<Schedule>),
}

/// A collective call, its arguments checked.
#[derive(Clone)]
pub struct Call<'a> {
    operation: CollectiveOperation<'a>,
    /// Made once, where the call is made: copying them later would read with wide loads what has
    /// just been written with narrow stores, and wait for these.
    args: CollArgs<'a>,
}

impl<'a> Call<'a> {
    /// A call on `comm`. `recv` is the only buffer of MPI_Bcast. `reduction` is the operation and
    /// the datatype of a reduction.
    #[inline]
    pub fn new(
        comm: &'a Arc<Comm>,
        operation: CollectiveOperation<'a>,
        send: View<'a>,
        recv: View<'a>,
        reduction: Option<(&'a Arc<Op>, &'a Arc<Datatype>)>,
    ) -> Call<'a> {
        let root = root_of(&operation, comm);
        Call {
            operation,
            args: CollArgs {
                comm,
                send,
                recv,
                reduction,
                root,
            },
        }
    }

    fn schedule(&self) -> Arc<Schedule> {
        match &self.operation {
            CollectiveOperation::Collective(c) => select::schedule(self.args.comm, c),
            CollectiveOperation::Exchange(e) => neighbour::schedule(self.args.comm, e),
            CollectiveOperation::Neighbourhood(schedule) => schedule.clone(),
        }
    }

    fn function(&self, form: Form) -> Function {
        match &self.operation {
            CollectiveOperation::Collective(collective) => Function::of(collective, form),
            CollectiveOperation::Exchange(e) => Function::of_exchange(e, form),
            CollectiveOperation::Neighbourhood(_) => Function::new(Name::Neighbourhood, form),
        }
    }

    /// The tag of this call: the next one on its communicator.
    fn next_tag(&self, form: Form) -> CollTag {
        CollTag::next(self.args.comm, self.function(form), self.args.root)
    }

    fn bound_schedule(&self, form: Form) -> BoundSchedule {
        BoundSchedule::new(self.schedule(), &self.args, self.next_tag(form))
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
        let args = &self.args;
        match &self.operation {
            CollectiveOperation::Collective(collective) => {
                // SAFETY: the caller's promise.
                if let Some(result) = unsafe { node::run(collective, args) } {
                    return result;
                }
                let schedule = || self.schedule();
                // SAFETY: the caller's promise.
                if let Some(result) = unsafe { overlap::run(collective, args, schedule) } {
                    return result;
                }
            }
            CollectiveOperation::Exchange(exchange) => {
                // SAFETY: the caller's promise.
                if let Some(result) = unsafe { node::exchange(exchange, args) } {
                    return result;
                }
            }
            CollectiveOperation::Neighbourhood(_) => {}
        }
        let schedule = self.schedule();
        // SAFETY: the caller's promise.
        let result = unsafe { executor::run(&schedule, args, self.next_tag(Form::Blocking)) };
        result.inspect_err(|e| node::give_up_with_peers(args.comm, e))
    }

    /// As [`Call::run`], for buffers of the library's own: never in the background.
    ///
    /// # Errors
    /// As [`Call::run`].
    ///
    /// # Safety
    /// As [`Call::run`].
    unsafe fn run_at_once(&self) -> Result<()> {
        if let CollectiveOperation::Collective(collective) = &self.operation {
            // SAFETY: the caller's promise.
            if let Some(result) = unsafe { node::run(collective, &self.args) } {
                return result;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { executor::run(&self.schedule(), &self.args, self.next_tag(Form::Blocking)) }
    }

    /// Starts the call (MPI_I…). Does not block.
    ///
    /// # Safety
    /// The buffers must be readable and writable as the arguments say. The program must not use
    /// them until the request completes.
    pub unsafe fn start(&self) -> Arc<Request> {
        let args = &self.args;
        let to_cache = |operation, forced| CallToCache {
            operation,
            forced,
            args,
        };
        let to_cache = &match &self.operation {
            CollectiveOperation::Collective(collective) => {
                let setting = select::setting_for(args.comm, collective.kind());
                let call = to_cache(Operation::Collective(collective), setting.algorithm());
                let tag = || self.next_tag(Form::NonBlocking);
                // SAFETY: the caller's promise.
                if let Some(request) = unsafe { node::start(collective, &call, tag) } {
                    return request;
                }
                Some(call)
            }
            CollectiveOperation::Exchange(e) => Some(to_cache(Operation::Exchange(e), None)),
            CollectiveOperation::Neighbourhood(_) => None,
        };
        let cache = &args.comm.coll.request_cache;
        let function = self.function(Form::NonBlocking);
        if let Some(call) = to_cache
            // SAFETY: the caller's promise.
            && let Some(request) = unsafe { cache.restart(call, function) }
        {
            return request;
        }
        let bound = BoundSchedule::new(
            self.schedule(),
            args,
            CollTag::next(args.comm, function, args.root),
        );
        // SAFETY: the caller's promise.
        unsafe {
            match to_cache {
                Some(call) => cache.start_and_cache(call, bound),
                None => bound.start(),
            }
        }
    }

    /// Makes an inactive persistent request for the call (MPI_…_init). Does not block.
    ///
    /// # Safety
    /// Whenever the request is active, the buffers must be as for [`Call::start`].
    pub unsafe fn init(&self) -> Arc<Request> {
        let mut bound = self.bound_schedule(Form::Persistent);
        if let CollectiveOperation::Collective(collective) = &self.operation {
            // SAFETY: the caller's promise.
            bound = match unsafe { node::init(collective, &self.args, bound) } {
                Ok(request) => return request,
                Err(bound) => bound,
            };
        }
        // SAFETY: the caller's promise.
        unsafe { bound.init() }
    }
}

/// The rank of the operation's root; -1: it has none, or it is in the other group.
#[inline]
fn root_of(operation: &CollectiveOperation<'_>, comm: &Comm) -> i32 {
    let CollectiveOperation::Collective(
        Collective::Bcast { root, .. }
        | Collective::Reduce { root, .. }
        | Collective::Gather { root, .. }
        | Collective::Gatherv { root, .. }
        | Collective::Scatter { root, .. }
        | Collective::Scatterv { root, .. },
    ) = operation
    else {
        return -1;
    };
    match *root {
        Root::Rank(r) => r as i32,
        Root::This => comm.rank() as i32,
        Root::Elsewhere => -1,
    }
}

/// Sets the bits that are set in the numbers of any rank. Part of a call that makes a window on
/// `comm`; blocks until all ranks have made it, with as many numbers.
///
/// # Errors
/// Another rank is in another collective call.
pub(crate) fn or_bits(comm: &Arc<Comm>, numbers: &mut [u64]) -> Result<()> {
    let long = Datatype::basic(Basic::Uint64);
    let of = Reduction {
        count: numbers.len() as i64,
        element: 8,
        commutes: true,
    };
    let view = View::Uniform {
        address: numbers.as_mut_ptr().cast(),
        count: numbers.len() as i64,
        datatype: long,
    };
    let allreduce = CollectiveOperation::Collective(Collective::Allreduce { of, in_place: true });
    let reduction = Some((Op::of(Predefined::Bor), long));
    let mut call = Call::new(comm, allreduce, View::Nothing, view, reduction);
    call.args.root = NEW_WINDOW;
    // SAFETY: the buffer has so many elements, which are not used until the call is over.
    unsafe { call.run_at_once() }
}
