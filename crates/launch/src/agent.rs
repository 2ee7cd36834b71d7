//! mpiexec on another host: runs that host's ranks and does what the head tells it.
//!
//! It has no port and no file: it speaks to the head through its standard input and output, which
//! whatever started it (ssh, srun) carries. When its input ends, or the head has been silent too
//! long, it kills its ranks and goes.

use std::collections::HashMap;
use std::env;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ferry_job::{Cards, Heard, JobTerms, Line, Nodes, Notice, RankStatus, Reply};
use rustix::event::{Timespec, epoll};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use crate::frame::{self, Orders, PIECE, PREAMBLE, Page, Queue, ToAgent, ToHead};
use crate::options::Binding;
use crate::run::{STILL, end_orphans, page_of};
use crate::signals::{self, Signals};
use crate::start::{NotStarted, Starter};
use crate::stdin::{Pump, Wants};
use crate::threads::Sleepers;
use crate::warden::Warden;

/// The argument that makes mpiexec an agent.
pub const OPTION: &str = "--ferry-agent";
/// How often the ranks' status pages are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// Once so many bytes wait for the head, ranks' output is left alone.
const QUEUE_HIGH: usize = 1 << 20;
/// How long the head may take to send its orders.
const ORDERS: Duration = Duration::from_secs(60);
/// How long killed ranks are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes read from the head at once.
const READ: usize = 256 * 1024;

const HEAD: u64 = 0;
const HEAD_ROOM: u64 = 1 << 32;
const SIGNAL: u64 = 2 << 32;
const STREAM: u64 = 3 << 32;
const LINE: u64 = 4 << 32;
const READER: u64 = 5 << 32;
const KIND: u64 = !0 << 32;

/// The life of an agent; returns its exit status.
pub fn run() -> u8 {
    match Agent::greet().and_then(|mut agent| agent.live()) {
        Ok(()) => 0,
        Err(text) => {
            crate::complain(&format!("agent: {text}"));
            1
        }
    }
}

struct Agent {
    from: OwnedFd,
    to: OwnedFd,
    partial: Vec<u8>,
    buffer: Vec<u8>,
    queue: Queue,
    poll: OwnedFd,
    /// The queue waits for room.
    armed: bool,
    /// The head's end has closed.
    alone: bool,
    heard: Instant,
    next_beat: Instant,
    last_turn: Instant,
    /// The head has been stopped by its user.
    paused: bool,
    silence: Option<Duration>,
    site: Option<Site>,
}

/// The ranks, once there are orders.
struct Site {
    ranks: Vec<Rank>,
    alive: usize,
    statuses: &'static [RankStatus],
    told: Vec<Option<(Page, u64)>>,
    sleepers: Sleepers,
    next_look: Instant,
    cards: Cards,
    by_pid: HashMap<i32, usize>,
    signals: Signals,
    warden: Option<Warden>,
    pump: Pump,
    /// Descriptors of readers that are polled for room.
    feeding: Vec<i32>,
    /// The head waits to hear that its last piece was taken.
    owes: bool,
    /// The head wants these channels left alone.
    hold: [bool; 2],
    held: [bool; 2],
    dying: Option<Instant>,
    ended: bool,
}

struct Rank {
    number: u32,
    pid: i32,
    line: Option<Line>,
    streams: [Option<OwnedFd>; 2],
    ended: bool,
}

