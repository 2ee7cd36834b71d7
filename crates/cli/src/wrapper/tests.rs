//! Command lines of the wrappers, and what they print.

use super::*;

fn wrapper(language: Language) -> Wrapper {
    let compiler = vec![if language == Language::C { "cc" } else { "c++" }.into()];
    Wrapper {
        name: "mpicc".into(),
        language,
        compiler,
        include: "/p/include".into(),
        lib: "/p/lib".into(),
    }
}
fn shown(line: &str) -> String {
    match wrapper(Language::C).understand(line.split_whitespace().map(OsString::from).collect()) {
        Ok(Action::Print(text)) => text,
        Ok(Action::Run(words)) => words
            .iter()
            .map(|w| w.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" "),
        Err(text) => text,
    }
}
const LINK: &str = "-L/p/lib -Wl,-rpath,/p/lib -Wl,--enable-new-dtags -lmpi_abi";

#[test]
fn compiles_and_links() {
    assert_eq!(
        shown("-O2 x.c -o x"),
        format!("cc -I/p/include -O2 x.c -o x {LINK}")
    );
    assert_eq!(shown("-c x.c"), "cc -I/p/include -c x.c");
    assert_eq!(shown("x.c -E"), "cc -I/p/include x.c -E");
}

#[test]
fn questions_go_to_the_compiler() {
    assert_eq!(shown("--version"), "cc --version");
    assert_eq!(shown("-v"), "cc -v");
    assert_eq!(shown(""), "cc");
}

#[test]
fn shows_itself() {
    assert_eq!(shown("-show"), format!("cc -I/p/include {LINK}"));
    assert_eq!(shown("-show -c x.c"), "cc -I/p/include -c x.c");
    assert_eq!(shown("--showme:compile"), "-I/p/include");
    assert_eq!(shown("-showme:link"), LINK);
    assert_eq!(shown("-showme:incdirs"), "/p/include");
    assert_eq!(shown("-compile_info"), "cc -I/p/include");
    assert_eq!(shown("-link_info"), format!("cc {LINK}"));
    assert!(shown("-showme:version").contains("Language: C"));
    assert!(shown("-showme:moon").contains("say compile, link"));
}

#[test]
fn another_compiler_can_be_named() {
    assert_eq!(shown("-cc=clang -c x.c"), "clang -I/p/include -c x.c");
    assert_eq!(words(OsStr::new("ccache  gcc")), ["ccache", "gcc"]);
}

#[test]
fn odd_words_are_quoted() {
    let action = print(&["cc".into(), "-DX=\"a b\"".into(), "it's".into()]);
    assert_eq!(action, Action::Print(r#"cc '-DX="a b"' 'it'\''s'"#.into()));
}

#[test]
fn fortran_is_refused_but_for_the_question_of_cmake() {
    assert!(
        ["mpifort", "mpif90", "mpif77", "mpifort_abi"]
            .iter()
            .all(|n| fortran::is_fortran(n))
    );
    assert!(!fortran::is_fortran("mpicc"));
    let answer =
        |words: &[&str]| fortran::answer(&words.iter().map(OsString::from).collect::<Vec<_>>());
    assert!(answer(&["x.f90"]).unwrap_err().contains("no Fortran yet"));
    assert!(answer(&["--showme:compile"]).is_err());
    assert_eq!(
        answer(&["-showme:link"]).unwrap(),
        "-lferry_has_no_fortran_yet"
    );
}

#[test]
fn every_option_is_described_once() {
    options::command().debug_assert();
    let mut names: Vec<_> = options::OPTIONS.iter().flat_map(|o| o.names).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
