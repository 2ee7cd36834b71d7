//! The receiver's side: MPI_Precv_init and MPI_Parrived.

use super::{
    ANNOUNCEMENT_BYTES, ANNOUNCEMENT_SOURCE, Announcement, Partitioned, Parts, RUN_MAX_BYTES,
    check_partition, is_aggregated,
};
use crate::buffer::{self, stretch};
use crate::device::{self, Background, Device, Pattern, ReqId, Sink, Tags};
use crate::pt2pt::{Buffer, PersistentBuffer};
use crate::request::{Active, Outcome, SuccessStatus, Work};
use crate::state_lock::StateLock;
use crate::{Comm, Request, Result, err};
use ferry_job::RankStatus;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Receiving {
    parts: Parts,
    /// The sender's rank. `None` for MPI_PROC_NULL.
    from: Option<u32>,
    tag: u32,
    comm: Arc<Comm>,
    /// It has been started, and the program has not completed it.
    is_active: AtomicBool,
    state: StateLock<ReceiveProgress>,
}

/// Progress of a receive.
struct ReceiveProgress {
    /// Buffer for the announcement, and its receive until that is complete. Not freed while the
    /// device may write into it.
    announcement_bytes: ManuallyDrop<Box<[u8; ANNOUNCEMENT_BYTES]>>,
    announcement_receive: Option<ReqId>,
    /// The sender's announcement, once received.
    announcement: Option<Announcement>,
    /// The receive of each of the sender's partitions in this round, unless they go in runs. `None`
    /// once it has arrived.
    active: Vec<Option<ReqId>>,
    runs: Runs,
    /// This round's receives are posted.
    posted: bool,
    /// The device makes progress with this receive.
    in_background: bool,
    /// The receive of the announcement failed.
    announcement_error: Option<crate::Error>,
    failed: Option<crate::Error>,
}

/// Partitions that arrive in runs.
#[derive(Default)]
struct Runs {
    /// Where the next run is received to if its place is not known. Not freed while the device may
    /// write into it.
    bytes: ManuallyDrop<Vec<u8>>,
    /// The receive of the next run.
    receive: Option<ReqId>,
    /// The partition to whose place it is received. `None`: to `bytes`.
    place: Option<usize>,
    /// Partitions before this one have arrived.
    arrived_until: usize,
    /// Which of the sender's partitions have arrived in this round.
    arrived: Vec<bool>,
    /// How many have not.
    missing: usize,
}

/// A partitioned receive, inactive (MPI_Precv_init). `part` is the place of the first partition;
/// the others follow it in memory.
///
/// # Safety
/// Whenever it is started, the memory of all partitions must be writable, and untouched until each
/// has arrived.
pub unsafe fn receive_init(
    comm: &Arc<Comm>,
    part: Buffer<'_>,
    partitions: usize,
    from: Option<u32>,
    tag: u32,
) -> Arc<Request> {
    let mut announcement_bytes = ManuallyDrop::new(Box::new([0u8; ANNOUNCEMENT_BYTES]));
    let announcement_receive = from.map(|rank| {
        let pattern = Pattern {
            context: comm.context.partitioned(),
            source: Some(ANNOUNCEMENT_SOURCE | rank),
            tag: Tags::one(tag),
        };
        // SAFETY: the box is freed only once the receive is complete.
        unsafe {
            device::device().receive_from(
                comm.peer(rank),
                pattern,
                Sink::Bytes {
                    ptr: announcement_bytes.as_mut_ptr(),
                    cap: ANNOUNCEMENT_BYTES,
                },
            )
        }
    });
    let state = ReceiveProgress {
        announcement_bytes,
        announcement_receive,
        announcement: None,
        active: Vec::new(),
        runs: Runs::default(),
        posted: false,
        in_background: false,
        announcement_error: None,
        failed: None,
    };
    let parts = Parts {
        part: part.to_persistent(),
        partitions,
    };
    let receiving = Arc::new(Receiving {
        parts,
        from,
        tag,
        comm: comm.clone(),
        is_active: AtomicBool::new(false),
        state: StateLock::new(state),
    });
    let partitioned = receiving.clone();
    Request::partitioned_work(comm, partitioned, Box::new(move |d| receiving.start(d)))
}

