//! What happens when messages arrive: eager delivery, announcements, pieces, acknowledgements.

use crate::base::header::{self, Fields, Header};
use crate::base::key::{Envelope, ProcId};
use crate::base::request::{Asked, Completion, Fault, Operation, ReqId, Requests, Stream};
use crate::counters::COUNTERS;
use crate::matching::{Content, KeptBytes, Matcher, Unexpected};
use crate::protocol::control::ControlMessage;
use crate::protocol::deferred::Deferred;
use crate::protocol::device_memory::Runs;
use crate::protocol::select::{Measured, PathSelector, Way};
use crate::protocol::speculative::Speculative;
use crate::protocol::zero_copy::{CLASSES, Choice};
use ferry_transport::{Inbox, ReadError};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

/// A message that waits for room on its wire.
pub(crate) struct Outgoing {
    pub message: u8,
    pub head: Header,
    pub payload: Payload,
}

impl Outgoing {
    /// A message that is all head.
    pub fn head(message: u8, head: Header) -> Outgoing {
        Outgoing {
            message,
            head,
            payload: Payload::None,
        }
    }

    /// Is it an announced message's bytes? Those of one that was not announced keep their place
    /// among the messages: they are what is matched.
    fn is_stream(&self) -> bool {
        matches!(self.payload, Payload::Stream { .. }) && self.message != header::SPECULATIVE
    }

    /// Are these an announced message's bytes that have not been offered to the wire?
    pub fn is_to_begin(&self) -> bool {
        matches!(self.payload, Payload::Stream { settled: false, .. })
    }

    /// Is it such bytes, of whatever message, and have they been offered to the wire before?
    fn may_be_begun(&self) -> bool {
        matches!(self.payload, Payload::Stream { settled: true, .. })
    }
}

/// Where a waiting message's body is.
pub(crate) enum Payload {
    None,
    Owned(Box<[u8]>),
    /// In the buffer of this send, which completes when the body has gone.
    Request(ReqId),
    /// In the buffer of this announced send, from `offset` on, in as many pieces as it takes.
    Stream {
        req: ReqId,
        offset: usize,
        /// Whether it is lent has been decided.
        settled: bool,
    },
}

/// What became of a queued message that was offered to its wire.
pub(crate) enum Offer {
    /// The wire has taken it.
    Gone,
    /// All that was offered has gone; there may be more.
    More,
    /// No room.
    Later,
    /// The wire has taken a part; others may go before the rest.
    Turn,
}

/// An announced message whose receive has matched and whose bytes can be read.
pub(crate) struct SingleCopyTask {
    pub req: ReqId,
    pub from: ProcId,
    pub address: u64,
    pub len: u64,
    /// The sender's request.
    pub request: u32,
    /// The receive waited for it.
    pub waited: bool,
    /// When message and receive met.
    pub met: Instant,
}

/// An announced message that is being read.
pub(crate) struct Fetching {
    pub req: ReqId,
    pub from: ProcId,
    /// Bytes that are read.
    pub take: u64,
    /// The sender's request.
    pub request: u32,
    /// If how long it takes says something.
    pub measured: Option<Measured>,
}

