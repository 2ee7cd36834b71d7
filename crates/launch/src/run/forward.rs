//! Polling for the job's standard input and output, and moving what comes.

use std::io;

use rustix::event::epoll;

use super::{EVENT_STDIN, EVENT_WRITABLE, Job, borrowed};
use crate::forward::{Channel, Input, WaitFor, standard_input};
use crate::protocol::ToAgent;

impl Job<'_> {
    /// Writes what is queued, and polls for room where not all could be written. While a channel is
    /// full, its pipes are not read.
    pub(super) fn flush(&mut self) {
        while let Err((channel, error)) = self.output.flush() {
            self.output_broken = true;
            let name = if channel == Channel::Out {
                "standard output"
            } else {
                "standard error"
            };
            if error.kind() == io::ErrorKind::BrokenPipe {
                self.end(
                    &format!(
                        "the reader of mpiexec's {name} has gone (broken pipe); ending the job"
                    ),
                    1,
                );
            } else {
                self.output.print_message(&format!(
                    "the job's {name} cannot be written: {error}; \
                     what it still writes there is lost"
                ));
            }
        }
        for channel in [Channel::Out, Channel::Err] {
            let write_polled = self.output.blocked(channel);
            let polled = &mut self.write_polled[channel as usize];
            if write_polled != *polled {
                if let Some(fd) = polled.take() {
                    let _ = epoll::delete(&self.poll, borrowed(fd));
                }
                if let Some(fd) = write_polled {
                    let token = epoll::EventData::new_u64(EVENT_WRITABLE | channel as u64);
                    if epoll::add(&self.poll, borrowed(fd), token, epoll::EventFlags::OUT).is_ok() {
                        *polled = Some(fd);
                    }
                }
            }
            let full = self.output.is_full(channel);
            if full != self.paused[channel as usize] {
                self.paused[channel as usize] = full;
                let streams: Vec<usize> = self
                    .output
                    .open_streams()
                    .filter(|s| s % 2 == channel as usize)
                    .collect();
                self.broadcast(&ToAgent::PauseOutput(self.paused));
                for stream in streams {
                    if !full {
                        self.poll_stream(stream);
                    } else if let Some(fd) = self.output.descriptor(stream) {
                        let _ = epoll::delete(&self.poll, borrowed(fd));
                    }
                }
            }
        }
    }

    /// Polls for what standard input waits for.
    pub(super) fn poll_stdin(&mut self) {
        let waits_for = match &self.input {
            Input::Copied(copier) => copier.waits_for(),
            Input::Sent(sender) => sender.waits_for(),
            _ => return,
        };
        let (wanted, flags) = match waits_for {
            WaitFor::Input => (vec![0], epoll::EventFlags::IN),
            WaitFor::Room(pipes) => (pipes, epoll::EventFlags::OUT),
            WaitFor::Nothing => (Vec::new(), epoll::EventFlags::empty()),
        };
        if wanted == self.stdin_polled {
            return;
        }
        for fd in self.stdin_polled.drain(..) {
            // Closing a pipe has removed it from the epoll instance.
            let _ = epoll::delete(&self.poll, borrowed(fd));
        }
        self.input_is_file = false;
        for &fd in &wanted {
            let fd = if fd == 0 {
                standard_input()
            } else {
                borrowed(fd)
            };
            let added = epoll::add(
                &self.poll,
                fd,
                epoll::EventData::new_u64(EVENT_STDIN),
                flags,
            );
            // A regular file is always readable and cannot be polled.
            self.input_is_file |= added == Err(rustix::io::Errno::PERM);
        }
        self.stdin_polled = wanted;
    }

    pub(super) fn forward_stdin(&mut self) {
        match &mut self.input {
            Input::Copied(copier) => match copier.waits_for() {
                WaitFor::Input => copier.read(),
                WaitFor::Room(_) => copier.write(),
                WaitFor::Nothing => {}
            },
            Input::Sent(sender) => {
                if sender.waits_for() == WaitFor::Input
                    && let Some(bytes) = sender.read()
                {
                    self.send_stdin(bytes);
                }
            }
            _ => {}
        }
    }
}
