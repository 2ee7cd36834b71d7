//! A machine in words: each figure, what it means, where it comes from.

use super::{About, Cpu, Machine, Memory, Network, Nic, Nodes};
use crate::{dimmnet2, put};
use std::fmt::Write;

type Meanings = &'static [(&'static str, &'static str)];

/// The machine's file, figure by figure. `text` is the file as it was read.
pub fn explain(machine: &Machine, text: &str) -> String {
    let About { name, about, notes } = &machine.machine;
    let mut out = format!("{name}: {about}\n");
    if !notes.is_empty() {
        let _ = writeln!(out, "\n{}", notes.trim());
    }
    let nic: Meanings = match &machine.nic {
        Nic::Put(f) if f.is_loggp() => put::Loggp::MEANINGS,
        Nic::Put(_) => put::Figures::MEANINGS,
        Nic::Dimmnet2(_) => dimmnet2::figures::Figures::MEANINGS,
    };
    let parts: [(&str, Meanings); 5] = [
        ("nodes", Nodes::MEANINGS),
        ("cpu", Cpu::MEANINGS),
        ("memory", Memory::MEANINGS),
        ("network", Network::MEANINGS),
        ("nic", nic),
    ];
    let Ok(file) = toml::from_str::<toml::Table>(text) else {
        return out;
    };
    for (part, meanings) in parts {
        let Some(table) = file.get(part).and_then(|t| t.as_table()) else {
            continue;
        };
        let _ = writeln!(out, "\n[{part}]");
        for (key, meaning) in meanings {
            let Some(figure) = table.get(*key) else {
                continue;
            };
            let (value, source) = match figure.as_table() {
                Some(t) => (t.get("value"), t.get("source").and_then(|s| s.as_str())),
                None => (Some(figure), None),
            };
            let value = match value {
                Some(toml::Value::String(s)) => s.clone(),
                Some(toml::Value::Integer(n)) => n.to_string(),
                Some(toml::Value::Float(x)) => x.to_string(),
                _ => continue,
            };
            let _ = writeln!(out, "  {key:14} {value:14} {}", meaning.trim());
            let said = source.unwrap_or("no source given");
            if source.is_some() || !matches!(*key, "kind" | "topology" | "compute") {
                let _ = writeln!(out, "  {:29} ({said})", "");
            }
        }
    }
    out
}
