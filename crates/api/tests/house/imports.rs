//! Who uses whom within a crate, read from its `use` lines and from the paths in its code, and the
//! rules for that.

use super::{crates, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Folders of a crate depend on each other downwards only. `layers`: each folder (a path of
/// modules) with those that it may use. A file belongs to the longest folder that it lies in; what
/// lies in none may be used by all.
pub fn check_layers(name: &str, layers: &[(&str, &[&str])]) {
    let layer = |path: &[String]| {
        let within = |folder: &&str| {
            let parts: Vec<&str> = folder.split("::").collect();
            path.len() >= parts.len() && parts.iter().zip(path).all(|(a, b)| a == b)
        };
        let all = layers.iter().map(|l| l.0).filter(within);
        all.max_by_key(|folder| folder.len())
    };
    for import in imports(name) {
        let (Some(own), Some(used)) = (layer(&import.module), layer(&import.path)) else {
            continue;
        };
        let allowed = layers.iter().find(|l| l.0 == own).map_or(&[][..], |l| l.1);
        assert!(
            own == used || allowed.contains(&used),
            "{} uses {}: {own} may not use {used}",
            import.file.display(),
            import.path.join("::")
        );
    }
}

/// At most `files_max` files of a crate use each other in a circle, and these lie in one folder.
/// What the files of `exempt` use does not count.
pub fn check_circles(name: &str, files_max: usize, exempt: &[&str]) {
    let mut imports = imports(name);
    imports.retain(|i| !exempt.contains(&i.module.join("::").as_str()));
    let modules: BTreeSet<&[String]> = imports.iter().map(|i| &i.module[..]).collect();
    // Of each file, the files that it uses: the longest module that begins the path.
    let mut used: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for import in &imports {
        let file = (1..=import.path.len())
            .rev()
            .find_map(|n| modules.get(&import.path[..n]));
        if let Some(file) = file {
            used.entry(&import.module[..]).or_default().insert(file);
        }
    }
    let reach = |from: &[String]| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_vec()]);
        while let Some(file) = next.pop() {
            for file in used.get(&file[..]).into_iter().flatten() {
                if seen.insert(file.to_vec()) {
                    next.push(file.to_vec());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&[String], _> = modules.iter().map(|m| (*m, reach(m))).collect();
    for (file, from_here) in &reached {
        let circle: Vec<String> = from_here
            .iter()
            .filter(|other| reached.get(&other[..]).is_some_and(|r| r.contains(*file)))
            .map(|other| other.join("::"))
            .collect();
        let folders: BTreeSet<_> = circle.iter().map(|f| f.rsplit_once("::")).collect();
        let folders: BTreeSet<_> = folders.iter().map(|f| f.map(|f| f.0)).collect();
        assert!(
            circle.len() <= files_max && folders.len() <= 1,
            "{name} has a circle of {} files: {}",
            circle.len(),
            circle.join(", ")
        );
    }
}

/// A `use` of one of the crate's own modules, or a path in code that names one.
pub struct Import {
    pub file: PathBuf,
    /// The module that the file holds: `["coll", "node"]` for `coll/node/mod.rs`.
    pub module: Vec<String>,
    /// The path that it names, from the crate's root on.
    pub path: Vec<String>,
}

/// The paths of a crate that begin with `crate`, `self` or `super`: one for each name in a `use`
/// line, and those in code. Unit tests (`tests.rs`) are left out.
pub fn imports(name: &str) -> Vec<Import> {
    let root = crates().join(name).join("src");
    let mut found = Vec::new();
    for (file, text) in sources(name) {
        if file.ends_with("tests.rs") {
            continue;
        }
        let below = file.strip_prefix(&root).unwrap().with_extension("");
        let mut module: Vec<String> = below
            .iter()
            .map(|s| s.to_string_lossy().into_owned())
            .collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
            module.pop();
        }
        let statements = text.split('\n').scan(String::new(), statement).flatten();
        let trees = statements.filter_map(|line| {
            let (_, tree) = line.split_once("use ")?;
            Some(names(tree.trim_end_matches(';')))
        });
        let in_code = text.lines().flat_map(code_paths).map(str::to_owned);
        for path in trees.flatten().chain(in_code) {
            found.extend(absolute(&module, &path).map(|path| Import {
                file: file.clone(),
                module: module.clone(),
                path,
            }));
        }
    }
    found
}

/// The paths in a line of code that begin with `crate` or `super`. Comments are left out. So are
/// `use` lines, visibilities (`pub(in crate::…)`) and what a macro names in its caller (`$crate`).
fn code_paths(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    if code.trim_start().starts_with("use ") || code.contains(" use ") {
        return Vec::new();
    }
    let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = ["crate::", "super::"].into_iter().flat_map(|start| {
        code.match_indices(start).filter_map(move |(at, _)| {
            let before = &code[..at];
            let inner = before.ends_with(|c: char| in_path(c) || c == '$');
            if inner || before.ends_with("in ") {
                return None;
            }
            let path = &code[at..];
            let end = path.find(|c| !in_path(c)).unwrap_or(path.len());
            Some(path[..end].trim_end_matches(':'))
        })
    });
    paths.collect()
}

/// Joins the lines of a `use` statement. Yields it with its last line.
fn statement(begun: &mut String, line: &str) -> Option<Option<String>> {
    let starts = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
    let goes_on = !begun.is_empty();
    if goes_on || starts.iter().any(|s| line.starts_with(s)) {
        begun.push_str(line.trim());
        if line.ends_with(';') {
            return Some(Some(std::mem::take(begun)));
        }
    }
    Some(None)
}

/// The paths of a `use` tree: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn names(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let inner = rest.trim().trim_end_matches('}');
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[from..]);
    let balanced = |part: &str| {
        let missing = part.matches('{').count() - part.matches('}').count();
        part.to_owned() + &"}".repeat(missing)
    };
    parts
        .into_iter()
        .filter(|part| !part.trim().is_empty())
        .flat_map(|part| names(&balanced(part)))
        .map(|name| format!("{}{name}", head.trim()))
        .collect()
}

/// A path as seen from the crate's root; `None`: it names another crate or a child of `module`.
fn absolute(module: &[String], path: &str) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut parts = path.split("::").peekable();
    match *parts.peek()? {
        "crate" => {
            base.clear();
            parts.next();
        }
        "self" => {
            parts.next();
        }
        "super" => {
            while parts.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        _ => return None,
    }
    base.extend(parts.map(str::to_owned));
    Some(base)
}

#[test]
fn use_trees_are_read() {
    let all = names("super::{a, b::{C, d::{E, F}}, g::H}");
    let wanted = ["a", "b::C", "b::d::E", "b::d::F", "g::H"];
    assert_eq!(all, wanted.map(|w| format!("super::{w}")));
    let module = ["x", "y"].map(str::to_owned);
    assert_eq!(absolute(&module, "super::a").unwrap(), ["x", "a"]);
    assert_eq!(absolute(&module, "crate::a::B").unwrap(), ["a", "B"]);
    assert_eq!(absolute(&module, "std::fmt"), None);
}

#[test]
fn paths_in_code_are_read() {
    let line = "    let a = crate::b::C::new(super::super::d(), &mut crate::e); // crate::f";
    assert_eq!(
        code_paths(line),
        ["crate::b::C::new", "crate::e", "super::super::d"]
    );
    assert!(code_paths("pub(in crate::a) fn f() -> $crate::G;").is_empty());
    assert!(code_paths("    pub(crate) use crate::a::{b, c};").is_empty());
}
