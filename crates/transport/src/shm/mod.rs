//! The transport between the processes of a node: messages by shared memory, large ones also by
//! reading the peer's memory.
//!
//! ```text
//!                          Shm (the Transport)
//!        ┌────────────────┬──────┴───────────┬──────────────────┐
//!        ▼                ▼                  ▼                  ▼
//!  peer: opens rings  assist: copies     node_collectives:  core_sharing:
//!  and delivers       with the sender    allocates boards   who waits on
//!        │                │                  │              which core
//!        │                │                  │                  │
//!        ├──── layout: where all is in the node's segment ──────┤
//!        ▼                ▼                  ▼                  ▼
//!  pair: one side     cma: single copy   coll: counter      control: a page
//!  of what follows    (process_vm_readv) board, flat board  for each process
//!  ┌─────┴────┐           │                  │                  │
//!  ▼          ▼           │                  │                  ▼
//!  fastbox    cells       │                  │              wakeup_word, update_slot
//!  ▼          │           │                  │                  │
//!  ring       │           │                  │                  │
//!  ▼          ▼           ▼                  ▼                  ▼
//!  memory: atomic words, and bytes that belong to one side at a time
//! ```
//!
//! Uses point down: a file uses those below it and never one above (`crates/api/tests/house/`).
//! `impl Shm` is spread over this file, `peer`, `assist`, `node_collectives` and `core_sharing`.
//! `announcements` has the words by which a sender withdraws a message that it has announced.
//!
//! The segment has one control page for each process, and room for a ring from each process to each
//! other. A ring is mapped when the pair first communicates. A page of it costs memory when it is
//! first written. Behind them lies the arena (`shared_memory`), which no message uses.

mod announcements;
mod assist;
mod cells;
mod cma;
mod coll;
mod control;
mod core_sharing;
mod drain;
mod early;
mod fastbox;
mod layout;
mod memory;
mod node_collectives;
mod pair;
mod peer;
mod read_min;
mod reassembly;
mod ring;
mod shared_memory;
mod streaming_copy;
mod update_slot;
pub(crate) mod wakeup_word;

pub use announcements::{ANNOUNCEMENTS_MAX, AnnouncementWords, Announcements};
pub use cma::PeerMemory;
pub use coll::{Awaited, COUNT_PER_MEMBER, CounterBoard, SLOT_MAX_BYTES};
pub use coll::{FLAT_MAX_RANKS, FlatBoard, MARK_BITS, PHASES, POST_MAX_BYTES};
pub use coll::{Post, UnorderedFlatBoard};
pub use control::Waker;
pub use fastbox::FASTBOX_LINE_MAX_BYTES;
pub use layout::segment_len;
pub use memory::RING_DATA_BYTES;
pub use read_min::{READ_MIN_ADAPTIVE, read_min, set_read_min};
pub use shared_memory::{Mapping, SharedMemory, SharedRange};
pub use update_slot::{OfferState, Offered, UPDATE_WORDS, UpdateSlot};

