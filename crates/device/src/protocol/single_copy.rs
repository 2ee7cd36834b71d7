//! Single copy: the receiver reads an announced message from the sender's memory.

use crate::base::buffer::Sink;
use crate::base::counters::COUNTERS;
use crate::base::header::{self, Header};
use crate::base::key::ProcId;
use crate::base::message::MatchedRts;
use crate::base::path::{Path, ReceiverState, Sample};
use crate::base::request::{Operation, ReqId};
use crate::protocol::engine::{Engine, Worker};
use ferry_transport::shm::READ_MIN_ADAPTIVE;
use ferry_transport::{Features, ReadError, ReadStart, Transports};
use std::collections::VecDeque;
use std::time::Instant;

/// An announced message that has matched and whose bytes can be read.
pub(crate) struct SingleCopyTask {
    pub rts: MatchedRts,
    /// When message and receive matched.
    pub matched_at: Instant,
    /// This process had large messages of its own to send then. The last messages of an exchange go
    /// the path of the others, although those that this process sends have ended.
    pub in_exchange: bool,
}

impl SingleCopyTask {
    /// The state whose measurements choose the path.
    fn state_in_selection(&self, now: ReceiverState) -> ReceiverState {
        match now {
            ReceiverState::Waiting if self.in_exchange => ReceiverState::AlsoSending,
            state => state,
        }
    }
}

/// A message that is being read.
pub(crate) struct PendingRead {
    pub req: ReqId,
    pub from: ProcId,
    /// Bytes to read.
    pub len: u64,
    /// The sender's request.
    pub request: u32,
    /// How long the read takes is measured.
    pub sample: Option<Sample>,
}

/// Longest message that a process reads without the sender's help while both send, bytes. Measured
/// (docs/measured/shm.md): longer ones do not stay in the caches in any case.
const EXCHANGE_ALONE_MAX_BYTES: u64 = 1024 * 1024;

/// Messages shorter than this, bytes, are read without the sender's help while others wait to be
/// read: asking for it costs more than it gains. A choice.
const STREAM_ALONE_MAX_BYTES: u64 = 96 * 1024;

/// Messages to be read, and messages that are being read.
#[derive(Default)]
pub(crate) struct SingleCopies {
    tasks: VecDeque<SingleCopyTask>,
    /// Reads that a transport has begun, by the transport's number.
    reads: Vec<(u32, PendingRead)>,
}

impl SingleCopies {
    /// Is there a message to be read?
    #[inline]
    pub fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Is a message being read?
    #[inline]
    pub fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Adds a message to be read.
    pub fn push(&mut self, task: SingleCopyTask) {
        self.tasks.push_back(task);
    }

    /// Takes the next message to be read.
    pub fn next_task(&mut self) -> Option<SingleCopyTask> {
        self.tasks.pop_front()
    }

    /// Puts back the task that was taken last.
    pub fn put_back(&mut self, task: SingleCopyTask) {
        self.tasks.push_front(task);
    }

    /// A transport has begun a read.
    pub fn begin_read(&mut self, number: u32, read: PendingRead) {
        self.reads.push((number, read));
    }

    /// The receive of the read from `from` with that number.
    pub fn request_of(&self, from: ProcId, number: u32) -> Option<ReqId> {
        let is = |(n, read): &&(u32, PendingRead)| *n == number && read.from == from;
        self.reads.iter().find(is).map(|(_, read)| read.req)
    }
}

/// Who copies now: the caller of [`Worker::run_tasks`] knows which thread it is.
#[derive(Clone, Copy)]
pub(crate) struct CopyContext {
    /// The thread shares its core with others that have work.
    pub shares_core: bool,
    /// The progress thread copies: the sender is likely to compute.
    pub alone: CopyAlone,
}

/// Does the receiver read the whole message, without the sender's help? A sender that computes
/// would have to be woken for each part that both sides copy together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyAlone {
    /// No: a thread of the program copies, or waits for it.
    Never,
    /// Yes.
    Always,
    /// Yes, unless the sender's progress thread polls.
    UnlessPeerPolls,
}

