//! The handshake: three messages of fixed length, and then each side knows that the other holds the
//! job's key, which process it is, and that it speaks now.
//!
//! ```text
//! hello   caller → called    96 bytes: magic, version, job, from, to, purpose, flags, nonce, mac of all that
//! answer  called → caller    72 bytes: magic, version, nonce, proof over hello and this
//! finish  caller → called    32 bytes: proof over hello and answer; data may follow at once
//! ```
//!
//! The mac of the hello keeps the called process silent towards whoever does not know the key: a
//! stranger is not even told that this is Ferry. It proves no freshness (a recorded hello can be
//! sent again), so nothing is done with what the hello says until `finish` has proved that the
//! caller has seen the fresh nonce of the answer. Each of the three has a key of its own, derived
//! from the job's, so none can stand for another: a message sent back to its sender is worthless.
//! Proofs are HMAC-SHA-256, compared in constant time (RFC 2104; keys by HKDF, RFC 5869).

use std::fmt;
use std::ops::Deref;

use ring::{hkdf, hmac};
use zeroize::Zeroizing;

use crate::key::{Key, NoRandomness, fill};
use crate::record::{Opener, Sealer, Secret};

/// The version of handshake and records. Processes of different versions do not speak to each
/// other.
pub const VERSION: u16 = 1;
/// Bytes of the first message, from the caller.
pub const HELLO: usize = 96;
/// Bytes of the second message, from the called.
pub const ANSWER: usize = 72;
/// Bytes of the third message, from the caller.
pub const FINISH: usize = 32;

const MAGIC: [u8; 6] = *b"\x89FERRY";
/// Magic and version stand first in hello and answer.
const PREFIX: usize = 8;
const MAC: usize = 32;
const NONCE: usize = 32;
/// Where the hello's mac begins.
const HELLO_BODY: usize = HELLO - MAC;
/// Where the answer's proof begins.
const ANSWER_BODY: usize = ANSWER - MAC;
const ENCRYPT: u16 = 1;

/// What a process is within its job; both ends of a connection must agree on `job`, `purpose` and
/// `encrypt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    /// The job's number.
    pub job: u64,
    /// This process's number in the job.
    pub process: u32,
    /// What the connection is for. Connections of different purposes (a transport's, a launcher's)
    /// are never taken for each other.
    pub purpose: u16,
    /// Whether records follow the handshake (`FERRY_ENCRYPT=1`).
    pub encrypt: bool,
}

/// What one process needs to call others and to be called: made once, used for all its connections.
pub struct Guard {
    local: Local,
    hello: hmac::Key,
    answer: hmac::Key,
    finish: hmac::Key,
    sessions: hkdf::Prk,
}

