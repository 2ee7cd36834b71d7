//! The ranks of an agent's host.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ferry_job::{
    CardStore, JobInfo, NameQuestion, Nodes, RankSocket, RankStatus, Received, ToLauncher, ToRank,
};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::WaitOptions;

use super::{EVENT_RANK, EVENT_RELAY, EVENT_STREAM};
use crate::forward::StdinCopier;
use crate::hang::{HANG_DURATION, SleepCheck, page_of};
use crate::options::Binding;
use crate::protocol::{CHUNK_MAX_BYTES, LaunchSpec, SendQueue, StatusPage, ToMpiexec};
use crate::relay::Relays;
use crate::signals::{self, Signals};
use crate::start::{ParentDeathWatcher, RankStarter, StartError, StartedRank};

/// The ranks of this host, from the launch message on.
pub(super) struct LocalRanks {
    pub(super) ranks: Vec<Rank>,
    pub(super) alive: usize,
    pub(super) statuses: &'static [RankStatus],
    pub(super) reported: Vec<Option<(StatusPage, u64)>>,
    pub(super) sleep_check: SleepCheck,
    pub(super) next_status_check: Instant,
    pub(super) business_cards: CardStore,
    pub(super) by_pid: HashMap<i32, usize>,
    pub(super) signals: Signals,
    pub(super) watcher: Option<ParentDeathWatcher>,
    pub(super) stdin: StdinCopier,
    /// Stdin pipes that are polled for room.
    pub(super) polled_pipes: Vec<i32>,
    /// mpiexec waits for the acknowledgement of its last chunk of standard input.
    pub(super) stdin_ack_due: bool,
    /// Per channel: mpiexec has asked for a pause.
    pub(super) pause_requested: [bool; 2],
    pub(super) paused: [bool; 2],
    pub(super) killed_since: Option<Instant>,
    pub(super) done: bool,
    /// Sockets of ranks to launchers that mpiexec starts.
    pub(super) relays: Relays,
    /// Questions about names that mpiexec has not answered, by their numbers.
    pub(super) questions: HashMap<u32, NameQuestion>,
}

pub(super) struct Rank {
    number: u32,
    pid: i32,
    socket: Option<RankSocket>,
    streams: [Option<OwnedFd>; 2],
    ended: bool,
}

impl LocalRanks {
    pub(super) fn new(signals: Signals) -> LocalRanks {
        LocalRanks {
            ranks: Vec::new(),
            alive: 0,
            statuses: &[],
            reported: Vec::new(),
            sleep_check: SleepCheck::default(),
            next_status_check: Instant::now(),
            business_cards: CardStore::default(),
            by_pid: HashMap::new(),
            signals,
            watcher: None,
            stdin: StdinCopier::for_agent(),
            polled_pipes: Vec::new(),
            stdin_ack_due: false,
            pause_requested: [false; 2],
            paused: [false; 2],
            killed_since: None,
            done: false,
            relays: Relays::default(),
            questions: HashMap::new(),
        }
    }

    /// Starts this host's ranks.
    pub(super) fn start(
        &mut self,
        spec: &LaunchSpec,
        poll: &OwnedFd,
        queue: &mut SendQueue,
    ) -> Result<(), StartError> {
        let mut starter = starter_of(spec)?;
        let refused = |what: &str, e: io::Error| StartError::new(format!("{what}: {e}"));
        let watcher = ParentDeathWatcher::start(starter.ranks() as u32)
            .map_err(|e| refused("the parent-death watcher cannot be started", e))?;
        // SAFETY: a plain system call.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        self.statuses = starter.node.segment.statuses();
        self.reported = vec![None; starter.ranks()];
        for local in 0..starter.ranks() {
            let number = starter.node.local_ranks()[local];
            let reader = if spec.readers.contains(&number) {
                self.stdin
                    .reader(number)
                    .map_err(|e| refused("making a pipe for stdin", e))?
            } else {
                None
            };
            let stdin = reader.as_ref().map(AsFd::as_fd);
            let started = starter.start(local, stdin, &self.signals, &watcher)?;
            queue.push(&ToMpiexec::Started {
                rank: number,
                pid: started.pid,
                binding: starter.binding_of(local),
            });
            self.attend(local, number, started, poll);
        }
        self.watcher = Some(watcher);
        Ok(())
    }

