//! What a thread has used: processor time, and how often it has slept (`getrusage`).

use std::time::Duration;

/// What a thread has used so far.
#[derive(Clone, Copy)]
pub(crate) struct ThreadUsage {
    pub processor_time: Duration,
    /// How often it has left its core in order to sleep. Yields and lost time slices do not count.
    pub sleeps: i64,
}

impl ThreadUsage {
    /// What the calling thread has used.
    pub fn now() -> ThreadUsage {
        // SAFETY: all zeros is a valid value of this structure of numbers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the system writes the structure, and no more. It refuses no thread its own usage.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        ThreadUsage {
            processor_time: time(usage.ru_utime) + time(usage.ru_stime),
            sleeps: usage.ru_nvcsw,
        }
    }
}
