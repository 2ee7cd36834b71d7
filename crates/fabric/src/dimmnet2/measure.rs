//! What the parts of a message take on a machine: the card alone, and the driver alone. For `make
//! papers`, and to see where time goes.

use super::card::access::{llcm_end, process_of};
use super::card::command::Addressing;
use super::card::packet::{Process, Request};
use super::card::{Cards, LlcmWord};
use super::driver::{
    CardDriver, ENVELOPE_BYTES, HostCosts, MappedCard, MemoryLayout, Remote, Sent,
};
use super::figures::Figures;
use crate::driver::Upcall;
use crate::kernel::{Client, ModelSegment, Server};
use crate::platform::Platform;
use crate::time::Time;
use std::thread;

/// One-way times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// 32 bytes by BOTF as an IVS packet, from the command until the receiver has read the new NWA.
    ///
    /// The image lies in the Write Window already. Writing it belongs to the host's share: the
    /// paper names memcpy() into the window as a cause of that.
    pub botf: Time,
    /// VL of 128 bytes: from the first word in the User Registers until its end is read in LLCM.
    pub load: Time,
    /// An eager message of no bytes from driver to driver, without the progress engine.
    ///
    /// The sender writes the image and issues BOTF. The receiver reads NWA, issues VL, reads the
    /// window and writes NRA.
    pub driver: Time,
}

/// What it takes to put and get a column of a matrix that lies in a peer's SO-DIMM. This side's end
/// lies in ordinary memory. From the first store or command until all bytes have arrived.
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

/// The column: number of blocks, bytes of a block, bytes between the beginnings of two blocks.
pub const COLUMN: (u32, u32, u32) = (128, 8, 64);

/// Round trips that are measured. One before them is not.
const ROUNDS: u32 = 100;

/// Measures card and driver between two ranks.
pub fn parts(platform: &Platform, f: &Figures) -> Parts {
    Parts {
        botf: time(platform, f, botf),
        load: time(platform, f, load),
        driver: time(platform, f, eager),
    }
}

/// Measures strided data between two ranks.
pub fn strided(platform: &Platform, f: &Figures) -> Strided {
    Strided {
        put_vector: time(platform, f, put_vector),
        put_blocks: time(platform, f, put_blocks),
        get_vector: time(platform, f, get_vector),
        get_whole: time(platform, f, get_whole),
    }
}

/// All measurements, as comma-separated values with a line of titles.
pub fn table(platform: &Platform, f: &Figures) -> String {
    let (parts, strided) = (parts(platform, f), strided(platform, f));
    let (count, bytes, _) = COLUMN;
    let column = |how: &str| format!("{count} strided blocks of {bytes} bytes: {how}");
    let rows = [
        ("BOTF(IVS) 32 bytes".into(), parts.botf),
        ("VL 128 bytes".into(), parts.load),
        ("library-level eager".into(), parts.driver),
        (column("put by RVS with a stride"), strided.put_vector),
        (column("put block by block"), strided.put_blocks),
        (column("got by RVL with a stride"), strided.get_vector),
        (column("got with what lies between"), strided.get_whole),
    ];
    let rows = rows.map(|(part, time)| format!("{part},{:.6}\n", time.micros()));
    format!("part,us\n{}", rows.concat())
}

type RankDriver = CardDriver<MappedCard<Client>>;

/// The time that rank 0's `body` returns, in a job of two ranks without the library's own work.
/// Zero if the system gives no memory.
fn time(platform: &Platform, f: &Figures, body: fn(u32, &mut RankDriver) -> Time) -> Time {
    let layout = MemoryLayout::new(f, platform.processes() as u16);
    let costs = HostCosts::new(f, &platform.cpu).without_library();
    let processes: Vec<Process> = (0..2).map(|r| process_of(platform, r)).collect();
    let Ok(segment) = ModelSegment::create(2, llcm_end(platform, f, 2), b"") else {
        return Time::ZERO;
    };
    let cards = Cards::new(platform, f, 2);
    let server = Server::new(segment.clone(), cards, None);
    thread::scope(|s| {
        let model = s.spawn(|| server.run(|_| ()));
        let rank = |me| {
            let (segment, processes) = (segment.clone(), &processes);
            s.spawn(move || {
                let port = MappedCard::new(Client::join(segment, me), layout.window());
                let mut driver = CardDriver::new(port, costs, layout, me, processes);
                let took = body(me, &mut driver);
                driver.flush();
                driver.port_mut().client.leave();
                took
            })
        };
        let (first, second) = (rank(0), rank(1));
        let took = first.join().unwrap_or(Time::ZERO);
        let _ = second.join();
        segment.close();
        let _ = model.join();
        took
    })
}

