//! Reading machine files.

use super::registry::{KINDS, read_nic};
use super::{Machine, Nic};
use crate::platform::{About, Cpu, Memory, Network, Nodes, Platform};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What is wrong with a machine file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is not a machine file.
    #[error("{file}, line {line}: {what}\n    {text}")]
    Wrong {
        /// The file's name.
        file: String,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong, and what could stand there instead.
        what: String,
        /// The line's text.
        text: String,
    },
    /// Its figures do not fit each other.
    #[error("{file}: {what}")]
    Misfit {
        /// The file's name.
        file: String,
        /// Which figures, and what they should be.
        what: String,
    },
}

/// The tables of a file. `N` is the card's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables<N> {
    machine: About,
    nodes: Nodes,
    cpu: Cpu,
    memory: Option<Memory>,
    network: Network,
    nic: N,
}

/// Enough of a file to know its kind of card.
#[derive(Deserialize)]
struct KindOnly {
    nic: NicKindOnly,
}
/// The part of the `[nic]` table that every kind has.
#[derive(Deserialize)]
struct NicKindOnly {
    kind: toml::Spanned<String>,
}

/// Reads a machine file. `file` is its name, for messages.
///
/// # Errors
/// Which line is wrong and what could stand there, or which figures do not fit each other.
pub fn read(file: &str, text: &str) -> Result<Machine, FileError> {
    let kind = parse::<KindOnly>(file, text)?.nic.kind;
    let Some(machine) = read_nic(kind.get_ref(), file, text) else {
        let what = format!(
            "there is no nic of kind \"{}\"; there are {}",
            kind.get_ref(),
            KINDS.join(", ")
        );
        return Err(wrong(file, text, kind.span().start, what));
    };
    let machine = machine?;
    machine
        .platform
        .check()
        .and_then(|()| machine.nic.kind().check(&machine.platform))
        .map_err(|what| FileError::Misfit {
            file: file.into(),
            what,
        })?;
    Ok(machine)
}

/// Reads the tables of a file whose card's figures are `N`. `nic` makes the card of them.
pub(super) fn read_tables<N: DeserializeOwned>(
    file: &str,
    text: &str,
    nic: impl FnOnce(N) -> Nic,
) -> Result<Machine, FileError> {
    let tables = parse::<Tables<N>>(file, text)?;
    Ok(Machine {
        platform: Platform {
            about: tables.machine,
            nodes: tables.nodes,
            cpu: tables.cpu,
            memory: tables.memory,
            network: tables.network,
        },
        nic: nic(tables.nic),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::built_in;
    use crate::platform::Quantity;
    use crate::time::Time;

    fn error_of(text: &str) -> String {
        read("my.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn every_built_in_machine_is_valid() {
        for machine in built_in() {
            let read = read(machine.name, machine.text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(read.platform.about.name, machine.name);
            assert_eq!(Machine::decode(&read.encode()).as_ref(), Some(&read));
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let good = built_in().find(|m| m.name == "cluster40").unwrap().text;
        let with = |from: &str, to: &str| {
            assert!(good.contains(from), "{from}");
            error_of(&good.replacen(from, to, 1))
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
        let seeds: Vec<Vec<u8>> = built_in().map(|m| m.text.into()).collect();
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
        let seeds: Vec<Vec<u8>> = built_in()
            .map(|m| read(m.name, m.text).unwrap().encode())
            .collect();
        ferry_fuzz::fuzz("fuzz_machines_between_processes", &seeds, |bytes| {
            Machine::decode(bytes).is_some()
        });
    }
}
