//! Ranks on other hosts, which agents run.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferry_job::{RankState, RankStatus};
use rustix::event::epoll;
use rustix::fs::{OFlags, fcntl_setfl};

use super::watch::view_of;
use super::{AGENT, AGENT_ROOM, Crew, End, Job, PATIENCE};
use crate::agent;
use crate::frame::{self, Opening, Orders, PREAMBLE, Queue, ToAgent, ToHead};
use crate::hang::RankView;
use crate::options::{Binding, Options, StdinTarget};
use crate::output::Channel;
use crate::plan::Plan;
use crate::start::NotStarted;
use crate::stdin::Input;

/// Logging in may take so long at least.
const START: Duration = Duration::from_secs(30);
/// How long the starter's exit status is waited for after its connection has closed.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Bytes read at once.
const READ: usize = 256 * 1024;

/// The agents and what is known of their ranks.
pub(super) struct Afar {
    links: Vec<Link>,
    orders: Orders,
    commands: Vec<Vec<OsString>>,
    views: Vec<RankView>,
    awake: Vec<bool>,
    states: Vec<RankState>,
    /// Ranks that read standard input.
    readers: Vec<u32>,
    silence: Option<Duration>,
    next_beat: Instant,
    last_look: Instant,
    buffer: Vec<u8>,
}

/// The connection to a host's agent.
struct Link {
    host: String,
    /// What started it, and waits for its end.
    starter: i32,
    starter_end: Option<End>,
    to: Option<OwnedFd>,
    from: Option<OwnedFd>,
    /// Bytes that have come and make no whole frame yet.
    partial: Vec<u8>,
    queue: Queue,
    /// The queue waits for room.
    armed: bool,
    greeted: bool,
    done: bool,
    heard: Instant,
    closed: Option<Instant>,
    lost: bool,
}

