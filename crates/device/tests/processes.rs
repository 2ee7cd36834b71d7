//! The device between real processes: this test starts itself again, once a rank, as a launcher
//! would.

use ferry_device::{
    Completion, ContextId, Fault, Key, Pattern, SendMode, Sink, Source, Tags, WaitingFor, device,
    wait, wait_for_memory, wait_until,
};
use ferry_job::NodeJob;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RANK_TEST: &str = "FERRY_DEVICE_TEST";

/// Runs `name` in `ranks` processes; in the children, returns this process's number and the job's
/// size.
fn job(name: &str, ranks: u32, cores: u32) -> Option<(u32, u32)> {
    if std::env::var(RANK_TEST).is_ok_and(|n| n == name) {
        let context = ferry_job::join().unwrap();
        let (me, size) = (context.rank_info.rank, context.rank_info.size);
        ferry_device::start(
            &context.rank_info,
            context.segment,
            context.directory,
            context.status,
            false,
            false,
        )
        .unwrap();
        std::mem::forget(context.client);
        return Some((me, size));
    }
    let node = NodeJob::new(7, ranks, cores).unwrap();
    let mut children = Vec::new();
    for rank in 0..ranks {
        let (line, theirs) = node.create_rank_socket(rank, 0).unwrap();
        let fd = theirs.as_raw_fd();
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(RANK_TEST, name)
            .env("FERRY_LAUNCH_FD", fd.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        children.push((child, line));
    }
    for (child, _line) in children {
        let ended = child.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{printed}");
        assert!(printed.contains("1 passed"), "no test has this name");
    }
    None
}

fn key(source: u32, tag: u32) -> Key {
    Key {
        context: ContextId::WORLD,
        source,
        tag,
    }
}

fn from(source: u32, tag: u32) -> Pattern {
    Pattern {
        context: ContextId::WORLD,
        source: Some(source),
        tag: Tags::one(tag),
    }
}

fn send(to: u32, me: u32, tag: u32, data: &[u8], mode: SendMode) {
    // SAFETY: the data outlives the wait.
    let req = unsafe {
        device().send(
            to,
            key(me, tag),
            Source::Bytes {
                ptr: data.as_ptr(),
                len: data.len(),
            },
            mode,
        )
    };
    if let Some(req) = req {
        assert_eq!(wait(req, &WaitingFor::SEVERAL), Completion::EMPTY);
    }
}

fn receive(pattern: Pattern, room: usize) -> (Completion, Vec<u8>) {
    let mut data = vec![0u8; room];
    // SAFETY: the buffer outlives the wait.
    let req = unsafe {
        device().receive(
            pattern,
            Sink::Bytes {
                ptr: data.as_mut_ptr(),
                cap: room,
            },
        )
    };
    let ended = wait(req, &WaitingFor::SEVERAL);
    data.truncate(ended.received as usize);
    (ended, data)
}

fn pattern_of(len: usize, salt: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(31).wrapping_add(salt) as u8)
        .collect()
}

const SIZES: [usize; 15] = [
    0,
    1,
    8,
    40,
    41,
    63,
    64,
    1000,
    8175,
    8176,
    8177,
    16384,
    65536,
    1 << 20,
    5_000_001,
];

#[test]
fn messages_of_every_size_return() {
    let Some((me, _)) = job("messages_of_every_size_return", 2, 2) else {
        return;
    };
    for mode in [SendMode::Standard, SendMode::Synchronous] {
        for (i, &len) in SIZES.iter().enumerate() {
            let data = pattern_of(len, i as u32);
            if me == 0 {
                send(1, 0, i as u32, &data, mode);
                assert_eq!(receive(from(1, i as u32), len + 3).1, data);
            } else {
                assert_eq!(receive(from(0, i as u32), len).1, data);
                send(0, 1, i as u32, &data, mode);
            }
        }
    }
    ferry_device::finish();
}

