//! What the lowest layers of a machine can do by themselves: its hardware, and PUT. Measured as
//! papers do it: a ping-pong.

use super::{Card, Figures, NOTIFY, PUT, WAKE, WRITTEN, head};
use crate::machine::{Machine, Nic};
use crate::{Arena, Client, Server, Time};

/// A layer's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Half of a ping-pong of one word.
    pub latency: Time,
    /// Of a megabyte, to the last byte, Mbit/s.
    pub throughput: f64,
}

/// Bytes of the ping-pong, …
const WORD: usize = 8;
/// … and of the throughput: pages.
const PAGES: usize = 256;

/// Hardware and PUT of `machine`, whose card must be one with remote write: between two nodes, by
/// the driver's own costs for a PUT.
///
/// Errors: its card is another, or the system gives no memory.
pub fn measure(machine: &Machine) -> Result<[Layer; 2], String> {
    #[allow(irrefutable_let_patterns)]
    let Nic::Put(figures) = &machine.nic else {
        return Err("its card has no remote write".into());
    };
    let call = Figures::or_zero(&figures.system_call);
    let software = figures.post.value + call;
    // What the link carries is a figure of its own; that entries hold each other up is seen by who
    // posts them.
    let mut hardware = layer(machine, figures, Time::ZERO)?;
    hardware.throughput = machine.network.link.value.bits() as f64 / 1e6;
    Ok([hardware, layer(machine, figures, software)?])
}

fn layer(machine: &Machine, figures: &Figures, post: Time) -> Result<Layer, String> {
    let processes = machine.processes();
    let ranks = processes + 1;
    let arena = Arena::create(ranks, 0, b"").map_err(|e| e.to_string())?;
    let card = Card::new(machine, ranks).ok_or("its card has no remote write")?;
    let server = Server::new(arena.clone(), card, None);
    let page = (figures.page.value.0).min(figures.entry.value.0) as usize;
    let times = std::thread::scope(|s| {
        s.spawn(|| server.run(|_| {}));
        let play = |me: u32, other: u32| {
            let arena = arena.clone();
            s.spawn(move || {
                let mut c = Client::join(arena, me);
                let times = play(&mut c, me == 0, other, post, page);
                c.leave();
                times
            })
        };
        let others: Vec<_> = (1..processes).map(|n| (n, arena.clone())).collect();
        for (n, arena) in others {
            s.spawn(move || Client::join(arena, n).leave());
        }
        let (first, second) = (play(0, processes), play(processes, 0));
        let times = first.join();
        let _ = second.join();
        arena.close();
        times
    });
    let (word, whole) = times.map_err(|_| "the measurement failed")?;
    let bits = (PAGES * page * 8) as f64;
    Ok(Layer {
        latency: word,
        throughput: bits / whole.seconds() / 1e6,
    })
}

/// One side: the time of a word there, and of all pages there.
fn play(c: &mut Client, first: bool, other: u32, post: Time, page: usize) -> (Time, Time) {
    let put = |c: &mut Client, len: usize| {
        c.charge("PUT", post);
        c.command(PUT, &[&head(other, NOTIFY | WAKE, 4096), &vec![0; len]]);
    };
    let arrival = |c: &mut Client| {
        loop {
            match c.event() {
                Some(event) if event.kind == WRITTEN => return,
                Some(_) => {}
                None => c.wait(Time::ZERO),
            }
        }
    };
    let rounds = 100;
    for _ in 0..rounds {
        if first {
            put(c, WORD);
        }
        arrival(c);
        if !first {
            put(c, WORD);
        }
    }
    let word = Time::ps(c.now().as_ps() / (2 * rounds));
    // Both know the time: the second one has it half a round before the first.
    if !first {
        for _ in 0..PAGES {
            arrival(c);
        }
        put(c, WORD);
        return (word, Time::ZERO);
    }
    let began = c.now();
    for _ in 0..PAGES {
        put(c, page);
    }
    arrival(c);
    (word, c.now() - began - word)
}