impl Guard {
    /// Derives what is needed from the job's key.
    pub fn new(key: &Key, local: Local) -> Guard {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"ferry-auth 1").extract(key.as_bytes());
        let role = |label: &[u8]| {
            let mut bytes = Zeroizing::new([0; 32]);
            expand(&secret, &[label], &mut bytes);
            hmac::Key::new(hmac::HMAC_SHA256, &*bytes)
        };
        let (hello, answer, finish) = (role(b"hello"), role(b"answer"), role(b"finish"));
        Guard {
            local,
            hello,
            answer,
            finish,
            sessions: secret,
        }
    }

    /// What this process is.
    pub fn local(&self) -> Local {
        self.local
    }

    /// Begins to call process `to`: send the message, then feed what comes back to the handshake.
    pub fn connect(&self, to: u32) -> Result<(Handshake, Message), NoRandomness> {
        let mut hello = [0; HELLO];
        prefix(&mut hello);
        hello[8..16].copy_from_slice(&self.local.job.to_le_bytes());
        hello[16..20].copy_from_slice(&self.local.process.to_le_bytes());
        hello[20..24].copy_from_slice(&to.to_le_bytes());
        hello[24..26].copy_from_slice(&self.local.purpose.to_le_bytes());
        hello[26..28].copy_from_slice(&flags(self.local.encrypt).to_le_bytes());
        fill(&mut hello[HELLO_BODY - NONCE..HELLO_BODY])?;
        let mac = hmac::sign(&self.hello, &hello[..HELLO_BODY]);
        hello[HELLO_BODY..].copy_from_slice(mac.as_ref());
        let mut handshake = Handshake::new(State::Called { to });
        handshake.transcript[..HELLO].copy_from_slice(&hello);
        Ok((handshake, Message::new(&hello)))
    }

    /// Begins to listen to whoever has just connected.
    pub fn accept(&self) -> Handshake {
        Handshake::new(State::Listening)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

/// One side of one handshake. After `Done` or an error it takes no more bytes.
pub struct Handshake {
    state: State,
    /// Hello, answer, finish, as far as they have come.
    transcript: [u8; HELLO + ANSWER + FINISH],
    /// Bytes of the message that is being received.
    filled: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// As the caller: hello is sent, the answer is awaited.
    Called { to: u32 },
    /// As the called: the hello is awaited.
    Listening,
    /// As the called: the answer is sent, finish is awaited.
    Answered,
    /// Done or rejected.
    Over,
}

/// What to do after bytes were fed to a handshake.
#[derive(Debug)]
pub enum Step {
    /// Read more; [`Handshake::wants`] says how much.
    More,
    /// Send this, then read more.
    Send(Message),
    /// Send the message if it is not empty; then the connection is open, and everything after the
    /// handshake's bytes is the peer's data.
    Done(Session, Message),
}

impl Handshake {
    fn new(state: State) -> Handshake {
        Handshake {
            state,
            transcript: [0; HELLO + ANSWER + FINISH],
            filled: 0,
        }
    }

    /// How many bytes the message that is being received still lacks: whoever reads no more than
    /// that has nothing left over.
    pub fn wants(&self) -> usize {
        self.message().1 - self.filled
    }

    /// Whether the other side has already shown that it, or someone whose hello it repeats, knows
    /// the key.
    pub fn has_hello(&self) -> bool {
        matches!(self.state, State::Answered)
    }

    /// Takes what it needs off the front of `bytes` and says what to do next. Bytes behind the
    /// handshake's last are left in `bytes`. An error is final: close the connection without
    /// sending anything.
    pub fn feed(&mut self, guard: &Guard, bytes: &mut &[u8]) -> Result<Step, Rejected> {
        let result = self.advance(guard, bytes);
        if !matches!(result, Ok(Step::More | Step::Send(_))) {
            self.state = State::Over;
        }
        result
    }

    /// Where in the transcript the message that is being received lies: start and length.
    fn message(&self) -> (usize, usize) {
        match self.state {
            State::Listening => (0, HELLO),
            State::Called { .. } => (HELLO, ANSWER),
            State::Answered => (HELLO + ANSWER, FINISH),
            State::Over => (0, self.filled),
        }
    }

    fn advance(&mut self, guard: &Guard, bytes: &mut &[u8]) -> Result<Step, Rejected> {
        if self.state == State::Over {
            return Err(Rejected::Closed);
        }
        let (start, length) = self.message();
        let take = bytes.len().min(length - self.filled);
        let (mine, rest) = bytes.split_at(take);
        self.transcript[start + self.filled..][..take].copy_from_slice(mine);
        self.filled += take;
        *bytes = rest;
        if self.state != State::Answered {
            // Who speaks something else is known by its first bytes, and sent away without waiting
            // for more.
            check_prefix(&self.transcript[start..][..self.filled])?;
        }
        if self.filled < length {
            return Ok(Step::More);
        }
        self.filled = 0;
        match self.state {
            State::Listening => self.answer(guard),
            State::Called { to } => self.finish(guard, to),
            State::Answered => self.finished(guard),
            State::Over => Err(Rejected::Closed),
        }
    }

    /// As the called, with a whole hello.
    fn answer(&mut self, guard: &Guard) -> Result<Step, Rejected> {
        let (hello, rest) = self.transcript.split_at_mut(HELLO);
        let (body, mac) = hello.split_at(HELLO_BODY);
        hmac::verify(&guard.hello, body, mac).map_err(|_| Rejected::Proof)?;
        // From here on the hello was written by a process that knows the key, though perhaps not
        // now.
        if number(body, 8) != guard.local.job {
            return Err(Rejected::Job);
        }
        let (from, to) = (number32(body, 16), number32(body, 20));
        if to != guard.local.process || from == to {
            return Err(Rejected::Process);
        }
        if number16(body, 24) != guard.local.purpose || body[28..32] != [0; 4] {
            return Err(Rejected::Purpose);
        }
        if number16(body, 26) != flags(guard.local.encrypt) {
            return Err(Rejected::Encryption);
        }
        let answer = &mut rest[..ANSWER];
        prefix(answer);
        fill(&mut answer[PREFIX..ANSWER_BODY]).map_err(|_| Rejected::Randomness)?;
        let (body, proof) = answer.split_at_mut(ANSWER_BODY);
        proof.copy_from_slice(over(&guard.answer, &[hello, body]).sign().as_ref());
        let message = Message::new(answer);
        self.state = State::Answered;
        Ok(Step::Send(message))
    }

    /// As the caller, with a whole answer.
    fn finish(&mut self, guard: &Guard, to: u32) -> Result<Step, Rejected> {
        let (said, finish) = self.transcript.split_at_mut(HELLO + ANSWER);
        let (body, proof) = said.split_at(HELLO + ANSWER_BODY);
        hmac::verify(&guard.answer, body, proof).map_err(|_| Rejected::Proof)?;
        finish.copy_from_slice(hmac::sign(&guard.finish, said).as_ref());
        let message = Message::new(finish);
        Ok(Step::Done(self.session(guard, to, true), message))
    }

    /// As the called, with a whole finish.
    fn finished(&mut self, guard: &Guard) -> Result<Step, Rejected> {
        let (said, proof) = self.transcript.split_at(HELLO + ANSWER);
        hmac::verify(&guard.finish, said, proof).map_err(|_| Rejected::Proof)?;
        let from = number32(said, 16);
        Ok(Step::Done(
            self.session(guard, from, false),
            Message::new(&[]),
        ))
    }

    /// The keys of this connection, one each way, from the job's key and the transcript with both
    /// nonces.
    fn session(&self, guard: &Guard, peer: u32, caller: bool) -> Session {
        let said = &self.transcript[..HELLO + ANSWER];
        let secret = |label: &[u8]| {
            let mut bytes = Zeroizing::new([0; 32]);
            expand(&guard.sessions, &[label, said], &mut bytes);
            Secret(bytes)
        };
        let (there, back) = (secret(b"from the caller"), secret(b"to the caller"));
        let (send, receive) = if caller { (there, back) } else { (back, there) };
        Session {
            peer,
            encrypt: guard.local.encrypt,
            send,
            receive,
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// An open connection: who is at its other end, and the keys of its records.
pub struct Session {
    peer: u32,
    encrypt: bool,
    send: Secret,
    receive: Secret,
}

impl Session {
    /// The other end's process number, proved.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// Whether both ends want records.
    pub fn encrypt(&self) -> bool {
        self.encrypt
    }

    /// What seals the bytes that go out and opens those that come in. Call it once a connection: a
    /// second pair would use each nonce again.
    pub fn records(self) -> (Sealer, Opener) {
        (Sealer::new(self.send), Opener::new(self.receive))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A message of the handshake, to be sent as it is; empty if there is nothing to send.
#[derive(Clone, Copy)]
pub struct Message {
    bytes: [u8; HELLO],
    length: u8,
}

impl Message {
    fn new(text: &[u8]) -> Message {
        let mut bytes = [0; HELLO];
        bytes[..text.len()].copy_from_slice(text);
        Message {
            bytes,
            length: text.len() as u8,
        }
    }
}

impl Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length as usize]
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes)", self.length)
    }
}

/// Why a connection is closed before it is open. This is for the local log and counters; the other
/// side is told nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejected {
    /// The first bytes are not Ferry's.
    #[error("it does not speak Ferry's protocol")]
    Stranger,
    /// It is Ferry, but of another version.
    #[error(
        "it speaks version {theirs} of Ferry's connections, this process version {VERSION}: run one version of Ferry on all hosts"
    )]
    Version {
        /// The version it speaks.
        theirs: u16,
    },
    /// It does not know the job's key, or bytes were changed on the way, or an old connection is
    /// being repeated.
    #[error("it could not prove that it belongs to this job")]
    Proof,
    /// It knows the key but names another job.
    #[error("it belongs to another job")]
    Job,
    /// It knows the key but wants another process, which may have had this address before.
    #[error("it wants another process of this job")]
    Process,
    /// It is a process of this job with which there is, or was, a connection already: two that
    /// called each other at once.
    #[error("this process and that one have a connection already")]
    Crossed,
    /// It knows the key, but connects for something that this listener does not do.
    #[error("it connects for another purpose")]
    Purpose,
    /// One side has FERRY_ENCRYPT=1 and the other has not.
    #[error("only one side encrypts: set FERRY_ENCRYPT the same for all ranks")]
    Encryption,
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random bytes")]
    Randomness,
    /// It did not finish the handshake in time.
    #[error("it did not finish the handshake in time")]
    Late,
    /// It had to make room for others while too many were waiting.
    #[error("too many unfinished connections at once")]
    Crowded,
    /// It closed the connection before the handshake was over.
    #[error("it closed the connection before the handshake was over")]
    Closed,
}

