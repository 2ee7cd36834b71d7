//! What handshakes and records cost here, beside snow's transport messages:
//! `cargo run --release -p ferry-auth --example records`.
//!
//! The rounds alternate between the two, and the ratio is the median of the rounds' ratios. So the
//! figures stand on a machine that others use, too. `examples/records count WHAT` runs one thing a
//! few times, for callgrind: `handshake`, `ours` or `snow`.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use ferry_auth::{
    HEADER_BYTES, HandshakeConfig, Identity, JobKey, Opener, PAYLOAD_MAX_BYTES, Sealer, Step,
    TAG_BYTES,
};
use snow::StatelessTransportState;
use snow::resolvers::{DefaultResolver, FallbackResolver, RingResolver};

type Failure = Box<dyn Error>;

/// Bytes that one round seals and opens with each of the two.
const ROUND_BYTES: usize = 1 << 20;
const ROUNDS: usize = 201;
/// The longest payload of a Noise message: 65535 bytes less the tag.
const SNOW_MAX_BYTES: usize = 65535 - 16;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next().as_deref()) {
        (Some("count"), Some(what)) => count(what),
        _ => measure(),
    }
}

fn configs() -> Result<(HandshakeConfig, HandshakeConfig), Failure> {
    let key = JobKey::random()?;
    let identity = |process| Identity {
        job: 1,
        process,
        purpose: 0,
        encrypt: true,
    };
    let config = |process| HandshakeConfig::new(&key, identity(process));
    Ok((config(0), config(1)))
}

fn count(what: &str) -> Result<(), Failure> {
    let (zero, one) = configs()?;
    match what {
        "handshake" => {
            for _ in 0..10 {
                black_box(connect(&zero, &one)?);
            }
        }
        "ours" => {
            let mut ours = Ours::new(connect(&zero, &one)?, SNOW_MAX_BYTES);
            for _ in 0..100 {
                ours.send_and_receive(1)?;
            }
        }
        "snow" => {
            let mut snow = Snow::new(SNOW_MAX_BYTES)?;
            for _ in 0..100 {
                snow.send_and_receive(1)?;
            }
        }
        _ => return Err("count handshake, ours or snow".into()),
    }
    Ok(())
}

