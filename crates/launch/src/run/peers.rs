//! Launchers of other jobs, which together find out that several jobs hang: the one that has
//! started this one, those that it has started (MPI_Comm_spawn), and those of jobs that its ranks
//! have met.
//!
//! Each launcher says of its job which others its ranks know, and whether all of its ranks sleep.
//! It passes on what others say (flooding, as in a link-state routing protocol), so that it reaches
//! those further away. Such a statement has a number, and the newest counts. A job hangs if it
//! sleeps, with all jobs that it knows, all that those know, and so on, and no message is under way
//! among them. Jobs that are not known there, because they have disconnected, do not matter.
//!
//! ```text
//! launcher ── ferry-peer JOB ─▶    first: whose launcher it is
//!          ── E job statement ─▶   a job sleeps (with its report), or moves
//!          ── G job ───────────▶   a job is over
//!          ── H jobs text ─────▶   these hang: their launchers end them
//! ```
//!
//! When two jobs meet at a port, their ranks pass on where their launchers listen. Where two know
//! each other by a third, the statements say it.

mod link;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::os::unix::net::UnixStream;

use link::Link;

use super::contact::{Network, job_of};
use super::statement::{Input, Sleeping, Statement};
use crate::hang::Traffic;

/// What a launcher says first.
pub(super) const HELLO: &[u8] = b"ferry-peer ";

/// Most jobs of which is remembered that they are over, although nobody knows them. A choice.
const OVER_MAX: usize = 10_000;

/// The launchers that this one knows, and what they have said.
pub(super) struct Peers {
    own: u64,
    links: Vec<Link>,
    /// By job, the own one's too.
    statements: HashMap<u64, Statement>,
    /// Jobs that are over.
    over: HashSet<u64>,
    /// Where launchers of jobs listen that its own have met.
    contacts: HashMap<u64, String>,
    /// Jobs to whose launchers this one has tried to connect.
    called: HashSet<u64>,
    network: Network,
    /// The own job hangs, with others.
    found: Option<Hang>,
    /// Jobs that hang, of which others were told.
    announced: HashSet<BTreeSet<u64>>,
}

/// Jobs that hang.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hang {
    pub jobs: BTreeSet<u64>,
    /// Those whose launchers print the report: one of each family.
    pub printers: BTreeSet<u64>,
    pub report: String,
}

fn statement_message(job: u64, statement: &Statement) -> Vec<u8> {
    let mut out = vec![b'E'];
    out.extend(job.to_le_bytes());
    statement.put(&mut out);
    out
}

fn over_message(job: u64) -> Vec<u8> {
    [&b"G"[..], &job.to_le_bytes()].concat()
}

fn hang_message(hang: &Hang) -> Vec<u8> {
    let mut out = vec![b'H'];
    for jobs in [&hang.jobs, &hang.printers] {
        out.extend((jobs.len() as u64).to_le_bytes());
        jobs.iter().for_each(|job| out.extend(job.to_le_bytes()));
    }
    out.extend(hang.report.as_bytes());
    out
}

/// The rest of such a message. `None`: it is none.
fn read_hang(bytes: &[u8]) -> Option<Hang> {
    let mut input = Input(bytes);
    let mut jobs = || {
        let count = input.word()?;
        (0..count).map(|_| input.word()).collect::<Option<_>>()
    };
    let (jobs, printers) = (jobs()?, jobs()?);
    let report = input.text(input.0.len())?;
    Some(Hang {
        jobs,
        printers,
        report,
    })
}

impl Peers {
    /// Of job `own`. `upstream`: the socket to the launcher that has started this one, and its
    /// family.
    pub fn new(own: u64, upstream: Option<(UnixStream, u64)>) -> Peers {
        let family = upstream.as_ref().map_or(own, |(_, family)| *family);
        let statement = Statement {
            number: 1,
            family,
            ..Statement::default()
        };
        let mut peers = Peers {
            own,
            links: Vec::new(),
            statements: HashMap::from([(own, statement)]),
            over: HashSet::new(),
            contacts: HashMap::new(),
            called: HashSet::new(),
            network: Network::default(),
            found: None,
            announced: HashSet::new(),
        };
        if let Some((stream, _)) = upstream {
            peers.connected(stream, true);
        }
        peers
    }

    fn own(&self) -> &Statement {
        &self.statements[&self.own]
    }

    /// The id of the first job that came of the same mpiexec.
    pub fn family(&self) -> u64 {
        self.own().family
    }

    /// Has another launcher started this one?
    pub fn is_below(&self) -> bool {
        self.family() != self.own
    }

