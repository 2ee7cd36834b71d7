//! A collective whose call has returned: how the progress engine carries it on.

use super::buffer_access::{Access, BufferAccess};
use super::guarded_pages::GuardedPages;
use super::pending::{PendingCollective, finished};
use super::send_copy::SendCopy;
use crate::coll::executor::{BoundSchedule, Run, RunState, WorkPolicy};
use crate::device::{Device, ReqId};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most bytes that are requested and have not come.
const REQUEST_WINDOW_BYTES: usize = 256 * 1024;

/// Returns whether a message of `len` bytes may be requested while so many bytes are in flight: two
/// messages, or what the window holds. With one at a time the link would rest. A request may wait
/// behind the bytes of a message that goes the other way.
pub(super) fn may_request(len: usize, in_flight: usize) -> bool {
    in_flight <= REQUEST_WINDOW_BYTES.max(len)
}

/// Fewest bytes that gather in a socket before the progress thread is woken, while nobody waits for
/// them. The mark is the number of bytes opened since somebody last waited, within these bounds. A
/// program just behind the data will touch them soon. One far behind need not be interrupted.
const LOW_WATER_MIN_BYTES: usize = 256 * 1024;
/// As [`LOW_WATER_MIN_BYTES`], at most.
const LOW_WATER_MAX_BYTES: usize = 1024 * 1024;

/// A message that is received.
pub(super) struct Incoming {
    pub req: ReqId,
    /// Its step of the schedule.
    pub step: usize,
    /// Where it belongs in the program's buffer.
    pub bytes: Range<usize>,
    /// From whom, for the access order.
    pub peer: u32,
    /// Its bytes beside guarded pages.
    pub edge_lengths: [usize; 2],
    /// The whole of it is needed before the call returns.
    pub whole: bool,
    /// The bytes beside guarded pages have been brought out.
    pub has_edges: bool,
    pub asked: bool,
    /// Bytes of it that are opened.
    pub opened: usize,
    /// A thread of the program waits for it.
    pub wanted: bool,
}

/// What is known of a receive.
#[derive(Default)]
pub(super) struct ReceiveState {
    /// The bytes beside guarded pages have been brought out.
    has_edges: bool,
    /// Bytes of it that are opened.
    opened: usize,
}

/// What remains to be done of a collective.
pub(super) enum Remaining {
    /// Messages that do not depend on each other. Receives are requested in the order in which the
    /// program reads their data.
    Independent {
        sends: Vec<ReqId>,
        /// Those under way.
        incoming: Vec<Incoming>,
        /// Buffers in `incoming` of those that have not been asked for, first ones first.
        queue: VecDeque<usize>,
    },
    /// A schedule whose steps depend on each other, with its accesses to the receive buffer.
    Sequential {
        run: Box<Run>,
        touches: Vec<Access>,
        /// By step: what is known of the receives under way.
        known: HashMap<usize, ReceiveState>,
    },
    /// Nothing: pages are guarded to see the order in which they are touched. Pieces and senders.
    Trace(Vec<(Range<usize>, u32)>),
}

/// A collective in the background.
pub(super) struct BackgroundWork {
    pub shared: Arc<PendingCollective>,
    pub bound: Arc<BoundSchedule>,
    pub guarded: Option<GuardedPages>,
    pub rest: Remaining,
    /// Copies of what is sent.
    pub send_copy: Option<SendCopy>,
    /// Bytes that had been opened when somebody last waited.
    pub opened_at_touch: usize,
}

