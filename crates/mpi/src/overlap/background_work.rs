//! Background work: how the progress engine advances a collective whose call has returned.

use super::buffer_access::{Access, BufferAccess};
use super::guarded_pages::GuardedPages;
use super::pending::{PendingCollective, set_done};
use super::send_copy::SendCopy;
use crate::coll::executor::{BoundSchedule, Run, RunState, WorkPolicy};
use crate::device::{Device, ReqId};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of bytes that are requested and have not arrived. A choice.
const REQUEST_WINDOW_BYTES: usize = 256 * 1024;

/// Returns whether a message of `len` bytes may be requested while `in_flight` bytes are requested
/// and have not arrived. Two messages may always be in flight, more of them within the window. With
/// one at a time the link would idle: the request of the next one may wait behind the bytes of a
/// message in the other direction.
pub(super) fn may_request(len: usize, in_flight: usize) -> bool {
    in_flight <= REQUEST_WINDOW_BYTES.max(len)
}

/// Lower bound of the low-water mark: the bytes that gather in a socket before the progress thread
/// is woken, while no thread waits for them. A choice.
///
/// The mark is the number of bytes that were opened since a thread last waited. A program that
/// reads close behind the data touches the next bytes soon. One that is far behind need not be
/// interrupted.
const LOW_WATER_MIN_BYTES: usize = 256 * 1024;
/// Upper bound of the low-water mark. A choice.
const LOW_WATER_MAX_BYTES: usize = 1024 * 1024;

/// A receive in flight.
pub(super) struct Incoming {
    pub req: ReqId,
    /// Its step of the schedule.
    pub step: usize,
    /// Its addresses in the program's buffer.
    pub bytes: Range<usize>,
    /// The sender, for the access order.
    pub peer: u32,
    /// Its bytes beside guarded pages.
    pub edge_lengths: [usize; 2],
    /// The whole message is needed before the call returns.
    pub whole: bool,
    /// Its bytes beside guarded pages are in the buffer.
    pub has_edges: bool,
    /// Its bytes have been requested from the sender.
    pub is_requested: bool,
    /// Its bytes in pages that have been opened.
    pub opened: usize,
    /// A thread of the program waits for it.
    pub is_waited_for: bool,
}

/// The state of a receive of a sequential schedule.
#[derive(Default)]
pub(super) struct ReceiveState {
    /// Its bytes beside guarded pages are in the buffer.
    has_edges: bool,
    /// Its bytes in pages that have been opened.
    opened: usize,
}

/// What remains to be done of a collective.
pub(super) enum Remaining {
    /// Messages that do not depend on each other. Receives are requested in the order in which the
    /// program reads their data.
    Independent {
        sends: Vec<ReqId>,
        /// Receives in flight.
        incoming: Vec<Incoming>,
        /// Indices in `incoming` of receives that have not been requested, next one first.
        queue: VecDeque<usize>,
    },
    /// A schedule whose steps depend on each other, with its accesses to the receive buffer.
    Sequential {
        run: Box<Run>,
        touches: Vec<Access>,
        /// The receives in flight, by step.
        receives: HashMap<usize, ReceiveState>,
    },
    /// No messages: pages are guarded to record the order in which they are touched. Holds the
    /// pieces of the buffer with their senders.
    Trace(Vec<(Range<usize>, u32)>),
}

/// A collective in the background.
pub(super) struct BackgroundWork {
    pub shared: Arc<PendingCollective>,
    pub bound: Arc<BoundSchedule>,
    pub guarded: Option<GuardedPages>,
    pub remaining: Remaining,
    /// Copies of what is sent.
    pub send_copy: Option<SendCopy>,
    /// Bytes that had been opened when a thread last waited.
    pub opened_at_touch: usize,
}

