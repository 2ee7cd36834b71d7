//! A collective whose call has returned: carried on by whoever makes progress.

use super::cover::Cover;
use super::extent::{Extent, Touch};
use super::pending::{Shared, finished};
use super::store::Store;
use crate::coll::executor::{Labour, Lasting, Run, Stand};
use crate::device::{Device, ReqId};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes asked for and not yet there.
const WINDOW: usize = 256 * 1024;

/// May a message of `len` bytes be asked for while so many are under way? Two at a time go, or as
/// many as are in the window. One by one would leave the link resting: a question may stand behind
/// the bytes of a message that goes the other way, for as long as that takes.
pub(super) fn may_ask(len: usize, under_way: usize) -> bool {
    under_way <= WINDOW.max(len)
}

/// Bytes of a message that gather before the progress thread is woken, while nobody waits for them:
/// as many as have been opened since somebody waited, within these bounds. A program that
/// is just behind the data would soon touch what gathers; one that is far behind, or does something
/// else, need not be interrupted.
const GATHER: (usize, usize) = (256 * 1024, 1024 * 1024);

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
    pub ends: [usize; 2],
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
pub(super) struct Known {
    /// The bytes beside guarded pages have been brought out.
    has_edges: bool,
    /// Bytes of it that are opened.
    opened: usize,
}

/// What remains to be done.
pub(super) enum Rest {
    /// Messages that do not depend on each other.
    Apart {
        sends: Vec<ReqId>,
        /// Those under way.
        incoming: Vec<Incoming>,
        /// Places in `incoming` of those that have not been asked for, first ones first.
        queue: VecDeque<usize>,
    },
    /// A schedule whose steps come one after the other; uses of the receive buffer by step.
    Whole {
        run: Box<Run>,
        touches: Vec<Touch>,
        /// By step: what is known of the receives under way.
        known: HashMap<usize, Known>,
    },
    /// Nothing: pages are guarded only to see who touches them. Pieces, and from whom.
    Trace(Vec<(Range<usize>, u32)>),
}

/// A collective in the background.
pub(super) struct Work {
    pub shared: Arc<Shared>,
    pub lasting: Arc<Lasting>,
    pub cover: Option<Cover>,
    pub rest: Rest,
    /// Copies of what is sent.
    pub store: Option<Store>,
    /// Bytes that had been opened when somebody last waited.
    pub opened_at_touch: usize,
}

impl Work {
    /// Goes on as far as it can. True: it has ended.
    pub fn advance(&mut self, d: &mut Device) -> bool {
        let touched = self.shared.has_touched.swap(false, Ordering::AcqRel);
        if touched {
            self.raise(d);
        }
        let done = match &mut self.rest {
            Rest::Apart { .. } => self.advance_apart(d),
            Rest::Whole { .. } => self.advance_whole(d),
            Rest::Trace(_) => self.shared.ends.load(Ordering::Acquire),
        };
        let has_edges = done || self.cover.as_ref().is_none_or(Cover::has_edges);
        if has_edges && !self.shared.returns.swap(true, Ordering::AcqRel) {
            d.notify_sleepers();
        }
        if done {
            if let Some(cover) = &mut self.cover {
                cover.end();
            }
            self.shared.opened(|_| true);
            self.store = None;
            finished(&self.shared);
            d.notify_sleepers();
        } else if let Some(cover) = &self.cover {
            self.shared.opened(|address| cover.is_open(address));
        }
        let opened = self.cover.as_ref().map_or(0, Cover::opened);
        let is_waited_for = self.shared.is_waited_for();
        if touched || is_waited_for {
            self.opened_at_touch = opened;
        }
        // While the call waits for the bytes beside guarded pages it is as if somebody waited at
        // one.
        let may_gather = !done && !is_waited_for && has_edges;
        d.set_receive_low_water(if may_gather { self.gathers(opened) } else { 0 });
        done
    }

    /// Bytes that may gather, of which so many are open.
    fn gathers(&self, opened: usize) -> usize {
        match &self.rest {
            // The next message is asked for when this one is nearly there.
            Rest::Apart { queue, .. } if !queue.is_empty() => GATHER.0,
            _ => (opened - self.opened_at_touch).clamp(GATHER.0, GATHER.1),
        }
    }

    /// Threads of the program wait for what they have touched.
    fn raise(&mut self, d: &mut Device) {
        for (address, at) in self.shared.take_touched() {
            match &mut self.rest {
                Rest::Apart {
                    incoming, queue, ..
                } => {
                    let Some(n) = incoming.iter().position(|i| i.bytes.contains(&address)) else {
                        continue;
                    };
                    self.shared.note_order(incoming[n].peer, at);
                    incoming[n].wanted = true;
                    if !incoming[n].asked {
                        queue.retain(|&q| q != n);
                        incoming[n].asked = true;
                        d.release_deferred(incoming[n].req);
                    }
                }
                Rest::Trace(pieces) => {
                    let Some((bytes, peer)) = pieces.iter().find(|(b, _)| b.contains(&address))
                    else {
                        continue;
                    };
                    self.shared.note_order(*peer, at);
                    if let Some(cover) = &mut self.cover {
                        cover.open(bytes);
                    }
                }
                Rest::Whole { .. } => {}
            }
        }
    }

