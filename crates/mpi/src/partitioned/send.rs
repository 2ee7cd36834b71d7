//! The sender's side: MPI_Psend_init and MPI_Pready.

use super::{
    ANNOUNCEMENT_SOURCE, Announcement, BURST_MAX, FLUSH_BYTES, Partitioned, Parts, RUN_MAX_BYTES,
    check_partition, is_aggregated,
};
use crate::buffer::source;
use crate::device::{self, Background, ContextId, Device, Key, ReqId, SendMode, Source};
use crate::process::process;
use crate::pt2pt::Buffer;
use crate::request::{Active, Outcome, SuccessStatus, Work};
use crate::state_lock::StateLock;
use crate::{Comm, Request, Result, err};
use ferry_job::RankStatus;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

struct Sending {
    parts: Parts,
    /// The receiver. `None` for MPI_PROC_NULL.
    to: Option<device::ProcId>,
    channel: ContextId,
    source: u32,
    comm: Arc<Comm>,
    /// All partitions are at most [`FLUSH_BYTES`], or time is virtual. Then the time of releases
    /// does not matter.
    is_timeless: bool,
    /// Bytes of a partition.
    bytes: u64,
    /// It has been started, and the program has not completed it.
    is_active: AtomicBool,
    state: StateLock<SendProgress>,
}

/// Progress of a started send.
struct SendProgress {
    ready: Vec<bool>,
    /// How many are not released yet.
    unready: usize,
    /// Where partitions lie that are released and not sent, if they are aggregated.
    unsent: Range<usize>,
    /// Bytes of these.
    unsent_bytes: u64,
    /// When the first of these was released, if that matters.
    oldest_release: Option<Instant>,
    /// Partitions that were sent, if they are aggregated.
    sent: Vec<bool>,
    /// The device makes progress with this send.
    in_background: bool,
    active: Vec<ReqId>,
    failed: Option<crate::Error>,
}

/// A partitioned send, inactive (MPI_Psend_init). `part` is the first partition; the others follow
/// it in memory. `to` is a rank, or `None` for MPI_PROC_NULL.
///
/// # Safety
/// Whenever it is started, the partitions must be readable, each unchanged from its release to
/// completion.
pub unsafe fn send_init(
    comm: &Arc<Comm>,
    part: Buffer<'_>,
    partitions: usize,
    to: Option<u32>,
    tag: u32,
) -> Arc<Request> {
    let parts = Parts {
        part: part.to_persistent(),
        partitions,
    };
    let channel = process().new_context();
    let to = to.map(|rank| comm.peer(rank));
    let total = parts.bytes().saturating_mul(partitions as u64);
    let is_timeless = total <= FLUSH_BYTES || device::device().is_virtual();
    if let Some(to) = to {
        let announcement = Announcement {
            channel,
            partitions: partitions as u64,
            bytes: parts.bytes(),
        };
        announce(comm, to, tag, &announcement);
    }
    let state = StateLock::new(SendProgress {
        ready: vec![false; partitions],
        unready: partitions,
        unsent: 0..0,
        unsent_bytes: 0,
        oldest_release: None,
        sent: match is_aggregated(parts.bytes()) {
            true => vec![false; partitions],
            false => Vec::new(),
        },
        in_background: false,
        active: Vec::new(),
        failed: None,
    });
    let sending = Arc::new(Sending {
        to,
        channel,
        source: comm.rank(),
        comm: comm.clone(),
        is_timeless,
        bytes: parts.bytes(),
        is_active: AtomicBool::new(false),
        parts,
        state,
    });
    let partitioned = sending.clone();
    Request::partitioned_work(comm, partitioned, Box::new(move |d| sending.start(d)))
}

/// Sends the receiver an announcement.
fn announce(comm: &Comm, to: device::ProcId, tag: u32, announcement: &Announcement) {
    let key = Key {
        context: comm.context.partitioned(),
        source: ANNOUNCEMENT_SOURCE | comm.rank(),
        tag,
    };
    let bytes = Source::Owned(announcement.encode());
    let mut d = device::device();
    // SAFETY: the device owns the bytes.
    let sent = unsafe { d.send(to, key, bytes, SendMode::Standard) };
    if let Some(req) = sent {
        d.detach(req);
    }
}

impl SendProgress {
    /// Marks a partition as released. `None`: there is no such partition, or it has been released
    /// already.
    #[inline]
    fn release(&mut self, partition: i32) -> Option<usize> {
        // Of a negative number this makes a very large one.
        let at = partition as usize;
        let ready = self.ready.get_mut(at)?;
        if std::mem::replace(ready, true) {
            return None;
        }
        self.unready -= 1;
        Some(at)
    }

    /// Why a partition cannot be released.
    #[cold]
    fn refusal(&self, partition: i32) -> crate::Error {
        let refused = check_partition(partition, self.ready.len());
        refused
            .err()
            .unwrap_or_else(|| err!(Arg, "partition {partition} has been marked ready already"))
    }

    /// Is what waits sent now? Asked when it is [`FLUSH_BYTES`] more, as it reads the clock.
    #[cold]
    fn is_long_enough(&self) -> bool {
        let in_burst = |since: Instant| since.elapsed() <= BURST_MAX;
        self.unsent_bytes >= RUN_MAX_BYTES || !self.oldest_release.is_some_and(in_burst)
    }
}

impl Sending {
    /// Starts the send (MPI_Start): no partition is released.
    fn start(self: &Arc<Self>, d: &mut Device) -> Active {
        self.is_active.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.ready.fill(false);
        state.sent.fill(false);
        state.unready = self.parts.partitions;
        state.failed = None;
        let goes_on = !state.sent.is_empty() && !state.in_background && self.to.is_some();
        state.in_background |= goes_on;
        drop(state);
        if goes_on {
            d.add_background(self.clone());
        }
        Active::Work(self.clone())
    }

