//! Launchers whose jobs were started apart from this one's and have met it at a port. Together they
//! find out that all of these jobs hang.
//!
//! A *family* is the jobs that came of one mpiexec; its first launcher stands for it here. When two
//! families meet, their ranks pass on where their launchers listen, and these connect. Each
//! launcher tells what it knows of its own family, and passes on what others tell of theirs, so
//! that it reaches those of families further away. Such a statement has a number, and the newest
//! counts.
//!
//! ```text
//! launcher ── ferry-peer FAMILY ─────────────────▶   who calls
//!          ── E family number peers state ───────▶   a family sleeps (with its report), or moves
//!          ── H text ────────────────────────────▶   all hang: this launcher ends its job
//! ```
//!
//! All on one host, through a socket in the abstract namespace, whose name nobody guesses.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::family::Sleeping;
use super::names::{address, is_own};

/// What a launcher says first.
pub(super) const HELLO: &[u8] = b"ferry-peer ";
/// Longest message, bytes.
const MESSAGE_MAX_BYTES: usize = 1 << 20;
/// Most families that a statement names. A choice: more than any program meets.
const PEERS_MAX: usize = 1024;

/// A launcher that this one is connected to, or will be.
struct Peer {
    family: u64,
    stream: Option<UnixStream>,
    received: Vec<u8>,
    /// Its jobs are over.
    has_ended: bool,
}

/// What a family's launcher has said of it.
#[derive(Clone, Default)]
struct Statement {
    number: u64,
    /// Families that it has met.
    peers: Vec<u64>,
    /// `None`: one of its jobs moves.
    sleeping: Option<Sleeping>,
}

/// The launchers that this one knows, and what they have said.
pub(super) struct Peers {
    own: u64,
    peers: Vec<Peer>,
    /// By family, this one's too.
    statements: HashMap<u64, Statement>,
    /// Another launcher has found that all hang: its report.
    announced: Option<String>,
}

fn encode(family: u64, statement: &Statement) -> Vec<u8> {
    let mut out = vec![b'E'];
    out.extend(family.to_le_bytes());
    out.extend(statement.number.to_le_bytes());
    out.extend((statement.peers.len() as u64).to_le_bytes());
    statement
        .peers
        .iter()
        .for_each(|p| out.extend(p.to_le_bytes()));
    out.extend(
        statement
            .sleeping
            .as_ref()
            .map_or(vec![b'M'], Sleeping::encode),
    );
    out
}

/// The family and the statement of a message's rest. `None`: it is none.
fn decode(mut bytes: &[u8]) -> Option<(u64, Statement)> {
    let mut word = || {
        let (word, rest) = bytes.split_first_chunk()?;
        bytes = rest;
        Some(u64::from_le_bytes(*word))
    };
    let (family, number, count) = (word()?, word()?, word()?);
    if count > PEERS_MAX as u64 {
        return None;
    }
    let peers = (0..count).map(|_| word()).collect::<Option<Vec<u64>>>()?;
    let sleeping = Sleeping::decode(bytes);
    Some((
        family,
        Statement {
            number,
            peers,
            sleeping,
        },
    ))
}

impl Peer {
    /// Sends a message. One that does not take it is not awaited: it is not spoken to any more.
    fn send(&mut self, message: &[u8]) {
        let whole = [&(message.len() as u32).to_le_bytes(), message].concat();
        if let Some(stream) = &mut self.stream
            && stream.write_all(&whole).is_err()
        {
            self.stream = None;
            self.has_ended = true;
        }
    }

    /// The messages that have come.
    fn messages(&mut self) -> Vec<Vec<u8>> {
        let mut buffer = [0; 16 << 10];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => self.received.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => {
                    self.stream = None;
                    self.has_ended = true;
                }
            }
        }
        let mut found = Vec::new();
        while let Some((len, rest)) = self.received.split_first_chunk() {
            let len = u32::from_le_bytes(*len) as usize;
            if len > MESSAGE_MAX_BYTES {
                self.stream = None;
                self.received.clear();
                break;
            }
            if rest.len() < len {
                break;
            }
            found.push(rest[..len].to_vec());
            self.received.drain(..4 + len);
        }
        found
    }
}

