//! What signals to mpiexec do to the job.

use std::ffi::c_int;
use std::time::Instant;

use super::{Backend, Job, Shutdown};
use crate::forward::Input;
use crate::options::OnHang;
use crate::protocol::ToAgent;
use crate::signals::send_to_group;

impl Job<'_> {
    pub(super) fn signal(&mut self, signal: c_int) {
        match signal {
            libc::SIGCHLD => self.reap(),
            libc::SIGQUIT => {
                let wait_report = format!(
                    "asked who waits for whom (signal 3)\n{}",
                    self.wait_report()
                );
                if self.options.on_hang == OnHang::End {
                    self.end(
                        &(wait_report + "ending the job (--on-hang=report lets it go on)"),
                        128 + libc::SIGQUIT as u8,
                    );
                } else {
                    self.streams.output.print_message(&wait_report);
                }
            }
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP => {
                self.end_requests += 1;
                self.status = self.status.max(128 + signal as u8);
                if self.end_requests == 1 {
                    self.forwarded_signals.push(signal);
                    if signal == libc::SIGINT {
                        self.streams.output.print_message(
                            "passing the interrupt on to all ranks; once more kills them",
                        );
                    }
                    self.signal_ranks(signal);
                    self.signal_ranks(libc::SIGCONT);
                } else {
                    let status = 128 + signal as u8;
                    self.shutdown
                        .get_or_insert(Shutdown {
                            since: Instant::now(),
                            status,
                            killed: true,
                        })
                        .killed = true;
                    self.signal_ranks(libc::SIGKILL);
                }
            }
            libc::SIGTSTP => {
                self.signal_ranks(libc::SIGTSTP);
                self.flush();
                self.flush_agents();
                // SAFETY: a plain system call; mpiexec stops here until it is told to go on.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
            libc::SIGCONT => {
                match &mut self.streams.input {
                    Input::Copied(copier) => copier.resume(),
                    Input::Sent(sender) => sender.resume(),
                    _ => {}
                }
                self.reset_agent_timers();
                self.hang.timer.reset();
                self.signal_ranks(libc::SIGCONT);
            }
            other => {
                self.forwarded_signals.push(other);
                self.signal_ranks(other);
            }
        }
    }

    /// Sends a signal to the process groups of all ranks that have not ended.
    pub(super) fn signal_ranks(&mut self, signal: c_int) {
        // If this job is ended because of a fault, others that depend on it notice by themselves.
        if self.forwarded_signals.contains(&signal) || self.end_requests > 1 {
            self.spawned.signal(signal);
        }
        match &self.backend {
            Backend::Local(_) => {
                for (_, rank) in self.living() {
                    send_to_group(rank.pid, signal);
                }
            }
            Backend::Remote(_) => self.broadcast(&ToAgent::Signal(signal)),
        }
    }
}
