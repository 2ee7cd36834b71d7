//! The kernel with ranks that are threads.

use super::calendar::next_poll;
use super::*;
use crate::kernel::{Client, Observers};
use std::sync::{Mutex, OnceLock};
use std::thread;

/// Cards that are joined by wires of a fixed latency: kind 1 goes to the rank in the first byte;
/// kind 2 comes back after the latency; kind 3 writes into the rank's own card memory.
struct Wires {
    latency: Time,
    /// The model says what it knows of who can see what, and when.
    precise: bool,
    log: Vec<(Time, Rank, u8)>,
}

struct InFlight {
    to: Rank,
    kind: u32,
    bytes: Vec<u8>,
}

impl Model for Wires {
    type Event = InFlight;
    fn command(
        &mut self,
        from: Rank,
        kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<InFlight>,
    ) -> Result<(), InvalidCommand> {
        let Some((&first, rest)) = bytes.split_first() else {
            return Err(InvalidCommand("an empty command"));
        };
        self.log.push((kernel.now(), from, first));
        let to = if kind == 1 { u32::from(first) } else { from };
        if to >= kernel.ranks() {
            return Err(InvalidCommand("a rank that is not there"));
        }
        let bytes = rest.to_vec();
        kernel.schedule_after(self.latency, to, InFlight { to, kind, bytes });
        Ok(())
    }
    fn event(&mut self, event: InFlight, kernel: &mut Kernel<InFlight>) {
        match event.kind {
            3 => kernel.write(event.to, 0, &event.bytes),
            kind => kernel.notify(event.to, kind, &[&event.bytes]),
        }
    }
    fn lookahead(&self) -> Time {
        if self.precise {
            self.latency
        } else {
            Time::ZERO
        }
    }
    fn response_time(&self, _kind: u32) -> Time {
        self.lookahead()
    }
    fn observers(&self, event: &InFlight) -> Observers {
        match self.precise {
            true => Observers::Rank(event.to, Time::ZERO),
            false => Observers::All(Time::ZERO),
        }
    }
}

const LATENCY: Time = Time::us(2);

/// Runs `ranks` ranks; each does `body`.
fn job(ranks: u32, body: impl Fn(&mut Client) + Sync) -> Completed<Wires> {
    job_on(ranks, false, body)
}

fn job_on(ranks: u32, precise: bool, body: impl Fn(&mut Client) + Sync) -> Completed<Wires> {
    let segment = ModelSegment::create(ranks, 4096, b"").unwrap();
    job_in(segment, precise, body)
}

fn job_in(
    segment: ModelSegment,
    precise: bool,
    body: impl Fn(&mut Client) + Sync,
) -> Completed<Wires> {
    let ranks = segment.ranks();
    let model = Wires {
        latency: LATENCY,
        precise,
        log: Vec::new(),
    };
    let server = Server::new(segment.clone(), model, None);
    thread::scope(|s| {
        let running = s.spawn(|| server.run(|_| {}));
        let ranks: Vec<_> = (0..ranks)
            .map(|me| {
                let (segment, body) = (segment.clone(), &body);
                s.spawn(move || {
                    let mut client = Client::join(segment, me);
                    body(&mut client);
                    client.leave();
                })
            })
            .collect();
        for rank in ranks {
            rank.join().unwrap();
        }
        segment.close();
        running.join().unwrap()
    })
}

fn event(client: &mut Client) -> crate::kernel::Event {
    loop {
        if let Some(event) = client.event() {
            return event;
        }
        client.wait(Time::ZERO);
    }
}

#[test]
fn a_ping_pong_takes_what_it_takes() {
    let ended = job(2, |c| {
        let other = [1 - c.me() as u8];
        for _ in 0..100 {
            if c.me() == 0 {
                c.charge("post", Time::ns(500));
                c.command(1, &[&other, b"ping"]);
                assert_eq!(event(c).bytes, b"pong");
            } else {
                assert_eq!(event(c).bytes, b"ping");
                c.charge("post", Time::ns(500));
                c.command(1, &[&other, b"pong"]);
            }
        }
        if c.me() == 0 {
            assert_eq!(c.now(), (LATENCY + Time::ns(500)) * 200);
        }
    });
    assert_eq!(ended.time, (LATENCY + Time::ns(500)) * 200);
    assert_eq!(ended.commands, 200);
    let cost = ended.ranks[0].costs["post"];
    assert_eq!((cost.times, cost.time), (100, Time::us(50)));
    assert_eq!(ended.ranks[0].waited, ended.time - Time::us(50));
}