#[test]
fn many_messages_to_a_slow_reader_keep_their_order() {
    let Some((me, size)) = job("many_messages_to_a_slow_reader_keep_their_order", 3, 2) else {
        return;
    };
    const COUNT: u32 = 3000;
    let len = |i: u32| [0, 8, 3000, 100, 20_000][i as usize % 5] + i as usize % 7;
    if me > 0 {
        let mut reqs = Vec::new();
        let data: Vec<Vec<u8>> = (0..COUNT).map(|i| pattern_of(len(i), i + me)).collect();
        for d in &data {
            // SAFETY: `data` lives until all requests are complete.
            reqs.extend(unsafe {
                device().send(
                    0,
                    key(me, 5),
                    Source::Bytes {
                        ptr: d.as_ptr(),
                        len: d.len(),
                    },
                    SendMode::Standard,
                )
            });
        }
        for req in reqs {
            wait(req, &WaitingFor::SEVERAL);
        }
    } else {
        let mut seen = vec![0u32; size as usize];
        for _ in 0..COUNT * (size - 1) {
            let (ended, data) = receive(
                Pattern {
                    context: ContextId::WORLD,
                    source: None,
                    tag: Tags::one(5),
                },
                30_000,
            );
            let source = ended.envelope.source;
            let i = seen[source as usize];
            assert_eq!(
                data,
                pattern_of(len(i), i + source),
                "message {i} of {source}"
            );
            seen[source as usize] += 1;
        }
    }
    ferry_device::finish();
}

#[test]
fn truncation_probe_and_cancel() {
    let Some((me, _)) = job("truncation_probe_and_cancel", 2, 1) else {
        return;
    };
    if me == 0 {
        send(1, 0, 1, &pattern_of(100, 1), SendMode::Standard);
        send(1, 0, 2, &pattern_of(100_000, 2), SendMode::Standard);
        send(1, 0, 3, &pattern_of(10, 3), SendMode::Synchronous);
    } else {
        let mut nothing = [0u8; 4];
        // SAFETY: the buffer outlives the request.
        let never = unsafe {
            device().receive(
                from(0, 99),
                Sink::Bytes {
                    ptr: nothing.as_mut_ptr(),
                    cap: 4,
                },
            )
        };
        assert!(device().cancel_receive(never));
        assert!(device().take(never).cancelled);
        for (tag, sent) in [(1, 100), (2, 100_000)] {
            let (ended, data) = receive(from(0, tag), 50);
            assert_eq!(ended.fault, Some(Fault::Truncated { sent, room: 50 }));
            assert_eq!(data, pattern_of(50, tag));
        }
        let mut found = None;
        wait_until(&WaitingFor::SEVERAL, |d| {
            found = d.matched_probe(&from(0, 3));
            found.is_some()
        });
        let (message, envelope) = found.unwrap();
        assert_eq!((envelope.len, device().probe(&from(0, 3))), (10, None));
        let mut data = [0u8; 10];
        // SAFETY: the buffer outlives the wait.
        let req = unsafe {
            device().receive_matched(
                message,
                Sink::Bytes {
                    ptr: data.as_mut_ptr(),
                    cap: 10,
                },
            )
        };
        assert_eq!(wait(req, &WaitingFor::SEVERAL).received, 10);
        assert_eq!(data[..], pattern_of(10, 3));
    }
    ferry_device::finish();
}

#[test]
fn a_process_sends_to_itself() {
    let Some((me, _)) = job("a_process_sends_to_itself", 1, 1) else {
        return;
    };
    for len in [0usize, 10, 5000, 1 << 20] {
        let (data, mut got) = (pattern_of(len, 9), vec![0u8; len]);
        // SAFETY: both buffers outlive the waits.
        unsafe {
            let sending = device().send(
                me,
                key(me, 1),
                Source::Bytes {
                    ptr: data.as_ptr(),
                    len,
                },
                SendMode::Synchronous,
            );
            let receiving = device().receive(
                from(me, 1),
                Sink::Bytes {
                    ptr: got.as_mut_ptr(),
                    cap: len,
                },
            );
            wait(receiving, &WaitingFor::SEVERAL);
            wait(sending.unwrap(), &WaitingFor::SEVERAL);
        }
        assert_eq!(got, data);
    }
}

