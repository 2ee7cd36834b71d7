//! `ferry collectives`: which algorithms collectives use, and how they scale.

mod choices;
mod simulate;

pub use choices::report;

use clap::Args;
use ferry_schedule::Kind;
use std::io::{self, Write};

/// What `ferry collectives` is asked.
#[derive(Args)]
pub struct Options {
    /// Simulate every algorithm of every collective on a network, by the schedules of all ranks
    /// and without processes, and say where the chosen one is not the quickest
    #[arg(long)]
    simulate: bool,
    /// Numbers of ranks
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1024,4096,16384,65536",
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ranks: Vec<u32>,
    /// Sizes in bytes: of the buffer (bcast, reduce, allreduce, scan), or of the block of one rank
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "8,1024,65536,1048576",
          value_parser = clap::value_parser!(u64).range(..=1 << 40))]
    bytes: Vec<u64>,
    /// Only these collectives
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kind)]
    only: Vec<Kind>,
    /// fat-tree, fat-tree:N (N nodes of a leaf switch share each link up) or dragonfly
    #[arg(long, value_name = "NETWORK", default_value = "fat-tree", value_parser = simulate::shape)]
    network: simulate::Shape,
    /// Ranks on each node
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    per_node: u32,
    /// Do not simulate what sends more messages than this: a million take two seconds or more
    /// and 120 MB
    #[arg(long, value_name = "N", default_value_t = 10_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    messages: u64,
    /// Simulate the chosen algorithms only
    #[arg(long)]
    chosen: bool,
    /// Print every algorithm's time, as comma-separated values
    #[arg(long)]
    csv: bool,
}

/// The collective of that name.
fn kind(name: &str) -> Result<Kind, String> {
    let known = ferry_simulate::KINDS;
    let names = || known.map(Kind::name).join(", ");
    let found = known.into_iter().find(|k| k.name() == name);
    found.ok_or_else(|| format!("there are {}", names()))
}

/// Prints what is asked.
///
/// Errors: what stands in the way, in words.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), String> {
    let said = if options.simulate {
        simulate::run(options, out)?
    } else {
        let cores = ferry_job::Cores::counted().usable() as u32;
        let mut parts = options.ranks.iter().map(|&ranks| report(ranks, cores));
        parts.try_for_each(|part| writeln!(out, "{part}"))
    };
    match said {
        // Nobody reads on (ferry collectives | head).
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| format!("cannot write: {e}")),
    }
}
