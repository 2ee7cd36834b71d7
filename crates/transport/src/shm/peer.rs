//! A peer on this node: what is known of it, and opening its rings.

use super::Shm;
use super::announcements::{AnnouncementWords, Announcements};
use super::cells::Cells;
use super::cma::{CooperativeCopies, CopyTable};
use super::control::CONTROL_BYTES;
use super::fastbox::Fastbox;
use super::layout::{ANNOUNCEMENTS_AT, COPY_TABLE_AT, MAPPED_BYTES, STRIDE_BYTES, map};
use super::memory::{self, FASTBOX_AT};
use super::pair::Pair;
use super::reassembly::Reassembly;
use super::ring::{Reader, Writer};
use crate::TransportError;
use crate::poll_throttle::PollThrottle;
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

/// On nodes with more processes than this, a pair has half of the cells. A choice: cells then take
/// no more memory than the rings' records.
const ALL_CELLS_MAX_RANKS: usize = 16;

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
}
