//! Our mpi.h against compilers and against another library's header for the same ABI.
//!
//! `FERRY_REFERENCE_HEADER` names that header (mpi_abi.h of the MPICH 5 wheel on PyPI); `make test`
//! fetches it. Without it only the compilers judge.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

/// The reference lacks the large-count forms of partitioned initialisation, which the ABI's own
/// header has.
const OURS_ALONE: [&str; 4] = [
    "MPI_Precv_init_c",
    "MPI_Psend_init_c",
    "PMPI_Precv_init_c",
    "PMPI_Psend_init_c",
];

/// Constants of C programs that speak to Fortran, which the ABI's header leaves out (MPI 5.0
/// §19.3.5).
const OUR_CONSTANTS_ALONE: [&str; 4] = [
    "MPI_F08_STATUSES_IGNORE",
    "MPI_F08_STATUS_IGNORE",
    "MPI_F_STATUSES_IGNORE",
    "MPI_F_STATUS_IGNORE",
];

fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Written once: the tests run at the same time.
fn our_header() -> PathBuf {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    let write = || {
        let path = directory("ours").join("mpi.h");
        fs::write(&path, ferry_api::header::mpi_h()).unwrap();
        path
    };
    WRITTEN.get_or_init(write).clone()
}

fn reference_header() -> Option<PathBuf> {
    static COPIED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let copy = || {
        let named = env::var_os("FERRY_REFERENCE_HEADER").map(PathBuf::from);
        let fetched =
            env::var_os("FERRY_MPICH_VENV").map(|venv| Path::new(&venv).join("include/mpi_abi.h"));
        let original = named.or(fetched)?;
        let path = directory("reference").join("mpi.h");
        fs::copy(&original, &path).unwrap_or_else(|e| panic!("{}: {e}", original.display()));
        Some(path)
    };
    COPIED.get_or_init(copy).clone()
}

fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn compiler() -> Command {
    Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

#[test]
fn it_is_clean_c99_c11_and_cpp17() {
    let include = our_header();
    let source = directory("dialects").join("empty.c");
    fs::write(
        &source,
        "#include <mpi.h>\n#include <mpi.h>\nint main(void) { return 0; }\n",
    )
    .unwrap();
    for (language, standard) in [("c", "c99"), ("c", "c11"), ("c++", "c++17")] {
        let mut cc = compiler();
        cc.args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"]);
        cc.args(["-Wall", "-Wextra", "-pedantic-errors", "-Werror"]);
        if language == "c" {
            cc.arg("-Wstrict-prototypes");
        }
        run(cc.arg("-I").arg(include.parent().unwrap()).arg(&source));
    }
}

#[test]
fn constants_and_sizes_are_those_of_the_reference() {
    let Some(reference) = reference_header() else {
        return;
    };
    let ours = our_header();
    let names = constants(&reference);
    let alone = OUR_CONSTANTS_ALONE.map(str::to_string);
    let expected: BTreeSet<String> = names.iter().cloned().chain(alone).collect();
    assert_eq!(constants(&ours), expected, "the names of constants differ");
    assert!(names.len() > 360, "only {} constants found", names.len());
    let mut program = String::from(
        "#include <mpi.h>\n#include <stdio.h>\n#include <stddef.h>\nint main(void) {\n",
    );
    for name in &names {
        program += &format!("    printf(\"{name} %lld\\n\", (long long)(intptr_t){name});\n");
    }
    for type_name in types(&reference) {
        program += &format!("    printf(\"sizeof {type_name} %zu\\n\", sizeof({type_name}));\n");
        program += &format!("    printf(\"alignof {type_name} %zu\\n\", _Alignof({type_name}));\n");
    }
    for field in ["MPI_SOURCE", "MPI_TAG", "MPI_ERROR", "MPI_internal"] {
        program +=
            &format!("    printf(\"offsetof {field} %zu\\n\", offsetof(MPI_Status, {field}));\n");
    }
    program += "    return 0;\n}\n";
    let printed = |header: &Path| {
        let source = header.with_file_name("values.c");
        let binary = header.with_file_name("values");
        fs::write(&source, &program).unwrap();
        run(compiler()
            .args(["-std=c11", "-I"])
            .arg(header.parent().unwrap())
            .arg(&source)
            .arg("-o")
            .arg(&binary));
        String::from_utf8(run(&mut Command::new(&binary)).stdout).unwrap()
    };
    let (a, b) = (printed(&ours), printed(&reference));
    for (our, their) in a.lines().zip(b.lines()) {
        assert_eq!(our, their);
    }
    assert_eq!(a.lines().count(), b.lines().count());
}

#[test]
fn prototypes_are_those_of_the_reference() {
    let Some(reference) = reference_header() else {
        return;
    };
    let ours = declarations(&our_header());
    // What the reference has beyond the ABI bears an X.
    let theirs: BTreeMap<_, _> = declarations(&reference)
        .into_iter()
        .filter(|d| !d.0.contains("MPIX_"))
        .collect();
    let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<BTreeSet<String>>();
    let alone: Vec<String> = names(&ours).difference(&names(&theirs)).cloned().collect();
    assert_eq!(alone, OURS_ALONE);
    let missing: Vec<String> = names(&theirs).difference(&names(&ours)).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
    for (name, their) in &theirs {
        assert_eq!(&ours[name], their, "{name}");
    }
    assert!(
        theirs.len() > 1324,
        "only {} declarations found",
        theirs.len()
    );
}

/// The names of all macros and enumerators that begin with MPI.
fn constants(header: &Path) -> BTreeSet<String> {
    let text = without_comments(&fs::read_to_string(header).unwrap());
    let is_name =
        |w: &str| w.starts_with("MPI") && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut names = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if words.next() == Some("#define")
            && let (Some(name), Some(_)) = (words.next(), words.next())
            && is_name(name)
            && !name.starts_with("MPI_ABI_A")
            && !name.starts_with("MPI_ABI_O")
            && !name.starts_with("MPI_ABI_C")
        {
            names.insert(name.to_string());
        }
    }
    for piece in text.split("enum").skip(1) {
        let Some((_, body)) = piece.split_once('{') else {
            continue;
        };
        let Some((body, _)) = body.split_once('}') else {
            continue;
        };
        for item in body.split(',') {
            let name = item.split('=').next().unwrap_or("").trim();
            if is_name(name) {
                names.insert(name.to_string());
            }
        }
    }
    names
}