    /// From now on polls the socket and the output of local rank `local`, which has just started.
    fn attend(&mut self, local: usize, number: u32, started: StartedRank, poll: &OwnedFd) {
        let attend = |token: u64, fd: &OwnedFd| {
            let token = epoll::EventData::new_u64(token);
            let _ = epoll::add(poll, fd, token, epoll::EventFlags::IN);
        };
        attend(EVENT_RANK | local as u64, started.socket.fd());
        let [out, err] = started.output;
        attend(EVENT_STREAM | (2 * local) as u64, &out);
        attend(EVENT_STREAM | (2 * local + 1) as u64, &err);
        self.by_pid.insert(started.pid, local);
        self.ranks.push(Rank {
            number,
            pid: started.pid,
            socket: Some(started.socket),
            streams: [Some(out), Some(err)],
            ended: false,
        });
        self.alive += 1;
    }

    pub(super) fn signal_all(&self, signal: i32) {
        for rank in self.ranks.iter().filter(|r| !r.ended) {
            signals::send_to_group(rank.pid, signal);
        }
    }

    /// Reads once from a stream and queues it for mpiexec.
    pub(super) fn read_stream(&mut self, number: usize, queue: &mut SendQueue) -> bool {
        let rank = &mut self.ranks[number / 2];
        let Some(fd) = &rank.streams[number % 2] else {
            return false;
        };
        let mut bytes = vec![0; CHUNK_MAX_BYTES];
        let n = match rustix::io::read(fd, bytes.as_mut_slice()) {
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return false,
            Err(_) => 0,
        };
        bytes.truncate(n);
        if n == 0 {
            rank.streams[number % 2] = None;
        }
        queue.push(&ToMpiexec::Output {
            rank: rank.number,
            error: number % 2 == 1,
            bytes,
        });
        n > 0
    }

    /// Queues all that is in a stream now.
    pub(super) fn drain(&mut self, number: usize, queue: &mut SendQueue) {
        while self.read_stream(number, queue) {}
    }

    /// Stops and resumes reading from streams. A channel is paused on mpiexec's request or while
    /// the queue to it is full.
    pub(super) fn pause_streams(&mut self, poll: &OwnedFd, full: bool) {
        for channel in 0..2 {
            let pause_requested = full || self.pause_requested[channel];
            if pause_requested == self.paused[channel] {
                continue;
            }
            self.paused[channel] = pause_requested;
            for (local, rank) in self.ranks.iter().enumerate() {
                if let Some(fd) = &rank.streams[channel] {
                    let token =
                        epoll::EventData::new_u64(EVENT_STREAM | (2 * local + channel) as u64);
                    let _ = if pause_requested {
                        epoll::delete(poll, fd)
                    } else {
                        epoll::add(poll, fd, token, epoll::EventFlags::IN)
                    };
                }
            }
        }
    }

    /// Handles all messages of a rank.
    pub(super) fn read_messages(&mut self, local: usize, poll: &OwnedFd, queue: &mut SendQueue) {
        loop {
            let rank = &mut self.ranks[local];
            let number = rank.number;
            let Some(socket) = &mut rank.socket else {
                return;
            };
            match socket.receive() {
                Received::Empty => return,
                Received::Closed => rank.socket = None,
                Received::Message(ToLauncher::Put { medium, card }) => {
                    queue.push(&ToMpiexec::Put {
                        medium: medium.clone(),
                        rank: number,
                        card: card.clone(),
                    });
                    for asker in self.business_cards.put(&medium, number, card) {
                        self.send_card_to(&medium, number, asker);
                    }
                }
                Received::Message(ToLauncher::Get { medium, rank }) => {
                    // Only the first asker's question goes to mpiexec.
                    match self.business_cards.get(&medium, rank, local) {
                        Ok(_) => self.send_card_to(&medium, rank, local),
                        Err(true) => queue.push(&ToMpiexec::Get { medium, rank }),
                        Err(false) => {}
                    }
                }
                Received::Message(ToLauncher::Spawn) => {
                    if let Some(end) = socket.take_descriptor() {
                        let number = self.relays.add(end, poll, EVENT_RELAY);
                        queue.push(&ToMpiexec::Spawn { number });
                    }
                }
                Received::Message(ToLauncher::Name) => {
                    let end = socket.take_descriptor();
                    if let Some(Ok((question, bytes))) = end.map(NameQuestion::read) {
                        let free = |n: &u32| !self.questions.contains_key(n);
                        let number = (0..).find(free).unwrap_or_default();
                        self.questions.insert(number, question);
                        queue.push(&ToMpiexec::Name { number, bytes });
                    }
                }
                Received::Message(ToLauncher::Log { text }) => {
                    queue.push(&ToMpiexec::Log { rank: number, text });
                }
                Received::Message(ToLauncher::Abort { code, text }) => {
                    socket.confirm_abort();
                    for channel in 0..2 {
                        self.drain(2 * local + channel, queue);
                    }
                    queue.push(&ToMpiexec::Abort {
                        rank: number,
                        code,
                        text,
                    });
                }
            }
        }
    }

