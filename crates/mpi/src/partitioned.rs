//! Partitioned communication (MPI 5.0 chapter 4): persistent messages whose partitions the program
//! releases, and sees arrive, one by one.
//!
//! The two sides match once, in the order in which they were initialised. The sender announces a
//! context of its own, its number of partitions and their size. Each of the sender's partitions is
//! then a message in that context. Its tag is the partition's number. It is received directly into
//! its place in the receive buffer, whatever the receiver's partitions are.

use crate::buffer::{message_len, source, stretch};
use crate::device::{
    self, Background, ContextId, Device, Key, Pattern, ReqId, SendMode, Sink, Source, Tags,
};
use crate::process::process;
use crate::pt2pt::{Buffer, PersistentBuffer};
use crate::request::{Active, Outcome, Work};
use crate::{Comm, Request, Result, err};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Operations on a started partitioned request.
pub trait Partitioned {
    /// Releases a partition of a send (MPI_Pready).
    ///
    /// Errors: no such partition, released already, or this is a receive.
    fn ready(&self, partition: i32) -> Result<()>;
    /// Has a partition of a receive arrived (MPI_Parrived)? Makes progress.
    ///
    /// Errors: no such partition, or this is a send.
    fn arrived(&self, partition: i32) -> Result<bool>;
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks a partition's number.
fn check_partition(partition: i32, partitions: usize) -> Result<usize> {
    usize::try_from(partition)
        .ok()
        .filter(|&p| p < partitions)
        .ok_or_else(|| {
            err!(
                Arg,
                "partition is {partition}, but the operation has {partitions} partitions"
            )
        })
}

/// Bytes of an encoded [`Announcement`]: three words of 8 bytes.
const ANNOUNCEMENT_BYTES: usize = 24;
/// Set in the source of announcements. MPI_Comm_create_group uses the same context and the
/// program's tags, with plain ranks as sources.
const ANNOUNCEMENT_SOURCE: u32 = 1 << 31;

struct Announcement {
    channel: ContextId,
    partitions: u64,
    /// Bytes of one partition.
    bytes: u64,
}

impl Announcement {
    fn encode(&self) -> Box<[u8]> {
        [self.channel.0, self.partitions, self.bytes]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect()
    }
    fn decode(bytes: &[u8; ANNOUNCEMENT_BYTES]) -> Announcement {
        let field = |at: usize| {
            bytes[at..]
                .first_chunk::<8>()
                .map_or(0, |b| u64::from_le_bytes(*b))
        };
        Announcement {
            channel: ContextId(field(0)),
            partitions: field(8),
            bytes: field(16),
        }
    }
}

/// One side's buffer: `partitions` times `part.count` elements, contiguous from `part.address` on.
struct Parts {
    part: PersistentBuffer,
    partitions: usize,
}

// SAFETY: the address is the user's, lent to MPI; it is used under the device's lock.
unsafe impl Sync for Parts {}

impl Parts {
    fn address(&self, partition: usize) -> *mut u8 {
        let step = self.part.count * self.part.datatype.extent();
        self.part
            .address
            .wrapping_offset(partition as isize * step as isize)
    }
    fn bytes(&self) -> u64 {
        message_len(self.part.count, &self.part.datatype) as u64
    }
}

struct Sending {
    parts: Parts,
    /// The receiver. `None` for MPI_PROC_NULL.
    to: Option<device::ProcId>,
    channel: ContextId,
    source: u32,
    comm: Arc<Comm>,
    state: Mutex<SendProgress>,
}

/// Progress of a started send.
struct SendProgress {
    ready: Vec<bool>,
    unsent: usize,
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
    if let Some(to) = to {
        let announcement = Announcement {
            channel,
            partitions: partitions as u64,
            bytes: parts.bytes(),
        }
        .encode();
        let key = Key {
            context: comm.context.partitioned(),
            source: ANNOUNCEMENT_SOURCE | comm.rank(),
            tag,
        };
        let mut d = device::device();
        // SAFETY: the device owns the bytes.
        let sent = unsafe { d.send(to, key, Source::Owned(announcement), SendMode::Standard) };
        if let Some(req) = sent {
            d.detach(req);
        }
    }
    let state = Mutex::new(SendProgress {
        ready: vec![false; partitions],
        unsent: partitions,
        active: Vec::new(),
        failed: None,
    });
    let sending = Arc::new(Sending {
        parts,
        to,
        channel,
        source: comm.rank(),
        comm: comm.clone(),
        state,
    });
    Request::persistent_work(
        Some(comm.clone()),
        Box::new(move |_| {
            let mut state = lock(&sending.state);
            state.ready.fill(false);
            state.unsent = sending.parts.partitions;
            state.failed = None;
            drop(state);
            Active::Work(sending.clone())
        }),
    )
}

impl Partitioned for Sending {
    fn ready(&self, partition: i32) -> Result<()> {
        let at = check_partition(partition, self.parts.partitions)?;
        let mut d = device::device();
        let mut state = lock(&self.state);
        if state.ready[at] {
            return Err(err!(
                Arg,
                "partition {partition} has been marked ready already"
            ));
        }
        state.ready[at] = true;
        state.unsent -= 1;
        if let Some(to) = self.to {
            let key = Key {
                context: self.channel,
                source: self.source,
                tag: at as u32,
            };
            let bytes = source(
                self.parts.address(at),
                self.parts.part.count,
                &self.parts.part.datatype,
            );
            // SAFETY: the program's promise at `send_init`.
            state
                .active
                .extend(unsafe { d.send(to, key, bytes, SendMode::Standard) });
        }
        d.notify_sleepers();
        Ok(())
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
        let state = &mut *lock(&self.state);
        let failed = &mut state.failed;
        state.active.retain(|&req| {
            let done = d.is_complete(req);
            if done && let Some(error) = Outcome::of_send(&d.take(req), &self.comm).error {
                failed.get_or_insert(error);
            }
            !done
        });
        state.unsent == 0 && state.active.is_empty()
    }
    fn outcome(&self) -> Outcome {
        Outcome {
            error: lock(&self.state).failed.clone(),
            ..Outcome::SENT
        }
    }
    fn must_be_completed(&self) -> Option<&'static str> {
        Some("partitioned")
    }
    fn partitioned(&self) -> Option<&dyn Partitioned> {
        Some(self)
    }
}

