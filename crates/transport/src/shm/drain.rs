//! Delivering what has come from the peers on this node.

use super::Shm;
use super::early::EarlyBody;
use super::pair::{EarlyRecord, Next, Pair};
use super::peer::Peer;
use super::reassembly::{Part, Reassembly, reassemble, reassemble_early};
use crate::poll_throttle::PollThrottle;
use crate::{Inbox, ProcId, TransportError};
use std::sync::atomic::Ordering;

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

impl Shm {
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
        let Some(peer) = self.peers[from].as_mut() else {
            return Ok((0, false));
        };
        let Peer {
            pair,
            reassembly,
            throttle,
            ..
        } = &mut **peer;
        let mut delivery = Delivery {
            from: self.locals[from],
            core_each: self.core_each,
            reassembly,
            throttle,
            in_cells: 0,
            inbox,
        };
        let wake_if = |room_was_awaited: bool| {
            if room_was_awaited {
                self.controls[from].wake_if_asleep();
            }
        };
        let mut delivered = 0;
        while delivered < RECORDS_PER_POLL {
            let touched = pair.is_touched();
            let ends = match pair.next() {
                Next::Nothing => return Ok((delivered, false)),
                Next::Fastbox(message, bytes) => delivery.short(message, bytes),
                Next::Record(message, bytes, more) => {
                    let ends = delivery.record(
                        Part {
                            message,
                            bytes,
                            more,
                        },
                        touched,
                    )?;
                    wake_if(pair.release());
                    ends
                }
                Next::InCell(message, bytes, more, first_touch) => {
                    let ends = delivery.in_cell(
                        Part {
                            message,
                            bytes,
                            more,
                        },
                        first_touch,
                    )?;
                    wake_if(pair.release_cell());
                    ends
                }
                Next::Early(message, record) => {
                    if !delivery.early(message, &record, pair)? {
                        return Ok((delivered, true));
                    }
                    wake_if(pair.release_cell());
                    true
                }
                Next::Malformed => {
                    return Err(TransportError::Malformed {
                        peer: self.locals[from],
                        what: "a record of impossible length",
                    });
                }
            };
            delivered += 1;
            if ends {
                break;
            }
        }
        Ok((delivered, true))
    }
}

/// What delivers the messages of one poll from one peer, each by its way through shared memory.
struct Delivery<'a> {
    from: ProcId,
    core_each: bool,
    reassembly: &'a mut Option<Reassembly>,
    throttle: &'a mut PollThrottle,
    /// Bytes that have come in cells.
    in_cells: usize,
    inbox: &'a mut dyn Inbox,
}

impl Delivery<'_> {
    /// A message from the fastbox. Returns whether the poll ends here.
    #[inline(always)]
    fn short(&mut self, message: u8, bytes: &[u8]) -> bool {
        let unexpected = self.inbox.on_message(self.from, message, bytes);
        self.throttle.stops_after(unexpected)
    }

    /// A record of the ring, whose memory was `touched` before. Returns whether the poll ends here.
    #[inline(always)]
    fn record(&mut self, part: Part<'_>, touched: bool) -> Result<bool, TransportError> {
        if !touched && part.bytes.len() >= FIRST_TOUCH_MIN_BYTES {
            self.inbox.first_touch();
        }
        if part.more || self.reassembly.is_some() {
            self.reassemble(&part)?;
            return Ok(!part.more);
        }
        let unexpected = self.inbox.on_message(self.from, part.message, part.bytes);
        Ok(self.throttle.stops_after(unexpected)
            || !self.core_each && part.bytes.len() >= STOP_AFTER_MIN_BYTES)
    }

    /// A record whose body is in a cell. Returns whether the poll ends here, so that this process
    /// writes into the cells that it has just read.
    #[inline(always)]
    fn in_cell(&mut self, part: Part<'_>, first_touch: bool) -> Result<bool, TransportError> {
        if first_touch {
            self.inbox.first_touch();
        }
        self.in_cells += part.bytes.len();
        if part.more || self.reassembly.is_some() {
            self.reassemble(&part)?;
        } else {
            self.inbox.on_message(self.from, part.message, part.bytes);
        }
        Ok(self.in_cells >= CELL_BYTES_PER_POLL)
    }

    /// A message whose body is still being written to a cell. Returns whether all of it was there.
    #[inline(always)]
    fn early(
        &mut self,
        message: u8,
        record: &EarlyRecord,
        pair: &Pair,
    ) -> Result<bool, TransportError> {
        if record.first_touch {
            self.inbox.first_touch();
        }
        let body = EarlyBody::new(pair, record.body_len);
        let (from, head) = (self.from, record.head());
        reassemble_early(from, self.reassembly, message, head, &body, self.inbox)
    }

    #[inline(always)]
    fn reassemble(&mut self, part: &Part<'_>) -> Result<(), TransportError> {
        reassemble(self.from, self.reassembly, part, self.inbox)
    }
}