use crate::{
    Body, FRAGMENT_HEAD_MAX_BYTES, Features, Fragments, Inbox, NodeCollectives, ProcId, ReadError,
    ReadStart, SHORT_HEAD_BYTES, SendStatus, Sleeper, Transport, TransportError, short_copy,
};
use cells::{CELL_BODY_MAX_BYTES, HEAD_MAX_BYTES};
use control::{ASLEEP_ON_SOCKET, AWAKE, CONTROL_BYTES, Control, LOCAL_RANKS_MAX};
use ferry_job::Segment;
use layout::map;
use pair::{CROSSED_MIN_BYTES, EXCHANGE_MIN_BYTES, Pair};
use peer::Peer;
use ring::{RECORD_MAX_BYTES, RECORD_PART_BYTES, SPLIT_MAX_BYTES};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// On nodes with more processes than this, a writer also sets its bit in the reader's bitmap. The
/// reader then polls only those rings. A choice: setting the bit costs a writer one line, polling
/// a ring costs a reader one line.
const POLL_ALL_MAX_RANKS: usize = 8;
/// Largest eager message, head and body, bytes: 64 KiB of user data and 32 bytes for the head.
/// Larger ones use a rendezvous. Measured (docs/measured/shm.md): up to 64 KiB a message in several
/// records is faster than one that is announced first.
pub const EAGER_MAX_BYTES: usize = 64 * 1024 + 32;
const _: () = assert!(EAGER_MAX_BYTES <= SPLIT_MAX_BYTES);
/// Largest message, head and body, bytes, that always goes in one record. Longer ones are split, or
/// are fragments of a pipelined copy.
const SINGLE_RECORD_MAX_BYTES: usize = RECORD_PART_BYTES + memory::LINE_BYTES;
// A fragment's body may go into a cell.
const _: () = assert!(FRAGMENT_HEAD_MAX_BYTES <= HEAD_MAX_BYTES);
/// The transport between the processes of a node.
pub struct Shm {
    segment: Segment,
    /// Process numbers of the node's processes, ascending. Their index is the *local index*. In a
    /// segment that several jobs share, they are in the order of the segment.
    locals: Vec<ProcId>,
    /// From process to local index, in a segment that several jobs share.
    by_process: Option<HashMap<ProcId, usize>>,
    /// Addresses and lengths of mappings that end with this, in such a segment.
    mappings: Vec<(usize, usize)>,
    /// This process's local index.
    me: usize,
    /// By local index: the processes' control pages.
    controls: &'static [Control],
    /// By local index: the peers whose rings are mapped.
    peers: Vec<Option<Box<Peer>>>,
    /// Local indices of the peers whose rings are mapped.
    readers: Vec<usize>,
    /// The value of this process's `ring_open_requests` when last looked at.
    ring_opens_seen: u32,
    /// Local indices of peers whose rings could not be opened when they wrote.
    unmapped: Vec<usize>,
    /// Local indices of peers to which a send was answered Full. They must wake this process when
    /// there is room.
    blocked: Vec<usize>,
    boards: coll::Boards,
    /// This process sleeps until a datagram arrives at its wakeup socket.
    sleeps_on_socket: bool,
    /// The value of this process's `assist_requests` when last looked at.
    assists_seen: u32,
    /// Ranks have a core each, so that two can copy at the same time.
    core_each: bool,
    /// So it has, and [lines are costly](streaming_copy::lines_are_costly).
    costly_lines: bool,
    /// Whether the memory of the peers with these local indices can be read and written.
    writable: BTreeMap<usize, bool>,
}

/// Words in private memory: one that peers try to read, whose value shows that it is the right
/// process's, and one that they try to write.
static PROBE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Does valgrind's memcheck run this program? It would call undefined what peers write into its
/// memory by system calls of their own.
fn is_under_memcheck() -> bool {
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    preloaded.contains("vgpreload_memcheck")
}

impl Shm {
    /// Opens the transport of process `locals[me]` in the node's segment.
    ///
    /// Errors: mapping is refused (address-space limit), or there are more local processes than the
    /// control page has bits for.
    pub fn open(
        segment: Segment,
        locals: Vec<ProcId>,
        me: usize,
        job: u64,
        cores: u32,
    ) -> Result<Shm, TransportError> {
        let refused = |attempted: String, cause: std::io::Error| TransportError::Refused {
            attempted,
            cause,
            advice: "raise the address-space limit (ulimit -v)",
        };
        if locals.len() > LOCAL_RANKS_MAX {
            return Err(TransportError::Refused {
                attempted: format!("placing {} ranks on one node", locals.len()),
                cause: std::io::Error::from_raw_os_error(libc::E2BIG),
                advice: "start at most 8192 ranks a node",
            });
        }
        let len = locals.len() * CONTROL_BYTES;
        let base = map(&segment, segment.layout.transport_offset, len).map_err(|e| {
            refused(
                format!("mapping {len} bytes of the node's shared segment"),
                e,
            )
        })?;
        // SAFETY: the mapping is page aligned, as long as the slice, never unmapped, and Control is
        // all atomics for which zeros are valid.
        let controls = unsafe { std::slice::from_raw_parts(base.cast::<Control>(), locals.len()) };
        let mine = &controls[me];
        let value =
            job.rotate_left(17) ^ u64::from(std::process::id()) << 8 ^ 0x9e37_79b9_7f4a_7c15;
        PROBE[0].store(value, Ordering::Relaxed);
        mine.probe_address
            .store(&raw const PROBE as u64, Ordering::Relaxed);
        mine.probe_value.store(value, Ordering::Relaxed);
        if is_under_memcheck() {
            mine.refuse_writes();
        }
        mine.pid.store(std::process::id(), Ordering::Release);
        let peers = std::iter::repeat_with(|| None).take(locals.len()).collect();
        let core_each = locals.len() <= cores as usize;
        Ok(Shm {
            segment,
            locals,
            by_process: None,
            mappings: Vec::new(),
            me,
            controls,
            peers,
            readers: Vec::new(),
            ring_opens_seen: 0,
            unmapped: Vec::new(),
            blocked: Vec::new(),
            boards: coll::Boards::default(),
            sleeps_on_socket: false,
            assists_seen: 0,
            core_each,
            costly_lines: core_each && streaming_copy::lines_are_costly(),
            writable: BTreeMap::new(),
        })
    }

