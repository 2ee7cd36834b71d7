//! The run of a schedule: its state, and how it advances.

use super::Binding;
use super::in_flight::UnderWay;
use super::memory::Places;
use super::message::{address, check, incoming};
use super::room::Room;
use super::story::Story;
use super::tag::Number;
use super::tally::TALLY;
use super::view::View;
use crate::device::{self, Device, Pattern, ReqId, SendMode, WaitingFor};
use crate::{Comm, Error, Result, err};
use ferry_schedule::{Piece, Region, Schedule, Step};
use std::sync::Arc;

/// Reductions of more bytes are done without the device's lock, so that other threads get on.
pub(super) const LONG: i64 = 16 * 1024;

/// So many bytes of a copy the progress thread does before it lets others have the device.
pub(super) const PORTION: usize = 128 * 1024;

/// Who does own work (reductions, copies) that takes long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labour {
    /// Whoever advances the run, at once.
    AtOnce,
    /// The caller, without the device's lock.
    Caller,
    /// The progress thread while the program only passes through MPI, a portion at a time;
    /// otherwise whoever advances the run. Where that thread polls, large messages are its own,
    /// too.
    Thread,
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Messages must come first.
    Waiting,
    /// The next step is to be done without the device's lock.
    OwnWork,
    Done,
}

/// A message under way.
#[derive(Clone, Copy)]
struct Message {
    step: u32,
    req: ReqId,
    /// Bytes that a receive must get; `None` for a send.
    expected: Option<usize>,
}

/// What somebody wants to know of a run.
struct Watch {
    /// Steps that have ended.
    ended: Vec<usize>,
    /// How many bytes of a piece of memory's beginning and end are wanted before the rest.
    ends: Ends,
}

/// For a piece of memory: the bytes of its beginning and end that are wanted before the rest.
pub(crate) type Ends = Box<dyn Fn(std::ops::Range<usize>) -> [usize; 2] + Send>;

/// The state of a schedule's run.
pub(crate) struct Run {
    pub(super) at: usize,
    /// Who wants to know what happens.
    watch: Option<Watch>,
    under_way: UnderWay<Message>,
    /// Bytes that the next step, a copy, has copied already.
    copied: usize,
    /// It has been counted.
    counted: bool,
    room: Room,
    number: Number,
    error: Option<Error>,
}

impl Run {
    pub(super) fn new(schedule: &Schedule, b: &Binding<'_>, number: Number) -> Run {
        Run {
            at: 0,
            watch: None,
            under_way: UnderWay::default(),
            copied: 0,
            counted: false,
            room: Room::new(schedule.tmp, b.reduction.map(|r| r.1)),
            number,
            error: None,
        }
    }

    /// Is to be done once more; it has ended well, and nobody watched.
    pub(super) fn renew(&mut self, number: Number) {
        (self.at, self.copied, self.counted, self.number) = (0, 0, false, number);
    }

    /// The same, for who wants to know which steps have [`ended`](Run::ended), and has messages'
    /// ends come first.
    pub(crate) fn watched(schedule: &Schedule, b: &Binding<'_>, number: Number, ends: Ends) -> Run {
        Run {
            watch: Some(Watch {
                ended: Vec::new(),
                ends,
            }),
            ..Run::new(schedule, b, number)
        }
    }

    /// The steps that have ended since the last question: their messages are complete, their work
    /// is done.
    pub(crate) fn ended(&mut self) -> Vec<usize> {
        let watch = self.watch.as_mut();
        watch
            .map(|w| std::mem::take(&mut w.ended))
            .unwrap_or_default()
    }