/// The names of types whose values programs hold.
fn types(header: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for statement in statements(header) {
        if let Some(rest) = statement.strip_prefix("typedef ")
            && !rest.ends_with(')')
            && !rest.ends_with("_fn")
            && let Some(name) = rest.split([' ', '*', '}']).next_back()
        {
            names.insert(name.to_string());
        }
    }
    names
}

/// Functions and function types: their names, and their declarations without the names of
/// parameters.
fn declarations(header: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for statement in statements(header) {
        // The objects behind constants, which a program need not have.
        if statement.ends_with("__attribute__((weak))") {
            continue;
        }
        let Some((head, parameters)) = statement.strip_suffix(')').and_then(|s| s.split_once('('))
        else {
            continue;
        };
        let (head, name, parameters) = match parameters.split_once(")(") {
            Some((name, parameters)) => (head.trim(), name.trim(), parameters),
            None => match head.trim().rsplit_once([' ', '*']) {
                Some((result, name)) => (result.trim(), name.trim(), parameters),
                None => continue,
            },
        };
        let parameters: Vec<String> = parameters.split(',').map(parameter_type).collect();
        all.insert(
            name.to_string(),
            format!("{head} ({})", parameters.join(", ")),
        );
    }
    all
}

/// The type of a parameter: without its name, with arrays as the pointers that they are.
fn parameter_type(text: &str) -> String {
    let text = text.replace('*', " * ");
    let (text, array) = match text.split_once('[') {
        Some((text, bounds)) => (
            text.to_string(),
            if bounds.contains("[3") { "(*)[3]" } else { "*" },
        ),
        None => (text, ""),
    };
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let last_is_name = words.len() > 1
        && words.last().is_some_and(|w| {
            *w != "*" && *w != "int" && *w != "void" && *w != "char" && !w.starts_with("MPI_")
        });
    if last_is_name {
        words.pop();
    }
    let mut joined = words.join(" ");
    if !array.is_empty() {
        joined = format!("{joined} {array}");
    }
    joined
}

/// The preprocessed header's statements that speak of MPI, with single spaces.
fn statements(header: &Path) -> Vec<String> {
    let output = run(compiler().args(["-E", "-P", "-x", "c"]).arg(header));
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.replace("__attribute__ ((visibility (\"default\")))", " ");
    let mut all = Vec::new();
    let mut depth = 0;
    let mut current = String::new();
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ';' && depth == 0 {
            let joined = current
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .replace(") (", ")(");
            if joined.contains("MPI_") {
                all.push(joined);
            }
            current.clear();
        } else {
            current.push(c);
        }
    }
    all
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out += before;
        rest = after.split_once("*/").map_or("", |(_, rest)| rest);
    }
    out + rest
}