    /// The socket for a launcher that is about to be started.
    pub fn downstream(&mut self) -> std::io::Result<UnixStream> {
        let (near, far) = UnixStream::pair()?;
        self.connected(near, true);
        Ok(far)
    }

    /// Where others can find this launcher: see [`super::contact`]. It listens from now on.
    /// `name`: that of its listener on this host.
    pub fn contact(&mut self, name: &str) -> String {
        let contact = self.network.contact(self.own, name);
        if self.own().contact != contact {
            let mut new = self.own().clone();
            new.contact = contact.clone();
            self.say(new);
        }
        contact
    }

    /// A rank has met a job whose launcher listens at this contact.
    pub fn expect(&mut self, contact: &str) {
        if let Some(job) = job_of(contact) {
            self.contacts.insert(job, contact.into());
            self.call(job);
        }
    }

    /// Connects to a job's launcher, if this one is to call, and it is known where that listens.
    fn call(&mut self, job: u64) {
        let has_link = self.links.iter().any(|l| l.job == Some(job));
        if job <= self.own || has_link || self.over.contains(&job) || self.called.contains(&job) {
            return;
        }
        let said = self.statements.get(&job).map(|s| s.contact.clone());
        let contact = self.contacts.remove(&job).or(said);
        if let Some(contact) = contact.filter(|c| !c.is_empty()) {
            self.called.insert(job);
            if let Some((stream, is_local)) = self.network.connect(&contact) {
                self.connected(stream, is_local);
            }
        }
    }

    /// Takes launchers that have connected through the network.
    fn accept_remote(&mut self) {
        while let Some(stream) = self.network.accept() {
            self.connected(stream, false);
        }
    }

    /// Another launcher on this host has connected, and has said this first.
    pub fn accept(&mut self, stream: UnixStream, hello: &[u8]) {
        self.connected(stream, true);
        if let Some(link) = self.links.last_mut() {
            link.job = job_of_hello(hello);
        }
    }

    fn connected(&mut self, stream: UnixStream, is_local: bool) {
        let mut link = Link::new(stream, is_local, self.own);
        for (&job, statement) in &self.statements {
            link.send(&statement_message(job, statement));
        }
        self.links.push(link);
    }

    /// Sends a message to all but the link of this number.
    fn send_all(&mut self, message: &[u8], but: Option<usize>) {
        for (at, link) in self.links.iter_mut().enumerate() {
            if Some(at) != but {
                link.send(message);
            }
        }
    }

    /// Says something new of the own job.
    fn say(&mut self, mut new: Statement) {
        new.number = self.own().number + 1;
        let falls_asleep = self.own().sleeping.is_none() && new.sleeping.is_some();
        let message = statement_message(self.own, &new);
        self.statements.insert(self.own, new);
        self.send_all(&message, None);
        if falls_asleep {
            let others = self.statements.iter().filter(|(job, _)| **job != self.own);
            let all: Vec<_> = others
                .map(|(&job, s)| (job, statement_message(job, s)))
                .collect();
            for link in &mut self.links {
                let to = link.job;
                for (_, message) in all.iter().filter(|(job, _)| to != Some(*job)) {
                    link.send(message);
                }
            }
        }
    }

    /// Would it be news that the own ranks sleep, and know these jobs?
    pub fn is_news(&self, known: &BTreeSet<u64>, traffic: Traffic) -> bool {
        let told = self.own();
        told.known != *known || told.sleeping.as_ref().map(|s| s.traffic) != Some(traffic)
    }

    /// Tells the others which jobs the own ranks know, and whether all of them sleep, if that is
    /// news. Reads what others say.
    pub fn tell(&mut self, known: &BTreeSet<u64>, sleeping: Option<Sleeping>) {
        self.read();
        let new = Statement {
            known: known.clone(),
            sleeping,
            ..self.own().clone()
        };
        if !new.is_like(self.own()) {
            self.say(new);
        }
        for &job in known {
            self.call(job);
        }
    }

