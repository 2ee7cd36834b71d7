//! Shared memory: rings in the node's segment, bulk data by reading the peer's memory.
//!
//! The segment's part behind `wire_at` holds one [`Control`] page a process and, sparse, room for a
//! ring from each process to each other. A ring is mapped when the pair first speaks; a page of it
//! costs memory when first written.

mod cells;
mod cma;
mod coll;
mod control;
mod fastbox;
#[cfg(test)]
mod mapping;
mod memory;
mod pair;
mod reassembly;
mod ring;
pub(crate) mod wakeup_word;

pub use coll::{COUNT_PER_MEMBER, CounterBoard, SLOT_MAX_BYTES};
pub use coll::{FLAT_MAX_RANKS, FlatBoard, MARK_BITS, POST_MAX_BYTES};
pub use control::{Waker, wake};
pub use fastbox::FASTBOX_LINE_MAX_BYTES;
pub use memory::RING_DATA_BYTES;

use crate::poll_throttle::PollThrottle;
use crate::{
    Answer, Body, FRAGMENT_HEAD_MAX_BYTES, Features, Inbox, ProcId, ReadError, ReadStart, Sleeper,
    Transport, TransportError,
};
use cells::{CELL_BODY_MAX_BYTES, Cells, HEAD_MAX};
use cma::CooperativeCopies;
use cma::CopyTable;
use control::{ASLEEP_ON_SOCKET, AWAKE, CONTROL_BYTES, Control, LOCAL_RANKS_MAX};
use fastbox::Fastbox;
use ferry_job::Segment;
use memory::{FASTBOX_AT, RING};
use pair::{Next, Pair};
use reassembly::Reassembly;
use ring::{RECORD_MAX_BYTES, RECORD_PART_BYTES, Reader, SPLIT_MAX_BYTES, Writer};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes from one ring's beginning to the next one's.
const STRIDE: u64 = RING.next_multiple_of(64 * 1024) as u64;
/// A record of fewer bytes touches too few new pages to be worth a word ([`Inbox::first_touch`]).
const FIRST_TOUCH_MIN_BYTES: usize = 2048;
/// On nodes with more processes than this, a writer also sets its bit in the reader's bitmap, so
/// that the reader need not look at every ring.
const POLL_ALL_MAX_RANKS: usize = 8;
/// Records taken from one ring before the next one's turn.
const FAIR_SHARE: usize = 32;
/// Where ranks outnumber cores a poll ends with a message of so many bytes, head and body: the
/// caller may have waited for it, and post a receive for the next, which would otherwise be kept in
/// memory of its own and copied once more. Elsewhere it does where receives have come [`PollThrottle`].
const STOP_AFTER_MIN_BYTES: usize = 2048;
/// On nodes with more processes than this a pair has half of the cells, which take no more memory
/// than its rings' records would without them.
const ALL_CELLS_MAX_RANKS: usize = 16;
/// Messages (head and body) up to this many bytes are sent at once; larger ones wait for their
/// receive.
pub const EAGER_MAX_BYTES: usize = 64 * 1024 + 32;
const _: () = assert!(EAGER_MAX_BYTES <= SPLIT_MAX_BYTES);
/// Largest head and body that go in one record whatever they are, bytes; of longer ones only pieces
/// do.
const SINGLE_RECORD_MAX_BYTES: usize = RECORD_PART_BYTES + memory::LINE_BYTES;
// A piece's head goes with what lies in a cell.
const _: () = assert!(FRAGMENT_HEAD_MAX_BYTES <= HEAD_MAX);
/// Bytes of a piece that the peer is waiting for, at least and at most: a fourth of the message
/// within these bounds, so that the receiver copies one while the next is written.
const PREPOSTED_FRAGMENT_BYTES: (usize, usize) = (32 * 1024, 64 * 1024);
/// In place of a boundary: whether a large message is read out of its sender's memory or comes in
/// pieces through the ring is decided by which was faster so far.
pub const READ_MIN_ADAPTIVE: usize = usize::MAX - 1;

static READ_MIN_SET: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = usize::MAX;

