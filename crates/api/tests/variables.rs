//! The list of environment variables against all that mentions one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ferry_api::variables::{ALL, find};

/// Made up by a test that wants a name that does not exist.
const MADE_UP: [&str; 4] = [
    "FERRY_MOON",
    "FERRY_NO_SUCH_THING",
    "FERRY_TRANPORTS",
    "FERRY_ON_HANK",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Text files of the project, but for this list and its test.
fn files() -> Vec<PathBuf> {
    let mut files = vec![root().join("Makefile"), root().join("README.md")];
    let folders = [
        "crates", "scripts", "tests", "bench", "docs", "examples", ".ci",
    ];
    let mut folders: Vec<PathBuf> = folders.map(|f| root().join(f)).into();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name() != Some("variables.rs".as_ref()) {
                files.push(path);
            }
        }
    }
    files
}

/// The names in a text: FERRY_ and all capitals, digits and underlines after it.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let in_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.match_indices("FERRY_").filter_map(move |(at, _)| {
        let starts = !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let rest = &text[at..];
        let end = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
        starts.then(|| &rest[..end])
    })
}

#[test]
fn each_name_is_in_the_list_and_each_entry_is_used() {
    let mut used: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in files() {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        for name in names(&text) {
            used.entry(name.to_owned()).or_insert_with(|| path.clone());
        }
    }
    assert!(used.len() > 40, "{used:?}");
    for (name, path) in &used {
        // A name that goes on (FERRY_COLL_<NAME>), or the guard of a C header.
        let other = name.ends_with('_') || name.ends_with("_H");
        assert!(
            other || MADE_UP.contains(&name.as_str()) || find(name).is_some(),
            "{} mentions {name}: add it to crates/api/src/variables.rs",
            path.display()
        );
    }
    // Those of collectives are made from the collectives' names.
    let entries: BTreeSet<&str> = ALL.iter().map(|v| v.name).collect();
    for name in entries.iter().filter(|n| !n.starts_with("FERRY_COLL_")) {
        assert!(used.contains_key(*name), "nothing mentions {name}");
    }
}

#[test]
fn the_page_has_the_list() {
    let page = fs::read_to_string(root().join("docs/environment.md")).unwrap();
    assert!(
        page.ends_with(&ferry_api::variables::markdown()),
        "docs/environment.md is not what `cargo run -p ferry-api -- variables` prints"
    );
}