fn plain(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Agent {
    /// Takes standard input and output away from whatever else might use them, and greets.
    fn greet() -> Result<Agent, String> {
        let from = rustix::io::fcntl_dupfd_cloexec(crate::stdin::standard_input(), 3)
            .map_err(|e| format!("its standard input cannot be used: {e}"))?;
        // SAFETY: Rust's runtime sees to it that 1 is open, and nobody closes it.
        let out = unsafe { BorrowedFd::borrow_raw(1) };
        let to = rustix::io::fcntl_dupfd_cloexec(out, 3)
            .map_err(|e| format!("its standard output cannot be used: {e}"))?;
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| format!("/dev/null cannot be opened: {e}"))?;
        rustix::stdio::dup2_stdin(&null).map_err(plain)?;
        rustix::stdio::dup2_stdout(&null).map_err(plain)?;
        fcntl_setfl(&from, OFlags::NONBLOCK).map_err(plain)?;
        fcntl_setfl(&to, OFlags::NONBLOCK).map_err(plain)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(plain)?;
        let token = epoll::EventData::new_u64(HEAD);
        epoll::add(&poll, &from, token, epoll::EventFlags::IN)
            .map_err(|e| format!("its standard input is no pipe: {e}"))?;
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.push_raw(&frame::greeting());
        Ok(Agent {
            from,
            to,
            partial: Vec::new(),
            buffer: vec![0; READ],
            queue,
            poll,
            armed: false,
            alone: false,
            heard: now,
            next_beat: now + LOOK,
            last_turn: now,
            paused: false,
            silence: None,
            site: None,
        })
    }

    fn live(&mut self) -> Result<(), String> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.flush();
            match &self.site {
                None if self.alone => return Ok(()),
                None if self.heard.elapsed() > ORDERS => {
                    return Err("no orders have come; this is started by mpiexec alone".into());
                }
                Some(site) if site.ended && (self.queue.len() == 0 || self.alone) => {
                    return Ok(());
                }
                _ => {}
            }
            self.turn(&mut events)?;
        }
    }

    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), String> {
        let now = Instant::now();
        let mut due = self.next_beat;
        if let Some(site) = &self.site {
            due = due.min(site.next_look);
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
            let number = (token & !KIND) as usize;
            match token & KIND {
                HEAD => self.listen()?,
                SIGNAL => signalled = true,
                STREAM => self.read_stream(number),
                LINE => self.hear(number),
                READER => self.feed(),
                HEAD_ROOM => self.flush(),
                _ => {}
            }
        }
        if signalled {
            self.take_signals();
        }
        self.look_at_the_clock(Instant::now());
        Ok(())
    }

    // ---- the head ----

    fn listen(&mut self) -> Result<(), String> {
        match rustix::io::read(&self.from, self.buffer.as_mut_slice()) {
            Ok(0) => self.abandon("the head's end has closed"),
            Ok(n) => {
                self.heard = Instant::now();
                self.partial.extend_from_slice(&self.buffer[..n]);
                self.read_frames()?;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.abandon("the head's end has closed"),
        }
        Ok(())
    }

    fn read_frames(&mut self) -> Result<(), String> {
        let mut at = 0;
        if self.site.is_none() {
            at = PREAMBLE.len() + 4;
            let start = &self.partial[..self.partial.len().min(at)];
            let expected = [&PREAMBLE[..], &frame::PROTOCOL.to_le_bytes()].concat();
            if !expected.starts_with(start) {
                return Err("what comes is not from a Ferry mpiexec of the same version; this is started by mpiexec alone".into());
            }
            if start.len() < at {
                return Ok(());
            }
        }
        let bytes = std::mem::take(&mut self.partial);
        let begin = at;
        while let Some((message, len)) = frame::decode::<ToAgent>(&bytes[at..])? {
            at += len;
            self.obey(message)?;
        }
        // Without orders the preamble is kept, too: it is looked at again.
        let keep = if self.site.is_none() && at == begin {
            0
        } else {
            at
        };
        self.partial = bytes[keep..].to_vec();
        Ok(())
    }

    fn obey(&mut self, message: ToAgent) -> Result<(), String> {
        if let ToAgent::Orders(orders) = message {
            return if self.site.is_none() {
                self.begin(&orders)
            } else {
                Err("orders have come twice".into())
            };
        }
        let Some(site) = &mut self.site else {
            return Err("the first message is no order".into());
        };
        match message {
            ToAgent::Orders(_) | ToAgent::Beat => {}
            ToAgent::Signal(signal) => {
                self.paused = match signal {
                    libc::SIGTSTP => true,
                    libc::SIGCONT => false,
                    _ => self.paused,
                };
                if signal == libc::SIGKILL {
                    site.dying.get_or_insert_with(Instant::now);
                }
                site.send(signal);
            }
            ToAgent::Hold(hold) => site.hold = hold,
            ToAgent::Input(bytes) => {
                site.pump.offer(bytes);
                site.owes = true;
                self.feed();
            }
            ToAgent::Card { wire, rank, card } => {
                for local in site.cards.put(&wire, rank, card) {
                    site.deal(&wire, rank, local);
                    site.attend_line(&self.poll, local);
                }
            }
        }
        Ok(())
    }

    /// The head is gone: nobody needs these ranks any more.
    fn abandon(&mut self, why: &str) {
        if self.alone {
            return;
        }
        self.alone = true;
        let _ = epoll::delete(&self.poll, &self.from);
        if let Some(site) = &mut self.site
            && site.alive > 0
        {
            crate::complain(&format!("agent: {why}; ending {} ranks", site.alive));
            site.dying = Some(Instant::now());
            site.send(libc::SIGKILL);
        }
    }

    fn flush(&mut self) {
        if self.alone || self.queue.flush(&self.to).is_err() {
            self.abandon("the head's end has closed");
            return;
        }
        let waits = self.queue.len() > 0;
        if waits != self.armed {
            let token = epoll::EventData::new_u64(HEAD_ROOM);
            let done = if waits {
                epoll::add(&self.poll, &self.to, token, epoll::EventFlags::OUT)
            } else {
                epoll::delete(&self.poll, &self.to)
            };
            self.armed = waits == done.is_ok();
        }
        let full = self.queue.len() > QUEUE_HIGH;
        if let Some(site) = &mut self.site {
            site.hold_streams(&self.poll, full);
        }
    }

    // ---- the ranks ----

    fn begin(&mut self, orders: &Orders) -> Result<(), String> {
        let of = orders.host_of.len();
        if of == 0 || orders.app_of.len() != of || orders.hosts.len() > of {
            return Err("its orders contradict each other".into());
        }
        self.silence =
            (orders.silence > 0).then(|| Duration::from_millis(u64::from(orders.silence)));
        // Where the head's directory is not, ranks start where a login ends.
        let _ = env::set_current_dir(orders.directory.os());
        let signals = Signals::take().map_err(plain)?;
        let token = epoll::EventData::new_u64(SIGNAL);
        epoll::add(&self.poll, signals.fd(), token, epoll::EventFlags::IN).map_err(plain)?;
        let mut site = Site::new(signals);
        if let Err(not) = site.start(orders, &self.poll, &mut self.queue) {
            let NotStarted { text, status } = not;
            self.queue.push(&ToHead::NotStarted { text, status });
            site.dying = Some(Instant::now());
            site.send(libc::SIGKILL);
        }
        self.site = Some(site);
        self.check_end();
        Ok(())
    }

    fn read_stream(&mut self, number: usize) {
        if let Some(site) = &mut self.site {
            site.read_stream(number, &mut self.queue);
        }
    }

    fn hear(&mut self, local: usize) {
        if let Some(site) = &mut self.site {
            site.attend_line(&self.poll, local);
            site.hear(local, &mut self.queue);
            site.attend_line(&self.poll, local);
        }
    }

    /// Moves standard input on to its readers.
    fn feed(&mut self) {
        let Some(site) = &mut self.site else { return };
        site.pump.write();
        let wanted = match site.pump.wants() {
            Wants::Room(pipes) => pipes,
            _ => Vec::new(),
        };
        for &fd in site.feeding.iter().filter(|fd| !wanted.contains(fd)) {
            // A pipe that was closed has left by itself.
            let _ = epoll::delete(&self.poll, borrowed(fd));
        }
        for &fd in wanted.iter().filter(|fd| !site.feeding.contains(fd)) {
            let token = epoll::EventData::new_u64(READER);
            let _ = epoll::add(&self.poll, borrowed(fd), token, epoll::EventFlags::OUT);
        }
        site.feeding = wanted;
        if site.owes && site.pump.is_empty() {
            site.owes = false;
            self.queue.push(&ToHead::InputTaken);
        }
    }

    fn take_signals(&mut self) {
        let Some(site) = &mut self.site else { return };
        let mut killed = false;
        while let Some(signal) = site.signals.next() {
            match signal {
                libc::SIGCHLD => {}
                // Whoever started this agent wants it to end: so does the job.
                libc::SIGTERM | libc::SIGHUP | libc::SIGINT => killed = true,
                _ => {}
            }
        }
        site.reap(&mut self.queue);
        if killed {
            self.abandon("a signal asks it to end");
        }
        self.check_end();
    }

    fn check_end(&mut self) {
        let Some(site) = &mut self.site else { return };
        let late = site.dying.is_some_and(|d| d.elapsed() > PATIENCE);
        if (site.alive == 0 || late) && !site.ended {
            site.ended = true;
            site.warden = None;
            end_orphans(site.dying.is_some());
            for number in 0..2 * site.ranks.len() {
                site.drain(number, &mut self.queue);
            }
            self.queue.push(&ToHead::Done);
        }
    }

    fn look_at_the_clock(&mut self, now: Instant) {
        let beat = self
            .silence
            .map_or(Duration::from_secs(1), |s| s / 4)
            .min(Duration::from_secs(1));
        if self.paused || now.duration_since(self.last_turn) > beat * 2 + LOOK {
            // The head, or this process itself, has stood still.
            self.heard = now;
        }
        self.last_turn = now;
        if now >= self.next_beat {
            self.next_beat = now + beat;
            if self.site.is_some() && self.queue.len() == 0 && !self.alone {
                self.queue.push(&ToHead::Beat);
            }
        }
        if self
            .silence
            .is_some_and(|limit| now.duration_since(self.heard) > limit)
        {
            self.abandon("nothing has been heard of the head (--host-timeout)");
        }
        if let Some(site) = &mut self.site
            && now >= site.next_look
        {
            site.next_look = now + LOOK * (1 + site.ranks.len() as u32 / 256);
            site.look(&mut self.queue);
        }
        self.check_end();
    }
}

