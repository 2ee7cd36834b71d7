//! A peer on this node: opening its rings, and delivering what comes from it.

use super::Shm;
use super::announcements::{AnnouncementWords, Announcements};
use super::cells::Cells;
use super::cma::{CooperativeCopies, CopyTable};
use super::control::CONTROL_BYTES;
use super::early::EarlyBody;
use super::fastbox::Fastbox;
use super::layout::{ANNOUNCEMENTS_AT, COPY_TABLE_AT, MAPPED_BYTES, STRIDE_BYTES, map};
use super::memory::{self, FASTBOX_AT};
use super::pair::{Next, Pair};
use super::reassembly::{Reassembly, reassemble, reassemble_early};
use super::ring::{Reader, Writer};
use crate::poll_throttle::PollThrottle;
use crate::{Inbox, ProcId, TransportError};
use std::sync::atomic::Ordering;

/// What is known of one local peer.
pub(super) struct Peer {
    pub pair: Pair,
    /// The split message from it that is arriving.
    pub reassembly: Option<Reassembly>,
    /// Whether its memory can be read. `None`: not tried yet.
    pub readable: Option<bool>,
    /// It was asked to open its rings.
    pub ring_open_requested: bool,
    /// Cooperative copies of messages from it and to it.
    pub copies: CooperativeCopies,
    /// Announcements of messages from it and to it that may be withdrawn.
    pub announcements: Announcements,
    /// Whether its messages were unexpected lately.
    pub throttle: PollThrottle,
}

/// Shortest record, bytes, that is reported as a first touch of memory ([`Inbox::first_touch`]). A
/// choice: half a page; shorter ones rarely fault.
const FIRST_TOUCH_MIN_BYTES: usize = 2048;

/// Records taken from one ring before the next ring is polled. A choice.
const RECORDS_PER_POLL: usize = 32;
/// After this many bytes from a peer's cells a poll ends. Measured (docs/measured/shm.md).
const CELL_BYTES_PER_POLL: usize = 32 * 1024;

/// Shortest message, head and body, bytes, after which a poll ends where ranks outnumber cores. The
/// caller may have waited for it and post a receive for the next one, which would otherwise be
/// unexpected and copied once more. Measured (docs/measured/shm.md). With a core each,
/// [`PollThrottle`] decides.
const STOP_AFTER_MIN_BYTES: usize = 2048;

/// On nodes with more processes than this, a pair has half of the cells. A choice: cells then take
/// no more memory than the rings' records.
const ALL_CELLS_MAX_RANKS: usize = 16;

/// Delivers a record: a message, or the next part of a split one. Returns whether it was a message
/// that is unexpected.
#[inline(always)]
fn deliver(
    from: ProcId,
    partial: &mut Option<Reassembly>,
    message: u8,
    record: &[u8],
    more: bool,
    inbox: &mut dyn Inbox,
) -> Result<bool, TransportError> {
    if more || partial.is_some() {
        reassemble(from, partial, message, record, more, inbox)?;
        return Ok(false);
    }
    Ok(inbox.on_message(from, message, record))
}

impl Shm {
    /// Maps the ring from local process `from` to local process `to`.
    pub(super) fn ring(&mut self, from: usize, to: usize) -> Result<*mut u8, TransportError> {
        let n = self.locals.len() as u64;
        let at = self.segment.layout.transport_offset
            + n * CONTROL_BYTES as u64
            + (to as u64 * n + from as u64) * STRIDE_BYTES;
        let mapped = map(&self.segment, at, MAPPED_BYTES);
        if let (Ok(base), true) = (&mapped, self.by_process.is_some()) {
            let address = base.expose_provenance();
            self.mappings.push((address, MAPPED_BYTES));
        }
        mapped.map_err(|cause| match cause.raw_os_error() {
            Some(libc::EBADF) => TransportError::DescriptorClosed,
            _ => TransportError::Unmapped {
                peer: self.locals[if from == self.me { to } else { from }],
                cause,
            },
        })
    }

    /// The peer at local index `i`, its rings mapped.
    #[inline]
    pub(super) fn peer(&mut self, i: usize) -> Result<&mut Peer, TransportError> {
        if self.peers[i].is_none() {
            self.open_peer(i)?;
        }
        Ok(self.peers[i].as_mut().expect("opened above"))
    }

    #[cold]
    pub(super) fn open_peer(&mut self, i: usize) -> Result<(), TransportError> {
        let (out, into) = (self.ring(self.me, i)?, self.ring(i, self.me)?);
        let lower = self.me < i;
        let cells = if self.locals.len() > ALL_CELLS_MAX_RANKS {
            memory::CELLS_PER_PAIR / 2
        } else {
            memory::CELLS_PER_PAIR
        };
        // SAFETY: these are new mappings of two rings. This process is the only writer of the one
        // and the only reader of the other, each from its beginning, once. The fastbox is in the
        // lower process's outgoing ring, below its data. A copy table and words for announcements
        // are behind each ring. All lie within the mapping, aligned, and are atomics for which
        // zeros are valid.
        let peer = unsafe {
            let copy_table = |ring: *mut u8| &*ring.add(COPY_TABLE_AT).cast::<CopyTable>();
            let announcements =
                |ring: *mut u8| &*ring.add(ANNOUNCEMENTS_AT).cast::<AnnouncementWords>();
            let fastbox = Fastbox::new(if lower { out } else { into }.add(FASTBOX_AT), lower);
            let pair = Pair::new(
                Writer::new(out),
                Reader::new(into),
                fastbox,
                Cells::new(out, into, lower, cells),
            );
            Peer {
                pair: if self.costly_lines {
                    pair.with_costly_lines()
                } else {
                    pair
                },
                reassembly: None,
                readable: None,
                ring_open_requested: false,
                copies: CooperativeCopies::new(copy_table(out), copy_table(into)),
                announcements: Announcements {
                    own: announcements(out),
                    peers: announcements(into),
                    core_each: self.core_each,
                },
                throttle: PollThrottle::default(),
            }
        };
        self.peers[i] = Some(Box::new(peer));
        self.readers.push(i);
        Ok(())
    }

