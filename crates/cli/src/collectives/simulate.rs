//! `ferry collectives --simulate`: the algorithms on a network of up to a million ranks.

use super::Options;
use ferry_schedule::{Cost, Kind};
use ferry_simulate::{Error, KINDS, Network, Row, Sweep};
use std::io::{self, Write};

/// A choice that takes this many times as long as the quickest is said to be wrong.
const REPORTED_LOSS_FACTOR: f64 = 1.1;
/// A collective whose quickest algorithm takes this many times as long as it must is said not to
/// scale.
const REPORTED_BOUND_FACTOR: f64 = 2.;

/// A network, of as many nodes as are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// The number of nodes that share a link from a leaf switch up.
    FatTree(u32),
    Dragonfly,
}

/// The network of that name.
pub fn shape(text: &str) -> Result<Shape, String> {
    let (name, taper) = text.split_once(':').unwrap_or((text, "1"));
    match (name, taper.parse()) {
        ("fat-tree", Ok(taper @ 1..=32)) => Ok(Shape::FatTree(taper)),
        ("fat-tree", _) => Err("from 1 to 32 nodes share a link up".to_owned()),
        ("dragonfly", _) if name == text => Ok(Shape::Dragonfly),
        _ => Err("there are fat-tree, fat-tree:N and dragonfly".to_owned()),
    }
}

impl Shape {
    fn network(self, nodes: u32) -> Result<Network, Error> {
        match self {
            Shape::FatTree(taper) => Network::fat_tree(nodes, taper),
            Shape::Dragonfly => Network::dragonfly(nodes),
        }
    }
}

/// Simulates, and prints each row when it is known.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<io::Result<()>, String> {
    let sweep = Sweep {
        network: Box::new(|nodes| options.network.network(nodes)),
        per_node: options.per_node,
        cost: Cost::network(),
        messages_max: options.messages,
        only_chosen: options.chosen,
    };
    let kinds: &[Kind] = match &options.only[..] {
        [] => &KINDS,
        only => only,
    };
    let mut rows = Vec::new();
    if let Err(e) = header(options, out) {
        return Ok(Err(e));
    }
    for &kind in kinds {
        let sizes = if kind == Kind::Barrier {
            &[0][..]
        } else {
            &options.bytes
        };
        for &bytes in sizes {
            for &ranks in &options.ranks {
                let row = sweep.row(kind, bytes, ranks).map_err(|e| e.to_string())?;
                let text = if options.csv {
                    values(&row)
                } else {
                    line(&row)
                };
                if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                    return Ok(Err(e));
                }
                rows.push(row);
            }
        }
    }
    Ok(if options.csv {
        Ok(())
    } else {
        out.write_all(summary(&rows).as_bytes())
    })
}

fn header(options: &Options, out: &mut dyn Write) -> io::Result<()> {
    if options.csv {
        return writeln!(
            out,
            "collective,bytes,ranks,algorithm,chosen,microseconds,messages,busiest_link,bound,\
             modelled"
        );
    }
    let most = options.ranks.iter().max().copied().unwrap_or(1);
    let network = options.network.network(most.div_ceil(options.per_node));
    let described = network.map(|n| n.describe()).unwrap_or_default();
    let cost = Cost::network();
    writeln!(
        out,
        "For {most} ranks, {} on a node, {described}.\n\
         A message takes {:.1} us and {:.1} us of a core, a byte {:.2} ns, as the model has it \
         that chooses the algorithm.\n\
         Bound: what no algorithm can do without. A dash: more than {} messages, not simulated.\n\n\
         {:<15}{:>9}{:>8}  {:<17}{:>11}  {:<17}{:>11}{:>7}{:>11}",
        options.per_node,
        cost.latency_s * 1e6,
        cost.overhead_s * 1e6,
        cost.byte_s * 1e9,
        options.messages,
        "collective",
        "bytes",
        "ranks",
        "chosen",
        "us",
        "quickest",
        "us",
        "ratio",
        "bound us",
    )
}

fn microseconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(s) if s < 1e-3 => format!("{:.1}", s * 1e6),
        Some(s) => format!("{:.0}", s * 1e6),
    }
}

fn line(row: &Row) -> String {
    let chosen = row.chosen.map_or("-", |a| a.name());
    let quickest = row.quickest();
    format!(
        "{:<15}{:>9}{:>8}  {:<17}{:>11}  {:<17}{:>11}{:>7}{:>11}\n",
        row.kind.name(),
        row.bytes,
        row.ranks,
        chosen,
        microseconds(row.chosen_seconds()),
        quickest.map_or("-", |q| q.0.name()),
        microseconds(quickest.map(|q| q.1)),
        row.loss().map_or("-".to_owned(), |l| format!("{l:.2}")),
        microseconds(Some(row.bound)),
    )
}

