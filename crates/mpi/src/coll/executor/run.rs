//! The run of a schedule: its state, and how it advances.

use super::CollArgs;
use super::counters::COUNTERS;
use super::hang_description::RunDescription;
use super::in_flight::InFlight;
use super::memory::Buffers;
use super::message::{check_message, has_given_up, key_for, pattern_for};
use super::tag::CollTag;
use super::tmp_buffer::TmpBuffer;
use super::unreceived::explain;
use super::view::View;
use crate::device::{self, Device, Pattern, ReqId, SendMode};
use crate::{Comm, Error, Result, err};
use ferry_schedule::{Peer, Piece, Region, Schedule, Step};
use std::sync::Arc;

/// Maximum size of a reduction that is done under the device's lock. A larger one is done without
/// it, so that other threads get the device. About 0.7 µs of work by the cost model
/// (`Cost::reduce_byte_s`).
pub(super) const INLINE_WORK_MAX_BYTES: i64 = 16 * 1024;

/// Bytes that the progress thread copies before it lets other threads have the device. About 5 µs
/// of work by the cost model (`Cost::copy_byte_s`).
pub(super) const COPY_SLICE_BYTES: usize = 128 * 1024;

/// Who does a schedule's local work (reductions, copies) that takes long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkPolicy {
    /// Whoever advances the run, at once.
    Inline,
    /// The caller, without the device's lock.
    Caller,
    /// The progress thread, a slice at a time, while the program does not wait in MPI. Otherwise
    /// whoever advances the run. Where that thread polls, it also starts large messages.
    ProgressThread,
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    /// It waits for messages.
    Waiting,
    /// The next step is local work that belongs outside the device's lock.
    LocalWork,
    Done,
}

/// A message in flight.
#[derive(Clone, Copy)]
struct Message {
    step: u32,
    req: ReqId,
    /// Bytes that a receive must get; `None` for a send.
    expected: Option<usize>,
}

/// What a run does more where its pages are guarded (`--overlap`).
struct Observer {
    /// Steps that have completed since [`Run::take_completed`] was called last.
    completed: Vec<usize>,
    /// The message edges of its receives.
    edges: EdgeLengths,
}

/// Gives the lengths of a receive's message edges: the bytes at its beginning and at its end that
/// the program can touch before the rest has arrived.
pub(crate) type EdgeLengths = Box<dyn Fn(std::ops::Range<usize>) -> [usize; 2] + Send>;

/// The state of a schedule's run.
pub(crate) struct Run {
    /// The first step that has not been started.
    pub(super) next_step: usize,
    observer: Option<Observer>,
    in_flight: InFlight<Message>,
    /// Bytes that the next step has copied already, if it is a copy.
    copied_bytes: usize,
    /// The counters include this run.
    is_counted: bool,
    tmp: TmpBuffer,
    tag: CollTag,
    error: Option<Error>,
    /// The peers that have given up this call: they send nothing more in it.
    gave_up: Vec<u32>,
}

impl Run {
    pub(super) fn new(schedule: &Schedule, b: &CollArgs<'_>, tag: CollTag) -> Run {
        Run {
            next_step: 0,
            observer: None,
            in_flight: InFlight::default(),
            copied_bytes: 0,
            is_counted: false,
            tmp: TmpBuffer::new(schedule.tmp, b.reduction.map(|r| r.1)),
            tag,
            error: None,
            gave_up: Vec::new(),
        }
    }

    /// Prepares another run. The last one must have ended without error. It had no observer.
    pub(super) fn reset(&mut self, tag: CollTag) {
        (self.next_step, self.copied_bytes) = (0, 0);
        (self.is_counted, self.tag) = (false, tag);
    }

    /// A run that records [which steps have completed](Run::take_completed), and whose receives get
    /// their message edges first.
    pub(crate) fn observed(
        schedule: &Schedule,
        b: &CollArgs<'_>,
        tag: CollTag,
        edges: EdgeLengths,
    ) -> Run {
        Run {
            observer: Some(Observer {
                completed: Vec::new(),
                edges,
            }),
            ..Run::new(schedule, b, tag)
        }
    }

