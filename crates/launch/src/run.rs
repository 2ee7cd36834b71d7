//! The life of a job: one loop around one epoll.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use ferry_job::{Heard, Line, Notice, RankState};
use rustix::event::{Timespec, epoll};
use rustix::process::{WaitOptions, WaitStatus};

use crate::hang::{self, Fate, RankView, Stillness};
use crate::options::{OnHang, Options};
use crate::output::{Channel, Output};
use crate::signals::{self, Signals};
use crate::start::Starter;
use crate::stdin::{Input, Wants, standard_input};
use crate::warden::Warden;

/// Between asking the ranks to end and killing them. MPI_Abort and crashes are to end a job within a second.
const GRACE: Duration = Duration::from_millis(300);
/// A killed process that has not gone after this stands in the kernel, say on a dead file server; mpiexec goes without it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the ranks' status pages are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// A job in which nothing has moved for so long hangs.
const STILL: Duration = Duration::from_secs(1);

/// Exit status after --timeout.
const STATUS_TIMEOUT: u8 = 124;
/// Exit status after a hang.
const STATUS_HANG: u8 = 125;

/// Runs a job to its end; returns mpiexec's exit status.
pub fn run(options: &Options) -> u8 {
    let mut starter = match Starter::prepare(options) {
        Ok(starter) => starter,
        Err(not) => {
            crate::complain(&not.text);
            return not.status;
        }
    };
    match Job::new(options, &starter) {
        Ok(mut job) => {
            job.start(&mut starter);
            job.watch()
        }
        Err(e) => {
            crate::complain(&format!("the job cannot be watched: {e}"));
            1
        }
    }
}

struct Job<'a> {
    options: &'a Options,
    ranks: Vec<Rank>,
    by_pid: HashMap<i32, usize>,
    alive: usize,
    /// How many ranks the job is to have.
    size: usize,
    statuses: &'static [ferry_job::RankStatus],
    poll: OwnedFd,
    signals: Signals,
    output: Output,
    /// Streams of a channel are not read now, because their output is not taken.
    held: [bool; 2],
    /// The descriptor that is polled for writing.
    blocked: [Option<RawFd>; 2],
    input: Input,
    /// What is polled for standard input.
    feeding: Vec<RawFd>,
    input_is_file: bool,
    warden: Option<Warden>,
    host: String,
    began: Instant,
    watch: HangWatch,
    /// The job is being ended.
    ending: Option<Ending>,
    /// The highest exit status so far.
    status: u8,
    /// Output could not be written.
    output_lost: bool,
    /// How often the user asked for the end.
    asked_to_end: u32,
    /// The signals passed on to the ranks.
    passed_on: Vec<c_int>,
}

struct Rank {
    pid: i32,
    program: String,
    line: Option<Line>,
    ended: Option<WaitStatus>,
}

/// How the job is being ended.
struct Ending {
    since: Instant,
    status: u8,
    killed: bool,
}

/// What the hang detection remembers.
struct HangWatch {
    next: Instant,
    every: Duration,
    still: Option<(Stillness, Instant)>,
    told: bool,
}

/// What an event is about: kind in the upper half, number in the lower.
const SIGNAL: u64 = 0;
const STREAM: u64 = 1 << 32;
const LINE: u64 = 2 << 32;
const WRITE: u64 = 3 << 32;
const STDIN: u64 = 4 << 32;
const KIND: u64 = !0 << 32;

