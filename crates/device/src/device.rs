//! The device: what the floor above calls, and the progress engine.

use crate::base::buffer::{Sink, Source};
use crate::base::header::{self, Header};
use crate::base::key::{ContextId, Envelope, Key, Pattern, ProcId};
use crate::base::request::{Asked, Completion, Fault, Operation, ReqId};
use crate::counters::COUNTERS;
use crate::matching::{Content, Unexpected};
use crate::progress::send_slots::SendSlots;
use crate::protocol::device_memory::ON_CARD;
use crate::protocol::engine::{Engine, Fetching, Outgoing, Payload, SingleCopyTask};
use crate::protocol::failure;
use crate::protocol::select::{Copier, Way};
use crate::protocol::single_copy::read_into;
use ferry_job::{Directory, RankInfo, RankStatus, Segment};
use ferry_transport::shm::READ_MIN_ADAPTIVE;
use ferry_transport::{Answer, Body, ReadError, ReadStart, TransportError, Transports};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// When a send is complete (MPI 5.0 §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendMode {
    /// When the buffer may be used again.
    Standard,
    /// When, besides, the receive has matched.
    Synchronous,
}

/// Messages that no receive has asked for.
#[derive(Clone, Copy, Debug)]
pub struct Unreceived {
    /// How many there are.
    pub count: usize,
    /// Who has sent the first.
    pub from: ProcId,
    /// What it carries.
    pub key: Key,
    /// Its length in bytes.
    pub len: u64,
}

/// What the device can do for a peer; the floor above asks this, never which transport it is.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Largest message, in bytes, that is sent without asking the receiver first.
    pub eager_max: usize,
    /// The peer shares this process's memory system.
    pub same_node: bool,
    /// A large message is read from where it lies little by little, and nobody else looks there:
    /// what is left of it may be moved ([`Device::relocate`]).
    pub streams: bool,
}

/// Work that goes on whenever the device makes progress (a collective's schedule). Others may have
/// a part of it, too.
pub trait Background: Send + Sync {
    /// Does what can be done now, without blocking. Returns true when all is done; the device then
    /// lets go of it.
    fn advance(&self, device: &mut Device) -> bool;

    /// Do others wait for what it does next, or does that take long? Otherwise it can wait until
    /// the program is in MPI again: the progress thread is not woken for it alone. Its requests
    /// speak for themselves. The device is there to show that the caller has it.
    fn is_urgent(&self, _device: &Device) -> bool {
        true
    }
}

/// Work of which nobody else has a part: a function that is called until it says that all is done.
impl<F: FnMut(&mut Device) -> bool + Send> Background for Mutex<F> {
    fn advance(&self, device: &mut Device) -> bool {
        let mut advance = self.lock().unwrap_or_else(PoisonError::into_inner);
        advance(device)
    }
}

/// The device of one process.
pub struct Device {
    me: ProcId,
    size: u32,
    pub(crate) wires: Transports,
    pub(crate) engine: Engine,
    background: Vec<Arc<dyn Background>>,
    pub(crate) status: &'static RankStatus,
    /// How waiting is done here.
    pub(crate) wait_policy: crate::progress::wait::WaitPolicy,
    /// Questions that were in vain.
    pub(crate) test_backoff: crate::progress::test_backoff::Polling,
    /// Where this process waits.
    pub(crate) place: crate::progress::core_sharing::Place,
    /// What there is to know of the progress thread, where there is one.
    pub(crate) progress_thread: Option<Box<crate::progress::thread::Watch>>,
    /// Where several threads may be in MPI: what those that sleep wait for.
    pub(crate) sleepers: crate::progress::wait::Sleepers,
    /// Where ranks share cores: when this one may send large messages.
    pub(crate) send_slots: Option<SendSlots>,
    /// The process has done with MPI, for now; counts on modelled machines.
    pub(crate) left: bool,
}

/// A receive with room for more bytes than this may be of a message whose sender waits for it.
const PRESSING: usize = 16 * 1024;

