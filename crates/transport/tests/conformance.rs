//! What every transport must do: each check runs over all of them.
//!
//! The processes of a job are parts of this process, which a transport cannot tell.
#![cfg(not(loom))]

#[path = "conformance/job.rs"]
mod job;
mod memory;

use ferry_transport::self_loop::SelfLoop;
use ferry_transport::{
    BatchMessage, Body, Expected, SendStatus, Sleeper, Transport, TransportError, ZeroCopy,
};
use job::{Keep, TIME_LIMIT, Transports, bytes_of, each, keeps, send_until_taken, tipc, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[test]
fn a_process_reaches_itself_by_self_and_others_by_the_others() {
    let mut me = SelfLoop::new(4);
    assert!(me.reaches(4) && !me.reaches(0));
    let mut keep = Keep::default();
    for len in [0, 1, 100_000] {
        send_until_taken(&mut me, &mut keep, 4, 9, b"head", &bytes_of(len, 1));
        me.poll(&mut keep).unwrap();
        let expected = [&b"head"[..], &bytes_of(len, 1)].concat();
        assert_eq!(keep.messages.pop(), Some((4, 9, expected)));
    }
    each(2, |name, mut transports| {
        assert!(
            transports[0].reaches(1) && transports[1].reaches(0),
            "{name}"
        );
        assert!(!transports[0].reaches(2), "{name}");
        let beyond = transports[0].send(2, 1, &[], Body::Bytes(&[]));
        assert!(
            matches!(beyond, Err(TransportError::Unreachable { peer: 2, .. })),
            "{name}"
        );
    });
}

#[test]
fn every_size_arrives_whole_and_in_order() {
    each(2, |name, mut transports| {
        let max = transports[0].features(1).message_max - 16;
        let sizes: Vec<usize> = [0, 1, 7, 40, 41, 63, 64, 65, 1000, 4095, 4096, 4097]
            .into_iter()
            .chain([max / 2, max - 1, max])
            .filter(|&size| size <= max)
            .collect();
        let mut keeps = keeps(2);
        let mut next = 0;
        until(name, &mut transports, &mut keeps, |w, k| {
            while next < 2 * sizes.len() {
                let body = bytes_of(sizes[next / 2], next);
                let mut fill = |out: &mut [u8]| out.copy_from_slice(&body);
                // Alternately as a run of bytes and by a closure.
                let how = match next % 2 {
                    0 => Body::Bytes(&body),
                    _ => Body::Fill(body.len(), &mut fill),
                };
                let status = w[0].send(1, next as u8, b"0123456789abcdef", how).unwrap();
                if status == SendStatus::Full {
                    break;
                }
                next += 1;
            }
            k[1].messages.len() == 2 * sizes.len()
        });
        for (i, (from, message, bytes)) in keeps[1].messages.iter().enumerate() {
            assert_eq!((*from, usize::from(*message)), (0, i), "{name}");
            assert_eq!(&bytes[..16], b"0123456789abcdef", "{name}");
            assert_eq!(bytes[16..], bytes_of(sizes[i / 2], i), "{name}");
        }
    });
}

#[test]
fn a_full_transport_says_so_and_takes_more_when_it_is_emptied() {
    each(2, |name, mut transports| {
        let mut keeps = keeps(2);
        let body = bytes_of(8000.min(transports[0].features(1).message_max), 3);
        // First there must be a connection, so that Full means that the transport is full.
        connect(name, &mut transports, &mut keeps);
        let mut sent = 0;
        while transports[0].send(1, 1, &[], Body::Bytes(&body)).unwrap() == SendStatus::Done {
            sent += 1;
            assert!(sent < 1_000_000, "{name}: it is never full");
        }
        let total = sent + 500;
        until(name, &mut transports, &mut keeps, |w, k| {
            while sent < total
                && w[0].send(1, 1, &[], Body::Bytes(&body)).unwrap() == SendStatus::Done
            {
                sent += 1;
            }
            k[1].messages.len() == total + 1
        });
        assert!(keeps[1].messages[1..].iter().all(|m| m.2 == body), "{name}");
    });
}

/// Sends one message from 0 to 1, so that there is a connection.
fn connect(name: &str, transports: &mut Transports, keeps: &mut [Keep]) {
    let mut sent = false;
    until(name, transports, keeps, |w, k| {
        sent = sent || w[0].send(1, 0, &[], Body::Bytes(b"first")).unwrap() == SendStatus::Done;
        !k[1].messages.is_empty()
    });
}

#[test]
fn streams_arrive_in_place_and_beside_messages() {
    each(2, |name, mut transports| {
        if !transports[0].features(1).stream {
            return;
        }
        for (len, place, zero_copy) in [
            (1, true, false),
            (100_000, true, false),
            (100_000, false, true),
            (9_000_001, true, false),
            (9_000_001, true, true),
            (9_000_001, false, true),
        ] {
            // By now there is a connection.
            assert!(name != "tcp" || len == 1 || transports[0].zero_copy(1) != ZeroCopy::Never);
            if zero_copy && transports[0].zero_copy(1) == ZeroCopy::Never {
                continue;
            }
            let mut keeps = keeps(2);
            if place {
                keeps[1].stream = vec![0; len];
                keeps[1].place = Some(0);
            }
            let body = bytes_of(len, len);
            // A stream follows a CTS.
            let what = Expected {
                address: place.then_some(keeps[1].stream.as_ptr().addr()),
                len,
                message: 8,
                head: b"head",
            };
            let mut asked = false;
            until(name, &mut transports, &mut keeps, |w, k| {
                if !asked {
                    if let Some(offload) = w[1].rendezvous_offload() {
                        offload.before_cts(0, &what);
                    }
                    let ask = Body::Bytes(b"ask");
                    asked = w[1].send(0, 6, &[], ask).unwrap() == SendStatus::Done;
                }
                !k[0].messages.is_empty()
            });
            let (mut at, mut small, mut between) = (0, 0u8, true);
            until(name, &mut transports, &mut keeps, |w, k| {
                // A small message wherever one may be sent.
                if between && small < 20 {
                    let status = w[0].send(1, 7, &[], Body::Bytes(&[small])).unwrap();
                    small += u8::from(status == SendStatus::Done);
                }
                if at < len {
                    // The bytes stay unchanged until all have arrived, so zero copy may be used.
                    let done = if zero_copy {
                        w[0].stream_zero_copy(1, 8, b"head", &body[at..]).unwrap()
                    } else {
                        w[0].stream(1, 8, b"head", &body[at..]).unwrap()
                    };
                    at += done.taken;
                    between = done.between;
                }
                let came = k[1].place.unwrap_or(k[1].stream.len());
                came == len && small == 20 && k[1].messages.len() == 20
            });
            assert!(keeps[1].stream == body, "{name}: {len} bytes");
            let order: Vec<u8> = keeps[1].messages.iter().map(|m| m.2[0]).collect();
            assert_eq!(order, (0..20).collect::<Vec<_>>(), "{name}");
        }
    });
}

#[test]
fn a_batch_arrives_in_order() {
    each(2, |name, mut transports| {
        if !transports[0].features(1).batch {
            return;
        }
        // Far more than any transport takes at once. So parts go: of whole messages and of streams,
        // of heads and of bodies.
        let whole: Vec<Vec<u8>> = (0..600usize)
            .map(|i| bytes_of([0, 1, 300, 20_000, 60_000][i % 5], i))
            .collect();
        let streams: Vec<Vec<u8>> = (0..6usize)
            .map(|i| bytes_of([1, 70_000, 1 << 20, 3_000_000][i % 4], i))
            .collect();
        let mut rest: VecDeque<(u8, bool, &[u8])> = VecDeque::new();
        for (i, body) in whole.iter().enumerate() {
            rest.push_back((1, false, body));
            if i % 100 == 50 {
                rest.push_back((8, true, &streams[i / 100]));
            }
        }
        let mut keeps = keeps(2);
        let all = streams.concat();
        until(name, &mut transports, &mut keeps, |w, k| {
            let messages: Vec<BatchMessage<'_>> = rest
                .iter()
                .take(40)
                .map(|&(message, stream, body)| BatchMessage {
                    message,
                    head: b"head",
                    body,
                    stream,
                })
                .collect();
            if !messages.is_empty() {
                let sent = w[0].send_batch(1, &messages).unwrap();
                rest.drain(..sent.whole);
                if sent.taken > 0 {
                    assert!(rest[0].1, "{name}: a part of a whole message");
                    rest[0].2 = &rest[0].2[sent.taken..];
                    assert!(!rest[0].2.is_empty(), "{name}: it has gone");
                }
            }
            k[1].messages.len() == whole.len() && k[1].stream.len() == all.len()
        });
        assert!(keeps[1].stream == all, "{name}: the streams");
        for (i, (got, sent)) in keeps[1].messages.iter().zip(&whole).enumerate() {
            assert!(
                got.2 == [b"head", &sent[..]].concat(),
                "{name}: message {i}"
            );
        }
    });
}

/// Sleeps as a process that has nothing to do. False: nothing came in ten seconds.
fn sleep(transport: &mut dyn Transport, keep: &mut Keep) -> bool {
    let word = transport.wakeup_word();
    let seen = word.map(|w| w.load(std::sync::atomic::Ordering::SeqCst));
    transport.arm(Sleeper::Program);
    let before = keep.messages.len();
    transport.poll(keep).unwrap();
    let mut woken = keep.messages.len() > before;
    if !woken {
        let limit = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        woken = match (transport.event_fd(), word, seen) {
            (Some(fd), ..) => poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)) == Ok(1),
            (None, Some(word), Some(seen)) => {
                let flags = rustix::thread::futex::Flags::empty();
                let slept = rustix::thread::futex::wait(word, flags, seen, Some(&limit));
                slept != Err(rustix::io::Errno::TIMEDOUT)
            }
            _ => panic!("nothing to sleep on"),
        };
    }
    transport.disarm();
    transport.poll(keep).unwrap();
    woken
}