    /// The receives that are under way, with their steps.
    pub(crate) fn receives(&self) -> impl Iterator<Item = (usize, ReqId)> + '_ {
        let all = self.under_way.iter().filter(|m| m.expected.is_some());
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
        if let (Some(watch), device::Sink::Bytes { ptr, cap }) = (&self.watch, &sink) {
            let start = *ptr as usize;
            let ends = (watch.ends)(start..start + cap);
            // SAFETY: the caller's promise.
            let req = unsafe { d.receive_deferred(from, pattern, sink, ends) };
            d.release_deferred(req);
            return req;
        }
        // SAFETY: the caller's promise.
        unsafe { d.receive_from(from, pattern, sink) }
    }

    /// What went wrong.
    pub(crate) fn error(&mut self) -> Option<Error> {
        self.error.take()
    }

    #[inline]
    fn note(&mut self, step: usize) {
        if let Some(watch) = &mut self.watch {
            watch.ended.push(step);
        }
    }

    /// Goes as far as it can without waiting.
    ///
    /// # Safety
    /// The binding's buffers must be what the schedule takes them for; this value must not move
    /// until the run is done.
    pub(crate) unsafe fn advance(
        &mut self,
        s: &Schedule,
        b: &Binding<'_>,
        d: &mut Device,
        labour: Labour,
    ) -> Stand {
        let places = b.places();
        if !std::mem::replace(&mut self.counted, true) {
            TALLY.count(s.algorithm, d);
        }
        while let Some(step) = s.steps.get(self.at) {
            if let Step::Send { from: piece, .. } | Step::Recv { into: piece, .. } = *step
                && labour == Labour::Thread
                && d.offloads_message(bytes(b, piece))
            {
                return Stand::Waiting;
            }
            match *step {
                Step::Send { peer, from } => {
                    let (to, key) = address(b.comm, self.number, peer, true);
                    let source = places.find(from, &mut self.room).source();
                    // SAFETY: the schedule leaves the piece alone until the send is awaited, and
                    // the caller the buffers.
                    if let Some(req) = unsafe { d.send(to, key, source, SendMode::Standard) } {
                        self.under_way.push_back(Message {
                            step: self.at as u32,
                            req,
                            expected: None,
                        });
                    } else {
                        self.note(self.at);
                    }
                }
                Step::Recv { peer, into } => {
                    let (process, pattern) = incoming(b.comm, self.number, peer);
                    let sink = places.find(into, &mut self.room).sink();
                    let expected = Some(sink.capacity());
                    // SAFETY: nobody touches the piece until the receive is awaited.
                    let req = unsafe { self.receive(d, process, pattern, sink) };
                    self.under_way.push_back(Message {
                        step: self.at as u32,
                        req,
                        expected,
                    });
                }
                Step::Await { before } => {
                    if !self.collect(b.comm, d, before) {
                        return Stand::Waiting;
                    }
                }
                Step::Reduce { into, .. } | Step::Copy { into, .. } => {
                    if labour == Labour::Caller && takes_long(b, step, into) {
                        return Stand::OwnWork;
                    }
                    let by_thread = d.is_progress_thread();
                    if calls_program(b, step) {
                        if by_thread {
                            d.needs_program_thread();
                            return Stand::Waiting;
                        }
                    } else if labour == Labour::Thread
                        && d.offloads_work(bytes(b, into).saturating_sub(self.copied))
                    {
                        return Stand::Waiting;
                    }
                    let most = if by_thread && labour == Labour::Thread {
                        PORTION
                    } else {
                        usize::MAX
                    };
                    // SAFETY: the caller's promise.
                    if !unsafe { self.work(b, &places, step, most) } {
                        d.note_background_work();
                        return Stand::Waiting;
                    }
                    self.note(self.at);
                }
            }
            self.at += 1;
        }
        if self.collect(b.comm, d, u32::MAX) {
            Stand::Done
        } else {
            Stand::Waiting
        }
    }

    /// Collects what has completed; true if all that steps before `before` started has.
    #[inline]
    fn collect(&mut self, comm: &Arc<Comm>, d: &mut Device, before: u32) -> bool {
        while let Some(m) = self.under_way.front() {
            if m.step >= before {
                return true;
            }
            if !d.is_complete(m.req) {
                return false;
            }
            let ended = d.take_deferred(m.req);
            if let Some(e) = check(comm, self.number.function(), m.expected, &ended) {
                self.error.get_or_insert(e);
            }
            let step = m.step as usize;
            self.under_way.pop_front();
            self.note(step);
        }
        true
    }

    /// Does a reduction, or what is left of a copy: of a large one about `most` bytes. Returns
    /// whether it is done.
    ///
    /// # Safety
    /// As for [`Run::advance`].
    unsafe fn work(
        &mut self,
        b: &Binding<'_>,
        places: &Places<'_>,
        step: &Step,
        most: usize,
    ) -> bool {
        match (*step, b.reduction) {
            (Step::Reduce { from, into }, Some((op, datatype))) => {
                let (left, _) = places.operand(from, &mut self.room);
                let (right, count) = places.operand(into, &mut self.room);
                // SAFETY: both hold `count` elements, by the schedule.
                unsafe { op.apply(left, right, count, datatype) };
            }
            (Step::Copy { from, into }, _) => {
                let (from, into) = (
                    places.find(from, &mut self.room),
                    places.find(into, &mut self.room),
                );
                // SAFETY: the caller's promise.
                self.copied = unsafe { from.copy_part(&into, self.copied, most) };
                if self.copied < from.len().min(into.len()) {
                    return false;
                }
                self.copied = 0;
                if from.len() != into.len() {
                    let (sent, room) = (from.len(), into.len());
                    let e = err!(
                        Truncate,
                        "this rank's own block has {sent} bytes by the send arguments and {room} by the receive arguments"
                    );
                    self.error.get_or_insert(e.on(b.comm));
                }
            }
            _ => {}
        }
        true
    }
}

