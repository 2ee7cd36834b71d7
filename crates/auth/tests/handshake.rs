//! The handshake against everything that is not its other half.

use ferry_auth::{
    FINISHED_BYTES, HELLO_BYTES, Handshake, HandshakeConfig, Identity, JobKey, RESPONSE_BYTES,
    Rejected, Session, Step, VERSION,
};
use ferry_fuzz::fuzz;

fn identity(process: u32) -> Identity {
    Identity {
        job: 0x1234_5678_9abc_def0,
        process,
        purpose: 3,
        encrypt: false,
    }
}

fn key(byte: u8) -> JobKey {
    JobKey::from_bytes(&[byte; 32])
}

fn config(process: u32) -> HandshakeConfig {
    HandshakeConfig::new(&key(9), identity(process))
}

fn feed(
    handshake: &mut Handshake,
    config: &HandshakeConfig,
    mut bytes: &[u8],
) -> Result<Step, Rejected> {
    let step = handshake.feed(config, &mut bytes);
    if step.is_ok() {
        assert!(bytes.is_empty(), "a whole message is taken");
    }
    step
}

fn sent(step: Result<Step, Rejected>) -> Vec<u8> {
    match step {
        Ok(Step::Send(message)) => message.to_vec(),
        other => panic!("should send, but: {other:?}"),
    }
}

fn done(step: Result<Step, Rejected>) -> (Session, Vec<u8>) {
    match step {
        Ok(Step::Done(session, message)) => (session, message.to_vec()),
        other => panic!("should be done, but: {other:?}"),
    }
}

fn rejected(step: Result<Step, Rejected>) -> Rejected {
    match step {
        Err(why) => why,
        other => panic!("should be rejected, but: {other:?}"),
    }
}

/// One honest handshake of process 0 with process 1: its three messages.
fn recorded() -> [Vec<u8>; 3] {
    let (zero, one) = (config(0), config(1));
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    let mut responder = one.respond();
    let response = sent(feed(&mut responder, &one, &hello));
    let (_, finished) = done(feed(&mut initiator, &zero, &response));
    done(feed(&mut responder, &one, &finished));
    [hello.to_vec(), response, finished]
}

#[test]
fn both_learn_who_the_other_is() {
    let (five, two) = (config(5), config(2));
    let (mut initiator, hello) = five.initiate(2).unwrap();
    assert_eq!(
        (hello.len(), initiator.missing_bytes()),
        (HELLO_BYTES, RESPONSE_BYTES)
    );
    let mut responder = two.respond();
    assert_eq!(responder.missing_bytes(), HELLO_BYTES);
    assert!(!responder.hello_verified());
    let response = sent(feed(&mut responder, &two, &hello));
    assert!(responder.hello_verified());
    assert_eq!(
        (response.len(), responder.missing_bytes()),
        (RESPONSE_BYTES, FINISHED_BYTES)
    );
    let (session, finished) = done(feed(&mut initiator, &five, &response));
    assert_eq!((session.peer(), finished.len()), (2, FINISHED_BYTES));
    let (session, nothing) = done(feed(&mut responder, &two, &finished));
    assert_eq!((session.peer(), nothing.len()), (5, 0));
    assert_eq!(responder.missing_bytes(), 0);
    assert_eq!(rejected(feed(&mut responder, &two, b"x")), Rejected::Closed);
}

