//! Launchers of other jobs, which together find out that several jobs hang. A launcher has links to
//! the launcher that has started it, to those that it has started (MPI_Comm_spawn), and to those of
//! jobs with which its ranks have connected (MPI_Comm_connect, MPI_Comm_join).
//!
//! Each launcher publishes a statement on its job: which other jobs its ranks are connected with,
//! and whether all of its ranks sleep. It forwards the statements of others, so that they reach
//! launchers without a direct link (flooding, as in a link-state routing protocol). Statements are
//! numbered, and the newest counts.
//!
//! A job hangs if all of its ranks sleep, all jobs sleep that it reaches through such connections,
//! and no message is in flight among them. Jobs that have disconnected are not reached.
//!
//! ```text
//! launcher ── ferry-peer JOB ─▶    first: whose launcher it is
//!          ── E job statement ─▶   a job's new statement (with its report, if it sleeps)
//!          ── G job ───────────▶   a job has ended
//!          ── H jobs text ─────▶   these jobs hang: their launchers end them
//! ```
//!
//! Jobs that connect at a port exchange the contacts of their launchers. A launcher learns the
//! contacts of other jobs from their statements.

mod link;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::os::unix::net::UnixStream;

use link::Link;

use super::contact::{Network, job_of};
use super::statement::{Input, Sleeping, Statement};
use crate::hang::Traffic;

/// The first message on a link, before the sender's job in hexadecimal.
pub(super) const HELLO: &[u8] = b"ferry-peer ";

/// Ended jobs that are remembered at most, although no statement names them. A choice.
const ENDED_JOBS_MAX: usize = 10_000;

/// The links to other launchers, and what these have published.
pub(super) struct Peers {
    /// The id of this launcher's job.
    own: u64,
    links: Vec<Link>,
    /// The newest statement of each job, also of the own one.
    statements: HashMap<u64, Statement>,
    ended_jobs: HashSet<u64>,
    /// Contacts of jobs, as ranks have passed them on. An entry goes with the attempt to connect.
    contacts: HashMap<u64, String>,
    /// Jobs to whose launchers this one has tried to connect. It does so once.
    connect_attempted: HashSet<u64>,
    network: Network,
    /// The hang that the own job is part of, once a launcher has announced it.
    announced_hang: Option<Hang>,
    /// Sets of jobs whose hang was announced or forwarded. Each is forwarded once.
    announced_sets: HashSet<BTreeSet<u64>>,
}

/// Several jobs that hang together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hang {
    pub jobs: BTreeSet<u64>,
    /// Those whose launchers print the report: one of each family ([`Peers::family`]).
    pub printers: BTreeSet<u64>,
    /// Who waits for whom, in all of the jobs.
    pub report: String,
}

fn statement_message(job: u64, statement: &Statement) -> Vec<u8> {
    let mut out = vec![b'E'];
    out.extend(job.to_le_bytes());
    statement.put(&mut out);
    out
}

