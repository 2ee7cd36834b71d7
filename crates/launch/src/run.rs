//! A job from its start to its exit status: one loop around one epoll instance.

mod contact;
mod exit;
mod forward;
mod hang_check;
mod local;
mod modelled;
mod names;
mod other_mpi;
mod parent;
mod peers;
mod remote;
mod signals;
mod spawned;
mod statement;

use std::ffi::c_int;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

use ferry_job::{CardStore, Cores, JobInfo, Nodes};
use rustix::event::{Timespec, epoll};

use crate::forward::{Input, Output};
use crate::options::Options;
use crate::plan::Plan;
use crate::signals::Signals;
use crate::start::{KILL_DELAY, REAP_TIMEOUT, RankStarter, StartError};
use exit::WaitStatus;
use forward::Streams;
use hang_check::{HangCheck, STATUS_INTERVAL};
use local::LocalRanks;
use modelled::MachineModel;
use names::Names;
use other_mpi::OtherMpiWatch;
use parent::Parent;
pub use parent::{answer_name, run_spawned};
use peers::Peers;
use remote::RemoteRanks;
use spawned::SpawnedLaunchers;

/// mpiexec's exit status after --timeout, that of timeout(1).
const STATUS_TIMEOUT: u8 = 124;
/// mpiexec's exit status after a hang.
const STATUS_HANG: u8 = 125;

/// Runs a job to its end. Returns mpiexec's exit status.
pub fn run(options: &Options) -> u8 {
    run_for(options, None, None)
}

