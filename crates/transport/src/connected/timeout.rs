//! Time-outs: connects without an answer, hosts that have gone silent, accepted connections that
//! never prove who they are.

use super::ConnTransport;
use super::peers::PeerState;
use ferry_auth::Rejected;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Period of the timer while something has a deadline. A choice: deadlines are seconds long.
const DEADLINE_PERIOD: Duration = Duration::from_millis(100);
/// Period of the timer while the process waits for its last bytes to arrive. The system does not
/// report when that is. A choice: an exiting process is delayed by at most this.
const SETTLE_PERIOD: Duration = Duration::from_millis(1);
/// The timer's ticks within one time-out of a silent host, while nothing else has a deadline. A
/// choice: silence is noticed at most an eighth of the time-out late.
const TICKS_PER_TIMEOUT: u32 = 8;

/// A timer whose ticks wake the process. It runs only while something has a deadline.
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

    /// Ticks every `period` from now on. Zero stops the timer.
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

    /// Takes the ticks that have come.
    fn take(&self) {
        let mut ticks = [0; 8];
        let _ = rustix::io::read(&self.fd, &mut ticks);
    }
}

impl ConnTransport {
    /// Sets the timer to the period that the present state needs.
    pub(super) fn set_timer(&mut self) {
        let has_deadline =
            |s: &PeerState| matches!(s, PeerState::Connecting(_) | PeerState::Failing { .. });
        let period = if self.outgoing.settling {
            SETTLE_PERIOD
        } else if !self.accepting.pending.is_empty()
            || self.peers.iter().any(|p| has_deadline(&p.state))
        {
            DEADLINE_PERIOD
        } else if self.peers.is_empty() {
            Duration::ZERO
        } else {
            self.local.timeout / TICKS_PER_TIMEOUT
        };
        self.poll_set.timer.set(period);
    }

    /// Handles a tick: ends what has passed its deadline.
    pub(super) fn tick(&mut self) {
        self.poll_set.timer.take();
        let now = Instant::now();
        while let Some(pending_accept) = self.accepting.pending.pop_expired(now) {
            self.reject(Rejected::TimedOut, &pending_accept);
        }
        for i in 0..self.peers.len() {
            match &mut self.peers[i].state {
                PeerState::Connecting(_) => self.expire_connect(i, now),
                PeerState::Open(conn) => {
                    if conn.is_silent(now, self.local.timeout) {
                        let seconds = self.local.timeout.as_secs();
                        self.end(
                            i,
                            format!(
                                "its host has not answered for {seconds} seconds \
                                 (FERRY_TCP_TIMEOUT)"
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
                PeerState::Failing { .. } | PeerState::Lost(_) | PeerState::Vacant => {}
            }
        }
        self.set_timer();
    }

    /// Gives peer `i` up for this reason. The next poll reports it.
    pub(super) fn end(&mut self, i: usize, what: String) {
        let process = self.peers[i].process;
        self.outgoing.splice_pipe.forget(process);
        if let PeerState::Open(conn) = &self.peers[i].state {
            conn.give_up();
        }
        self.forget(i);
        self.peers[i].state = PeerState::Lost(what.clone());
        let fault = self.lost(process, what);
        self.faults.push_back(fault);
    }
}
