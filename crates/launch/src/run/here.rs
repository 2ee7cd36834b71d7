//! Ranks that this process itself runs.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use ferry_job::{Heard, Line, Notice, RankStatus, Reply};
use rustix::event::epoll;
use rustix::process::WaitOptions;

use super::{Crew, End, Job, LINE};
use crate::output::Channel;
use crate::start::Starter;
use crate::stdin::{Input, standard_input};
use crate::warden::Warden;

/// The ranks of this host.
pub(super) struct Here {
    pub(super) starter: Starter,
    pub(super) statuses: &'static [RankStatus],
    pub(super) lines: Vec<Option<Line>>,
    pub(super) by_pid: HashMap<i32, usize>,
    pub(super) warden: Option<Warden>,
}

impl Here {
    pub(super) fn new(starter: Starter) -> Here {
        Here {
            statuses: starter.node.segment.statuses(),
            lines: (0..starter.ranks()).map(|_| None).collect(),
            by_pid: HashMap::new(),
            warden: None,
            starter,
        }
    }

    /// Sees to it that nothing is left if this process is killed. Call while it has little memory.
    pub(super) fn guard(&mut self) -> io::Result<()> {
        self.warden = Some(Warden::start(self.lines.len() as u32)?);
        Ok(())
    }
}

impl Job<'_> {
    /// Starts all ranks here; if one cannot be started, the others are ended.
    pub(super) fn start_here(&mut self) {
        for rank in 0..self.ranks.len() {
            if let Err(not) = self.start_rank(rank) {
                self.end(&not.text, not.status);
                return;
            }
        }
    }

    fn start_rank(&mut self, rank: usize) -> Result<(), crate::start::NotStarted> {
        let Crew::Here(here) = &mut self.crew else {
            return Ok(());
        };
        let Some(warden) = &here.warden else {
            return Ok(());
        };
        let copied = match &mut self.input {
            Input::Copied(pump) => pump.reader(rank as u32).map_err(|e| {
                crate::start::NotStarted::because(format!(
                    "rank {rank} cannot be started: making a pipe for its stdin: {e}"
                ))
            })?,
            _ => None,
        };
        let stdin = match (&copied, &self.input) {
            (Some(reader), _) => Some(reader.as_fd()),
            (None, Input::Inherited(reader)) if *reader as usize == rank => Some(standard_input()),
            _ => None,
        };
        let started = here.starter.start(rank, stdin, &self.signals, warden)?;
        let _ = epoll::add(
            &self.poll,
            started.line.fd(),
            epoll::EventData::new_u64(LINE | rank as u64),
            epoll::EventFlags::IN,
        );
        here.lines[rank] = Some(started.line);
        here.by_pid.insert(started.pid, rank);
        let place = here.starter.place_of(rank);
        let [out, err] = started.output;
        for (channel, pipe) in [(Channel::Out, out), (Channel::Err, err)] {
            let stream = self.output.add(rank, channel, pipe);
            self.attend_stream(stream);
        }
        self.ranks[rank].pid = started.pid;
        self.alive += 1;
        self.say_place(rank, &place);
        Ok(())
    }

    fn line(&mut self, rank: usize) -> Option<&mut Line> {
        match &mut self.crew {
            Crew::Here(here) => here.lines[rank].as_mut(),
            Crew::Afar(_) => None,
        }
    }

    /// All that a rank has said.
    pub(super) fn hear(&mut self, rank: usize) {
        loop {
            let Some(line) = self.line(rank) else {
                return;
            };
            match line.hear() {
                Heard::Nothing => return,
                Heard::Gone => {
                    if let Crew::Here(here) = &mut self.crew {
                        here.lines[rank] = None;
                    }
                }
                Heard::Notice(Notice::Put { wire, card }) => {
                    for asker in self.cards.put(&wire, rank as u32, card) {
                        self.deal(&wire, rank as u32, asker);
                    }
                }
                Heard::Notice(Notice::Get { wire, rank: whose }) => self.deal(&wire, whose, rank),
                Heard::Notice(Notice::Say { text }) => self.say_for(rank, &text),
                Heard::Notice(Notice::Abort { code, text }) => {
                    line.acknowledge();
                    self.drain(rank);
                    self.abort(rank, code, &text);
                }
            }
        }
    }

    /// Gives a rank's card to another, if it has come.
    fn deal(&mut self, wire: &str, rank: u32, to: usize) {
        let Ok(card) = self.cards.get(wire, rank, to) else {
            return;
        };
        let reply = Reply::Card {
            wire: wire.into(),
            rank,
            card: card.to_vec(),
        };
        if let Some(line) = self.line(to) {
            line.reply(&reply);
            self.attend_line(to);
        }
    }

    /// Polls a rank's socket for room, too, while replies wait for it.
    pub(super) fn attend_line(&mut self, rank: usize) {
        if let Crew::Here(here) = &mut self.crew
            && let Some(line) = &mut here.lines[rank]
        {
            let flags = if line.flush() {
                epoll::EventFlags::IN
            } else {
                epoll::EventFlags::IN | epoll::EventFlags::OUT
            };
            let token = epoll::EventData::new_u64(LINE | rank as u64);
            let _ = epoll::modify(&self.poll, line.fd(), token, flags);
        }
    }

    /// Takes note of all processes that have ended: ranks, or what started agents.
    pub(super) fn reap(&mut self) {
        let mut ended = Vec::new();
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get();
                    match &mut self.crew {
                        Crew::Here(here) => {
                            if let Some(rank) = here.by_pid.remove(&pid) {
                                ended.push((rank, End(status.as_raw())));
                            }
                        }
                        Crew::Afar(afar) => afar.starter_ended(pid, End(status.as_raw())),
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        for &(rank, end) in &ended {
            self.ranks[rank].ended = Some(end);
            if let Some(modelled) = &self.modelled {
                modelled.gone(rank);
            }
            self.alive -= 1;
            if let Crew::Here(here) = &self.crew
                && let Some(warden) = &here.warden
            {
                warden.ended(rank);
            }
        }
        // What they said last comes before what is said about them; and a call of MPI_Abort before
        // the exit that follows it.
        for &(rank, _) in &ended {
            self.drain(rank);
            self.hear(rank);
        }
        // Where several died at once, a signal is nearer to the cause than an early exit.
        ended.sort_by_key(|(_, end)| end.signal().is_none());
        for (rank, end) in ended {
            self.judge(rank, end);
        }
    }
}