#[test]
fn sleepers_are_woken_by_messages_and_by_room() {
    each(2, |name, mut transports| {
        if transports[0].event_fd().is_none() && transports[0].wakeup_word().is_none() {
            // In virtual time a process idles instead. The tests of ferry-fabric's kernel check
            // that.
            return;
        }
        let mut keeps = keeps(2);
        connect(name, &mut transports, &mut keeps);
        let (mut receiver, mut sender) = (transports.pop().unwrap(), transports.pop().unwrap());
        std::thread::scope(|s| {
            s.spawn(move || {
                let mut keep = Keep::default();
                for _ in 0..200 {
                    while keep.messages.is_empty() {
                        assert!(sleep(receiver.as_mut(), &mut keep), "{name}: not woken");
                    }
                    keep.messages.remove(0);
                    send_until_taken(receiver.as_mut(), &mut keep, 0, 2, &[], b"answer");
                }
                // The sender finds no room, and sleeps until the receiver makes some.
                std::thread::sleep(Duration::from_millis(50));
                let end = Instant::now() + TIME_LIMIT;
                while keep.messages.len() < 2000 {
                    receiver.poll(&mut keep).unwrap();
                    assert!(Instant::now() < end, "{name}: the sender sleeps on");
                    std::thread::yield_now();
                }
            });
            let mut keep = Keep::default();
            for _ in 0..200 {
                send_until_taken(sender.as_mut(), &mut keep, 1, 1, &[], b"question");
                while keep.messages.is_empty() {
                    assert!(sleep(sender.as_mut(), &mut keep), "{name}: not woken");
                }
                keep.messages.clear();
            }
            let body = bytes_of(4000, 1);
            for _ in 0..2000 {
                while sender.send(1, 3, &[], Body::Bytes(&body)).unwrap() == SendStatus::Full {
                    // A sender that was answered Full has armed: room must wake it.
                    sleep(sender.as_mut(), &mut keep);
                }
            }
            let end = Instant::now() + TIME_LIMIT;
            while !sender.settle() {
                sender.poll(&mut keep).unwrap();
                assert!(Instant::now() < end, "{name}: it never settles");
            }
        });
    });
}

