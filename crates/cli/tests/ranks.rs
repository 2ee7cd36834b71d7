//! mpiexec with ranks that join the job as the library does, and then do what a test wants. The
//! ranks are this test program itself, told by an environment variable to run [`a_rank`] as its
//! script says.

#[path = "mpiexec/time_limit.rs"]
mod time_limit;

use std::env;
use std::process::{Command, Output, Stdio, exit};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ferry_job::{JobContext, RankState, RankStatus};
use time_limit::time_limit;

/// Names the script.
const SCRIPT: &str = "FERRY_TEST_SCRIPT";

/// Not a test, but a rank's main function: it returns at once where no script is named.
#[test]
fn a_rank() {
    let Ok(script) = env::var(SCRIPT) else { return };
    let context = match ferry_job::join() {
        Ok(context) => context,
        Err(e) => {
            eprintln!("{e}");
            exit(17);
        }
    };
    context
        .status
        .state
        .store(RankState::Running as u32, Release);
    act(&script, &context);
    exit(0);
}

fn act(script: &str, context: &JobContext) {
    let rank = context.rank_info.rank;
    let other = 1 - rank as i32;
    match (script, rank) {
        ("fine", _) => finalize(context),
        ("exit early", 1) => exit(0),
        ("exit early with 3", 1) => exit(3),
        ("abort", 1) => context
            .client
            .as_ref()
            .unwrap()
            .abort(5, "something is wrong in MPI_Abort\nvery wrong"),
        ("abort and leave", 1) => {
            context.client.as_ref().unwrap().abort(6, "");
            exit(6)
        }
        ("fatal", 0) => context
            .client
            .as_ref()
            .unwrap()
            .abort(6, "MPI_Send: dest is 77"),
        ("abort with 0", 0) => context.client.as_ref().unwrap().abort(0, ""),
        ("two receives", _) => receive(context.status, other, 7),
        ("peer finished", 0) => receive(context.status, 1, 7),
        ("peer finished", _) => finalize(context),
        ("barrier and receive", 0) => collective(context.status, "MPI_Barrier"),
        ("barrier and receive", _) => receive(context.status, 0, 3),
        ("slow", _) => {
            // Sleeps, and wakes up again before a second is over.
            for tag in 0..4 {
                receive(context.status, other, tag);
                sleep(Duration::from_millis(600));
                context.status.asleep.store(0, Release);
            }
            finalize(context);
            exit(0)
        }
        ("in flight", _) => {
            context.status.sent.store(1, Relaxed);
            receive(context.status, other, 1);
            sleep(Duration::from_millis(1800));
            finalize(context);
            exit(0)
        }
        _ => {}
    }
    if script != "fine" {
        sleep(Duration::from_secs(30));
    }
}

fn number_of(name: &str) -> u32 {
    let all = 1..=ferry_api::functions()
        .iter()
        .map(|f| f.forms().count() as u32)
        .sum();
    all.clone()
        .find(|&n| ferry_api::name_of(n).as_deref() == Some(name))
        .unwrap()
}

fn finalize(context: &JobContext) {
    context
        .status
        .state
        .store(RankState::Finalized as u32, Release);
}

fn fall_asleep(status: &RankStatus) {
    status.since.store(RankStatus::now(), Relaxed);
    status.asleep.store(1, Release);
}

fn receive(status: &RankStatus, from: i32, tag: i32) {
    status.call.store(number_of("MPI_Recv"), Relaxed);
    status.peer.store(from, Relaxed);
    status.tag.store(tag, Relaxed);
    fall_asleep(status);
}

fn collective(status: &RankStatus, name: &str) {
    status.call.store(number_of(name), Relaxed);
    status.context.store(1, Relaxed);
    status.peer.store(-2, Relaxed);
    status.root.store(-1, Relaxed);
    status.collective.store(1, Relaxed);
    fall_asleep(status);
}

fn job(script: &str, options: &[&str], ranks: u32) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mpiexec"))
        .args(options)
        .args(["-n", &ranks.to_string()])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "a_rank", "--nocapture"])
        .env(SCRIPT, script)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}
fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_job_that_finalises_ends_well() {
    let output = job("fine", &[], 4);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
}