    /// Adds partition `at`, which has just been released, to those that wait to go in a run. True
    /// if there is enough to send.
    #[inline]
    fn add_to_run(&self, state: &mut SendProgress, at: usize) -> bool {
        if state.unsent_bytes == 0 {
            state.unsent = at..at + 1;
            state.oldest_release = (!self.is_timeless).then(Instant::now);
        } else {
            state.unsent = state.unsent.start.min(at)..state.unsent.end.max(at + 1);
        }
        let before = state.unsent_bytes;
        state.unsent_bytes += self.bytes;
        let is_time = state.unsent_bytes / FLUSH_BYTES > before / FLUSH_BYTES;
        state.unready == 0 || is_time && state.is_long_enough()
    }

    /// Sends the partitions that wait if they go in runs, or releases `partition` and sends it.
    /// Apart from [`Sending::add_to_run`], so that a partition that waits pays nothing for it.
    ///
    /// Errors: Arg if it is sent alone, and there is no such partition or it has been released
    /// already.
    #[inline(never)]
    fn send_released(&self, partition: i32) -> Result<()> {
        let mut d = device::device();
        let state = &mut *self.state.lock();
        if is_aggregated(self.bytes) {
            self.send_runs(&mut d, state);
        } else {
            let at = state.release(partition);
            let at = at.ok_or_else(|| state.refusal(partition))?;
            self.send(&mut d, state, at, 1);
        }
        d.notify_sleepers();
        Ok(())
    }

    /// Sends `count` partitions from `first` on as one message.
    fn send(&self, d: &mut Device, state: &mut SendProgress, first: usize, count: usize) {
        let Some(to) = self.to else { return };
        let key = Key {
            context: self.channel,
            source: self.source,
            tag: first as u32,
        };
        let part = &self.parts.part;
        let elements = part.count * count as i64;
        let bytes = source(self.parts.address(first), elements, &part.datatype);
        // SAFETY: the program's promise at `send_init`.
        let request = unsafe { d.send(to, key, bytes, SendMode::Standard) };
        state.active.extend(request);
    }

    /// Sends the partitions that wait, in as few runs as they make.
    fn send_runs(&self, d: &mut Device, state: &mut SendProgress) {
        if state.unsent_bytes == 0 {
            return;
        }
        let most = (RUN_MAX_BYTES / self.bytes) as usize;
        let unsent = std::mem::take(&mut state.unsent);
        state.unsent_bytes = 0;
        let mut first = unsent.start;
        while first < unsent.end {
            let end = unsent.end.min(first + most);
            let waits = |state: &SendProgress, at: usize| state.ready[at] && !state.sent[at];
            let count = (first..end).take_while(|&at| waits(state, at)).count();
            if count > 0 {
                state.sent[first..first + count].fill(true);
                self.send(d, state, first, count);
            }
            // The partition behind a run that was not cut for its length does not wait.
            first += count.max(1);
        }
    }
}

/// Sends the partitions that wait whenever the device makes progress, until all is sent.
impl Background for Sending {
    fn advance(&self, d: &mut Device) -> bool {
        let state = &mut *self.state.lock();
        self.send_runs(d, state);
        state.in_background = state.unready > 0;
        !state.in_background
    }

    fn is_urgent(&self, _: &Device) -> bool {
        self.state.lock().unsent_bytes > 0
    }
}

impl Partitioned for Sending {
    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    fn ready(&self, partition: i32) -> Result<()> {
        // Most partitions of a run only wait, which needs no device.
        if is_aggregated(self.bytes) {
            let state = &mut *self.state.lock();
            let at = state.release(partition);
            let at = at.ok_or_else(|| state.refusal(partition))?;
            if !self.add_to_run(state, at) {
                return Ok(());
            }
        }
        self.send_released(partition)
    }

    fn arrived(&self, _partition: i32) -> Result<bool> {
        Err(err!(
            Request,
            "the request is a partitioned send; MPI_Parrived asks receives"
        ))
    }
}

impl Work for Sending {
    fn is_done(&self, d: &mut Device) -> bool {
        let state = &mut *self.state.lock();
        self.send_runs(d, state);
        let failed = &mut state.failed;
        state.active.retain(|&req| {
            let done = d.is_complete(req);
            if done && let Some(error) = Outcome::of_send(&d.take(req), &self.comm).error {
                failed.get_or_insert(error);
            }
            !done
        });
        state.unready == 0 && state.active.is_empty()
    }
    fn end_successful(&self, d: &mut Device) -> Option<SuccessStatus> {
        if !self.is_done(d) || self.state.lock().failed.is_some() {
            return None;
        }
        self.is_active.store(false, Ordering::Relaxed);
        Some(SuccessStatus::Empty)
    }
    fn describe(&self, _d: &mut Device, status: &RankStatus) {
        let (unready, all) = (self.state.lock().unready, self.parts.partitions);
        match (unready, self.to) {
            (0, Some(to)) => {
                status.operation.store(b"MPI_Psend_init");
                status.peer.store(to as i32, Ordering::Relaxed);
            }
            _ => {
                let text = format!("MPI_Psend_init, {unready} of {all} not ready");
                status.operation.store(text.as_bytes());
            }
        }
    }
    fn outcome(&self) -> Outcome {
        Outcome {
            error: self.state.lock().failed.clone(),
            ..Outcome::SENT
        }
    }
    fn must_be_completed(&self) -> Option<&'static str> {
        Some("partitioned")
    }
    fn free(&self) -> Result<()> {
        self.is_active.store(false, Ordering::Relaxed);
        Ok(())
    }
}