/// Queues and requests of a process: everything but the wires.
pub(crate) struct Engine {
    me: ProcId,
    /// The wire by which messages from others come now, a place in [`crate::TRANSPORT_NAMES`].
    way: usize,
    pub matcher: Matcher,
    pub requests: Requests,
    pub outbox: HashMap<ProcId, VecDeque<Outgoing>>,
    pub outbox_peers: Vec<ProcId>,
    tasks: VecDeque<SingleCopyTask>,
    /// Reads that the wire has begun, by the wire's number.
    pub fetching: Vec<(u32, Fetching)>,
    pub path_selector: PathSelector,
    /// Large messages may be lent to wires that can.
    pub lends: bool,
    /// Whether they are, by peer, where that is a matter of speed.
    pub zero_copy: HashMap<ProcId, [Choice; CLASSES]>,
    pub sent: u64,
    pub received: u64,
    /// Messages that made no sense and were dropped.
    pub malformed: u64,
    pub nudges: u64,
    /// Whole messages that are coming in, by sender: the receives that they have met.
    pub incoming: HashMap<ProcId, ReqId>,
    /// To whom the last large message went, if nothing has been polled since, and bytes of those
    /// kept back to go together.
    pub burst: (Option<ProcId>, usize),
    /// Bytes of a large message have come or gone by a connection; taken back by whoever reads it.
    pub large_moved: bool,
    /// Bytes that have come of large messages.
    pub streamed: u64,
    /// Large messages that are not announced.
    pub speculative: Speculative,
    /// Processes from which nothing will come any more.
    pub lost: BTreeSet<ProcId>,
    /// Receives that are held back.
    pub deferred: HashMap<ReqId, Deferred>,
    /// The next receive is to be one of them.
    pub next_deferred: Option<Deferred>,
    /// The next large message's ends go before its announcement.
    pub sends_edges: bool,
    /// Ends that have come before their message's announcement has met a receive, by the sender
    /// and its request.
    pub early_edges: HashMap<(ProcId, u32), Box<[u8]>>,
    /// What other processes have said, and nobody has read yet.
    pub notes: VecDeque<(ProcId, ControlMessage)>,
    /// Where a modelled card's memory lies in this process; empty if there is none.
    pub card: Range<usize>,
    /// What the processor has received into it, and what that costs is not charged yet.
    pub landed: Vec<Runs>,
}

impl Engine {
    pub fn new(me: ProcId) -> Engine {
        Engine {
            me,
            way: 1,
            matcher: Matcher::new(),
            requests: Requests::new(),
            outbox: HashMap::new(),
            outbox_peers: Vec::new(),
            tasks: VecDeque::new(),
            fetching: Vec::new(),
            path_selector: PathSelector::default(),
            lends: true,
            zero_copy: HashMap::new(),
            sent: 0,
            received: 0,
            malformed: 0,
            nudges: 0,
            incoming: HashMap::new(),
            burst: (None, 0),
            large_moved: false,
            streamed: 0,
            speculative: Speculative::default(),
            lost: BTreeSet::new(),
            deferred: HashMap::new(),
            next_deferred: None,
            sends_edges: false,
            early_edges: HashMap::new(),
            notes: VecDeque::new(),
            card: 0..0,
            landed: Vec::new(),
        }
    }

    /// Changes whenever something happened that a sleeping thread may wait for.
    #[inline]
    pub fn activity(&self) -> u64 {
        self.received + self.requests.completed() + self.nudges
    }

    #[inline]
    pub fn outbox_empty(&self, to: ProcId) -> bool {
        self.outbox_peers.is_empty() || !self.outbox.contains_key(&to)
    }

    #[inline]
    pub fn has_outgoing(&self) -> bool {
        !self.outbox_peers.is_empty()
    }

    /// Queues a message. All go in this order, but that announced messages' bytes come after
    /// whatever else waits: a request for the peer's bytes that stood behind this process's own
    /// would keep the other direction idle until those have gone.
    pub fn queue(&mut self, to: ProcId, message: Outgoing) {
        let queue = self.outbox.entry(to).or_default();
        if queue.is_empty() {
            self.outbox_peers.push(to);
        }
        if message.is_stream() || queue.back().is_none_or(|last| !last.is_stream()) {
            return queue.push_back(message);
        }
        // The first one's frame may be begun, and then nothing else can go.
        let begun = queue.front().is_some_and(Outgoing::may_be_begun);
        let others = queue.iter().skip(usize::from(begun));
        let at = others.take_while(|o| !o.is_stream()).count();
        queue.insert(usize::from(begun) + at, message);
    }

    /// Nothing more goes to `peer`; returns the sends that waited to.
    pub fn forget_queue(&mut self, peer: ProcId) -> Vec<ReqId> {
        self.outbox_peers.retain(|&p| p != peer);
        let queue = self.outbox.remove(&peer).unwrap_or_default();
        let waiting = queue.into_iter().filter_map(|o| match o.payload {
            Payload::Request(req) => Some(req),
            _ => None,
        });
        waiting.collect()
    }