    /// The steps that have completed since the last call of this function.
    pub(crate) fn take_completed(&mut self) -> Vec<usize> {
        let observer = self.observer.as_mut();
        observer
            .map(|o| std::mem::take(&mut o.completed))
            .unwrap_or_default()
    }

    /// The receives in flight, with their steps.
    pub(crate) fn receives(&self) -> impl Iterator<Item = (usize, ReqId)> + '_ {
        let all = self.in_flight.iter().filter(|m| m.expected.is_some());
        all.map(|m| (m.step as usize, m.req))
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// As for [`Device::receive`].
    #[inline]
    unsafe fn receive(
        &self,
        d: &mut Device,
        from: u32,
        pattern: Pattern,
        sink: device::Sink,
    ) -> ReqId {
        if let (Some(observer), device::Sink::Bytes { ptr, cap }) = (&self.observer, &sink) {
            let start = *ptr as usize;
            let edges = (observer.edges)(start..start + cap);
            // SAFETY: the caller's promise.
            let req = unsafe { d.receive_deferred(from, pattern, sink, edges) };
            d.release_deferred(req);
            return req;
        }
        // SAFETY: the caller's promise.
        unsafe { d.receive_from(from, pattern, sink) }
    }

    /// Takes the first error of the run.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    #[inline]
    fn record_completion(&mut self, step: usize) {
        if let Some(observer) = &mut self.observer {
            observer.completed.push(step);
        }
    }

    /// Executes steps until one would wait.
    ///
    /// # Safety
    /// The buffers must be what the schedule takes them for; this value must not move
    /// until the run is done.
    pub(crate) unsafe fn advance(
        &mut self,
        s: &Schedule,
        b: &CollArgs<'_>,
        d: &mut Device,
        policy: WorkPolicy,
    ) -> RunState {
        let buffers = b.buffers();
        if !std::mem::replace(&mut self.is_counted, true) {
            COUNTERS.count(s.algorithm, d);
        }
        while let Some(step) = s.steps.get(self.next_step) {
            if let Step::Send { from: piece, .. } | Step::Recv { into: piece, .. } = *step
                && policy == WorkPolicy::ProgressThread
                && d.offloads_message(bytes(b, piece))
            {
                return RunState::Waiting;
            }
            match *step {
                // SAFETY: the caller's promise.
                Step::Send { peer, from } => unsafe { self.start_send(b, &buffers, d, peer, from) },
                // SAFETY: the caller's promise.
                Step::Recv { peer, into } => unsafe { self.start_recv(b, &buffers, d, peer, into) },
                Step::Await { before } => {
                    if !self.collect(b.comm, d, before) {
                        return RunState::Waiting;
                    }
                }
                Step::Reduce { into, .. } | Step::Copy { into, .. } => {
                    // SAFETY: the caller's promise.
                    let not_done = unsafe { self.work(b, &buffers, d, policy, step, into) };
                    if let Some(state) = not_done {
                        return state;
                    }
                }
            }
            self.next_step += 1;
        }
        if self.collect(b.comm, d, u32::MAX) {
            RunState::Done
        } else {
            RunState::Waiting
        }
    }

    /// Starts the send of a step. It may be complete at once.
    ///
    /// # Safety
    /// As for [`Run::advance`].
    #[inline]
    unsafe fn start_send(
        &mut self,
        b: &CollArgs<'_>,
        buffers: &Buffers<'_>,
        d: &mut Device,
        peer: Peer,
        from: Piece,
    ) {
        let (to, key) = key_for(b.comm, self.tag, peer, true);
        let source = buffers.locate(from, &mut self.tmp).source();
        // SAFETY: the schedule leaves the piece alone until the send is awaited, and the caller
        // the buffers.
        if let Some(req) = unsafe { d.send(to, key, source, SendMode::Standard) } {
            self.in_flight.push_back(Message {
                step: self.next_step as u32,
                req,
                expected: None,
            });
        } else {
            self.record_completion(self.next_step);
        }
    }

