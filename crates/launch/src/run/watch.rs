//! Looking for jobs in which nobody can go on.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use ferry_job::{RankState, RankStatus};

use super::{Job, Rank, STATUS_HANG};
use crate::hang::{self, Fate, RankView, Stillness};
use crate::options::OnHang;

/// How often the ranks' status pages are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// A job in which nothing has moved for so long hangs.
const STILL: Duration = Duration::from_secs(1);

/// What the hang detection remembers.
pub(super) struct HangWatch {
    /// When to look next.
    pub(super) next: Instant,
    /// How often, in general.
    pub(super) every: Duration,
    pub(super) still: Option<(Stillness, Instant)>,
    told: bool,
}

impl HangWatch {
    pub(super) fn new(now: Instant, ranks: usize) -> HangWatch {
        let every = LOOK * (1 + ranks as u32 / 256);
        HangWatch {
            next: now + every,
            every,
            still: None,
            told: false,
        }
    }
}

impl Job<'_> {
    pub(super) fn look_for_a_hang(&mut self, now: Instant) {
        if self.options.on_hang == OnHang::Ignore || self.ranks.len() < self.size {
            return;
        }
        let seen = hang::stillness(&self.views(false));
        match (seen, &mut self.watch.still) {
            (None, still) => {
                *still = None;
                self.watch.told = false;
            }
            (Some(new), Some((old, since))) if new == *old => {
                if now.duration_since(*since) >= STILL && !self.watch.told && self.all_sleep() {
                    self.watch.told = true;
                    let text = format!(
                        "this job hangs: every rank sleeps in MPI or has finished, and no message is under way\n{}",
                        self.picture()
                    );
                    if self.options.on_hang == OnHang::End {
                        self.end(
                            &(text + "ending the job (--on-hang=report lets it go on)"),
                            STATUS_HANG,
                        );
                    } else {
                        self.output.say(&text);
                    }
                }
            }
            (Some(new), still) => {
                *still = Some((new, now));
                self.watch.told = false;
            }
        }
    }

    /// Does the kernel say so too? A rank that has been woken, or stopped, is no longer waiting for anybody, although it has had no
    /// time yet to say so.
    fn all_sleep(&self) -> bool {
        self.living().all(|(_, rank)| {
            let stat =
                std::fs::read_to_string(format!("/proc/{}/stat", rank.pid)).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|s| s.chars().next());
            !matches!(state, Some('R' | 'T' | 't'))
        })
    }

    /// Who waits for whom, now.
    pub(super) fn picture(&self) -> String {
        let views = self.views(true);
        if views.iter().all(|v| v.fate == Fate::Started) {
            return "no rank has called MPI_Init\n".into();
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        hang::report(
            &views,
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        )
    }

    /// The ranks' status pages; the texts only if they are wanted.
    fn views(&self, texts: bool) -> Vec<RankView> {
        let view = |(rank, status): (&Rank, &RankStatus)| {
            let asleep = status.asleep.load(Acquire) != 0;
            let state = RankState::from_number(status.state.load(Acquire));
            let fate = match (rank.ended, state) {
                (Some(_), _) => Fate::Exited,
                (None, RankState::Started) => Fate::Started,
                (None, RankState::Running) => Fate::Running,
                (None, _) => Fate::Finalized,
            };
            RankView {
                fate,
                asleep,
                concurrent: status.concurrent.load(Relaxed) != 0,
                call: if texts {
                    call_name(status.call.load(Relaxed))
                } else {
                    String::new()
                },
                since: status.since.load(Relaxed),
                context: status.context.load(Relaxed),
                comm: if texts {
                    status.comm_name_text()
                } else {
                    String::new()
                },
                comm_size: status.comm_size.load(Relaxed),
                peer: status.peer.load(Relaxed),
                tag: status.tag.load(Relaxed),
                collective: status.collective.load(Relaxed),
                root: status.root.load(Relaxed),
                sent: status.sent.load(Relaxed),
                received: status.received.load(Relaxed),
            }
        };
        self.ranks.iter().zip(self.statuses).map(view).collect()
    }
}

fn call_name(number: u32) -> String {
    ferry_api::name_of(number).unwrap_or_else(|| "a call".into())
}