    fn advance_apart(&mut self, d: &mut Device) -> bool {
        let Rest::Apart {
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
                self.shared.check(&self.lasting, None, &ended);
            }
            !complete
        });
        let mut under_way = 0;
        let mut n = 0;
        while n < incoming.len() {
            let i = &mut incoming[n];
            if !i.has_edges && !i.whole && d.has_edges(i.req) {
                i.has_edges = true;
                if let Some(cover) = &mut self.cover {
                    cover.done(&(i.bytes.start..i.bytes.start + i.ends[0]));
                    cover.done(&(i.bytes.end - i.ends[1]..i.bytes.end));
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
                self.shared
                    .check(&self.lasting, Some(i.bytes.len()), &ended);
                if let Some(cover) = &mut self.cover {
                    let middle = if i.has_edges {
                        i.bytes.start + i.ends[0]..i.bytes.end - i.ends[1]
                    } else {
                        i.bytes.clone()
                    };
                    cover.done(&middle);
                }
                continue;
            }
            if i.asked {
                let came = d.bytes_received(i.req).min(i.bytes.len());
                if d.is_announced(i.req) {
                    under_way += i.bytes.len() - came;
                }
                if let Some(cover) = &mut self.cover {
                    i.opened = cover.came(&i.bytes, came, i.opened, i.wanted);
                }
            }
            n += 1;
        }
        ask(d, incoming, queue, under_way);
        incoming.is_empty() && sends.is_empty()
    }

    fn advance_whole(&mut self, d: &mut Device) -> bool {
        let Rest::Whole {
            run,
            touches,
            known,
        } = &mut self.rest
        else {
            return true;
        };
        let b = self.lasting.binding();
        // SAFETY: the buffers are this work's own copies and shadow; the run is boxed.
        let stand = unsafe { run.advance(&self.lasting.schedule, &b, d, Labour::AtOnce) };
        let of_step = |step: usize| {
            let from = touches.partition_point(|t| t.step < step);
            touches[from..].iter().take_while(move |t| t.step == step)
        };
        if let Some(cover) = &mut self.cover {
            for step in run.ended() {
                let known = known.remove(&step).unwrap_or_default();
                for touch in of_step(step) {
                    let ends = if known.has_edges {
                        cover.ends(&touch.bytes)
                    } else {
                        [0, 0]
                    };
                    let middle = touch.bytes.start + ends[0]..touch.bytes.end - ends[1];
                    if touch.writes {
                        cover.done(&middle);
                    } else {
                        cover.read(&middle);
                    }
                }
            }
            for (step, req) in run.receives() {
                let Some(touch) = of_step(step).next() else {
                    continue;
                };
                let known = known.entry(step).or_default();
                let ends = cover.ends(&touch.bytes);
                if !known.has_edges && ends != [0, 0] && d.has_edges(req) && !d.is_complete(req) {
                    known.has_edges = true;
                    cover.done(&(touch.bytes.start..touch.bytes.start + ends[0]));
                    cover.done(&(touch.bytes.end - ends[1]..touch.bytes.end));
                }
                let came = d.bytes_received(req).min(touch.bytes.len());
                let wanted = self.shared.is_waited_for();
                known.opened = cover.came(&touch.bytes, came, known.opened, wanted);
            }
        }
        if stand == Stand::Done {
            self.shared.fail(run.error());
        }
        stand == Stand::Done
    }
}

/// Asks for the next messages that have been announced until enough bytes are under way: nobody
/// waits for a sender that is late while others are ready.
fn ask(
    d: &mut Device,
    incoming: &mut [Incoming],
    queue: &mut VecDeque<usize>,
    mut under_way: usize,
) {
    queue.retain(|&n| {
        let i = &mut incoming[n];
        let asks = may_ask(i.bytes.len(), under_way) && d.is_announced(i.req);
        if asks {
            i.asked = true;
            under_way += i.bytes.len();
            d.release_deferred(i.req);
        }
        !asks
    });
}

/// From whom the pieces of a receive buffer come; for schedules whose messages are apart.
pub(super) fn pieces(lasting: &Lasting, extent: &Extent) -> Vec<(Range<usize>, u32)> {
    use ferry_schedule::Step;
    let from = |t: &Touch| match lasting.schedule.steps[t.step] {
        Step::Recv { peer, .. } => Some((t.bytes.clone(), super::extent::number(peer))),
        _ => None,
    };
    extent.recv.iter().filter_map(from).collect()
}