struct Receiving {
    parts: Parts,
    /// The sender's rank. `None` for MPI_PROC_NULL.
    from: Option<u32>,
    tag: u32,
    comm: Arc<Comm>,
    state: Mutex<ReceiveProgress>,
}

/// Progress of a receive.
struct ReceiveProgress {
    /// Buffer for the announcement, and its receive until that is complete. Not freed while the
    /// device may write into it.
    announcement_bytes: ManuallyDrop<Box<[u8; ANNOUNCEMENT_BYTES]>>,
    announcement_receive: Option<ReqId>,
    /// The sender's announcement, once received.
    announcement: Option<Announcement>,
    /// The receive of each of the sender's partitions in this round. `None` once it has arrived.
    active: Vec<Option<ReqId>>,
    /// This round's receives are posted.
    posted: bool,
    /// The receive of the announcement failed.
    announcement_error: Option<crate::Error>,
    failed: Option<crate::Error>,
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
        posted: false,
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
        state: Mutex::new(state),
    });
    Request::persistent_work(
        Some(comm.clone()),
        Box::new(move |d| {
            let mut state = lock(&receiving.state);
            (state.posted, state.failed) = (false, None);
            let posted = receiving.post(d, &mut state);
            drop(state);
            if !posted {
                d.add_background(receiving.clone());
            }
            Active::Work(receiving.clone())
        }),
    )
}

/// Runs until the announcement has arrived.
impl Background for Receiving {
    fn advance(&self, d: &mut Device) -> bool {
        self.post(d, &mut lock(&self.state))
    }
}

impl Receiving {
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
        let count = self.parts.part.count * self.parts.partitions as i64;
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
    /// Has partition `partition`, which exists, arrived?
    fn has_arrived(&self, d: &mut Device, partition: u64) -> bool {
        let mut state = lock(&self.state);
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
        let end = last.min(state.active.len());
        state.active[first.min(end)..end]
            .iter()
            .all(Option::is_none)
    }
}

impl Partitioned for Receiving {
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
        let mut state = lock(&self.state);
        self.settle(d, &mut state);
        state.posted && state.active.iter().all(Option::is_none)
    }
    fn outcome(&self) -> Outcome {
        let state = lock(&self.state);
        let Some(from) = self.from else {
            return Outcome::FROM_PROC_NULL;
        };
        let bytes = state
            .announcement
            .as_ref()
            .map_or(0, |c| c.partitions * c.bytes);
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
    fn partitioned(&self) -> Option<&dyn Partitioned> {
        Some(self)
    }
}

impl Drop for ReceiveProgress {
    fn drop(&mut self) {
        if self.announcement_receive.is_none() {
            // SAFETY: dropped only here, and the device no longer writes into it.
            unsafe { ManuallyDrop::drop(&mut self.announcement_bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_reads_back() {
        let a = Announcement {
            channel: ContextId(5 << 32 | 8),
            partitions: 7,
            bytes: 1 << 33,
        };
        let bytes: [u8; ANNOUNCEMENT_BYTES] = (*a.encode()).try_into().unwrap();
        let b = Announcement::decode(&bytes);
        assert_eq!(
            (b.channel, b.partitions, b.bytes),
            (a.channel, a.partitions, a.bytes)
        );
    }
}
