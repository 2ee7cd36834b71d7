//! Pages that go by reference into a socket that is full, closed or broken.

use super::*;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use std::sync::atomic::{AtomicBool, Ordering};

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap()
}

/// Reads all that is there.
fn drain(socket: &OwnedFd, into: &mut Vec<u8>) {
    let mut space = [0; 65536];
    while let Ok((n, _)) = recv(socket, &mut space, RecvFlags::DONTWAIT) {
        into.extend_from_slice(&space[..n]);
    }
}

#[test]
fn all_bytes_arrive_and_a_full_socket_keeps_the_pipe() {
    let (near, far) = pair();
    let body: Vec<u8> = (0..5_000_003usize).map(|i| (i / 7) as u8).collect();
    let mut splice_pipe = SplicePipe::default();
    assert!(splice_pipe.serves(1));
    let mut at = splice_pipe.send(1, &near, &body).unwrap();
    assert!(at < body.len());
    assert!(matches!(&splice_pipe.state, PipeState::Open(pipe) if pipe.filled > 0));
    assert!(splice_pipe.serves(1) && !splice_pipe.serves(2));
    let mut came = Vec::new();
    while at < body.len() {
        drain(&far, &mut came);
        at += splice_pipe.send(1, &near, &body[at..]).unwrap();
    }
    drain(&far, &mut came);
    assert!(came == body);
    assert!(splice_pipe.serves(2));
}

#[test]
fn what_is_left_of_a_peer_that_has_gone_reaches_nobody() {
    let (near, far) = pair();
    let mut splice_pipe = SplicePipe::default();
    assert!(splice_pipe.serves(1));
    let at = splice_pipe.send(1, &near, &vec![1; 3_000_000]).unwrap();
    assert!(at < 3_000_000);
    splice_pipe.forget(1);
    drop((near, far));
    let (near, far) = pair();
    assert!(splice_pipe.serves(2));
    assert_eq!(splice_pipe.send(2, &near, &[2; 5000]).unwrap(), 5000);
    let mut came = Vec::new();
    drain(&far, &mut came);
    assert!(came == [2; 5000]);
}

static RAISED: AtomicBool = AtomicBool::new(false);

extern "C" fn raised(_: libc::c_int) {
    RAISED.store(true, Ordering::Relaxed);
}

#[test]
fn a_broken_connection_is_an_error_and_no_signal() {
    let handler: extern "C" fn(libc::c_int) = raised;
    // SAFETY: the handler only stores a flag; nothing else in this process wants the signal.
    unsafe { libc::signal(libc::SIGPIPE, handler as libc::sighandler_t) };
    let (near, far) = pair();
    drop(far);
    let mut splice_pipe = SplicePipe::default();
    assert!(splice_pipe.serves(1));
    assert!(splice_pipe.send(1, &near, &[1; 100_000]).is_err());
    assert!(splice_pipe.serves(2), "nothing is left of it");
    assert!(!RAISED.load(Ordering::Relaxed));
}