impl Site {
    fn new(signals: Signals) -> Site {
        Site {
            ranks: Vec::new(),
            alive: 0,
            statuses: &[],
            told: Vec::new(),
            sleepers: Sleepers::default(),
            next_look: Instant::now(),
            cards: Cards::default(),
            by_pid: HashMap::new(),
            signals,
            warden: None,
            pump: Pump::for_agent(),
            feeding: Vec::new(),
            owes: false,
            hold: [false; 2],
            held: [false; 2],
            dying: None,
            ended: false,
        }
    }

    /// Starts this host's ranks.
    fn start(
        &mut self,
        orders: &Orders,
        poll: &OwnedFd,
        queue: &mut Queue,
    ) -> Result<(), NotStarted> {
        let terms = JobTerms {
            job: orders.job,
            size: orders.host_of.len() as u32,
            key: orders.key,
            nodes: Nodes::of(&orders.hosts, &orders.host_of),
        };
        let binding = match orders.binding {
            1 => Binding::Core,
            2 => Binding::None,
            _ => Binding::Share,
        };
        let mut starter = Starter::prepare(
            &orders.programs,
            &orders.app_of,
            terms,
            orders.host as usize,
            binding,
        )?;
        let refused = |what: &str, e: io::Error| NotStarted::because(format!("{what}: {e}"));
        let warden = Warden::start(starter.ranks() as u32)
            .map_err(|e| refused("the warden cannot be started", e))?;
        // SAFETY: a plain system call.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        self.statuses = starter.node.segment.statuses();
        self.told = vec![None; starter.ranks()];
        for local in 0..starter.ranks() {
            let number = starter.node.local_ranks()[local];
            let reader = if orders.readers.contains(&number) {
                self.pump
                    .reader(number)
                    .map_err(|e| refused("making a pipe for stdin", e))?
            } else {
                None
            };
            let stdin = reader.as_ref().map(AsFd::as_fd);
            let started = starter.start(local, stdin, &self.signals, &warden)?;
            let attend = |token: u64, fd: &OwnedFd| {
                let token = epoll::EventData::new_u64(token);
                let _ = epoll::add(poll, fd, token, epoll::EventFlags::IN);
            };
            attend(LINE | local as u64, started.line.fd());
            let [out, err] = started.output;
            attend(STREAM | (2 * local) as u64, &out);
            attend(STREAM | (2 * local + 1) as u64, &err);
            self.by_pid.insert(started.pid, local);
            self.ranks.push(Rank {
                number,
                pid: started.pid,
                line: Some(started.line),
                streams: [Some(out), Some(err)],
                ended: false,
            });
            self.alive += 1;
            queue.push(&ToHead::Started {
                rank: number,
                pid: started.pid,
                place: starter.place_of(local),
            });
        }
        self.warden = Some(warden);
        Ok(())
    }

