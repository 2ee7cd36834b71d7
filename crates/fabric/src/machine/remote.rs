//! What puts and gets take beside messages, between the drivers of two nodes, without MPI.

use super::Machine;
use crate::driver::{Body, Driver, Upcall};
use crate::kernel::{Client, ModelSegment, Rank};
use crate::remote_memory::{RemoteMemory, SegmentKey};
use crate::report::Job;
use crate::time::Time;

/// Sizes that are measured, bytes.
const SIZES: [usize; 3] = [8, 64, 1024];
/// Bytes of a segment. All sizes fit.
const SEGMENT_BYTES: usize = 4096;
/// Round trips that are measured. One before them is not.
const ROUNDS: u8 = 4;
/// How often a rank looks whether bytes have come to its memory. A time is exact to this.
const LOOK: Time = Time::ns(50);
/// Message numbers.
const KEY: u8 = 1;
const DATA: u8 = 2;

/// How bytes go from one rank to the other.
#[derive(Clone, Copy)]
enum Way {
    /// A message of the driver, until the receiver's driver has it. With the library's work that
    /// the driver charges for a message.
    Message,
    /// A put, until the bytes are in the peer's memory.
    Put,
    /// A put, and a notification that the peer's driver finds.
    Notified,
    /// A put, until this rank knows that the bytes are there.
    Flushed,
    /// A get, until the bytes are here.
    Get,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Message => "message",
            Way::Put => "put",
            Way::Notified => "put and notification",
            Way::Flushed => "put and flush",
            Way::Get => "get",
        }
    }

    /// The first rank does it all, and the peer has no part in it.
    fn is_alone(self) -> bool {
        matches!(self, Way::Flushed | Way::Get)
    }
}

#[derive(Default)]
struct Messages(Vec<(u8, Vec<u8>)>);

impl Upcall for Messages {
    fn on_message(&mut self, _: Rank, message: u8, bytes: &[u8]) {
        self.0.push((message, bytes.to_vec()));
    }
    fn stream_buffer(&mut self, _: Rank, _: u8, _: &[u8], _: usize) -> Option<&mut [u8]> {
        None
    }
    fn stream_placed(&mut self, _: Rank, _: u8, _: &[u8], _: usize) {}
    fn stream_part(&mut self, _: Rank, _: u8, _: &[u8], _: &[u8]) {}
}

/// One of the two ranks.
struct End {
    c: Client,
    driver: Box<dyn Driver>,
    messages: Messages,
    peer: Rank,
}

/// All that the machine's card offers, as comma-separated values with a line of titles. `None`: its
/// card has no remote memory.
///
/// # Errors
/// The system gives no memory, or the measurement failed.
pub(super) fn table(machine: &Machine) -> Result<Option<String>, String> {
    let Some(offer) = machine.driver(0).remote_memory().map(|r| r.offer()) else {
        return Ok(None);
    };
    let mut ways = vec![Way::Message, Way::Put];
    ways.extend(offer.notify.then_some(Way::Notified));
    ways.extend(offer.flush.then_some(Way::Flushed));
    ways.extend((offer.get_max > 0).then_some(Way::Get));
    let mut table = String::from("way,bytes,us\n");
    for way in ways {
        for bytes in SIZES {
            let time = measure(machine, way, bytes)?;
            table += &format!("{},{bytes},{:.3}\n", way.name(), time.micros());
        }
    }
    Ok(Some(table))
}

/// Time of one way of `bytes` bytes.
fn measure(machine: &Machine, way: Way, bytes: usize) -> Result<Time, String> {
    let processes = machine.platform.processes();
    let ranks = processes + 1;
    let memory = machine.mapped_bytes();
    let segment = ModelSegment::create(ranks, memory, b"").map_err(|e| e.to_string())?;
    let time = std::thread::scope(|s| {
        let model = s.spawn(|| {
            machine.nic.kind().run(Job {
                platform: &machine.platform,
                segment: segment.clone(),
                trace: None,
                check: false,
                on_deadlock: &mut |_| {},
            })
        });
        let end = |me: Rank, peer: Rank| {
            let (segment, driver) = (segment.clone(), machine.driver(me));
            s.spawn(move || {
                let mut end = End {
                    c: Client::join(segment, me),
                    driver,
                    messages: Messages::default(),
                    peer,
                };
                let time = end.play(me == 0, way, bytes);
                end.until(|e| e.driver.settle(&mut e.c).then_some(()));
                end.c.leave();
                time
            })
        };
        let (first, second) = (end(0, processes), end(processes, 0));
        for me in 1..processes {
            let segment = segment.clone();
            s.spawn(move || Client::join(segment, me).leave());
        }
        let time = first.join();
        let _ = second.join();
        segment.close();
        let _ = model.join();
        time
    });
    time.map_err(|_| "the measurement failed".into())
}