    #[inline]
    pub fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    pub fn next_task(&mut self) -> Option<SingleCopyTask> {
        self.tasks.pop_front()
    }

    /// Stores a whole message in the receive's buffer and completes it.
    #[inline]
    pub fn deliver(&mut self, req: ReqId, envelope: Envelope, bytes: &[u8]) {
        if let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) {
            // SAFETY: the receive's buffer is valid until its completion.
            unsafe { sink.write(0, bytes) };
        }
        let stored = bytes.len() as u64;
        self.note_landed(req, stored);
        self.end_receive(req, envelope, stored);
    }

    /// `stored` bytes have come (before cutting to the buffer's size): the receive is complete.
    #[inline]
    pub fn finish_receive(&mut self, req: ReqId, stored: u64) {
        self.note_landed(req, stored);
        self.end_receive(req, self.requests.envelope(req), stored);
    }

    /// The same where the processor has had no part in it.
    #[inline]
    fn end_receive(&mut self, req: ReqId, envelope: Envelope, stored: u64) {
        let Some(Operation::Receive { sink, .. }) = self.requests.operation(req) else {
            return;
        };
        let room = sink.capacity() as u64;
        let fault = (envelope.len > room).then_some(Fault::Truncated {
            sent: envelope.len,
            room,
        });
        self.requests.complete(
            req,
            Completion {
                envelope,
                received: stored.min(room),
                room,
                cancelled: false,
                fault,
            },
        );
    }

    /// A receive has met an announced message; `waited`: it was there before it.
    pub fn take_announced(
        &mut self,
        req: ReqId,
        from: ProcId,
        len: u64,
        address: u64,
        request: u32,
        waited: bool,
    ) {
        let given = match self.early_edges.is_empty() {
            true => None,
            false => self.early_edges.remove(&(from, request)),
        };
        if address != 0 {
            self.tasks.push_back(SingleCopyTask {
                req,
                from,
                address,
                len,
                request,
                waited,
                met: Instant::now(),
            });
        } else if (self.deferred.is_empty() && self.next_deferred.is_none())
            || !self.hold(req, from, len, request, given.as_deref())
        {
            self.ask_for(req, from, request, None, waited);
        }
    }

    /// A message has been read, or could not be. True: the sender is to be told that it has been
    /// taken.
    pub fn fetched(&mut self, fetch: &Fetching, result: Result<(), ReadError>) -> bool {
        match result {
            Ok(()) => {
                COUNTERS.single_copy.add(fetch.take);
                if let Some(measured) = fetch.measured {
                    self.path_selector.note(fetch.take, measured);
                }
                self.end_receive(fetch.req, self.requests.envelope(fetch.req), fetch.take);
            }
            // The probe, or the system's policy, says no: ask for the bytes over the wire instead.
            Err(_) => {
                if let Some(measured) = fetch.measured {
                    self.path_selector.drop(measured);
                }
                self.ask(fetch.req, fetch.from, fetch.request, None);
            }
        }
        result.is_ok()
    }

    /// Asks the sender for an announced message's bytes. `measured`: how long they take says
    /// something.
    pub fn ask(&mut self, req: ReqId, from: ProcId, request: u32, measured: Option<Measured>) {
        self.ask_for(req, from, request, measured, false);
    }

    /// The same. `waited`: the receive waited for the message, and the like of it need not be
    /// announced.
    pub fn ask_for(
        &mut self,
        req: ReqId,
        from: ProcId,
        request: u32,
        measured: Option<Measured>,
        waited: bool,
    ) {
        self.begin_stream(req, from, 0, measured);
        let head = Header::new().u32(request).u32(req.0);
        self.queue(
            from,
            Outgoing {
                message: if waited {
                    header::CTS_PREPOSTED
                } else {
                    header::CTS
                },
                head,
                payload: Payload::None,
            },
        );
    }

    /// The message of this receive comes piece by piece; so many bytes are there.
    pub(crate) fn begin_stream(
        &mut self,
        req: ReqId,
        from: ProcId,
        got: u64,
        measured: Option<Measured>,
    ) {
        if let Some(Operation::Receive { stream, .. }) = self.requests.operation(req) {
            *stream = Some(Box::new(Stream {
                from,
                got,
                measured,
            }));
        }
    }

    /// Tells a sender that its message has been taken.
    pub fn taken(&mut self, to: ProcId, request: u32) {
        self.queue(
            to,
            Outgoing {
                message: header::FIN,
                head: Header::new().u32(request),
                payload: Payload::None,
            },
        );
    }

    /// The wire by which a message from there has come.
    #[inline]
    pub(crate) fn way(&self, from: ProcId) -> usize {
        if from == self.me { 0 } else { self.way }
    }

    /// Returns whether it is kept, its receive not being there. `None`: it makes no sense.
    #[inline]
    fn eager(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> Option<bool> {
        let mut fields = Fields(bytes);
        let key = fields.key()?;
        let sync = if message == header::EAGER_SYNC {
            Some(fields.u32()?)
        } else {
            None
        };
        let bytes = fields.0;
        COUNTERS.received[self.way(from)].add(bytes.len() as u64);
        let envelope = key.envelope(bytes.len() as u64);
        let receive = self.matcher.match_message(&key);
        match receive {
            Some(req) => {
                self.deliver(req, envelope, bytes);
                if let Some(request) = sync {
                    self.taken(from, request);
                }
            }
            None => {
                let content = Content::Eager {
                    bytes: KeptBytes::from_slice(bytes),
                    sync,
                };
                self.matcher.keep(Unexpected {
                    key,
                    from,
                    len: envelope.len,
                    content,
                });
            }
        }
        Some(receive.is_none())
    }

    fn announced(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let key = fields.key()?;
        let (len, address, request) = (fields.u64()?, fields.u64()?, fields.u32()?);
        COUNTERS.received[self.way(from)].add(len);
        COUNTERS.received_announced.add(1);
        if let Some(passed) = fields.u32() {
            self.path_selector.passed(len, passed);
        }
        match self.matcher.match_message(&key) {
            Some(req) => {
                self.requests.set_envelope(req, key.envelope(len));
                self.take_announced(req, from, len, address, request, true);
            }
            None => self.matcher.keep(Unexpected {
                key,
                from,
                len,
                content: Content::Announced { address, request },
            }),
        }
        Some(())
    }

    fn asked(&mut self, from: ProcId, bytes: &[u8], waited: bool) -> Option<()> {
        let mut fields = Fields(bytes);
        let (mine, theirs) = (ReqId(fields.u32()?), fields.u32()?);
        match self.requests.operation(mine) {
            Some(Operation::SendLarge {
                to, asked, source, ..
            }) if *to == from && *asked == Asked::NotYet => {
                *asked = Asked::Yes;
                let len = source.len() as u64;
                self.peer_went(from, len, Way::Pieces);
                self.speculative.note(from, len, waited);
            }
            _ => return None,
        }
        let payload = Payload::Stream {
            req: mine,
            offset: 0,
            settled: false,
        };
        self.queue(
            from,
            Outgoing {
                message: header::DATA,
                head: Header::new().u32(theirs),
                payload,
            },
        );
        Some(())
    }

    fn piece(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        let req = ReqId(fields.u32()?);
        let data = fields.0;
        let total = self.requests.envelope_of(req)?.len;
        let Some(Operation::Receive {
            sink,
            stream: Some(stream),
            ..
        }) = self.requests.operation(req)
        else {
            return None;
        };
        if stream.from != from {
            return None;
        }
        // SAFETY: the receive's buffer is valid until its completion; what is beyond its end is
        // dropped.
        let mut write = || unsafe { sink.write(stream.got as usize, data) };
        match &mut stream.measured {
            Some(measured) => measured.work(&mut write),
            None => write(),
        }
        stream.got += data.len() as u64;
        let (got, measured) = (stream.got, stream.measured);
        if got >= total {
            if let Some(measured) = measured {
                self.path_selector.note(got, measured);
            }
            self.finish_receive(req, got);
        }
        Some(())
    }

    fn was_taken(&mut self, from: ProcId, bytes: &[u8]) -> Option<()> {
        let req = ReqId(Fields(bytes).u32()?);
        match self.requests.operation(req) {
            Some(Operation::SendLarge { to, source, asked }) if *to == from => {
                let (len, read) = (source.len() as u64, *asked == Asked::NotYet);
                if read {
                    self.speculative.note(from, len, false);
                }
                self.peer_went(from, len, Way::Read);
                self.own_went(from, len, Way::Read);
            }
            Some(Operation::SendWaiting { to }) if *to == from => {}
            _ => return None,
        }
        self.requests.complete(req, Completion::EMPTY);
        Some(())
    }

    /// One of this process's large messages has gone to a peer.
    pub(crate) fn own_went(&mut self, peer: ProcId, len: u64, way: Way) {
        if peer > self.me {
            self.path_selector.sent(len, way);
        }
    }

    /// A peer has decided how it gets one of this process's messages of `len` bytes. Of two the one
    /// with the lower number decides for both.
    fn peer_went(&mut self, peer: ProcId, len: u64, way: Way) {
        if peer < self.me {
            self.path_selector.went(peer, len, way);
        }
    }
}