impl Peers {
    /// Of family `own`.
    pub fn new(own: u64) -> Peers {
        Peers {
            own,
            peers: Vec::new(),
            statements: HashMap::from([(own, Statement::default())]),
            announced: None,
        }
    }

    /// Is there another family?
    pub fn any(&self) -> bool {
        !self.peers.is_empty()
    }

    /// A rank has met another family, whose launcher listens at this contact.
    pub fn expect(&mut self, contact: &str) {
        let Some((family, name)) = contact.split_once(':') else {
            return;
        };
        let Ok(family) = u64::from_str_radix(family, 16) else {
            return;
        };
        if family == self.own || !self.add(family) || family < self.own {
            return;
        }
        // One on another host is not found. It counts as one that moves.
        let stream = address(name).and_then(|at| UnixStream::connect_addr(&at));
        if let Ok(stream) = stream
            && is_own(&stream)
        {
            self.connected(family, stream, true);
        }
    }

    /// Adds a family. Returns false if it is known.
    fn add(&mut self, family: u64) -> bool {
        if self.peers.iter().any(|p| p.family == family) {
            return false;
        }
        self.peers.push(Peer {
            family,
            stream: None,
            received: Vec::new(),
            has_ended: false,
        });
        self.say(None);
        true
    }

    /// Another launcher has connected, and has said this first.
    pub fn accept(&mut self, stream: UnixStream, hello: &[u8]) {
        let family = hello
            .strip_prefix(HELLO)
            .and_then(|text| u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok());
        if let Some(family) = family.filter(|&f| f != self.own) {
            self.add(family);
            self.connected(family, stream, false);
        }
    }

    fn connected(&mut self, family: u64, stream: UnixStream, calls: bool) {
        let Some(peer) = self.peers.iter_mut().find(|p| p.family == family) else {
            return;
        };
        if peer.stream.is_some() || stream.set_nonblocking(true).is_err() {
            return;
        }
        peer.stream = Some(stream);
        if calls {
            peer.send(&[HELLO, format!("{:x}", self.own).as_bytes()].concat());
        }
        for (&family, statement) in &self.statements {
            peer.send(&encode(family, statement));
        }
    }

    /// Sends a message to all but one.
    fn send_all(&mut self, message: &[u8], but: Option<u64>) {
        for peer in &mut self.peers {
            if Some(peer.family) != but {
                peer.send(message);
            }
        }
    }

    /// Says of the own family that it sleeps, or moves.
    fn say(&mut self, sleeping: Option<&Sleeping>) {
        let living = self.peers.iter().filter(|p| !p.has_ended);
        let peers: Vec<u64> = living.map(|p| p.family).collect();
        let own = self.statements.entry(self.own).or_default();
        own.number += 1;
        own.peers = peers;
        own.sleeping = sleeping.cloned();
        let message = encode(self.own, own);
        self.send_all(&message, None);
    }

    /// Tells the others whether the own family sleeps, if that is news.
    pub fn tell(&mut self, sleeping: Option<&Sleeping>) {
        if !self.any() {
            return;
        }
        self.read();
        let before = &self.statements[&self.own].sleeping;
        // How long it sleeps, and so the report, is no news.
        if before.as_ref().map(|s| s.traffic) != sleeping.map(|s| s.traffic) {
            self.say(sleeping);
        }
    }

