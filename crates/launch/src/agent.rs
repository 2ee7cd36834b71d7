//! The agent: mpiexec on another host, which runs that host's ranks.
//!
//! It listens at no port and writes no file. It talks to mpiexec through its standard input and
//! output, which the launcher (ssh, srun) carries. When its input ends, or mpiexec is silent for
//! too long, it kills its ranks and ends.

mod local_ranks;

use std::env;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;

use crate::forward::WaitFor;
use crate::protocol::{self, LaunchSpec, PREAMBLE, SendQueue, ToAgent, ToMpiexec};
use crate::signals::Signals;
use crate::start::{REAP_TIMEOUT, StartError, kill_orphans};
use local_ranks::LocalRanks;

/// Interval between two looks at the status pages, for up to 256 ranks: mpiexec's own interval.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
/// While this many bytes wait to be sent to mpiexec, the ranks' output is not read. 16 chunks of
/// output.
const QUEUE_HIGH_BYTES: usize = 1 << 20;
/// How long mpiexec may take to send the launch message. It sends it as soon as it has read the
/// greeting.
const LAUNCH_SPEC_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes read from mpiexec at once.
const READ_BYTES: usize = 256 * 1024;

const EVENT_MPIEXEC: u64 = 0;
const EVENT_MPIEXEC_WRITABLE: u64 = 1 << 32;
const EVENT_SIGNAL: u64 = 2 << 32;
const EVENT_STREAM: u64 = 3 << 32;
const EVENT_RANK: u64 = 4 << 32;
const EVENT_STDIN_PIPE: u64 = 5 << 32;
const EVENT_RELAY: u64 = 6 << 32;
const EVENT_KIND: u64 = !0 << 32;

/// Runs an agent to its end. Returns its exit status.
pub fn run() -> u8 {
    match Agent::connect().and_then(|mut agent| agent.serve()) {
        Ok(()) => 0,
        Err(text) => {
            crate::complain(&format!("agent: {text}"));
            1
        }
    }
}

struct Agent {
    from_mpiexec: OwnedFd,
    to_mpiexec: OwnedFd,
    received: Vec<u8>,
    buffer: Vec<u8>,
    send_queue: SendQueue,
    poll: OwnedFd,
    /// `to_mpiexec` is polled for writing, because not all of the queue could be written.
    write_polled: bool,
    /// The connection to mpiexec has closed.
    disconnected: bool,
    last_received: Instant,
    next_heartbeat: Instant,
    last_iteration: Instant,
    /// The user has stopped mpiexec, so it sends no heartbeats.
    paused: bool,
    silence_limit: Option<Duration>,
    local: Option<LocalRanks>,
}