impl<'a> Job<'a> {
    fn new(options: &'a Options, starter: &Starter) -> io::Result<Job<'a>> {
        let signals = Signals::take()?;
        let warden = Warden::start(starter.ranks() as u32)?;
        // Whatever the ranks leave behind becomes a child of mpiexec, which so can end it.
        // SAFETY: a plain system call.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &poll,
            signals.fd(),
            epoll::EventData::new_u64(SIGNAL),
            epoll::EventFlags::IN,
        )?;
        let now = Instant::now();
        let every = LOOK * (1 + starter.ranks() as u32 / 256);
        Ok(Job {
            options,
            ranks: Vec::with_capacity(starter.ranks()),
            by_pid: HashMap::new(),
            alive: 0,
            size: starter.ranks(),
            statuses: starter.node.segment.statuses(),
            poll,
            signals,
            output: Output::new(starter.ranks(), options.label),
            held: [false; 2],
            blocked: [None; 2],
            input: Input::new(options.stdin),
            feeding: Vec::new(),
            input_is_file: false,
            warden: Some(warden),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            began: now,
            watch: HangWatch {
                next: now + every,
                every,
                still: None,
                told: false,
            },
            ending: None,
            status: 0,
            output_lost: false,
            asked_to_end: 0,
            passed_on: Vec::new(),
        })
    }

    /// Starts all ranks; if one cannot be started, the others are ended.
    fn start(&mut self, starter: &mut Starter) {
        for rank in 0..starter.ranks() {
            let Some(warden) = &self.warden else { return };
            match starter.start(
                rank,
                &mut self.output,
                &mut self.input,
                &self.signals,
                warden,
            ) {
                Ok(started) => {
                    if self.options.verbose || self.options.report_bindings {
                        let place = starter.place_of(rank);
                        let text = format!(
                            "rank {rank}: {} on {}, pid {}, {place}",
                            started.program, self.host, started.pid
                        );
                        self.output.say(&text);
                    }
                    self.attend(LINE | rank as u64, started.line.fd());
                    for channel in [Channel::Out, Channel::Err] {
                        self.attend_stream(2 * rank + channel as usize);
                    }
                    self.by_pid.insert(started.pid, rank);
                    let line = Some(started.line);
                    self.ranks.push(Rank {
                        pid: started.pid,
                        program: started.program,
                        line,
                        ended: None,
                    });
                    self.alive += 1;
                }
                Err(not) => {
                    self.end(&not.text, not.status);
                    return;
                }
            }
        }
    }

    fn attend(&self, token: u64, fd: &OwnedFd) {
        let _ = epoll::add(
            &self.poll,
            fd,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN,
        );
    }

    fn attend_stream(&self, stream: usize) {
        if let Some(fd) = self.output.descriptor(stream) {
            let token = epoll::EventData::new_u64(STREAM | stream as u64);
            let _ = epoll::add(&self.poll, borrowed(fd), token, epoll::EventFlags::IN);
        }
    }

    /// The loop. Returns the exit status.
    fn watch(&mut self) -> u8 {
        let mut events = Vec::with_capacity(256);
        while self.alive > 0 {
            self.flush();
            self.turn(&mut events);
            if self
                .ending
                .as_ref()
                .is_some_and(|e| e.killed && e.since.elapsed() > PATIENCE)
            {
                let stuck: Vec<String> = self
                    .living()
                    .map(|(n, r)| format!("{n} (pid {})", r.pid))
                    .collect();
                self.output.say(&format!(
                    "ranks {} do not end although they were killed; leaving them",
                    stuck.join(", ")
                ));
                break;
            }
        }
        self.finish(&mut events)
    }

