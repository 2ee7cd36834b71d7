//! What the parts of a message take on a machine: the card alone, the driver alone. For `make papers`, and to see where time goes.

use super::card::Word;
use super::driver::{Driver, Sent};
use super::figures;
use super::machine::{Cards, Mapped, process_of, shown};
use super::packet::{Process, Request};
use crate::driver::Upcall;
use crate::machine::Machine;
use crate::{Arena, Client, Server, Time};
use std::thread;

/// One-way times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// 32 bytes by BOTF as an IVS packet: from the first store to the receiver's sight of the new NWA.
    pub botf: Time,
    /// VL of 128 bytes: from the first word in the User Registers to the sight of its end in LLCM.
    pub load: Time,
    /// A message of no bytes from driver to driver.
    pub driver: Time,
}

/// Round trips that are measured, after one that is not.
const ROUNDS: u32 = 100;

/// Measures on two ranks of `machine`; `None` if its card is another.
pub fn parts(machine: &Machine) -> Option<Parts> {
    figures::of(machine)?;
    Some(Parts {
        botf: time(machine, botf),
        load: time(machine, load),
        driver: time(machine, eager),
    })
}

type Seat = Driver<Mapped<Client>>;

/// The time that rank 0's `body` says, on a job of two ranks without the library's own work.
fn time(machine: &Machine, body: fn(u32, &mut Seat) -> Time) -> Time {
    let Some(f) = figures::of(machine) else {
        return Time::ZERO;
    };
    let plan = f.plan(machine.processes() as u16);
    let host = f.host(&machine.cpu).bare();
    let places: Vec<Process> = (0..2).map(|r| process_of(machine, r)).collect();
    let memory = shown(machine, 2).unwrap_or(0);
    let (Ok(arena), Some(cards)) = (Arena::create(2, memory, b""), Cards::new(machine, 2)) else {
        return Time::ZERO;
    };
    let server = Server::new(arena.clone(), cards, None);
    thread::scope(|s| {
        let model = s.spawn(|| server.run(|_| ()));
        let rank = |me| {
            let (arena, places) = (arena.clone(), &places);
            s.spawn(move || {
                let port = Mapped::new(Client::join(arena, me), plan.window());
                let mut driver = Driver::new(port, host, plan, me, places);
                let took = body(me, &mut driver);
                driver.flush();
                driver.port_mut().client.leave();
                took
            })
        };
        let (first, second) = (rank(0), rank(1));
        let took = first.join().unwrap_or(Time::ZERO);
        let _ = second.join();
        arena.close();
        let _ = model.join();
        took
    })
}

/// Half of a round trip, from what the clock says at the beginning and at the end.
fn half(driver: &Seat, began: Time) -> Time {
    let rounds = driver.port().client.now() - began;
    Time::ps(rounds.as_ps() / u64::from(2 * ROUNDS))
}

fn botf(me: u32, driver: &mut Seat) -> Time {
    let (peer, mut seen) = (1 - me, 0);
    let mut began = Time::ZERO;
    for round in 0..=ROUNDS {
        if round == 1 {
            began = driver.port().client.now();
        }
        for turn in 0..2 {
            if turn == me {
                driver.throw(peer, &Request::Append { data: vec![0; 32] });
            } else {
                seen += 32;
                driver.sees(peer, seen);
            }
        }
    }
    half(driver, began)
}

fn load(me: u32, driver: &mut Seat) -> Time {
    if me != 0 {
        return Time::ZERO;
    }
    driver.glimpse(128);
    let began = driver.port().client.now();
    for _ in 0..2 * ROUNDS {
        driver.glimpse(128);
    }
    half(driver, began)
}

fn eager(me: u32, driver: &mut Seat) -> Time {
    let mut count = Count(0);
    let mut began = Time::ZERO;
    // As long as the head of an eager message of the device above.
    let head = [0; 16];
    for round in 0..=ROUNDS {
        if round == 1 {
            began = driver.port().client.now();
        }
        for turn in 0..2 {
            if turn == me {
                let sent = driver.send(1 - me, 1, false, &head, &[]);
                debug_assert_eq!(sent, Sent::Taken);
            } else {
                let wanted = count.0 + 1;
                while count.0 < wanted {
                    if driver.poll(&mut count) == Ok(0) {
                        driver.wait();
                    }
                }
            }
        }
    }
    half(driver, began)
}

/// Counts what comes.
struct Count(u32);

impl Upcall for Count {
    fn arrived(&mut self, _from: u32, _message: u8, _bytes: &[u8]) {
        self.0 += 1;
    }
    fn room(&mut self, _from: u32, _message: u8, _head: &[u8], _left: usize) -> Option<&mut [u8]> {
        None
    }
    fn placed(&mut self, _from: u32, _message: u8, _head: &[u8], _bytes: usize) {}
    fn part(&mut self, _from: u32, _message: u8, _head: &[u8], _bytes: &[u8]) {}
}

impl Seat {
    /// BOTF without anything around it.
    fn throw(&mut self, to: u32, request: &Request) {
        while !self.has_slot() {
            self.port_mut().client.wait(Time::ZERO);
        }
        self.fly(to, request);
    }

    /// Reads NWA of a peer's ring until it is this.
    fn sees(&mut self, from: u32, nwa: u32) {
        let word = Word::Nwa(self.sender_of(from));
        self.until(word, nwa);
    }

    /// VL of so many bytes, and its end.
    fn glimpse(&mut self, bytes: u32) {
        self.vector_load(0, 0, bytes);
        self.until(Word::VectorsDone, self.vectors_issued());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    #[test]
    fn the_parts_are_the_same_each_time() {
        let (file, text) = machine::find("dimmnet2").unwrap();
        let machine = machine::read(&file, &text).unwrap();
        let first = parts(&machine).unwrap();
        assert_eq!(parts(&machine), Some(first));
        assert!(first.load < first.botf && first.botf < first.driver);
    }
}
