//! `mpicc`, and under other names `mpicxx` and `mpic++`: the compiler, told where Ferry's header
//! and library are.
//!
//! Finds its installation beside itself: `bin/mpicc` uses `include/mpi.h` and `lib/libmpi_abi.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let own = arguments.next().unwrap_or_else(|| "mpicc".into());
    let own = Path::new(&own)
        .file_name()
        .unwrap_or(OsStr::new("mpicc"))
        .to_string_lossy()
        .into_owned();
    let wrapper = match Wrapper::find(&own) {
        Ok(wrapper) => wrapper,
        Err(text) => return fail(&own, &text),
    };
    match wrapper.understand(arguments.collect()) {
        Ok(Action::Print(text)) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Action::Run(words)) => {
            let error = Command::new(&words[0]).args(&words[1..]).exec();
            let name = words[0].to_string_lossy();
            fail(
                &own,
                &format!(
                    "the compiler {name} cannot be run: {error}; name another in {}",
                    wrapper.language.variables()[0]
                ),
            )
        }
        Err(text) => fail(&own, &text),
    }
}

fn fail(own: &str, text: &str) -> ExitCode {
    eprintln!("{own}: {text}");
    ExitCode::FAILURE
}

/// What the wrapper is asked to do.
#[derive(Debug, PartialEq)]
enum Action {
    Print(String),
    /// The compiler and its arguments.
    Run(Vec<OsString>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Language {
    C,
    Cxx,
}

impl Language {
    /// Environment variables that name the compiler: ours first, then those of other MPIs.
    fn variables(self) -> [&'static str; 4] {
        match self {
            Language::C => ["FERRY_CC", "MPICH_CC", "OMPI_CC", "I_MPI_CC"],
            Language::Cxx => ["FERRY_CXX", "MPICH_CXX", "OMPI_CXX", "I_MPI_CXX"],
        }
    }
}

/// The wrapper under one of its names.
#[derive(Debug)]
struct Wrapper {
    name: String,
    language: Language,
    /// The compiler, maybe with words before it ("ccache gcc").
    compiler: Vec<OsString>,
    include: PathBuf,
    lib: PathBuf,
}

impl Wrapper {
    fn find(own: &str) -> Result<Wrapper, String> {
        let language = if own.contains("++") || own.contains("xx") || own.ends_with("CC") {
            Language::Cxx
        } else {
            Language::C
        };
        let exe = env::current_exe().map_err(|e| format!("its own place cannot be found: {e}"))?;
        let prefix = exe
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/usr"))
            .to_path_buf();
        let chosen = language
            .variables()
            .into_iter()
            .find_map(|v| env::var_os(v).filter(|v| !v.is_empty()));
        let default = if language == Language::C { "cc" } else { "c++" };
        let compiler = words(chosen.as_deref().unwrap_or(OsStr::new(default)));
        let wrapper = Wrapper {
            name: own.into(),
            language,
            compiler,
            include: prefix.join("include"),
            lib: prefix.join("lib"),
        };
        match wrapper.include.join("mpi.h").exists() {
            true => Ok(wrapper),
            false => Err(format!(
                "{} does not exist: this copy is not installed; run: make install PREFIX=DIR, then DIR/bin/{own}",
                wrapper.include.join("mpi.h").display()
            )),
        }
    }

    fn compile_flags(&self) -> Vec<OsString> {
        vec![joined("-I", &self.include)]
    }

    fn link_flags(&self) -> Vec<OsString> {
        vec![
            joined("-L", &self.lib),
            joined("-Wl,-rpath,", &self.lib),
            "-Wl,--enable-new-dtags".into(),
            "-lmpi_abi".into(),
        ]
    }

    fn understand(&self, arguments: Vec<OsString>) -> Result<Action, String> {
        let mut compiler = self.compiler.clone();
        let mut rest = Vec::new();
        let mut show = None;
        for argument in arguments {
            let text = argument.to_string_lossy().into_owned();
            match text
                .strip_prefix("--")
                .map(|t| format!("-{t}"))
                .unwrap_or(text)
                .as_str()
            {
                "-show" | "-showme" | "-echo" => show = Some(Show::All),
                "-showme:compile" => return Ok(print(&self.compile_flags())),
                "-showme:link" => return Ok(print(&self.link_flags())),
                "-showme:incdirs" => return Ok(Action::Print(self.include.display().to_string())),
                "-showme:libdirs" => return Ok(Action::Print(self.lib.display().to_string())),
                "-showme:libs" => return Ok(Action::Print("mpi_abi".into())),
                "-showme:command" => return Ok(print(&compiler)),
                "-showme:version" => {
                    let language = if self.language == Language::C {
                        "C"
                    } else {
                        "C++"
                    };
                    let version = env!("CARGO_PKG_VERSION");
                    return Ok(Action::Print(format!(
                        "{}: Ferry MPI {version} (Language: {language})",
                        self.name
                    )));
                }
                "-compile_info" | "-compile-info" => show = Some(Show::Compile),
                "-link_info" | "-link-info" => show = Some(Show::Link),
                t if t.starts_with("-showme:") => {
                    return Err(format!(
                        "{t}: say compile, link, incdirs, libdirs, libs, command or version after -showme:"
                    ));
                }
                t if t.starts_with("-cc=") || t.starts_with("-cxx=") => {
                    compiler = words(OsStr::new(t.split_once('=').map_or("", |(_, c)| c)));
                }
                _ => rest.push(argument),
            }
        }
        if compiler.is_empty() {
            return Err("no compiler is named".into());
        }
        let mut command = compiler;
        let asks_only = !rest.iter().any(|a| is_input(a)) && show.is_none();
        let links = show == Some(Show::Link)
            || show != Some(Show::Compile)
                && !asks_only
                && !rest.iter().any(|a| stops_before_linking(a));
        // Without a file the user asks the compiler something (--version, -v, -print-…).
        if !asks_only && show != Some(Show::Link) {
            command.extend(self.compile_flags());
        }
        command.extend(rest);
        if links {
            command.extend(self.link_flags());
        }
        Ok(if show.is_some() {
            print(&command)
        } else {
            Action::Run(command)
        })
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Show {
    All,
    Compile,
    Link,
}

/// A file to compile or link, or a library.
fn is_input(argument: &OsStr) -> bool {
    let text = argument.as_bytes();
    !text.starts_with(b"-") || text == b"-" || text.starts_with(b"-l")
}

fn stops_before_linking(argument: &OsStr) -> bool {
    matches!(
        argument.as_bytes(),
        b"-c" | b"-S" | b"-E" | b"-M" | b"-MM" | b"-fsyntax-only"
    )
}

fn joined(flag: &str, path: &Path) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}

/// Split at blanks.
fn words(text: &OsStr) -> Vec<OsString> {
    let pieces = text
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty());
    pieces.map(|w| OsStr::from_bytes(w).into()).collect()
}

/// As one would type it in a shell.
fn print(words: &[OsString]) -> Action {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_=+,./:@%^".contains(&b) || b >= 0x80;
    let quoted = words.iter().map(|word| {
        let text = word.to_string_lossy();
        if !text.is_empty() && text.bytes().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    });
    Action::Print(quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
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
        match wrapper(Language::C).understand(line.split_whitespace().map(OsString::from).collect())
        {
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
        assert!(shown("-showme:moon").contains("say compile"));
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
}