#[test]
fn the_order_is_time_then_rank_then_sequence() {
    let order = |_: u32| {
        let ended = job(5, |c| {
            for round in 0..50u8 {
                // All at the same instants, but the last, which is a picosecond ahead.
                if c.me() < 4 || round > 0 {
                    c.charge("work", Time::ns(10));
                } else {
                    c.charge("work", Time::ps(9_999));
                }
                c.command(2, &[&[round]]);
                c.command(2, &[&[100 + round]]);
                event(c);
                event(c);
            }
        });
        assert!(ended.invalid.is_none());
        ended.model.log
    };
    let first = order(0);
    let mut sorted = first.clone();
    sorted.sort_by_key(|&(time, rank, _)| (time, rank));
    assert_eq!(first, sorted);
    assert_eq!(first[0].1, 4);
    assert_eq!(first, order(1));
}

#[test]
fn what_is_read_is_as_of_the_clock() {
    job(3, |c| {
        c.command(3, &[b"!", b"new"]);
        let mut three = [0; 3];
        c.charge("think", LATENCY - Time::ps(1));
        c.sync();
        c.read(0, &mut three);
        assert_eq!(&three, &[0; 3]);
        c.charge("think", Time::ps(1));
        c.sync();
        c.read(0, &mut three);
        assert_eq!(&three, b"new");
    });
}

#[test]
fn who_polls_sees_it_at_its_next_poll() {
    job(1, |c| {
        c.charge("work", Time::ns(100));
        c.command(2, &[b"x"]);
        c.wait(Time::ns(300));
        // 2000 ns is not a multiple of 300 ns: the seventh poll.
        assert_eq!(c.now(), Time::ns(100 + 2100));
        assert_eq!(c.event().unwrap().time, Time::ns(2100));
        assert_eq!(
            next_poll(Time::ns(5), Time::ns(5), Time::ns(3)),
            Time::ns(5)
        );
        assert_eq!(
            next_poll(Time::ns(5), Time::ns(8), Time::ns(3)),
            Time::ns(8)
        );
    });
}

#[test]
fn more_events_than_a_mailbox_holds_all_come() {
    let size = 40_000;
    job(2, |c| {
        if c.me() == 0 {
            for n in 0..50u8 {
                c.command(1, &[&[1, n], &vec![n; size]]);
            }
        } else {
            c.charge("sleep", Time::us(100));
            for n in 0..50u8 {
                let came = event(c);
                assert_eq!((came.bytes[0], came.bytes.len()), (n, size + 1));
                assert_eq!(came.time, LATENCY);
            }
            assert_eq!(c.now(), Time::us(100));
        }
    });
}

#[test]
fn nobody_can_go_on() {
    let told = Mutex::new(Vec::new());
    let segment = ModelSegment::create(2, 0, b"").unwrap();
    let model = Wires {
        latency: LATENCY,
        precise: false,
        log: Vec::new(),
    };
    let server = Server::new(segment.clone(), model, None);
    thread::scope(|s| {
        s.spawn(|| {
            server.run(|now| {
                told.lock().unwrap().push(now);
                // The launcher would now end the job.
                segment.mark_exited(0);
                segment.close();
            })
        });
        let waiter = segment.clone();
        s.spawn(move || {
            let mut c = Client::join(waiter, 0);
            c.charge("work", Time::us(7));
            c.command(2, &[b"x"]);
            event(&mut c);
            // Rests for ever; the thread must not.
            assert!(c.begin_wait(Time::ZERO).is_some());
        });
        let other = segment.clone();
        s.spawn(move || {
            // It could come back, until its process has ended.
            Client::join(other.clone(), 1).leave();
            other.mark_exited(1);
        });
    });
    assert_eq!(told.into_inner().unwrap(), [Time::us(9)]);
}

