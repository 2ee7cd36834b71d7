//! Reading machine files.

use super::{About, Cpu, Machine, Memory, Network, Nic, Nodes, Topology};
use crate::{dimmnet2, put};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The kinds of card that a file can name.
pub(super) const KINDS: [&str; 4] = ["remote-write", "loggp", "fasthsl", "dimmnet2"];

/// What is wrong with a machine file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is no machine file: what, on which line.
    #[error("{file}, line {line}: {what}\n    {text}")]
    Wrong {
        /// The file's name.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what could stand there.
        what: String,
        /// The line.
        text: String,
    },
    /// Its figures do not fit each other.
    #[error("{file}: {what}")]
    Misfit {
        /// The file's name.
        file: String,
        /// Which, and what they should be.
        what: String,
    },
}

/// What every file has; the card is read according to its kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole<N> {
    machine: About,
    nodes: Nodes,
    cpu: Cpu,
    memory: Option<Memory>,
    network: Network,
    nic: N,
}

/// Enough to know the kind.
#[derive(Deserialize)]
struct Kind {
    nic: KindOfNic,
}
#[derive(Deserialize)]
struct KindOfNic {
    kind: toml::Spanned<String>,
}

/// Reads a machine file; `file` is its name, for messages.
///
/// # Errors
/// Which line is wrong and what could stand there, or which figures do not fit each other.
pub fn read(file: &str, text: &str) -> Result<Machine, FileError> {
    let kind = parse::<Kind>(file, text)?.nic.kind;
    let machine = match kind.get_ref().as_str() {
        "remote-write" | "fasthsl" => whole::<put::Figures>(file, text, Nic::Put)?,
        "loggp" => whole::<put::Loggp>(file, text, |f| Nic::Put(f.into()))?,
        "dimmnet2" => {
            whole::<dimmnet2::figures::Figures>(file, text, |f| Nic::Dimmnet2(Box::new(f)))?
        }
        other => {
            let what = format!(
                "there is no nic of kind \"{other}\"; there are {}",
                KINDS.join(", ")
            );
            return Err(wrong(file, text, kind.span().start, what));
        }
    };
    check(&machine).map_err(|what| FileError::Misfit {
        file: file.into(),
        what,
    })?;
    Ok(machine)
}

fn whole<N: DeserializeOwned>(
    file: &str,
    text: &str,
    nic: impl FnOnce(N) -> Nic,
) -> Result<Machine, FileError> {
    let w = parse::<Whole<N>>(file, text)?;
    Ok(Machine {
        machine: w.machine,
        nodes: w.nodes,
        cpu: w.cpu,
        memory: w.memory,
        network: w.network,
        nic: nic(w.nic),
    })
}

fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, FileError> {
    toml::from_str(text).map_err(|e| {
        let at = e.span().map_or(0, |s| s.start);
        wrong(file, text, at, e.message().to_owned())
    })
}

fn wrong(file: &str, text: &str, at: usize, what: String) -> FileError {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count();
    FileError::Wrong {
        file: file.into(),
        line: line + 1,
        what,
        text: text.lines().nth(line).unwrap_or("").trim().into(),
    }
}

/// Do the figures fit each other?
fn check(m: &Machine) -> Result<(), String> {
    let at_least = |name: &str, value: u64, least: u64| {
        if value < least {
            return Err(format!("{name} is {value}; it must be at least {least}"));
        }
        Ok(())
    };
    at_least("nodes.count", m.nodes.count.value.0.into(), 1)?;
    at_least("cpu.clock (in picoseconds)", m.cpu.clock.value.as_ps(), 1)?;
    at_least("network.packet", m.network.packet.value.0, 32)?;
    if let Some(factor) = m.cpu.factor
        && !(factor.is_finite() && factor > 0.0)
    {
        return Err(format!("cpu.factor is {factor}; it must be above 0"));
    }
    if m.network.topology == Topology::Tree
        && m.network.leaf.as_ref().is_none_or(|l| l.value.0 == 0)
    {
        return Err("a tree needs network.leaf, the number of nodes on a leaf switch".into());
    }
    if m.network.uplinks.as_ref().is_some_and(|u| u.value.0 == 0) {
        return Err("network.uplinks is 0; a leaf switch needs one at least".into());
    }
    match &m.nic {
        Nic::Put(f) => f.check(),
        Nic::Dimmnet2(f) => f.check(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Quantity, known};

    fn said(text: &str) -> String {
        read("my.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_machine_that_comes_with_ferry_is_sound() {
        for machine in known() {
            let read = read(machine.name, machine.text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(read.machine.name, machine.name);
            assert_eq!(Machine::decode(&read.encode()).as_ref(), Some(&read));
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let good = known().find(|m| m.name == "cluster40").unwrap().text;
        let with = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            said(&good.replacen(from, to, 1))
        };
        let text = with("\"40 Gbit/s\"", "\"40 Gbit\"");
        assert!(
            text.contains("my.toml, line ")
                && text.contains("40 Gbit")
                && text.contains("a rate such as"),
            "{text}"
        );
        let text = with("topology = \"switch\"", "topology = \"star\"");
        assert!(
            text.contains("star") && text.contains("`direct`, `switch`, `tree`"),
            "{text}"
        );
        let text = with("topology =", "topologie =");
        assert!(
            text.contains("topologie") && text.contains("topology"),
            "{text}"
        );
        let text = with("kind = \"remote-write\"", "kind = \"carrier-pigeon\"");
        assert!(
            text.contains("carrier-pigeon") && text.contains("loggp"),
            "{text}"
        );
        let text = with("[nic]", "[nick]");
        assert!(text.contains("nic"), "{text}");
        let text = with("[cpu]", "[cpu");
        assert!(text.contains("line "), "{text}");
        let text = with("count = 16", "count = 0");
        assert!(text.contains("nodes.count"), "{text}");
        let text = with("compute = \"zero\"", "compute = \"often\"");
        assert!(
            text.contains("often") && text.contains("measured"),
            "{text}"
        );
        assert!(Time::read("x").is_none());
    }

    #[test]
    fn fuzz_machine_files() {
        let seeds: Vec<Vec<u8>> = known().map(|m| m.text.into()).collect();
        ferry_fuzz::fuzz("fuzz_machine_files", &seeds, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            match read("fuzz", &text) {
                Ok(machine) => {
                    assert_eq!(Machine::decode(&machine.encode()), Some(machine));
                    0
                }
                Err(FileError::Wrong { what, .. }) => what.len(),
                Err(FileError::Misfit { .. }) => 1,
            }
        });
    }

    #[test]
    fn fuzz_machines_between_processes() {
        let seeds: Vec<Vec<u8>> = known()
            .map(|m| read(m.name, m.text).unwrap().encode())
            .collect();
        ferry_fuzz::fuzz("fuzz_machines_between_processes", &seeds, |bytes| {
            Machine::decode(bytes).is_some()
        });
    }

    use crate::Time;
}