    /// Opens the transport in a segment that several jobs share. `processes`: the process numbers
    /// in this process of all that use it, in the order of the segment; `me`: its own place there.
    ///
    /// Errors: as for [`Shm::open`].
    pub fn open_shared(
        segment: Segment,
        processes: Vec<ProcId>,
        me: usize,
        job: u64,
        cores: u32,
    ) -> Result<Shm, TransportError> {
        let by_process = (0..).zip(&processes).map(|(i, &p)| (p, i)).collect();
        let mut shm = Shm::open(segment, processes, me, job, cores)?;
        shm.by_process = Some(by_process);
        let at = shm.controls.as_ptr().expose_provenance();
        shm.mappings.push((at, size_of_val(shm.controls)));
        Ok(shm)
    }

    /// A process of another job does not use the segment any more. Returns whether only processes
    /// of this job, those below `size`, are left.
    pub fn remove(&mut self, process: ProcId, size: u32) -> bool {
        let Some(by_process) = &mut self.by_process else {
            return false;
        };
        if let Some(i) = by_process.remove(&process) {
            self.readers.retain(|&r| r != i);
            self.unmapped.retain(|&u| u != i);
            self.blocked.retain(|&b| b != i);
            self.peers[i] = None;
            self.locals[i] = ProcId::MAX;
        }
        by_process.keys().all(|&p| p < size)
    }

    /// From now on this process sleeps on the wakeup socket of this name.
    pub fn use_wakeup_socket(&mut self, name: u64) {
        self.controls[self.me]
            .wakeup_socket
            .store(name, Ordering::SeqCst);
        self.sleeps_on_socket = true;
    }

    #[inline(always)]
    fn index(&self, peer: ProcId) -> Option<usize> {
        // Most jobs live on one node, where the index is the process number.
        if self.by_process.is_none() && self.locals.get(peer as usize) == Some(&peer) {
            return Some(peer as usize);
        }
        self.search_index(peer)
    }

    #[inline(never)]
    fn search_index(&self, peer: ProcId) -> Option<usize> {
        match &self.by_process {
            Some(by_process) => by_process.get(&peer).copied(),
            None => self.locals.binary_search(&peer).ok(),
        }
    }