#[test]
fn a_rank_that_ends_in_the_middle_is_not_waited_for() {
    let segment = ModelSegment::create(3, 0, b"").unwrap();
    let model = Wires {
        latency: LATENCY,
        precise: false,
        log: Vec::new(),
    };
    let server = Server::new(segment.clone(), model, None);
    thread::scope(|s| {
        let running = s.spawn(|| server.run(|_| {}));
        let first = segment.clone();
        let working = s.spawn(move || {
            let mut c = Client::join(first, 0);
            for _ in 0..10 {
                c.command(2, &[b"x"]);
                event(&mut c);
            }
            c.leave();
        });
        // One comes and ends with the turn, one never comes.
        Client::join(segment.clone(), 1);
        segment.mark_exited(1);
        segment.mark_exited(2);
        working.join().unwrap();
        segment.close();
        assert_eq!(running.join().unwrap().time, LATENCY * 10);
    });
}

#[test]
fn who_waits_or_has_left_can_come_back() {
    let ended = job(2, |c| {
        if c.me() == 0 {
            c.set_concurrent();
            // Another thread goes on while this one waits.
            assert!(c.begin_wait(Time::ZERO).is_some() && c.is_waiting());
            c.command(2, &[b"x"]);
            assert!(!c.is_waiting());
            event(c);
            c.leave();
            assert!(c.has_left());
            c.command(2, &[b"y"]);
            event(c);
        }
    });
    assert_eq!(ended.commands, 2);
    assert_eq!(ended.time, LATENCY * 2);
}

/// One thread of a rank waits while another comes and goes. The waiting thread is not woken by
/// that: two of them would wake each other for ever.
#[test]
fn a_turn_that_a_thread_asks_for_wakes_no_other() {
    let ended = job(1, |c| {
        c.set_concurrent();
        let (word, seen) = c.begin_wait(Time::ZERO).expect("nothing is there");
        for _ in 0..100 {
            c.resume();
            assert!(!c.is_waiting());
            assert_eq!(c.begin_wait(Time::ZERO).map(|r| r.1), Some(seen));
        }
        // What comes wakes one.
        c.command(2, &[&[0], b"here"]);
        if c.begin_wait(Time::ZERO).is_some() {
            crate::kernel::sleep(word, seen);
        }
        c.resume();
        assert!(c.has_unseen_events());
        // Whoever leaves now leaves it behind.
        assert!(c.begin_wait(Time::ZERO).is_none());
        assert_eq!(event(c).bytes, b"here");
        c.end_poll(true);
        assert!(c.has_unseen_events());
        c.end_poll(false);
        assert!(!c.has_unseen_events());
        assert_eq!(word.load(Ordering::SeqCst), seen.wrapping_add(1));
    });
    assert!(ended.turns.0 < 110, "{:?}", ended.turns);
}

#[test]
fn nonsense_ends_the_job() {
    let segment = ModelSegment::create(1, 0, b"").unwrap();
    let model = Wires {
        latency: LATENCY,
        precise: false,
        log: Vec::new(),
    };
    let server = Server::new(segment.clone(), model, None);
    let mut c = Client::join(segment, 0);
    c.command(1, &[&[9]]);
    assert!(c.begin_wait(Time::ZERO).is_some());
    let ended = server.run(|_| {});
    assert_eq!(
        ended.invalid,
        Some((0, InvalidCommand("a rank that is not there")))
    );
}