/// Goes on until the announcement has arrived, and all runs have. The program may wait for its send
/// first, while the other side waits for the receive of its next run.
impl Background for Receiving {
    fn advance(&self, d: &mut Device) -> bool {
        let state = &mut *self.state.lock();
        let posted = self.post(d, state);
        if posted {
            self.take_runs(d, state);
        }
        state.in_background = !posted || state.runs.missing > 0;
        !state.in_background
    }
}

impl Receiving {
    /// Starts the receive (MPI_Start): no partition has arrived.
    fn start(self: &Arc<Self>, d: &mut Device) -> Active {
        self.is_active.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        (state.posted, state.failed) = (false, None);
        let posted = self.post(d, &mut state);
        let goes_on = !posted || state.runs.missing > 0;
        let begins = goes_on && !std::mem::replace(&mut state.in_background, true);
        drop(state);
        if begins {
            d.add_background(self.clone());
        }
        Active::Work(self.clone())
    }

    /// Posts this round's receives once the announcement has arrived. True if they are posted.
    fn post(&self, d: &mut Device, state: &mut ReceiveProgress) -> bool {
        if state.posted {
            return true;
        }
        let Some(from) = self.from else {
            state.posted = true;
            return true;
        };
        if let Some(req) = state.announcement_receive {
            if !d.is_complete(req) {
                return false;
            }
            state.announcement_receive = None;
            state.announcement_error = Outcome::of_receive(&d.take(req), &self.comm).error;
            if state.announcement_error.is_none() {
                state.announcement = Some(Announcement::decode(&state.announcement_bytes));
            }
        }
        state.posted = true;
        state.failed = state.announcement_error.clone();
        state.active.clear();
        let Some(Announcement {
            channel,
            partitions,
            bytes,
        }) = state.announcement
        else {
            return true;
        };
        let room = self
            .parts
            .bytes()
            .saturating_mul(self.parts.partitions as u64);
        match partitions.checked_mul(bytes) {
            Some(total) if total <= room => {}
            _ => {
                state.failed = Some(
                    err!(
                        Truncate,
                        "the sender's {partitions} partitions of {bytes} bytes are more \
                         than the receive buffer's {room} bytes"
                    )
                    .on(&self.comm),
                );
                return true;
            }
        }
        if is_aggregated(bytes) {
            state.runs.arrived.clear();
            state.runs.arrived.resize(partitions as usize, false);
            state.runs.missing = partitions as usize;
            state.runs.arrived_until = 0;
            self.receive_run(d, &mut state.runs, channel, bytes);
            return true;
        }
        let count = self.elements();
        let peer = self.comm.peer(from);
        for at in 0..partitions {
            let pattern = Pattern {
                context: channel,
                source: Some(from),
                tag: Tags::one(at as u32),
            };
            let PersistentBuffer {
                address, datatype, ..
            } = &self.parts.part;
            let into = stretch(*address, count, datatype, at * bytes, bytes);
            // SAFETY: the program's promise at `receive_init`.
            state
                .active
                .push(Some(unsafe { d.receive_from(peer, pattern, into) }));
        }
        true
    }

    /// Updates the state of the receives.
    fn settle(&self, d: &mut Device, state: &mut ReceiveProgress) {
        if !self.post(d, state) {
            return;
        }
        self.take_runs(d, state);
        for slot in &mut state.active {
            if let Some(req) = *slot
                && d.is_complete(req)
            {
                *slot = None;
                if let Some(error) = Outcome::of_receive(&d.take(req), &self.comm).error {
                    state.failed.get_or_insert(error);
                }
            }
        }
    }
}

impl Receiving {
    /// Elements of the whole buffer.
    fn elements(&self) -> i64 {
        self.parts.part.count * self.parts.partitions as i64
    }

