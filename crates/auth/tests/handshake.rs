//! The handshake against everything that is not its other half.

use ferry_auth::{
    ANSWER, FINISH, Guard, HELLO, Handshake, Key, Local, Rejected, Session, Step, VERSION,
};
use ferry_fuzz::fuzz;

fn local(process: u32) -> Local {
    Local {
        job: 0x1234_5678_9abc_def0,
        process,
        purpose: 3,
        encrypt: false,
    }
}

fn key(byte: u8) -> Key {
    Key::from_bytes(&[byte; 32])
}

fn guard(process: u32) -> Guard {
    Guard::new(&key(9), local(process))
}

fn feed(handshake: &mut Handshake, guard: &Guard, mut bytes: &[u8]) -> Result<Step, Rejected> {
    let step = handshake.feed(guard, &mut bytes);
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
    let (zero, one) = (guard(0), guard(1));
    let (mut caller, hello) = zero.connect(1).unwrap();
    let mut called = one.accept();
    let answer = sent(feed(&mut called, &one, &hello));
    let (_, finish) = done(feed(&mut caller, &zero, &answer));
    done(feed(&mut called, &one, &finish));
    [hello.to_vec(), answer, finish]
}

#[test]
fn both_learn_who_the_other_is() {
    let (five, two) = (guard(5), guard(2));
    let (mut caller, hello) = five.connect(2).unwrap();
    assert_eq!((hello.len(), caller.wants()), (HELLO, ANSWER));
    let mut called = two.accept();
    assert_eq!(called.wants(), HELLO);
    assert!(!called.has_hello());
    let answer = sent(feed(&mut called, &two, &hello));
    assert!(called.has_hello());
    assert_eq!((answer.len(), called.wants()), (ANSWER, FINISH));
    let (session, finish) = done(feed(&mut caller, &five, &answer));
    assert_eq!((session.peer(), finish.len()), (2, FINISH));
    let (session, nothing) = done(feed(&mut called, &two, &finish));
    assert_eq!((session.peer(), nothing.len()), (5, 0));
    assert_eq!(called.wants(), 0);
    assert_eq!(rejected(feed(&mut called, &two, b"x")), Rejected::Closed);
}

#[test]
fn bytes_may_come_one_by_one_and_with_data_behind() {
    let (zero, one) = (guard(0), guard(1));
    let (mut caller, hello) = zero.connect(1).unwrap();
    let mut called = one.accept();
    let crumbs = |handshake: &mut Handshake, guard: &Guard, bytes: &[u8]| {
        for (i, byte) in bytes[..bytes.len() - 1].iter().enumerate() {
            assert_eq!(handshake.wants(), bytes.len() - i);
            let step = handshake.feed(guard, &mut std::slice::from_ref(byte));
            assert!(matches!(step, Ok(Step::More)), "{step:?}");
            assert!(matches!(
                handshake.feed(guard, &mut &[][..]),
                Ok(Step::More)
            ));
        }
        feed(handshake, guard, &bytes[bytes.len() - 1..])
    };
    let answer = sent(crumbs(&mut called, &one, &hello));
    let (_, finish) = done(crumbs(&mut caller, &zero, &answer));
    let data = [&finish[..], b"first message"].concat();
    let mut bytes = &data[..];
    let step = called.feed(&one, &mut bytes);
    assert_eq!(done(step).0.peer(), 0);
    assert_eq!(bytes, b"first message");
}

