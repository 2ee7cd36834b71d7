//! Latency of the device alone between two processes: `cargo run --release --example pingpong -p
//! ferry-device [BYTES [ROUNDS]]`.

use ferry_device::{
    ContextId, Key, Pattern, SendMode, Sink, Source, Tags, WaitingFor, device, wait,
};
use ferry_job::NodeJob;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .map(|a| a.parse::<usize>().expect("a number"));
    let (len, rounds) = (args.next().unwrap_or(8), args.next().unwrap_or(200_000));
    if std::env::var_os("FERRY_LAUNCH_FD").is_some() {
        return rank(len, rounds);
    }
    let node = NodeJob::new(1, 2, 2).expect("a segment");
    let mut ranks = Vec::new();
    for rank in 0..2 {
        let (line, theirs) = node.create_rank_socket(rank, 0).expect("a socket");
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).expect("fcntl");
        let mut command = Command::new("taskset");
        command
            .args(["-c", &rank.to_string()])
            .arg(std::env::current_exe().expect("own path"));
        command
            .args([len.to_string(), rounds.to_string()])
            .env("FERRY_LAUNCH_FD", theirs.as_raw_fd().to_string());
        ranks.push((command.spawn().expect("taskset"), line));
    }
    for (mut rank, _line) in ranks {
        assert!(rank.wait().expect("a child").success());
    }
}

fn rank(len: usize, rounds: usize) {
    let context = ferry_job::join().expect("a job");
    let me = context.rank_info.rank;
    ferry_device::start(
        &context.rank_info,
        context.segment,
        context.directory,
        context.status,
        false,
        false,
    )
    .expect("the device");
    let mut data = vec![0u8; len];
    let send = |d: &mut Vec<u8>| {
        let key = Key {
            context: ContextId::WORLD,
            source: me,
            tag: 0,
        };
        // SAFETY: the data outlives the wait.
        let req = unsafe {
            device().send(
                1 - me,
                key,
                Source::Bytes {
                    ptr: d.as_ptr(),
                    len,
                },
                SendMode::Standard,
            )
        };
        if let Some(req) = req {
            wait(req, &WaitingFor::SEVERAL);
        }
    };
    let receive = |d: &mut Vec<u8>| {
        let pattern = Pattern {
            context: ContextId::WORLD,
            source: Some(1 - me),
            tag: Tags::one(0),
        };
        // SAFETY: the buffer outlives the wait.
        let req = unsafe {
            device().receive(
                pattern,
                Sink::Bytes {
                    ptr: d.as_mut_ptr(),
                    cap: len,
                },
            )
        };
        wait(req, &WaitingFor::SEVERAL);
    };
    let mut start = Instant::now();
    for round in 0..rounds + rounds / 10 {
        if round == rounds / 10 {
            start = Instant::now();
        }
        if me == 0 {
            send(&mut data);
            receive(&mut data);
        } else {
            receive(&mut data);
            send(&mut data);
        }
    }
    if me == 0 {
        println!(
            "{len:>9} B {:>10.3} us one way",
            start.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0
        );
    }
}
