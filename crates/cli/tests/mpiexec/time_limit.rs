//! Limits of time that allow for a busy machine.

use std::time::Duration;

/// `seconds` on a machine that has nothing else to do; longer in proportion to the load on a busy
/// one.
pub fn time_limit(seconds: f64) -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load
        .split(' ')
        .next()
        .and_then(|l| l.parse().ok())
        .unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    Duration::from_secs_f64(seconds * (1.0 + load / cores as f64))
}