    /// Sends a message whose head and body fit in one record, to a peer to which this process has
    /// sent before. [`SendStatus::Full`]: it has not, there is no room, or the message goes in a
    /// cell; [`Transport::send`] must be called then, which makes the peer wake this process.
    #[inline(always)]
    pub fn send_short(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8; SHORT_HEAD_BYTES],
        body: &[u8],
    ) -> SendStatus {
        let uses_active_bitmap = self.uses_active_bitmap();
        let Some(i) = self.index(to) else {
            return SendStatus::Full;
        };
        let (Some(peer), Some(control)) = (self.peers[i].as_deref_mut(), self.controls.get(i))
        else {
            return SendStatus::Full;
        };
        let len = SHORT_HEAD_BYTES + body.len();
        if len > CROSSED_MIN_BYTES && self.core_each && peer.pair.crosses() {
            return SendStatus::Full;
        }
        let streaming = peer.pair.is_streaming(body.len());
        let fill = |out: &mut [u8]| {
            assert!(out.len() == len);
            if streaming {
                streaming_copy::copy(body, &mut out[SHORT_HEAD_BYTES..], true);
                out[..SHORT_HEAD_BYTES].copy_from_slice(head);
                return;
            }
            let (first, rest) = (out.as_mut_ptr(), body.len());
            // SAFETY: the record has room for the head and the body, by the line above.
            unsafe { short_copy(body.as_ptr(), first.add(SHORT_HEAD_BYTES), rest) };
            // Last, because it may be in the line that the reader polls.
            out[..SHORT_HEAD_BYTES].copy_from_slice(head);
        };
        if !peer.ring_open_requested || !peer.pair.send(message, SHORT_HEAD_BYTES, len, fill) {
            return SendStatus::Full;
        }
        if uses_active_bitmap {
            control.active[self.me / 64].fetch_or(1 << (self.me % 64), Ordering::SeqCst);
        }
        control.wake_if_asleep();
        SendStatus::Done
    }

    /// The memory of a process of the node. `None`: it is none, it has not started, or the system
    /// does not let this process read and write its memory. Opens no rings.
    pub fn peer_memory(&mut self, peer: ProcId) -> Option<PeerMemory> {
        let i = self.index(peer)?;
        let control = &self.controls[i];
        let pid = control.pid.load(Ordering::Acquire);
        if pid == 0 {
            return None;
        }
        let writable = self.writable.entry(i);
        let try_it =
            || !control.refuses_writes() && cma::probe(control) && cma::probe_write(control);
        (*writable.or_insert_with(try_it)).then(|| PeerMemory::new(pid as i32))
    }

    /// The update slot of a process of the node. `None`: it is none.
    pub fn update_slot(&self, peer: ProcId) -> Option<&'static UpdateSlot> {
        let controls: &'static [Control] = self.controls;
        self.index(peer).map(|i| &controls[i].updates)
    }

    /// The words of announcements between this process and a peer that may be withdrawn. `None`:
    /// there are none. What else this process knows of the peer makes no difference: the peer may
    /// have announced something, and then these words decide.
    pub fn announcements(&mut self, peer: ProcId) -> Option<Announcements> {
        // A segment of several jobs may be unmapped.
        if self.by_process.is_some() {
            return None;
        }
        let i = self.index(peer).filter(|&i| i != self.me)?;
        Some(self.peer(i).ok()?.announcements)
    }

    /// Sends by `write`, which is told whether each process has a core of its own and returns
    /// whether there was room.
    #[inline]
    fn send_by(
        &mut self,
        to: ProcId,
        write: impl FnOnce(&mut Pair, bool) -> bool,
    ) -> Result<SendStatus, TransportError> {
        let Some(to) = self.index(to) else {
            return Err(TransportError::Unreachable {
                peer: to,
                tried: "shm".into(),
            });
        };
        if !self.peer(to)?.ring_open_requested {
            self.request_ring_open(to);
            self.peer(to)?.ring_open_requested = true;
        }
        let uses_active_bitmap = self.uses_active_bitmap();
        let core_each = self.core_each;
        if !write(&mut self.peer(to)?.pair, core_each) {
            if !self.blocked.contains(&to) {
                self.blocked.push(to);
            }
            return Ok(SendStatus::Full);
        }
        let control = &self.controls[to];
        if uses_active_bitmap {
            control.active[self.me / 64].fetch_or(1 << (self.me % 64), Ordering::SeqCst);
        }
        control.wake_if_asleep();
        Ok(SendStatus::Done)
    }

    /// Returns whether writers set their bit in the reader's bitmap.
    fn uses_active_bitmap(&self) -> bool {
        self.locals.len() > POLL_ALL_MAX_RANKS
    }
}

