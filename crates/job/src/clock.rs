//! Clocks and the current core, asked of libc. rustix would read the vDSO by itself, which valgrind
//! hides from its programs: they would end by a segmentation fault. clippy.toml forbids it.

/// The time of CLOCK_MONOTONIC, nanoseconds.
pub fn monotonic() -> u64 {
    nanos(libc::CLOCK_MONOTONIC)
}

/// The calling thread's processor time, nanoseconds.
pub fn thread_processor_time() -> u64 {
    nanos(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable, and both clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The core that runs the calling thread.
#[inline]
pub fn current_core() -> u32 {
    // SAFETY: the call has no conditions. It answers -1 only where the kernel does not have it.
    unsafe { libc::sched_getcpu() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance_and_cores_are_some() {
        let (before, used) = (monotonic(), thread_processor_time());
        while thread_processor_time() == used {}
        assert!(monotonic() > before);
        assert!(current_core() < 1 << 16);
    }
}
