//! The handshake: Noise's pattern NNpsk0 by the crate `snow`, and one record more.
//!
//! ```text
//! initiator    responder
//!     hello        -> psk, e    prefix, ephemeral key, claim    checked by the job's key alone
//!     response     <- e, ee     prefix, ephemeral key           proves key and freshness
//!     finished     ->           an empty record                 proves the initiator's freshness
//! ```
//!
//! The job's key is Noise's pre-shared key. The hello's claim (job, from, to, purpose, flags) is
//! encrypted under it. Reading the hello needs no Diffie-Hellman operation, so a stranger costs
//! the responder a few hashes and gets no answer. A hello can be recorded and sent again. The
//! responder remembers which ones it has answered. A connection is open only after `finished`: its
//! key comes from both ephemeral keys, so whoever makes it has seen this response. Session keys
//! come from both ephemeral keys, too. Nobody keeps those, so the job's key does not open what was
//! recorded (forward secrecy).
//!
//! Source: Trevor Perrin, The Noise Protocol Framework, revision 34, sections 7 and 9.

use std::fmt;

use snow::params::NoiseParams;
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::key::{JobKey, NoRandomness};
use crate::message::{
    CLAIM_BYTES, Claim, FINISHED_BYTES, HELLO_BYTES, Message, PREFIX, PREFIX_BYTES, RESPONSE_BYTES,
    check_prefix,
};
use crate::record::{Opener, Sealer, Secret};
use crate::rejected::Rejected;
use crate::replay::AnsweredHellos;
use crate::resolver::Resolver;

/// The Noise protocol of every handshake: X25519, AES-256-GCM and SHA-256.
pub(crate) const NOISE_PROTOCOL: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// Which process this is. Both ends of a connection must agree on `job`, `purpose` and `encrypt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
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

/// What all handshakes of one process share: the job's key, the process's identity, and the hellos
/// that it has answered.
pub struct HandshakeConfig {
    local: Identity,
    key: JobKey,
    params: NoiseParams,
    answered: AnsweredHellos,
}

impl HandshakeConfig {
    /// Makes the configuration of process `local` from the job's key.
    pub fn new(key: &JobKey, local: Identity) -> HandshakeConfig {
        let params = NOISE_PROTOCOL.parse();
        HandshakeConfig {
            local,
            key: key.clone(),
            params: params.expect("snow knows the protocol"),
            answered: AnsweredHellos::default(),
        }
    }

    /// Which process this is.
    pub fn local(&self) -> Identity {
        self.local
    }

    /// [`JobKey::hide`] by the job's key.
    pub fn hide(&self, number: u64, key: &mut [u8; 32]) {
        self.key.hide(number, key);
    }

    /// Begins a handshake with process `to`. Send the message, then feed the handshake what comes
    /// back.
    pub fn initiate(&self, to: u32) -> Result<(Handshake, Message), NoRandomness> {
        let noise = self.noise().build_initiator();
        let mut noise = noise.expect("the resolver has all primitives");
        let mut hello = [0; HELLO_BYTES];
        let claim = Claim::new(self.local, to).encode();
        // Nothing else than making the ephemeral key can fail: this message has no agreement.
        write(&mut noise, &claim, &mut hello).map_err(|_| NoRandomness)?;
        let noise = Box::new(noise);
        let handshake = Handshake::new(State::AwaitResponse { to, noise });
        Ok((handshake, Message::new(&hello)))
    }

    /// Begins a handshake with whoever has just connected.
    pub fn respond(&self) -> Handshake {
        Handshake::new(State::AwaitHello)
    }

    fn noise(&self) -> Builder<'_> {
        let builder = Builder::with_resolver(self.params.clone(), Box::new(Resolver));
        let builder = builder.psk(0, self.key.as_bytes());
        let builder = builder.and_then(|builder| builder.prologue(&PREFIX));
        builder.expect("key and prologue are set once")
    }
}

impl fmt::Debug for HandshakeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandshakeConfig")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

/// One side of one handshake. After `Done` or an error it takes no more bytes.
pub struct Handshake {
    state: State,
    /// The message that is being received.
    incoming: [u8; HELLO_BYTES],
    /// Bytes of it that have arrived.
    filled: usize,
}