/// From how many bytes on messages are read by their receiver: what FERRY_SHM_READ_MIN or
/// [`set_read_min`] said, or [`READ_MIN_ADAPTIVE`].
#[inline]
pub fn read_min() -> usize {
    match READ_MIN_SET.load(Ordering::Relaxed) {
        UNKNOWN => read_min_asked(),
        bytes => bytes,
    }
}

#[cold]
fn read_min_asked() -> usize {
    let asked = std::env::var("FERRY_SHM_READ_MIN").ok();
    set_read_min(
        asked
            .and_then(|v| v.trim().parse().ok())
            .unwrap_or(READ_MIN_ADAPTIVE),
    );
    READ_MIN_SET.load(Ordering::Relaxed)
}

/// Says from how many bytes on, from now on. Counts for messages that this process receives.
pub fn set_read_min(bytes: usize) {
    READ_MIN_SET.store(bytes.min(UNKNOWN - 1), Ordering::Relaxed);
}

/// Where the desk lies behind a ring's beginning: on it the ring's writer, as a receiver, puts what
/// its reader may help to copy.
const COPY_TABLE_AT: usize = RING.next_multiple_of(4096);
/// Bytes of a ring and its desk.
const MAPPED_BYTES: usize = COPY_TABLE_AT + size_of::<CopyTable>().next_multiple_of(4096);
const _: () = assert!(MAPPED_BYTES as u64 <= STRIDE);

/// Bytes of the segment that the transport needs for `ranks` local processes (sparse: what is not
/// touched costs nothing).
pub const fn segment_len(ranks: u32) -> u64 {
    let n = ranks as u64;
    boards_offset(n) + n * coll::BOARDS_PER_RANK as u64 * coll::board_bytes(n)
}

/// Where, in the transport's part of the segment, the boards lie: behind the rings.
const fn boards_offset(n: u64) -> u64 {
    n * CONTROL_BYTES as u64 + n * n * STRIDE
}

const _: () = assert!(segment_len(100) == ferry_job::SegmentLayout::wire_len(100));

/// What is known of one local peer.
struct Peer {
    pair: Pair,
    /// A message that comes from it in several records.
    reassembly: Option<Reassembly>,
    /// Whether its memory can be read; unknown until tried.
    readable: Option<bool>,
    /// It has been told that its rings are in use.
    ring_open_requested: bool,
    /// Copies of messages from it, and to it.
    copies: CooperativeCopies,
    /// Whether what comes from it meets its receives.
    throttle: PollThrottle,
}

/// The wire between the processes of a node.
pub struct Shm {
    segment: Segment,
    /// Local index to process number, ascending.
    locals: Vec<ProcId>,
    me: usize,
    controls: &'static [Control],
    peers: Vec<Option<Box<Peer>>>,
    /// Local indices of peers whose rings to this process are open.
    readers: Vec<usize>,
    ring_opens_seen: u32,
    /// Peers that were answered Full and whose rings must ring when they have room.
    starving: Vec<usize>,
    boards: coll::Boards,
    /// This process sleeps where a knock wakes it, not on its bell alone.
    sleeps_on_socket: bool,
    /// How often peers have asked for help with copying when this process last looked.
    assists_seen: u32,
    /// Ranks have a core each, so that two can copy at the same time.
    cores_to_spare: bool,
}

/// Stands in private memory for peers to try to read; it says that it is the right process's.
static PROBE: AtomicU64 = AtomicU64::new(0);

