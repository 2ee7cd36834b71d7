//! The target's side: requests of origins are done when the device makes progress.
//!
//! The requests of one origin are done in their order. Where one has to wait, for a lock or for a
//! message with data, all behind it wait as well: in a queue, which is looked at again at each
//! progress. Nothing here blocks. What a packet says is checked before memory is touched: its
//! sender, types, operations, and that each access lies in the window.

use super::notifications::{self, Notice};
use super::packets::{HEADER_BYTES, Head, PacketKind, Records, Refused, Response};
use super::pending::lock;
use super::responses::Responses;
use super::serve::{Origin, Server};
use crate::device::{self, Background, Device};
use crate::win::Win;
use crate::{Error, Result, err};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A window's part of the service.
#[derive(Default)]
pub(in crate::win) struct State(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    origins: HashMap<u32, Origin>,
    /// Targets on other nodes that have posted (MPI_Win_post).
    posts: HashSet<u32>,
}

/// All windows of this process, by context.
static WINDOWS: Mutex<Option<HashMap<u64, Arc<Win>>>> = Mutex::new(None);
/// Origins that have to wait, of all windows.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The background work of all windows. It stays while there are any.
struct Service;

/// Is the service among the device's background work? Changed under the device's lock.
static RUNS: AtomicBool = AtomicBool::new(false);

/// The window with this context.
pub(super) fn window(context: u64) -> Option<Arc<Win>> {
    lock(&WINDOWS).as_ref()?.get(&context).cloned()
}

impl Background for Service {
    fn advance(&self, d: &mut Device) -> bool {
        notifications::advance(d);
        if !d.has_active() && WAITING.load(Ordering::Relaxed) == 0 {
            let ends = lock(&WINDOWS).is_none();
            if ends {
                RUNS.store(false, Ordering::Relaxed);
            }
            return ends;
        }
        let windows = lock(&WINDOWS);
        let Some(windows) = &*windows else {
            while d.next_active().is_some() {}
            return false;
        };
        while let Some((from, bytes)) = d.next_active() {
            // An empty one has woken this process, which is all that it is for.
            let Some(head) = Head::read(&bytes) else {
                continue;
            };
            // All members have done their operations when a window is freed, so nothing is lost.
            let Some(win) = windows.get(&head.context) else {
                continue;
            };
            if head.rank >= win.ranks() || win.comm.peer(head.rank) != from {
                continue;
            }
            match head.kind {
                PacketKind::Requests => on_requests(win, d, head.rank, bytes),
                PacketKind::Responses => on_responses(win, d, head.rank, &bytes),
            }
        }
        if WAITING.load(Ordering::Relaxed) > 0 {
            windows.values().for_each(|win| retry(win, d));
        }
        false
    }

    fn is_urgent(&self, d: &Device) -> bool {
        d.has_active() || WAITING.load(Ordering::Relaxed) > 0
    }
}

/// The window takes part in the service from now on.
pub(in crate::win) fn register(win: &Arc<Win>) {
    // Made now, for that takes the device, which the service is called with.
    let _ = win.target(win.rank());
    let d = &mut *device::device();
    d.expect_active(true);
    let mut windows = lock(&WINDOWS);
    let all = windows.get_or_insert_default();
    all.insert(win.comm.context.0, win.clone());
    drop(windows);
    if !RUNS.swap(true, Ordering::Relaxed) {
        d.add_background(Arc::new(Service));
    }
}