impl End {
    /// Tries, looks, tries again, and waits: what the device's loop does.
    fn until<T>(&mut self, mut attempt: impl FnMut(&mut End) -> Option<T>) -> T {
        loop {
            if let Some(done) = attempt(self) {
                return done;
            }
            // What makes no sense does not come from this driver.
            let polled = self.driver.poll(&mut self.c, &mut self.messages);
            debug_assert!(polled.is_ok());
            if let Some(done) = attempt(self) {
                return done;
            }
            self.c.wait(self.driver.poll_period());
        }
    }

    fn send(&mut self, message: u8, bytes: &[u8]) {
        let to = self.peer;
        self.until(|e| {
            let body = Body::Bytes(bytes);
            let sent = e.driver.send(&mut e.c, to, message, &[], body);
            sent.then_some(())
        });
    }

    fn receive(&mut self, message: u8) -> Vec<u8> {
        self.until(|e| {
            let at = e.messages.0.iter().position(|m| m.0 == message)?;
            Some(e.messages.0.remove(at).1)
        })
    }

    /// Calls the driver's remote memory, which [`table`] has found to be there.
    fn remote<T: Default>(
        &mut self,
        call: impl FnOnce(&mut dyn RemoteMemory, &mut Client) -> T,
    ) -> T {
        let remote = self.driver.remote_memory();
        remote.map(|r| call(r, &mut self.c)).unwrap_or_default()
    }

    /// One rank's part. The first one's time counts.
    fn play(&mut self, first: bool, way: Way, bytes: usize) -> Time {
        let address = self.remote(|r, c| r.allocate(c, SEGMENT_BYTES, 64));
        let address = address.unwrap_or_default();
        let key = self.remote(|r, c| r.register(c, address, SEGMENT_BYTES));
        let own = key.map(SegmentKey::encode).unwrap_or_default();
        self.send(KEY, &own);
        let key = self.receive(KEY).try_into().unwrap_or_default();
        let key = SegmentKey::decode(key);
        // Offset of the segment in the mapped memory.
        let at = address - self.c.mapped_memory().0.addr();
        let mut began = Time::ZERO;
        for round in 1..=ROUNDS + 1 {
            if !first && way.is_alone() {
                break;
            }
            if round == 2 {
                began = self.c.now();
            }
            if first {
                self.give(way, key, &vec![round; bytes]);
            }
            self.take(way, at, &vec![round; bytes]);
            if !first {
                self.give(way, key, &vec![round; bytes]);
            }
        }
        let ways = if way.is_alone() { 1 } else { 2 };
        Time::ps((self.c.now() - began).as_ps() / (ways * u64::from(ROUNDS)))
    }

    /// This rank's bytes go to the peer.
    fn give(&mut self, way: Way, key: SegmentKey, bytes: &[u8]) {
        let peer = self.peer;
        let mut into = bytes.to_vec();
        let done = match way {
            Way::Message => {
                self.send(DATA, bytes);
                Some(Ok(()))
            }
            Way::Put => self.remote(|r, c| Some(r.put(c, peer, key, 0, bytes))),
            Way::Notified => self.remote(|r, c| {
                let put = r.put(c, peer, key, 0, bytes);
                Some(put.and_then(|()| r.notify(c, peer, 1)))
            }),
            Way::Flushed => self.remote(|r, c| {
                let put = r.put(c, peer, key, 0, bytes);
                Some(put.and_then(|()| r.flush(c, peer)))
            }),
            Way::Get => self.remote(|r, c| Some(r.get(c, peer, key, 0, &mut into))),
        };
        debug_assert_eq!(done, Some(Ok(())));
    }

    /// The peer's bytes come to this rank.
    fn take(&mut self, way: Way, at: usize, bytes: &[u8]) {
        match way {
            Way::Message => {
                self.receive(DATA);
            }
            Way::Notified => {
                self.until(|e| e.remote(|r, _| r.notification()));
            }
            Way::Put => {
                let mut come = vec![0; bytes.len()];
                while come != bytes {
                    self.c.charge("looking", LOOK);
                    self.c.sync();
                    self.c.read(at, &mut come);
                }
            }
            // The first rank does all.
            Way::Flushed | Way::Get => {}
        }
    }
}
