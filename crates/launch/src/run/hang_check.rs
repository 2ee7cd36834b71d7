//! Periodic checks for jobs in which no rank can go on.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ferry_job::RankStatus;

use super::{Backend, Job, STATUS_HANG};
use crate::hang::{
    self, HANG_DURATION, RankPhase, RankView, SleepCheck, StalledState, page_of, view_of,
};
use crate::options::OnHang;

/// Interval between two checks of the status pages, for up to 256 ranks. A quarter of
/// `HANG_DURATION`, so that a hang is noticed within 1.25 s.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// State of the hang detection.
pub(super) struct HangCheck {
    /// Time of the next check.
    pub(super) next_check: Instant,
    /// Interval between checks. It grows with the number of ranks.
    pub(super) interval: Duration,
    pub(super) stalled: Option<(StalledState, Instant)>,
    reported: bool,
    sleep_check: SleepCheck,
}

impl HangCheck {
    pub(super) fn new(now: Instant, ranks: usize) -> HangCheck {
        let interval = STATUS_INTERVAL * (1 + ranks as u32 / 256);
        HangCheck {
            next_check: now + interval,
            interval,
            stalled: None,
            reported: false,
            sleep_check: SleepCheck::default(),
        }
    }
}

impl Job<'_> {
    pub(super) fn check_for_hang(&mut self, now: Instant) {
        // The model of a machine detects hangs by itself.
        if self.modelled.is_some()
            || self.options.on_hang == OnHang::Ignore
            || self.ranks.iter().any(|r| r.pid == 0)
        {
            return;
        }
        let seen = hang::stalled_state(&self.views(false));
        match (seen, &mut self.hang.stalled) {
            (None, stalled) => {
                *stalled = None;
                self.hang.reported = false;
            }
            (Some(new), Some((old, since))) if new == *old => {
                let long = now.duration_since(*since) >= HANG_DURATION;
                if long && !self.hang.reported && self.all_sleep() {
                    self.hang.reported = true;
                    let text = format!(
                        "this job hangs: every rank sleeps in MPI or has finished, and no message \
                         is under way\n{}",
                        self.wait_report()
                    );
                    if self.options.on_hang == OnHang::End {
                        self.end(
                            &(text + "ending the job (--on-hang=report lets it go on)"),
                            STATUS_HANG,
                        );
                    } else {
                        self.output.print_message(&text);
                    }
                }
            }
            (Some(new), stalled) => {
                *stalled = Some((new, now));
                self.hang.reported = false;
            }
        }
    }

    /// Does the kernel say that all ranks sleep, too?
    fn all_sleep(&mut self) -> bool {
        let (sleep_check, backend) = (&mut self.hang.sleep_check, &self.backend);
        let living = self.ranks.iter().enumerate();
        let awake = living
            .filter(|(_, rank)| rank.ended.is_none())
            .filter(|&(number, rank)| match backend {
                Backend::Local(local) => {
                    sleep_check.awake(number, rank.pid, &local.statuses[number])
                }
                Backend::Remote(remote) => remote.awake(number),
            });
        // All ranks are asked, without a short cut: each answer is compared with the one before.
        awake.count() == 0
    }

    /// Who waits for whom, now.
    pub(super) fn wait_report(&self) -> String {
        let views = self.views(true);
        if views.iter().all(|v| v.phase == RankPhase::Started) {
            return "no rank has called MPI_Init\n".into();
        }
        hang::report(&views, RankStatus::now())
    }

    /// What the ranks' status pages say. Call and communicator names only with `texts`.
    fn views(&self, texts: bool) -> Vec<RankView> {
        let local = match &self.backend {
            Backend::Local(local) => local,
            Backend::Remote(remote) => {
                let mut views = remote.views().to_vec();
                for (view, rank) in views.iter_mut().zip(&self.ranks) {
                    if rank.ended.is_some() {
                        view.phase = RankPhase::Exited;
                    }
                }
                return views;
            }
        };
        let view = |(number, status): (u32, &RankStatus)| {
            let page = page_of(number, status, texts);
            let mut view = view_of(&page, status.since.load(Relaxed));
            if self.ranks[number as usize].ended.is_some() {
                view.phase = RankPhase::Exited;
            }
            view
        };
        (0..).zip(local.statuses).map(view).collect()
    }
}