impl Worker {
    /// Reads announced messages that have matched, or asks for their bytes. Returns whether some
    /// are left that can be read at once.
    pub fn run_tasks(&mut self, context: CopyContext) -> bool {
        while let Some(task) = self.engine.single_copies.next_task() {
            if self.engine.single_copies.has_reads() {
                self.end_reads();
            }
            if self.transports.is_virtual() {
                self.read_by_card(&task);
                continue;
            }
            let receiver_state = self.receiver_state(context);
            if self.is_held(&task, receiver_state, context) {
                self.engine.single_copies.put_back(task);
                return false;
            }
            let read = self.run_task(task, receiver_state, context);
            // Peers that have sent CTS do not wait for all that this process reads.
            if read
                && receiver_state == ReceiverState::AlsoSending
                && self.engine.single_copies.has_tasks()
            {
                return true;
            }
        }
        false
    }

    /// Reads one message, or asks for its bytes. Returns whether it reads.
    fn run_task(
        &mut self,
        task: SingleCopyTask,
        receiver_state: ReceiverState,
        context: CopyContext,
    ) -> bool {
        let in_selection = task.state_in_selection(receiver_state);
        let SingleCopyTask {
            rts, matched_at, ..
        } = task;
        if !self.claims(&rts) {
            return false;
        }
        let (req, from, request) = (rts.req, rts.from, rts.request);
        let Some(Operation::Receive { sink, .. }) = self.engine.requests.operation(req) else {
            return false;
        };
        let len = rts.len.min(sink.capacity() as u64);
        let features = self.transports.features(from);
        let alone = self.copies_alone(from, context);
        let selector = &mut self.engine.path_selector;
        let (path, sample) = match features.map_or(Some(Path::Pipelined), |f| {
            path_without_trials(f, len, alone)
        }) {
            Some(path) => (path, None),
            None => {
                let sample = selector.choose(in_selection, from, len, matched_at);
                (sample.path, Some(sample))
            }
        };
        if path == Path::Pipelined {
            // Speculative messages go by pipelined copy, and are no part of a trial. A message that
            // may be withdrawn is asked for in this form if that is the choice.
            let preposted = rts.preposted || rts.slot.is_some();
            let preposted = preposted && sample.as_ref().is_none_or(|s| !s.is_trial());
            self.engine.queue_cts(req, from, request, sample, preposted);
            return false;
        }
        let Some(Operation::Receive { sink, .. }) = self.engine.requests.operation(req) else {
            return false;
        };
        // Where both processes read, each would also write parts into the other's buffer, and take
        // these lines from the other core.
        let exchanges =
            receiver_state == ReceiverState::AlsoSending && len <= EXCHANGE_ALONE_MAX_BYTES;
        let reads_alone =
            exchanges || len < STREAM_ALONE_MAX_BYTES && self.engine.single_copies.has_tasks();
        let begun = match sink {
            // SAFETY: the receive's buffer is valid until its completion; `len` is at most its
            // capacity.
            Sink::Bytes { ptr, .. } if !reads_alone => unsafe {
                self.transports
                    .start_read(from, rts.address, *ptr, len as usize)
            },
            // SAFETY: the receive's buffer is valid until its completion.
            _ => unsafe { read_into(&mut self.transports, from, rts.address, len, sink) }
                .map(|()| ReadStart::Done),
        };
        let read = PendingRead {
            req,
            from,
            len,
            request,
            sample,
        };
        match begun {
            Ok(ReadStart::Pending(number)) => self.engine.single_copies.begin_read(number, read),
            Ok(ReadStart::Done) => self.end_read(&read, Ok(())),
            Err(e) => self.end_read(&read, Err(e)),
        }
        true
    }