    /// Asks local process `to` to open its rings with this one, which is about to write to it.
    #[cold]
    pub(super) fn request_ring_open(&mut self, to: usize) {
        let control = &self.controls[to];
        control.rings_opened[self.me / 64].fetch_or(1 << (self.me % 64), Ordering::SeqCst);
        control.ring_open_requests.fetch_add(1, Ordering::SeqCst);
    }

    /// Opens the rings of the peers that have asked for it.
    ///
    /// Errors: those of one peer cannot be opened, and nothing will be heard of it. The next call
    /// goes on with the others.
    #[cold]
    pub(super) fn open_requested_rings(&mut self) -> Result<(), TransportError> {
        let requests = self.controls[self.me]
            .ring_open_requests
            .load(Ordering::SeqCst);
        for from in 0..self.locals.len() {
            let word = self.controls[self.me].rings_opened[from / 64].load(Ordering::SeqCst);
            if word >> (from % 64) & 1 == 1 && !self.unmapped.contains(&from) {
                self.peer(from)
                    .map(|_| ())
                    .inspect_err(|_| self.unmapped.push(from))?;
            }
        }
        self.ring_opens_seen = requests;
        Ok(())
    }

    /// Delivers from the peers whose bit is set in this process's bitmap. Returns how many
    /// messages.
    pub(super) fn drain_active(&mut self, inbox: &mut dyn Inbox) -> Result<usize, TransportError> {
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
                if from >= self.locals.len() || self.unmapped.contains(&from) {
                    continue;
                }
                if let Err(e) = self.peer(from).map(|_| ()) {
                    self.unmapped.push(from);
                    mine.active[w].fetch_or(bits, Ordering::SeqCst);
                    return Err(e);
                }
                let (n, more) = self.drain(from, inbox)?;
                delivered += n;
                if more {
                    mine.active[w].fetch_or(1 << (from % 64), Ordering::SeqCst);
                }
            }
        }
        Ok(delivered)
    }

    /// Delivers from one peer. Returns how many messages, and whether more may be there.
    #[inline]
    pub(super) fn drain(
        &mut self,
        from: usize,
        inbox: &mut dyn Inbox,
    ) -> Result<(usize, bool), TransportError> {
        let (process, core_each) = (self.locals[from], self.core_each);
        let Some(peer) = self.peers[from].as_mut() else {
            return Ok((0, false));
        };
        let Peer {
            pair,
            reassembly,
            throttle,
            ..
        } = &mut **peer;
        let wake_if = |room_was_awaited: bool| {
            if room_was_awaited {
                self.controls[from].wake_if_asleep();
            }
        };
        let mut delivered = 0;
        let mut in_cells = 0;
        while delivered < RECORDS_PER_POLL {
            let touched = pair.is_touched();
            match pair.next() {
                Next::Nothing => return Ok((delivered, false)),
                Next::Fastbox(message, bytes) => {
                    if throttle.stops_after(inbox.on_message(process, message, bytes)) {
                        return Ok((delivered + 1, true));
                    }
                }
                Next::Record(message, bytes, more) => {
                    if !touched && bytes.len() >= FIRST_TOUCH_MIN_BYTES {
                        inbox.first_touch();
                    }
                    let is_part = more || reassembly.is_some();
                    let unexpected = deliver(process, reassembly, message, bytes, more, inbox)?;
                    let last = if is_part {
                        !more
                    } else {
                        throttle.stops_after(unexpected)
                            || !core_each && bytes.len() >= STOP_AFTER_MIN_BYTES
                    };
                    wake_if(pair.release());
                    if last {
                        return Ok((delivered + 1, true));
                    }
                }
                Next::InCell(message, bytes, more, first_touch) => {
                    if first_touch {
                        inbox.first_touch();
                    }
                    in_cells += bytes.len();
                    deliver(process, reassembly, message, bytes, more, inbox)?;
                    wake_if(pair.release_cell());
                    // The poll ends, so that this process writes into the cells that it has just
                    // read.
                    if in_cells >= CELL_BYTES_PER_POLL {
                        return Ok((delivered + 1, true));
                    }
                }
                Next::Early(message, record) => {
                    if record.first_touch {
                        inbox.first_touch();
                    }
                    let body = EarlyBody::new(pair, record.body_len);
                    let head = record.head();
                    if !reassemble_early(process, reassembly, message, head, &body, inbox)? {
                        return Ok((delivered, true));
                    }
                    wake_if(pair.release_cell());
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
}