impl Shm {
    /// Opens the wire of process `locals[me]` in the node's segment.
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
        let base = map(&segment, segment.layout.wire_at, len).map_err(|e| {
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
        PROBE.store(value, Ordering::Relaxed);
        mine.probe_address
            .store(&raw const PROBE as u64, Ordering::Relaxed);
        mine.probe_value.store(value, Ordering::Relaxed);
        mine.pid.store(std::process::id(), Ordering::Release);
        let peers = std::iter::repeat_with(|| None).take(locals.len()).collect();
        let cores_to_spare = locals.len() <= cores as usize;
        Ok(Shm {
            segment,
            locals,
            me,
            controls,
            peers,
            readers: Vec::new(),
            ring_opens_seen: 0,
            starving: Vec::new(),
            boards: coll::Boards::default(),
            sleeps_on_socket: false,
            assists_seen: 0,
            cores_to_spare,
        })
    }

    /// From now on this process sleeps where a knock at the door of this name wakes it.
    pub fn use_wakeup_socket(&mut self, name: u64) {
        self.controls[self.me]
            .wakeup_socket
            .store(name, Ordering::SeqCst);
        self.sleeps_on_socket = true;
    }

    #[inline]
    fn index(&self, peer: ProcId) -> Option<usize> {
        // Most jobs live on one node, where the index is the process number.
        if self.locals.get(peer as usize) == Some(&peer) {
            return Some(peer as usize);
        }
        self.locals.binary_search(&peer).ok()
    }

    /// Maps the ring from local process `from` to local process `to`.
    fn ring(&self, from: usize, to: usize) -> Result<*mut u8, TransportError> {
        let n = self.locals.len() as u64;
        let at = self.segment.layout.wire_at
            + n * CONTROL_BYTES as u64
            + (to as u64 * n + from as u64) * STRIDE;
        map(&self.segment, at, MAPPED_BYTES).map_err(|cause| TransportError::Refused {
            attempted: format!("mapping the ring between processes {} and {}", self.locals[from], self.locals[to]),
            cause,
            advice: "raise the limits on address space and mappings (ulimit -v, sysctl vm.max_map_count)",
        })
    }

    /// The peer at local index `i`, its rings mapped.
    #[inline]
    fn peer(&mut self, i: usize) -> Result<&mut Peer, TransportError> {
        if self.peers[i].is_none() {
            self.open_peer(i)?;
        }
        Ok(self.peers[i].as_mut().expect("opened above"))
    }

    #[cold]
    fn open_peer(&mut self, i: usize) -> Result<(), TransportError> {
        let (out, into) = (self.ring(self.me, i)?, self.ring(i, self.me)?);
        let lower = self.me < i;
        let cells = if self.locals.len() > ALL_CELLS_MAX_RANKS {
            memory::CELLS / 2
        } else {
            memory::CELLS
        };
        // SAFETY: fresh mappings of rings of which this process is the only writer and the only
        // reader, each from its beginning, once; the front lies in the lower process's
        // outgoing ring, below its data, and a desk behind each ring, within the mapping,
        // page aligned, all atomics for which zeros are valid.
        let peer = unsafe {
            let desk = |ring: *mut u8| &*ring.add(COPY_TABLE_AT).cast::<CopyTable>();
            let front = Fastbox::new(if lower { out } else { into }.add(FASTBOX_AT), lower);
            Peer {
                pair: Pair::new(
                    Writer::new(out),
                    Reader::new(into),
                    front,
                    Cells::new(out, into, lower, cells),
                ),
                reassembly: None,
                readable: None,
                ring_open_requested: false,
                copies: CooperativeCopies::new(desk(out), desk(into)),
                throttle: PollThrottle::default(),
            }
        };
        self.peers[i] = Some(Box::new(peer));
        self.readers.push(i);
        Ok(())
    }

    /// Tells local process `to` that this one is about to write to it.
    #[cold]
    fn request_ring_open(&mut self, to: usize) {
        let control = &self.controls[to];
        control.rings_opened[self.me / 64].fetch_or(1 << (self.me % 64), Ordering::SeqCst);
        control.ring_open_requests.fetch_add(1, Ordering::SeqCst);
    }

    /// Opens the rings of peers that have ring_open_requested.
    #[cold]
    fn open_requested_rings(&mut self) -> Result<(), TransportError> {
        self.ring_opens_seen = self.controls[self.me]
            .ring_open_requests
            .load(Ordering::SeqCst);
        for from in 0..self.locals.len() {
            let word = self.controls[self.me].rings_opened[from / 64].load(Ordering::SeqCst);
            if word >> (from % 64) & 1 == 1 {
                self.peer(from)?;
            }
        }
        Ok(())
    }

    /// Delivers from the peers who say that they have something; returns how many messages.
    fn drain_active(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
        let mine = &self.controls[self.me];
        let mut delivered = 0;
        for w in 0..self.locals.len().div_ceil(64) {
            if mine.active[w].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = mine.active[w].swap(0, Ordering::SeqCst);
            while bits != 0 {
                let from = w * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if from >= self.locals.len() {
                    continue;
                }
                self.peer(from)?;
                let (n, more) = self.drain(from, inbox)?;
                delivered += n;
                if more {
                    mine.active[w].fetch_or(1 << (from % 64), Ordering::SeqCst);
                }
            }
        }
        Ok(delivered)
    }

    /// Delivers from one peer; returns how many messages and whether more may be there.
    #[inline]
    fn drain(
        &mut self,
        from: usize,
        inbox: &mut dyn Inbox,
    ) -> Result<(usize, bool), TransportError> {
        let (process, spare) = (self.locals[from], self.cores_to_spare);
        let Some(peer) = self.peers[from].as_mut() else {
            return Ok((0, false));
        };
        let Peer {
            pair,
            reassembly,
            throttle,
            ..
        } = &mut **peer;
        let mut delivered = 0;
        while delivered < FAIR_SHARE {
            let warm = pair.is_warm();
            match pair.next() {
                Next::Nothing => return Ok((delivered, false)),
                Next::Fastbox(message, bytes) => {
                    if throttle.stops_after(inbox.on_message(process, message, bytes)) {
                        return Ok((delivered + 1, true));
                    }
                }
                Next::Record(message, bytes, more) => {
                    if !warm && bytes.len() >= FIRST_TOUCH_MIN_BYTES {
                        inbox.first_touch();
                    }
                    let last = if more || reassembly.is_some() {
                        reassemble(process, reassembly, message, bytes, more, inbox)?;
                        !more
                    } else {
                        let crowded = !spare && bytes.len() >= STOP_AFTER_MIN_BYTES;
                        throttle.stops_after(inbox.on_message(process, message, bytes)) || crowded
                    };
                    if pair.release() {
                        self.controls[from].wake_if_asleep();
                    }
                    if last {
                        return Ok((delivered + 1, true));
                    }
                }
                Next::InCell(message, bytes, more, cold) => {
                    if cold {
                        inbox.first_touch();
                    }
                    if more || reassembly.is_some() {
                        reassemble(process, reassembly, message, bytes, more, inbox)?;
                    } else {
                        inbox.on_message(process, message, bytes);
                    }
                    if pair.release_cell() {
                        self.controls[from].wake_if_asleep();
                    }
                    // What this process has to write comes first: it goes into the cell that has
                    // just been read.
                    return Ok((delivered + 1, true));
                }
                Next::Malformed => {
                    return Err(TransportError::Malformed {
                        peer: process,
                        what: "a record of impossible length",
                    });
                }
            }
            delivered += 1;
        }
        Ok((delivered, true))
    }

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
    ) -> Result<Answer, TransportError> {
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
        let spare = self.cores_to_spare;
        let pair = &mut self.peer(to)?.pair;
        let len = head.len() + body.len();
        let sent = match body {
            Body::Bytes(bytes) if len > SINGLE_RECORD_MAX_BYTES => {
                pair.send_split(message, head, bytes, spare)
            }
            Body::Fill(n, fill) if len > SINGLE_RECORD_MAX_BYTES && spare => {
                pair.send_in_cell(message, head, n, fill)
            }
            body => pair.send(message, head.len(), len, |out: &mut [u8]| {
                let (first, rest) = out.split_at_mut(head.len());
                match body {
                    Body::Bytes(b) => rest.copy_from_slice(b),
                    Body::Fill(_, fill) => fill(rest),
                }
                // Last, because it may lie in the line that the reader polls.
                first.copy_from_slice(head);
            }),
        };
        if !sent {
            if !self.starving.contains(&to) {
                self.starving.push(to);
            }
            return Ok(Answer::Full);
        }
        let control = &self.controls[to];
        if uses_active_bitmap {
            control.active[self.me / 64].fetch_or(1 << (self.me % 64), Ordering::SeqCst);
        }
        control.wake_if_asleep();
        Ok(Answer::Done)
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
        // Not before what has come: the caller measures how long that takes.
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
        self.starving.retain(|&to| {
            let Some(Peer { pair, .. }) = peers[to].as_deref_mut() else {
                return false;
            };
            pair.starve();
            // Room came meanwhile: no need to be woken for it, and the caller polls and offers once
            // more before sleeping.
            !pair.has_room()
        });
    }