impl BackgroundWork {
    /// Advances the collective without blocking. Returns whether it has ended.
    pub fn advance(&mut self, d: &mut Device) -> bool {
        let touched = self.shared.has_faults.swap(false, Ordering::AcqRel);
        if touched {
            self.handle_faults(d);
        }
        let done = match &mut self.remaining {
            Remaining::Independent { .. } => self.advance_independent(d),
            Remaining::Sequential { .. } => self.advance_sequential(d),
            Remaining::Trace(_) => self.shared.trace_ends.load(Ordering::Acquire),
        };
        let has_edges = done || self.guarded.as_ref().is_none_or(GuardedPages::has_edges);
        if has_edges && !self.shared.may_return.swap(true, Ordering::AcqRel) {
            d.notify_sleepers();
        }
        if done {
            if let Some(guarded) = &mut self.guarded {
                guarded.end();
            }
            self.shared.end_faults(|_| true);
            self.send_copy = None;
            set_done(&self.shared);
            d.notify_sleepers();
        } else if let Some(guarded) = &self.guarded {
            self.shared.end_faults(|address| guarded.is_open(address));
        }
        let opened = self.guarded.as_ref().map_or(0, GuardedPages::opened);
        let is_waited_for = self.shared.is_waited_for();
        if touched || is_waited_for {
            self.opened_at_touch = opened;
        }
        // Until the bytes outside guarded pages have arrived, the call itself waits.
        let may_gather = !done && !is_waited_for && has_edges;
        d.set_receive_low_water(if may_gather {
            self.low_water_bytes(opened)
        } else {
            0
        });
        done
    }

    /// The low-water mark.
    fn low_water_bytes(&self, opened: usize) -> usize {
        match &self.remaining {
            // The next message is requested when this one has nearly arrived.
            Remaining::Independent { queue, .. } if !queue.is_empty() => LOW_WATER_MIN_BYTES,
            _ => (opened - self.opened_at_touch).clamp(LOW_WATER_MIN_BYTES, LOW_WATER_MAX_BYTES),
        }
    }

    /// Requests the messages that the program has touched before all others.
    fn handle_faults(&mut self, d: &mut Device) {
        for (address, _) in self.shared.take_faults() {
            match &mut self.remaining {
                Remaining::Independent {
                    incoming, queue, ..
                } => {
                    let Some(n) = incoming.iter().position(|i| i.bytes.contains(&address)) else {
                        continue;
                    };
                    self.shared.record_order(incoming[n].peer);
                    incoming[n].is_waited_for = true;
                    if !incoming[n].is_requested {
                        queue.retain(|&q| q != n);
                        incoming[n].is_requested = true;
                        d.release_deferred(incoming[n].req);
                    }
                }
                Remaining::Trace(pieces) => {
                    let Some((bytes, peer)) = pieces.iter().find(|(b, _)| b.contains(&address))
                    else {
                        continue;
                    };
                    self.shared.record_order(*peer);
                    if let Some(guarded) = &mut self.guarded {
                        guarded.open(bytes);
                    }
                }
                Remaining::Sequential { .. } => {}
            }
        }
    }

    fn advance_independent(&mut self, d: &mut Device) -> bool {
        let Remaining::Independent {
            sends,
            incoming,
            queue,
        } = &mut self.remaining
        else {
            return true;
        };
        sends.retain(|&req| {
            let complete = d.is_complete(req);
            if complete {
                let ended = d.take_deferred(req);
                self.shared.check(&self.bound, None, &ended);
            }
            !complete
        });
        let mut in_flight = 0;
        let mut n = 0;
        while n < incoming.len() {
            let i = &mut incoming[n];
            if !i.has_edges && !i.whole && d.has_edges(i.req) {
                i.has_edges = true;
                if let Some(guarded) = &mut self.guarded {
                    guarded.done(&(i.bytes.start..i.bytes.start + i.edge_lengths[0]));
                    guarded.done(&(i.bytes.end - i.edge_lengths[1]..i.bytes.end));
                }
            }
            if d.is_complete(i.req) {
                let ended = d.take_deferred(i.req);
                let i = incoming.swap_remove(n);
                // `swap_remove` has moved the last one to index `n`.
                let moved = incoming.len();
                queue.retain(|&q| q != n);
                for q in queue.iter_mut().filter(|q| **q == moved) {
                    *q = n;
                }
                self.shared.check(&self.bound, Some(i.bytes.len()), &ended);
                if let Some(guarded) = &mut self.guarded {
                    let middle = if i.has_edges {
                        i.bytes.start + i.edge_lengths[0]..i.bytes.end - i.edge_lengths[1]
                    } else {
                        i.bytes.clone()
                    };
                    guarded.done(&middle);
                }
                continue;
            }
            if i.is_requested {
                let received = d.bytes_received(i.req).min(i.bytes.len());
                if d.is_announced(i.req) {
                    in_flight += i.bytes.len() - received;
                }
                if let Some(guarded) = &mut self.guarded {
                    i.opened = guarded.open_received(&i.bytes, received, i.opened, i.is_waited_for);
                }
            }
            n += 1;
        }
        request_next(d, incoming, queue, in_flight);
        incoming.is_empty() && sends.is_empty()
    }

