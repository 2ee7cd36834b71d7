//! What time brings: calls without an answer, hosts that have gone silent, unknown callers that say
//! nothing.

use super::Connected;
use super::peers::PeerState;
use ferry_auth::Rejected;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Between two looks at the clock while something has a deadline.
const SOON: Duration = Duration::from_millis(100);
/// While the process waits for its last bytes to arrive: the system does not say when that is.
const SETTLING: Duration = Duration::from_millis(1);

/// Ticks that wake the process, only while there is something to look after.
pub struct Timer {
    fd: OwnedFd,
    period: Duration,
}

impl Timer {
    pub fn new() -> rustix::io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer {
            fd: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            period: Duration::ZERO,
        })
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Ticks every `period` from now on; not at all if that is zero.
    fn set(&mut self, period: Duration) {
        if period == self.period {
            return;
        }
        let time = Timespec {
            tv_sec: period.as_secs() as i64,
            tv_nsec: period.subsec_nanos().into(),
        };
        let both = Itimerspec {
            it_interval: time,
            it_value: time,
        };
        if timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &both).is_ok() {
            self.period = period;
        }
    }

    /// Takes the tick that has come.
    fn take(&self) {
        let mut ticks = [0; 8];
        let _ = rustix::io::read(&self.fd, &mut ticks);
    }
}

impl Connected {
    /// Sees to it that the clock is looked at as often as what is under way needs.
    pub(super) fn set_timer(&mut self) {
        let pressing =
            |l: &PeerState| matches!(l, PeerState::Connecting(_) | PeerState::Failing { .. });
        let period = if self.settling {
            SETTLING
        } else if !self.pending.is_empty() || self.peers.iter().any(|p| pressing(&p.state)) {
            SOON
        } else if self.peers.is_empty() {
            Duration::ZERO
        } else {
            self.timeout / 8
        };
        self.timer.set(period);
    }

    /// The timer has ticked.
    pub(super) fn tick(&mut self) {
        self.timer.take();
        let now = Instant::now();
        while let Some(pending_accept) = self.pending.pop_expired(now) {
            self.reject(Rejected::TimedOut, &pending_accept);
        }
        for i in 0..self.peers.len() {
            match &mut self.peers[i].state {
                PeerState::Connecting(_) => self.expire_connect(i, now),
                PeerState::Open(conn) => {
                    if conn.is_silent(now, self.timeout) {
                        let seconds = self.timeout.as_secs();
                        self.end(
                            i,
                            format!(
                                "its host has not answered for {seconds} seconds (FERRY_TCP_TIMEOUT)"
                            ),
                        );
                    }
                }
                PeerState::Failing {
                    what,
                    until,
                    medium,
                    node,
                } if *until <= now => {
                    let known = self.media[*medium].cause_of_loss(*node);
                    let what = known.unwrap_or_else(|| std::mem::take(what));
                    self.end(i, what);
                }
                PeerState::Failing { .. } | PeerState::Lost(_) => {}
            }
        }
        self.set_timer();
    }

    /// Peer `i` cannot be spoken to any more: a fault that the next poll tells.
    pub(super) fn end(&mut self, i: usize, what: String) {
        let process = self.peers[i].process;
        self.splice_pipe.forget(process);
        if let PeerState::Open(conn) = &self.peers[i].state {
            conn.give_up();
        }
        self.forget(i);
        self.peers[i].state = PeerState::Lost(what.clone());
        let fault = self.lost(process, what);
        self.faults.push_back(fault);
    }
}