    /// Posts the receive of the next run of partitions of `bytes` bytes.
    fn receive_run(&self, d: &mut Device, runs: &mut Runs, channel: device::ContextId, bytes: u64) {
        let Some(from) = self.from else { return };
        let part = &self.parts.part;
        let start = buffer::run(part.address, self.elements(), &part.datatype);
        runs.place = runs.rest().filter(|_| start.is_some());
        let into = match (start, runs.place) {
            (Some(start), Some(first)) => Sink::Bytes {
                ptr: start.wrapping_add(first * bytes as usize),
                cap: runs.missing * bytes as usize,
            },
            _ => {
                if runs.bytes.is_empty() {
                    runs.bytes.resize(RUN_MAX_BYTES as usize, 0);
                }
                Sink::Bytes {
                    ptr: runs.bytes.as_mut_ptr(),
                    cap: runs.bytes.len(),
                }
            }
        };
        let pattern = Pattern {
            context: channel,
            source: Some(from),
            tag: Tags::ANY,
        };
        // SAFETY: the program's promise at `receive_init`, or the bytes are neither moved nor freed
        // before the receive is complete.
        runs.receive = Some(unsafe { d.receive_from(self.comm.peer(from), pattern, into) });
    }

    /// Copies the runs that have arrived to their places.
    fn take_runs(&self, d: &mut Device, state: &mut ReceiveProgress) {
        while let Some(req) = state.runs.receive
            && d.is_complete(req)
        {
            let ended = d.take(req);
            state.runs.receive = None;
            let Some(Announcement { channel, bytes, .. }) = state.announcement else {
                return;
            };
            let taken = match ended.fault {
                Some(_) => Err(Outcome::of_receive(&ended, &self.comm).error),
                None => state
                    .runs
                    .arrive(ended.envelope.tag, ended.received, bytes)
                    .ok_or_else(|| {
                        let (tag, len) = (ended.envelope.tag, ended.received);
                        Some(
                            err!(
                                Intern,
                                "a message of {len} bytes for partition {tag} is none of \
                                 {bytes} bytes each that are missing"
                            )
                            .on(&self.comm),
                        )
                    }),
            };
            if let Err(error) = taken {
                state.failed = state.failed.take().or(error);
                state.runs.missing = 0;
                return;
            }
            let (first, len) = (ended.envelope.tag as usize, ended.received as usize);
            let offset = first as u64 * bytes;
            let part = &self.parts.part;
            match state.runs.place {
                Some(place) if place == first => {}
                Some(place) => {
                    let by = (first - place) * bytes as usize;
                    let start = buffer::run(part.address, self.elements(), &part.datatype);
                    let at = start.map(|s| s.wrapping_add(place * bytes as usize));
                    // SAFETY: the program's promise at `receive_init`. Both places lie among those
                    // of the partitions that were missing, of which `place` is the first.
                    at.inspect(|&at| unsafe { at.copy_to(at.wrapping_add(by), len) });
                }
                None => {
                    let data = &state.runs.bytes[..len];
                    // SAFETY: the program's promise at `receive_init`; what is sent fits (`post`).
                    unsafe {
                        part.datatype
                            .unpack(part.address, self.elements(), offset, data);
                    }
                }
            }
            if state.runs.missing > 0 {
                self.receive_run(d, &mut state.runs, channel, bytes);
            }
        }
    }
}

impl Runs {
    /// Counts a run of `len` bytes that begins with partition `first`. `None` if it is not a number
    /// of partitions of `bytes` bytes that are all missing.
    fn arrive(&mut self, first: u32, len: u64, bytes: u64) -> Option<()> {
        if len == 0 || !len.is_multiple_of(bytes) {
            return None;
        }
        let (first, count) = (first as usize, (len / bytes) as usize);
        let places = self.arrived.get_mut(first..first.checked_add(count)?)?;
        if places.contains(&true) {
            return None;
        }
        places.fill(true);
        self.missing -= count;
        let until = self.arrived_until;
        let more = self.arrived[until..].iter().take_while(|&&a| a).count();
        self.arrived_until = until + more;
        Some(())
    }

    /// The first partition that is missing, if all that follow it are missing, too.
    fn rest(&self) -> Option<usize> {
        let all_missing = self.missing == self.arrived.len() - self.arrived_until;
        all_missing.then_some(self.arrived_until)
    }
}

