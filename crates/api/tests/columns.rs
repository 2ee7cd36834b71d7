//! Lines of code, comments and scripts end at column 100 (CONTRIBUTING.md). tests/docs/check does
//! the same for the prose of the documents.

use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS: usize = 100;
/// Folders with sources, seen from the root.
const FOLDERS: [&str; 6] = [".ci", "bench", "crates", "examples", "scripts", "tests"];
/// Folders that builds make.
const BUILT: [&str; 3] = ["target", "__pycache__", ".cache"];
const ENDINGS: [&str; 5] = ["rs", "c", "h", "py", "sh"];

/// Is it a source: by its ending, or a script without one?
fn is_source(path: &Path, text: &str) -> bool {
    match path.extension() {
        Some(ending) => ENDINGS.iter().any(|e| *e == ending),
        None => text.starts_with("#!"),
    }
}

/// All files of a folder that are text.
fn files(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !BUILT.iter().any(|name| path.ends_with(name)) {
                files(&path, found);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push((path, text));
        }
    }
}

/// Addresses cannot be broken.
fn may_be_long(line: &str) -> bool {
    line.contains("://")
}

#[test]
fn lines_end_at_column_100() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for folder in FOLDERS {
        files(&root.join(folder), &mut found);
    }
    found.retain(|(path, text)| is_source(path, text));
    assert!(found.len() > 400, "only {} sources found", found.len());
    let mut long = Vec::new();
    for (path, text) in &found {
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > COLUMNS && !may_be_long(line) {
                let path = path.strip_prefix(&root).unwrap();
                long.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(
        long.is_empty(),
        "longer than {COLUMNS} columns:\n{}",
        long.join("\n")
    );
}
