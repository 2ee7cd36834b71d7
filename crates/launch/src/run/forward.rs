//! Polling for the job's standard input and output, and moving what comes.

use std::io;
use std::os::fd::RawFd;

use rustix::event::epoll;

use super::{EVENT_STDIN, EVENT_WRITABLE, Job, borrowed};
use crate::forward::{Channel, Input, Output, WaitFor, standard_input};
use crate::protocol::ToAgent;

/// The job's standard input, output and error, and which of their descriptors are polled.
pub(super) struct Streams {
    pub output: Output,
    /// Per channel: its streams are not read now, because mpiexec's own output is not taken.
    paused: [bool; 2],
    /// Per channel: the descriptor that is polled for writing.
    write_polled: [Option<RawFd>; 2],
    /// Output could not be written.
    pub output_broken: bool,
    pub input: Input,
    /// Descriptors that are polled for standard input.
    stdin_polled: Vec<RawFd>,
    /// Standard input is a regular file, which is always readable and cannot be polled.
    pub input_is_file: bool,
}

impl Streams {
    pub fn new(output: Output, input: Input) -> Streams {
        Streams {
            output,
            paused: [false; 2],
            write_polled: [None; 2],
            output_broken: false,
            input,
            stdin_polled: Vec::new(),
            input_is_file: false,
        }
    }
}

impl Job<'_> {
    /// Writes what is queued, and polls for room where not all could be written. While a channel is
    /// full, its pipes are not read.
    pub(super) fn flush(&mut self) {
        while let Err((channel, error)) = self.streams.output.flush() {
            self.streams.output_broken = true;
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
                self.streams.output.print_message(&format!(
                    "the job's {name} cannot be written: {error}; \
                     what it still writes there is lost"
                ));
            }
        }
        for channel in [Channel::Out, Channel::Err] {
            let write_polled = self.streams.output.blocked(channel);
            let polled = &mut self.streams.write_polled[channel as usize];
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
            let full = self.streams.output.is_full(channel);
            if full != self.streams.paused[channel as usize] {
                self.streams.paused[channel as usize] = full;
                let streams: Vec<usize> = self
                    .streams
                    .output
                    .open_streams()
                    .filter(|s| s % 2 == channel as usize)
                    .collect();
                self.broadcast(&ToAgent::PauseOutput(self.streams.paused));
                for stream in streams {
                    if !full {
                        self.poll_stream(stream);
                    } else if let Some(fd) = self.streams.output.descriptor(stream) {
                        let _ = epoll::delete(&self.poll, borrowed(fd));
                    }
                }
            }
        }
    }

    /// Polls for what standard input waits for.
    pub(super) fn poll_stdin(&mut self) {
        let waits_for = match &self.streams.input {
            Input::Copied(copier) => copier.waits_for(),
            Input::Sent(sender) => sender.waits_for(),
            _ => return,
        };
        let (wanted, flags) = match waits_for {
            WaitFor::Input => (vec![0], epoll::EventFlags::IN),
            WaitFor::Room(pipes) => (pipes, epoll::EventFlags::OUT),
            WaitFor::Nothing => (Vec::new(), epoll::EventFlags::empty()),
        };
        if wanted == self.streams.stdin_polled {
            return;
        }
        for fd in self.streams.stdin_polled.drain(..) {
            // Closing a pipe has removed it from the epoll instance.
            let _ = epoll::delete(&self.poll, borrowed(fd));
        }
        self.streams.input_is_file = false;
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
            self.streams.input_is_file |= added == Err(rustix::io::Errno::PERM);
        }
        self.streams.stdin_polled = wanted;
    }

    pub(super) fn forward_stdin(&mut self) {
        match &mut self.streams.input {
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