#[test]
fn bytes_may_come_one_by_one_and_with_data_behind() {
    let (zero, one) = (config(0), config(1));
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    let mut responder = one.respond();
    let crumbs = |handshake: &mut Handshake, config: &HandshakeConfig, bytes: &[u8]| {
        for (i, byte) in bytes[..bytes.len() - 1].iter().enumerate() {
            assert_eq!(handshake.missing_bytes(), bytes.len() - i);
            let step = handshake.feed(config, &mut std::slice::from_ref(byte));
            assert!(matches!(step, Ok(Step::More)), "{step:?}");
            assert!(matches!(
                handshake.feed(config, &mut &[][..]),
                Ok(Step::More)
            ));
        }
        feed(handshake, config, &bytes[bytes.len() - 1..])
    };
    let response = sent(crumbs(&mut responder, &one, &hello));
    let (_, finished) = done(crumbs(&mut initiator, &zero, &response));
    let data = [&finished[..], b"first message"].concat();
    let mut bytes = &data[..];
    let step = responder.feed(&one, &mut bytes);
    assert_eq!(done(step).0.peer(), 0);
    assert_eq!(bytes, b"first message");
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (zero, one) = (config(0), config(1));
    for bit in 0..HELLO_BYTES * 8 {
        let mut hello = zero.initiate(1).unwrap().1.to_vec();
        hello[bit / 8] ^= 1 << (bit % 8);
        let why = rejected(feed(&mut one.respond(), &one, &hello));
        match bit / 8 {
            0..6 => assert_eq!(why, Rejected::UnknownProtocol),
            6..8 => assert_eq!(
                why,
                Rejected::Version {
                    theirs: VERSION ^ 1 << (bit - 48)
                }
            ),
            _ => assert_eq!(why, Rejected::Proof),
        }
    }
    for bit in 0..RESPONSE_BYTES * 8 {
        let (mut initiator, hello) = zero.initiate(1).unwrap();
        let mut response = sent(feed(&mut one.respond(), &one, &hello));
        response[bit / 8] ^= 1 << (bit % 8);
        let why = rejected(feed(&mut initiator, &zero, &response));
        assert!(bit < 64 || why == Rejected::Proof, "{why:?}");
        assert_eq!(
            rejected(feed(&mut initiator, &zero, &response)),
            Rejected::Closed
        );
    }
    for bit in 0..FINISHED_BYTES * 8 {
        let (mut initiator, hello) = zero.initiate(1).unwrap();
        let mut responder = one.respond();
        let response = sent(feed(&mut responder, &one, &hello));
        let mut finished = done(feed(&mut initiator, &zero, &response)).1;
        finished[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            rejected(feed(&mut responder, &one, &finished)),
            Rejected::Proof
        );
        finished[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            rejected(feed(&mut responder, &one, &finished)),
            Rejected::Closed
        );
    }
}

#[test]
fn a_recorded_session_is_worth_nothing() {
    let (zero, one) = (config(0), config(1));
    let [hello, response, finished] = recorded();
    // Sent again to a responder that remembers nothing: the hello gets a response with another
    // ephemeral key, which the old `finished` does not fit.
    let mut responder = one.respond();
    let fresh = sent(feed(&mut responder, &one, &hello));
    assert_ne!(fresh, response);
    assert_eq!(
        rejected(feed(&mut responder, &one, &finished)),
        Rejected::Proof
    );
    // Again: it has been answered already.
    assert_eq!(
        rejected(feed(&mut one.respond(), &one, &hello)),
        Rejected::Proof
    );
    // Two at once, and one's `finished` is sent to the other.
    let (mut first, mut second) = (zero.initiate(1).unwrap(), zero.initiate(1).unwrap());
    let (mut first_responder, mut second_responder) = (one.respond(), one.respond());
    let responses = [
        sent(feed(&mut first_responder, &one, &first.1)),
        sent(feed(&mut second_responder, &one, &second.1)),
    ];
    let finished = done(feed(&mut first.0, &zero, &responses[0])).1;
    assert_eq!(
        rejected(feed(&mut second_responder, &one, &finished)),
        Rejected::Proof
    );
    // The response to another hello.
    assert_eq!(
        rejected(feed(&mut second.0, &zero, &responses[0])),
        Rejected::Proof
    );
    // Sent again to a new initiator.
    let (mut initiator, _) = zero.initiate(1).unwrap();
    assert_eq!(
        rejected(feed(&mut initiator, &zero, &response)),
        Rejected::Proof
    );
}

#[test]
fn nobody_is_fooled_by_his_own_words() {
    let zero = config(0);
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    // Back to the initiator, and to the initiator's own listener.
    assert!(feed(&mut initiator, &zero, &hello[..RESPONSE_BYTES]).is_err());
    assert_eq!(
        rejected(feed(&mut zero.respond(), &zero, &hello)),
        Rejected::Process
    );
    // A process that calls itself.
    let hello = zero.initiate(0).unwrap().1;
    assert_eq!(
        rejected(feed(&mut zero.respond(), &zero, &hello)),
        Rejected::Process
    );
    // The ends of a response and of a hello, as `finished`.
    let one = config(1);
    for piece in [RESPONSE_BYTES - FINISHED_BYTES, 0] {
        let mut responder = one.respond();
        let hello = zero.initiate(1).unwrap().1;
        let response = sent(feed(&mut responder, &one, &hello));
        let fake = if piece > 0 {
            &response[piece..]
        } else {
            &hello[HELLO_BYTES - FINISHED_BYTES..]
        };
        assert_eq!(rejected(feed(&mut responder, &one, fake)), Rejected::Proof);
    }
}