/// The window is about to be freed: all members have completed their operations.
pub(in crate::win) fn unregister(win: &Arc<Win>) {
    let d = &mut *device::device();
    d.expect_active(false);
    let mut windows = lock(&WINDOWS);
    if let Some(all) = &mut *windows {
        all.remove(&win.comm.context.0);
        if all.is_empty() {
            *windows = None;
        }
    }
    win.slot.give_up();
    let mut inner = lock(&win.remote.0);
    for origin in inner.origins.values_mut() {
        if !origin.packets.is_empty() {
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
        let transfers = origin.receives.drain(..).chain(origin.sends.drain(..));
        transfers.for_each(|req| d.detach(req));
    }
    inner.origins.clear();
}

/// Tells an origin on another node that this process has posted (MPI_Win_post).
pub(in crate::win) fn post(win: &Win, d: &mut Device, rank: u32) -> Result<()> {
    if notifications::notify(win, d, win.comm.peer(rank), Notice::Post) {
        return Ok(());
    }
    let mut responses = Responses::new(win, rank);
    responses.push(d, Response::Post);
    responses.send(d);
    Ok(())
}

/// Has the target on another node posted? If so, the post is used up.
pub(in crate::win) fn take_post(win: &Win, rank: u32) -> bool {
    lock(&win.remote.0).posts.remove(&rank)
}

/// The target `rank` has posted.
pub(super) fn on_post(win: &Win, rank: u32) {
    lock(&win.remote.0).posts.insert(rank);
}

/// An origin has completed its operations to this process (MPI_Win_complete).
pub(super) fn on_complete(win: &Win, d: &mut Device) {
    win.own_block().completed.0.fetch_add(1, Ordering::SeqCst);
    d.notify_sleepers();
}

/// A packet of responses has come from a target.
fn on_responses(win: &Win, d: &mut Device, rank: u32, packet: &[u8]) {
    let mut records = Records::new(packet, HEADER_BYTES);
    let target = win.targets.known(rank);
    while let Some(response) = records.response() {
        if response == Response::Post {
            on_post(win, rank);
            continue;
        }
        let Some(target) = target else { continue };
        let mut pending = lock(&target.pending);
        match response {
            Response::Data(data) => {
                if !pending.on_data(d, data) {
                    let text = err!(
                        Intern,
                        "rank {rank} of the window has sent what was not asked for"
                    );
                    pending.on_silent_error(text);
                }
            }
            Response::Acknowledged(number) => pending.on_acknowledged(number),
            Response::Error(kind, refused, text) => {
                let error = Error::new(kind, text);
                match refused {
                    Refused::Silent => pending.on_silent_error(error),
                    Refused::Oldest => pending.on_refused(error),
                    Refused::Large(number) => pending.on_large_refused(d, number, error),
                }
            }
            Response::Post => {}
        }
    }
}

/// A packet of requests has come from an origin.
fn on_requests(win: &Win, d: &mut Device, rank: u32, packet: Box<[u8]>) {
    let mut inner = lock(&win.remote.0);
    let origin = inner.origins.entry(rank).or_default();
    let waited = !origin.packets.is_empty();
    origin.packets.push_back((packet, HEADER_BYTES));
    if !waited {
        let released = serve(win, d, rank, origin);
        if !origin.packets.is_empty() {
            WAITING.fetch_add(1, Ordering::Relaxed);
        }
        drop(inner);
        if released && WAITING.load(Ordering::Relaxed) > 0 {
            retry(win, d);
        }
    }
}

/// Looks again at the origins that have to wait: who has waited longest for a lock comes first.
fn retry(win: &Win, d: &mut Device) {
    let mut inner = lock(&win.remote.0);
    let waiting = inner.origins.iter_mut();
    let mut waiting: Vec<_> = waiting.filter(|(_, o)| !o.packets.is_empty()).collect();
    waiting.sort_by_key(|(_, origin)| origin.waits_for.map(|(_, since)| since));
    loop {
        let mut released = false;
        for (rank, origin) in &mut waiting {
            if origin.packets.is_empty() {
                continue;
            }
            released |= serve(win, d, **rank, origin);
            if origin.packets.is_empty() {
                WAITING.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if !released {
            return;
        }
    }
}

/// Does an origin's requests until one has to wait. Returns whether it has released a lock.
fn serve(win: &Win, d: &mut Device, rank: u32, origin: &mut Origin) -> bool {
    let mut server = Server {
        win,
        responses: Responses::new(win, rank),
        rank,
        released: false,
    };
    while let Some((packet, at)) = origin.packets.pop_front() {
        let mut records = Records::new(&packet, at);
        loop {
            let begin = records.at;
            let Some(record) = records.request() else {
                break;
            };
            if !server.serve(d, origin, record) {
                origin.packets.push_front((packet, begin));
                server.responses.send(d);
                return server.released;
            }
        }
    }
    server.responses.send(d);
    server.released
}

#[cfg(test)]
mod tests;
