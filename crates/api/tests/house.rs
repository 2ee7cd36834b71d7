//! The rules between the floors (docs/architecture.md), held against manifests and sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What each crate may use of the workspace, lowest floor first.
const MAY_USE: [(&str, &[&str]); 15] = [
    ("api", &[]),
    ("auth", &[]),
    ("job", &["auth"]),
    ("pageguard", &["job"]),
    ("datatype", &[]),
    ("schedule", &[]),
    ("op", &["datatype"]),
    ("fabric", &[]),
    ("transport", &["auth", "job", "fabric"]),
    ("device", &["job", "transport"]),
    (
        "mpi",
        &["job", "pageguard", "device", "datatype", "op", "schedule"],
    ),
    (
        "abi",
        &["api", "job", "pageguard", "device", "datatype", "op", "mpi"],
    ),
    ("launch", &["api", "auth", "job", "fabric"]),
    (
        "cli",
        &["api", "job", "launch", "transport", "schedule", "fabric"],
    ),
    ("fuzz", &[]),
];

/// Crates that live in other people's processes.
const LIBRARY: [&str; 11] = [
    "auth",
    "pageguard",
    "job",
    "fabric",
    "datatype",
    "op",
    "schedule",
    "transport",
    "device",
    "mpi",
    "abi",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The workspace crates that `name` uses: its manifest's dependences but for those of its tests.
fn uses(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(crates().join(name).join("Cargo.toml")).unwrap();
    let mut section = String::new();
    let mut found = Vec::new();
    for line in manifest.lines() {
        if let Some(title) = line.strip_prefix('[') {
            section = title.trim_end_matches(']').to_owned();
        } else if section.ends_with("dependencies")
            && section != "dev-dependencies"
            && let Some(rest) = line.strip_prefix("ferry-")
        {
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '-')
                .unwrap_or(rest.len());
            found.push(rest[..end].to_owned());
        }
    }
    found
}

/// All Rust files of a crate's library, with their text up to its unit tests.
fn sources(name: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![crates().join(name).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let end = text
                    .find("#[cfg(test)]")
                    .or(text.find("#[cfg(all(test"))
                    .unwrap_or(text.len());
                files.push((path, text[..end].to_owned()));
            }
        }
    }
    assert!(!files.is_empty(), "no sources of {name}");
    files
}

#[test]
fn a_floor_uses_only_those_below_it() {
    let rules: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    for entry in fs::read_dir(crates()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let allowed = rules
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crate {name} stands on no floor: add it to the rules"));
        for used in uses(&name) {
            assert!(
                allowed.contains(&used.as_str()) || name == "fuzz",
                "ferry-{name} uses ferry-{used}, which the floors do not allow"
            );
        }
    }
}

#[test]
fn the_library_does_not_print_or_exit() {
    for name in LIBRARY {
        for (path, text) in sources(name) {
            for word in [
                "println!",
                "print!(",
                "eprintln!",
                "eprint!(",
                "dbg!(",
                "process::exit",
            ] {
                assert!(!text.contains(word), "{} has {word}", path.display());
            }
        }
    }
}

#[test]
fn transports_know_nothing_of_communicators_tags_or_types() {
    for (path, text) in sources("transport") {
        for word in ["Comm", "Datatype", "tag:", "ContextId"] {
            assert!(!text.contains(word), "{} speaks of {word}", path.display());
        }
    }
    for (path, text) in sources("device") {
        for word in ["Comm>", "Comm,", "Datatype", "MPI_COMM_WORLD\""] {
            assert!(!text.contains(word), "{} speaks of {word}", path.display());
        }
    }
}

#[test]
fn sources_stay_readable() {
    for (name, _) in MAY_USE {
        for (path, _) in sources(name) {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            assert!(
                lines <= 820,
                "{} has {lines} lines: two ideas in one file?",
                path.display()
            );
        }
    }
}