fn ended_message(job: u64) -> Vec<u8> {
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

/// Reads what follows the H in a [`hang_message`]. `None`: it is malformed.
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
    /// For the launcher of job `own`. `upstream`: the socket to the launcher that has started this
    /// one, and that launcher's family.
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
            ended_jobs: HashSet::new(),
            contacts: HashMap::new(),
            connect_attempted: HashSet::new(),
            network: Network::default(),
            announced_hang: None,
            announced_sets: HashSet::new(),
        };
        if let Some((stream, _)) = upstream {
            peers.add_link(stream, true);
        }
        peers
    }

    fn own_statement(&self) -> &Statement {
        &self.statements[&self.own]
    }

    /// The jobs that one mpiexec has started, with those that these have spawned, are a family. Its
    /// name is the id of the first.
    pub fn family(&self) -> u64 {
        self.own_statement().family
    }

    /// Has another launcher started this one (MPI_Comm_spawn)?
    pub fn is_spawned(&self) -> bool {
        self.family() != self.own
    }

    /// Adds the link to a launcher that is about to be started. Returns that launcher's end.
    pub fn link_to_spawned(&mut self) -> std::io::Result<UnixStream> {
        let (near, far) = UnixStream::pair()?;
        self.add_link(near, true);
        Ok(far)
    }

    /// Listens for other launchers, and returns the contact at which they find this one: see
    /// [`super::contact`]. `name`: the name of its listening socket on this host.
    pub fn listen(&mut self, name: &str) -> String {
        let contact = self.network.contact(self.own, name);
        if self.own_statement().contact != contact {
            let mut new = self.own_statement().clone();
            new.contact = contact.clone();
            self.publish(new);
        }
        contact
    }

    /// The ranks have connected with a job whose launcher has this contact.
    pub fn learn_contact(&mut self, contact: &str) {
        if let Some(job) = job_of(contact) {
            self.contacts.insert(job, contact.into());
            self.connect_to(job);
        }
    }

    /// Connects to a job's launcher, if its contact is known. Of two launchers, that of the lower
    /// job id connects.
    fn connect_to(&mut self, job: u64) {
        let has_link = self.links.iter().any(|l| l.job == Some(job));
        if job <= self.own
            || has_link
            || self.ended_jobs.contains(&job)
            || self.connect_attempted.contains(&job)
        {
            return;
        }
        let published = self.statements.get(&job).map(|s| s.contact.clone());
        let contact = self.contacts.remove(&job).or(published);
        if let Some(contact) = contact.filter(|c| !c.is_empty()) {
            self.connect_attempted.insert(job);
            if let Some((stream, is_local)) = self.network.connect(&contact) {
                self.add_link(stream, is_local);
            }
        }
    }

    /// Adds links to launchers that have connected through the network.
    fn accept_remote(&mut self) {
        while let Some(stream) = self.network.accept() {
            self.add_link(stream, false);
        }
    }

    /// Adds a link to a launcher on this host that has connected and has sent `hello`.
    pub fn accept(&mut self, stream: UnixStream, hello: &[u8]) {
        self.add_link(stream, true);
        if let Some(link) = self.links.last_mut() {
            link.job = job_of_hello(hello);
        }
    }

    fn add_link(&mut self, stream: UnixStream, is_local: bool) {
        let mut link = Link::new(stream, is_local, self.own);
        for (&job, statement) in &self.statements {
            link.send(&statement_message(job, statement));
        }
        self.links.push(link);
    }

    /// Sends a message on all links but that of index `except`.
    fn broadcast(&mut self, message: &[u8], except: Option<usize>) {
        for (at, link) in self.links.iter_mut().enumerate() {
            if Some(at) != except {
                link.send(message);
            }
        }
    }

    /// Publishes a new statement on the own job. If its ranks have fallen asleep, also sends the
    /// statements of other jobs, which [`Peers::handle_message`] does not forward before.
    fn publish(&mut self, mut new: Statement) {
        new.number = self.own_statement().number + 1;
        let falls_asleep = self.own_statement().sleeping.is_none() && new.sleeping.is_some();
        let message = statement_message(self.own, &new);
        self.statements.insert(self.own, new);
        self.broadcast(&message, None);
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

    /// Would [`Peers::update`] publish it that all own ranks sleep, connected with jobs `known`?
    pub fn is_news(&self, known: &BTreeSet<u64>, traffic: Traffic) -> bool {
        let published = self.own_statement();
        let last = published.sleeping.as_ref().map(|s| s.traffic);
        published.known != *known || last != Some(traffic)
    }

    /// Reads what others have sent, and publishes a new statement if it differs from the last one.
    /// `known`: the jobs with which the own ranks are connected. `sleeping`: `None` unless all own
    /// ranks sleep.
    pub fn update(&mut self, known: &BTreeSet<u64>, sleeping: Option<Sleeping>) {
        self.receive();
        let new = Statement {
            known: known.clone(),
            sleeping,
            ..self.own_statement().clone()
        };
        if !new.says_the_same_as(self.own_statement()) {
            self.publish(new);
        }
        for &job in known {
            self.connect_to(job);
        }
    }

    /// Handles the messages that have come, and removes links that have broken.
    fn receive(&mut self) {
        self.accept_remote();
        let mut news = Vec::new();
        for (at, link) in self.links.iter_mut().enumerate() {
            news.extend(link.messages().into_iter().map(|m| (at, m)));
        }
        for (from, message) in news {
            self.handle_message(from, &message);
        }
        let (ended, living): (Vec<Link>, Vec<Link>) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|l| l.stream.is_none());
        self.links = living;
        for link in ended {
            match link.job {
                Some(job) if link.is_local => self.job_ended(job, None),
                // Nothing more is known of it.
                Some(job) if self.links.iter().all(|l| l.job != Some(job)) => {
                    self.statements.remove(&job);
                }
                _ => {}
            }
        }
    }

    /// Handles a message of link `from`, and forwards it to the other links if it is news.
    fn handle_message(&mut self, from: usize, message: &[u8]) {
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
                    || self.ended_jobs.contains(&job)
                {
                    return;
                }
                // While an own rank is awake, no job that is connected with this one hangs. Until
                // all sleep, statements are kept and not forwarded.
                let is_new = known.is_none_or(|s| s.contact != statement.contact);
                self.statements.insert(job, statement);
                if is_new || self.own_statement().sleeping.is_some() {
                    self.broadcast(message, Some(from));
                }
            }
            b'G' => {
                if let Some(job) = Input(rest).word() {
                    self.job_ended(job, Some(from));
                }
            }
            b'H' => {
                if let Some(hang) = read_hang(rest)
                    && self.announced_sets.insert(hang.jobs.clone())
                {
                    self.broadcast(message, Some(from));
                    self.announced_hang = Some(hang).filter(|h| h.jobs.contains(&self.own));
                }
            }
            _ => {}
        }
    }

    /// Records that a job has ended, and forwards it. `from`: the link that has brought it.
    fn job_ended(&mut self, job: u64, from: Option<usize>) {
        if job != self.own && self.ended_jobs.insert(job) {
            self.statements.remove(&job);
            self.contacts.remove(&job);
            self.connect_attempted.remove(&job);
            self.broadcast(&ended_message(job), from);
            if self.ended_jobs.len() > ENDED_JOBS_MAX {
                let known: HashSet<u64> = self
                    .statements
                    .values()
                    .flat_map(|s| s.known.clone())
                    .collect();
                self.ended_jobs.retain(|job| known.contains(job));
            }
        }
    }

    /// The own job and all that it reaches through connections, if all of them sleep and no message
    /// is in flight, and what all of them have sent and received. `None`: they do not hang.
    pub fn find_hang(&mut self) -> Option<(Hang, Traffic)> {
        let mut all = Sleeping::default();
        let mut jobs = BTreeSet::from([self.own]);
        let mut left = VecDeque::from([self.own]);
        while let Some(at) = left.pop_front() {
            let statement = self.statements.get(&at)?;
            all = all.with(statement.sleeping.as_ref()?);
            for &next in &statement.known {
                if self.ended_jobs.contains(&next) {
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

    /// One job of each family: the family's first if it is among `jobs`.
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
    pub fn prints_report(&self, hang: &Hang) -> bool {
        hang.printers.contains(&self.own)
    }

    /// Are there, among the other jobs that hang, jobs of the own family, and of other families?
    pub fn families_in(&self, hang: &Hang) -> (bool, bool) {
        let of_family = |job: &u64| {
            let statement = self.statements.get(job);
            statement.is_some_and(|s| s.family == self.family())
        };
        let mut others = hang.jobs.iter().filter(|&&job| job != self.own);
        let family = others.clone().any(of_family);
        (family, others.any(|job| !of_family(job)))
    }

    /// Tells all launchers which jobs hang.
    pub fn announce(&mut self, hang: &Hang) {
        self.announced_sets.insert(hang.jobs.clone());
        self.broadcast(&hang_message(hang), None);
        self.announced_hang = Some(hang.clone());
    }

    /// Reads what others have sent. Returns the announced hang that the own job is part of.
    pub fn announced_hang(&mut self) -> Option<&Hang> {
        self.receive();
        self.announced_hang.as_ref()
    }

    /// Tells all launchers that the own job has ended, and closes the links.
    pub fn announce_end(&mut self) {
        self.broadcast(&ended_message(self.own), None);
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