fn flags(encrypt: bool) -> u16 {
    if encrypt { ENCRYPT } else { 0 }
}

fn prefix(message: &mut [u8]) {
    message[..6].copy_from_slice(&MAGIC);
    message[6..PREFIX].copy_from_slice(&VERSION.to_le_bytes());
}

/// Judges as much of magic and version as has come.
fn check_prefix(bytes: &[u8]) -> Result<(), Rejected> {
    let magic = bytes.len().min(MAGIC.len());
    if bytes[..magic] != MAGIC[..magic] {
        return Err(Rejected::Stranger);
    }
    if bytes.len() >= PREFIX {
        let theirs = number16(bytes, MAGIC.len());
        if theirs != VERSION {
            return Err(Rejected::Version { theirs });
        }
    }
    Ok(())
}

fn number16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    u32::from(number16(bytes, at)) | u32::from(number16(bytes, at + 2)) << 16
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from(number32(bytes, at)) | u64::from(number32(bytes, at + 4)) << 32
}

/// A keyed hash over several pieces in a row.
fn over(key: &hmac::Key, pieces: &[&[u8]]) -> hmac::Context {
    let mut context = hmac::Context::with_key(key);
    for piece in pieces {
        context.update(piece);
    }
    context
}

/// HKDF-Expand to 32 bytes.
pub(crate) fn expand(secret: &hkdf::Prk, info: &[&[u8]], out: &mut [u8; 32]) {
    let okm = secret
        .expand(info, hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(out));
    // One block of output is asked for, and the limit is 255 (RFC 5869 § 2.3).
    okm.expect("HKDF gives 32 bytes");
}
