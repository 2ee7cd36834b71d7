//! Periodic checks for jobs in which no rank can go on.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ferry_job::RankStatus;

use super::family::Sleeping;
use super::{Backend, Job, STATUS_HANG};
use crate::hang::{
    self, HANG_DURATION, RankPhase, RankView, SleepCheck, StalledState, page_of, view_of,
};
use crate::options::OnHang;

/// Interval between two checks of the status pages, for up to 256 ranks. A quarter of
/// `HANG_DURATION`, so that a hang is noticed within 1.25 s.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_millis(250);

/// The last line of a hang report.
const ENDING: &str = "ending the job (--on-hang=report lets it go on)";

/// State of the hang detection.
pub(super) struct HangCheck {
    /// Time of the next check.
    pub(super) next_check: Instant,
    /// Interval between checks. It grows with the number of ranks.
    pub(super) interval: Duration,
    pub(super) stalled: Option<(StalledState, Instant)>,
    reported: bool,
    /// The kernel has said of this stalled state that all ranks sleep.
    all_slept: bool,
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
            all_slept: false,
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
        if let Some(text) = self.peers.announced() {
            return self.report_hang(text);
        }
        let seen = hang::stalled_state(&self.views(false));
        let long = match (&seen, &self.hang.stalled) {
            (Some(new), Some((old, since))) if new == old => {
                now.duration_since(*since) >= HANG_DURATION
            }
            _ => {
                self.hang.stalled = seen.clone().map(|state| (state, now));
                self.hang.reported = false;
                self.hang.all_slept = false;
                false
            }
        };
        let Some(state) = seen.filter(|_| long && !self.hang.reported) else {
            if !long {
                self.tell_moving();
            }
            return;
        };
        if state.has_family {
            self.check_family(&state);
        } else if self.all_sleep() {
            let text = format!(
                "this job hangs: every rank sleeps in MPI or has finished, and no message is under \
                 way\n{}",
                self.wait_report()
            );
            self.report_hang(text);
        }
    }

    /// This job sleeps, and others may wake it. Do these sleep, too?
    fn check_family(&mut self, state: &StalledState) {
        let sleeping = self.family.sleeping_below();
        self.hang.all_slept = sleeping.is_some() && (self.hang.all_slept || self.all_sleep());
        let Some(below) = sleeping.filter(|_| self.hang.all_slept) else {
            self.tell_moving();
            return;
        };
        let of_job = |what: &str, job: &Job<'_>| {
            let title = format!(
                "job {:x}{what}: {}, {} ranks",
                job.id(),
                job.ranks[0].program,
                job.ranks.len()
            );
            hang::report_of_job(&title, &job.views(true), RankStatus::now())
        };
        let started = if self.family.is_below() {
            " (MPI_Comm_spawn)"
        } else {
            ""
        };
        let all = Sleeping {
            traffic: state.traffic.with(below.traffic),
            report: of_job(started, self) + &below.report,
        };
        if self.family.is_below() {
            self.family.tell(Some(&all));
            return;
        }
        self.peers.tell(Some(&all));
        let Some(others) = self.peers.sleeping() else {
            return;
        };
        let traffic = all.traffic.with(others.traffic);
        let who = match (self.family.has_below(), self.peers.any()) {
            (true, true) => "those that it has started or met",
            (true, false) => "those that it has started",
            (false, true) => "those that it has met",
            (false, false) => return,
        };
        if !traffic.is_under_way() {
            let text = format!(
                "this job and {who} hang: every rank sleeps in MPI or has finished, and no message \
                 is under way\n{}{}",
                all.report, others.report
            );
            // Before its ranks end, and those of the others find them dead.
            if self.options.on_hang == OnHang::End {
                self.peers.announce(&text);
            }
            self.report_hang(text);
        }
    }

    /// Tells the launchers that know this one that its jobs move.
    fn tell_moving(&mut self) {
        self.family.tell(None);
        self.peers.tell(None);
    }

    fn report_hang(&mut self, text: String) {
        self.hang.reported = true;
        if self.options.on_hang == OnHang::End {
            self.end(&(text + ENDING), STATUS_HANG);
        } else {
            self.output.print_message(&text);
        }
    }

    /// What to end with, if another launcher has found that the jobs hang: its ranks have ended,
    /// and what those of this job say of that is not the cause.
    pub(super) fn announced_end(&mut self) -> Option<String> {
        let text = self.peers.announced();
        text.filter(|_| self.options.on_hang == OnHang::End)
            .map(|text| text + ENDING)
    }

    /// The job's id.
    fn id(&self) -> u64 {
        match &self.backend {
            Backend::Local(local) => local.starter.node.info().job,
            Backend::Remote(remote) => remote.job(),
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
