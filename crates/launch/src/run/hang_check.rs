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
            return self.peers.tell(&self.known_jobs(), None);
        }
        if let Some(hang) = self.peers.found().cloned() {
            return self.hang_was_found(&hang);
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
            return self.peers.tell(&self.known_jobs(), None);
        };
        let (traffic, mut report) = (state.traffic, String::new());
        // How long it sleeps is no news.
        if self.peers.is_news(&state.known_jobs, traffic) {
            report = self.job_report();
        }
        let own = Sleeping { traffic, report };
        self.peers.tell(&state.known_jobs, Some(own));
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
        } else if let Some((mut hang, traffic)) = self.peers.hanging()
            && self.peers.prints(&hang)
            && self.hang.timer.none_is_under_way(traffic)
        {
            let who = match self.peers.relatives(&hang) {
                (true, true) => "those that it has started or met",
                (true, false) => "those that it has started",
                (false, _) => "those that it has met",
            };
            hang.report = format!(
                "this job and {who} hang: every rank sleeps in MPI or has finished, and no message \
                 is under way\n{}",
                hang.report
            );
            // Before its ranks end, and those of the others find them dead.
            if self.options.on_hang == OnHang::End {
                self.peers.announce(&hang);
            }
            self.report_hang(hang.report);
        }
    }

    /// A launcher has found that this job hangs, with others.
    fn hang_was_found(&mut self, hang: &Hang) {
        if self.hang.reported {
            return;
        }
        if self.peers.prints(hang) {
            self.report_hang(hang.report.clone());
        } else if self.options.on_hang == OnHang::End && self.parent.is_none() {
            self.end("", STATUS_HANG);
        }
    }

    /// The jobs that the ranks know.
    fn known_jobs(&self) -> BTreeSet<u64> {
        let views = self.views(false);
        let running = views.iter().filter(|v| v.phase == RankPhase::Running);
        running.flat_map(|v| v.known_jobs.clone()).collect()
    }

    /// Who waits for whom in this job, which its title names.
    fn job_report(&self) -> String {
        let started = if self.peers.is_below() {
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

    /// All ranks have ended, and jobs that they have started go on.
    pub(super) fn wait_for_spawned(&mut self) {
        let mut over = Sleeping::default();
        over.traffic.has_finished = true;
        self.peers.tell(&BTreeSet::new(), Some(over));
    }

    fn report_hang(&mut self, text: String) {
        self.hang.reported = true;
        if self.options.on_hang == OnHang::End {
            self.end(&(text + ENDING), STATUS_HANG);
        } else {
            self.output.print_message(&text);
        }
    }

    /// What to say when the job ends, if a launcher has found that it hangs, with others: their
    /// ranks have ended, and what those of this job say of that is not the cause. Empty: another
    /// launcher says it.
    pub(super) fn found_end(&mut self) -> Option<String> {
        if self.options.on_hang != OnHang::End {
            return None;
        }
        let hang = self.peers.found()?.clone();
        let prints = self.peers.prints(&hang);
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
