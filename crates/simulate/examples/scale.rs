//! `make scale`: simulates what the cost model chooses for each collective, on a fat tree and a
//! dragonfly, with one and with 64 ranks on a node, and prints tables of Markdown.
//!
//!     cargo run --release -p ferry-simulate --example scale -- [RANKS[,RANKS…] [MESSAGES]]
//!
//! RANKS: 1024, 4096, 16384 and 65536 without it. What sends more than MESSAGES messages, 4 million
//! without it, is not simulated: its time is the model's.

use ferry_schedule::{Cost, Kind};
use ferry_simulate::{Error, KINDS, Network, Row, Sweep};
use std::io::Write;

const RANKS: [u32; 4] = [1024, 4096, 16_384, 65_536];
const MESSAGES_MAX: u64 = 4_000_000;
const SIZES: [(u64, &str); 4] = [
    (8, "8 B"),
    (1 << 10, "1 KiB"),
    (64 << 10, "64 KiB"),
    (1 << 20, "1 MiB"),
];

type Make = fn(u32) -> Result<Network, Error>;

fn fat_tree(nodes: u32) -> Result<Network, Error> {
    Network::fat_tree(nodes, 1)
}

/// Microseconds, and how many times the bound that is. `~`: by the model.
fn cell(row: &Row) -> String {
    let (mark, seconds) = match (row.chosen_seconds(), row.modelled) {
        (Some(simulated), _) => ("", simulated),
        (None, Some(modelled)) => ("~", modelled),
        (None, None) => return "–".to_owned(),
    };
    let digits = if seconds < 1e-4 { 1 } else { 0 };
    let ratio = seconds / row.bound;
    format!("{mark}{:.digits$} ({ratio:.1})", seconds * 1e6)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let ranks = match arguments.next() {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => RANKS.to_vec(),
    };
    let messages_max = match arguments.next() {
        Some(number) => number.parse()?,
        None => MESSAGES_MAX,
    };
    let networks: [(&str, Make); 2] = [("Fat tree", fat_tree), ("Dragonfly", Network::dragonfly)];
    let mut out = std::io::stdout();
    for (name, make) in networks {
        for per_node in [1, 64] {
            let sweep = Sweep {
                network: Box::new(make),
                per_node,
                cost: Cost::network(),
                messages_max,
                only_chosen: true,
            };
            let heads: Vec<String> = ranks.iter().map(|n: &u32| format!(" {n} |")).collect();
            writeln!(out, "\n## {name}, {per_node} on a node\n")?;
            writeln!(out, "| collective | bytes |{}", heads.concat())?;
            writeln!(out, "|---|---|{}", "---|".repeat(ranks.len()))?;
            for kind in KINDS {
                let sizes = match kind {
                    Kind::Barrier => &[(0, "–")][..],
                    _ => &SIZES,
                };
                for &(bytes, size) in sizes {
                    write!(out, "| {} | {size} |", kind.name())?;
                    for &ranks in &ranks {
                        let row = sweep.row(kind, bytes, ranks)?;
                        write!(out, " {} |", cell(&row))?;
                        out.flush()?;
                    }
                    writeln!(out)?;
                }
            }
        }
    }
    Ok(())
}