/// As [`run`]; `parent` is the rank that has ordered the job, `upstream` the socket to the launcher
/// that has started this one, and the number of its family.
fn run_for(
    options: &Options,
    mut parent: Option<Parent>,
    upstream: Option<(UnixStream, u64)>,
) -> u8 {
    let port = parent.as_ref().map_or("", |p| p.port());
    let clock = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let id = u64::from(std::process::id()) << 32
        | (u64::from(clock.subsec_nanos()) ^ clock.as_secs()) & 0xffff_ffff;
    let ready = Plan::make(options).and_then(|plan| {
        let backend = Backend::prepare(options, &plan, id, port)?;
        Ok((plan, backend))
    });
    let (plan, backend) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            match &mut parent {
                Some(parent) => {
                    parent.failed(&error.text);
                    return 0;
                }
                None => crate::complain(&error.text),
            }
            return error.status;
        }
    };
    match Job::new(options, &plan, backend, parent, Peers::new(id, upstream)) {
        Ok(mut job) => {
            job.start();
            job.run_loop()
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
    backend: Backend,
    /// The modelled machine, if there is one.
    modelled: Option<MachineModel>,
    /// The business cards of all ranks. Askers are ranks if all ranks are here, else hosts.
    business_cards: CardStore,
    /// Ranks that have started and not ended. Those on other hosts count from the beginning.
    alive: usize,
    poll: OwnedFd,
    signals: Signals,
    streams: Streams,
    started_at: Instant,
    hang: HangCheck,
    other_mpi: OtherMpiWatch,
    /// Set while the job is being ended.
    shutdown: Option<Shutdown>,
    /// The highest exit status so far.
    status: u8,
    /// Signals by which the user asked for the end.
    end_requests: u32,
    /// The signals passed on to the ranks.
    forwarded_signals: Vec<c_int>,
    /// The rank that has ordered this job (MPI_Comm_spawn), as long as both depend on each other.
    parent: Option<Parent>,
    /// Launchers of other jobs.
    peers: Peers,
    /// Launchers of jobs that ranks of this one have ordered.
    spawned: SpawnedLaunchers,
    /// Published names.
    names: Names,
}

/// What runs the ranks.
enum Backend {
    /// This process.
    Local(Box<LocalRanks>),
    /// Agents, one for each host.
    Remote(Box<RemoteRanks>),
}

struct Rank {
    /// 0 until it has started.
    pid: i32,
    program: String,
    host: String,
    ended: Option<WaitStatus>,
}

/// How the job is being ended.
struct Shutdown {
    since: Instant,
    status: u8,
    killed: bool,
}

/// What an epoll event is about: its kind in the upper 32 bits, a rank, stream or host in the
/// lower.
const EVENT_SIGNAL: u64 = 0;
const EVENT_STREAM: u64 = 1 << 32;
const EVENT_RANK: u64 = 2 << 32;
const EVENT_WRITABLE: u64 = 3 << 32;
const EVENT_STDIN: u64 = 4 << 32;
const EVENT_AGENT: u64 = 5 << 32;
const EVENT_MODEL: u64 = 7 << 32;
const EVENT_FRAME: u64 = 8 << 32;
const EVENT_AGENT_WRITABLE: u64 = 6 << 32;
const EVENT_PARENT: u64 = 9 << 32;
const EVENT_NAMES: u64 = 10 << 32;
const EVENT_RELAY: u64 = 11 << 32;
const EVENT_KIND: u64 = !0 << 32;

impl Backend {
    fn prepare(
        options: &Options,
        plan: &Plan,
        job: u64,
        port: &str,
    ) -> Result<Backend, StartError> {
        let key = ferry_job::new_key()
            .map_err(|e| StartError::new(format!("the job's key cannot be made: {e}")))?;
        let size = plan.ranks() as u32;
        let cores = || Cores::here().usable() as u32;
        let universe = options.universe.or(plan.slots).unwrap_or_else(cores);
        let universe = universe.max(size);
        if plan.uses_agents {
            return RemoteRanks::new(options, plan, job, key, universe, port)
                .map(|remote| Backend::Remote(Box::new(remote)));
        }
        let nodes = Nodes::one(&plan.hosts[0], size);
        let job_info = JobInfo {
            job,
            size,
            key,
            parent: port.into(),
            universe,
            nodes,
        };
        let mut starter =
            RankStarter::prepare(&plan.programs, &plan.app_of, job_info, 0, options.bind)?;
        if let Some(asked) = &options.machine {
            modelled::prepare(asked, options.bind, &mut starter)?;
        }
        Ok(Backend::Local(Box::new(LocalRanks::new(starter))))
    }
}

impl<'a> Job<'a> {
    fn new(
        options: &'a Options,
        plan: &Plan,
        mut backend: Backend,
        parent: Option<Parent>,
        peers: Peers,
    ) -> io::Result<Job<'a>> {
        let signals = Signals::block()?;
        if let Backend::Local(local) = &mut backend {
            local.watch_parent()?;
        }
        // Orphans of the ranks become children of mpiexec, which can so end them.
        // SAFETY: a plain system call.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &poll,
            signals.fd(),
            epoll::EventData::new_u64(EVENT_SIGNAL),
            epoll::EventFlags::IN,
        )?;
        if let Some(parent) = &parent {
            let token = epoll::EventData::new_u64(EVENT_PARENT);
            epoll::add(&poll, parent, token, epoll::EventFlags::IN)?;
        }
        let now = Instant::now();
        let size = plan.ranks();
        let ranks = (0..size).map(|rank| Rank {
            pid: 0,
            program: plan.program_of(rank),
            host: plan.hosts[plan.host_of[rank] as usize].clone(),
            ended: None,
        });
        let modelled = match (&mut backend, &options.machine) {
            (Backend::Local(local), Some(asked)) => local.start_model(asked, &poll)?,
            _ => None,
        };
        let others = if plan.uses_agents {
            plan.hosts.len()
        } else {
            0
        };
        Ok(Job {
            options,
            ranks: ranks.collect(),
            backend,
            modelled,
            business_cards: CardStore::default(),
            alive: 0,
            poll,
            signals,
            streams: Streams::new(
                Output::new(size, others, options.label),
                Input::new(options.stdin, plan.uses_agents),
            ),
            started_at: now,
            hang: HangCheck::new(now, size),
            other_mpi: OtherMpiWatch::new(),
            shutdown: None,
            status: 0,
            end_requests: 0,
            forwarded_signals: Vec::new(),
            parent,
            peers,
            spawned: SpawnedLaunchers::default(),
            names: Names::new(options.names.as_deref()),
        })
    }

    /// Starts all ranks. If one cannot be started, the others are ended.
    fn start(&mut self) {
        match &self.backend {
            Backend::Local(_) => self.start_local_ranks(),
            Backend::Remote(_) => self.start_agents(),
        }
    }

    /// Prints where a rank runs, if that was asked for.
    fn report_binding(&mut self, rank: usize, binding: &str) {
        if self.options.verbose || self.options.report_bindings {
            let Rank {
                program, host, pid, ..
            } = &self.ranks[rank];
            let text = format!("rank {rank}: {program} on {host}, pid {pid}, {binding}");
            self.streams.output.print_message(&text);
        }
    }

    fn poll_stream(&self, stream: usize) {
        if let Some(fd) = self.streams.output.descriptor(stream) {
            let token = epoll::EventData::new_u64(EVENT_STREAM | stream as u64);
            let _ = epoll::add(&self.poll, borrowed(fd), token, epoll::EventFlags::IN);
        }
    }

    /// The loop. Returns the exit status.
    fn run_loop(&mut self) -> u8 {
        let mut events = Vec::with_capacity(256);
        while self.alive > 0 || self.spawned.any() {
            self.flush();
            self.poll_once(&mut events);
            if self
                .shutdown
                .as_ref()
                .is_some_and(|e| e.killed && e.since.elapsed() > REAP_TIMEOUT)
            {
                let stuck: Vec<String> = self
                    .living()
                    .map(|(n, r)| format!("{n} (pid {} on {})", r.pid, r.host))
                    .collect();
                self.streams.output.print_message(&format!(
                    "ranks {} do not end although they were killed; leaving them",
                    stuck.join(", ")
                ));
                break;
            }
        }
        self.finish(&mut events)
    }

    /// Waits for the next event or timer, and handles it.
    fn poll_once(&mut self, events: &mut Vec<epoll::Event>) {
        let prompt = self.streams.output.show_prompts(Instant::now());
        self.flush();
        self.poll_stdin();
        let now = Instant::now();
        let wait = self.until_next_timer(now, prompt);
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        self.show_virtual_time(now);
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        if epoll::wait(&self.poll, room, Some(&timeout)).is_err() {
            events.clear();
        }
        self.hide_virtual_time();
        let mut signalled = false;
        for event in events.iter() {
            // Signals last: what a rank has written comes before the news of its end.
            signalled |= event.data.u64() & EVENT_KIND == EVENT_SIGNAL;
            self.handle_event(event);
        }
        if self.streams.input_is_file {
            self.forward_stdin();
        }
        if signalled {
            while let Some(signal) = self.signals.next() {
                self.signal(signal);
            }
        }
        self.check_timers(Instant::now());
    }

    /// Time until the next timer. `prompt`: when output without an end of line is shown.
    fn until_next_timer(&self, now: Instant, prompt: Option<Instant>) -> Duration {
        if self.streams.input_is_file {
            return Duration::ZERO;
        }
        let mut due = vec![self.hang.next_check];
        due.extend(prompt);
        if let Backend::Remote(remote) = &self.backend {
            due.push(remote.next_check());
        }
        due.extend(
            self.options
                .timeout
                .map(|t| self.started_at + t)
                .filter(|_| self.shutdown.is_none()),
        );
        due.extend(self.shutdown.as_ref().map(|e| {
            if e.killed {
                now + STATUS_INTERVAL
            } else {
                e.since + KILL_DELAY
            }
        }));
        due.iter()
            .map(|d| d.saturating_duration_since(now))
            .min()
            .unwrap_or(STATUS_INTERVAL)
    }

    /// Handles an event, except signals.
    fn handle_event(&mut self, event: &epoll::Event) {
        let token = event.data.u64();
        let number = (token & !EVENT_KIND) as usize;
        match token & EVENT_KIND {
            EVENT_STREAM => {
                self.streams.output.read(number);
            }
            EVENT_RANK => {
                let flags = event.flags;
                if flags.contains(epoll::EventFlags::OUT) {
                    self.poll_rank_socket(number);
                }
                self.read_rank_messages(number);
            }
            EVENT_AGENT => self.read_agent(number),
            EVENT_MODEL => self.read_model(),
            EVENT_FRAME => {
                if let Some(modelled) = &self.modelled {
                    modelled.interrupt(number);
                }
            }
            EVENT_STDIN => self.forward_stdin(),
            EVENT_PARENT => self.read_parent(),
            EVENT_NAMES => self.answer_launchers(),
            EVENT_RELAY => self.read_relay(number as u32),
            // Writing is done by the next flush.
            _ => {}
        }
    }

    /// Does what is due by time.
    fn check_timers(&mut self, now: Instant) {
        self.check_agents(now);
        if self.alive > 0 {
            self.check_job(now);
        } else if self.hang.next_check <= now {
            self.publish_finished();
        }
        // Also when all ranks have ended: jobs that they started may not have.
        if self.hang.next_check <= now {
            self.hang.next_check = now + self.hang.interval;
        }
    }

    /// Ends the job if it is time, and looks whether it hangs.
    fn check_job(&mut self, now: Instant) {
        match &mut self.shutdown {
            Some(shutdown) if !shutdown.killed && now >= shutdown.since + KILL_DELAY => {
                shutdown.killed = true;
                self.signal_ranks(libc::SIGKILL);
            }
            Some(_) => {}
            None => {
                if self
                    .options
                    .timeout
                    .is_some_and(|t| now >= self.started_at + t)
                {
                    let seconds = self.options.timeout.unwrap_or_default().as_secs_f64();
                    let text = format!(
                        "the job has run for {seconds} s (--timeout); ending it\n{}",
                        self.wait_report()
                    );
                    self.end(&text, STATUS_TIMEOUT);
                } else if now >= self.hang.next_check {
                    self.hang.next_check = now + self.hang.interval;
                    self.check_for_hang(now);
                    self.look_for_other_mpi();
                }
            }
        }
    }

    /// Prints a rank's line for the job's log, without control characters: a terminal would obey
    /// them.
    fn log_for(&mut self, rank: usize, text: &str) {
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        let text = format!("{}: {text}", self.rank_label(rank));
        self.streams.output.print_message(&text);
    }

    fn abort(&mut self, rank: usize, code: i32, text: &str) {
        let mut message = if text.trim().is_empty() || text.contains("MPI_Abort") {
            format!(
                "{} called MPI_Abort with code {code}; ending the job",
                self.rank_label(rank)
            )
        } else {
            format!(
                "{} had a fatal error; ending the job with status {code}",
                self.rank_label(rank)
            )
        };
        if !text.trim().is_empty() {
            message = format!("{}\n{message}", text.trim_end());
        }
        self.end(&message, ferry_job::abort_status(code));
    }

    /// Ranks that have not ended.
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
