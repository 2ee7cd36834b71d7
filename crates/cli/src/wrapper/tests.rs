//! Command lines of the wrappers, and what they print.

use super::*;

fn wrapper(language: Language) -> Wrapper {
    let compiler = vec![language.default_compiler().into()];
    Wrapper {
        name: "mpicc".into(),
        language,
        compiler,
        include: "/p/include".into(),
        lib: "/p/lib".into(),
        modules: |compiler, lib| {
            Ok(Modules {
                folder: lib.join(&compiler[0]),
                options: vec!["-fx".into()],
            })
        },
    }
}
fn shown(line: &str) -> String {
    shown_in(Language::C, line)
}
fn shown_in(language: Language, line: &str) -> String {
    match wrapper(language).parse(line.split_whitespace().map(OsString::from).collect()) {
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
fn default_compiler_goes_by_its_telling_name() {
    let folder = env::temp_dir().join(format!("ferry-wrapper-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let named = |language| telling_name(language, folder.clone().into());
    let link = |to: &str, name: &str| {
        let _ = std::fs::remove_file(folder.join(name));
        std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    };
    for file in ["gcc-12", "g++-12", "llvm-clang", "ccache", "tcc"] {
        std::fs::write(folder.join(file), "").unwrap();
    }
    assert_eq!(named(Language::C), "cc", "there is none");
    link("gcc-12", "cc");
    assert_eq!(named(Language::C), "cc", "gcc is not there");
    link("gcc-12", "gcc");
    link("g++-12", "g++");
    link("g++", "c++");
    assert_eq!((named(Language::C), named(Language::Cxx)), ("gcc", "g++"));
    link("llvm-clang", "clang");
    link("clang", "clang++");
    link("clang", "cc");
    link("clang++", "c++");
    let clangs = ("clang", "clang++");
    assert_eq!((named(Language::C), named(Language::Cxx)), clangs);
    link("ccache", "cc");
    link("ccache", "gcc");
    assert_eq!(
        named(Language::C),
        "cc",
        "ccache goes by the name that it is called by"
    );
    link("tcc", "cc");
    assert_eq!(named(Language::C), "cc");
    assert_eq!(named(Language::Fortran), "gfortran");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn odd_words_are_quoted() {
    let action = print(&["cc".into(), "-DX=\"a b\"".into(), "it's".into()]);
    assert_eq!(action, Action::Print(r#"cc '-DX="a b"' 'it'\''s'"#.into()));
}

#[test]
fn fortran_has_module_files_of_its_compiler() {
    for name in ["mpifort", "mpif90", "mpif77", "mpifort_abi", "mpifc"] {
        assert_eq!(Language::of(name), Language::Fortran);
    }
    let compiled = "gfortran -I/p/include -I/p/lib/gfortran -fx";
    let linked = "-L/p/lib -L/p/lib/gfortran -Wl,-rpath,/p/lib -Wl,--enable-new-dtags \
                  -lmpifort_modules -lmpifort_abi -lmpi_abi";
    let shown = |line| shown_in(Language::Fortran, line);
    assert_eq!(shown("-c x.f90"), format!("{compiled} -c x.f90"));
    assert_eq!(shown("x.f90"), format!("{compiled} x.f90 {linked}"));
    assert_eq!(shown("--version"), "gfortran --version");
    assert_eq!(shown("-showme:incdirs"), "/p/include /p/lib/gfortran");
    assert_eq!(
        shown("-fc=flang -c x.f90"),
        "flang -I/p/include -I/p/lib/flang -fx -c x.f90"
    );
    assert!(shown("-showme:version").contains("Language: Fortran"));
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