/// Half of a round trip, from when the round trips began to now.
fn half(driver: &RankDriver, began: Time) -> Time {
    let rounds = driver.port().client.now() - began;
    Time::ps(rounds.as_ps() / u64::from(2 * ROUNDS))
}

fn botf(me: u32, driver: &mut RankDriver) -> Time {
    let (peer, mut nwa) = (1 - me, 0);
    let mut began = Time::ZERO;
    let send = driver.store_image(peer, &Request::Append { data: vec![0; 32] });
    for round in 0..=ROUNDS {
        if round == 1 {
            began = driver.port().client.now();
        }
        for turn in 0..2 {
            if turn == me {
                driver.await_slot();
                driver.issue(&send);
            } else {
                nwa += 32;
                driver.await_nwa(peer, nwa);
            }
        }
    }
    half(driver, began)
}

fn load(me: u32, driver: &mut RankDriver) -> Time {
    if me != 0 {
        return Time::ZERO;
    }
    driver.load_alone(128);
    let began = driver.port().client.now();
    for _ in 0..2 * ROUNDS {
        driver.load_alone(128);
    }
    half(driver, began)
}

fn eager(me: u32, driver: &mut RankDriver) -> Time {
    let (peer, mut nwa) = (1 - me, 0);
    let mut count = Count(0);
    let mut began = Time::ZERO;
    // The length of the head of the device's eager messages.
    let head = [0; 16];
    for round in 0..=ROUNDS {
        if round == 1 {
            began = driver.port().client.now();
        }
        for turn in 0..2 {
            if turn == me {
                let sent = driver.send(peer, 1, false, &head, &[]);
                debug_assert_eq!(sent, Sent::Taken);
            } else {
                nwa += ENVELOPE_BYTES;
                driver.await_nwa(peer, nwa);
                let received = driver.receive_from(peer, &mut count);
                debug_assert_eq!(received, Ok(1));
            }
        }
    }
    half(driver, began)
}

/// The time that `what` takes on rank 0, after the rings have been set up.
fn spent(
    me: u32,
    driver: &mut RankDriver,
    what: impl FnOnce(&mut RankDriver, Remote, Addressing),
) -> Time {
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
    let memory = driver.free_memory_at();
    let began = driver.port().client.now();
    what(driver, Remote { rank: 1, memory }, column);
    driver.port().client.now() - began
}

fn put_vector(me: u32, driver: &mut RankDriver) -> Time {
    spent(me, driver, |driver, there, column| {
        let row = vec![1; (COLUMN.0 * COLUMN.1) as usize];
        let own = there.memory;
        driver.store(&row, own, Addressing::Contiguous(row.len() as u32));
        driver.put_vector(there, own, column);
        driver.fence(there.rank);
    })
}

fn put_blocks(me: u32, driver: &mut RankDriver) -> Time {
    spent(me, driver, |driver, there, _| {
        let block = vec![1; COLUMN.1 as usize];
        for i in 0..COLUMN.0 {
            let memory = there.memory + i * COLUMN.2;
            driver.put(Remote { memory, ..there }, &block);
        }
        driver.fence(there.rank);
    })
}

fn get_vector(me: u32, driver: &mut RankDriver) -> Time {
    spent(me, driver, |driver, there, column| {
        let mut row = vec![0; (COLUMN.0 * COLUMN.1) as usize];
        let own = there.memory;
        driver.get_vector(there, own, column);
        driver.load(own, Addressing::Contiguous(row.len() as u32), &mut row);
    })
}

