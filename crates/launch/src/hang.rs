//! Who waits for whom: what the ranks' status pages say when nothing moves, and what mistake that
//! looks like.
//!
//! ```text
//! mistakes     what is likely wrong
//! snapshot     what is known of all ranks at one moment
//! stall_timer  how long nothing has moved
//! status_page  a status page as it is sent
//! table        who waits for whom
//! threads      do a rank's threads sleep, by what the kernel says
//! windows      ranks that wait for each other at windows
//! ```
//!
//! All but `threads` are pure functions of a snapshot, so that every case can be tested without a
//! job.

mod agreements;
mod mistakes;
mod snapshot;
mod stall_timer;
mod status_page;
mod table;
mod threads;
mod windows;

use std::fmt::Write;
use std::time::Duration;

pub use snapshot::{RankPhase, RankView, StalledState, Traffic, stalled_state};
pub use stall_timer::StallTimer;
pub use status_page::{page_of, view_of};
pub use table::ranks_named;
pub use threads::SleepCheck;

/// A job in which nothing has moved for this long hangs. It is longer than any pause in a running
/// job in which all ranks sleep: a message that is under way takes milliseconds.
pub const HANG_DURATION: Duration = Duration::from_secs(1);

/// As [`HANG_DURATION`], where counts do not tell whether a message is under way, because a process
/// has finished that it may be for. TCP sends what was lost four times in a row within this time.
pub const HANG_DURATION_UNCOUNTED: Duration = Duration::from_secs(5);

/// The table of who waits for whom, and the likely mistakes, each on lines of their own. `now` in
/// nanoseconds of the monotonic clock.
pub fn report(ranks: &[RankView], now: u64) -> String {
    let mut text = table::table(ranks, now);
    for line in mistakes::mistakes(ranks) {
        let _ = writeln!(text, "likely: {line}");
    }
    text
}

/// The table and the mistakes of one of several jobs, which `title` names.
pub fn report_of_job(title: &str, ranks: &[RankView], now: u64) -> String {
    format!("{title}\n{}", report(ranks, now))
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