    /// Does the message wait for those of a trial? The next poll asks again.
    fn is_held(
        &mut self,
        task: &SingleCopyTask,
        receiver_state: ReceiverState,
        context: CopyContext,
    ) -> bool {
        let (from, len) = (task.rts.from, task.rts.len);
        let state = task.state_in_selection(receiver_state);
        self.engine.path_selector.holds(state, len)
            && self.transports.features(from).is_ok_and(|features| {
                path_without_trials(features, len, self.copies_alone(from, context)).is_none()
            })
    }

    /// Does this process copy without the help of `from`?
    fn copies_alone(&self, from: ProcId, context: CopyContext) -> bool {
        match context.alone {
            CopyAlone::Never => false,
            CopyAlone::Always => true,
            CopyAlone::UnlessPeerPolls => !self.transports.progress_polls(from),
        }
    }

    /// What else this process does while it receives, by which paths are measured apart.
    #[inline]
    fn receiver_state(&self, context: CopyContext) -> ReceiverState {
        if context.shares_core {
            ReceiverState::SharedCore
        } else if self.engine.requests.large_sends() > 0 {
            ReceiverState::AlsoSending
        } else {
            ReceiverState::Waiting
        }
    }

    /// Looks for reads that have ended with the sender's help. Returns whether there were any.
    #[cold]
    pub fn end_reads(&mut self) -> bool {
        let mut all = std::mem::take(&mut self.engine.single_copies.reads);
        let before = all.len();
        let mut i = 0;
        while i < all.len() {
            let from = all[i].1.from;
            let mut ended = None;
            if let Some((number, result)) = self.transports.finished_read(from) {
                ended = all
                    .iter()
                    .position(|(n, read)| *n == number && read.from == from)
                    .map(|at| (at, result));
            }
            match ended {
                Some((at, result)) => {
                    let (_, read) = all.remove(at);
                    self.end_read(&read, result);
                }
                None => i += 1,
            }
        }
        let any = all.len() < before;
        let reads = &mut self.engine.single_copies.reads;
        all.append(reads);
        *reads = all;
        any
    }

    /// A message has been read, or could not be.
    fn end_read(&mut self, read: &PendingRead, result: Result<(), ReadError>) {
        if self.engine.record_read(read, result) {
            let fin = Header::new().u32(read.request);
            self.send_header(read.from, header::FIN, fin);
        }
    }
}

impl Engine {
    /// A message has been read, or could not be. Returns whether the sender gets FIN.
    fn record_read(&mut self, read: &PendingRead, result: Result<(), ReadError>) -> bool {
        match result {
            Ok(()) => {
                COUNTERS.single_copy.add(read.len);
                if let Some(sample) = read.sample {
                    let writes = !self.outbox.is_empty_for(read.from);
                    self.path_selector.record(read.len, sample, writes);
                }
                let envelope = self.requests.envelope(read.req);
                self.complete_receive(read.req, envelope, read.len);
            }
            // The probe, or the system's policy, forbids it: the sender sends the bytes instead.
            Err(_) => {
                if let Some(sample) = read.sample {
                    self.path_selector.abandon(sample);
                }
                self.queue_cts(read.req, read.from, read.request, None, false);
            }
        }
        result.is_ok()
    }
}

/// The path of an announced message of `len` bytes where no trials decide it. `alone`: its receiver
/// reads it without the sender's help. A receiver that once could not read its sender's memory asks
/// for the bytes by choice, so that the sender announces no more for a while.
fn path_without_trials(features: Features, len: u64, alone: bool) -> Option<Path> {
    match features.read_min {
        _ if !features.remote_read => Some(Path::Pipelined),
        _ if alone => Some(Path::SingleCopy),
        READ_MIN_ADAPTIVE => None,
        read_min if len >= read_min as u64 => Some(Path::SingleCopy),
        _ => Some(Path::Pipelined),
    }
}

/// Size of the buffer through which a scattered receive buffer with short runs is read, bytes. A
/// choice: small enough for a second-level cache.
const BOUNCE_BYTES: usize = 256 * 1024;
/// Memory runs that are read into at a time. A choice: process_vm_readv(2) takes up to 1024.
const RUNS_MAX: usize = 256;
/// A scattered buffer is read into directly if its runs have at least this many bytes on average. A
/// choice.
const RUN_MIN_BYTES: u64 = 1024;