    /// Starts the receive of a step.
    ///
    /// # Safety
    /// As for [`Run::advance`].
    #[inline]
    unsafe fn start_recv(
        &mut self,
        b: &CollArgs<'_>,
        buffers: &Buffers<'_>,
        d: &mut Device,
        peer: Peer,
        into: Piece,
    ) {
        let (process, pattern) = pattern_for(b.comm, self.tag, peer);
        if self.error.is_some() && pattern.source.is_some_and(|s| self.gave_up.contains(&s)) {
            return self.record_completion(self.next_step);
        }
        let sink = buffers.locate(into, &mut self.tmp).sink();
        let expected = Some(sink.capacity());
        // SAFETY: nobody touches the piece until the receive is awaited.
        let req = unsafe { self.receive(d, process, pattern, sink) };
        self.in_flight.push_back(Message {
            step: self.next_step as u32,
            req,
            expected,
        });
    }

    /// Executes a reduction or a copy, if `policy` lets this thread do it now. `into`: where its
    /// result goes. `None`: the step is done. Otherwise what the run waits for.
    ///
    /// # Safety
    /// As for [`Run::advance`].
    #[inline]
    unsafe fn work(
        &mut self,
        b: &CollArgs<'_>,
        buffers: &Buffers<'_>,
        d: &mut Device,
        policy: WorkPolicy,
        step: &Step,
        into: Piece,
    ) -> Option<RunState> {
        if policy == WorkPolicy::Caller && takes_long(b, step, into) {
            return Some(RunState::LocalWork);
        }
        let by_thread = d.is_progress_thread();
        if calls_user_op(b, step) {
            if by_thread {
                d.return_progress_to_program();
                return Some(RunState::Waiting);
            }
        } else if policy == WorkPolicy::ProgressThread
            && d.offloads_work(bytes(b, into).saturating_sub(self.copied_bytes))
        {
            return Some(RunState::Waiting);
        }
        let slice_bytes = if by_thread && policy == WorkPolicy::ProgressThread {
            COPY_SLICE_BYTES
        } else {
            usize::MAX
        };
        // SAFETY: the caller's promise.
        if !unsafe { self.execute_local(b, buffers, step, slice_bytes) } {
            d.mark_background_advanced();
            return Some(RunState::Waiting);
        }
        self.record_completion(self.next_step);
        None
    }

    /// Takes the messages that have completed, in the order of their steps. Returns whether all
    /// messages of the steps before `before` have completed.
    #[inline]
    fn collect(&mut self, comm: &Arc<Comm>, d: &mut Device, before: u32) -> bool {
        while let Some(m) = self.in_flight.front() {
            if m.step >= before {
                return true;
            }
            if !d.is_complete(m.req) {
                return false;
            }
            let ended = d.take_deferred(m.req);
            if let Some(e) = check_message(comm, self.tag.signature(), m.expected, &ended) {
                if has_given_up(&ended) {
                    self.gave_up.push(ended.envelope.source);
                }
                self.error.get_or_insert(e);
            }
            let step = m.step as usize;
            self.in_flight.pop_front();
            self.record_completion(step);
        }
        true
    }

