//! The handshake against plain snow, whose primitives are not ring's. Then what forward secrecy
//! needs.

use ferry_auth::{
    FINISHED_BYTES, HELLO_BYTES, Handshake, HandshakeConfig, Identity, JobKey, RESPONSE_BYTES,
    Rejected, Session, Step,
};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk};
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{BoxedCryptoResolver, CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

const PSK: [u8; 32] = [9; 32];
const PREFIX: [u8; 8] = *b"\x89FERRY\x02\x00";
/// Job 0x77, from 0 to 1, purpose 3, encrypted.
const CLAIM: [u8; 20] = [
    0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 1, 0,
];

fn ferry(process: u32) -> HandshakeConfig {
    let identity = Identity {
        job: 0x77,
        process,
        purpose: 3,
        encrypt: true,
    };
    HandshakeConfig::new(&JobKey::from_bytes(&PSK), identity)
}

fn builder(resolver: BoxedCryptoResolver) -> Builder<'static> {
    let params = "Noise_NNpsk0_25519_AESGCM_SHA256".parse().unwrap();
    let builder = Builder::with_resolver(params, resolver);
    builder.psk(0, &PSK).unwrap().prologue(&PREFIX).unwrap()
}

fn plain() -> Builder<'static> {
    builder(Box::new(DefaultResolver))
}

/// The prefix and what snow writes.
fn write(noise: &mut HandshakeState, payload: &[u8]) -> Vec<u8> {
    let mut message = PREFIX.to_vec();
    message.resize(8 + 32 + payload.len() + 16, 0);
    let length = noise.write_message(payload, &mut message[8..]).unwrap();
    assert_eq!(8 + length, message.len());
    message
}

fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, snow::Error> {
    assert_eq!(message[..8], PREFIX);
    let mut payload = [0; 64];
    let length = noise.read_message(&message[8..], &mut payload)?;
    Ok(payload[..length].to_vec())
}

/// A record's key from a session key of Noise's: docs/security.md.
fn record_key(session_key: &[u8; 32]) -> LessSafeKey {
    let mut key = [0; 32];
    let secret = Prk::new_less_safe(HKDF_SHA256, session_key);
    let expanded = secret.expand(&[b"record key"], HKDF_SHA256).unwrap();
    expanded.fill(&mut key).unwrap();
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap())
}

fn seal(session_key: &[u8; 32], number: u8, payload: &[u8]) -> Vec<u8> {
    let mut record = (payload.len() as u32).to_le_bytes().to_vec();
    let mut nonce = [0; 12];
    nonce[4] = number;
    let mut text = payload.to_vec();
    let tag = record_key(session_key)
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(&record),
            &mut text,
        )
        .unwrap();
    record.extend(text);
    record.extend(tag.as_ref());
    record
}

fn feed(handshake: &mut Handshake, config: &HandshakeConfig, bytes: &[u8]) -> Step {
    handshake.feed(config, &mut &bytes[..]).unwrap()
}

#[test]
fn plain_snow_as_the_initiator() {
    let one = ferry(1);
    let mut noise = plain().build_initiator().unwrap();
    let hello = write(&mut noise, &CLAIM);
    assert_eq!(hello.len(), HELLO_BYTES);
    let mut responder = one.respond();
    let Step::Send(response) = feed(&mut responder, &one, &hello) else {
        panic!("no response");
    };
    assert_eq!(response.len(), RESPONSE_BYTES);
    assert_eq!(read(&mut noise, &response).unwrap(), b"");
    let (mine, theirs) = noise.dangerously_get_raw_split();
    let finished = seal(&mine, 0, b"");
    assert_eq!(finished.len(), FINISHED_BYTES);
    let Step::Done(session, _) = feed(&mut responder, &one, &finished) else {
        panic!("not done");
    };
    assert_eq!((session.peer(), session.encrypt()), (0, true));
    let (mut sealer, mut opener) = session.records();
    assert_eq!(
        opener.open(&mut seal(&mine, 1, b"there")).unwrap(),
        b"there"
    );
    let mut back = *b"....back................";
    sealer.seal(&mut back).unwrap();
    assert_eq!(back[..], seal(&theirs, 0, b"back"));
}

#[test]
fn plain_snow_as_the_responder() {
    let zero = ferry(0);
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    let mut noise = plain().build_responder().unwrap();
    assert_eq!(read(&mut noise, &hello).unwrap(), CLAIM);
    let response = write(&mut noise, &[]);
    let Step::Done(session, finished) = feed(&mut initiator, &zero, &response) else {
        panic!("not done");
    };
    let (theirs, mine) = noise.dangerously_get_raw_split();
    assert_eq!(finished[..], seal(&theirs, 0, b""));
    let (_, mut opener) = session.records();
    assert_eq!(opener.open(&mut seal(&mine, 0, b"back")).unwrap(), b"back");
}

#[test]
fn an_unknown_flag_or_another_prologue_is_refused() {
    let one = ferry(1);
    let mut claim = CLAIM;
    claim[18] |= 2;
    let hello = write(&mut plain().build_initiator().unwrap(), &claim);
    let step = one.respond().feed(&one, &mut &hello[..]);
    assert_eq!(step.unwrap_err(), Rejected::Encryption);
    // Someone who changes version 1 to 2 in the clear text.
    let params = "Noise_NNpsk0_25519_AESGCM_SHA256".parse().unwrap();
    let other = Builder::new(params).psk(0, &PSK).unwrap();
    let mut other = other
        .prologue(b"\x89FERRY\x01\x00")
        .unwrap()
        .build_initiator()
        .unwrap();
    let hello = write(&mut other, &CLAIM);
    let step = one.respond().feed(&one, &mut &hello[..]);
    assert_eq!(step.unwrap_err(), Rejected::Proof);
}

