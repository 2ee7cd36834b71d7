//! Periodic checks for jobs in which no rank can go on.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ferry_job::RankStatus;

use super::peers::Hang;
use super::statement::Sleeping;
use super::{Backend, Job, STATUS_HANG};
use crate::hang::{
    self, RankPhase, RankView, SleepCheck, StallTimer, StalledState, page_of, view_of,
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
    pub(super) timer: StallTimer,
    /// Number of this stalled state, for questions to agents.
    number: u64,
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
            timer: StallTimer::new(now, interval),
            number: 0,
            reported: false,
            all_slept: false,
            sleep_check: SleepCheck::default(),
        }
    }
}

impl Job<'_> {
    pub(super) fn check_for_hang(&mut self, now: Instant) {
        // The model of a machine detects hangs by itself.
        if self.modelled.is_some() || self.ranks.iter().any(|r| r.pid == 0) {
            return;
        }
        if self.options.on_hang == OnHang::Ignore {
            return self.peers.update(&self.known_jobs(), None);
        }
        if let Some(hang) = self.peers.announced_hang().cloned() {
            return self.handle_announced_hang(&hang);
        }
        let seen = hang::stalled_state(&self.views(false));
        if self.hang.timer.check(now, seen.as_ref()) {
            self.hang.number += 1;
            self.hang.reported = false;
            self.hang.all_slept = false;
        }
        self.hang.all_slept =
            self.hang.timer.is_long() && (self.hang.all_slept || self.all_sleep(seen.as_ref()));
        let sleeping = seen.filter(|_| self.hang.all_slept);
        let Some(state) = sleeping else {
            return self.peers.update(&self.known_jobs(), None);
        };
        let (traffic, mut report) = (state.traffic, String::new());
        // The report tells how long ranks sleep, which alone is not published anew.
        if self.peers.is_news(&state.known_jobs, traffic) {
            report = self.job_report();
        }
        let own = Sleeping { traffic, report };
        self.peers.update(&state.known_jobs, Some(own));
        if self.hang.reported {
            return;
        }
        if state.known_jobs.is_empty() {
            if !self.hang.timer.none_is_under_way(traffic) {
                return;
            }
            let text = format!(
                "this job hangs: every rank sleeps in MPI or has finished, and no message is under \
                 way\n{}",
                self.wait_report()
            );
            self.report_hang(text);
        } else if let Some((mut hang, traffic)) = self.peers.find_hang()
            && self.peers.prints_report(&hang)
            && self.hang.timer.none_is_under_way(traffic)
        {
            let who = match self.peers.families_in(&hang) {
                (true, true) => "those that it has started or met",
                (true, false) => "those that it has started",
                (false, _) => "those that it has met",
            };
            hang.report = format!(
                "this job and {who} hang: every rank sleeps in MPI or has finished, and no message \
                 is under way\n{}",
                hang.report
            );
            // Before this job's ranks end: those of the others would report that as the cause.
            if self.options.on_hang == OnHang::End {
                self.peers.announce(&hang);
            }
            self.report_hang(hang.report);
        }
    }

    /// A launcher has announced that this job hangs, with others.
    fn handle_announced_hang(&mut self, hang: &Hang) {
        if self.hang.reported {
            return;
        }
        if self.peers.prints_report(hang) {
            self.report_hang(hang.report.clone());
        } else if self.options.on_hang == OnHang::End && self.parent.is_none() {
            self.end("", STATUS_HANG);
        }
    }

    /// The jobs with which the ranks are connected.
    fn known_jobs(&self) -> BTreeSet<u64> {
        let views = self.views(false);
        let running = views.iter().filter(|v| v.phase == RankPhase::Running);
        running.flat_map(|v| v.known_jobs.clone()).collect()
    }

    /// This job's part of the report on several jobs: a title, and who waits for whom.
    fn job_report(&self) -> String {
        let started = if self.peers.is_spawned() {
            " (MPI_Comm_spawn)"
        } else {
            ""
        };
        let title = format!(
            "job {:x}{started}: {}, {} ranks",
            self.id(),
            self.ranks[0].program,
            self.ranks.len()
        );
        hang::report_of_job(&title, &self.views(true), RankStatus::now())
    }

    /// Publishes that all ranks have ended, while jobs that they have spawned continue.
    pub(super) fn publish_finished(&mut self) {
        let mut finished = Sleeping::default();
        finished.traffic.has_finished = true;
        self.peers.update(&BTreeSet::new(), Some(finished));
    }

    fn report_hang(&mut self, text: String) {
        self.hang.reported = true;
        if self.options.on_hang == OnHang::End {
            self.end(&(text + ENDING), STATUS_HANG);
        } else {
            self.streams.output.print_message(&text);
        }
    }

    /// What to print when the job ends, if a launcher has announced that it hangs, with others. The
    /// others' ranks have ended then, and what this job's ranks print of that is not the cause.
    /// Empty: another launcher prints the report. `None`: no hang was announced.
    pub(super) fn announced_hang_text(&mut self) -> Option<String> {
        if self.options.on_hang != OnHang::End {
            return None;
        }
        let hang = self.peers.announced_hang()?.clone();
        let prints = self.peers.prints_report(&hang);
        Some(if prints {
            hang.report + ENDING
        } else {
            String::new()
        })
    }

    /// The job's id.
    fn id(&self) -> u64 {
        match &self.backend {
            Backend::Local(local) => local.starter.node.info().job,
            Backend::Remote(remote) => remote.job(),
        }
    }

    /// Does the kernel say, too, that all ranks sleep, in the state that was seen? They may wake,
    /// and sleep again, before the kernel is asked. What agents have sent may be old.
    fn all_sleep(&mut self, seen: Option<&StalledState>) -> bool {
        let number = self.hang.number;
        self.kernel_says_all_sleep()
            && hang::stalled_state(&self.views(false)).as_ref() == seen
            && self.pages_confirmed(number)
    }

    fn kernel_says_all_sleep(&mut self) -> bool {
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

    /// The report on this job alone: who waits for whom.
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