impl Device {
    pub(crate) fn new(
        rank_info: &RankInfo,
        segment: Option<Segment>,
        directory: Option<Box<dyn Directory>>,
        status: &'static RankStatus,
        wait_policy: crate::progress::wait::WaitPolicy,
        concurrent: bool,
    ) -> Result<Device, TransportError> {
        let node = segment.as_ref().map_or(&[][..], Segment::statuses);
        let send_slots = if wait_policy.crowded {
            SendSlots::new(rank_info, node)
        } else {
            None
        };
        let mut wires = ferry_transport::open(rank_info, segment, directory, concurrent)?;
        let mut engine = Engine::new(rank_info.rank);
        engine.card = wires.card_memory().map_or(0..0, |m| m.range());
        Ok(Device {
            me: rank_info.rank,
            size: rank_info.size,
            wires,
            engine,
            background: Vec::new(),
            status,
            wait_policy,
            test_backoff: crate::progress::test_backoff::Polling::NONE,
            place: crate::progress::core_sharing::Place::UNKNOWN,
            progress_thread: None,
            sleepers: crate::progress::wait::Sleepers::default(),
            send_slots,
            left: false,
        })
    }

    /// This process's number.
    pub fn me(&self) -> ProcId {
        self.me
    }

    /// Processes in the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// What can be done for `peer`.
    pub fn capabilities(&mut self, peer: ProcId) -> Capabilities {
        match self.wires.features(peer) {
            Ok(f) => Capabilities {
                eager_max: f.eager_max,
                same_node: f.same_node,
                streams: f.stream && !f.remote_read,
            },
            Err(_) => Capabilities {
                eager_max: 0,
                same_node: false,
                streams: false,
            },
        }
    }

