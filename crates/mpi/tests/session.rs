//! One process that uses MPI again and again, by sessions and by the world model. A program of its
//! own, as a process starts but once.

use ferry_job::RankState;
use ferry_mpi::process::{self, ThreadLevel, in_world, process};
use ferry_mpi::session::{ProcessSet, Session};
use ferry_mpi::{Errhandler, comm};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn state() -> RankState {
    RankState::from_number(process().status.state.load(Ordering::Acquire))
}

fn open(wish: Option<ThreadLevel>) -> Arc<Session> {
    Session::open(wish, Errhandler::returning()).unwrap()
}

#[test]
fn models_come_and_go() {
    assert!(process::try_process().is_none());

    let first = open(None);
    assert_eq!(first.thread_level(), ThreadLevel::Multiple);
    assert_eq!(state(), RankState::Running);
    assert!(in_world().is_none() && process().world_level().is_none());
    first.close();
    first.close();
    assert_eq!(state(), RankState::Finalized);

    // A second one, and the world model within it.
    let second = open(Some(ThreadLevel::Serialized));
    assert_eq!(second.thread_level(), ThreadLevel::Serialized);
    assert_eq!(state(), RankState::Running);
    process::init(ThreadLevel::Funneled).unwrap();
    assert!(process::init(ThreadLevel::Single).is_err());
    assert_eq!(process().world_level(), Some(ThreadLevel::Funneled));
    assert!(in_world().is_some());
    process().finalize(&[], None).unwrap();
    assert!(in_world().is_none());
    assert_eq!(state(), RankState::Running, "the session goes on");

    let group = second.group(ProcessSet::World);
    assert_eq!((group.size(), ProcessSet::World.size()), (1, 1));
    let made = comm::create_from_group(&group, b"tag").unwrap().unwrap();
    assert!(
        made.group
            .session()
            .is_some_and(|s| Arc::ptr_eq(s, &second))
    );
    let copy = made.duplicate(&Default::default()).unwrap();
    assert!(
        copy.group
            .session()
            .is_some_and(|s| Arc::ptr_eq(s, &second))
    );
    assert!(process().world.group.session().is_none());
    second.close();
    assert_eq!(state(), RankState::Finalized);

    // After everything, once more; the world model cannot come back.
    let third = open(None);
    assert!(process::init(ThreadLevel::Single).is_err());
    assert_eq!(state(), RankState::Running);
    third.close();
    assert_eq!(state(), RankState::Finalized);
}