fn measure() -> Result<(), Failure> {
    let (zero, one) = configs()?;
    let mut times = Vec::new();
    for _ in 0..2000 {
        let start = Instant::now();
        black_box(connect(&zero, &one)?);
        times.push(start.elapsed().as_secs_f64());
    }
    println!("a handshake, both sides: {:.1} us", median(times) * 1e6);
    let mut times = Vec::new();
    for _ in 0..2000 {
        let (_, hello) = HandshakeConfig::new(&JobKey::random()?, one.local()).initiate(0)?;
        let start = Instant::now();
        black_box(zero.respond().feed(&zero, &mut &hello[..]).is_err());
        times.push(start.elapsed().as_secs_f64());
    }
    println!(
        "a hello with another key, refused: {:.1} us",
        median(times) * 1e6
    );

    println!("  payload   ours GB/s   snow GB/s   ours/snow   (seal and open, with the copies)");
    for size in [
        64,
        512,
        4 << 10,
        16 << 10,
        SNOW_MAX_BYTES,
        PAYLOAD_MAX_BYTES,
    ] {
        let messages = (ROUND_BYTES / size.max(512)).max(1);
        let mut ours = Ours::new(connect(&zero, &one)?, size);
        let mut snow = Snow::new(size.min(SNOW_MAX_BYTES))?;
        let (mut ours_times, mut snow_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            ours.send_and_receive(messages)?;
            let ours_time = start.elapsed().as_secs_f64();
            let start = Instant::now();
            snow.send_and_receive(messages)?;
            let snow_time = start.elapsed().as_secs_f64();
            ours_times.push(ours_time);
            snow_times.push(snow_time);
            ratios.push(ours_time / snow_time);
        }
        let rate = |times| (size * messages) as f64 / median(times) / 1e9;
        println!(
            "{size:>9} {:>11.2} {:>11.2} {:>11.3}",
            rate(ours_times),
            rate(snow_times),
            median(ratios)
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Records as `ferry-transport` makes them: the payload is copied into the send queue and sealed
/// there; what has arrived is copied together and opened there.
struct Ours {
    sealer: Sealer,
    opener: Opener,
    payload: Vec<u8>,
    queue: Vec<u8>,
    record: Vec<u8>,
}

impl Ours {
    fn new((sealer, opener): (Sealer, Opener), size: usize) -> Ours {
        Ours {
            sealer,
            opener,
            payload: vec![1; size],
            queue: Vec::new(),
            record: Vec::new(),
        }
    }

    fn send_and_receive(&mut self, messages: usize) -> Result<(), Failure> {
        for _ in 0..messages {
            self.queue.clear();
            self.queue.extend_from_slice(&[0; HEADER_BYTES]);
            self.queue.extend_from_slice(&self.payload);
            self.queue.extend_from_slice(&[0; TAG_BYTES]);
            self.sealer.seal(&mut self.queue)?;
            self.record.clear();
            self.record.extend_from_slice(black_box(&self.queue));
            black_box(self.opener.open(&mut self.record)?);
        }
        Ok(())
    }
}

/// The same with snow: it copies the payload into the send queue itself; what has arrived is
/// copied together and opened into another buffer.
struct Snow {
    sender: StatelessTransportState,
    receiver: StatelessTransportState,
    nonce: u64,
    payload: Vec<u8>,
    queue: Vec<u8>,
    record: Vec<u8>,
    opened: Vec<u8>,
}

impl Snow {
    fn new(size: usize) -> Result<Snow, Failure> {
        let builder = || -> Result<_, Failure> {
            let resolver = FallbackResolver::new(Box::new(RingResolver), Box::new(DefaultResolver));
            let params = "Noise_NNpsk0_25519_AESGCM_SHA256".parse()?;
            Ok(snow::Builder::with_resolver(params, Box::new(resolver)).psk(0, &[1; 32])?)
        };
        let mut initiator = builder()?.build_initiator()?;
        let mut responder = builder()?.build_responder()?;
        let mut message = [0; 48];
        initiator.write_message(&[], &mut message)?;
        responder.read_message(&message, &mut [])?;
        responder.write_message(&[], &mut message)?;
        initiator.read_message(&message, &mut [])?;
        Ok(Snow {
            sender: initiator.into_stateless_transport_mode()?,
            receiver: responder.into_stateless_transport_mode()?,
            nonce: 0,
            payload: vec![1; size],
            queue: vec![0; HEADER_BYTES + size + TAG_BYTES],
            record: Vec::new(),
            // With room for the tag snow opens in this buffer; without, in a new one of its own.
            opened: vec![0; size + TAG_BYTES],
        })
    }

    fn send_and_receive(&mut self, messages: usize) -> Result<(), Failure> {
        for _ in 0..messages {
            let room = &mut self.queue[HEADER_BYTES..];
            self.sender.write_message(self.nonce, &self.payload, room)?;
            self.record.clear();
            self.record.extend_from_slice(black_box(&self.queue));
            let message = &self.record[HEADER_BYTES..];
            self.receiver
                .read_message(self.nonce, message, &mut self.opened)?;
            black_box(&self.opened);
            self.nonce += 1;
        }
        Ok(())
    }
}

/// One handshake of process 0 with process 1; what 0 seals, 1 opens.
fn connect(zero: &HandshakeConfig, one: &HandshakeConfig) -> Result<(Sealer, Opener), Failure> {
    let (mut initiator, hello) = zero.initiate(1)?;
    let mut responder = one.respond();
    let Step::Send(response) = responder.feed(one, &mut &hello[..])? else {
        return Err("no response".into());
    };
    let Step::Done(here, finished) = initiator.feed(zero, &mut &response[..])? else {
        return Err("no finished".into());
    };
    let Step::Done(there, _) = responder.feed(one, &mut &finished[..])? else {
        return Err("not done".into());
    };
    Ok((here.records().0, there.records().1))
}