impl Afar {
    /// Looks at how agents are started; starts none.
    pub(super) fn new(
        options: &Options,
        plan: &Plan,
        job: u64,
        key: [u8; 32],
    ) -> Result<Afar, NotStarted> {
        let agent = agent_path(options);
        let commands = plan
            .addresses
            .iter()
            .map(|(host, here)| command(options.launcher.as_deref(), host, *here, &agent))
            .collect::<Result<Vec<_>, _>>()
            .map_err(NotStarted::because)?;
        let readers = match options.stdin {
            StdinTarget::None => Vec::new(),
            StdinTarget::All => (0..plan.ranks() as u32).collect(),
            StdinTarget::Rank(rank) => vec![rank],
        };
        let silence = (!options.host_timeout.is_zero()).then_some(options.host_timeout);
        let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let now = Instant::now();
        let blank = frame::Page::default();
        Ok(Afar {
            links: Vec::new(),
            orders: Orders {
                job,
                key,
                hosts: plan.hosts.clone(),
                host_of: plan.host_of.clone(),
                host: 0,
                app_of: plan.app_of.clone(),
                programs: plan.programs.clone(),
                directory: directory.as_os_str().into(),
                binding: match options.bind {
                    Binding::Share => 0,
                    Binding::Core => 1,
                    Binding::None => 2,
                },
                readers: readers.clone(),
                silence: silence.map_or(0, |s| s.as_millis() as u32),
            },
            commands,
            views: vec![view_of(&blank, 0); plan.ranks()],
            awake: vec![true; plan.ranks()],
            states: vec![RankState::Started; plan.ranks()],
            readers,
            silence,
            next_beat: now,
            last_look: now,
            buffer: vec![0; READ],
        })
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
    /// When to look after the agents next.
    pub(super) fn due(&self) -> Instant {
        self.next_beat
    }
    /// What had started an agent has ended.
    pub(super) fn starter_ended(&mut self, pid: i32, end: End) {
        if let Some(link) = self.links.iter_mut().find(|l| l.starter == pid) {
            link.starter_end = Some(end);
        }
    }

    fn beat(&self) -> Duration {
        self.silence
            .map_or(Duration::from_secs(1), |s| s / 4)
            .min(Duration::from_secs(1))
    }
}

/// mpiexec on the other hosts.
fn agent_path(options: &Options) -> PathBuf {
    if let Some(path) = &options.launcher_path {
        return path.clone();
    }
    if let Some(prefix) = std::env::var_os("FERRY_PREFIX").filter(|p| !p.is_empty()) {
        return Path::new(&prefix).join("bin/mpiexec");
    }
    std::env::current_exe().unwrap_or_else(|_| "mpiexec".into())
}

/// The command that starts the agent of a host.
fn command(
    launcher: Option<&str>,
    host: &str,
    here: bool,
    agent: &Path,
) -> Result<Vec<OsString>, String> {
    let agent = [agent.as_os_str().to_owned(), OsString::from(agent::OPTION)];
    let slurm = std::env::var_os("SLURM_JOB_ID").is_some();
    let launcher = match launcher {
        None | Some("fork") if here => return Ok(agent.to_vec()),
        None if slurm => "srun",
        None | Some("auto") => "ssh",
        Some("slurm") => "srun",
        Some(text) => text,
    };
    let words = split(launcher)?;
    let Some(first) = words.first() else {
        return Err("--launcher names no command".into());
    };
    let name = Path::new(first).file_name().unwrap_or_default().to_owned();
    let mut all: Vec<OsString> = words.iter().map(OsString::from).collect();
    if words.iter().any(|w| w.contains("{host}")) {
        all = words
            .iter()
            .map(|w| w.replace("{host}", host).into())
            .collect();
        all.extend(agent);
    } else if name == "srun" {
        let own = [
            "-N1",
            "-n1",
            "--overlap",
            "--mpi=none",
            "--unbuffered",
            "--cpu-bind=none",
        ];
        all.extend(own.map(OsString::from));
        all.extend([OsString::from("-w"), host.into()]);
        all.extend(agent);
    } else if name == "ssh" || name == "rsh" {
        if name == "ssh" {
            let own = ["-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"];
            all.extend(own.map(OsString::from));
        }
        all.push(host.into());
        // A login shell reads this.
        all.extend(agent.iter().map(|word| quoted(word)));
    } else {
        all.push(host.into());
        all.extend(agent);
    }
    Ok(all)
}

/// A word in quotes that every shell understands.
fn quoted(word: &OsStr) -> OsString {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+=:@%".contains(b);
    if word.as_bytes().iter().all(plain) {
        return word.to_owned();
    }
    let mut out = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            other => out.push(other),
        }
    }
    out.push(b'\'');
    OsString::from_vec(out)
}

/// A command's words, with quotes as shells have them.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        Some(q) => Err(format!("--launcher {text:?}: a {q} is missing")),
        None => Ok(words),
    }
}