enum State {
    /// As the responder: nothing is known yet.
    AwaitHello,
    /// As the initiator: the hello is sent.
    AwaitResponse { to: u32, noise: Box<HandshakeState> },
    /// As the responder: the response is sent. The session is not open yet.
    AwaitFinished(Session),
    /// Done or rejected.
    Over,
}

/// What to do after bytes were fed to a handshake.
#[derive(Debug)]
pub enum Step {
    /// Read more; [`Handshake::missing_bytes`] says how much.
    More,
    /// Send this, then read more.
    Send(Message),
    /// Send the message if it is not empty. Then the connection is open, and everything after the
    /// handshake's bytes is the peer's data.
    Done(Session, Message),
}

impl Handshake {
    fn new(state: State) -> Handshake {
        Handshake {
            state,
            incoming: [0; HELLO_BYTES],
            filled: 0,
        }
    }

    /// How many bytes the message that is being received still lacks. Whoever reads no more than
    /// that has nothing left over.
    pub fn missing_bytes(&self) -> usize {
        self.incoming_bytes() - self.filled
    }

    /// As the responder: whether the hello was made with the job's key. It may still be a
    /// recorded one.
    pub fn hello_verified(&self) -> bool {
        matches!(self.state, State::AwaitFinished(_))
    }

    /// Takes what it needs off the front of `bytes` and says what to do next. Bytes behind the
    /// handshake's last are left in `bytes`. An error is final: close the connection without
    /// sending anything.
    pub fn feed(&mut self, config: &HandshakeConfig, bytes: &mut &[u8]) -> Result<Step, Rejected> {
        self.feed_any(&[config], bytes)
    }

    /// As [`Handshake::feed`], by any of several keys: the first that the hello was made with is
    /// that of the session ([`Session::job`]). As the initiator, only the first one is used.
    pub fn feed_any(
        &mut self,
        configs: &[&HandshakeConfig],
        bytes: &mut &[u8],
    ) -> Result<Step, Rejected> {
        let step = self.advance(configs, bytes);
        if step.is_err() {
            self.state = State::Over;
            self.filled = 0;
        }
        step
    }

    /// Length of the message that is being received.
    fn incoming_bytes(&self) -> usize {
        match self.state {
            State::AwaitHello => HELLO_BYTES,
            State::AwaitResponse { .. } => RESPONSE_BYTES,
            State::AwaitFinished(_) => FINISHED_BYTES,
            State::Over => 0,
        }
    }

    fn advance(
        &mut self,
        configs: &[&HandshakeConfig],
        bytes: &mut &[u8],
    ) -> Result<Step, Rejected> {
        let missing = self.missing_bytes();
        let take = bytes.len().min(missing);
        let (taken, rest) = bytes.split_at(take);
        self.incoming[self.filled..][..take].copy_from_slice(taken);
        self.filled += take;
        *bytes = rest;
        let message = &mut self.incoming[..self.filled];
        if matches!(self.state, State::AwaitHello | State::AwaitResponse { .. }) {
            check_prefix(message)?;
        }
        if take < missing {
            return Ok(Step::More);
        }
        self.filled = 0;
        match std::mem::replace(&mut self.state, State::Over) {
            State::AwaitHello => {
                let (session, response) = respond_any(configs, &self.incoming)?;
                self.state = State::AwaitFinished(session);
                Ok(Step::Send(response))
            }
            State::AwaitResponse { to, noise } => match configs.first() {
                Some(config) => finish(config, to, *noise, message),
                None => Err(Rejected::Proof),
            },
            State::AwaitFinished(session) => finished(session, message),
            State::Over => Err(Rejected::Closed),
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::AwaitHello => "AwaitHello",
            State::AwaitResponse { .. } => "AwaitResponse",
            State::AwaitFinished(_) => "AwaitFinished",
            State::Over => "Over",
        };
        write!(f, "Handshake({state})")
    }
}