    fn advance_sequential(&mut self, d: &mut Device) -> bool {
        let Remaining::Sequential {
            run,
            touches,
            receives,
        } = &mut self.remaining
        else {
            return true;
        };
        let b = self.bound.args();
        // SAFETY: the buffers are this work's own copies and shadow; the run is boxed.
        let state = unsafe { run.advance(&self.bound.schedule, &b, d, WorkPolicy::Inline) };
        let of_step = |step: usize| {
            let from = touches.partition_point(|t| t.step < step);
            touches[from..].iter().take_while(move |t| t.step == step)
        };
        if let Some(guarded) = &mut self.guarded {
            for step in run.take_completed() {
                let receive = receives.remove(&step).unwrap_or_default();
                for touch in of_step(step) {
                    let edges = if receive.has_edges {
                        guarded.edge_lengths(&touch.bytes)
                    } else {
                        [0, 0]
                    };
                    let middle = touch.bytes.start + edges[0]..touch.bytes.end - edges[1];
                    if touch.writes {
                        guarded.done(&middle);
                    } else {
                        guarded.read(&middle);
                    }
                }
            }
            for (step, req) in run.receives() {
                let Some(touch) = of_step(step).next() else {
                    continue;
                };
                let receive = receives.entry(step).or_default();
                let edges = guarded.edge_lengths(&touch.bytes);
                let arrive_early = !receive.has_edges && edges != [0, 0];
                if arrive_early && d.has_edges(req) && !d.is_complete(req) {
                    receive.has_edges = true;
                    guarded.done(&(touch.bytes.start..touch.bytes.start + edges[0]));
                    guarded.done(&(touch.bytes.end - edges[1]..touch.bytes.end));
                }
                let received = d.bytes_received(req).min(touch.bytes.len());
                let is_waited_for = self.shared.is_waited_for();
                receive.opened =
                    guarded.open_received(&touch.bytes, received, receive.opened, is_waited_for);
            }
        }
        if state == RunState::Done {
            self.shared.fail(run.take_error());
        }
        state == RunState::Done
    }
}

/// Requests announced messages until enough bytes are in flight. Messages that have not been
/// announced are passed over, so a late sender does not delay the others.
fn request_next(
    d: &mut Device,
    incoming: &mut [Incoming],
    queue: &mut VecDeque<usize>,
    mut in_flight: usize,
) {
    queue.retain(|&n| {
        let i = &mut incoming[n];
        let asks = may_request(i.bytes.len(), in_flight) && d.is_announced(i.req);
        if asks {
            i.is_requested = true;
            in_flight += i.bytes.len();
            d.release_deferred(i.req);
        }
        !asks
    });
}

/// The pieces of a receive buffer with their senders, for schedules whose messages are independent.
pub(super) fn pieces(bound: &BoundSchedule, accesses: &BufferAccess) -> Vec<(Range<usize>, u32)> {
    use ferry_schedule::Step;
    let from = |t: &Access| match bound.schedule.steps[t.step] {
        Step::Recv { peer, .. } => Some((t.bytes.clone(), super::buffer_access::peer_number(peer))),
        _ => None,
    };
    accesses.recv.iter().filter_map(from).collect()
}