impl Job<'_> {
    fn afar(&mut self) -> Option<&mut Afar> {
        match &mut self.crew {
            Crew::Afar(afar) => Some(afar),
            Crew::Here(_) => None,
        }
    }

    /// Starts all agents at once.
    pub(super) fn start_agents(&mut self) {
        let size = self.ranks.len();
        self.alive = size;
        for rank in 0..size {
            self.output.add_afar(rank);
        }
        let Some(afar) = self.afar() else { return };
        let (commands, hosts) = (afar.commands.clone(), afar.orders.hosts.clone());
        for (number, (command, host)) in commands.iter().zip(hosts).enumerate() {
            if let Err(e) = self.start_agent(number, command, &host) {
                // Those that have started are ended; those that have not have no ranks.
                let text = format!("the agent of host {host} cannot be started: {e}");
                let unlinked: Vec<usize> = (0..size)
                    .filter(|&r| match &self.crew {
                        Crew::Afar(a) => a.orders.host_of[r] as usize >= a.links.len(),
                        Crew::Here(_) => false,
                    })
                    .collect();
                self.forget(unlinked.into_iter());
                self.end(&text, 1);
                return;
            }
        }
    }

    fn start_agent(&mut self, number: usize, words: &[OsString], host: &str) -> Result<(), String> {
        let Some((program, arguments)) = words.split_first() else {
            return Err("there is no command".into());
        };
        if self.options.verbose {
            let shown: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
            self.output
                .say(&format!("host {host}: {}", shown.join(" ")));
        }
        let mask = self.signals.before;
        let unblock = move || {
            // SAFETY: a plain system call on a copy of the mask.
            unsafe { libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut()) };
            Ok(())
        };
        let mut command = Command::new(program);
        // SAFETY: between fork and exec it makes one system call.
        unsafe { command.pre_exec(unblock) };
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // The terminal's signals are passed on by mpiexec, not by what starts its agents.
            .process_group(0)
            .spawn()
            .map_err(|e| format!("{}: {e}", program.to_string_lossy()))?;
        let pid = child.id() as i32;
        let nonblocking = |fd: Option<OwnedFd>| {
            let fd = fd.ok_or("there is no pipe")?;
            fcntl_setfl(&fd, OFlags::NONBLOCK).map_err(|e| e.to_string())?;
            Ok::<_, String>(fd)
        };
        let to = nonblocking(child.stdin.take().map(OwnedFd::from))?;
        let from = nonblocking(child.stdout.take().map(OwnedFd::from))?;
        let words = nonblocking(child.stderr.take().map(OwnedFd::from))?;
        let token = epoll::EventData::new_u64(AGENT | number as u64);
        epoll::add(&self.poll, &from, token, epoll::EventFlags::IN).map_err(|e| e.to_string())?;
        let stream = self
            .output
            .add(self.ranks.len() + number, Channel::Err, words);
        self.attend_stream(stream);
        if let Some(afar) = self.afar() {
            afar.links.push(Link {
                host: host.into(),
                starter: pid,
                starter_end: None,
                to: Some(to),
                from: Some(from),
                partial: Vec::new(),
                queue: Queue::default(),
                armed: false,
                greeted: false,
                done: false,
                heard: Instant::now(),
                closed: None,
                lost: false,
            });
        }
        Ok(())
    }

    /// Reads what an agent says.
    pub(super) fn hear_agent(&mut self, number: usize) {
        let Some(afar) = self.afar() else { return };
        let buffer = &mut afar.buffer;
        let link = &mut afar.links[number];
        let Some(from) = &link.from else { return };
        // Once round: others have something to say, too.
        match rustix::io::read(from, buffer.as_mut_slice()) {
            Ok(0) => self.agent_closed(number),
            Ok(n) => {
                link.heard = Instant::now();
                link.partial.extend_from_slice(&buffer[..n]);
                self.read_frames(number);
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => self.agent_closed(number),
        }
    }

    fn agent_closed(&mut self, number: usize) {
        let ending = self.ending.is_some();
        let Some(afar) = self.afar() else { return };
        let link = &mut afar.links[number];
        link.from = None;
        link.closed = Some(Instant::now());
        if link.done || ending && !link.greeted {
            link.to = None;
        }
    }

    fn read_frames(&mut self, number: usize) {
        let ending = self.ending.is_some();
        let Some(afar) = self.afar() else { return };
        let link = &mut afar.links[number];
        if !link.greeted {
            match frame::opening(&link.partial) {
                Opening::Waiting => return,
                Opening::Wrong(text) => return self.lose(number, &text),
                Opening::Open(at) => {
                    link.greeted = true;
                    link.partial.drain(..at);
                    if ending {
                        // It has no orders, and goes when its input ends.
                        link.to = None;
                        return;
                    }
                    link.queue.push_raw(&PREAMBLE);
                    link.queue.push_raw(&frame::PROTOCOL.to_le_bytes());
                    let mut orders = afar.orders.clone();
                    orders.host = number as u32;
                    link.queue.push(&ToAgent::Orders(Box::new(orders)));
                }
            }
        }
        let mut at = 0;
        let bytes = match self.afar() {
            Some(afar) => std::mem::take(&mut afar.links[number].partial),
            None => return,
        };
        loop {
            match frame::decode::<ToHead>(&bytes[at..]) {
                Ok(Some((message, len))) => {
                    at += len;
                    if let Err(text) = self.take_message(number, message) {
                        return self.lose(number, &text);
                    }
                }
                Ok(None) => break,
                Err(text) => return self.lose(number, &format!("it sends {text}")),
            }
        }
        if let Some(afar) = self.afar() {
            afar.links[number].partial = bytes[at..].to_vec();
        }
    }

    /// Deals with one message of an agent.
    ///
    /// # Errors
    /// It speaks of ranks that are not its.
    fn take_message(&mut self, number: usize, message: ToHead) -> Result<(), String> {
        match message {
            ToHead::Started { rank, pid, place } => {
                let rank = self.rank_of(number, rank)?;
                self.ranks[rank].pid = pid.max(1);
                self.say_place(rank, &place);
            }
            ToHead::NotStarted { text, status } => {
                let host = self.host_name(number);
                self.end(&format!("{text} (on {host})"), status.max(1));
            }
            ToHead::Output { rank, error, bytes } => {
                let channel = if error { Channel::Err } else { Channel::Out };
                let rank = self.rank_of(number, rank)?;
                self.output.feed(rank, channel, &bytes);
            }
            ToHead::Pages(pages) => {
                let now = RankStatus::now();
                for page in pages {
                    let rank = self.rank_of(number, page.rank)?;
                    if let Some(afar) = self.afar() {
                        afar.states[rank] = RankState::from_number(page.state);
                        afar.awake[rank] = page.awake;
                        afar.views[rank] = view_of(&page, now.saturating_sub(page.age));
                    }
                }
            }
            ToHead::Abort { rank, code, text } => {
                let rank = self.rank_of(number, rank)?;
                self.abort(rank, code, &text);
            }
            ToHead::Say { rank, text } => {
                let rank = self.rank_of(number, rank)?;
                self.say_for(rank, &text);
            }
            ToHead::Put { wire, rank, card } => {
                let rank = self.rank_of(number, rank)? as u32;
                for asker in self.cards.put(&wire, rank, card) {
                    self.send_card(&wire, rank, asker);
                }
            }
            ToHead::Get { wire, rank } => self.send_card(&wire, rank, number),
            ToHead::Ended {
                rank,
                status,
                state,
            } => {
                let rank = self.rank_of(number, rank)?;
                if let Some(afar) = self.afar() {
                    afar.states[rank] = RankState::from_number(state);
                }
                if self.ranks[rank].ended.replace(End(status)).is_none() {
                    self.alive -= 1;
                    self.judge(rank, End(status));
                }
            }
            ToHead::InputTaken => {
                if let Input::Sent(feed) = &mut self.input {
                    feed.outstanding = feed.outstanding.saturating_sub(1);
                }
            }
            ToHead::Beat => {}
            ToHead::Done => {
                // Ranks that were never started.
                let there = self.ranks_on(number);
                self.forget(there.into_iter());
                if let Some(afar) = self.afar() {
                    let link = &mut afar.links[number];
                    link.done = true;
                    link.to = None;
                }
            }
        }
        self.open_input();
        Ok(())
    }

    /// A rank that an agent speaks of, if it is one of its own.
    fn rank_of(&self, number: usize, rank: u32) -> Result<usize, String> {
        let host = match &self.crew {
            Crew::Afar(afar) => afar.orders.host_of.get(rank as usize),
            Crew::Here(_) => None,
        };
        match host {
            Some(&host) if host as usize == number => Ok(rank as usize),
            _ => Err(format!("it speaks of rank {rank}, which is not there")),
        }
    }

    /// The ranks of a host that have not ended.
    fn ranks_on(&self, number: usize) -> Vec<usize> {
        (0..self.ranks.len())
            .filter(|&r| self.ranks[r].ended.is_none() && self.rank_of(number, r as u32).is_ok())
            .collect()
    }

    fn host_name(&mut self, number: usize) -> String {
        self.afar()
            .map_or_else(String::new, |a| a.links[number].host.clone())
    }

    fn send_card(&mut self, wire: &str, rank: u32, host: usize) {
        let Ok(card) = self.cards.get(wire, rank, host) else {
            return;
        };
        let message = ToAgent::Card {
            wire: wire.into(),
            rank,
            card: card.to_vec(),
        };
        if let Some(afar) = self.afar() {
            afar.links[host].queue.push(&message);
        }
    }

    /// These ranks will never be heard of again.
    fn forget(&mut self, ranks: impl Iterator<Item = usize>) {
        for rank in ranks {
            if self.ranks[rank].ended.is_none() {
                self.ranks[rank].ended = Some(End(0));
                self.alive -= 1;
            }
        }
    }

    /// A host is gone, or of no use any more: its ranks are given up and the job is ended.
    fn lose(&mut self, number: usize, why: &str) {
        let size = self.ranks.len();
        self.output.drain(2 * (size + number) + 1);
        let Some(afar) = self.afar() else { return };
        let link = &mut afar.links[number];
        if std::mem::replace(&mut link.lost, true) {
            return;
        }
        link.to = None;
        link.from = None;
        let (greeted, host, starter) = (link.greeted, link.host.clone(), link.starter);
        if link.starter_end.is_none() {
            // SAFETY: a child of ours that has not been waited for, in a group of its own.
            unsafe { libc::kill(-starter, libc::SIGKILL) };
        }
        let gone = self.ranks_on(number);
        let named = crate::hang::ranks_named(&gone);
        self.forget(gone.into_iter());
        let text = if greeted {
            format!("host {host} is lost with {named}: {why}")
        } else {
            format!("host {host} cannot be used for {named}: {why}")
        };
        self.end(&format!("{text}; ending the job"), 1);
    }

    /// Sends beats, and looks for hosts that are silent or have closed their connection.
    pub(super) fn look_after_agents(&mut self, now: Instant) {
        let ending = self.ending.is_some();
        let Some(afar) = self.afar() else { return };
        let beat = afar.beat();
        if now.duration_since(afar.last_look) > beat * 2 {
            // It was mpiexec that stood still.
            afar.links.iter_mut().for_each(|l| l.heard = now);
        }
        afar.last_look = now;
        let due = now >= afar.next_beat;
        if due {
            afar.next_beat = now + beat;
        }
        let silence = afar.silence;
        let mut lost = Vec::new();
        for (number, link) in afar.links.iter_mut().enumerate() {
            if link.done || link.lost {
                continue;
            }
            if let Some(closed) = link.closed {
                match link.starter_end {
                    Some(end) => {
                        let what = if link.greeted {
                            "its agent's connection has closed; what started it"
                        } else {
                            "what was to start mpiexec there"
                        };
                        lost.push((number, format!("{what} {}", end.described())));
                    }
                    None if now.duration_since(closed) > LAST_WORDS => {
                        lost.push((number, "its agent's connection has closed".into()));
                    }
                    None => afar.next_beat = afar.next_beat.min(closed + LAST_WORDS),
                }
                continue;
            }
            let silent = now.duration_since(link.heard);
            match silence {
                Some(limit) if link.greeted && silent > limit => lost.push((
                    number,
                    format!(
                        "nothing has been heard of it for {} s (--host-timeout)",
                        limit.as_secs_f64()
                    ),
                )),
                Some(limit) if !link.greeted && silent > START.max(limit) => lost.push((
                    number,
                    format!(
                        "no agent has answered for {} s",
                        START.max(limit).as_secs_f64()
                    ),
                )),
                _ => {}
            }
            if !link.greeted && ending {
                lost.push((number, "it was not needed any more".into()));
            } else if due && link.greeted && link.queue.len() == 0 {
                link.queue.push(&ToAgent::Beat);
            }
        }
        for (number, why) in lost {
            self.lose(number, &why);
        }
        self.flush_agents();
    }

    /// mpiexec was stopped and goes on: nobody was silent but itself.
    pub(super) fn forgive_agents(&mut self) {
        let now = Instant::now();
        if let Some(afar) = self.afar() {
            afar.links.iter_mut().for_each(|l| l.heard = now);
        }
    }

    /// Says something to all agents that have orders.
    pub(super) fn tell_agents(&mut self, message: &ToAgent) {
        if let Some(afar) = self.afar() {
            for link in afar.links.iter_mut().filter(|l| l.greeted && !l.done) {
                link.queue.push(message);
            }
        }
        self.flush_agents();
    }

    /// Writes what waits for agents, and polls for room where there is none.
    pub(super) fn flush_agents(&mut self) {
        let Crew::Afar(afar) = &mut self.crew else {
            return;
        };
        for (number, link) in afar.links.iter_mut().enumerate() {
            let Some(to) = &link.to else { continue };
            if link.queue.flush(to).is_err() {
                // It has gone; its own end of the connection says so.
                link.to = None;
                continue;
            }
            let waits = link.queue.len() > 0;
            if waits != link.armed {
                let token = epoll::EventData::new_u64(AGENT_ROOM | number as u64);
                let done = if waits {
                    epoll::add(&self.poll, to, token, epoll::EventFlags::OUT)
                } else {
                    epoll::delete(&self.poll, to.as_fd())
                };
                link.armed = waits == done.is_ok();
            }
        }
    }

    /// Reads standard input once those that want it run.
    fn open_input(&mut self) {
        let Crew::Afar(afar) = &self.crew else { return };
        if let Input::Sent(feed) = &mut self.input
            && !feed.wanted
        {
            feed.wanted = afar
                .readers
                .iter()
                .all(|&r| self.ranks[r as usize].pid != 0);
        }
    }

    /// Sends a piece of standard input to the hosts whose ranks read it.
    pub(super) fn send_input(&mut self, bytes: Vec<u8>) {
        let Crew::Afar(afar) = &mut self.crew else {
            return;
        };
        let mut hosts: Vec<u32> = afar
            .readers
            .iter()
            .map(|&r| afar.orders.host_of[r as usize])
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let message = ToAgent::Input(bytes);
        let mut outstanding = 0;
        for host in hosts {
            let link = &mut afar.links[host as usize];
            if !link.done && !link.lost {
                link.queue.push(&message);
                outstanding += 1;
            }
        }
        if let Input::Sent(feed) = &mut self.input {
            feed.outstanding = outstanding;
        }
        self.flush_agents();
    }

    /// All ranks have ended: waits for the agents to clear up, and ends those that do not.
    pub(super) fn dismiss_agents(&mut self, events: &mut Vec<epoll::Event>) {
        let began = Instant::now();
        while let Crew::Afar(afar) = &mut self.crew {
            for link in &mut afar.links {
                if link.lost || link.closed.is_some() {
                    link.to = None;
                }
            }
            let all_gone = afar.links.iter().all(|l| l.starter_end.is_some() || l.lost);
            if all_gone || began.elapsed() > PATIENCE {
                for link in &afar.links {
                    if link.starter_end.is_none() {
                        // SAFETY: a child of ours that has not been waited for, in a group of its
                        // own.
                        unsafe { libc::kill(-link.starter, libc::SIGKILL) };
                    }
                }
                return;
            }
            self.turn(events);
            self.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(launcher: Option<&str>, host: &str, here: bool) -> String {
        let words = command(launcher, host, here, Path::new("/opt/my mpi/mpiexec")).unwrap();
        let shown: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
        shown.join("|")
    }

    #[test]
    fn agents_are_started_as_the_user_says() {
        assert_eq!(
            words(None, "a", false),
            "ssh|-x|-T|-o|BatchMode=yes|-o|ConnectTimeout=20|a|'/opt/my mpi/mpiexec'|--ferry-agent"
        );
        assert_eq!(words(None, "a", true), "/opt/my mpi/mpiexec|--ferry-agent");
        assert_eq!(
            words(Some("ip netns exec"), "a", true),
            "ip|netns|exec|a|/opt/my mpi/mpiexec|--ferry-agent"
        );
        assert_eq!(
            words(Some("kubectl exec -i 'pod {host}' --"), "a", false),
            "kubectl|exec|-i|pod a|--|/opt/my mpi/mpiexec|--ferry-agent"
        );
        assert!(words(Some("slurm"), "n1", false).starts_with("srun|-N1|-n1|--overlap|"));
        assert!(command(Some("'x"), "a", false, Path::new("m")).is_err());
        assert!(command(Some(" "), "a", false, Path::new("m")).is_err());
    }
}