fn get_whole(me: u32, driver: &mut RankDriver) -> Time {
    spent(me, driver, |driver, there, _| {
        let mut whole = vec![0; ((COLUMN.0 - 1) * COLUMN.2 + COLUMN.1) as usize];
        driver.get(there, &mut whole);
    })
}

/// Counts messages.
struct Count(u32);

impl Upcall for Count {
    fn on_message(&mut self, _from: u32, _message: u8, _bytes: &[u8]) {
        self.0 += 1;
    }
    fn stream_buffer(
        &mut self,
        _from: u32,
        _message: u8,
        _head: &[u8],
        _left: usize,
    ) -> Option<&mut [u8]> {
        None
    }
    fn stream_placed(&mut self, _from: u32, _message: u8, _head: &[u8], _bytes: usize) {}
    fn stream_part(&mut self, _from: u32, _message: u8, _head: &[u8], _bytes: &[u8]) {}
}

impl RankDriver {
    /// Reads NWA of a peer's ring until it has reached `nwa`.
    fn await_nwa(&mut self, from: u32, nwa: u32) {
        let word = LlcmWord::Nwa(self.sender_of(from));
        self.await_counter(word, nwa);
    }

    /// Does a VL of `bytes` bytes, and waits for its end.
    fn load_alone(&mut self, bytes: u32) {
        self.vector_load(0, 0, bytes);
        self.await_counter(LlcmWord::VectorsDone, self.vectors_issued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{self, Nic};

    fn read(name: &str) -> (Platform, Figures) {
        let (file, text) = machine::find(name).unwrap();
        let machine = machine::read(&file, &text).unwrap();
        match machine.nic {
            Nic::Dimmnet2(figures) => (machine.platform, *figures),
            _ => unreachable!("a card of DIMMnet-2"),
        }
    }

    #[test]
    fn strided_data_take_less_time_by_vector_commands() {
        for name in ["dimmnet2", "dimmnet2-planned"] {
            let (platform, figures) = read(name);
            let took = strided(&platform, &figures);
            assert_eq!(strided(&platform, &figures), took);
            assert!(took.put_vector < took.put_blocks, "{name}: {took:?}");
            assert!(took.get_vector < took.get_whole, "{name}: {took:?}");
        }
    }

    /// The end of a VL is seen by the first read whose word the card gives after it. The processor
    /// then still waits for the reply.
    #[test]
    fn a_read_of_llcm_shows_what_the_card_held_when_it_gave_the_word() {
        let (platform, mut f) = read("dimmnet2");
        let words = 4;
        for reply in [0, 30, 67, 100, 130] {
            f.reply.value = Time::ns(reply);
            let cycles = [
                f.command.value.0,
                f.memory.value.0,
                128 / f.width.value.0 as u32,
            ];
            let cycles: u32 = cycles.into_iter().sum();
            let done = f.cycle.value * u64::from(cycles);
            let mut given = f.read.value - f.reply.value;
            while given < done {
                given += f.read.value;
            }
            let expected = f.register.value * words + given + f.reply.value;
            assert_eq!(time(&platform, &f, load), expected, "reply of {reply} ns");
        }
    }

    /// Writing the image and reading the envelope belong to neither BOTF nor VL, but to what the
    /// paper calls the library's share.
    #[test]
    fn the_librarys_share_holds_its_accesses_to_the_windows() {
        let (platform, f) = read("dimmnet2");
        let parts = parts(&platform, &f);
        let reads = f.read.value * u64::from(ENVELOPE_BYTES / f.read_width.value.0 as u32);
        let least = f.write.value + reads + f.register.value;
        let share = parts.driver - parts.botf - parts.load;
        // Polls come in steps.
        assert!(
            share >= least - f.read.value && share <= least + f.read.value,
            "{share}"
        );
    }

    #[test]
    fn the_parts_are_the_same_each_time() {
        let (platform, figures) = read("dimmnet2");
        let first = parts(&platform, &figures);
        assert_eq!(parts(&platform, &figures), first);
        assert!(first.load < first.botf && first.botf < first.driver);
    }
}
