//! The life of a job: one loop around one epoll.

mod afar;
mod ends;
mod here;
mod modelled;
mod watch;

use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use ferry_job::{Cards, JobTerms, Nodes};
use rustix::event::{Timespec, epoll};

use crate::frame::ToAgent;
use crate::options::{OnHang, Options};
use crate::output::{Channel, Output};
use crate::plan::Plan;
use crate::signals::{self, Signals};
use crate::start::{NotStarted, Starter};
use crate::stdin::{Input, Wants, standard_input};
use afar::Afar;
use ends::End;
pub use ends::end_orphans;
use here::Here;
use modelled::Modelled;
#[cfg(test)]
pub(crate) use watch::view_of;
use watch::{HangWatch, LOOK};
pub use watch::{STILL, page_of};

/// Between asking the ranks to end and killing them. MPI_Abort and crashes are to end a job within
/// a second.
const GRACE: Duration = Duration::from_millis(300);
/// A killed process that has not gone after this stands in the kernel, say on a dead file server;
/// mpiexec goes without it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Exit status after --timeout.
const STATUS_TIMEOUT: u8 = 124;
/// Exit status after a hang.
const STATUS_HANG: u8 = 125;

/// Runs a job to its end; returns mpiexec's exit status.
pub fn run(options: &Options) -> u8 {
    let ready = Plan::make(options).and_then(|plan| {
        let crew = Crew::ready(options, &plan)?;
        Ok((plan, crew))
    });
    let (plan, crew) = match ready {
        Ok(ready) => ready,
        Err(not) => {
            crate::complain(&not.text);
            return not.status;
        }
    };
    match Job::new(options, &plan, crew) {
        Ok(mut job) => {
            job.start();
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
    crew: Crew,
    /// The machine that is modelled, if one is.
    modelled: Option<Modelled>,
    /// What ranks have left for each other. Who asks is a rank if all are here, else a host.
    cards: Cards,
    /// Ranks that have started and not ended; those on other hosts count from the beginning.
    alive: usize,
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

/// Who runs the ranks.
enum Crew {
    /// This process.
    Here(Box<Here>),
    /// Agents, one a host.
    Afar(Box<Afar>),
}

struct Rank {
    /// 0 until it has started.
    pid: i32,
    program: String,
    host: String,
    ended: Option<End>,
}

/// How the job is being ended.
struct Ending {
    since: Instant,
    status: u8,
    killed: bool,
}

/// What an event is about: kind in the upper half, number in the lower.
const SIGNAL: u64 = 0;
const STREAM: u64 = 1 << 32;
const LINE: u64 = 2 << 32;
const WRITE: u64 = 3 << 32;
const STDIN: u64 = 4 << 32;
const AGENT: u64 = 5 << 32;
const MODEL: u64 = 7 << 32;
const AGENT_ROOM: u64 = 6 << 32;
const KIND: u64 = !0 << 32;

impl Crew {
    fn ready(options: &Options, plan: &Plan) -> Result<Crew, NotStarted> {
        let key = ferry_job::new_key()
            .map_err(|e| NotStarted::because(format!("the job's key cannot be made: {e}")))?;
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let job = u64::from(std::process::id()) << 32
            | (clock.tv_nsec as u64 ^ clock.tv_sec as u64) & 0xffff_ffff;
        if plan.afar {
            return Afar::new(options, plan, job, key).map(|afar| Crew::Afar(Box::new(afar)));
        }
        let size = plan.ranks() as u32;
        let nodes = Nodes::one(&plan.hosts[0], size);
        let terms = JobTerms {
            job,
            size,
            key,
            nodes,
        };
        let mut starter = Starter::prepare(&plan.programs, &plan.app_of, terms, 0, options.bind)?;
        if let Some(asked) = &options.machine {
            modelled::prepare(asked, options.bind, &mut starter)?;
        }
        Ok(Crew::Here(Box::new(Here::new(starter))))
    }
}

impl<'a> Job<'a> {
    fn new(options: &'a Options, plan: &Plan, mut crew: Crew) -> io::Result<Job<'a>> {
        let signals = Signals::take()?;
        if let Crew::Here(here) = &mut crew {
            here.guard()?;
        }
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
        let size = plan.ranks();
        let ranks = (0..size).map(|rank| Rank {
            pid: 0,
            program: plan.program_of(rank),
            host: plan.hosts[plan.host_of[rank] as usize].clone(),
            ended: None,
        });
        let modelled = match (&mut crew, &options.machine) {
            (Crew::Here(here), Some(asked)) => here.start_model(asked, &poll)?,
            _ => None,
        };
        let others = if plan.afar { plan.hosts.len() } else { 0 };
        Ok(Job {
            options,
            ranks: ranks.collect(),
            crew,
            modelled,
            cards: Cards::default(),
            alive: 0,
            poll,
            signals,
            output: Output::new(size, others, options.label),
            held: [false; 2],
            blocked: [None; 2],
            input: Input::new(options.stdin, plan.afar),
            feeding: Vec::new(),
            input_is_file: false,
            began: now,
            watch: HangWatch::new(now, size),
            ending: None,
            status: 0,
            output_lost: false,
            asked_to_end: 0,
            passed_on: Vec::new(),
        })
    }

    /// Starts all ranks; if one cannot be started, the others are ended.
    fn start(&mut self) {
        match &self.crew {
            Crew::Here(_) => self.start_here(),
            Crew::Afar(_) => self.start_agents(),
        }
    }

    /// Says where a rank runs, if that was asked for.
    fn say_place(&mut self, rank: usize, place: &str) {
        if self.options.verbose || self.options.report_bindings {
            let Rank {
                program, host, pid, ..
            } = &self.ranks[rank];
            let text = format!("rank {rank}: {program} on {host}, pid {pid}, {place}");
            self.output.say(&text);
        }
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
                    .map(|(n, r)| format!("{n} (pid {} on {})", r.pid, r.host))
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
        if let Crew::Afar(afar) = &self.crew {
            due.push(afar.due());
        }
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
        self.show_virtual_time(now);
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
        self.hide_virtual_time();
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
                LINE => {
                    let flags = event.flags;
                    if flags.contains(epoll::EventFlags::OUT) {
                        self.attend_line(number);
                    }
                    self.hear(number);
                }
                AGENT => self.hear_agent(number),
                MODEL => self.hear_model(),
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
        self.look_after_agents(now);
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

    /// Writes what is there, and polls for what could not be written; leaves pipes alone whose
    /// output is not taken.
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
                self.tell_agents(&ToAgent::Hold(self.held));
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
        let wants = match &self.input {
            Input::Copied(pump) => pump.wants(),
            Input::Sent(feed) => feed.wants(),
            _ => return,
        };
        let (wanted, flags) = match wants {
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
        match &mut self.input {
            Input::Copied(pump) => match pump.wants() {
                Wants::Input => pump.read(),
                Wants::Room(_) => pump.write(),
                Wants::Nothing => {}
            },
            Input::Sent(feed) => {
                if feed.wants() == Wants::Input
                    && let Some(bytes) = feed.read()
                {
                    self.send_input(bytes);
                }
            }
            _ => {}
        }
    }

    // ---- what ranks and users say ----

    /// Passes a rank's line for the job's log on, without what a terminal would obey.
    fn say_for(&mut self, rank: usize, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        let text = format!("{}: {text}", self.named(rank));
        self.output.say(&text);
    }

    fn abort(&mut self, rank: usize, code: i32, text: &str) {
        let mut said = if text.trim().is_empty() || text.contains("MPI_Abort") {
            format!(
                "{} called MPI_Abort with code {code}; ending the job",
                self.named(rank)
            )
        } else {
            format!(
                "{} had a fatal error; ending the job with status {code}",
                self.named(rank)
            )
        };
        if !text.trim().is_empty() {
            said = format!("{}\n{said}", text.trim_end());
        }
        // A status of 0 would pass for success.
        self.end(&said, if code & 0xff == 0 { 1 } else { code as u8 });
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
                self.flush_agents();
                // SAFETY: a plain system call; mpiexec stops here until it is told to go on.
                unsafe { libc::raise(libc::SIGSTOP) };
            }
            libc::SIGCONT => {
                match &mut self.input {
                    Input::Copied(pump) => pump.resume(),
                    Input::Sent(feed) => feed.resume(),
                    _ => {}
                }
                self.forgive_agents();
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
    fn send(&mut self, signal: c_int) {
        match &self.crew {
            Crew::Here(_) => {
                for (_, rank) in self.living() {
                    signals::send_to_group(rank.pid, signal);
                }
            }
            Crew::Afar(_) => self.tell_agents(&ToAgent::Signal(signal)),
        }
    }

    fn living(&self) -> impl Iterator<Item = (usize, &Rank)> {
        self.ranks
            .iter()
            .enumerate()
            .filter(|(_, r)| r.ended.is_none())
    }
}

fn borrowed(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: used at once, for descriptors that the job's streams, pump and sinks own.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
