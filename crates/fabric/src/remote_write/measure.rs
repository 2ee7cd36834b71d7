//! What the lowest layers of the machine can do by themselves, the hardware and PUT. Measured by a
//! ping-pong, as in paper 4.

use super::entry::{NOTIFY, PUT, WAKE, WRITTEN, head};
use super::{Card, Figures};
use crate::kernel::{Client, ModelSegment, Server};
use crate::platform::Platform;
use crate::time::Time;

/// A layer's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Half of a ping-pong of one word.
    pub latency: Time,
    /// Throughput of [`PAGES`] pages, to the last byte, Mbit/s.
    pub throughput: f64,
}

/// Bytes of a message of the ping-pong.
const WORD_BYTES: usize = 8;
/// Pages that are sent to measure the throughput.
const PAGES: usize = 256;
/// Round trips of the ping-pong.
const ROUNDS: u64 = 100;
/// Physical address that is written to. The content does not matter.
const ADDRESS: u64 = 4096;

/// Measures hardware and PUT between two nodes. A PUT costs what the driver charges for it.
///
/// # Errors
/// The system gives no memory.
pub fn measure(platform: &Platform, figures: &Figures) -> Result<[Layer; 2], String> {
    let call = Figures::or_zero(&figures.system_call);
    let software = figures.post.value + call;
    // The link's throughput is a figure of its own. The card's gap between entries counts for PUT.
    let mut hardware = layer(platform, figures, Time::ZERO)?;
    hardware.throughput = platform.network.link.value.bits() as f64 / 1e6;
    Ok([hardware, layer(platform, figures, software)?])
}

fn layer(platform: &Platform, figures: &Figures, post: Time) -> Result<Layer, String> {
    let processes = platform.processes();
    let ranks = processes + 1;
    let segment = ModelSegment::create(ranks, 0, b"").map_err(|e| e.to_string())?;
    let card = Card::new(platform, figures, ranks);
    let server = Server::new(segment.clone(), card, None);
    let page = (figures.page.value.0).min(figures.entry.value.0) as usize;
    let times = std::thread::scope(|s| {
        s.spawn(|| server.run(|_| {}));
        let play = |me: u32, other: u32| {
            let segment = segment.clone();
            s.spawn(move || {
                let mut c = Client::join(segment, me);
                let times = play(&mut c, me == 0, other, post, page);
                c.leave();
                times
            })
        };
        let others: Vec<_> = (1..processes).map(|n| (n, segment.clone())).collect();
        for (n, segment) in others {
            s.spawn(move || Client::join(segment, n).leave());
        }
        let (first, second) = (play(0, processes), play(processes, 0));
        let times = first.join();
        let _ = second.join();
        segment.close();
        times
    });
    let (word, whole) = times.map_err(|_| "the measurement failed")?;
    let bits = (PAGES * page * 8) as f64;
    Ok(Layer {
        latency: word,
        throughput: bits / whole.seconds() / 1e6,
    })
}

/// One side of the measurement. Returns the one-way time of a word, and the time of all pages.
fn play(c: &mut Client, first: bool, other: u32, post: Time, page: usize) -> (Time, Time) {
    let put = |c: &mut Client, len: usize| {
        c.charge("PUT", post);
        c.command(PUT, &[&head(other, NOTIFY | WAKE, ADDRESS), &vec![0; len]]);
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
    for _ in 0..ROUNDS {
        if first {
            put(c, WORD_BYTES);
        }
        arrival(c);
        if !first {
            put(c, WORD_BYTES);
        }
    }
    let word = Time::ps(c.now().as_ps() / (2 * ROUNDS));
    // The second rank stops half a round before the first.
    if !first {
        for _ in 0..PAGES {
            arrival(c);
        }
        put(c, WORD_BYTES);
        return (word, Time::ZERO);
    }
    let began = c.now();
    for _ in 0..PAGES {
        put(c, page);
    }
    arrival(c);
    (word, c.now() - began - word)
}