    /// Reads what others say, and passes it on.
    fn read(&mut self) {
        let (mut news, mut ended) = (Vec::new(), false);
        for peer in &mut self.peers {
            let before = peer.has_ended;
            let from = peer.family;
            news.extend(peer.messages().into_iter().map(|m| (from, m)));
            ended |= peer.has_ended != before;
        }
        for (from, message) in news {
            match message.split_first() {
                Some((b'E', rest)) => {
                    let Some((family, statement)) = decode(rest) else {
                        continue;
                    };
                    let known = self.statements.get(&family).map_or(0, |s| s.number);
                    if family != self.own && statement.number > known {
                        self.statements.insert(family, statement);
                        self.send_all(&message, Some(from));
                    }
                }
                Some((b'H', text)) => {
                    self.announced = Some(String::from_utf8_lossy(text).into_owned());
                }
                _ => {}
            }
        }
        if ended {
            let sleeping = self.statements[&self.own].sleeping.clone();
            self.say(sleeping.as_ref());
        }
    }

    /// What the other families say that this one has met, or that those have met, if all of them
    /// sleep. Jobs that are over do not count.
    pub fn sleeping(&mut self) -> Option<Sleeping> {
        self.read();
        let mut all = Sleeping::default();
        let mut seen = HashSet::from([self.own]);
        let mut left: VecDeque<u64> = VecDeque::from([self.own]);
        while let Some(at) = left.pop_front() {
            let statement = self.statements.get(&at)?;
            if at != self.own {
                all = all.with(statement.sleeping.as_ref()?);
            }
            for &next in &statement.peers {
                let over = |p: &Peer| p.family == next && p.has_ended;
                if !self.peers.iter().any(over) && seen.insert(next) {
                    left.push_back(next);
                }
            }
        }
        all.traffic.has_finished |= self.peers.iter().any(|p| p.has_ended);
        Some(all)
    }

    /// Tells the others that all hang.
    pub fn announce(&mut self, report: &str) {
        self.send_all(&[b"H", report.as_bytes()].concat(), None);
    }

    /// The report of another launcher that has found that all hang.
    pub fn announced(&mut self) -> Option<String> {
        if self.any() {
            self.read();
        }
        self.announced.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hang::Traffic;

    fn sleeping(sent: u64, received: u64) -> Sleeping {
        Sleeping {
            traffic: Traffic {
                sent,
                received,
                has_finished: false,
            },
            report: format!("job with {sent} messages\n"),
        }
    }

    /// Two launchers with a connection.
    fn connect(a: &mut Peers, b: &mut Peers) {
        let (one, other) = UnixStream::pair().unwrap();
        a.add(b.own);
        b.accept(other, format!("ferry-peer {:x}", a.own).as_bytes());
        a.connected(b.own, one, false);
    }

    #[test]
    fn families_sleep_when_all_do_also_those_far_away() {
        let [mut a, mut b, mut c] = [1, 2, 3].map(Peers::new);
        connect(&mut a, &mut b);
        connect(&mut b, &mut c);
        a.tell(Some(&sleeping(3, 1)));
        c.tell(Some(&sleeping(1, 2)));
        assert_eq!(a.sleeping(), None);
        b.tell(Some(&sleeping(1, 2)));
        assert_eq!(a.sleeping(), Some(sleeping(1, 2).with(&sleeping(1, 2))));
        assert_eq!(b.sleeping(), Some(sleeping(3, 1).with(&sleeping(1, 2))));
        c.tell(None);
        b.read();
        assert_eq!(a.sleeping(), None);
        // A job that is over does not count, but what was sent to it may never be received.
        drop(c);
        b.read();
        let rest = a.sleeping().unwrap();
        assert_eq!(rest.report, sleeping(1, 2).report);
        a.announce("all hang");
        assert_eq!(b.announced().as_deref(), Some("all hang"));
        assert_eq!((b.announced(), a.announced()), (None, None));
    }

    #[test]
    fn fuzz_statements() {
        let statement = Statement {
            number: 4,
            peers: vec![1, 2],
            sleeping: Some(sleeping(1, 2)),
        };
        let seeds = [
            encode(7, &statement)[1..].to_vec(),
            encode(7, &Statement::default())[1..].to_vec(),
        ];
        ferry_fuzz::fuzz("statements of launchers", &seeds, |bytes| {
            decode(bytes).is_some()
        });
    }
}
