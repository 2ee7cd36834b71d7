//! What environment a program gets.

use super::*;
use crate::options::{AppContext, InheritedEnv};

fn app(set: &[(&str, &str)], pass: InheritedEnv) -> AppContext {
    AppContext {
        soft: None,
        path: "".into(),
        count: Some(1),
        program: "true".into(),
        arguments: vec![],
        wdir: None,
        inherited_env: pass,
        set_env: set.iter().map(|(a, b)| (a.into(), b.into())).collect(),
        hosts: None,
    }
}
fn value(app: &AppContext, library: Option<&str>, name: &str) -> Option<String> {
    let prepared = PreparedProgram::new(&program_of(app, false), library.map(OsStr::new)).unwrap();
    let start = format!("{name}=");
    let mut found = prepared
        .environment
        .iter()
        .filter_map(|v| v.to_str().unwrap_or_default().strip_prefix(&start));
    let first = found.next().map(String::from);
    assert!(found.next().is_none(), "{name} is there twice");
    first
}

#[test]
fn what_is_set_last_holds() {
    let app = app(
        &[("A", "1"), ("A", "2"), ("PATH", "/x:/bin")],
        InheritedEnv::All,
    );
    assert_eq!(value(&app, None, "A").as_deref(), Some("2"));
    assert_eq!(value(&app, None, "PATH").as_deref(), Some("/x:/bin"));
    assert_eq!(value(&app, None, LAUNCH_FD).as_deref(), Some("19"));
}

#[test]
fn an_environment_can_be_empty() {
    let program = program_of(&app(&[], InheritedEnv::Only(vec![])), false);
    assert_eq!(program.environment.len(), 0);
}

#[test]
fn our_library_comes_first_unless_the_user_says_otherwise() {
    let ours = Some("/ours");
    let none = app(&[], InheritedEnv::Only(vec![]));
    assert_eq!(value(&none, ours, LIBRARY_PATH).as_deref(), Some("/ours"));
    let theirs = app(&[(LIBRARY_PATH, "/theirs")], InheritedEnv::All);
    assert_eq!(
        value(&theirs, ours, LIBRARY_PATH).as_deref(),
        Some("/theirs")
    );
}

#[test]
fn another_host_has_its_own_name() {
    let named = app(
        &[("HOSTNAME", "here"), ("A", "1")],
        InheritedEnv::Only(vec![]),
    );
    assert_eq!(program_of(&named, true).environment.len(), 1);
    assert_eq!(program_of(&named, false).environment.len(), 2);
}
