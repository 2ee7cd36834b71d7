//! A rank and its launcher in one process.

use super::*;
use crate::join::{join, join_through};
use crate::{CardStore, ToLauncher, ToRank};
use rustix::net::send;

use std::os::fd::IntoRawFd;
use std::sync::atomic::Ordering;

#[test]
fn a_rank_finds_its_place_in_one_go() {
    let job = NodeJob::new(42, 3, 2).unwrap();
    let (mut socket, theirs) = job.create_rank_socket(1, 7).unwrap();
    let context = join_through(theirs.into_raw_fd()).unwrap();
    assert_eq!(
        (
            context.rank_info.rank,
            context.rank_info.size,
            context.rank_info.appnum
        ),
        (1, 3, 7)
    );
    assert_eq!((context.rank_info.job, context.rank_info.cores), (42, 2));
    context.status.tag.store(5, Ordering::Relaxed);
    assert_eq!(
        job.segment.status(1).unwrap().tag.load(Ordering::Relaxed),
        5
    );
    assert_eq!(socket.receive(), Received::Empty);
    drop(context);
    assert_eq!(socket.receive(), Received::Closed);
}

#[test]
fn an_abort_is_heard() {
    let job = NodeJob::new(1, 1, 1).unwrap();
    let (mut socket, theirs) = job.create_rank_socket(0, 0).unwrap();
    let context = join_through(theirs.into_raw_fd()).unwrap();
    socket.confirm_abort();
    context.client.unwrap().abort(9, "enough");
    assert_eq!(
        socket.receive(),
        Received::Message(ToLauncher::Abort {
            code: 9,
            text: "enough".into()
        })
    );
}

#[test]
fn a_card_comes_when_it_has_been_put() {
    let job = NodeJob::new(1, 2, 1).unwrap();
    let (mut socket, theirs) = job.create_rank_socket(0, 0).unwrap();
    let mut context = join_through(theirs.into_raw_fd()).unwrap();
    assert_eq!(context.rank_info.key, job.info().key);
    let directory = context.directory.as_mut().unwrap();
    directory.put("tcp", b"me").unwrap();
    assert!(directory.put("tcp", &[0; 5000]).is_err());
    directory.publish().unwrap();
    assert_eq!(directory.get("tcp", 1).unwrap(), None);
    assert_eq!(directory.get("tcp", 1).unwrap(), None, "asked once only");
    let (medium, rank) = ("tcp".to_string(), 1);
    let card = b"me".to_vec();
    let put = ToLauncher::Put {
        medium: medium.clone(),
        card,
    };
    assert_eq!(socket.receive(), Received::Message(put));
    let get = ToLauncher::Get {
        medium: medium.clone(),
        rank,
    };
    assert_eq!(socket.receive(), Received::Message(get));
    assert_eq!(socket.receive(), Received::Empty);
    let mut cards = CardStore::default();
    assert_eq!(cards.get("tcp", 1, 7), Err(true));
    assert_eq!(cards.get("tcp", 1, 8), Err(false));
    assert_eq!(cards.put("tcp", 1, b"you".to_vec()), [7, 8]);
    let card = cards.get("tcp", 1, 7).unwrap().to_vec();
    socket.send(&ToRank::Card { medium, rank, card });
    let none = directory.get("tcp", 0).unwrap();
    assert_eq!(none, None, "asked for only now");
    assert_eq!(
        directory.get("tcp", 1).unwrap(),
        None,
        "another's question takes no answers away: the descriptor still tells of them"
    );
    directory.receive_answers().unwrap();
    assert_eq!(directory.get("tcp", 1).unwrap().unwrap(), b"you");
}

#[test]
fn a_rank_that_does_not_listen_blocks_nobody() {
    let job = NodeJob::new(1, 1, 1).unwrap();
    let (mut socket, theirs) = job.create_rank_socket(0, 0).unwrap();
    for rank in 0..1000 {
        let card = vec![1; crate::CARD_MAX_BYTES];
        let medium = "tcp".into();
        socket.send(&ToRank::Card { medium, rank, card });
    }
    assert!(!socket.flush());
    drop(theirs);
    assert!(socket.flush());
}

#[test]
fn a_second_process_of_a_rank_is_told_so() {
    let job = NodeJob::new(1, 1, 1).unwrap();
    let (_line, theirs) = job.create_rank_socket(0, 0).unwrap();
    let second = theirs.try_clone().unwrap();
    join_through(theirs.into_raw_fd()).unwrap();
    let error = join_through(second.into_raw_fd()).unwrap_err().to_string();
    assert!(error.contains("taken already"), "{error}");
}

#[test]
fn a_launcher_that_has_gone_is_no_job_of_one() {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    drop(ours);
    let error = join_through(theirs.into_raw_fd()).unwrap_err().to_string();
    assert!(error.contains("mpiexec has gone"), "{error}");
    let error = join_through(987_654).unwrap_err().to_string();
    assert!(error.contains("closed"), "{error}");
    let null = std::fs::File::open("/dev/null").unwrap();
    let error = join_through(null.into_raw_fd()).unwrap_err().to_string();
    assert!(error.contains("something else"), "{error}");
}

#[test]
fn a_packet_of_nonsense_is_said_to_be_one() {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    send(
        &ours,
        b"hello there, this is no welcome",
        SendFlags::empty(),
    )
    .unwrap();
    let error = join_through(theirs.into_raw_fd()).unwrap_err().to_string();
    assert!(
        error.contains("does not begin as a Ferry welcome"),
        "{error}"
    );
}

#[test]
fn without_a_launcher_it_is_a_job_of_one() {
    let context = join().unwrap();
    assert_eq!((context.rank_info.rank, context.rank_info.size), (0, 1));
    assert!(context.segment.is_none() && context.client.is_none());
}