impl Inbox for Engine {
    fn set_transport(&mut self, wire: usize) {
        self.way = wire;
    }

    fn first_touch(&mut self) {
        self.path_selector.cold();
    }

    #[inline]
    fn on_message(&mut self, from: ProcId, message: u8, bytes: &[u8]) -> bool {
        self.received += 1;
        self.speculative.hear(from);
        let understood = match message {
            header::EAGER | header::EAGER_SYNC => match self.eager(from, message, bytes) {
                Some(kept) => return kept,
                None => None,
            },
            header::RTS => self.announced(from, bytes),
            header::CTS | header::CTS_PREPOSTED => {
                self.asked(from, bytes, message == header::CTS_PREPOSTED)
            }
            header::DATA => self.piece(from, bytes),
            header::FIN => self.was_taken(from, bytes),
            header::EDGE_REQUEST => self.on_edge_request(from, bytes),
            header::EDGE_DATA => self.on_edge_data(from, bytes),
            header::EDGES => self.on_edges(from, bytes),
            header::CONTROL => self.note_came(from, bytes),
            header::SPECULATIVE => self.at_once_arrived(from, bytes),
            header::UNEXPECTED => {
                self.speculative.note_late(from);
                Some(())
            }
            _ => None,
        };
        if understood.is_none() {
            self.malformed += 1;
        }
        false
    }

    fn stream_buffer(
        &mut self,
        from: ProcId,
        message: u8,
        head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]> {
        if message == header::SPECULATIVE {
            return self.at_once_room(from, head, left);
        }
        let req = self.streamed(from, message, head)?;
        self.stream_room(from, req, left)
    }

    fn stream_placed(&mut self, from: ProcId, message: u8, head: &[u8], bytes: usize) {
        let understood = self.streamed_bytes(from, message, head, bytes, None);
        self.malformed += u64::from(understood.is_none());
    }

    fn stream_part(&mut self, from: ProcId, message: u8, head: &[u8], bytes: &[u8]) {
        let understood = self.streamed_bytes(from, message, head, bytes.len(), Some(bytes));
        self.malformed += u64::from(understood.is_none());
    }

    fn card_part(&mut self, from: ProcId, number: u32, at: usize, bytes: &[u8]) {
        Engine::fetched_part(self, from, number, at, bytes);
    }

    fn on_message_start(
        &mut self,
        from: ProcId,
        message: u8,
        start: &[u8],
        len: usize,
    ) -> Option<usize> {
        self.begin_eager(from, message, start, len)
    }
}

#[cfg(test)]
mod fuzz;
