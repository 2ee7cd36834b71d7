//! The rules between the layers (docs/architecture.md), held against manifests and sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

mod imports;

use imports::{Import, check_circles, check_layers, imports};

/// What each crate may use of the workspace, lowest layer first.
const MAY_USE: [(&str, &[&str]); 21] = [
    ("api", &[]),
    ("auth", &[]),
    ("job", &["auth"]),
    ("pageguard", &["job"]),
    ("datatype", &[]),
    ("schedule", &[]),
    ("simulate", &["schedule"]),
    ("op", &["datatype"]),
    ("io", &["job", "datatype"]),
    ("fabric", &[]),
    ("mx", &["job", "fabric"]),
    ("transport", &["auth", "job", "fabric"]),
    ("device", &["job", "transport"]),
    (
        "mpi",
        &[
            "job",
            "pageguard",
            "device",
            "datatype",
            "op",
            "io",
            "schedule",
        ],
    ),
    (
        "abi",
        &[
            "api",
            "job",
            "pageguard",
            "device",
            "datatype",
            "op",
            "io",
            "mpi",
        ],
    ),
    ("launch", &["api", "auth", "job", "fabric"]),
    (
        "cli",
        &[
            "api",
            "io",
            "job",
            "launch",
            "transport",
            "schedule",
            "simulate",
            "fabric",
        ],
    ),
    ("translate", &["api"]),
    ("abi-mpich", &["api", "translate"]),
    ("abi-openmpi", &["api", "translate"]),
    ("fuzz", &[]),
];

/// Crates that live in other people's processes.
const LIBRARY: [&str; 13] = [
    "auth",
    "pageguard",
    "job",
    "fabric",
    "mx",
    "datatype",
    "op",
    "io",
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
            .unwrap_or_else(|| panic!("crate {name} is on no layer: add it to the rules"));
        for used in uses(&name) {
            assert!(
                allowed.contains(&used.as_str()) || name == "fuzz",
                "ferry-{name} uses ferry-{used}, which the layers do not allow"
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
                lines <= 600 || path.ends_with("api/src/constants.rs"),
                "{} has {lines} lines: two ideas in one file?",
                path.display()
            );
        }
    }
}

#[test]
fn collectives_depend_downwards() {
    check_layers(
        "mpi",
        &[
            (
                "coll",
                &[
                    "overlap",
                    "coll::node",
                    "coll::select",
                    "coll::neighbour",
                    "coll::executor",
                ],
            ),
            ("overlap", &["coll::executor"]),
            (
                "coll::node",
                &["coll::select", "coll::neighbour", "coll::executor"],
            ),
            ("coll::select", &[]),
            ("coll::neighbour", &[]),
            ("coll::executor", &[]),
        ],
    );
}

/// Uses that the layers of ferry-transport do not allow. The list may only become shorter.
const TRANSPORT_EXCEPTIONS: [(&str, &str); 3] = [
    // An address is one of TCP's or one of TIPC's.
    ("connected::medium", "tipc"),
    // The boards are types of shared memory, not of a trait.
    ("node_collectives", "shm"),
    // The wakeup word is in shared memory, and is woken from there, too.
    ("wakeup", "shm::wakeup_word"),
];