fn plain(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Agent {
    /// Moves standard input and output to other descriptors, so that nothing else uses them, and
    /// queues the greeting.
    fn connect() -> Result<Agent, String> {
        let from_mpiexec = rustix::io::fcntl_dupfd_cloexec(crate::forward::standard_input(), 3)
            .map_err(|e| format!("its standard input cannot be used: {e}"))?;
        // SAFETY: Rust's runtime sees to it that 1 is open, and nobody closes it.
        let out = unsafe { BorrowedFd::borrow_raw(1) };
        let to_mpiexec = rustix::io::fcntl_dupfd_cloexec(out, 3)
            .map_err(|e| format!("its standard output cannot be used: {e}"))?;
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| format!("/dev/null cannot be opened: {e}"))?;
        rustix::stdio::dup2_stdin(&null).map_err(plain)?;
        rustix::stdio::dup2_stdout(&null).map_err(plain)?;
        fcntl_setfl(&from_mpiexec, OFlags::NONBLOCK).map_err(plain)?;
        fcntl_setfl(&to_mpiexec, OFlags::NONBLOCK).map_err(plain)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(plain)?;
        let token = epoll::EventData::new_u64(EVENT_MPIEXEC);
        epoll::add(&poll, &from_mpiexec, token, epoll::EventFlags::IN)
            .map_err(|e| format!("its standard input is no pipe: {e}"))?;
        let now = Instant::now();
        let mut send_queue = SendQueue::default();
        send_queue.push_raw(&protocol::greeting());
        Ok(Agent {
            from_mpiexec,
            to_mpiexec,
            received: Vec::new(),
            buffer: vec![0; READ_BYTES],
            send_queue,
            poll,
            write_polled: false,
            disconnected: false,
            last_received: now,
            next_heartbeat: now + STATUS_INTERVAL,
            last_iteration: now,
            paused: false,
            silence_limit: None,
            local: None,
        })
    }

    fn serve(&mut self) -> Result<(), String> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.flush();
            match &self.local {
                None if self.disconnected => return Ok(()),
                None if self.last_received.elapsed() > LAUNCH_SPEC_TIMEOUT => {
                    return Err("no orders have come; this is started by mpiexec alone".into());
                }
                Some(local) if local.done && (self.send_queue.len() == 0 || self.disconnected) => {
                    return Ok(());
                }
                _ => {}
            }
            self.poll_once(&mut events)?;
        }
    }

    fn poll_once(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), String> {
        let now = Instant::now();
        let mut due = self.next_heartbeat;
        if let Some(local) = &self.local {
            due = due.min(local.next_status_check);
        }
        let wait = due.saturating_duration_since(now);
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        if epoll::wait(&self.poll, room, Some(&timeout)).is_err() {
            events.clear();
        }
        let mut signalled = false;
        for event in events.iter() {
            let token = event.data.u64();
            let number = (token & !EVENT_KIND) as usize;
            match token & EVENT_KIND {
                EVENT_MPIEXEC => self.read_mpiexec()?,
                EVENT_SIGNAL => signalled = true,
                EVENT_STREAM => self.read_stream(number),
                EVENT_RANK => self.read_rank_messages(number),
                EVENT_STDIN_PIPE => self.write_stdin(),
                EVENT_MPIEXEC_WRITABLE => self.flush(),
                EVENT_RELAY => self.read_relay(number as u32),
                _ => {}
            }
        }
        if signalled {
            self.read_signals();
        }
        self.check_timers(Instant::now());
        Ok(())
    }

    // ---- the head ----

    fn read_mpiexec(&mut self) -> Result<(), String> {
        match rustix::io::read(&self.from_mpiexec, self.buffer.as_mut_slice()) {
            Ok(0) => self.disconnect("the head's end has closed"),
            Ok(n) => {
                self.last_received = Instant::now();
                self.received.extend_from_slice(&self.buffer[..n]);
                self.read_frames()?;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.disconnect("the head's end has closed"),
        }
        Ok(())
    }

    fn read_frames(&mut self) -> Result<(), String> {
        let mut at = 0;
        if self.local.is_none() {
            at = PREAMBLE.len() + 4;
            let start = &self.received[..self.received.len().min(at)];
            let expected = [&PREAMBLE[..], &protocol::PROTOCOL.to_le_bytes()].concat();
            if !expected.starts_with(start) {
                return Err(
                    "what comes is not from a Ferry mpiexec of the same version; this is \
                            started by mpiexec alone"
                        .into(),
                );
            }
            if start.len() < at {
                return Ok(());
            }
        }
        let bytes = std::mem::take(&mut self.received);
        let start = at;
        while let Some((message, len)) = protocol::decode::<ToAgent>(&bytes[at..])? {
            at += len;
            self.handle_message(message)?;
        }
        // Before the launch message the preamble is kept, because it is looked at again.
        let keep = if self.local.is_none() && at == start {
            0
        } else {
            at
        };
        self.received = bytes[keep..].to_vec();
        Ok(())
    }

    fn handle_message(&mut self, message: ToAgent) -> Result<(), String> {
        if let ToAgent::Launch(spec) = message {
            return if self.local.is_none() {
                self.launch(&spec)
            } else {
                Err("orders have come twice".into())
            };
        }
        let Some(local) = &mut self.local else {
            return Err("the first message is no order".into());
        };
        match message {
            ToAgent::Launch(_) | ToAgent::Heartbeat => {}
            ToAgent::Signal(signal) => {
                self.paused = match signal {
                    libc::SIGTSTP => true,
                    libc::SIGCONT => false,
                    _ => self.paused,
                };
                if signal == libc::SIGKILL {
                    local.killed_since.get_or_insert_with(Instant::now);
                }
                local.signal_all(signal);
            }
            ToAgent::ConfirmPages(number) => {
                local.send_status_pages(&mut self.send_queue);
                self.send_queue.push(&ToMpiexec::PagesConfirmed(number));
            }
            ToAgent::Relay { number, bytes } => local.relays.write(number, &bytes),
            ToAgent::NameAnswer { number, bytes } => {
                if let Some(question) = local.questions.remove(&number)
                    && !bytes.is_empty()
                {
                    question.answer(&bytes);
                }
            }
            ToAgent::PauseOutput(channels) => local.pause_requested = channels,
            ToAgent::Stdin(bytes) => {
                local.stdin.offer(bytes);
                local.stdin_ack_due = true;
                self.write_stdin();
            }
            ToAgent::Card { medium, rank, card } => {
                for asker in local.business_cards.put(&medium, rank, card) {
                    local.send_card_to(&medium, rank, asker);
                    local.poll_rank_socket(&self.poll, asker);
                }
            }
        }
        Ok(())
    }

    /// Reads a relayed socket of a rank.
    fn read_relay(&mut self, number: u32) {
        if let Some(local) = &mut self.local
            && let Some(bytes) = local.relays.read(number)
        {
            self.send_queue.push(&ToMpiexec::Relay { number, bytes });
        }
    }

    /// Ends all ranks: mpiexec is gone.
    fn disconnect(&mut self, why: &str) {
        if self.disconnected {
            return;
        }
        self.disconnected = true;
        let _ = epoll::delete(&self.poll, &self.from_mpiexec);
        if let Some(local) = &mut self.local
            && local.alive > 0
        {
            crate::complain(&format!("agent: {why}; ending {} ranks", local.alive));
            local.killed_since = Some(Instant::now());
            local.signal_all(libc::SIGKILL);
        }
    }

    fn flush(&mut self) {
        if self.disconnected || self.send_queue.flush(&self.to_mpiexec).is_err() {
            self.disconnect("the head's end has closed");
            return;
        }
        let waits = self.send_queue.len() > 0;
        if waits != self.write_polled {
            let token = epoll::EventData::new_u64(EVENT_MPIEXEC_WRITABLE);
            let done = if waits {
                epoll::add(&self.poll, &self.to_mpiexec, token, epoll::EventFlags::OUT)
            } else {
                epoll::delete(&self.poll, &self.to_mpiexec)
            };
            self.write_polled = waits == done.is_ok();
        }
        let full = self.send_queue.len() > QUEUE_HIGH_BYTES;
        if let Some(local) = &mut self.local {
            local.pause_streams(&self.poll, full);
        }
    }

    // ---- the ranks ----

    fn launch(&mut self, spec: &LaunchSpec) -> Result<(), String> {
        let of = spec.host_of.len();
        if of == 0 || spec.app_of.len() != of || spec.hosts.len() > of {
            return Err("its orders contradict each other".into());
        }
        self.silence_limit =
            (spec.silence > 0).then(|| Duration::from_millis(u64::from(spec.silence)));
        // If mpiexec's directory does not exist here, ranks start in the login directory.
        let _ = env::set_current_dir(spec.directory.os());
        let signals = Signals::block().map_err(plain)?;
        let token = epoll::EventData::new_u64(EVENT_SIGNAL);
        epoll::add(&self.poll, signals.fd(), token, epoll::EventFlags::IN).map_err(plain)?;
        let mut local = LocalRanks::new(signals);
        if let Err(error) = local.start(spec, &self.poll, &mut self.send_queue) {
            let StartError { text, status } = error;
            self.send_queue
                .push(&ToMpiexec::StartFailed { text, status });
            local.killed_since = Some(Instant::now());
            local.signal_all(libc::SIGKILL);
        }
        self.local = Some(local);
        self.check_done();
        Ok(())
    }

    fn read_stream(&mut self, number: usize) {
        if let Some(local) = &mut self.local {
            local.read_stream(number, &mut self.send_queue);
        }
    }

    fn read_rank_messages(&mut self, local_rank: usize) {
        if let Some(local) = &mut self.local {
            local.poll_rank_socket(&self.poll, local_rank);
            local.read_messages(local_rank, &self.poll, &mut self.send_queue);
            local.poll_rank_socket(&self.poll, local_rank);
        }
    }

    /// Writes standard input to the ranks that read it.
    fn write_stdin(&mut self) {
        let Some(local) = &mut self.local else { return };
        local.stdin.write();
        let wanted = match local.stdin.waits_for() {
            WaitFor::Room(pipes) => pipes,
            _ => Vec::new(),
        };
        for &fd in local.polled_pipes.iter().filter(|fd| !wanted.contains(fd)) {
            // Closing a pipe has removed it from the epoll instance.
            let _ = epoll::delete(&self.poll, borrowed(fd));
        }
        for &fd in wanted.iter().filter(|fd| !local.polled_pipes.contains(fd)) {
            let token = epoll::EventData::new_u64(EVENT_STDIN_PIPE);
            let _ = epoll::add(&self.poll, borrowed(fd), token, epoll::EventFlags::OUT);
        }
        local.polled_pipes = wanted;
        if local.stdin_ack_due && local.stdin.is_empty() {
            local.stdin_ack_due = false;
            self.send_queue.push(&ToMpiexec::StdinTaken);
        }
    }

    fn read_signals(&mut self) {
        let Some(local) = &mut self.local else { return };
        let mut killed = false;
        while let Some(signal) = local.signals.next() {
            match signal {
                libc::SIGCHLD => {}
                // The launcher ends this agent, and so the job.
                libc::SIGTERM | libc::SIGHUP | libc::SIGINT => killed = true,
                _ => {}
            }
        }
        local.reap(&self.poll, &mut self.send_queue);
        if killed {
            self.disconnect("a signal asks it to end");
        }
        self.check_done();
    }

    fn check_done(&mut self) {
        let Some(local) = &mut self.local else { return };
        let overdue = local
            .killed_since
            .is_some_and(|d| d.elapsed() > REAP_TIMEOUT);
        if (local.alive == 0 || overdue) && !local.done {
            local.done = true;
            local.watcher = None;
            kill_orphans(local.killed_since.is_some());
            for number in 0..2 * local.ranks.len() {
                local.drain(number, &mut self.send_queue);
            }
            self.send_queue.push(&ToMpiexec::Done);
        }
    }

    fn check_timers(&mut self, now: Instant) {
        let beat = self
            .silence_limit
            .map_or(Duration::from_secs(1), |s| s / 4)
            .min(Duration::from_secs(1));
        if self.paused || now.duration_since(self.last_iteration) > beat * 2 + STATUS_INTERVAL {
            // mpiexec or this process was stopped, so silence says nothing.
            self.last_received = now;
        }
        self.last_iteration = now;
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + beat;
            if self.local.is_some() && self.send_queue.len() == 0 && !self.disconnected {
                self.send_queue.push(&ToMpiexec::Heartbeat);
            }
        }
        if self
            .silence_limit
            .is_some_and(|limit| now.duration_since(self.last_received) > limit)
        {
            self.disconnect("nothing has been heard of the head (--host-timeout)");
        }
        if let Some(local) = &mut self.local
            && now >= local.next_status_check
        {
            local.next_status_check = now + STATUS_INTERVAL * (1 + local.ranks.len() as u32 / 256);
            local.send_status_pages(&mut self.send_queue);
        }
        self.check_done();
    }
}

fn borrowed(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: used at once, for pipes that the stdin copier owns or has just closed. An unknown
    // number is refused.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
