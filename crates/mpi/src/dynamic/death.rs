//! Who is told that a job has died. Only the root of a meeting has a connection that tells it
//! (`universe::add_lifeline`) or the socket of the job's launcher. It tells the other members.

use super::{Side, universe};
use crate::ProcId;
use crate::comm::agree::Agreement;
use crate::device::{self, ContextId, Device, Key, Pattern, ReqId, SendMode, Sink, Source, Tags};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Tag of the message that a job has died. Those of ports are smaller.
const TAG_DEATH: u32 = 3;

/// The members of this side of a meeting, as long as its link is used.
pub(super) struct Circle {
    link: u64,
    /// Jobs of the other side.
    jobs: Vec<u64>,
    /// Whom this process tells: the other members, if it is the root.
    members: Vec<ProcId>,
    /// Nobody waits for news any more.
    ended: Arc<AtomicBool>,
}

impl Drop for Circle {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// The context of news by this link.
fn context(link: u64) -> ContextId {
    ContextId::random(link | 1 << 62)
}

/// From now on this process tells the other members of this side, or waits for news from its root.
pub(super) fn watch(agreement: &Agreement<'_>, root: u32, link: u64, theirs: &Side) {
    let mut jobs: Vec<u64> = theirs.members.iter().map(|m| m.name.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let ended = Arc::new(AtomicBool::new(false));
    let is_root = agreement.rank() == root;
    let me = crate::process::process().me;
    let circle = Circle {
        link,
        jobs,
        members: match is_root {
            true => agreement.members().filter(|&p| p != me).collect(),
            false => Vec::new(),
        },
        ended: ended.clone(),
    };
    if !universe::keep_circle(link, circle) || is_root {
        return;
    }
    let news = Pattern {
        context: context(link),
        source: None,
        tag: Tags::one(TAG_DEATH),
    };
    let mut receive: Option<(ReqId, Vec<u8>)> = None;
    let look = move |d: &mut Device| {
        if receive.is_none() {
            if ended.load(Ordering::Relaxed) {
                return true;
            }
            let Some((message, envelope)) = d.matched_probe(&news) else {
                return false;
            };
            let mut bytes = vec![0; envelope.len as usize];
            let (ptr, cap) = (bytes.as_mut_ptr(), bytes.len());
            // SAFETY: the bytes stay, untouched, until the receive has completed.
            let request = unsafe { d.receive_matched(message, Sink::Bytes { ptr, cap }) };
            receive = Some((request, bytes));
        }
        let Some((request, bytes)) = receive.take_if(|(request, _)| d.is_complete(*request)) else {
            return false;
        };
        d.take(request);
        if let Some((job, why)) = bytes.split_first_chunk() {
            let why = String::from_utf8_lossy(why);
            universe::fail_job(d, u64::from_le_bytes(*job), &why);
        }
        false
    };
    device::device().add_background(Arc::new(Mutex::new(look)));
}

impl Circle {
    /// Tells the others that `job` has died, if it is one of the other side.
    pub fn tell(&self, d: &mut Device, job: u64, why: &str) {
        if self.jobs.binary_search(&job).is_err() {
            return;
        }
        let key = Key {
            context: context(self.link),
            source: 0,
            tag: TAG_DEATH,
        };
        for &member in &self.members {
            let text = [&job.to_le_bytes(), why.as_bytes()].concat();
            // SAFETY: the device gets the data as its own.
            let sent =
                unsafe { d.send(member, key, Source::Owned(text.into()), SendMode::Standard) };
            if let Some(request) = sent {
                let finish = move |d: &mut Device| {
                    let done = d.is_complete(request);
                    if done {
                        d.take(request);
                    }
                    done
                };
                d.add_background(Arc::new(Mutex::new(finish)));
            }
        }
    }
}
