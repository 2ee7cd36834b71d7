//! How fast handshakes and records are here: `cargo run --release -p ferry-auth --example records`.

use std::error::Error;
use std::time::Instant;

use ferry_auth::{Guard, HEADER, Key, Local, Opener, PAYLOAD_MAX, Sealer, Step, TAG};

const BYTES: usize = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let key = Key::random()?;
    let local = |process| Local {
        job: 1,
        process,
        purpose: 0,
        encrypt: true,
    };
    let (zero, one) = (Guard::new(&key, local(0)), Guard::new(&key, local(1)));

    let rounds = 20_000;
    let start = Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(meet(&zero, &one)?);
    }
    let each = start.elapsed().as_secs_f64() / f64::from(rounds);
    println!("a handshake, both sides with records: {:.1} us", each * 1e6);

    println!(
        "{:>9} {:>12} {:>12} {:>9} {:>9}",
        "payload", "seal GB/s", "open GB/s", "seal ns", "open ns"
    );
    let (mut sealer, mut opener) = meet(&zero, &one)?;
    for size in [8, 64, 512, 4 << 10, 16 << 10, PAYLOAD_MAX] {
        let mut records = vec![vec![1u8; HEADER + size + TAG]; (1 << 20) / size.max(512)];
        let rounds = (BYTES / size.max(512)) / records.len();
        let (mut seal, mut open) = (f64::MAX, f64::MAX);
        for _ in 0..rounds {
            let start = Instant::now();
            for record in &mut records {
                sealer.seal(record)?;
            }
            seal = seal.min(start.elapsed().as_secs_f64());
            let start = Instant::now();
            for record in &mut records {
                opener.open(record)?;
            }
            open = open.min(start.elapsed().as_secs_f64());
        }
        let (n, bytes) = (records.len() as f64, (size * records.len()) as f64);
        println!(
            "{size:>9} {:>12.2} {:>12.2} {:>9.0} {:>9.0}",
            bytes / seal / 1e9,
            bytes / open / 1e9,
            seal / n * 1e9,
            open / n * 1e9
        );
    }
    Ok(())
}

/// One handshake of process 0 with process 1; what 0 seals, 1 opens.
fn meet(zero: &Guard, one: &Guard) -> Result<(Sealer, Opener), Box<dyn Error>> {
    let (mut caller, hello) = zero.connect(1)?;
    let mut called = one.accept();
    let Step::Send(answer) = called.feed(one, &mut &hello[..])? else {
        return Err("no answer".into());
    };
    let Step::Done(here, finish) = caller.feed(zero, &mut &answer[..])? else {
        return Err("no finish".into());
    };
    let Step::Done(there, _) = called.feed(one, &mut &finish[..])? else {
        return Err("not done".into());
    };
    Ok((here.records().0, there.records().1))
}