#[test]
fn others_are_told_apart_locally() {
    let one = config(1);
    let from = |key: &JobKey, local: Identity, to| {
        HandshakeConfig::new(key, local).initiate(to).unwrap().1
    };
    let judge = |bytes: &[u8]| rejected(feed(&mut one.respond(), &one, bytes));
    assert_eq!(judge(&from(&key(8), identity(0), 1)), Rejected::Proof);
    assert_eq!(
        judge(&from(
            &key(9),
            Identity {
                job: 1,
                ..identity(0)
            },
            1
        )),
        Rejected::Job
    );
    assert_eq!(judge(&from(&key(9), identity(0), 2)), Rejected::Process);
    assert_eq!(
        judge(&from(
            &key(9),
            Identity {
                purpose: 4,
                ..identity(0)
            },
            1
        )),
        Rejected::Purpose
    );
    assert_eq!(
        judge(&from(
            &key(9),
            Identity {
                encrypt: true,
                ..identity(0)
            },
            1
        )),
        Rejected::Encryption
    );
    // With the wrong key nothing that the hello says makes a difference.
    assert_eq!(
        judge(&from(
            &key(8),
            Identity {
                job: 1,
                encrypt: true,
                ..identity(0)
            },
            7
        )),
        Rejected::Proof
    );
    // Strangers are known by the first bytes already.
    for words in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x",
        b"\x16\x03\x01",
        b"\0",
        b"\x89FERRx",
    ] {
        assert_eq!(judge(words), Rejected::UnknownProtocol);
    }
    let mut next = from(&key(9), identity(0), 1).to_vec();
    next[6..8].copy_from_slice(&0x0203u16.to_le_bytes());
    let why = judge(&next[..8]);
    assert_eq!(why, Rejected::Version { theirs: 0x0203 });
    assert!(why.to_string().contains("version 515"), "{why}");
}

#[test]
fn an_initiator_with_another_key_learns_nothing() {
    // The responder says nothing to an initiator with another key. A responder with another key
    // cannot convince the initiator.
    let (zero, stranger) = (config(0), HandshakeConfig::new(&key(8), identity(1)));
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    assert_eq!(
        rejected(feed(&mut stranger.respond(), &stranger, &hello)),
        Rejected::Proof
    );
    let (_, theirs) = HandshakeConfig::new(&key(8), identity(0))
        .initiate(1)
        .unwrap();
    let response = sent(feed(&mut stranger.respond(), &stranger, &theirs));
    assert_eq!(
        rejected(feed(&mut initiator, &zero, &response)),
        Rejected::Proof
    );
}

#[test]
fn no_text_shows_a_key() {
    let (zero, one) = (
        HandshakeConfig::new(&key(0xab), identity(0)),
        HandshakeConfig::new(&key(0xab), identity(1)),
    );
    let (mut initiator, hello) = zero.initiate(1).unwrap();
    let mut responder = one.respond();
    let response = sent(feed(&mut responder, &one, &hello));
    let step = feed(&mut initiator, &zero, &response);
    let shown = format!("{zero:?} {initiator:?} {responder:?} {hello:?} {step:?}");
    for secret in ["171", "abab", "ab, ab", "["] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let (sealer, opener) = done(step).0.records();
    let shown = format!("{sealer:?} {opener:?}");
    assert_eq!(shown, "Sealer { records: 1, .. } Opener { records: 0, .. }");
}

/// A message that someone on the network has seen: who made it, and after which message.
struct Seen {
    bytes: Vec<u8>,
    maker: usize,
    after: Option<usize>,
}

