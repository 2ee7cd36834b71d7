//! A collective that outlives its call: a schedule with all that it runs on.

use super::Binding;
use super::background::{Started, What};
use super::message::{address, incoming};
use super::room::Room;
use super::tag::Number;
use super::view::LastingView;
use crate::device::{self, Device, ReqId, SendMode};
use crate::request::{Active, Request};
use crate::{Comm, Datatype, Op};
use ferry_schedule::{Peer, Schedule};
use std::sync::Arc;

/// A collective that outlives its call.
#[derive(Clone)]
pub(crate) struct Lasting {
    comm: Arc<Comm>,
    send: LastingView,
    recv: LastingView,
    reduction: Option<(Arc<Op>, Arc<Datatype>)>,
    pub(crate) schedule: Arc<Schedule>,
    number: Number,
}

impl Lasting {
    pub(crate) fn new(schedule: Arc<Schedule>, b: &Binding<'_>, number: Number) -> Lasting {
        Lasting {
            comm: b.comm.clone(),
            send: b.send.keep(),
            recv: b.recv.keep(),
            reduction: b.reduction.map(|(op, t)| (op.clone(), t.clone())),
            schedule,
            number,
        }
    }

    /// The communicator.
    pub(crate) fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// The numbers of its messages.
    pub(crate) fn number(&self) -> Number {
        self.number
    }

    /// The buffers are elsewhere: so many bytes (wrapping) from where they were.
    pub(crate) fn shift(&mut self, send: usize, recv: usize) {
        self.send.shift(send);
        self.recv.shift(recv);
    }

    /// Starts sending `len` bytes as a message of this collective; `ends`: to a peer who will want
    /// its ends first. `None`: they have gone.
    ///
    /// # Safety
    /// As for [`Device::send`].
    pub(crate) unsafe fn send(
        &self,
        d: &mut Device,
        peer: Peer,
        (from, len): (*const u8, usize),
        ends: bool,
    ) -> Option<ReqId> {
        let (to, key) = address(&self.comm, self.number, peer, true);
        let source = device::Source::Bytes { ptr: from, len };
        let mode = if ends {
            SendMode::StandardWithEdges
        } else {
            SendMode::Standard
        };
        // SAFETY: the caller's promise.
        unsafe { d.send(to, key, source, mode) }
    }

    /// Starts receiving a message of this collective, held back.
    ///
    /// # Safety
    /// As for [`Device::receive_deferred`].
    pub(crate) unsafe fn receive_deferred(
        &self,
        d: &mut Device,
        peer: Peer,
        into: *mut u8,
        len: usize,
        ends: [usize; 2],
    ) -> ReqId {
        let (from, pattern) = incoming(&self.comm, self.number, peer);
        let sink = device::Sink::Bytes {
            ptr: into,
            cap: len,
        };
        // SAFETY: the caller's promise.
        unsafe { d.receive_deferred(from, pattern, sink, ends) }
    }

    pub(crate) fn binding(&self) -> Binding<'_> {
        Binding {
            comm: &self.comm,
            send: self.send.view(),
            recv: self.recv.view(),
            reduction: self.reduction.as_ref().map(|(op, t)| (op, t)),
            root: -1,
        }
    }

    /// Starts it once (MPI_I…).
    ///
    /// # Safety
    /// The buffers must be what the schedule takes them for, until the request completes.
    pub(crate) unsafe fn start(self) -> Arc<Request> {
        let comm = self.comm.clone();
        let nothing = self.schedule.steps.is_empty();
        // The caller's promise holds for the run.
        let started = Started::new(What::Once(self));
        if nothing {
            started.end_at_once();
        } else {
            device::device().add_background(started.clone());
        }
        Request::flagged(Some(comm), started)
    }

    /// Does a run of it take little memory?
    pub(super) fn is_small(&self) -> bool {
        let element = self.reduction.as_ref().map(|(_, t)| t);
        Room::is_small(self.schedule.tmp, element)
    }

    /// Is to be done again, with these buffers and this number; nothing else is different.
    pub(super) fn renew(&mut self, b: &Binding<'_>, number: Number) {
        self.send.renew(&b.send);
        self.recv.renew(&b.recv);
        self.number = number;
    }

    /// Makes it a persistent request (MPI_…_init), whose starts are matched in their order: each
    /// run's messages follow those of the run before between any two ranks, so that all runs
    /// can have one number.
    ///
    /// # Safety
    /// The buffers must be what the schedule takes them for, whenever it is active.
    pub(crate) unsafe fn init(self) -> Arc<Request> {
        let comm = self.comm.clone();
        let lasting = Arc::new(self);
        // The caller's promise holds for each start.
        Request::persistent_work(
            Some(comm),
            Box::new(move |d| {
                let started = Started::new(What::Again(lasting.clone()));
                d.add_background(started.clone());
                Active::Work(started)
            }),
        )
    }
}