#[test]
fn ending_without_finalising_ends_the_job() {
    for (script, status, part) in [
        ("exit early", 1, "exit status 0"),
        ("exit early with 3", 3, "exit status 3"),
    ] {
        let began = Instant::now();
        let output = job(script, &[], 3);
        assert!(began.elapsed() < time_limit(1.0), "{:?}", began.elapsed());
        let said = err(&output);
        assert!(
            said.contains("rank 1 (")
                && said.contains("without MPI_Finalize")
                && said.contains(part),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(status), "{said}");
    }
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_text() {
    let began = Instant::now();
    let output = job("abort", &[], 3);
    assert!(began.elapsed() < time_limit(1.0), "{:?}", began.elapsed());
    let said = err(&output);
    assert!(
        said.contains("something is wrong in MPI_Abort\nmpiexec: very wrong\n"),
        "{said}"
    );
    assert!(
        said.contains("rank 1 (") && said.contains("MPI_Abort with code 5"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn an_abort_is_known_as_one_even_if_the_rank_leaves_at_once() {
    let output = job("abort and leave", &[], 3);
    assert!(
        err(&output).contains("MPI_Abort with code 6"),
        "{}",
        err(&output)
    );
    assert_eq!(output.status.code(), Some(6));
    let output = job("fatal", &[], 2);
    let said = err(&output);
    assert!(
        said.contains("dest is 77") && said.contains("rank 0 (") && said.contains("fatal error"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(
        job("abort with 0", &[], 2).status.code(),
        Some(0),
        "the job's status is the code of MPI_Abort"
    );
}

#[test]
fn two_receives_facing_each_other_are_found() {
    let began = Instant::now();
    let output = job("two receives", &[], 2);
    assert!(began.elapsed() < time_limit(3.0), "{:?}", began.elapsed());
    let said = err(&output);
    assert!(
        said.contains("ranks 0 and 1 wait for each other, all receiving"),
        "{said}"
    );
    assert!(said.contains("MPI_Recv  MPI_COMM_WORLD  rank 1"), "{said}");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn a_finished_peer_is_found() {
    let said = err(&job("peer finished", &[], 2));
    assert!(
        said.contains("rank 0 waits in MPI_Recv (tag 7) for rank 1, which has finished"),
        "{said}"
    );
}

#[test]
fn a_barrier_that_not_all_enter_is_found() {
    let said = err(&job("barrier and receive", &[], 2));
    assert!(
        said.contains(
            "rank 0 waits in MPI_Barrier on MPI_COMM_WORLD, which not all have entered: rank 1 is \
             in MPI_Recv"
        ),
        "{said}"
    );
}

#[test]
fn a_hang_may_be_reported_or_ignored() {
    let output = job(
        "two receives",
        &["--on-hang", "report", "--timeout", "3"],
        2,
    );
    let said = err(&output);
    assert_eq!(said.matches("this job hangs").count(), 1, "{said}");
    assert_eq!(output.status.code(), Some(124));
    let output = job(
        "two receives",
        &["--on-hang", "ignore", "--timeout", "2"],
        2,
    );
    assert!(
        !err(&output).contains("hangs") && err(&output).contains("wait for each other"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_job_that_moves_now_and_then_does_not_hang() {
    let output = job("slow", &[], 2);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_message_under_way_is_no_hang() {
    let output = job("in flight", &[], 1);
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_launcher_that_cannot_be_spoken_to_is_an_error() {
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_rank", "--nocapture"])
        .env(SCRIPT, "fine")
        .env("FERRY_LAUNCH_FD", "900")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(17));
    assert!(
        err(&output).contains("cannot be spoken to"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_rank_through_a_shell_is_a_rank() {
    let test = env::current_exe().unwrap();
    let script = format!("'{}' --exact a_rank --nocapture", test.display());
    let output = Command::new(env!("CARGO_BIN_EXE_mpiexec"))
        .args(["-n", "2", "sh", "-c", &(script + "; true")])
        .env(SCRIPT, "fine")
        .output()
        .unwrap();
    assert_eq!((output.status.code(), err(&output).as_str()), (Some(0), ""));
}