    /// Executes a reduction, or the next `slice_bytes` bytes of a copy. Returns whether the step is
    /// done.
    ///
    /// # Safety
    /// As for [`Run::advance`].
    unsafe fn execute_local(
        &mut self,
        b: &CollArgs<'_>,
        buffers: &Buffers<'_>,
        step: &Step,
        slice_bytes: usize,
    ) -> bool {
        match (*step, b.reduction) {
            (Step::Reduce { from, into }, Some((op, datatype))) => {
                let (left, _) = buffers.operand(from, &mut self.tmp);
                let (right, count) = buffers.operand(into, &mut self.tmp);
                // SAFETY: both hold `count` elements, by the schedule.
                unsafe { op.apply(left, right, count, datatype) };
            }
            (Step::Copy { from, into }, _) => {
                let (from, into) = (
                    buffers.locate(from, &mut self.tmp),
                    buffers.locate(into, &mut self.tmp),
                );
                // SAFETY: the caller's promise.
                self.copied_bytes =
                    unsafe { from.copy_part(&into, self.copied_bytes, slice_bytes) };
                if self.copied_bytes < from.len().min(into.len()) {
                    return false;
                }
                self.copied_bytes = 0;
                if from.len() != into.len() {
                    let (sent, room) = (from.len(), into.len());
                    let e = err!(
                        Truncate,
                        "in {} this rank's own block has {sent} bytes by the send arguments and \
                         {room} by the receive arguments",
                        self.tag.signature().function()
                    );
                    self.error.get_or_insert(e.on(b.comm));
                }
            }
            _ => {}
        }
        true
    }
}

/// Returns whether the step calls a function of the program. Only the program's threads may do
/// that.
#[inline]
fn calls_user_op(b: &CollArgs<'_>, step: &Step) -> bool {
    matches!((step, b.reduction), (Step::Reduce { .. }, Some((op, _))) if op
        .predefined_kind().is_none())
}

/// Bytes of a piece's data. 0 for a w-form (MPI_Alltoallw), where each block has its own type.
pub(super) fn bytes(b: &CollArgs<'_>, piece: Piece) -> usize {
    let of = |view: &View<'_>| match view {
        View::Uniform { datatype, .. } => datatype.size(),
        View::Nothing | View::Blocks(_) => 0,
    };
    let element_bytes = match piece.region {
        Region::Send => of(&b.send),
        Region::Recv => of(&b.recv),
        Region::Tmp => b.reduction.map_or(1, |(_, t)| t.size()),
        Region::Packed | Region::SendBlock | Region::RecvBlock => 1,
    };
    usize::try_from(piece.count.saturating_mul(element_bytes)).unwrap_or(0)
}

/// Returns whether the step may call the program's code or take long.
#[inline]
pub(super) fn takes_long(b: &CollArgs<'_>, step: &Step, into: Piece) -> bool {
    match (step, b.reduction) {
        (Step::Reduce { .. }, Some((op, t))) => {
            op.predefined_kind().is_none()
                || into.count.saturating_mul(t.size()) > INLINE_WORK_MAX_BYTES
        }
        (Step::Copy { .. }, None)
            if into.region == Region::Tmp || into.region == Region::Packed =>
        {
            into.count > INLINE_WORK_MAX_BYTES
        }
        _ => false,
    }
}

/// Runs a schedule to its end. Blocks.
///
/// # Safety
/// The buffers must be what the schedule takes them for.
pub(crate) unsafe fn run(schedule: &Schedule, b: &CollArgs<'_>, tag: CollTag) -> Result<()> {
    if schedule.steps.is_empty() {
        return Ok(());
    }
    let mut run = Run::new(schedule, b, tag);
    let description = RunDescription {
        schedule,
        args: b,
        tag,
    };
    let waiting_for = description.waiting_for();
    loop {
        let mut state = RunState::Waiting;
        device::wait_until(&waiting_for, |d| {
            // SAFETY: the caller's promise; the run stays where it is until the end of this
            // function.
            state = unsafe { run.advance(schedule, b, d, WorkPolicy::Caller) };
            state != RunState::Waiting
        });
        match state {
            RunState::LocalWork => {
                let buffers = b.buffers();
                // SAFETY: the caller's promise: the buffers are valid until the operation has
                // ended.
                unsafe {
                    run.execute_local(b, &buffers, &schedule.steps[run.next_step], usize::MAX)
                };
                run.next_step += 1;
            }
            _ => return run.error.map_or(Ok(()), |e| Err(explain(b.comm, e))),
        }
    }
}