/// Both session keys of a handshake of plain snow with these ephemeral private keys.
fn session_keys(initiator: &[u8; 32], responder: &[u8; 32]) -> [[u8; 32]; 2] {
    let fixed = |private| plain().fixed_ephemeral_key_for_testing_only(private);
    let mut initiator = fixed(initiator).build_initiator().unwrap();
    let mut responder = fixed(responder).build_responder().unwrap();
    let hello = write(&mut initiator, &CLAIM);
    read(&mut responder, &hello).unwrap();
    let response = write(&mut responder, &[]);
    read(&mut initiator, &response).unwrap();
    let keys = initiator.dangerously_get_raw_split();
    assert_eq!(keys, responder.dangerously_get_raw_split());
    [keys.0, keys.1]
}

#[test]
fn session_keys_depend_on_both_ephemeral_keys() {
    let base = session_keys(&[1; 32], &[2; 32]);
    assert_eq!(base, session_keys(&[1; 32], &[2; 32]));
    for other in [
        session_keys(&[3; 32], &[2; 32]),
        session_keys(&[1; 32], &[3; 32]),
        session_keys(&[2; 32], &[1; 32]),
    ] {
        for key in base {
            assert!(!other.contains(&key));
        }
    }
}

/// A session of Ferry's between 0 and 1, and what was said to make it.
fn ferry_session() -> (Session, [Vec<u8>; 3]) {
    let (zero, one) = (ferry(0), ferry(1));
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    let Step::Send(response) = feed(&mut one.respond(), &one, &hello) else {
        panic!("no response");
    };
    let Step::Done(session, finished) = feed(&mut initiator, &zero, &response) else {
        panic!("not done");
    };
    (
        session,
        [hello.to_vec(), response.to_vec(), finished.to_vec()],
    )
}

#[test]
fn the_job_key_and_a_recording_do_not_give_the_session_keys() {
    let (session, [hello, response, finished]) = ferry_session();
    let (mut sealer, _) = session.records();
    let mut record = *b"....text................";
    sealer.seal(&mut record).unwrap();
    // The key opens the hello's claim. It is not forward secret, and holds nothing else.
    let mut recorder = plain().build_responder().unwrap();
    assert_eq!(read(&mut recorder, &hello).unwrap(), CLAIM);
    // In the responder's place the recorder has another ephemeral key, and so other keys.
    write(&mut recorder, &[]);
    let (first, second) = recorder.dangerously_get_raw_split();
    for key in [first, second] {
        assert_ne!(seal(&key, 0, b"")[..], finished);
        assert_ne!(seal(&key, 1, b"text")[..], record);
    }
    // In the initiator's place it cannot read the response.
    let mut recorder = plain().build_initiator().unwrap();
    write(&mut recorder, &CLAIM);
    assert_eq!(read(&mut recorder, &response), Err(snow::Error::Decrypt));
    // Another session under the same job key has other keys.
    let (other, _) = ferry_session();
    let (mut sealer, _) = other.records();
    let mut other = *b"....text................";
    sealer.seal(&mut other).unwrap();
    assert_ne!(other, record);
}

/// An ephemeral key of order 1: every agreement with it gives zero.
struct ZeroPoint;

impl Dh for ZeroPoint {
    fn name(&self) -> &'static str {
        "25519"
    }
    fn pub_len(&self) -> usize {
        32
    }
    fn priv_len(&self) -> usize {
        32
    }
    fn set(&mut self, _private: &[u8]) {}
    fn generate(&mut self, _random: &mut dyn Random) -> Result<(), snow::Error> {
        Ok(())
    }
    fn pubkey(&self) -> &[u8] {
        &[0; 32]
    }
    fn privkey(&self) -> &[u8] {
        &[0; 32]
    }
    fn dh(&self, _public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        out.fill(0);
        Ok(())
    }
}

impl CryptoResolver for ZeroPoint {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        DefaultResolver.resolve_rng()
    }
    fn resolve_dh(&self, _choice: &DHChoice) -> Option<Box<dyn Dh>> {
        Some(Box::new(ZeroPoint))
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

#[test]
fn a_point_of_low_order_is_refused() {
    let (zero, one) = (ferry(0), ferry(1));
    let mut bad = builder(Box::new(ZeroPoint)).build_initiator().unwrap();
    let hello = write(&mut bad, &CLAIM);
    let step = one.respond().feed(&one, &mut &hello[..]);
    assert_eq!(step.unwrap_err(), Rejected::Proof);

    let (mut initiator, hello) = zero.initiate(1).unwrap();
    let mut bad = builder(Box::new(ZeroPoint)).build_responder().unwrap();
    read(&mut bad, &hello).unwrap();
    let response = write(&mut bad, &[]);
    let step = initiator.feed(&zero, &mut &response[..]);
    assert_eq!(step.unwrap_err(), Rejected::Proof);
}