    /// Waits for something to happen, or to be due, and deals with it.
    fn turn(&mut self, events: &mut Vec<epoll::Event>) {
        let prompt = self.output.show_prompts(Instant::now());
        self.flush();
        self.feed();
        let now = Instant::now();
        let mut due = vec![self.watch.next];
        due.extend(prompt);
        due.extend(
            self.options
                .timeout
                .map(|t| self.began + t)
                .filter(|_| self.ending.is_none()),
        );
        due.extend(self.ending.as_ref().map(|e| {
            if e.killed {
                now + LOOK
            } else {
                e.since + GRACE
            }
        }));
        let wait = due
            .iter()
            .map(|d| d.saturating_duration_since(now))
            .min()
            .unwrap_or(LOOK);
        let wait = if self.input_is_file {
            Duration::ZERO
        } else {
            wait
        };
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        events.clear();
        if epoll::wait(
            &self.poll,
            rustix::buffer::spare_capacity(events),
            Some(&timeout),
        )
        .is_err()
        {
            events.clear();
        }
        let mut signalled = false;
        for event in events.iter() {
            let token = event.data.u64();
            let number = (token & !KIND) as usize;
            match token & KIND {
                // Last: a rank's own words before the news of its end.
                SIGNAL => signalled = true,
                STREAM => {
                    self.output.read(number);
                }
                LINE => self.hear(number),
                STDIN => self.move_input(),
                // Writing is done by the next flush.
                _ => {}
            }
        }
        if self.input_is_file {
            self.move_input();
        }
        if signalled {
            while let Some(signal) = self.signals.next() {
                self.signal(signal);
            }
        }
        self.look_at_the_clock(Instant::now());
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        if self.alive == 0 {
            return;
        }
        match &mut self.ending {
            Some(ending) if !ending.killed && now >= ending.since + GRACE => {
                ending.killed = true;
                self.send(libc::SIGKILL);
            }
            Some(_) => {}
            None => {
                if self.options.timeout.is_some_and(|t| now >= self.began + t) {
                    let seconds = self.options.timeout.unwrap_or_default().as_secs_f64();
                    let text = format!(
                        "the job has run for {seconds} s (--timeout); ending it\n{}",
                        self.picture()
                    );
                    self.end(&text, STATUS_TIMEOUT);
                } else if now >= self.watch.next {
                    self.watch.next = now + self.watch.every;
                    self.look_for_a_hang(now);
                }
            }
        }
        if self.watch.next <= now {
            self.watch.next = now + self.watch.every;
        }
    }

    // ---- output and input ----