    fn send(&self, signal: i32) {
        for rank in self.ranks.iter().filter(|r| !r.ended) {
            signals::send_to_group(rank.pid, signal);
        }
    }

    /// Reads once from a stream and passes it on.
    fn read_stream(&mut self, number: usize, queue: &mut Queue) -> bool {
        let rank = &mut self.ranks[number / 2];
        let Some(fd) = &rank.streams[number % 2] else {
            return false;
        };
        let mut bytes = vec![0; PIECE];
        let n = match rustix::io::read(fd, bytes.as_mut_slice()) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(_) => 0,
        };
        bytes.truncate(n);
        if n == 0 {
            rank.streams[number % 2] = None;
        }
        queue.push(&ToHead::Output {
            rank: rank.number,
            error: number % 2 == 1,
            bytes,
        });
        n > 0
    }

    /// Passes on all that is in a stream now.
    fn drain(&mut self, number: usize, queue: &mut Queue) {
        while self.read_stream(number, queue) {}
    }

    /// Leaves streams alone while nobody takes their output, and comes back to them.
    fn hold_streams(&mut self, poll: &OwnedFd, full: bool) {
        for channel in 0..2 {
            let hold = full || self.hold[channel];
            if hold == self.held[channel] {
                continue;
            }
            self.held[channel] = hold;
            for (local, rank) in self.ranks.iter().enumerate() {
                if let Some(fd) = &rank.streams[channel] {
                    let token = epoll::EventData::new_u64(STREAM | (2 * local + channel) as u64);
                    let _ = if hold {
                        epoll::delete(poll, fd)
                    } else {
                        epoll::add(poll, fd, token, epoll::EventFlags::IN)
                    };
                }
            }
        }
    }

    /// All that a rank has said.
    fn hear(&mut self, local: usize, queue: &mut Queue) {
        loop {
            let rank = &mut self.ranks[local];
            let number = rank.number;
            let Some(line) = &mut rank.line else { return };
            match line.hear() {
                Heard::Nothing => return,
                Heard::Gone => rank.line = None,
                Heard::Notice(Notice::Put { wire, card }) => {
                    queue.push(&ToHead::Put {
                        wire: wire.clone(),
                        rank: number,
                        card: card.clone(),
                    });
                    for asker in self.cards.put(&wire, number, card) {
                        self.deal(&wire, number, asker);
                    }
                }
                Heard::Notice(Notice::Get { wire, rank }) => {
                    // Action of the head once, by the first who wants it.
                    match self.cards.get(&wire, rank, local) {
                        Ok(_) => self.deal(&wire, rank, local),
                        Err(true) => queue.push(&ToHead::Get { wire, rank }),
                        Err(false) => {}
                    }
                }
                Heard::Notice(Notice::Say { text }) => {
                    queue.push(&ToHead::Say { rank: number, text });
                }
                Heard::Notice(Notice::Abort { code, text }) => {
                    line.acknowledge();
                    for channel in 0..2 {
                        self.drain(2 * local + channel, queue);
                    }
                    queue.push(&ToHead::Abort {
                        rank: number,
                        code,
                        text,
                    });
                }
            }
        }
    }

    /// Gives a card that is there to a local rank.
    fn deal(&mut self, wire: &str, rank: u32, local: usize) {
        if let Ok(card) = self.cards.get(wire, rank, local)
            && let Some(Rank {
                line: Some(line), ..
            }) = self.ranks.get_mut(local)
        {
            line.reply(&Reply::Card {
                wire: wire.into(),
                rank,
                card: card.to_vec(),
            });
        }
    }

    /// Polls a rank's socket for room, too, while replies wait for it.
    fn attend_line(&mut self, poll: &OwnedFd, local: usize) {
        if let Some(Rank {
            line: Some(line), ..
        }) = self.ranks.get_mut(local)
        {
            let flags = if line.flush() {
                epoll::EventFlags::IN
            } else {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            };
            let token = epoll::EventData::new_u64(LINE | local as u64);
            let _ = epoll::modify(poll, line.fd(), token, flags);
        }
    }

    /// Tells of ranks that have ended, after all that they have said.
    fn reap(&mut self, queue: &mut Queue) {
        let mut ended = Vec::new();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Some(local) = self.by_pid.remove(&pid.as_raw_nonzero().get()) {
                        ended.push((local, status));
                    }
                }
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        ended.sort_by_key(|(_, status)| !status.signaled());
        for (local, status) in ended {
            self.ranks[local].ended = true;
            self.alive -= 1;
            if let Some(warden) = &self.warden {
                warden.ended(local);
            }
            for channel in 0..2 {
                self.drain(2 * local + channel, queue);
            }
            self.hear(local, queue);
            let state = &self.statuses[local].state;
            queue.push(&ToHead::Ended {
                rank: self.ranks[local].number,
                status: status.as_raw(),
                state: state.load(std::sync::atomic::Ordering::Acquire),
            });
        }
    }

    /// Sends the status pages that have changed.
    fn look(&mut self, queue: &mut Queue) {
        let now = RankStatus::now();
        let mut changed = Vec::new();
        for (local, rank) in self.ranks.iter().enumerate().filter(|(_, r)| !r.ended) {
            let status = &self.statuses[local];
            let mut page = page_of(rank.number, status, true);
            let since = status.since.load(std::sync::atomic::Ordering::Relaxed);
            // Asking the kernel costs something, and only matters of one that seems to sleep.
            let for_long = u128::from(now.saturating_sub(since)) * 2 >= STILL.as_nanos();
            page.awake = page.asleep && (!for_long || self.sleepers.awake(local, rank.pid, status));
            let new = Some((page, since));
            if self.told[local] != new {
                if let Some((page, _)) = &new {
                    let mut page = page.clone();
                    page.age = now.saturating_sub(since);
                    changed.push(page);
                }
                self.told[local] = new;
            }
        }
        if !changed.is_empty() {
            queue.push(&ToHead::Pages(changed));
        }
    }
}

fn borrowed(fd: i32) -> BorrowedFd<'static> {
    // SAFETY: used at once, for pipes that the pump owns or has just closed; an unknown number is
    // refused.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
