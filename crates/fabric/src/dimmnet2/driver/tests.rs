//! The driver on modelled cards under the real kernel. Ranks are threads.

use super::*;
use crate::dimmnet2::Figures;
use crate::dimmnet2::card::access::{llcm_end, process_of};
use crate::dimmnet2::card::command::Addressing;
use crate::dimmnet2::card::pattern::Pattern;
use crate::dimmnet2::card::{CardStats, Cards};
use crate::driver::Upcall;
use crate::kernel::{Client, ModelSegment, Server};
use crate::machine::{self, Nic};
use crate::platform::{Count, Figure, Platform, Size};
use proptest::prelude::*;
use std::io::Write;
use std::thread;

type RankDriver = CardDriver<MappedCard<Client>>;

/// The machine that comes with Ferry, with rings of `ring` bytes and `processes` ranks a node.
fn machine(ring: u64, processes: u32) -> (Platform, Figures) {
    let (file, text) = machine::find("dimmnet2").unwrap();
    let mut machine = machine::read(&file, &text).unwrap();
    machine.platform.nodes.processes = Some(Figure::of(Count(processes)));
    let Nic::Dimmnet2(mut figures) = machine.nic else {
        unreachable!("a card of DIMMnet-2");
    };
    figures.ring = Figure::of(Size(ring));
    (machine.platform, *figures)
}

/// Bytes of a ring.
const RING: u64 = 16 * 1024;

/// What has been received. Streams go into `buffer`, if it is not empty.
#[derive(Default)]
struct Received {
    messages: Vec<(u32, u8, Vec<u8>)>,
    stream: Vec<u8>,
    buffer: Vec<u8>,
    placed: usize,
    /// Bytes given out at a time.
    step: usize,
}

impl Upcall for Received {
    fn on_message(&mut self, from: u32, message: u8, bytes: &[u8]) {
        self.messages.push((from, message, bytes.to_vec()));
    }
    fn stream_buffer(
        &mut self,
        _from: u32,
        _message: u8,
        _head: &[u8],
        left: usize,
    ) -> Option<&mut [u8]> {
        if self.buffer.is_empty() {
            return None;
        }
        let end = (self.placed + left.min(self.step)).min(self.buffer.len());
        Some(&mut self.buffer[self.placed..end])
    }
    fn stream_placed(&mut self, _from: u32, _message: u8, _head: &[u8], bytes: usize) {
        self.placed += bytes;
    }
    fn stream_part(&mut self, _from: u32, _message: u8, head: &[u8], bytes: &[u8]) {
        assert_eq!(head, b"stream");
        self.stream.extend_from_slice(bytes);
    }
}