/// Copies `len` bytes at `address` of `from` into `sink`.
///
/// # Safety
/// The memory behind `sink` must be writable.
pub(crate) unsafe fn read_into(
    transports: &mut Transports,
    from: ProcId,
    address: u64,
    len: u64,
    sink: &mut Sink,
) -> Result<(), ReadError> {
    match sink {
        // SAFETY: the caller's promise; len is at most the sink's capacity.
        Sink::Bytes { ptr, .. } => unsafe {
            transports.read(from, address, &[(*ptr, len as usize)])
        },
        Sink::Layout { view, .. } => {
            let mut runs = Vec::with_capacity(RUNS_MAX);
            let mut bounce = Vec::new();
            let mut offset = 0;
            while offset < len {
                runs.clear();
                let covered = view.runs(offset, &mut runs).min(len - offset);
                if covered > 0 && covered / runs.len().max(1) as u64 >= RUN_MIN_BYTES {
                    trim(&mut runs, covered);
                    // SAFETY: the runs lie in the receive buffer.
                    unsafe { transports.read(from, address + offset, &runs)? };
                    offset += covered;
                    continue;
                }
                let piece = (len - offset).min(BOUNCE_BYTES as u64) as usize;
                bounce.resize(piece, 0u8);
                // SAFETY: the bounce buffer is ours; the receive buffer is writable.
                unsafe {
                    transports.read(from, address + offset, &[(bounce.as_mut_ptr(), piece)])?;
                    view.unpack(offset, &bounce);
                }
                offset += piece as u64;
            }
            Ok(())
        }
    }
}

/// Shortens `runs` to `total` bytes.
fn trim(runs: &mut Vec<(*mut u8, usize)>, total: u64) {
    let mut left = total as usize;
    for run in runs.iter_mut() {
        run.1 = run.1.min(left);
        left -= run.1;
    }
    runs.retain(|r| r.1 > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last messages of an exchange are chosen by what its other messages took.
    #[test]
    fn the_end_of_an_exchange_belongs_to_it() {
        use ReceiverState::{AlsoSending, SharedCore, Waiting};
        let task = |in_exchange| SingleCopyTask {
            rts: MatchedRts {
                req: ReqId(0),
                from: 1,
                len: 100_000,
                address: 8,
                request: 0,
                slot: None,
                preposted: true,
            },
            matched_at: Instant::now(),
            in_exchange,
        };
        for (in_exchange, now, chosen_by) in [
            (false, Waiting, Waiting),
            (true, Waiting, AlsoSending),
            (false, AlsoSending, AlsoSending),
            (true, SharedCore, SharedCore),
        ] {
            assert_eq!(task(in_exchange).state_in_selection(now), chosen_by);
        }
    }

    #[test]
    fn a_receiver_that_may_not_read_tries_neither_path() {
        let features = |remote_read, read_min| Features {
            message_max: 0,
            fragment_max: 0,
            eager_max: 0,
            remote_read,
            read_min,
            same_node: true,
            stream: false,
            batch: false,
        };
        for alone in [false, true] {
            for read_min in [READ_MIN_ADAPTIVE, 0, 1000, usize::MAX] {
                let path = path_without_trials(features(false, read_min), 1000, alone);
                assert_eq!(path, Some(Path::Pipelined), "{alone} {read_min}");
            }
        }
        let path = |read_min, alone| path_without_trials(features(true, read_min), 1000, alone);
        assert_eq!(path(READ_MIN_ADAPTIVE, false), None);
        assert_eq!(path(READ_MIN_ADAPTIVE, true), Some(Path::SingleCopy));
        assert_eq!(path(1000, false), Some(Path::SingleCopy));
        assert_eq!(path(1001, false), Some(Path::Pipelined));
        assert_eq!(path(1001, true), Some(Path::SingleCopy));
    }
}
