//! docs/tools.md matches the code: it has a line for each variable and event. Every setting that
//! the library reads is a control variable.

use ferry_mpi::tool::{Category, Class, Control, EVENTS, Performance, Scope, Type};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn type_name(value_type: Type) -> &'static str {
    match value_type {
        Type::Int => "int, by name",
        Type::Unsigned => "unsigned",
        Type::Large => "unsigned long long",
        Type::Double => "double",
        Type::Text => "text",
    }
}

fn lines() -> Vec<String> {
    let controls = Control::all().iter().map(|c| {
        let scope = match c.scope() {
            Scope::Local => "this process",
            Scope::GroupEqual => "a communicator, alike on all members",
            Scope::ReadOnly => "read only",
        };
        let category = c.category.name();
        let value_type = type_name(c.value_type());
        format!(
            "| `{}` | {value_type} | {scope} | {category} | {} |",
            c.name, c.description
        )
    });
    let performances = Performance::all().iter().map(|p| {
        let class = match p.class {
            Class::Level => "level",
            Class::HighWatermark => "high-water mark",
            Class::Counter => "counter",
            Class::Aggregate => "aggregate",
            Class::Timer => "timer",
        };
        let bound = if p.is_of_comm() {
            ", of a communicator"
        } else {
            ""
        };
        format!(
            "| `{}` | {class}{bound} | {} | {} |",
            p.name,
            p.category.name(),
            p.description
        )
    });
    let groups = Category::ALL.iter().map(|g| {
        let children = g.children().into_iter().map(|i| Category::ALL[i].name());
        let children: Vec<_> = children.collect();
        format!(
            "| `{}` | {} | {} |",
            g.name(),
            g.description(),
            children.join(", ")
        )
    });
    let events = EVENTS.iter().map(|e| {
        format!(
            "| `{}` | {} | {} |",
            e.name,
            e.category.name(),
            e.description
        )
    });
    controls
        .chain(performances)
        .chain(groups)
        .chain(events)
        .collect()
}

#[test]
fn the_page_has_a_line_for_everything() {
    let page = std::fs::read_to_string(root().join("docs/tools.md")).unwrap();
    let lines = lines();
    let missing: Vec<_> = lines
        .iter()
        .filter(|l| !page.lines().any(|p| p == l.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/tools.md lacks these lines:\n{}",
        missing.iter().map(|l| format!("{l}\n")).collect::<String>()
    );
    let table = page.lines().filter(|l| l.starts_with("| `"));
    let stale: Vec<_> = table.filter(|l| !lines.iter().any(|w| w == l)).collect();
    assert!(
        stale.is_empty(),
        "docs/tools.md has lines of nothing: {stale:#?}"
    );
}

/// Not settings: what mpiexec tells its processes, and the first part of names made in the code.
const NO_SETTINGS: [&str; 8] = [
    "FERRY_LAUNCH_FD",
    "FERRY_PROGRAM_ENDED",
    "FERRY_RANK",
    "FERRY_SIZE",
    "FERRY_SPAWN_PORT",
    "FERRY_WATCHED_FD",
    "FERRY_COLL_",
    "FERRY_",
];

#[test]
fn every_setting_of_the_library_is_a_control_variable() {
    let mut found = 0;
    for name in [
        "job",
        "transport",
        "device",
        "schedule",
        "op",
        "datatype",
        "mpi",
        "abi",
    ] {
        let mut folders = vec![root().join("crates").join(name).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for part in text.split("\"FERRY_").skip(1) {
                    let end = part.find(|c: char| !c.is_ascii_uppercase() && c != '_');
                    let setting = format!("FERRY_{}", &part[..end.unwrap_or(part.len())]);
                    found += 1;
                    assert!(
                        NO_SETTINGS.contains(&setting.as_str()) || Control::index(&setting).is_ok(),
                        "{setting} in {} is no control variable: give it a line in \
                         crates/mpi/src/tool/control.rs (ENVIRONMENT, if it is read \
                         when the process starts) and in docs/tools.md",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(found > 3, "only {found} settings were found");
}
