//! A machine as text for people: each figure, what it means, and where it comes from.

use super::Machine;
use crate::platform::{About, Cpu, Memory, Network, Nodes};
use std::fmt::Write;

type Meanings = &'static [(&'static str, &'static str)];

/// The machine's file, figure by figure. `text` is the file's text.
pub fn explain(machine: &Machine, text: &str) -> String {
    let About { name, about, notes } = &machine.platform.about;
    let mut out = format!("{name}: {about}\n");
    if !notes.is_empty() {
        let _ = writeln!(out, "\n{}", notes.trim());
    }
    let parts: [(&str, Meanings); 5] = [
        ("nodes", Nodes::MEANINGS),
        ("cpu", Cpu::MEANINGS),
        ("memory", Memory::MEANINGS),
        ("network", Network::MEANINGS),
        ("nic", machine.nic.kind().meanings()),
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