#[test]
fn transports_do_not_use_each_other() {
    let layers: [(&str, &[&str]); 40] = [
        (
            "registry",
            &[
                "connected",
                "model",
                "names",
                "self_loop",
                "shm",
                "tcp",
                "tipc",
                "wakeup",
            ],
        ),
        // The transports.
        ("self_loop", &[]),
        ("model", &[]),
        ("tcp", &["connected"]),
        ("tipc", &["connected"]),
        (
            "connected",
            &["connected::conn", "connected::medium", "names"],
        ),
        ("connected::conn", &["connected::medium", "poll_throttle"]),
        ("connected::medium", &[]),
        // Shared memory: what implements `Shm`, then what it is made of.
        (
            "shm",
            &[
                "shm::cells",
                "shm::cma",
                "shm::coll",
                "shm::control",
                "shm::layout",
                "shm::memory",
                "shm::pair",
                "shm::peer",
                "shm::read_min",
                "shm::ring",
                "shm::streaming_copy",
            ],
        ),
        (
            "shm::peer",
            &[
                "shm",
                "shm::cells",
                "shm::cma",
                "shm::announcements",
                "shm::control",
                "shm::fastbox",
                "shm::layout",
                "shm::memory",
                "shm::pair",
                "shm::reassembly",
                "shm::ring",
                "poll_throttle",
            ],
        ),
        (
            "shm::drain",
            &[
                "shm",
                "shm::early",
                "shm::pair",
                "shm::peer",
                "shm::reassembly",
                "poll_throttle",
            ],
        ),
        ("shm::assist", &["shm", "shm::cma"]),
        (
            "shm::node_collectives",
            &["shm", "shm::coll", "shm::control", "shm::layout"],
        ),
        ("shm::core_sharing", &["shm", "shm::wakeup_word"]),
        (
            "shm::layout",
            &[
                "shm::announcements",
                "shm::cma",
                "shm::coll",
                "shm::control",
                "shm::memory",
                "shm::shared_memory",
            ],
        ),
        ("shm::announcements", &["shm::memory"]),
        ("shm::cma", &["shm::control", "shm::memory"]),
        ("shm::coll", &["shm::memory"]),
        (
            "shm::control",
            &["shm::update_slot", "shm::wakeup_word", "wakeup"],
        ),
        ("shm::reassembly", &["shm::early", "shm::ring"]),
        ("shm::early", &["shm::pair"]),
        (
            "shm::pair",
            &[
                "shm::cells",
                "shm::fastbox",
                "shm::memory",
                "shm::ring",
                "shm::streaming_copy",
            ],
        ),
        ("shm::fastbox", &["shm::ring", "shm::memory"]),
        ("shm::cells", &["shm::memory"]),
        ("shm::ring", &["shm::memory"]),
        ("shm::streaming_copy", &["shm::memory"]),
        ("shm::update_slot", &["shm::memory"]),
        ("shm::wakeup_word", &["shm::memory"]),
        ("shm::read_min", &[]),
        ("shm::shared_memory", &[]),
        ("shm::memory", &[]),
        // The contract, and what serves all.
        ("wakeup", &[]),
        ("transport", &[]),
        ("node_collectives", &[]),
        ("inbox", &[]),
        ("error", &[]),
        ("card_memory", &[]),
        ("remote_memory", &[]),
        ("poll_throttle", &[]),
        ("names", &[]),
    ];
    let layers: Vec<(&str, Vec<&str>)> = layers
        .into_iter()
        .map(|(own, below)| {
            let excepted = TRANSPORT_EXCEPTIONS.iter().filter(|e| e.0 == own);
            let used = below.iter().copied().chain(excepted.map(|e| e.1));
            (own, used.collect())
        })
        .collect();
    let layers: Vec<(&str, &[&str])> = layers.iter().map(|l| (l.0, &l.1[..])).collect();
    check_layers("transport", &layers);
    let imports = imports("transport");
    for (own, used) in TRANSPORT_EXCEPTIONS {
        let is = |i: &Import| i.module.join("::") == own && i.path.join("::").starts_with(used);
        assert!(
            imports.iter().any(is),
            "{own} does not use {used} any more: take it off the list"
        );
    }
}

#[test]
fn files_depend_downwards() {
    let layers: &[(&str, &[&str])] = &[
        ("two_phase", &["view", "cost", "store"]),
        ("engine", &["transfer", "cost", "store", "error"]),
        ("transfer", &["view", "cost", "store", "error"]),
        ("view", &[]),
        ("cost", &["store"]),
        ("store", &["error"]),
        ("error", &[]),
    ];
    check_layers("io", layers);
    // A name that the root exports hides the module that it comes from.
    for import in imports("io") {
        let exported = import.path[0].starts_with(char::is_uppercase);
        assert!(!exported, "{}: {}", import.file.display(), import.path[0]);
    }
}

#[test]
fn launch_depends_downwards() {
    check_layers(
        "launch",
        &[
            (
                "run",
                &[
                    "plan", "start", "forward", "hang", "options", "hosts", "protocol", "signals",
                ],
            ),
            (
                "agent",
                &["start", "forward", "hang", "options", "protocol", "signals"],
            ),
            ("plan", &["start", "options", "hosts", "protocol"]),
            ("start", &["options", "protocol", "signals"]),
            ("forward", &["options", "protocol"]),
            ("hang", &["protocol"]),
            ("options", &["hosts"]),
            ("hosts", &[]),
            ("protocol", &[]),
            ("signals", &[]),
        ],
    );
}