#[test]
fn every_flipped_bit_is_noticed() {
    let (zero, one) = (guard(0), guard(1));
    for bit in 0..HELLO * 8 {
        let mut hello = zero.connect(1).unwrap().1.to_vec();
        hello[bit / 8] ^= 1 << (bit % 8);
        let why = rejected(feed(&mut one.accept(), &one, &hello));
        match bit / 8 {
            0..6 => assert_eq!(why, Rejected::Stranger),
            6..8 => assert_eq!(
                why,
                Rejected::Version {
                    theirs: VERSION ^ 1 << (bit - 48)
                }
            ),
            _ => assert_eq!(why, Rejected::Proof),
        }
    }
    for bit in 0..ANSWER * 8 {
        let (mut caller, hello) = zero.connect(1).unwrap();
        let mut answer = sent(feed(&mut one.accept(), &one, &hello));
        answer[bit / 8] ^= 1 << (bit % 8);
        let why = rejected(feed(&mut caller, &zero, &answer));
        assert!(bit < 64 || why == Rejected::Proof, "{why:?}");
        assert_eq!(
            rejected(feed(&mut caller, &zero, &answer)),
            Rejected::Closed
        );
    }
    for bit in 0..FINISH * 8 {
        let (mut caller, hello) = zero.connect(1).unwrap();
        let mut called = one.accept();
        let answer = sent(feed(&mut called, &one, &hello));
        let mut finish = done(feed(&mut caller, &zero, &answer)).1;
        finish[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(rejected(feed(&mut called, &one, &finish)), Rejected::Proof);
        finish[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(rejected(feed(&mut called, &one, &finish)), Rejected::Closed);
    }
}

#[test]
fn a_recorded_session_is_worth_nothing() {
    let (zero, one) = (guard(0), guard(1));
    let [hello, answer, finish] = recorded();
    // Sent again to the called: the hello gets an answer with another nonce, which the old finish
    // does not fit.
    let mut called = one.accept();
    let fresh = sent(feed(&mut called, &one, &hello));
    assert_ne!(fresh, answer);
    assert_eq!(rejected(feed(&mut called, &one, &finish)), Rejected::Proof);
    // Two at once, the finish of one for the other.
    let (mut first, mut second) = (zero.connect(1).unwrap(), zero.connect(1).unwrap());
    let (mut called_first, mut called_second) = (one.accept(), one.accept());
    let answers = [
        sent(feed(&mut called_first, &one, &first.1)),
        sent(feed(&mut called_second, &one, &second.1)),
    ];
    let finish = done(feed(&mut first.0, &zero, &answers[0])).1;
    assert_eq!(
        rejected(feed(&mut called_second, &one, &finish)),
        Rejected::Proof
    );
    // The answer that another call got.
    assert_eq!(
        rejected(feed(&mut second.0, &zero, &answers[0])),
        Rejected::Proof
    );
    // Sent again to a new caller.
    let (mut caller, _) = zero.connect(1).unwrap();
    assert_eq!(rejected(feed(&mut caller, &zero, &answer)), Rejected::Proof);
}

#[test]
fn nobody_is_fooled_by_his_own_words() {
    let zero = guard(0);
    let (mut caller, hello) = zero.connect(1).unwrap();
    // Back to the caller, and to the caller's own listener.
    assert!(feed(&mut caller, &zero, &hello[..ANSWER]).is_err());
    assert_eq!(
        rejected(feed(&mut zero.accept(), &zero, &hello)),
        Rejected::Process
    );
    // A process that calls itself.
    let hello = zero.connect(0).unwrap().1;
    assert_eq!(
        rejected(feed(&mut zero.accept(), &zero, &hello)),
        Rejected::Process
    );
    // The answer's proof as a finish, a hello's mac as a finish.
    let one = guard(1);
    for piece in [ANSWER - FINISH, 0] {
        let mut called = one.accept();
        let hello = zero.connect(1).unwrap().1;
        let answer = sent(feed(&mut called, &one, &hello));
        let fake = if piece > 0 {
            &answer[piece..]
        } else {
            &hello[HELLO - FINISH..]
        };
        assert_eq!(rejected(feed(&mut called, &one, fake)), Rejected::Proof);
    }
}

#[test]
fn others_are_told_apart_locally() {
    let one = guard(1);
    let from = |key: &Key, local: Local, to| Guard::new(key, local).connect(to).unwrap().1;
    let judge = |bytes: &[u8]| rejected(feed(&mut one.accept(), &one, bytes));
    assert_eq!(judge(&from(&key(8), local(0), 1)), Rejected::Proof);
    assert_eq!(
        judge(&from(&key(9), Local { job: 1, ..local(0) }, 1)),
        Rejected::Job
    );
    assert_eq!(judge(&from(&key(9), local(0), 2)), Rejected::Process);
    assert_eq!(
        judge(&from(
            &key(9),
            Local {
                purpose: 4,
                ..local(0)
            },
            1
        )),
        Rejected::Purpose
    );
    assert_eq!(
        judge(&from(
            &key(9),
            Local {
                encrypt: true,
                ..local(0)
            },
            1
        )),
        Rejected::Encryption
    );
    // With the wrong key nothing that the hello says makes a difference.
    assert_eq!(
        judge(&from(
            &key(8),
            Local {
                job: 1,
                encrypt: true,
                ..local(0)
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
        assert_eq!(judge(words), Rejected::Stranger);
    }
    let mut next = from(&key(9), local(0), 1).to_vec();
    next[6..8].copy_from_slice(&0x0203u16.to_le_bytes());
    let why = judge(&next[..8]);
    assert_eq!(why, Rejected::Version { theirs: 0x0203 });
    assert!(why.to_string().contains("version 515"), "{why}");
}

#[test]
fn a_caller_with_another_key_learns_nothing() {
    // The called says nothing at all to whoever does not know the key; a called with another key
    // cannot convince the caller.
    let (zero, stranger) = (guard(0), Guard::new(&key(8), local(1)));
    let (mut caller, hello) = zero.connect(1).unwrap();
    assert_eq!(
        rejected(feed(&mut stranger.accept(), &stranger, &hello)),
        Rejected::Proof
    );
    let (_, theirs) = Guard::new(&key(8), local(0)).connect(1).unwrap();
    let answer = sent(feed(&mut stranger.accept(), &stranger, &theirs));
    assert_eq!(rejected(feed(&mut caller, &zero, &answer)), Rejected::Proof);
}

#[test]
fn no_text_shows_a_key() {
    let (zero, one) = (
        Guard::new(&key(0xab), local(0)),
        Guard::new(&key(0xab), local(1)),
    );
    let (mut caller, hello) = zero.connect(1).unwrap();
    let mut called = one.accept();
    let answer = sent(feed(&mut called, &one, &hello));
    let step = feed(&mut caller, &zero, &answer);
    let shown = format!("{zero:?} {caller:?} {called:?} {hello:?} {step:?}");
    for secret in ["171", "abab", "ab, ab", "["] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let (sealer, opener) = done(step).0.records();
    let shown = format!("{sealer:?} {opener:?}");
    assert_eq!(shown, "Sealer { records: 0, .. } Opener { records: 0, .. }");
}

/// A message that someone on the network has seen: who made it, and after which message.
struct Seen {
    bytes: Vec<u8>,
    maker: usize,
    after: Option<usize>,
}

/// Processes 0 and 1 call each other and are called, while someone who has the whole network in
/// hand delivers any message seen so far to any of them: all ways to make five deliveries. Whoever
/// is done must have got, in order, messages that its one peer made for it.
#[test]
fn every_way_to_mix_up_two_calls() {
    const PARTIES: [(u32, bool); 4] = [(0, true), (1, true), (0, false), (1, false)];
    const DEPTH: usize = 5;
    let guards = [guard(0), guard(1)];

    /// Plays the deliveries; how many messages are known at the end and which parties are done by
    /// which messages.
    fn play(guards: &[Guard; 2], deliveries: &[(usize, usize)]) -> Option<(usize, usize)> {
        let mut pool = Vec::new();
        let mut parties: Vec<Handshake> = Vec::new();
        for (maker, &(process, calls)) in PARTIES.iter().enumerate() {
            let guard = &guards[process as usize];
            parties.push(if calls {
                let (handshake, hello) = guard.connect(1 - process).unwrap();
                pool.push(Seen {
                    bytes: hello.to_vec(),
                    maker,
                    after: None,
                });
                handshake
            } else {
                guard.accept()
            });
        }
        let mut finished = 0;
        let mut heard: [Vec<usize>; 4] = Default::default();
        for (i, &(what, to)) in deliveries.iter().enumerate() {
            let guard = &guards[PARTIES[to].0 as usize];
            heard[to].push(what);
            let bytes = pool[what].bytes.clone();
            let step = parties[to].feed(guard, &mut &bytes[..]);
            let mut say = |bytes: &[u8]| {
                pool.push(Seen {
                    bytes: bytes.to_vec(),
                    maker: to,
                    after: Some(what),
                })
            };
            match step {
                Ok(Step::Send(message)) => say(&message),
                Ok(Step::Done(session, message)) => {
                    if !message.is_empty() {
                        say(&message);
                    }
                    finished += 1;
                    // Everything it heard came from one maker, its true peer, and in reply to what
                    // it had said itself.
                    let makers: Vec<usize> = heard[to].iter().map(|&m| pool[m].maker).collect();
                    let peer = PARTIES[makers[0]];
                    assert!(makers.iter().all(|&m| m == makers[0]), "{deliveries:?}");
                    assert_eq!(session.peer(), peer.0, "{deliveries:?}");
                    assert_ne!(PARTIES[to], peer, "{deliveries:?}");
                    assert_ne!(PARTIES[to].1, peer.1, "{deliveries:?}");
                    let last = &pool[what];
                    assert_eq!(pool[last.after.unwrap()].maker, to, "{deliveries:?}");
                }
                Ok(Step::More) | Err(_) if i + 1 == deliveries.len() => return None, /* nothing more comes of this */
                Ok(Step::More) | Err(_) => {}
            }
        }
        Some((pool.len(), finished))
    }

    let (mut complete, mut tried) = (0, 0);
    let mut open = vec![Vec::new()];
    while let Some(deliveries) = open.pop() {
        tried += 1;
        let Some((messages, finished)) = play(&guards, &deliveries) else {
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
fn fuzz_the_called() {
    let one = guard(1);
    let [hello, answer, finish] = recorded();
    let whole = [&hello[..], &finish].concat();
    let seeds = [hello, answer, whole, b"GET / HTTP/1.1\r\n\r\n".to_vec()];
    fuzz("called", &seeds, |mut bytes| {
        let mut called = one.accept();
        loop {
            let before = bytes.len();
            match called.feed(&one, &mut bytes) {
                Ok(Step::Done(..)) => panic!("a stranger is let in"),
                Ok(Step::Send(_)) => assert!(before >= HELLO),
                Ok(Step::More) => return (called.wants(), None),
                Err(why) => return (before - bytes.len(), Some(why)),
            }
        }
    });
}

#[test]
fn fuzz_the_caller() {
    let zero = guard(0);
    let [hello, answer, finish] = recorded();
    fuzz("caller", &[hello, answer, finish], |mut bytes| {
        let (mut caller, _) = zero.connect(1).unwrap();
        match caller.feed(&zero, &mut bytes) {
            Ok(Step::Done(..) | Step::Send(_)) => panic!("a stranger is believed"),
            Ok(Step::More) => (caller.wants(), None),
            Err(why) => (bytes.len(), Some(why)),
        }
    });
}

#[test]
fn fuzz_hello_by_someone_who_knows_the_key() {
    // The fields behind a good mac are read, too: any of them may be wrong, and only the honest
    // ones get an answer.
    let one = guard(1);
    let shared = key(9);
    fuzz("fields", &[vec![0; 16], vec![0xff; 16]], |bytes| {
        let mut field = [0; 16];
        let n = bytes.len().min(16);
        field[..n].copy_from_slice(&bytes[..n]);
        let word =
            |i: usize| u32::from_le_bytes([field[i], field[i + 1], field[i + 2], field[i + 3]]);
        let theirs = Local {
            job: if field[0] & 1 == 0 {
                local(0).job
            } else {
                word(0).into()
            },
            process: word(4),
            purpose: if field[8] & 1 == 0 { 3 } else { word(8) as u16 },
            encrypt: field[12] & 1 == 1,
        };
        let to = if field[12] & 2 == 0 { 1 } else { word(12) };
        let hello = Guard::new(&shared, theirs).connect(to).unwrap().1;
        let honest = Local {
            process: theirs.process,
            ..local(0)
        } == theirs
            && to == 1
            && theirs.process != 1;
        let step = feed(&mut one.accept(), &one, &hello);
        assert_eq!(step.is_ok(), honest, "{theirs:?} {to} {step:?}");
        step.err()
    });
}