/// Processes 0 and 1 connect to each other at the same time. Someone who controls the network
/// delivers any message seen so far to any of the four sides: all ways to make five deliveries. A
/// side that is done must have got, in order, messages that its one peer made for it.
#[test]
fn every_way_to_mix_up_two_handshakes() {
    const PARTIES: [(u32, bool); 4] = [(0, true), (1, true), (0, false), (1, false)];
    const DEPTH: usize = 5;
    let configs = [config(0), config(1)];

    /// Plays the deliveries. Returns how many messages are known at the end, and how many sides
    /// are done.
    fn play(
        configs: &[HandshakeConfig; 2],
        deliveries: &[(usize, usize)],
    ) -> Option<(usize, usize)> {
        let mut pool = Vec::new();
        let mut parties: Vec<Handshake> = Vec::new();
        for (maker, &(process, initiates)) in PARTIES.iter().enumerate() {
            let config = &configs[process as usize];
            parties.push(if initiates {
                let (handshake, hello) = config.initiate(1 - process).unwrap();
                pool.push(Seen {
                    bytes: hello.to_vec(),
                    maker,
                    after: None,
                });
                handshake
            } else {
                config.respond()
            });
        }
        let mut finished = 0;
        let mut received: [Vec<usize>; 4] = Default::default();
        for (i, &(what, to)) in deliveries.iter().enumerate() {
            let config = &configs[PARTIES[to].0 as usize];
            received[to].push(what);
            let bytes = pool[what].bytes.clone();
            let step = parties[to].feed(config, &mut &bytes[..]);
            let mut record = |bytes: &[u8]| {
                pool.push(Seen {
                    bytes: bytes.to_vec(),
                    maker: to,
                    after: Some(what),
                })
            };
            match step {
                Ok(Step::Send(message)) => record(&message),
                Ok(Step::Done(session, message)) => {
                    if !message.is_empty() {
                        record(&message);
                    }
                    finished += 1;
                    // Everything it got came from its true peer alone, and answers what it had
                    // sent itself.
                    let makers: Vec<usize> = received[to].iter().map(|&m| pool[m].maker).collect();
                    let peer = PARTIES[makers[0]];
                    assert!(makers.iter().all(|&m| m == makers[0]), "{deliveries:?}");
                    assert_eq!(session.peer(), peer.0, "{deliveries:?}");
                    assert_ne!(PARTIES[to], peer, "{deliveries:?}");
                    assert_ne!(PARTIES[to].1, peer.1, "{deliveries:?}");
                    let last = &pool[what];
                    assert_eq!(pool[last.after.unwrap()].maker, to, "{deliveries:?}");
                }
                // Nothing more comes of this.
                Ok(Step::More) | Err(_) if i + 1 == deliveries.len() => return None,
                Ok(Step::More) | Err(_) => {}
            }
        }
        Some((pool.len(), finished))
    }

    let (mut complete, mut tried) = (0, 0);
    let mut open = vec![Vec::new()];
    while let Some(deliveries) = open.pop() {
        tried += 1;
        let Some((messages, finished)) = play(&configs, &deliveries) else {
            continue;
        };
        complete += usize::from(finished >= 2);
        if deliveries.len() < DEPTH {
            for what in 0..messages {
                for to in 0..PARTIES.len() {
                    open.push([&deliveries[..], &[(what, to)]].concat());
                }
            }
        }
    }
    assert!(
        tried > 500 && complete > 0,
        "{tried} tried, {complete} complete"
    );
}

#[test]
fn fuzz_the_responder() {
    let [hello, response, finished] = recorded();
    let whole = [&hello[..], &finished].concat();
    let seeds = [hello, response, whole, b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    fuzz("responder", &seeds, |mut bytes| {
        // A new one each time: it would refuse a hello that it has answered before.
        let one = config(1);
        let mut responder = one.respond();
        loop {
            let before = bytes.len();
            match responder.feed(&one, &mut bytes) {
                Ok(Step::Done(..)) => panic!("a stranger is let in"),
                Ok(Step::Send(_)) => assert!(before >= HELLO_BYTES),
                Ok(Step::More) => return (responder.missing_bytes(), None),
                Err(why) => return (before - bytes.len(), Some(why)),
            }
        }
    });
}

#[test]
fn fuzz_the_initiator() {
    let zero = config(0);
    let [hello, response, finished] = recorded();
    fuzz("initiator", &[hello, response, finished], |mut bytes| {
        let (mut initiator, _) = zero.initiate(1).unwrap();
        match initiator.feed(&zero, &mut bytes) {
            Ok(Step::Done(..) | Step::Send(_)) => panic!("a stranger is believed"),
            Ok(Step::More) => (initiator.missing_bytes(), None),
            Err(why) => (bytes.len(), Some(why)),
        }
    });
}

#[test]
fn fuzz_hello_by_someone_who_knows_the_key() {
    // The claim of a verified hello is read. Each of its fields may be wrong. Only an honest claim
    // gets a response.
    let one = config(1);
    let shared = key(9);
    fuzz("fields", &[vec![0; 16], vec![0xff; 16]], |bytes| {
        let mut field = [0; 16];
        let n = bytes.len().min(16);
        field[..n].copy_from_slice(&bytes[..n]);
        let word =
            |i: usize| u32::from_le_bytes([field[i], field[i + 1], field[i + 2], field[i + 3]]);
        let theirs = Identity {
            job: if field[0] & 1 == 0 {
                identity(0).job
            } else {
                word(0).into()
            },
            process: word(4),
            purpose: if field[8] & 1 == 0 { 3 } else { word(8) as u16 },
            encrypt: field[12] & 1 == 1,
        };
        let to = if field[12] & 2 == 0 { 1 } else { word(12) };
        let hello = HandshakeConfig::new(&shared, theirs)
            .initiate(to)
            .unwrap()
            .1;
        let honest = Identity {
            process: theirs.process,
            ..identity(0)
        } == theirs
            && to == 1
            && theirs.process != 1;
        let step = feed(&mut one.respond(), &one, &hello);
        assert_eq!(step.is_ok(), honest, "{theirs:?} {to} {step:?}");
        step.err()
    });
}