fn values(row: &Row) -> String {
    let mut text = String::new();
    for (algorithm, outcome) in &row.outcomes {
        let (microseconds, messages, busiest) = match outcome {
            Ok(o) => (
                format!("{:.3}", o.seconds * 1e6),
                o.messages.to_string(),
                o.busiest_link.to_string(),
            ),
            Err(_) => Default::default(),
        };
        let is_chosen = Some(*algorithm) == row.chosen;
        let modelled = row.modelled.filter(|_| is_chosen);
        text += &format!(
            "{},{},{},{},{},{microseconds},{messages},{busiest},{:.3},{}\n",
            row.kind.name(),
            row.bytes,
            row.ranks,
            algorithm.name(),
            u8::from(is_chosen),
            row.bound * 1e6,
            modelled.map_or(String::new(), |s| format!("{:.3}", s * 1e6)),
        );
    }
    text
}

fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut list = |title: &str, told: Vec<String>| {
        if told.is_empty() {
            text += &format!("\n{title}: nowhere.\n");
        } else {
            text += &format!("\n{title}:\n  {}\n", told.join("\n  "));
        }
    };
    let place = |r: &Row| format!("{}, {} B, {} ranks", r.kind.name(), r.bytes, r.ranks);
    let wrong = rows
        .iter()
        .filter(|r| r.loss().is_some_and(|l| l > REPORTED_LOSS_FACTOR));
    let wrong = wrong.map(|r| {
        let (chosen, quickest) = (r.chosen.map_or("-", |a| a.name()), r.quickest());
        format!(
            "{}: {chosen} takes {:.2} times as long as {}",
            place(r),
            r.loss().unwrap_or(1.),
            quickest.map_or("-", |q| q.0.name()),
        )
    });
    list(
        &format!("Where another algorithm is more than {REPORTED_LOSS_FACTOR} times as quick"),
        wrong.collect(),
    );
    let slow = |r: &&Row| {
        r.quickest()
            .is_some_and(|q| q.1 > REPORTED_BOUND_FACTOR * r.bound)
    };
    let slow = rows.iter().filter(slow).map(|r| {
        let quickest = r.quickest().map_or(0., |q| q.1);
        format!("{}: {:.1} times the bound", place(r), quickest / r.bound)
    });
    list(
        &format!("Where the quickest takes more than {REPORTED_BOUND_FACTOR} times the bound"),
        slow.collect(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Options, run};
    use super::{Shape, shape};
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn print(arguments: &[&str]) -> String {
        let words = ["collectives"].iter().chain(arguments);
        let mut out = Vec::new();
        run(&Command::parse_from(words).options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_size_and_number_of_ranks_has_a_row() {
        let text = print(&[
            "--simulate",
            "--ranks=16,64",
            "--bytes=8,4096",
            "--only=allreduce,barrier",
            "--network=dragonfly",
            "--per-node=4",
        ]);
        let rows = |name: &str| text.lines().filter(|l| l.starts_with(name)).count();
        // The summary names some of them again, indented.
        assert_eq!((rows("allreduce "), rows("barrier ")), (4, 2), "{text}");
        assert!(text.contains("dragonfly: 2 nodes a router"), "{text}");
    }

    #[test]
    fn values_have_all_algorithms_and_mark_the_chosen_one() {
        let text = print(&[
            "--simulate",
            "--csv",
            "--ranks=16",
            "--per-node=4",
            "--bytes=8",
            "--only=bcast",
        ]);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), ferry_schedule::Kind::Bcast.algorithms().len());
        let chosen: Vec<_> = lines
            .iter()
            .filter(|l| l.split(',').nth(4) == Some("1"))
            .collect();
        assert_eq!(chosen.len(), 1, "{text}");
    }

    #[test]
    fn networks_have_names() {
        assert_eq!(shape("fat-tree"), Ok(Shape::FatTree(1)));
        assert_eq!(shape("fat-tree:4"), Ok(Shape::FatTree(4)));
        assert_eq!(shape("dragonfly"), Ok(Shape::Dragonfly));
        for wrong in ["torus", "fat-tree:0", "fat-tree:x", "dragonfly:2"] {
            assert!(shape(wrong).is_err(), "{wrong}");
        }
    }
}