    fn disarm(&mut self) {
        self.controls[self.me]
            .asleep
            .store(AWAKE, Ordering::Relaxed);
    }

    fn fragment_bytes(&self, peer: ProcId, len: usize, awaited: bool) -> usize {
        let known = self.index(peer).and_then(|i| self.peers[i].as_ref());
        if !self.cores_to_spare {
            RECORD_MAX_BYTES - FRAGMENT_HEAD_MAX_BYTES
        } else if awaited || known.is_some_and(|p| p.pair.is_read()) {
            (len / 4).clamp(PREPOSTED_FRAGMENT_BYTES.0, PREPOSTED_FRAGMENT_BYTES.1)
        } else {
            CELL_BODY_MAX_BYTES
        }
    }

    fn first_touches(&self, peer: ProcId) -> u64 {
        let known = self.index(peer).and_then(|i| self.peers[i].as_ref());
        known.map_or(0, |p| p.pair.cold())
    }

    fn shares_core(&self, core: u32) -> bool {
        let mine = &self.controls[self.me].core;
        if mine.load(Ordering::Relaxed) != core + 1 {
            mine.store(core + 1, Ordering::Relaxed);
        }
        let others = self.controls.iter().enumerate();
        others
            .filter(|(i, _)| *i != self.me)
            .any(|(_, c)| c.core.load(Ordering::Relaxed) == core + 1)
    }

