//! What libmpi_abi.so shows to the dynamic linker.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// The library that Cargo has just built beside this test.
fn library() -> PathBuf {
    let deps = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_path_buf();
    let beside = deps.join("libmpi_abi.so");
    if beside.exists() {
        beside
    } else {
        deps.parent().unwrap().join("libmpi_abi.so")
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(library())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn it_exports_the_described_functions_and_nothing_else() {
    let text = output("nm", &["-D", "--defined-only"]);
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|l| l.split_whitespace().last())
        .map(str::to_string)
        .collect();
    let described: BTreeSet<String> = ferry_api::functions()
        .iter()
        .flat_map(|f| f.forms().map(|(name, _)| name))
        .flat_map(|name| [format!("P{name}"), name])
        .collect();
    assert_eq!(described.len(), 1328);
    // And the table of these functions for the libraries of other ABIs.
    let table = "ferry_translation".to_string();
    let expected: BTreeSet<String> = described.into_iter().chain([table]).collect();
    assert_eq!(exported, expected);
}

#[test]
fn it_has_the_name_that_the_abi_wants() {
    assert!(output("readelf", &["-d"]).contains("[libmpi_abi.so.1]"));
}