/// Does this step call a function of the program's? Its own threads do that.
#[inline]
fn calls_program(b: &Binding<'_>, step: &Step) -> bool {
    matches!((step, b.reduction), (Step::Reduce { .. }, Some((op, _))) if op.predefined_kind().is_none())
}

/// Bytes of a piece's data.
pub(super) fn bytes(b: &Binding<'_>, piece: Piece) -> usize {
    let of = |view: &View<'_>| match view {
        View::Uniform { datatype, .. } => datatype.size(),
        View::Nothing | View::Blocks(_) => 0,
    };
    let unit = match piece.region {
        Region::Send => of(&b.send),
        Region::Recv => of(&b.recv),
        Region::Tmp => b.reduction.map_or(1, |(_, t)| t.size()),
        Region::Packed | Region::SendBlock | Region::RecvBlock => 1,
    };
    usize::try_from(piece.count.saturating_mul(unit)).unwrap_or(0)
}

/// May this step call user code, or take long?
#[inline]
pub(super) fn takes_long(b: &Binding<'_>, step: &Step, into: Piece) -> bool {
    match (step, b.reduction) {
        (Step::Reduce { .. }, Some((op, t))) => {
            op.predefined_kind().is_none() || into.count.saturating_mul(t.size()) > LONG
        }
        (Step::Copy { .. }, None)
            if into.region == Region::Tmp || into.region == Region::Packed =>
        {
            into.count > LONG
        }
        _ => false,
    }
}

/// Runs a schedule to its end.
///
/// # Safety
/// The binding's buffers must be what the schedule takes them for.
pub(crate) unsafe fn run(schedule: &Schedule, b: &Binding<'_>, number: Number) -> Result<()> {
    if schedule.steps.is_empty() {
        return Ok(());
    }
    let mut run = Run::new(schedule, b, number);
    let story = Story(b.comm, number, b.root);
    let what = WaitingFor {
        context: b.comm.context,
        peer: -2,
        tag: -1,
        details: Some(&story),
    };
    loop {
        let mut stand = Stand::Waiting;
        device::wait_until(&what, |d| {
            // SAFETY: the caller's promise; the run stays where it is until the end of this
            // function.
            stand = unsafe { run.advance(schedule, b, d, Labour::Caller) };
            stand != Stand::Waiting
        });
        match stand {
            Stand::OwnWork => {
                let places = b.places();
                // SAFETY: the caller's promise: the buffers are valid until the operation has
                // ended.
                unsafe { run.work(b, &places, &schedule.steps[run.at], usize::MAX) };
                run.at += 1;
            }
            _ => return run.error.map_or(Ok(()), Err),
        }
    }
}