    /// Writes what is there, and polls for what could not be written; leaves pipes alone whose output is not taken.
    fn flush(&mut self) {
        while let Err((channel, error)) = self.output.flush() {
            self.output_lost = true;
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
                self.output.say(&format!("the job's {name} cannot be written: {error}; what it still writes there is lost"));
            }
        }
        for channel in [Channel::Out, Channel::Err] {
            let blocked = self.output.blocked(channel);
            let polled = &mut self.blocked[channel as usize];
            if blocked != *polled {
                if let Some(fd) = polled.take() {
                    let _ = epoll::delete(&self.poll, borrowed(fd));
                }
                if let Some(fd) = blocked {
                    let token = epoll::EventData::new_u64(WRITE | channel as u64);
                    if epoll::add(&self.poll, borrowed(fd), token, epoll::EventFlags::OUT).is_ok() {
                        *polled = Some(fd);
                    }
                }
            }
            let full = self.output.is_full(channel);
            if full != self.held[channel as usize] {
                self.held[channel as usize] = full;
                let streams: Vec<usize> = self
                    .output
                    .open_streams()
                    .filter(|s| s % 2 == channel as usize)
                    .collect();
                for stream in streams {
                    if !full {
                        self.attend_stream(stream);
                    } else if let Some(fd) = self.output.descriptor(stream) {
                        let _ = epoll::delete(&self.poll, borrowed(fd));
                    }
                }
            }
        }
    }

    /// Polls for what the pump of standard input waits for.
    fn feed(&mut self) {
        let Input::Copied(pump) = &self.input else {
            return;
        };
        let (wanted, flags) = match pump.wants() {
            Wants::Input => (vec![0], epoll::EventFlags::IN),
            Wants::Room(pipes) => (pipes, epoll::EventFlags::OUT),
            Wants::Nothing => (Vec::new(), epoll::EventFlags::empty()),
        };
        if wanted == self.feeding {
            return;
        }
        for fd in self.feeding.drain(..) {
            // A pipe that was closed has left by itself.
            let _ = epoll::delete(&self.poll, borrowed(fd));
        }
        self.input_is_file = false;
        for &fd in &wanted {
            let fd = if fd == 0 {
                standard_input()
            } else {
                borrowed(fd)
            };
            let added = epoll::add(&self.poll, fd, epoll::EventData::new_u64(STDIN), flags);
            // A file is always readable and cannot be polled.
            self.input_is_file |= added == Err(rustix::io::Errno::PERM);
        }
        self.feeding = wanted;
    }

    fn move_input(&mut self) {
        if let Input::Copied(pump) = &mut self.input {
            match pump.wants() {
                Wants::Input => pump.read(),
                Wants::Room(_) => pump.write(),
                Wants::Nothing => {}
            }
        }
    }

    // ---- what ranks and users say ----

    fn hear(&mut self, rank: usize) {
        loop {
            let Some(line) = &self.ranks[rank].line else {
                return;
            };
            match line.hear() {
                Heard::Nothing => return,
                Heard::Gone => self.ranks[rank].line = None,
                Heard::Notice(Notice::Abort { code, text }) => {
                    line.acknowledge();
                    self.drain(rank);
                    let mut said = format!(
                        "{} called MPI_Abort with code {code}; ending the job",
                        self.named(rank)
                    );
                    if !text.trim().is_empty() {
                        said = format!("{}\n{said}", text.trim_end());
                    }
                    // A status of 0 would pass for success.
                    self.end(&said, if code & 0xff == 0 { 1 } else { code as u8 });
                }
            }
        }
    }

    fn signal(&mut self, signal: c_int) {
        match signal {
            libc::SIGCHLD => self.reap(),
            libc::SIGQUIT => {
                let picture = format!("asked who waits for whom (signal 3)\n{}", self.picture());
                if self.options.on_hang == OnHang::End {
                    self.end(
                        &(picture + "ending the job (--on-hang=report lets it go on)"),
                        128 + libc::SIGQUIT as u8,
                    );
                } else {
                    self.output.say(&picture);
                }
            }
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP => {
                self.asked_to_end += 1;
                self.status = self.status.max(128 + signal as u8);
                if self.asked_to_end == 1 {
                    self.passed_on.push(signal);
                    if signal == libc::SIGINT {
                        self.output
                            .say("passing the interrupt on to all ranks; once more kills them");
                    }
                    self.send(signal);
                    self.send(libc::SIGCONT);
                } else {
                    let status = 128 + signal as u8;
                    self.ending
                        .get_or_insert(Ending {
                            since: Instant::now(),
                            status,
                            killed: true,
                        })
                        .killed = true;
                    self.send(libc::SIGKILL);
                }
            }
            libc::SIGTSTP => {
                self.send(libc::SIGTSTP);
                self.flush();
                // SAFETY: a plain system call; mpiexec stops here until it is told to go on.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
            libc::SIGCONT => {
                if let Input::Copied(pump) = &mut self.input {
                    pump.resume();
                }
                self.watch.still = None;
                self.send(libc::SIGCONT);
            }
            other => {
                self.passed_on.push(other);
                self.send(other);
            }
        }
    }

    /// Sends a signal to the process groups of all living ranks.
    fn send(&self, signal: c_int) {
        for (_, rank) in self.living() {
            signals::send_to_group(rank.pid, signal);
        }
    }

    fn living(&self) -> impl Iterator<Item = (usize, &Rank)> {
        self.ranks
            .iter()
            .enumerate()
            .filter(|(_, r)| r.ended.is_none())
    }

    // ---- ends ----

    /// Takes note of all processes that have ended.
    fn reap(&mut self) {
        let mut ended = Vec::new();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(rank) = self.by_pid.remove(&pid.as_raw_nonzero().get()) {
                        ended.push((rank, status));
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        for &(rank, status) in &ended {
            self.ranks[rank].ended = Some(status);
            self.alive -= 1;
            if let Some(warden) = &self.warden {
                warden.note(rank, 0);
            }
        }
        // What they said last comes before what is said about them; and a call of MPI_Abort before the exit that follows it.
        for &(rank, _) in &ended {
            self.drain(rank);
            self.hear(rank);
        }
        // Where several died at once, a signal is nearer to the cause than an early exit.
        ended.sort_by_key(|(_, status)| !status.signaled());
        for (rank, status) in ended {
            self.judge(rank, status);
        }
    }

    /// Decides what the end of a rank means for the job.
    fn judge(&mut self, rank: usize, status: WaitStatus) {
        if self.ending.is_some() {
            return;
        }
        let state = self.state(rank);
        if let Some(signal) = status.terminating_signal() {
            let code = 128 + signal as u8;
            if self.passed_on.contains(&signal) {
                // The user asked for it; the others have had the same signal, and get their time.
                self.status = self.status.max(code);
                if self.alive > 0 && self.asked_to_end > 0 {
                    self.end("", code);
                }
                return;
            }
            let mut text = format!(
                "{} was killed by {}",
                self.named(rank),
                signals::described(signal)
            );
            // SAFETY: the macro's function form only looks at the number.
            if libc::WCOREDUMP(status.as_raw()) {
                text += ", core dumped";
            }
            text += match signal {
                libc::SIGKILL => {
                    " from outside; often that is the kernel, out of memory (see dmesg)"
                }
                libc::SIGBUS => "; shared memory or a mapped file has no room left?",
                _ => "",
            };
            self.end(&text, code);
            return;
        }
        let code = status.exit_status().unwrap_or(1) as u8;
        match state {
            RankState::Running | RankState::Aborted => {
                let hint = match code {
                    129..=192 => format!(
                        " ({code} = 128 + {})",
                        signals::described(i32::from(code) - 128)
                    ),
                    _ => String::new(),
                };
                let text = format!(
                    "{} ended without MPI_Finalize, with exit status {code}{hint}",
                    self.named(rank)
                );
                self.end(&text, code.max(1));
            }
            RankState::Started
                if code != 0
                    && self
                        .living()
                        .any(|(r, _)| self.state(r) == RankState::Running) =>
            {
                let text = format!(
                    "{} ended before MPI_Init, with exit status {code}",
                    self.named(rank)
                );
                self.end(&text, code);
            }
            _ => self.status = self.status.max(code),
        }
    }

    fn state(&self, rank: usize) -> RankState {
        RankState::from_number(self.statuses[rank].state.load(Acquire))
    }

    fn named(&self, rank: usize) -> String {
        let Rank { pid, program, .. } = &self.ranks[rank];
        format!("rank {rank} ({program}, pid {pid} on {})", self.host)
    }

    /// Begins to end the job, for the reason `text` (said unless empty). Later reasons are consequences of the first.
    fn end(&mut self, text: &str, status: u8) {
        if self.ending.is_some() {
            return;
        }
        if !text.is_empty() {
            let others = self.alive;
            let ending = text.contains("ending") || others == 0;
            self.output.say(&if ending {
                text.to_string()
            } else {
                format!("{text}; ending the job")
            });
        }
        self.ending = Some(Ending {
            since: Instant::now(),
            status,
            killed: false,
        });
        self.send(libc::SIGTERM);
        self.send(libc::SIGCONT);
    }

    /// Reads all that a rank has written until now.
    fn drain(&mut self, rank: usize) {
        for channel in [Channel::Out, Channel::Err] {
            self.output.drain(2 * rank + channel as usize);
        }
    }

    /// All ranks have ended: their last output, what they left behind, the status.
    fn finish(&mut self, events: &mut Vec<epoll::Event>) -> u8 {
        self.warden = None;
        self.end_orphans();
        for stream in 0..2 * self.ranks.len() {
            self.output.drain(stream);
        }
        for stream in 0..2 * self.ranks.len() {
            self.output.end(stream);
        }
        self.flush();
        while !self.output.is_empty() && self.asked_to_end < 2 {
            self.turn(events);
            self.flush();
        }
        match &self.ending {
            Some(ending) => ending.status,
            None if self.output_lost => self.status.max(1),
            None => self.status,
        }
    }

    /// Ends what ranks have started and left behind: it has become mpiexec's child.
    fn end_orphans(&mut self) {
        let began = Instant::now();
        let ending = self.ending.is_some();
        let mut known = Vec::new();
        loop {
            let mut none = false;
            loop {
                match rustix::process::wait(WaitOptions::NOHANG) {
                    Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                    Ok(None) => break,
                    Err(_) => {
                        none = true;
                        break;
                    }
                }
            }
            if none || began.elapsed() > PATIENCE {
                return;
            }
            let late = ending || began.elapsed() > GRACE;
            for child in children() {
                if late || !known.contains(&child) {
                    known.push(child);
                    // SAFETY: a child of ours that has not been waited for, so the pid is its.
                    unsafe { libc::kill(child, if late { libc::SIGKILL } else { libc::SIGTERM }) };
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    // ---- hangs ----

    fn look_for_a_hang(&mut self, now: Instant) {
        if self.options.on_hang == OnHang::Ignore || self.ranks.len() < self.size {
            return;
        }
        let seen = hang::stillness(&self.views(false));
        match (seen, &mut self.watch.still) {
            (None, still) => {
                *still = None;
                self.watch.told = false;
            }
            (Some(new), Some((old, since))) if new == *old => {
                if now.duration_since(*since) >= STILL && !self.watch.told {
                    self.watch.told = true;
                    let text = format!(
                        "this job hangs: every rank sleeps in MPI or has finished, and no message is under way\n{}",
                        self.picture()
                    );
                    if self.options.on_hang == OnHang::End {
                        self.end(
                            &(text + "ending the job (--on-hang=report lets it go on)"),
                            STATUS_HANG,
                        );
                    } else {
                        self.output.say(&text);
                    }
                }
            }
            (Some(new), still) => {
                *still = Some((new, now));
                self.watch.told = false;
            }
        }
    }

    /// Who waits for whom, now.
    fn picture(&self) -> String {
        let views = self.views(true);
        if views.iter().all(|v| v.fate == Fate::Started) {
            return "no rank has called MPI_Init\n".into();
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        hang::report(
            &views,
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        )
    }

    /// The ranks' status pages; the texts only if they are wanted.
    fn views(&self, texts: bool) -> Vec<RankView> {
        let view = |(rank, status): (&Rank, &ferry_job::RankStatus)| {
            let asleep = status.asleep.load(Acquire) != 0;
            let state = RankState::from_number(status.state.load(Acquire));
            let fate = match (rank.ended, state) {
                (Some(_), _) => Fate::Exited,
                (None, RankState::Started) => Fate::Started,
                (None, RankState::Running) => Fate::Running,
                (None, _) => Fate::Finalized,
            };
            RankView {
                fate,
                asleep,
                concurrent: status.concurrent.load(Relaxed) != 0,
                call: if texts {
                    call_name(status.call.load(Relaxed))
                } else {
                    String::new()
                },
                since: status.since.load(Relaxed),
                context: status.context.load(Relaxed),
                comm: if texts {
                    status.comm_name_text()
                } else {
                    String::new()
                },
                comm_size: status.comm_size.load(Relaxed),
                peer: status.peer.load(Relaxed),
                tag: status.tag.load(Relaxed),
                collective: status.collective.load(Relaxed),
                root: status.root.load(Relaxed),
                sent: status.sent.load(Relaxed),
                received: status.received.load(Relaxed),
            }
        };
        self.ranks.iter().zip(self.statuses).map(view).collect()
    }
}

fn call_name(number: u32) -> String {
    ferry_api::name_of(number).unwrap_or_else(|| "a call".into())
}

fn borrowed(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: used at once, for descriptors that the job's streams, pump and sinks own.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Living children of this process.
fn children() -> Vec<i32> {
    let pid = std::process::id();
    if let Ok(list) = fs::read_to_string(format!("/proc/self/task/{pid}/children")) {
        return list
            .split_whitespace()
            .filter_map(|p| p.parse().ok())
            .collect();
    }
    // A kernel without that file: ask every process for its parent.
    let parent_of = |pid: i32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')')
            .next()?
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&p| parent_of(p) == Some(pid)).collect()
}