/// Messages in a ring, at odd times, by ranks that poll often. Returns each rank's polls that found
/// something. `deferred`: polls are deferred.
fn polls(precise: bool, deferred: bool) -> (Vec<Vec<(Time, Time)>>, Completed<Wires>) {
    const POLL: Time = Time::ns(70);
    let found = Mutex::new(vec![Vec::new(); 5]);
    let ended = job_on(5, precise, |c| {
        let (me, mut seed) = (c.me(), u64::from(c.me()) + 1);
        let (mut sent, mut got, mut mine) = (0, 0, Vec::new());
        let right = [((me + 1) % 5) as u8, 0];
        while got < 60 || sent < 60 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            c.charge("work", Time::ps((seed >> 33) % 900_000));
            if sent < 60 {
                c.command(1, &[&right]);
                sent += 1;
            }
            // Now and then a rank waits. Otherwise it goes on, whether something is there or not.
            let waits = got < sent && (sent == 60 || (seed >> 20) & 3 == 0);
            loop {
                if waits && deferred {
                    c.may_defer_poll();
                }
                if c.begin_poll() {
                    c.charge("poll", POLL);
                    if c.can_defer_poll() {
                        c.defer_poll();
                    } else {
                        c.sync();
                    }
                }
                c.end_poll(c.has_events());
                let before = got;
                while let Some(event) = c.event() {
                    mine.push((c.now(), event.time));
                    got += 1;
                }
                if got > before || !waits {
                    break;
                }
                c.wait(POLL);
            }
        }
        found.lock().unwrap()[me as usize] = mine;
    });
    (found.into_inner().unwrap(), ended)
}

#[test]
fn stops_that_are_left_out_change_nothing() {
    let (found, reference) = polls(false, false);
    assert!(found.iter().all(|f| f.len() == 60));
    for deferred in [false, true] {
        for precise in [false, true] {
            let (again, ended) = polls(precise, deferred);
            assert_eq!(again, found, "precise {precise}, deferred {deferred}");
            assert_eq!(ended.model.log, reference.model.log);
            assert_eq!(ended.time, reference.time);
            let clocks = |e: &Completed<Wires>| {
                e.ranks
                    .iter()
                    .map(|r| (r.clock, r.waited))
                    .collect::<Vec<_>>()
            };
            assert_eq!(clocks(&ended), clocks(&reference));
            // Fewer turns make the simulation fast.
            assert_eq!(
                ended.turns.0 < reference.turns.0,
                precise || deferred,
                "{:?}",
                ended.turns
            );
        }
    }
}

#[test]
fn an_interrupted_rank_goes_on_without_an_event() {
    let segment = ModelSegment::create(2, 0, b"").unwrap();
    let outside = segment.clone();
    let ended = job_in(segment, false, |c| {
        if c.me() == 0 {
            // Whether the other waits already or not: its next wait ends.
            outside.interrupt(1);
            c.charge("computing", Time::us(7));
            c.sync();
        } else {
            c.wait(Time::ZERO);
            assert_eq!(c.event(), None);
        }
    });
    assert!(ended.ranks[1].clock <= Time::us(7));
}

#[test]
fn a_paced_job_is_never_ahead_of_real_time() {
    let segment = ModelSegment::create(2, 0, b"").unwrap();
    segment.enable_pacing();
    let outside = segment.clone();
    // Virtual time begins between these two.
    let (began, joined) = (Instant::now(), OnceLock::new());
    let span = Time::us(5000);
    let real_before_virtual = |c: &Client| {
        let real = Time::ns(began.elapsed().as_nanos() as u64);
        assert!(real >= c.now(), "{real} of real time at {}", c.now());
    };
    let ended = job_in(segment, false, |c| {
        if c.me() == 0 {
            for _ in 0..3 {
                c.charge("computing", span);
                c.command(1, &[&[1], b"frame"]);
                c.sync();
                real_before_virtual(c);
            }
        } else {
            for n in 1..=3 {
                assert_eq!(event(c).time, span * n + LATENCY);
                joined.get_or_init(Instant::now);
                real_before_virtual(c);
            }
            // What comes from outside comes at the virtual time that it then is.
            let ready = joined.get_or_init(Instant::now);
            let real = Time::ns(ready.elapsed().as_nanos() as u64);
            outside.interrupt(1);
            c.wait(Time::ZERO);
            assert!(c.now() >= real, "{real} of real time at {}", c.now());
        }
    });
    assert!(ended.real >= Duration::from_millis(15));
}
