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
    /// How many these are.
    unsent_count: usize,
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
        unsent_count: 0,
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
    /// Marks a partition as released.
    ///
    /// Errors: Arg if it has been released already.
    fn release(&mut self, at: usize) -> Result<()> {
        if self.ready[at] {
            return Err(err!(Arg, "partition {at} has been marked ready already"));
        }
        self.ready[at] = true;
        self.unready -= 1;
        Ok(())
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

    /// Adds a partition to those that wait to go in a run. True if there is enough to send. Without
    /// the device: most partitions of a run only wait.
    ///
    /// Errors: Arg if it has been released already.
    fn add_to_run(&self, at: usize) -> Result<bool> {
        let state = &mut *self.state.lock();
        state.release(at)?;
        if state.unsent_count == 0 {
            state.unsent = at..at + 1;
            state.oldest_release = (!self.is_timeless).then(Instant::now);
        } else {
            state.unsent = state.unsent.start.min(at)..state.unsent.end.max(at + 1);
        }
        let before = state.unsent_count as u64 * self.bytes;
        let bytes = before + self.bytes;
        state.unsent_count += 1;
        if state.unready == 0 || bytes >= RUN_MAX_BYTES {
            return Ok(true);
        }
        // The clock is read once for every `FLUSH_BYTES`.
        let is_time = bytes / FLUSH_BYTES > before / FLUSH_BYTES;
        let in_burst = |since: Instant| since.elapsed() <= BURST_MAX;
        Ok(is_time && !state.oldest_release.is_some_and(in_burst))
    }

    /// Sends partition `at`, which the program has just released, or those that wait with it.
    /// Apart from [`Sending::add_to_run`], so that a partition that waits pays nothing for it.
    ///
    /// Errors: Arg if it is sent alone and has been released already.
    #[inline(never)]
    fn send_released(&self, at: usize) -> Result<()> {
        let mut d = device::device();
        let state = &mut *self.state.lock();
        if is_aggregated(self.bytes) {
            self.send_runs(&mut d, state);
        } else {
            state.release(at)?;
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
        if state.unsent_count == 0 {
            return;
        }
        let most = (RUN_MAX_BYTES / self.bytes) as usize;
        let unsent = std::mem::take(&mut state.unsent);
        state.unsent_count = 0;
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
        self.state.lock().unsent_count > 0
    }
}

impl Partitioned for Sending {
    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    fn ready(&self, partition: i32) -> Result<()> {
        let at = check_partition(partition, self.parts.partitions)?;
        if is_aggregated(self.bytes) && !self.add_to_run(at)? {
            return Ok(());
        }
        self.send_released(at)
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
