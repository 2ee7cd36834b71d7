//! Ranks on other hosts: mpiexec's side of its agents.

mod command;
mod health;
mod messages;
mod send;
mod start;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ferry_job::RankState;

use super::WaitStatus;
use crate::hang::{RankView, view_of};
use crate::options::{Options, StdinTarget};
use crate::plan::Plan;
use crate::protocol::{self, LaunchSpec, SendQueue};
use crate::start::StartError;
use command::{agent_path, command};

/// An agent that has not greeted after this time is given up, unless --host-timeout is longer.
/// Logging in through ssh takes seconds; its own ConnectTimeout is 20 s.
const AGENT_START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the launcher's exit status is waited for after its connection has closed. It tells why.
const LAUNCHER_EXIT_WAIT: Duration = Duration::from_millis(500);
/// Bytes read from an agent at once.
const READ_BYTES: usize = 256 * 1024;

/// The agents and what is known of their ranks.
pub(super) struct RemoteRanks {
    agents: Vec<AgentLink>,
    spec: LaunchSpec,
    commands: Vec<Vec<OsString>>,
    views: Vec<RankView>,
    awake: Vec<bool>,
    states: Vec<RankState>,
    /// Ranks that read standard input.
    readers: Vec<u32>,
    silence_limit: Option<Duration>,
    next_heartbeat: Instant,
    last_check: Instant,
    /// The last question to the agents about their status pages.
    pages_question: u64,
    buffer: Vec<u8>,
}

/// The connection to a host's agent.
struct AgentLink {
    host: String,
    /// The launcher: ssh, srun or whatever started the agent.
    launcher_pid: i32,
    launcher_exit: Option<WaitStatus>,
    to: Option<OwnedFd>,
    from: Option<OwnedFd>,
    /// Received bytes that make no whole frame yet.
    received: Vec<u8>,
    send_queue: SendQueue,
    /// `to` is polled for writing, because not all of the queue could be written.
    write_polled: bool,
    connected: bool,
    done: bool,
    last_received: Instant,
    /// The last question that it has answered: see [`ToAgent::ConfirmPages`].
    ///
    /// [`ToAgent::ConfirmPages`]: protocol::ToAgent::ConfirmPages
    confirmed: u64,
    closed_at: Option<Instant>,
    lost: bool,
}

impl AgentLink {
    /// Its launcher was started as process `launcher_pid`, with these pipes.
    fn new(host: &str, launcher_pid: i32, to: OwnedFd, from: OwnedFd) -> AgentLink {
        AgentLink {
            host: host.into(),
            launcher_pid,
            launcher_exit: None,
            to: Some(to),
            from: Some(from),
            received: Vec::new(),
            send_queue: SendQueue::default(),
            write_polled: false,
            connected: false,
            done: false,
            last_received: Instant::now(),
            confirmed: 0,
            closed_at: None,
            lost: false,
        }
    }
}

impl RemoteRanks {
    /// Prepares the commands that start agents. Starts none.
    pub(super) fn new(
        options: &Options,
        plan: &Plan,
        job: u64,
        key: [u8; 32],
        universe: u32,
        parent: &str,
    ) -> Result<RemoteRanks, StartError> {
        let agent = agent_path(options);
        let commands = plan
            .addresses
            .iter()
            .map(|(host, local)| command(options.launcher.as_deref(), host, *local, &agent))
            .collect::<Result<Vec<_>, _>>()
            .map_err(StartError::new)?;
        let readers = match options.stdin {
            StdinTarget::None => Vec::new(),
            StdinTarget::All => (0..plan.ranks() as u32).collect(),
            StdinTarget::Rank(rank) => vec![rank],
        };
        let silence_limit = (!options.host_timeout.is_zero()).then_some(options.host_timeout);
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let now = Instant::now();
        let blank = protocol::StatusPage::default();
        Ok(RemoteRanks {
            agents: Vec::new(),
            spec: LaunchSpec {
                job,
                key,
                parent: parent.into(),
                universe,
                hosts: plan.hosts.clone(),
                host_of: plan.host_of.clone(),
                host: 0,
                app_of: plan.app_of.clone(),
                programs: plan.programs.clone(),
                directory: directory.as_os_str().into(),
                binding: options.bind.number(),
                readers: readers.clone(),
                silence: silence_limit.map_or(0, |s| s.as_millis() as u32),
            },
            commands,
            views: vec![view_of(&blank, 0); plan.ranks()],
            awake: vec![true; plan.ranks()],
            states: vec![RankState::Started; plan.ranks()],
            readers,
            silence_limit,
            next_heartbeat: now,
            last_check: now,
            pages_question: 0,
            buffer: vec![0; READ_BYTES],
        })
    }

    pub(super) fn job(&self) -> u64 {
        self.spec.job
    }
    pub(super) fn universe(&self) -> u32 {
        self.spec.universe
    }
    pub(super) fn state(&self, rank: usize) -> RankState {
        self.states[rank]
    }
    pub(super) fn awake(&self, rank: usize) -> bool {
        self.awake[rank]
    }
    pub(super) fn views(&self) -> &[RankView] {
        &self.views
    }
    /// Time of the next heartbeat.
    pub(super) fn next_check(&self) -> Instant {
        self.next_heartbeat
    }
    /// The launcher of an agent has ended.
    pub(super) fn launcher_exited(&mut self, pid: i32, end: WaitStatus) {
        if let Some(link) = self.agents.iter_mut().find(|l| l.launcher_pid == pid) {
            link.launcher_exit = Some(end);
        }
    }

    fn heartbeat_interval(&self) -> Duration {
        self.silence_limit
            .map_or(Duration::from_secs(1), |s| s / 4)
            .min(Duration::from_secs(1))
    }
}