impl Receiving {
    /// Has partition `partition`, which exists, arrived?
    fn has_arrived(&self, d: &mut Device, partition: u64) -> bool {
        let mut state = self.state.lock();
        self.settle(d, &mut state);
        if !state.posted {
            return false;
        }
        let (own, theirs) = (
            self.parts.bytes(),
            state.announcement.as_ref().map_or(0, |c| c.bytes),
        );
        if own == 0 || theirs == 0 {
            return state.active.iter().all(Option::is_none);
        }
        // The sender's partitions that overlap this one.
        let first = (partition * own / theirs) as usize;
        let last = ((partition + 1) * own).div_ceil(theirs) as usize;
        if is_aggregated(theirs) {
            let runs = &state.runs;
            let end = last.min(runs.arrived.len());
            return runs.missing == 0 || runs.arrived[first.min(end)..end].iter().all(|&a| a);
        }
        let end = last.min(state.active.len());
        state.active[first.min(end)..end]
            .iter()
            .all(Option::is_none)
    }
}

impl Partitioned for Receiving {
    fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    fn ready(&self, _partition: i32) -> Result<()> {
        Err(err!(
            Request,
            "the request is a partitioned receive; MPI_Pready releases parts of sends"
        ))
    }

    fn arrived(&self, partition: i32) -> Result<bool> {
        let at = check_partition(partition, self.parts.partitions)? as u64;
        Ok(crate::request::test(|d| self.has_arrived(d, at)))
    }
}

impl Work for Receiving {
    fn is_done(&self, d: &mut Device) -> bool {
        let mut state = self.state.lock();
        self.settle(d, &mut state);
        state.posted && state.runs.missing == 0 && state.active.iter().all(Option::is_none)
    }
    fn end_successful(&self, d: &mut Device) -> Option<SuccessStatus> {
        let source = self.from?;
        if !self.is_done(d) {
            return None;
        }
        let state = self.state.lock();
        if state.failed.is_some() {
            return None;
        }
        self.is_active.store(false, Ordering::Relaxed);
        Some(SuccessStatus::Received {
            source,
            tag: self.tag,
            bytes: state.bytes(),
        })
    }
    fn describe(&self, _d: &mut Device, status: &RankStatus) {
        let Some(from) = self.from else { return };
        status.operation.store(b"MPI_Precv_init");
        let peer = self.comm.peer(from) as i32;
        status.peer.store(peer, Ordering::Relaxed);
        status.tag.store(self.tag as i32, Ordering::Relaxed);
    }
    fn outcome(&self) -> Outcome {
        let state = self.state.lock();
        let Some(from) = self.from else {
            return Outcome::FROM_PROC_NULL;
        };
        let bytes = state.bytes();
        let envelope = device::Envelope {
            source: from,
            tag: self.tag,
            len: bytes,
        };
        Outcome {
            error: state.failed.clone(),
            ..Outcome::of_envelope(&envelope)
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

impl ReceiveProgress {
    /// Bytes of all of the sender's partitions.
    fn bytes(&self) -> u64 {
        let announcement = self.announcement.as_ref();
        announcement.map_or(0, |a| a.partitions * a.bytes)
    }
}

impl Drop for ReceiveProgress {
    fn drop(&mut self) {
        if self.runs.receive.is_none() {
            // SAFETY: dropped only here, and the device no longer writes into it.
            unsafe { ManuallyDrop::drop(&mut self.runs.bytes) };
        }
        if self.announcement_receive.is_none() {
            // SAFETY: dropped only here, and the device no longer writes into it.
            unsafe { ManuallyDrop::drop(&mut self.announcement_bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Runs;

    #[test]
    fn runs_that_are_not_missing_are_refused() {
        let mut runs = Runs {
            arrived: vec![false; 8],
            missing: 8,
            ..Runs::default()
        };
        assert_eq!(runs.arrive(2, 12, 4), Some(()));
        assert_eq!((runs.missing, runs.arrived[4]), (5, true));
        assert_eq!(runs.rest(), None);
        for (first, len) in [
            (4, 4),
            (1, 8),
            (0, 0),
            (0, 3),
            (7, 8),
            (8, 4),
            (u32::MAX, 4),
        ] {
            assert_eq!(runs.arrive(first, len, 4), None, "{first} {len}");
        }
        assert_eq!(runs.arrive(0, 8, 4), Some(()));
        assert_eq!(runs.rest(), Some(5));
        assert_eq!(runs.arrive(5, 12, 4), Some(()));
        assert_eq!(runs.missing, 0);
    }
}