/// Runs a job of `ranks` ranks. Returns the time at the end, and what the cards did.
fn job(
    ranks: u32,
    (platform, f): &(Platform, Figures),
    body: impl Fn(u32, &mut RankDriver) + Sync,
) -> (Time, Vec<CardStats>) {
    let layout = MemoryLayout::new(f, platform.processes() as u16);
    let costs = HostCosts::new(f, &platform.cpu);
    let processes: Vec<Process> = (0..ranks).map(|r| process_of(platform, r)).collect();
    let segment = ModelSegment::create(ranks, llcm_end(platform, f, ranks), b"").unwrap();
    let model = Cards::new(platform, f, ranks);
    let server = Server::new(segment.clone(), model, None);
    let ended = thread::scope(|s| {
        let running = s.spawn(|| {
            server.run(|time| {
                let _ = writeln!(std::io::stderr(), "all ranks wait at {time}");
                std::process::abort();
            })
        });
        let threads: Vec<_> = (0..ranks)
            .map(|me| {
                let (segment, body, processes) = (segment.clone(), &body, &processes);
                s.spawn(move || {
                    let client = Client::join(segment, me);
                    let port = MappedCard::new(client, layout.window());
                    let mut driver = CardDriver::new(port, costs, layout, me, processes);
                    body(me, &mut driver);
                    driver.flush();
                    assert_eq!(driver.error(), None);
                    driver.port_mut().client.leave();
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        segment.close();
        running.join().unwrap()
    });
    assert!(ended.invalid.is_none(), "{:?}", ended.invalid);
    (ended.time, ended.model.stats())
}

/// Polls, and waits if there is nothing to do: in this order, as what has been seen does
/// not end a wait.
fn go_on(driver: &mut RankDriver, received: &mut Received) {
    if driver.poll(received) == Ok(0) {
        driver.wait();
    }
}

/// Polls until `messages` messages have come.
fn receive(driver: &mut RankDriver, received: &mut Received, messages: usize) {
    while received.messages.len() < messages {
        go_on(driver, received);
    }
}

fn bytes_of(len: usize, salt: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + salt * 7 + i / 256) as u8)
        .collect()
}

#[test]
fn an_envelope_and_its_data_arrive() {
    let (time, stats) = job(2, &machine(RING, 1), |me, driver| {
        let mut received = Received::default();
        let sizes = [0, 1, 8, 90, 96, 97, 480, 481, 3000];
        for (i, size) in sizes.into_iter().enumerate() {
            if me == 0 {
                let body = bytes_of(size, i);
                assert_eq!(driver.send(1, i as u8, false, b"head", &body), Sent::Taken);
            } else {
                receive(driver, &mut received, i + 1);
                let whole = [&b"head"[..], &bytes_of(size, i)].concat();
                assert_eq!(received.messages[i], (0, i as u8, whole));
            }
        }
        // A head that fills the envelope to the last byte, and longer ones.
        for (i, len) in [24, 25, 40, HEAD_MAX_BYTES].into_iter().enumerate() {
            let head = bytes_of(len, 9);
            if me == 0 {
                assert_eq!(driver.send(1, 100, false, &head, b"x"), Sent::Taken);
            } else {
                let n = sizes.len() + i;
                receive(driver, &mut received, n + 1);
                assert_eq!(received.messages[n].2, [&head[..], b"x"].concat());
            }
        }
    });
    assert!(time > Time::us(20) && time < Time::us(2000), "{time}");
    assert!(stats[0].packets > 20 && stats[0].commands > stats[0].packets);
}

/// What reading LLCM has cost the driver's rank.
fn read_cost(driver: &RankDriver) -> Time {
    let costs = driver.port().client.costs();
    let entry = costs.iter().find(|(cause, _)| *cause == "reads of LLCM");
    entry.map_or(Time::ZERO, |(_, cost)| cost.time)
}

#[test]
fn what_the_driver_knows_of_llcm_it_has_read() {
    let machine = machine(RING, 1);
    let (read, reply) = (machine.1.read.value, machine.1.reply.value);
    let slots = machine.1.slots.value.0;
    job(2, &machine, |me, driver| {
        let mut received = Received::default();
        // All that is sent has arrived and left its window before the next step.
        let pause = |driver: &mut RankDriver| {
            driver.port_mut().client.charge("computes", Time::us(100));
            driver.port_mut().sync();
        };
        if me == 0 {
            let before = read_cost(driver);
            for i in 0..slots {
                assert_eq!(driver.send(1, i as u8, false, b"", b""), Sent::Taken);
                pause(driver);
            }
            assert_eq!(read_cost(driver), before, "there are as many slots");
            assert_eq!(driver.send(1, 0, false, b"", b""), Sent::Taken);
            assert_eq!(
                read_cost(driver),
                before + read,
                "one of them is free again"
            );
        } else {
            for _ in 0..20 {
                pause(driver);
            }
            let before = read_cost(driver);
            assert_eq!(driver.poll(&mut received), Ok(slots as usize + 1));
            // NWA, the end of each VL, and NWA again.
            let envelopes = machine.1.poll_read.value.0 as u32 / ENVELOPE_BYTES;
            let loads = u64::from((slots + 1).div_ceil(envelopes));
            let expected = read * (2 + loads) - reply;
            assert_eq!(
                read_cost(driver) - before,
                expected,
                "the last reply is not there"
            );
            assert_eq!(driver.send(0, 0, false, b"", b""), Sent::Taken);
            assert_eq!(read_cost(driver) - before, expected + reply);
        }
    });
}

#[test]
fn a_full_ring_stops_and_nothing_is_lost() {
    let stops = job(3, &machine(1024, 1), |me, driver| {
        let mut received = Received::default();
        if me == 0 {
            // Far more than two rings hold, before the first look.
            driver.port_mut().client.charge("computes", Time::us(500));
            receive(driver, &mut received, 80);
            for from in [1, 2] {
                let from_it = received.messages.iter().filter(|m| m.0 == from);
                for (i, (_, message, bytes)) in from_it.enumerate() {
                    assert_eq!(*message, i as u8);
                    assert_eq!(*bytes, bytes_of(i * 13 % 200, i));
                }
            }
        } else {
            for i in 0..40 {
                let body = bytes_of(i * 13 % 200, i);
                while driver.send(0, i as u8, false, &[], &body) == Sent::Full {
                    go_on(driver, &mut received);
                }
            }
        }
    })
    .1[0]
        .stops;
    assert!(stops >= 2, "{stops}");
}

#[test]
fn rendezvous_data_go_by_rvs() {
    for step in [usize::MAX, 1000] {
        let total = 200_001;
        job(2, &machine(RING, 1), |me, driver| {
            let mut received = Received {
                step,
                buffer: if step == 1000 {
                    vec![0; total]
                } else {
                    Vec::new()
                },
                ..Received::default()
            };
            let body = bytes_of(total, 3);
            if me == 0 {
                let mut gone = 0;
                while gone < total {
                    match driver.stream(1, 5, b"stream", &body[gone..]) {
                        Some(n) => gone += n,
                        None => {
                            go_on(driver, &mut received);
                        }
                    }
                }
                assert_eq!(driver.stream(1, 5, b"stream", &[]), Some(0));
                assert_eq!(driver.send(1, 6, false, b"", b"end"), Sent::Taken);
            } else {
                receive(driver, &mut received, 1);
                let came = if step == 1000 {
                    &received.buffer
                } else {
                    &received.stream
                };
                assert!(*came == body);
            }
        });
    }
}

#[test]
fn processes_of_a_node_share_a_card() {
    job(4, &machine(RING, 2), |me, driver| {
        let mut received = Received::default();
        for to in (0..4).filter(|to| *to != me) {
            assert_eq!(
                driver.send(to, 1, false, &[me as u8], b"hello"),
                Sent::Taken
            );
        }
        receive(driver, &mut received, 3);
        received.messages.sort();
        let from: Vec<u32> = received.messages.iter().map(|m| m.0).collect();
        let others: Vec<u32> = (0..4).filter(|r| *r != me).collect();
        assert_eq!(from, others);
        for (from, _, bytes) in &received.messages {
            assert_eq!(bytes[..], [&[*from as u8], &b"hello"[..]].concat());
        }
    });
}

#[test]
fn one_sided_and_strided() {
    job(2, &machine(RING, 1), |me, driver| {
        let mut received = Received::default();
        let base = driver.free_memory_at();
        let there = |memory| Remote { rank: 1, memory };
        let column = Addressing::Stride {
            block: 8,
            stride: 64,
            count: 16,
        };
        if me == 0 {
            let bytes = bytes_of(2000, 1);
            driver.put(there(base), &bytes);
            driver.fence(1);
            let mut back = vec![0; 2000];
            driver.get(there(base), &mut back);
            assert_eq!(back, bytes);
            // A column of a matrix over there, from a row here, and back by a list.
            let row = bytes_of(128, 2);
            driver.store(&row, base, Addressing::Contiguous(128));
            driver.put_vector(there(base + 4096), base, column);
            let mut back = vec![0; 8];
            driver.get(there(base + 4096 + 5 * 64), &mut back);
            assert_eq!(back, row[40..48]);
            let offsets: Vec<u32> = (0..16).rev().map(|i| i * 64).collect();
            let packed = Pattern::PackedList {
                block: 8,
                offsets: offsets.clone(),
            };
            let list = driver.list(&packed).unwrap();
            let what = Addressing::PackedList {
                block: 8,
                count: 16,
                list,
            };
            driver.get_vector(there(base + 4096), base + 512, what);
            let mut mirrored = vec![0; 128];
            driver.load(base + 512, Addressing::Contiguous(128), &mut mirrored);
            let expected: Vec<u8> = row.rchunks(8).flatten().copied().collect();
            assert_eq!(mirrored, expected);
            let list = Pattern::List {
                block: 8,
                offsets: offsets.iter().map(|&o| o.into()).collect(),
            };
            let place = driver.list(&list).unwrap();
            let what = Addressing::List {
                block: 8,
                count: 16,
                list: place,
            };
            driver.put_vector(there(base + 8192), base + 512, what);
            driver.fence(1);
            assert_eq!(driver.send(1, 1, false, b"", b"done"), Sent::Taken);
        } else {
            receive(driver, &mut received, 1);
            let mut row = vec![0; 128];
            driver.load(base + 8192, column, &mut row);
            assert_eq!(row, bytes_of(128, 2));
        }
    });
}

#[test]
fn two_runs_take_the_same_time() {
    let run = || {
        job(3, &machine(RING, 1), |me, driver| {
            let mut received = Received::default();
            for round in 0..5 {
                let to = (me + 1) % 3;
                let body = bytes_of((me as usize + 1) * 300, round);
                while driver.send(to, 1, false, &[], &body) == Sent::Full {
                    go_on(driver, &mut received);
                }
                receive(driver, &mut received, round + 1);
            }
        })
    };
    let first = run();
    for _ in 0..3 {
        assert_eq!(run(), first);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Messages of any size between three ranks over small rings: all come, whole and in order.
    #[test]
    fn storms_arrive_whole_and_in_order(
        layout in proptest::collection::vec((0u32..3, 1u32..3, 0usize..1500, 0u64..3000), 1..40),
        ring in 0u64..200,
    ) {
        let machine = machine(4096 + ring * 8, 1);
        job(3, &machine, |me, driver| {
            let mut received = Received::default();
            for (i, &(from, step, size, pause)) in layout.iter().enumerate() {
                if from != me {
                    continue;
                }
                driver.port_mut().client.charge("computes", Time::ns(pause));
                let to = (from + step) % 3;
                while driver.send(to, i as u8, false, &[1, 2], &bytes_of(size, i)) == Sent::Full {
                    go_on(driver, &mut received);
                }
            }
            let mine = |&&(i, &(from, step, ..)): &&(usize, &(u32, u32, usize, u64))| {
                let _ = i;
                (from + step) % 3 == me
            };
            let all: Vec<_> = layout.iter().enumerate().collect();
            let expected: Vec<_> = all.iter().filter(mine).collect();
            receive(driver, &mut received, expected.len());
            for sender in 0..3 {
                let came = received.messages.iter().filter(|m| m.0 == sender);
                let sent = expected.iter().filter(|(_, (from, ..))| *from == sender);
                for (came, (i, (_, _, size, _))) in came.zip(sent) {
                    assert_eq!(came.1, *i as u8);
                    assert_eq!(came.2, [&[1, 2][..], &bytes_of(*size, *i)].concat());
                }
            }
            driver.flush();
        });
    }
}