#[test]
fn device_depends_downwards() {
    let layers: &[(&str, &[&str])] = &[
        (
            "device",
            &["progress", "protocol", "queue", "matching", "base"],
        ),
        (
            "node",
            &["progress", "protocol", "queue", "matching", "base"],
        ),
        ("progress", &["protocol", "queue", "matching", "base"]),
        ("protocol", &["queue", "matching", "base"]),
        ("queue", &["matching", "base"]),
        ("matching", &["base"]),
        ("base", &[]),
    ];
    check_layers("device", layers);
    let root = crates().join("device/src");
    for entry in fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = layers.iter().any(|l| l.0 == name) || name == "lib.rs";
        assert!(known, "device/src/{name} is in no layer");
    }
    // The engine owns the state of every protocol, so that one borrow gives a protocol all that it
    // needs. It names the types of these states, and the protocols extend the engine with methods.
    // That closes a circle by design. It stays harmless: the engine calls no protocol, so a new
    // protocol is one file and one field (docs/architecture.md). Without the engine's fields at
    // most two files of the crate use each other.
    let engine = "protocol::engine";
    let is_state = |i: &Import| {
        let base = ["base", "queue", "matching"].contains(&i.path[0].as_str());
        let name = i
            .path
            .last()
            .is_some_and(|n| n.starts_with(char::is_uppercase));
        base || name
    };
    for import in imports("device") {
        assert!(
            import.module.join("::") != engine || is_state(&import),
            "{engine} uses {}, which is no protocol's state",
            import.path.join("::")
        );
    }
    check_circles("device", 2, &[engine]);
}

/// Virtual time and networks know no card, cards know no driver, and one module, `machine`, knows
/// all kinds of card. A new kind of card adds its folder here.
#[test]
fn modelled_machines_depend_downwards() {
    const BASE: [&str; 2] = ["platform", "time"];
    let card = ["kernel", "network", BASE[0], BASE[1]];
    let driver = [
        "kernel",
        "driver",
        "remote_memory",
        "mapped_window",
        "address_allocator",
        BASE[0],
        BASE[1],
    ];
    let whole = [
        "kernel",
        "driver",
        "remote_memory",
        "ethernet",
        "card_kind",
        "report",
        BASE[0],
        BASE[1],
    ];
    let with = |base: &[&'static str], more: &[&'static str]| [base, more].concat();
    let layers = [
        ("time", vec![]),
        ("platform", vec!["time"]),
        ("kernel", vec!["time"]),
        ("network", with(&BASE, &["kernel"])),
        ("address_allocator", vec![]),
        ("mapped_window", vec!["kernel", "address_allocator"]),
        ("remote_memory", vec!["kernel"]),
        ("driver", vec!["kernel", "time", "remote_memory"]),
        ("ethernet", vec!["driver", "kernel", "time"]),
        ("report", with(&BASE, &["kernel"])),
        (
            "card_kind",
            with(&BASE, &["kernel", "driver", "ethernet", "report"]),
        ),
        ("remote_write::figures", BASE.to_vec()),
        ("remote_write::entry", vec![]),
        (
            "remote_write::card",
            with(&card, &["remote_write::figures", "remote_write::entry"]),
        ),
        (
            "remote_write::driver",
            with(&driver, &["remote_write::figures", "remote_write::entry"]),
        ),
        (
            "remote_write",
            with(
                &whole,
                &[
                    "remote_write::figures",
                    "remote_write::entry",
                    "remote_write::card",
                    "remote_write::driver",
                ],
            ),
        ),
        ("dimmnet2::figures", BASE.to_vec()),
        ("dimmnet2::card", with(&card, &["dimmnet2::figures"])),
        (
            "dimmnet2::driver",
            with(&driver, &["dimmnet2::figures", "dimmnet2::card"]),
        ),
        (
            "dimmnet2",
            with(
                &whole,
                &["dimmnet2::figures", "dimmnet2::card", "dimmnet2::driver"],
            ),
        ),
        ("rapidio::figures", BASE.to_vec()),
        ("rapidio::command", vec![]),
        (
            "rapidio::card",
            with(&card, &["rapidio::figures", "rapidio::command"]),
        ),
        (
            "rapidio::driver",
            with(
                &driver,
                &["ethernet", "rapidio::figures", "rapidio::command"],
            ),
        ),
        (
            "rapidio",
            with(
                &whole,
                &[
                    "rapidio::figures",
                    "rapidio::command",
                    "rapidio::card",
                    "rapidio::driver",
                ],
            ),
        ),
        (
            "machine",
            with(&whole, &["remote_write", "dimmnet2", "rapidio"]),
        ),
    ];
    let layers: Vec<(&str, &[&str])> = layers.iter().map(|(l, u)| (*l, &u[..])).collect();
    check_layers("fabric", &layers);
    // A name that the root exports hides the module that it comes from.
    for import in imports("fabric") {
        let exported = import.path[0].starts_with(char::is_uppercase);
        assert!(!exported, "{}: {}", import.file.display(), import.path[0]);
    }
}
