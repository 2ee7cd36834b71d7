//! What the parts of a message take on a machine: the card alone, the driver alone. For `make
//! papers`, and to see where time goes.

use super::card::Word;
use super::command::Addressing;
use super::driver::{Driver, Remote, Sent};
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
    /// 32 bytes by BOTF as an IVS packet: from the first store to the receiver's sight of the new
    /// NWA.
    pub botf: Time,
    /// VL of 128 bytes: from the first word in the User Registers to the sight of its end in LLCM.
    pub load: Time,
    /// A message of no bytes from driver to driver.
    pub driver: Time,
}

/// What a column of a matrix takes that lies in a peer's SO-DIMM, with the near end in ordinary
/// memory: from the first store or command until all of it is there, or here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strided {
    /// Put by one RVS with a stride, out of this process's SO-DIMM (VS).
    pub put_vector: Time,
    /// Put block by block, each an RVS packet of its own.
    pub put_blocks: Time,
    /// Got by one RVL with a stride, into this process's SO-DIMM, and from there by VL.
    pub get_vector: Time,
    /// Got with all that lies between; the processor picks the blocks.
    pub get_whole: Time,
}

/// The column: so many blocks, of so many bytes, so far apart.
pub const COLUMN: (u32, u32, u32) = (128, 8, 64);

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

/// Measures on two ranks of `machine`; `None` if its card is another.
pub fn strided(machine: &Machine) -> Option<Strided> {
    figures::of(machine)?;
    Some(Strided {
        put_vector: time(machine, put_vector),
        put_blocks: time(machine, put_blocks),
        get_vector: time(machine, get_vector),
        get_whole: time(machine, get_whole),
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

/// The time that rank 0 takes, after the rings have been set up.
fn spent(me: u32, driver: &mut Seat, what: impl FnOnce(&mut Seat, Remote, Addressing)) -> Time {
    if me != 0 {
        return Time::ZERO;
    }
    driver.fence(1);
    let (count, block, stride) = COLUMN;
    let column = Addressing::Stride {
        block,
        stride,
        count,
    };
    let memory = driver.exposed();
    let began = driver.port().client.now();
    what(driver, Remote { rank: 1, memory }, column);
    driver.port().client.now() - began
}

fn put_vector(me: u32, driver: &mut Seat) -> Time {
    spent(me, driver, |driver, there, column| {
        let row = vec![1; (COLUMN.0 * COLUMN.1) as usize];
        let own = there.memory;
        driver.store(&row, own, Addressing::Contiguous(row.len() as u32));
        driver.put_vector(there, own, column);
        driver.fence(there.rank);
    })
}

fn put_blocks(me: u32, driver: &mut Seat) -> Time {
    spent(me, driver, |driver, there, _| {
        let block = vec![1; COLUMN.1 as usize];
        for i in 0..COLUMN.0 {
            let memory = there.memory + i * COLUMN.2;
            driver.put(Remote { memory, ..there }, &block);
        }
        driver.fence(there.rank);
    })
}

fn get_vector(me: u32, driver: &mut Seat) -> Time {
    spent(me, driver, |driver, there, column| {
        let mut row = vec![0; (COLUMN.0 * COLUMN.1) as usize];
        let own = there.memory;
        driver.get_vector(there, own, column);
        driver.load(own, Addressing::Contiguous(row.len() as u32), &mut row);
    })
}

fn get_whole(me: u32, driver: &mut Seat) -> Time {
    spent(me, driver, |driver, there, _| {
        let mut whole = vec![0; ((COLUMN.0 - 1) * COLUMN.2 + COLUMN.1) as usize];
        driver.get(there, &mut whole);
    })
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
    fn strided_data_take_less_time_by_vector_commands() {
        for name in ["dimmnet2", "dimmnet2-planned"] {
            let (file, text) = machine::find(name).unwrap();
            let machine = machine::read(&file, &text).unwrap();
            let took = strided(&machine).unwrap();
            assert_eq!(strided(&machine), Some(took));
            assert!(took.put_vector < took.put_blocks, "{name}: {took:?}");
            assert!(took.get_vector < took.get_whole, "{name}: {took:?}");
        }
    }

    #[test]
    fn the_parts_are_the_same_each_time() {
        let (file, text) = machine::find("dimmnet2").unwrap();
        let machine = machine::read(&file, &text).unwrap();
        let first = parts(&machine).unwrap();
        assert_eq!(parts(&machine), Some(first));
        assert!(first.load < first.botf && first.botf < first.driver);
    }
}