/// As the responder: answers a hello by the first key that it was made with. A key that it was not
/// made with costs a few hashes.
fn respond_any(
    configs: &[&HandshakeConfig],
    hello: &[u8; HELLO_BYTES],
) -> Result<(Session, Message), Rejected> {
    let mut why = Rejected::Proof;
    for config in configs {
        match respond(config, hello) {
            Ok(answer) => return Ok(answer),
            // A hello that a key opens, and that is refused all the same, says more.
            Err(Rejected::Proof) => {}
            Err(e) => why = e,
        }
    }
    Err(why)
}

/// As the responder: reads a whole hello and makes the response. There is no Diffie-Hellman
/// operation until the claim is checked and known to be new.
fn respond(
    config: &HandshakeConfig,
    hello: &[u8; HELLO_BYTES],
) -> Result<(Session, Message), Rejected> {
    let noise = config.noise().build_responder();
    let mut noise = noise.expect("the resolver has all primitives");
    let mut claim = [0; CLAIM_BYTES];
    noise
        .read_message(&hello[PREFIX_BYTES..], &mut claim)
        .map_err(|_| Rejected::Proof)?;
    let claim = Claim::decode(&claim);
    claim.check(config.local)?;
    if !config.answered.insert(hello) {
        return Err(Rejected::Proof);
    }
    let mut response = [0; RESPONSE_BYTES];
    write(&mut noise, &[], &mut response).map_err(|why| match why {
        snow::Error::Rng => Rejected::Randomness,
        _ => Rejected::Proof,
    })?;
    let session = Session::new(config, claim.from, noise);
    Ok((session, Message::new(&response)))
}

/// As the initiator: reads a whole response and makes the last message.
fn finish(
    config: &HandshakeConfig,
    to: u32,
    mut noise: HandshakeState,
    response: &[u8],
) -> Result<Step, Rejected> {
    noise
        .read_message(&response[PREFIX_BYTES..], &mut [])
        .map_err(|_| Rejected::Proof)?;
    let mut session = Session::new(config, to, noise);
    let mut finished = [0; FINISHED_BYTES];
    let sealed = session.records.0.seal(&mut finished);
    sealed.expect("a new connection's first record, of a fixed length");
    Ok(Step::Done(session, Message::new(&finished)))
}

/// As the responder: checks the last message, which is the first record.
fn finished(mut session: Session, finished: &mut [u8]) -> Result<Step, Rejected> {
    match session.records.1.open(finished) {
        Ok(_) => Ok(Step::Done(session, Message::new(&[]))),
        Err(_) => Err(Rejected::Proof),
    }
}

/// Writes prefix and Noise message. `message` has exactly their length.
fn write(
    noise: &mut HandshakeState,
    payload: &[u8],
    message: &mut [u8],
) -> Result<(), snow::Error> {
    message[..PREFIX_BYTES].copy_from_slice(&PREFIX);
    let length = noise.write_message(payload, &mut message[PREFIX_BYTES..])?;
    debug_assert_eq!(PREFIX_BYTES + length, message.len());
    Ok(())
}

/// An open connection: the process at its other end, and what seals and opens its records.
pub struct Session {
    peer: u32,
    job: u64,
    encrypt: bool,
    records: Box<(Sealer, Opener)>,
}

impl Session {
    /// Takes the session keys out of a Noise handshake whose messages have all been exchanged.
    fn new(config: &HandshakeConfig, peer: u32, mut noise: HandshakeState) -> Session {
        let (from_initiator, from_responder) = noise.dangerously_get_raw_split();
        let from_initiator = Secret(Zeroizing::new(from_initiator));
        let from_responder = Secret(Zeroizing::new(from_responder));
        let (send, receive) = if noise.is_initiator() {
            (from_initiator, from_responder)
        } else {
            (from_responder, from_initiator)
        };
        Session {
            peer,
            job: config.local.job,
            encrypt: config.local.encrypt,
            records: Box::new((Sealer::new(send), Opener::new(receive))),
        }
    }

    /// The other end's process number, proved.
    pub fn peer(&self) -> u32 {
        self.peer
    }

    /// The job's number in the configuration that both ends have used.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// Whether both ends want records.
    pub fn encrypt(&self) -> bool {
        self.encrypt
    }

    /// What seals the bytes that go out and opens those that come in.
    pub fn records(self) -> (Sealer, Opener) {
        *self.records
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}