impl Transport for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn reaches(&self, peer: ProcId) -> bool {
        self.index(peer).is_some()
    }

    fn features(&self, peer: ProcId) -> Features {
        let readable = self
            .index(peer)
            .and_then(|i| self.peers[i].as_ref())
            .and_then(|p| p.readable);
        Features {
            message_max: SINGLE_RECORD_MAX_BYTES,
            fragment_max: RECORD_MAX_BYTES - FRAGMENT_HEAD_MAX_BYTES,
            eager_max: EAGER_MAX_BYTES,
            remote_read: readable != Some(false),
            read_min: read_min(),
            same_node: true,
            stream: false,
            batch: false,
        }
    }

    #[inline]
    fn send(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
    ) -> Result<SendStatus, TransportError> {
        self.send_by(to, |pair, core_each| {
            let len = head.len() + body.len();
            let fits_cell = core_each && head.len() <= HEAD_MAX_BYTES;
            let crosses = fits_cell && len > CROSSED_MIN_BYTES && pair.crosses();
            match body {
                Body::Bytes(bytes) if len > SINGLE_RECORD_MAX_BYTES => {
                    pair.send_split(message, head, bytes, core_each)
                }
                Body::Bytes(bytes) if crosses => pair.send_early_or_in_cell(message, head, bytes),
                Body::Bytes(bytes) if fits_cell && len > EXCHANGE_MIN_BYTES && pair.exchanges() => {
                    pair.send_bytes_in_cell(message, head, bytes)
                }
                Body::Fill(n, fill) if crosses || core_each && len > SINGLE_RECORD_MAX_BYTES => {
                    pair.send_in_cell(message, head, n, fill)
                }
                body => {
                    let streaming = pair.is_streaming(len);
                    pair.send(message, head.len(), len, |out: &mut [u8]| {
                        let (first, rest) = out.split_at_mut(head.len());
                        match body {
                            Body::Bytes(b) => streaming_copy::copy(b, rest, streaming),
                            Body::Fill(_, fill) => fill(rest),
                        }
                        // Last, because it may be in the line that the reader polls.
                        first.copy_from_slice(head);
                    })
                }
            }
        })
    }

    #[inline]
    fn poll(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        let controls: &'static [Control] = self.controls;
        let mine = &controls[self.me];
        if mine.ring_open_requests.load(Ordering::Relaxed) != self.ring_opens_seen {
            self.open_requested_rings()?;
        }
        let delivered = if self.uses_active_bitmap() {
            self.drain_active(inbox)?
        } else {
            let mut delivered = 0;
            for i in 0..self.readers.len() {
                delivered += self.drain(self.readers[i], inbox)?.0;
            }
            delivered
        };
        // After what has come: the caller measures how long that takes.
        if mine.assist_requests.load(Ordering::Relaxed) != self.assists_seen {
            return Ok(delivered + self.assist());
        }
        Ok(delivered)
    }

    unsafe fn read(
        &mut self,
        from: ProcId,
        address: u64,
        into: &[(*mut u8, usize)],
    ) -> Result<(), ReadError> {
        let i = self.index(from).ok_or(ReadError::Refused)?;
        let control = &self.controls[i];
        let peer = self.peer(i).map_err(|_| ReadError::Refused)?;
        if !*peer.readable.get_or_insert_with(|| cma::probe(control)) {
            return Err(ReadError::Refused);
        }
        // SAFETY: the caller's promise.
        unsafe { cma::read(control.pid.load(Ordering::Relaxed) as i32, address, into) }
    }

    unsafe fn start_read(
        &mut self,
        from: ProcId,
        address: u64,
        into: *mut u8,
        len: usize,
    ) -> Result<ReadStart, ReadError> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_cooperatively(from, address, into, len) }
    }

    fn finished_read(&mut self, from: ProcId) -> Option<(u32, Result<(), ReadError>)> {
        self.finished_copy(from)
    }

    fn arm(&mut self, who: Sleeper) {
        let sleeps = if self.sleeps_on_socket {
            ASLEEP_ON_SOCKET
        } else {
            who.bits().get()
        };
        self.controls[self.me]
            .asleep
            .store(sleeps, Ordering::SeqCst);
        let peers = &mut self.peers;
        self.blocked.retain(|&to| {
            let Some(Peer { pair, .. }) = peers[to].as_deref_mut() else {
                return false;
            };
            pair.request_wakeup();
            // If there is room by now, no wakeup is needed: the caller polls and sends once more
            // before it sleeps.
            !pair.has_room()
        });
    }

    fn disarm(&mut self) {
        self.controls[self.me]
            .asleep
            .store(AWAKE, Ordering::Relaxed);
    }

    fn fragments(&self, peer: ProcId, head: usize, awaited: bool) -> Fragments {
        let known = self.index(peer).and_then(|i| self.peers[i].as_ref());
        Fragments {
            bytes: if self.core_each {
                CELL_BODY_MAX_BYTES
            } else {
                RECORD_MAX_BYTES - head.max(FRAGMENT_HEAD_MAX_BYTES)
            },
            awaited: awaited || known.is_some_and(|p| p.pair.is_read()),
        }
    }

    fn send_fragment(
        &mut self,
        to: ProcId,
        message: u8,
        head: &[u8],
        body: Body<'_>,
        awaited: bool,
    ) -> Result<SendStatus, TransportError> {
        match body {
            Body::Fill(len, fill) if awaited && self.core_each && len > RECORD_PART_BYTES => {
                self.send_by(to, |pair, _| pair.send_early(message, head, len, fill))
            }
            body => self.send(to, message, head, body),
        }
    }

    fn first_touches(&self, peer: ProcId) -> u64 {
        let known = self.index(peer).and_then(|i| self.peers[i].as_ref());
        known.map_or(0, |p| p.pair.first_touches())
    }

    fn node_collectives(&mut self) -> Option<&mut dyn NodeCollectives> {
        Some(self)
    }

    fn wakeup_word(&self) -> Option<&'static AtomicU32> {
        let controls: &'static [Control] = self.controls;
        Some(&controls[self.me].wakeup_word)
    }
}

impl Drop for Shm {
    /// Ends the mappings of a segment that several jobs share. The node's segment stays mapped.
    fn drop(&mut self) {
        self.peers.clear();
        for (at, len) in self.mappings.drain(..) {
            let at = std::ptr::with_exposed_provenance_mut(at);
            // SAFETY: mapped by this transport, and nothing refers to it any more: the peers are
            // gone, and so is what uses the control pages.
            let _ = unsafe { rustix::mm::munmap(at, len) };
        }
    }
}

#[cfg(test)]
mod test_ring;
