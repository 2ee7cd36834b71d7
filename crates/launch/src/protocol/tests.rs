//! Frames and greetings, whole and cut.

use super::framing::encode;
use super::*;

fn spec() -> ToAgent {
    let text = |t: &str| Text(t.as_bytes().to_vec());
    ToAgent::Launch(Box::new(LaunchSpec {
        job: 7,
        key: [3; 32],
        parent: "ferry2:AAAA".into(),
        universe: 4,
        hosts: vec!["a".into(), "b".into()],
        host_of: vec![0, 0, 1],
        host: 1,
        app_of: vec![0, 0, 0],
        programs: vec![Program {
            program: text("./x"),
            arguments: vec![text("-n")],
            wdir: None,
            environment: vec![(text("A"), text("1"))],
            own_library_path: false,
            allow_other_mpi: false,
        }],
        directory: text("/tmp"),
        binding: 0,
        readers: vec![0],
        silence: 1000,
    }))
}

#[test]
fn a_frame_comes_back_piece_by_piece() {
    let bytes = encode(&spec());
    for cut in 0..bytes.len() {
        assert!(matches!(decode::<ToAgent>(&bytes[..cut]), Ok(None)));
    }
    let (back, len) = decode::<ToAgent>(&bytes).unwrap().unwrap();
    assert!(back == spec() && len == bytes.len());
}

#[test]
fn a_greeting_is_found_behind_noise() {
    let bytes = [b"Welcome to beta!\n".as_slice(), &greeting(), b"rest"].concat();
    let at = bytes.len() - 4;
    assert_eq!(opening(&bytes), Opening::Open(at));
    assert_eq!(opening(&bytes[..at - 1]), Opening::Waiting);
    assert_eq!(opening(b"motd"), Opening::Waiting);
    let other = [GREETING, b"99 3.0\n"].concat();
    assert!(matches!(opening(&other), Opening::Wrong(t) if t.contains("same on all hosts")));
}

#[test]
fn fuzz_frames() {
    let page = StatusPage {
        rank: 1,
        state: 1,
        asleep: true,
        awake: false,
        call: 9,
        age: 5,
        context: 4,
        comm: "c".into(),
        awaits_unknown: true,
        has_parted: false,
        known_jobs: vec![2],
        peer_rank: 3,
        peer_job: 4,
        comm_size: 2,
        peer: -1,
        tag: 3,
        collective: 0,
        root: -1,
        operation: "MPI_Ibarrier".into(),
        awaited_count: 2,
        awaited: vec![AwaitedView::default(); 2],
        sent: 1,
        received: 1,
    };
    let card = vec![1, 2, 3];
    let put = ToMpiexec::Put {
        medium: "tcp".into(),
        rank: 0,
        card,
    };
    let ended = ToMpiexec::Ended {
        rank: 1,
        status: 9,
        state: 2,
    };
    let seeds = [
        encode(&spec()),
        encode(&ToMpiexec::Pages(vec![page])),
        encode(&put),
        encode(&ended),
        encode(&ToAgent::Stdin(vec![1, 2, 3])),
        greeting(),
    ];
    ferry_fuzz::fuzz("frames", &seeds, |bytes| {
        let down = decode::<ToAgent>(bytes);
        if let Ok(Some((message, len))) = &down {
            assert!(*len <= bytes.len());
            assert!(decode::<ToAgent>(&encode(message)).unwrap().unwrap().0 == *message);
        }
        let up = decode::<ToMpiexec>(bytes);
        if let Ok(Some((message, len))) = &up {
            assert!(*len <= bytes.len());
            assert_eq!(
                decode::<ToMpiexec>(&encode(message)).unwrap().unwrap().0,
                *message
            );
        }
        let open = match opening(bytes) {
            Opening::Open(at) => {
                assert!(at <= bytes.len());
                0
            }
            Opening::Waiting => 1,
            Opening::Wrong(_) => 2,
        };
        (down.is_ok(), up.is_ok(), open)
    });
}