    /// Sends a business card to a local rank, if it is there.
    pub(super) fn send_card_to(&mut self, medium: &str, rank: u32, local: usize) {
        if let Ok(card) = self.business_cards.get(medium, rank, local)
            && let Some(Rank {
                socket: Some(socket),
                ..
            }) = self.ranks.get_mut(local)
        {
            socket.send(&ToRank::Card {
                medium: medium.into(),
                rank,
                card: card.to_vec(),
            });
        }
    }

    /// Polls a rank's socket. For writing, too, while replies wait for room.
    pub(super) fn poll_rank_socket(&mut self, poll: &OwnedFd, local: usize) {
        if let Some(Rank {
            socket: Some(socket),
            ..
        }) = self.ranks.get_mut(local)
        {
            let flags = if socket.flush() {
                epoll::EventFlags::IN
            } else {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            };
            let token = epoll::EventData::new_u64(EVENT_RANK | local as u64);
            let _ = epoll::modify(poll, socket.fd(), token, flags);
        }
    }

    /// Collects ranks that have ended and reports them, after all that they have written.
    pub(super) fn reap(&mut self, poll: &OwnedFd, queue: &mut SendQueue) {
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
            if let Some(watcher) = &self.watcher {
                watcher.ended(local);
            }
            for channel in 0..2 {
                self.drain(2 * local + channel, queue);
            }
            self.read_messages(local, poll, queue);
            let state = &self.statuses[local].state;
            queue.push(&ToMpiexec::Ended {
                rank: self.ranks[local].number,
                status: status.as_raw(),
                state: state.load(std::sync::atomic::Ordering::Acquire),
            });
        }
    }

    /// Sends the status pages that have changed.
    pub(super) fn send_status_pages(&mut self, queue: &mut SendQueue) {
        let now = RankStatus::now();
        let mut changed = Vec::new();
        for (local, rank) in self.ranks.iter().enumerate().filter(|(_, r)| !r.ended) {
            let status = &self.statuses[local];
            let read = || {
                let since = status.since.load(std::sync::atomic::Ordering::Relaxed);
                (page_of(rank.number, status, true), since)
            };
            let (mut page, since) = read();
            // Asking the kernel costs system calls, so only ranks that may hang are asked about.
            let for_long = u128::from(now.saturating_sub(since)) * 2 >= HANG_DURATION.as_nanos();
            // It may have woken, and slept again, before the kernel was asked.
            page.awake = page.asleep
                && (!for_long
                    || self.sleep_check.awake(local, rank.pid, status)
                    || read() != (page.clone(), since));
            let new = Some((page, since));
            if self.reported[local] != new {
                if let Some((page, _)) = &new {
                    let mut page = page.clone();
                    page.age = now.saturating_sub(since);
                    changed.push(page);
                }
                self.reported[local] = new;
            }
        }
        if !changed.is_empty() {
            queue.push(&ToMpiexec::Pages(changed));
        }
    }
}

/// What starts the ranks of this host that the launch message names.
fn starter_of(spec: &LaunchSpec) -> Result<RankStarter, StartError> {
    let job_info = JobInfo {
        job: spec.job,
        size: spec.host_of.len() as u32,
        key: spec.key,
        parent: spec.parent.clone(),
        universe: spec.universe,
        nodes: Nodes::of(&spec.hosts, &spec.host_of),
    };
    let binding = Binding::from_number(spec.binding).unwrap_or(Binding::Share);
    let (programs, host) = (&spec.programs, spec.host as usize);
    RankStarter::prepare(programs, &spec.app_of, job_info, host, binding)
}
