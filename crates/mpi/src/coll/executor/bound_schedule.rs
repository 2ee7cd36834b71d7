//! A schedule with counted references on the communicator, datatypes and operation that it uses.
//! For collectives that outlive their call (libnbc: a handle).

use super::CollArgs;
use super::background::{BackgroundRun, Bound};
use super::hang_description::RunDescription;
use super::message::{key_for, pattern_for};
use super::tag::CollTag;
use super::tmp_buffer::TmpBuffer;
use super::view::OwnedView;
use crate::device::{self, Describe, Device, ReqId, SendMode};
use crate::request::{Active, Request, Work};
use crate::{Comm, Datatype, Op};
use ferry_job::RankStatus;
use ferry_schedule::{Peer, Schedule};
use std::sync::Arc;

/// A schedule with its own references on communicator, datatypes and operation.
#[derive(Clone)]
pub(crate) struct BoundSchedule {
    comm: Arc<Comm>,
    send: OwnedView,
    recv: OwnedView,
    reduction: Option<(Arc<Op>, Arc<Datatype>)>,
    pub(crate) schedule: Arc<Schedule>,
    tag: CollTag,
}

impl BoundSchedule {
    pub(crate) fn new(schedule: Arc<Schedule>, b: &CollArgs<'_>, tag: CollTag) -> BoundSchedule {
        BoundSchedule {
            comm: b.comm.clone(),
            send: b.send.to_owned_view(),
            recv: b.recv.to_owned_view(),
            reduction: b.reduction.map(|(op, t)| (op.clone(), t.clone())),
            schedule,
            tag,
        }
    }

    /// The communicator.
    pub(crate) fn comm(&self) -> &Arc<Comm> {
        &self.comm
    }

    /// The tag of its messages.
    pub(crate) fn tag(&self) -> CollTag {
        self.tag
    }

    /// Writes what a hang report says of a wait for this collective.
    pub(crate) fn describe(&self, d: &mut Device, status: &RankStatus) {
        let description = RunDescription {
            schedule: &self.schedule,
            args: &self.args(),
            tag: self.tag,
        };
        description.describe(d, status);
    }

    /// Adds `send` and `recv` bytes to the addresses of the two buffers (wrapping).
    pub(crate) fn shift(&mut self, send: usize, recv: usize) {
        self.send.shift(send);
        self.recv.shift(recv);
    }

    /// Starts sending `len` bytes as a message of this collective. With `edges` the peer gets the
    /// first and last bytes of the message before the rest. `None`: the send is complete.
    ///
    /// # Safety
    /// As for [`Device::send`].
    pub(crate) unsafe fn send(
        &self,
        d: &mut Device,
        peer: Peer,
        (from, len): (*const u8, usize),
        edges: bool,
    ) -> Option<ReqId> {
        let (to, key) = key_for(&self.comm, self.tag, peer, true);
        let source = device::Source::Bytes { ptr: from, len };
        let mode = if edges {
            SendMode::StandardWithEdges
        } else {
            SendMode::Standard
        };
        // SAFETY: the caller's promise.
        unsafe { d.send(to, key, source, mode) }
    }

    /// Starts a deferred receive of a message of this collective.
    ///
    /// # Safety
    /// As for [`Device::receive_deferred`].
    pub(crate) unsafe fn receive_deferred(
        &self,
        d: &mut Device,
        peer: Peer,
        into: *mut u8,
        len: usize,
        edges: [usize; 2],
    ) -> ReqId {
        let (from, pattern) = pattern_for(&self.comm, self.tag, peer);
        let sink = device::Sink::Bytes {
            ptr: into,
            cap: len,
        };
        // SAFETY: the caller's promise.
        unsafe { d.receive_deferred(from, pattern, sink, edges) }
    }

    pub(crate) fn args(&self) -> CollArgs<'_> {
        CollArgs {
            comm: &self.comm,
            send: self.send.view(),
            recv: self.recv.view(),
            reduction: self.reduction.as_ref().map(|(op, t)| (op, t)),
            root: -1,
        }
    }

    /// Starts the collective once (MPI_I…).
    ///
    /// # Safety
    /// The buffers must be what the schedule takes them for, until the request completes.
    pub(crate) unsafe fn start(self) -> Arc<Request> {
        let comm = self.comm.clone();
        let nothing = self.schedule.steps.is_empty();
        // The caller's promise holds for the run.
        let started = BackgroundRun::new(Bound::Once(self));
        if nothing {
            started.complete();
        } else {
            device::device().add_background(started.clone());
        }
        Request::flagged(Some(comm), started)
    }

    /// Returns whether a run takes little enough memory for the request cache.
    pub(super) fn is_cacheable(&self) -> bool {
        let element = self.reduction.as_ref().map(|(_, t)| t);
        TmpBuffer::is_cacheable(self.schedule.tmp, element)
    }

    /// Sets the buffers and the tag of another run. Nothing else differs.
    pub(crate) fn rebind(&mut self, b: &CollArgs<'_>, tag: CollTag) {
        self.send.rebind(&b.send);
        self.recv.rebind(&b.recv);
        self.tag = tag;
    }

    /// Makes a persistent request (MPI_…_init). All its runs use one tag. Between any two ranks the
    /// messages of a run follow those of the run before, and messages match in order.
    ///
    /// # Safety
    /// The buffers must be what the schedule takes them for, whenever it is active.
    pub(crate) unsafe fn init(self) -> Arc<Request> {
        let comm = self.comm.clone();
        // The caller's promise holds for each start.
        let starter = BoundSchedule::starter(Arc::new(self));
        Request::persistent_work(Some(comm), Box::new(starter))
    }

    /// What starts the collective of a persistent request by messages. The buffers must be what
    /// the schedule takes them for, until the run has ended.
    pub(crate) fn starter(bound: Arc<BoundSchedule>) -> impl FnMut(&mut Device) -> Active + Send {
        let mut kept = KeptRun(None);
        move |d| {
            let last = kept.0.take().and_then(BackgroundRun::again);
            let started = last.unwrap_or_else(|| BackgroundRun::shared(bound.clone()));
            kept.0 = Some(started.clone());
            d.add_background(started.clone());
            Active::Work(started)
        }
    }
}

/// The last run of a persistent request, for its next start.
struct KeptRun(Option<Arc<BackgroundRun>>);

impl Drop for KeptRun {
    /// The program frees what the run holds. The device may still know the run itself.
    fn drop(&mut self) {
        if let Some(run) = &self.0 {
            run.release();
        }
    }
}