    fn progress_polls(&self, peer: ProcId) -> bool {
        let word = self.index(peer).map(|i| &self.controls[i].wakeup_word);
        word.is_some_and(wakeup_word::is_polled)
    }

    fn for_each_waiting_core(&self, each: &mut dyn FnMut(u32)) {
        let cores = self.controls.iter().map(|c| c.core.load(Ordering::Relaxed));
        cores
            .filter(|&core| core != 0)
            .for_each(|core| each(core - 1));
    }

    fn allocate_board(&mut self, members: u32) -> Option<u32> {
        self.allocate(members)
    }

    fn counter_board(&mut self, owner: ProcId, number: u32, members: u32) -> Option<CounterBoard> {
        self.open_counter_board(owner, number, members)
    }

    fn flat_board(
        &mut self,
        owner: ProcId,
        number: u32,
        members: u32,
        me: u32,
    ) -> Option<FlatBoard> {
        self.open_flat_board(owner, number, members, me)
    }

    fn waker(&self, peer: ProcId) -> Option<Waker> {
        let controls: &'static [Control] = self.controls;
        self.index(peer).map(|i| Waker(&controls[i]))
    }

    #[inline]
    fn wake_program(&self, peer: ProcId) {
        if let Some(i) = self.index(peer) {
            self.controls[i].wake_program_if_asleep();
        }
    }

    fn wakeup_word(&self) -> Option<&'static AtomicU32> {
        let controls: &'static [Control] = self.controls;
        Some(&controls[self.me].wakeup_word)
    }
}

/// A record of a message that takes several has come.
fn reassemble(
    from: ProcId,
    partial: &mut Option<Reassembly>,
    message: u8,
    record: &[u8],
    more: bool,
    inbox: &mut dyn Inbox,
) -> Result<(), TransportError> {
    let whole = match partial {
        None => Reassembly::begin(from, message, record, inbox).map(|begun| {
            *partial = Some(begun);
            false
        }),
        Some(begun) => begun.append(from, message, record, more, inbox),
    };
    match whole {
        Ok(true) => *partial = None,
        Ok(false) => {}
        Err(_) => {
            return Err(TransportError::Malformed {
                peer: from,
                what: "records that make no message",
            });
        }
    }
    Ok(())
}

/// Maps `len` bytes of the segment at `at`, for the life of the process.
fn map(segment: &Segment, at: u64, len: usize) -> std::io::Result<*mut u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            segment.fd.as_fd(),
            at,
        )
    }?;
    Ok(base.cast())
}
