//! Looking for jobs in which nobody can go on.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use ferry_job::{RankState, RankStatus};

use super::{Crew, Job, STATUS_HANG};
use crate::frame::Page;
use crate::hang::{self, Fate, RankView, Stillness};
use crate::options::OnHang;
use crate::threads::Sleepers;

/// How often the ranks' status pages are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// A job in which nothing has moved for so long hangs.
pub const STILL: Duration = Duration::from_secs(1);

/// What the hang detection remembers.
pub(super) struct HangWatch {
    /// When to look next.
    pub(super) next: Instant,
    /// How often, in general.
    pub(super) every: Duration,
    pub(super) still: Option<(Stillness, Instant)>,
    told: bool,
    sleepers: Sleepers,
}

impl HangWatch {
    pub(super) fn new(now: Instant, ranks: usize) -> HangWatch {
        let every = LOOK * (1 + ranks as u32 / 256);
        HangWatch {
            next: now + every,
            every,
            still: None,
            told: false,
            sleepers: Sleepers::default(),
        }
    }
}

impl Job<'_> {
    pub(super) fn look_for_a_hang(&mut self, now: Instant) {
        // The model of a machine sees at once when nobody can go on.
        if self.modelled.is_some()
            || self.options.on_hang == OnHang::Ignore
            || self.ranks.iter().any(|r| r.pid == 0)
        {
            return;
        }
        let seen = hang::stillness(&self.views(false));
        match (seen, &mut self.watch.still) {
            (None, still) => {
                *still = None;
                self.watch.told = false;
            }
            (Some(new), Some((old, since))) if new == *old => {
                let long = now.duration_since(*since) >= STILL;
                if long && !self.watch.told && self.all_sleep() {
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

    /// Does the kernel say so too?
    fn all_sleep(&mut self) -> bool {
        let (sleepers, crew) = (&mut self.watch.sleepers, &self.crew);
        let living = self.ranks.iter().enumerate();
        let awake = living
            .filter(|(_, rank)| rank.ended.is_none())
            .filter(|&(number, rank)| match crew {
                Crew::Here(here) => sleepers.awake(number, rank.pid, &here.statuses[number]),
                Crew::Afar(afar) => afar.awake(number),
            });
        // All are asked, since each answer is compared with the one before.
        awake.count() == 0
    }

    /// Who waits for whom, now.
    pub(super) fn picture(&self) -> String {
        let views = self.views(true);
        if views.iter().all(|v| v.fate == Fate::Started) {
            return "no rank has called MPI_Init\n".into();
        }
        hang::report(&views, RankStatus::now())
    }

    /// The ranks' status pages; the texts only if they are wanted.
    fn views(&self, texts: bool) -> Vec<RankView> {
        let here = match &self.crew {
            Crew::Here(here) => here,
            Crew::Afar(afar) => {
                let mut views = afar.views().to_vec();
                for (view, rank) in views.iter_mut().zip(&self.ranks) {
                    if rank.ended.is_some() {
                        view.fate = Fate::Exited;
                    }
                }
                return views;
            }
        };
        let view = |(number, status): (u32, &RankStatus)| {
            let page = page_of(number, status, texts);
            let mut view = view_of(&page, status.since.load(Relaxed));
            if self.ranks[number as usize].ended.is_some() {
                view.fate = Fate::Exited;
            }
            view
        };
        (0..).zip(here.statuses).map(view).collect()
    }
}

/// What a status page says; its texts only if they are wanted. `awake` and `age` are left to the
/// caller.
pub fn page_of(rank: u32, status: &RankStatus, texts: bool) -> Page {
    let asleep = status.asleep.load(Acquire) != 0;
    Page {
        rank,
        state: status.state.load(Acquire),
        asleep,
        awake: false,
        call: if texts { status.call.load(Relaxed) } else { 0 },
        age: 0,
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
}

/// A page of a rank that has not ended, as the hang report wants it.
pub(crate) fn view_of(page: &Page, since: u64) -> RankView {
    RankView {
        fate: match RankState::from_number(page.state) {
            RankState::Started => Fate::Started,
            RankState::Running => Fate::Running,
            _ => Fate::Finalized,
        },
        asleep: page.asleep,
        call: if page.call == 0 {
            String::new()
        } else {
            ferry_api::name_of(page.call).unwrap_or_else(|| "a call".into())
        },
        since,
        context: page.context,
        comm: page.comm.clone(),
        comm_size: page.comm_size,
        peer: page.peer,
        tag: page.tag,
        collective: page.collective,
        root: page.root,
        sent: page.sent,
        received: page.received,
    }
}