#[test]
fn many_ranks_all_to_all() {
    let Some((me, size)) = job("many_ranks_all_to_all", 20, 2) else {
        return;
    };
    for round in 0..20u32 {
        let mine: Vec<Vec<u8>> = (0..size)
            .map(|to| pattern_of(100 * round as usize, me * 100 + to))
            .collect();
        let mut reqs = Vec::new();
        for (to, d) in mine.iter().enumerate() {
            // SAFETY: `mine` lives until all requests are complete.
            reqs.extend(unsafe {
                device().send(
                    to as u32,
                    key(me, round),
                    Source::Bytes {
                        ptr: d.as_ptr(),
                        len: d.len(),
                    },
                    SendMode::Standard,
                )
            });
        }
        for source in (0..size).rev() {
            assert_eq!(
                receive(from(source, round), 2000).1,
                pattern_of(100 * round as usize, source * 100 + me)
            );
        }
        for req in reqs {
            wait(req, &WaitingFor::SEVERAL);
        }
    }
    ferry_device::finish();
}

/// The next active message. Waits for it.
fn next_active() -> (u32, Box<[u8]>) {
    let mut next = None;
    wait_until(&WaitingFor::SEVERAL, |d| {
        next = d.next_active();
        next.is_some()
    });
    next.unwrap()
}

#[test]
fn active_messages_keep_their_order_between_others() {
    let Some((me, size)) = job("active_messages_keep_their_order_between_others", 3, 2) else {
        return;
    };
    const COUNT: u32 = 3000;
    let len = |i: u32, max: usize| [0, 1, 100, max / 2, max][i as usize % 5];
    if me > 0 {
        let max = device().active_max(0);
        for i in 0..COUNT {
            device().send_active(0, pattern_of(len(i, max), i + me).into());
            if i % 100 == 0 {
                send(0, me, i, &pattern_of(3000, i), SendMode::Standard);
            }
        }
    } else {
        let mut seen = [0; 3];
        let max = device().active_max(1);
        for _ in 0..COUNT * (size - 1) {
            let (from, bytes) = next_active();
            let i = seen[from as usize];
            assert_eq!(
                bytes[..],
                pattern_of(len(i, max), i + from),
                "{i} of {from}"
            );
            seen[from as usize] += 1;
        }
        for i in (0..COUNT).step_by(100) {
            for source in 1..size {
                assert_eq!(receive(from(source, i), 3000).1, pattern_of(3000, i));
            }
        }
        assert!(!device().has_active());
        assert_eq!(device().queue_lengths(ContextId::WORLD), (0, 0));
    }
    ferry_device::finish();
}

#[test]
fn an_active_message_reaches_its_own_process() {
    let Some((me, _)) = job("an_active_message_reaches_its_own_process", 1, 1) else {
        return;
    };
    for len in [0, 10, 100_000] {
        let bytes = pattern_of(len, 3);
        device().send_active(me, bytes.clone().into());
        assert_eq!(next_active(), (me, bytes.into()));
    }
}

#[test]
fn a_waiting_process_looks_again_in_time_although_nobody_wakes_it() {
    let name = "a_waiting_process_looks_again_in_time_although_nobody_wakes_it";
    if job(name, 1, 1).is_none() {
        return;
    }
    let began = Instant::now();
    let millis = Duration::from_millis;
    wait_for_memory(&WaitingFor::SEVERAL, |d| {
        d.sleep_at_most(millis(5));
        began.elapsed() >= millis(20)
    });
    assert!(began.elapsed() >= millis(20));
}
