//! Virtual time against real time: a paced job's model does nothing before its time.

use crate::kernel::segment::Header;
use crate::time::Time;
use rustix::thread::{Timespec, futex};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The pace of a job.
#[derive(Default)]
pub(super) struct Pace {
    /// When virtual time began. `None`: the job is not paced.
    began: Option<Instant>,
}

impl Pace {
    /// All ranks have joined.
    pub fn begin(header: &Header) -> Pace {
        let paced = header.paced.load(Ordering::Relaxed) != 0;
        Pace {
            began: paced.then(Instant::now),
        }
    }

    /// The virtual time that real time has reached. Zero if the job is not paced.
    pub fn now(&self) -> Time {
        let since = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        Time::ns(since.as_nanos() as u64)
    }

    /// Blocks until real time has reached `time`. Returns false if a rank asks for something
    /// before. Returns at once if the job is not paced, or is closed.
    pub fn await_time(&self, time: Time, header: &Header) -> bool {
        while self.began.is_some() {
            let now = self.now();
            if now >= time {
                return true;
            }
            let left = Duration::from_nanos((time - now).as_ps() / 1000);
            let limit = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let seen = header.wakeup.load(Ordering::SeqCst);
            header.asleep.store(1, Ordering::SeqCst);
            let asked = header.resume_requests.load(Ordering::SeqCst) != 0;
            let closing = header.closing.load(Ordering::SeqCst) != 0;
            if !asked && !closing {
                let _ = futex::wait(&header.wakeup, futex::Flags::empty(), seen, Some(&limit));
            }
            header.asleep.store(0, Ordering::SeqCst);
            if asked || closing {
                return closing;
            }
        }
        true
    }
}