    /// Names of the transports in use.
    pub fn transports(&self) -> Vec<&'static str> {
        self.wires.names()
    }

    /// Starts a send. `None`: complete already, the buffer may be used again.
    ///
    /// # Safety
    /// The memory behind `source` must stay valid and unchanged until completion.
    #[inline]
    pub unsafe fn send(
        &mut self,
        to: ProcId,
        key: Key,
        source: Source,
        mode: SendMode,
    ) -> Option<ReqId> {
        let len = source.len();
        let features = match self.wires.features(to) {
            Ok(f) => f,
            Err(e) => return Some(self.refuse(e)),
        };
        COUNTERS.sent[self.wires.index_for(to)].add(len as u64);
        let by_card = self.goes_by_card(to, &source);
        let at_once = match (&source, mode) {
            (Source::Bytes { .. }, SendMode::Standard) => features.eager_max,
            _ => features.eager_max.min(features.message_max),
        };
        if by_card || len + header::EAGER_HEADER_BYTES > at_once {
            return Some(self.announce(to, key, source, mode, by_card));
        }
        let (message, head, waiter) = match mode {
            SendMode::Standard => (header::EAGER, Header::new().key(&key), None),
            SendMode::Synchronous => {
                let req = self.engine.requests.insert(Operation::SendWaiting { to });
                (
                    header::EAGER_SYNC,
                    Header::new().key(&key).u32(req.0),
                    Some(req),
                )
            }
        };
        if !self.engine.outbox_empty(to) || self.keeps_back(to, &source, features) {
            return self.queue_eager(to, message, head, source, waiter);
        }
        let answer = match &source {
            Source::Bytes { len: 0, .. } => {
                self.wires.send(to, message, head.bytes(), Body::Bytes(&[]))
            }
            Source::Bytes { ptr, len } => {
                // SAFETY: the caller's promise: ptr and len are a readable buffer.
                let body = unsafe { std::slice::from_raw_parts(*ptr, *len) };
                self.wires
                    .send(to, message, head.bytes(), Body::Bytes(body))
            }
            _ => {
                // SAFETY: the caller's promise.
                let mut fill = |out: &mut [u8]| unsafe { source.read(0, out) };
                self.wires
                    .send(to, message, head.bytes(), Body::Fill(len, &mut fill))
            }
        };
        match answer {
            Ok(Answer::Done) => {
                self.engine.sent += 1;
                self.note_own(to);
                waiter
            }
            Ok(Answer::Full) => self.queue_eager(to, message, head, source, waiter),
            Err(e) => Some(self.refuse(e)),
        }
    }

    /// A message has gone to `to`. If that is this process, no bell rings, but another of its
    /// threads may sleep and wait for it.
    #[inline]
    pub(crate) fn note_own(&mut self, to: ProcId) {
        if to == self.me {
            self.notify_sleepers();
        }
    }

    /// No room on the wire: keep the message until there is.
    #[cold]
    fn queue_eager(
        &mut self,
        to: ProcId,
        message: u8,
        head: Header,
        source: Source,
        waiter: Option<ReqId>,
    ) -> Option<ReqId> {
        // A synchronous send's request completes when the receiver says so; a standard one's when
        // the wire has taken the bytes.
        let (payload, req) = match waiter {
            Some(waiter) => {
                let mut bytes = vec![0; source.len()];
                // SAFETY: the buffer is readable while the send is being started.
                unsafe { source.read(0, &mut bytes) };
                (Payload::Owned(bytes.into_boxed_slice()), waiter)
            }
            None => {
                let req = self
                    .engine
                    .requests
                    .insert(Operation::SendQueued { source });
                (Payload::Request(req), req)
            }
        };
        self.engine.queue(
            to,
            Outgoing {
                message,
                head,
                payload,
            },
        );
        self.let_go();
        Some(req)
    }

    /// Tells the receiver of a large message; the bytes follow when it has matched, or go at once
    /// if they need not wait for that.
    #[inline(never)]
    fn announce(
        &mut self,
        to: ProcId,
        key: Key,
        source: Source,
        mode: SendMode,
        by_card: bool,
    ) -> ReqId {
        // Asked for once more, so that shorter messages, which pass by here, need not have all of
        // it in memory.
        let features = match self.wires.features(to) {
            Ok(f) => f,
            Err(e) => return self.refuse(e),
        };
        let remote_read = features.remote_read;
        let kept = self.keeps_back(to, &source, features);
        if !kept && self.goes_at_once(to, &source, mode, features) {
            return self.send_at_once(to, key, source);
        }
        COUNTERS.sent_announced.add(1);
        let len = source.len() as u64;
        let address = match &source {
            Source::Bytes { ptr, .. } if remote_read => *ptr as u64,
            Source::Owned(b) if remote_read => b.as_ptr() as u64,
            _ if by_card => ON_CARD,
            _ => 0,
        };
        let req = self.engine.requests.insert(Operation::SendLarge {
            to,
            source,
            asked: Asked::NotYet,
        });
        let mut head = Header::new().key(&key).u64(len).u64(address).u32(req.0);
        if features.same_node {
            let passed = self.engine.speculative.announced(to, len);
            if passed > 0 {
                head = head.u32(passed);
            }
        }
        if std::mem::take(&mut self.engine.sends_edges) && address == 0 {
            self.engine.send_edges(to, req);
        }
        if kept {
            self.engine.queue(to, Outgoing::head(header::RTS, head));
        } else {
            self.send_head(to, header::RTS, head);
        }
        req
    }

    /// Sends a message that is all head, at once if nothing waits before it.
    fn send_head(&mut self, to: ProcId, message: u8, head: Header) {
        if self.engine.outbox_empty(to) {
            self.prepare(to, message, &head);
            match self.wires.send(to, message, head.bytes(), Body::Bytes(&[])) {
                Ok(Answer::Done) => {
                    self.engine.sent += 1;
                    self.note_own(to);
                    return;
                }
                Ok(Answer::Full) => {}
                Err(e) => {
                    self.break_down(&e);
                    return;
                }
            }
        }
        self.engine.queue(to, Outgoing::head(message, head));
    }

    /// A message has been read, or could not be.
    fn fetched(&mut self, fetch: &Fetching, result: Result<(), ReadError>) {
        if self.engine.fetched(fetch, result) {
            self.send_head(fetch.from, header::FIN, Header::new().u32(fetch.request));
        }
    }

    /// The transport will not have it: a request that has already failed.
    #[cold]
    fn refuse(&mut self, e: TransportError) -> ReqId {
        let req = self.engine.requests.insert(Operation::Failed);
        failure::note_first(&e);
        self.engine.requests.complete(
            req,
            Completion {
                fault: Some(Fault::Transport),
                ..Completion::EMPTY
            },
        );
        req
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// The memory behind `sink` must stay valid, and nobody else may touch it, until completion.
    #[inline]
    pub unsafe fn receive(&mut self, pattern: Pattern, sink: Sink) -> ReqId {
        let waiting = self.engine.matcher.match_receive(&pattern);
        let capacity = sink.capacity();
        let req = self.engine.requests.insert(Operation::Receive {
            context: pattern.context,
            sink,
            stream: None,
        });
        if self.progress_thread.is_some() && capacity > PRESSING {
            self.engine.requests.press(req);
        }
        match waiting {
            None => self.engine.matcher.post(pattern, req),
            Some(message) => {
                let kept = self.keeps_question(&message);
                self.engine.accept(req, message);
                self.run_tasks();
                if kept {
                    self.let_go();
                } else {
                    self.flush();
                }
                self.land();
            }
        }
        req
    }

    /// From now on the bytes of a send that has begun may be moved ([`Device::relocate`]): nothing
    /// is lent to a wire any more.
    pub fn disable_zero_copy(&mut self) {
        self.engine.lends = false;
    }

    /// Looks for a message that matches without receiving it. Makes no progress by itself.
    pub fn probe(&mut self, pattern: &Pattern) -> Option<Envelope> {
        self.engine.matcher.probe(pattern)
    }

    /// Takes the first message that matches out of the queue, to be received by
    /// [`Device::receive_matched`].
    pub fn matched_probe(&mut self, pattern: &Pattern) -> Option<(ReqId, Envelope)> {
        let message = self.engine.matcher.match_receive(pattern)?;
        let envelope = message.envelope();
        Some((
            self.engine
                .requests
                .insert(Operation::Message(Box::new(message))),
            envelope,
        ))
    }

    /// Receives a message taken by [`Device::matched_probe`]; `message` becomes the receive's
    /// request.
    ///
    /// # Safety
    /// As for [`Device::receive`].
    pub unsafe fn receive_matched(&mut self, message: ReqId, sink: Sink) -> ReqId {
        let slot = self.engine.requests.operation(message);
        let Some(Operation::Message(taken)) = slot.map(|o| {
            std::mem::replace(
                o,
                Operation::Receive {
                    context: crate::ContextId::WORLD,
                    sink,
                    stream: None,
                },
            )
        }) else {
            return message;
        };
        self.engine.accept(message, *taken);
        self.run_tasks();
        self.flush();
        self.land();
        message
    }

    /// Cancels a receive that has not matched. Returns whether it was cancelled; the request
    /// completes either way.
    pub fn cancel_receive(&mut self, req: ReqId) -> bool {
        let Some(Operation::Receive {
            context,
            stream: None,
            ..
        }) = self.engine.requests.operation(req)
        else {
            return false;
        };
        let context = *context;
        let withdrawn = self.engine.matcher.withdraw(context, req);
        if withdrawn {
            self.engine.requests.complete(
                req,
                Completion {
                    cancelled: true,
                    ..Completion::EMPTY
                },
            );
        }
        withdrawn
    }

    /// What a receive asks for that still waits for its message; `None` if it is none, or has met
    /// one.
    pub fn posted_pattern(&mut self, req: ReqId) -> Option<Pattern> {
        let Some(Operation::Receive { context, .. }) = self.engine.requests.operation(req) else {
            return None;
        };
        let context = *context;
        self.engine.matcher.posted_pattern(context, req)
    }

    /// The messages in a context that have come and that no receive has asked for. `None`: there
    /// are none.
    pub fn unreceived(&mut self, context: ContextId) -> Option<Unreceived> {
        let (_, count) = self.engine.matcher.lengths(context);
        let first = self.engine.matcher.unexpected(context).next()?;
        Some(Unreceived {
            count,
            from: first.from,
            key: first.key,
            len: first.len,
        })
    }

    /// Receives that wait for their message, and messages that wait for their receive, in a
    /// context.
    pub fn queue_lengths(&self, context: ContextId) -> (usize, usize) {
        self.engine.matcher.lengths(context)
    }

    /// Has the operation completed?
    #[inline]
    pub fn is_complete(&self, req: ReqId) -> bool {
        self.engine.requests.is_complete(req)
    }

    /// The completion of a completed operation; frees the request. Panics if it is not complete.
    #[inline]
    pub fn take(&mut self, req: ReqId) -> Completion {
        self.engine.requests.take(req)
    }

    /// How a completed operation ended, leaving the request in place.
    pub fn peek(&self, req: ReqId) -> Option<Completion> {
        self.engine.requests.peek(req)
    }

    /// Nobody will ask for this request any more: it is freed when it completes.
    pub fn detach(&mut self, req: ReqId) {
        self.engine.requests.detach(req);
    }

    /// Something that a sleeping thread of this process may wait for has changed: it looks again
    /// when this guard is dropped.
    pub fn notify_sleepers(&mut self) {
        self.engine.nudges += 1;
    }

    /// Sends under way, with or without somebody who waits for them.
    pub fn sends_pending(&self) -> bool {
        self.engine.has_outgoing() || self.engine.requests.sends_pending()
    }

    /// Moves whatever can be moved, without blocking. Returns whether anything happened.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.engine.burst = (None, 0);
        let mut moved = false;
        loop {
            let delivered = match self.wires.poll(&mut self.engine) {
                Ok(n) => n,
                Err(e) => {
                    self.break_down(&e);
                    1
                }
            };
            moved |= delivered > 0;
            if self.engine.has_tasks() && self.run_tasks() {
                // What has been asked for of this process's own goes before the next one is read.
                self.flush();
                continue;
            }
            break;
        }
        if !self.engine.fetching.is_empty() {
            moved |= self.end_fetches();
        }
        if self.engine.has_outgoing() {
            moved |= self.flush();
        }
        if !self.background.is_empty() {
            moved |= self.advance_background();
        }
        self.land();
        moved
    }

    /// Would others wait in vain if nobody made progress here?
    pub(crate) fn is_pressed(&self) -> bool {
        self.background.iter().any(|work| work.is_urgent(self))
            || self.engine.has_outgoing()
            || self.engine.has_tasks()
            || self.engine.requests.pressing() > 0
            || self.wires.has_unsent()
    }

    /// Hands over work to go on in the background.
    #[inline]
    pub fn add_background(&mut self, work: Arc<dyn Background>) {
        if !work.advance(self) {
            self.background.push(work);
        }
    }

    fn advance_background(&mut self) -> bool {
        let before = self.engine.requests.completed();
        let mut all = std::mem::take(&mut self.background);
        let running = all.len();
        all.retain(|work| !work.advance(self));
        let ended = all.len() < running;
        all.append(&mut self.background);
        self.background = all;
        self.take_worked() || ended || self.engine.requests.completed() != before
    }

    /// Sees to announced messages that have been matched: reads them, or asks for their pieces.
    /// Returns whether some are left that can be seen to at once.
    fn run_tasks(&mut self) -> bool {
        if self.leaves_copying() {
            return false;
        }
        while let Some(task) = self.engine.next_task() {
            if !self.engine.fetching.is_empty() {
                self.end_fetches();
            }
            if self.wires.is_virtual() {
                self.fetch_by_card(&task);
                continue;
            }
            let SingleCopyTask {
                req,
                from,
                address,
                len,
                request,
                waited,
                met,
            } = task;
            let Some(Operation::Receive { sink, .. }) = self.engine.requests.operation(req) else {
                continue;
            };
            let take = len.min(sink.capacity() as u64);
            let read_min = self.wires.features(from).map_or(0, |f| f.read_min as u64);
            let alone = self.copies_alone(from);
            let copier = self.copier();
            let measured = (read_min == READ_MIN_ADAPTIVE as u64 && !alone)
                .then(|| self.engine.path_selector.choose(copier, from, take, met));
            let way = match &measured {
                Some(measured) => measured.way(),
                None if take >= read_min || alone => Way::Read,
                None => Way::Pieces,
            };
            if way == Way::Pieces {
                // Messages that go unannounced come in pieces, and are no part of a trial.
                let waited = waited && measured.as_ref().is_none_or(|m| !m.is_trial());
                self.engine.ask_for(req, from, request, measured, waited);
                continue;
            }
            let Some(Operation::Receive { sink, .. }) = self.engine.requests.operation(req) else {
                continue;
            };
            let begun = match sink {
                // SAFETY: the receive's buffer is valid until its completion; `take` is at most its
                // capacity.
                Sink::Bytes { ptr, .. } => unsafe {
                    self.wires.start_read(from, address, *ptr, take as usize)
                },
                // SAFETY: the receive's buffer is valid until its completion.
                _ => unsafe { read_into(&mut self.wires, from, address, take, sink) }
                    .map(|()| ReadStart::Done),
            };
            let fetch = Fetching {
                req,
                from,
                take,
                request,
                measured,
            };
            match begun {
                Ok(ReadStart::Pending(number)) => self.engine.fetching.push((number, fetch)),
                Ok(ReadStart::Done) => self.fetched(&fetch, Ok(())),
                Err(e) => self.fetched(&fetch, Err(e)),
            }
            // Peers who have asked for what this process sends do not wait for all that it reads.
            if copier == Copier::Sender && self.engine.has_tasks() {
                return true;
            }
        }
        false
    }

    /// Looks for reads that the sender had a part in and has ended. Returns whether there were any.
    #[cold]
    fn end_fetches(&mut self) -> bool {
        let mut all = std::mem::take(&mut self.engine.fetching);
        let before = all.len();
        let mut i = 0;
        while i < all.len() {
            let from = all[i].1.from;
            let mut ended = None;
            if let Some((number, result)) = self.wires.finished_read(from) {
                ended = all
                    .iter()
                    .position(|(n, f)| *n == number && f.from == from)
                    .map(|at| (at, result));
            }
            match ended {
                Some((at, result)) => {
                    let (_, fetch) = all.remove(at);
                    self.fetched(&fetch, result);
                }
                None => i += 1,
            }
        }
        let any = all.len() < before;
        all.append(&mut self.engine.fetching);
        self.engine.fetching = all;
        any
    }

    /// All that this process has sent has reached its peers' systems, and they know that nothing
    /// more will come.
    pub(crate) fn settle(&mut self) -> bool {
        self.wires.settle()
    }

    /// Tells the launcher how many messages have come and gone. What waits here for room or for a
    /// connection is under way, too: as long as there is any, one more is said to have gone
    /// than has.
    pub(crate) fn publish_counts(&self) {
        let sent = self.engine.sent + u64::from(self.engine.has_outgoing());
        self.status.sent.store(sent, Ordering::Relaxed);
        self.status
            .received
            .store(self.engine.received, Ordering::Relaxed);
    }
}

impl Engine {
    /// A receive has met its message.
    pub(crate) fn accept(&mut self, req: ReqId, message: Unexpected) {
        let Unexpected {
            key,
            from,
            len,
            content,
        } = message;
        let envelope = key.envelope(len);
        self.requests.set_envelope(req, envelope);
        match content {
            Content::Eager { bytes, sync } => {
                self.deliver(req, envelope, &bytes);
                if let Some(request) = sync {
                    self.taken(from, request);
                }
            }
            Content::Announced { address, request } => {
                self.take_announced(req, from, len, address, request, false)
            }
            Content::Speculative { number } => self.take_kept(req, from, number),
        }
    }
}