#[test]
fn what_a_transport_still_holds_is_said_until_it_is_gone() {
    each(2, |name, mut transports| {
        let mut keeps = keeps(2);
        connect(name, &mut transports, &mut keeps);
        assert!(!transports[0].has_unsent(), "{name}");
        let before = keeps[1].messages.len();
        let (body, mut sent) = (bytes_of(3000, 1), 0);
        while transports[0].send(1, 1, &[], Body::Bytes(&body)).unwrap() == SendStatus::Done {
            sent += 1;
        }
        // Only connections have a queue in this process.
        let connects = name.starts_with("tcp") || name.starts_with("tipc");
        assert_eq!(transports[0].has_unsent(), connects, "{name}");
        until(name, &mut transports, &mut keeps, |_, k| {
            k[1].messages.len() == before + sent
        });
        assert!(!transports[0].has_unsent(), "{name}");
    });
}

/// Three jobs with the same TIPC names, as may happen by chance. Only ports and keys tell them
/// apart.
#[test]
fn two_jobs_under_the_same_names_never_meet() {
    if std::env::var_os("FERRY_TEST_TIPC").is_none() {
        return;
    }
    let mut jobs = [tipc(3, false), tipc(3, true), tipc(3, false)];
    let mut all: Vec<Vec<Keep>> = (0..3).map(|_| keeps(3)).collect();
    let mut sent = [[[false; 3]; 3]; 3];
    let end = Instant::now() + TIME_LIMIT;
    while all.iter().flatten().any(|k| k.messages.len() < 2) {
        for (j, (transports, keeps)) in jobs.iter_mut().zip(&mut all).enumerate() {
            for (me, (transport, keep)) in transports.iter_mut().zip(keeps).enumerate() {
                for to in (0..3).filter(|&to| to != me) {
                    if !sent[j][me][to] {
                        let status = transport.send(to as u32, 1, &[], Body::Bytes(&[j as u8]));
                        sent[j][me][to] = status.unwrap() == SendStatus::Done;
                    }
                }
                transport.poll(keep).unwrap();
            }
        }
        assert!(Instant::now() < end, "it takes too long");
    }
    for (j, keep) in all.iter().enumerate() {
        let mut messages = keep.iter().flat_map(|k| &k.messages);
        assert!(messages.all(|m| m.2 == [j as u8]), "{j}: another job's");
    }
}