impl BackgroundWork {
    /// Goes on without waiting. Returns whether it has ended.
    pub fn advance(&mut self, d: &mut Device) -> bool {
        let touched = self.shared.has_faults.swap(false, Ordering::AcqRel);
        if touched {
            self.handle_faults(d);
        }
        let done = match &mut self.rest {
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
            self.shared.pages_opened(|_| true);
            self.send_copy = None;
            finished(&self.shared);
            d.notify_sleepers();
        } else if let Some(guarded) = &self.guarded {
            self.shared.pages_opened(|address| guarded.is_open(address));
        }
        let opened = self.guarded.as_ref().map_or(0, GuardedPages::opened);
        let is_waited_for = self.shared.is_waited_for();
        if touched || is_waited_for {
            self.opened_at_touch = opened;
        }
        // While the call waits for bytes outside guarded pages, somebody waits, too.
        let may_gather = !done && !is_waited_for && has_edges;
        d.set_receive_low_water(if may_gather {
            self.low_water_bytes(opened)
        } else {
            0
        });
        done
    }

    /// How many bytes may gather.
    fn low_water_bytes(&self, opened: usize) -> usize {
        match &self.rest {
            // The next message is asked for when this one is nearly there.
            Remaining::Independent { queue, .. } if !queue.is_empty() => LOW_WATER_MIN_BYTES,
            _ => (opened - self.opened_at_touch).clamp(LOW_WATER_MIN_BYTES, LOW_WATER_MAX_BYTES),
        }
    }

    /// Moves what the program has touched to the front.
    fn handle_faults(&mut self, d: &mut Device) {
        for (address, at) in self.shared.take_faults() {
            match &mut self.rest {
                Remaining::Independent {
                    incoming, queue, ..
                } => {
                    let Some(n) = incoming.iter().position(|i| i.bytes.contains(&address)) else {
                        continue;
                    };
                    self.shared.record_order(incoming[n].peer, at);
                    incoming[n].wanted = true;
                    if !incoming[n].asked {
                        queue.retain(|&q| q != n);
                        incoming[n].asked = true;
                        d.release_deferred(incoming[n].req);
                    }
                }
                Remaining::Trace(pieces) => {
                    let Some((bytes, peer)) = pieces.iter().find(|(b, _)| b.contains(&address))
                    else {
                        continue;
                    };
                    self.shared.record_order(*peer, at);
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
        } = &mut self.rest
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
                // The last one has taken its place.
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
            if i.asked {
                let came = d.bytes_received(i.req).min(i.bytes.len());
                if d.is_announced(i.req) {
                    in_flight += i.bytes.len() - came;
                }
                if let Some(guarded) = &mut self.guarded {
                    i.opened = guarded.open_received(&i.bytes, came, i.opened, i.wanted);
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
            known,
        } = &mut self.rest
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
                let known = known.remove(&step).unwrap_or_default();
                for touch in of_step(step) {
                    let edges = if known.has_edges {
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
                let known = known.entry(step).or_default();
                let edges = guarded.edge_lengths(&touch.bytes);
                if !known.has_edges && edges != [0, 0] && d.has_edges(req) && !d.is_complete(req) {
                    known.has_edges = true;
                    guarded.done(&(touch.bytes.start..touch.bytes.start + edges[0]));
                    guarded.done(&(touch.bytes.end - edges[1]..touch.bytes.end));
                }
                let came = d.bytes_received(req).min(touch.bytes.len());
                let wanted = self.shared.is_waited_for();
                known.opened = guarded.open_received(&touch.bytes, came, known.opened, wanted);
            }
        }
        if state == RunState::Done {
            self.shared.fail(run.take_error());
        }
        state == RunState::Done
    }
}

/// Requests the next messages that have been announced until enough bytes are in flight. A sender
/// that is late does not hold up those that are ready.
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
            i.asked = true;
            in_flight += i.bytes.len();
            d.release_deferred(i.req);
        }
        !asks
    });
}

/// From whom the pieces of a receive buffer come; for schedules whose messages are independent.
pub(super) fn pieces(bound: &BoundSchedule, accesses: &BufferAccess) -> Vec<(Range<usize>, u32)> {
    use ferry_schedule::Step;
    let from = |t: &Access| match bound.schedule.steps[t.step] {
        Step::Recv { peer, .. } => Some((t.bytes.clone(), super::buffer_access::peer_number(peer))),
        _ => None,
    };
    accesses.recv.iter().filter_map(from).collect()
}