    /// Reads what others say, and passes it on.
    fn read(&mut self) {
        self.accept_remote();
        let mut news = Vec::new();
        for (at, link) in self.links.iter_mut().enumerate() {
            news.extend(link.messages().into_iter().map(|m| (at, m)));
        }
        for (from, message) in news {
            self.take(from, &message);
        }
        let (ended, living): (Vec<Link>, Vec<Link>) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|l| l.stream.is_none());
        self.links = living;
        for link in ended {
            match link.job {
                Some(job) if link.is_local => self.ended(job, None),
                // Nothing more is known of it.
                Some(job) if self.links.iter().all(|l| l.job != Some(job)) => {
                    self.statements.remove(&job);
                }
                _ => {}
            }
        }
    }

    /// Takes a message of a link.
    fn take(&mut self, from: usize, message: &[u8]) {
        if message.starts_with(HELLO) {
            self.links[from].job = job_of_hello(message);
            return;
        }
        let Some((kind, rest)) = message.split_first() else {
            return;
        };
        match kind {
            b'E' => {
                let mut input = Input(rest);
                let Some(job) = input.word() else { return };
                let Some(statement) = Statement::read(input.0) else {
                    return;
                };
                let known = self.statements.get(&job);
                if job == self.own
                    || known.is_some_and(|s| s.number >= statement.number)
                    || self.over.contains(&job)
                {
                    return;
                }
                // While the own job moves, none that knows it hangs, and the rest can wait.
                let is_new = known.is_none_or(|s| s.contact != statement.contact);
                self.statements.insert(job, statement);
                if is_new || self.own().sleeping.is_some() {
                    self.send_all(message, Some(from));
                }
            }
            b'G' => {
                if let Some(job) = Input(rest).word() {
                    self.ended(job, Some(from));
                }
            }
            b'H' => {
                if let Some(hang) = read_hang(rest)
                    && self.announced.insert(hang.jobs.clone())
                {
                    self.send_all(message, Some(from));
                    self.found = Some(hang).filter(|h| h.jobs.contains(&self.own));
                }
            }
            _ => {}
        }
    }

    /// A job is over, as link `from` has said.
    fn ended(&mut self, job: u64, from: Option<usize>) {
        if job != self.own && self.over.insert(job) {
            self.statements.remove(&job);
            self.contacts.remove(&job);
            self.called.remove(&job);
            self.send_all(&over_message(job), from);
            if self.over.len() > OVER_MAX {
                let known: HashSet<u64> = self
                    .statements
                    .values()
                    .flat_map(|s| s.known.clone())
                    .collect();
                self.over.retain(|job| known.contains(job));
            }
        }
    }

    /// The jobs that hang with the own one, if it sleeps and they do, and what all of them have
    /// sent and received.
    pub fn hanging(&mut self) -> Option<(Hang, Traffic)> {
        let mut all = Sleeping::default();
        let mut jobs = BTreeSet::from([self.own]);
        let mut left = VecDeque::from([self.own]);
        while let Some(at) = left.pop_front() {
            let statement = self.statements.get(&at)?;
            all = all.with(statement.sleeping.as_ref()?);
            for &next in &statement.known {
                if self.over.contains(&next) {
                    // What was sent to it may never be received.
                    all.traffic.has_finished = true;
                } else if jobs.insert(next) {
                    left.push_back(next);
                }
            }
        }
        if all.traffic.is_under_way() {
            return None;
        }
        let hang = Hang {
            printers: self.printers(&jobs)?,
            jobs,
            report: all.report,
        };
        Some((hang, all.traffic))
    }

    /// Of each family the first of these jobs: that which mpiexec was called for, or another.
    fn printers(&self, jobs: &BTreeSet<u64>) -> Option<BTreeSet<u64>> {
        let mut first: HashMap<u64, u64> = HashMap::new();
        for &job in jobs {
            let family = self.statements.get(&job)?.family;
            let is_first = family == job;
            first
                .entry(family)
                .and_modify(|at| *at = if is_first { job } else { *at })
                .or_insert(job);
        }
        Some(first.into_values().collect())
    }

    /// Does this launcher print the report of jobs that hang?
    pub fn prints(&self, hang: &Hang) -> bool {
        hang.printers.contains(&self.own)
    }

    /// Are there jobs of the own family, and others, among those that hang?
    pub fn relatives(&self, hang: &Hang) -> (bool, bool) {
        let of_family = |job: &u64| {
            let statement = self.statements.get(job);
            statement.is_some_and(|s| s.family == self.family())
        };
        let mut others = hang.jobs.iter().filter(|&&job| job != self.own);
        let family = others.clone().any(of_family);
        (family, others.any(|job| !of_family(job)))
    }

    /// Tells the others which jobs hang.
    pub fn announce(&mut self, hang: &Hang) {
        self.announced.insert(hang.jobs.clone());
        self.send_all(&hang_message(hang), None);
        self.found = Some(hang.clone());
    }

    /// That the own job hangs, with others, as a launcher has found.
    pub fn found(&mut self) -> Option<&Hang> {
        self.read();
        self.found.as_ref()
    }

    /// The job is over: the others are told.
    pub fn leave(&mut self) {
        self.send_all(&over_message(self.own), None);
        self.links.clear();
        self.network.finish();
    }
}

fn job_of_hello(hello: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(hello.strip_prefix(HELLO)?).ok()?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
