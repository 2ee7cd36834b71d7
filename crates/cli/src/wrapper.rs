//! `mpicc`, `mpicxx`, `mpic++`, `mpifort`, `mpif90`, `mpif77`: the compiler, told where Ferry's
//! headers, module files and libraries are.
//!
//! A wrapper finds its installation beside itself: `bin/mpicc` uses `include/mpi.h` and
//! `lib/libmpi_abi.so`.

pub mod options;
mod removed;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitCode};

use crate::fortran::{self, Modules};
use options::Query;

/// A library that does not exist. FindMPI begins with a question of the flags. Where a wrapper
/// fails there, it goes on to pkg-config's `mpi-fort`, which may be the system's. An answer that
/// needs a missing library makes it say that Fortran is missing, with that name as the reason.
const MISSING_LIBRARY: &str = "ferry_was_installed_without_fortran";

/// Does what the command line asks for. The first argument is the name under which the wrapper is
/// called.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
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
    match wrapper.parse(arguments.collect()) {
        Ok(Action::Print(text)) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Action::Run(words)) => {
            let error = run(&own, &words);
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

/// Becomes the compiler. Where the files have names that MPI has removed, it waits for the compiler
/// instead, to say what to write if it fails. Returns if the compiler cannot be run.
fn run(own: &str, words: &[OsString]) -> io::Error {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let hints = removed::hints(words);
    if hints.is_empty() {
        return command.exec();
    }
    match command.status() {
        Ok(status) if status.success() => process::exit(0),
        Ok(status) => {
            for hint in hints {
                eprintln!("{own}: {hint}");
            }
            process::exit(status.code().unwrap_or(1))
        }
        Err(error) => error,
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
    Fortran,
}

impl Language {
    /// Environment variables that name the compiler: ours first, then those of other MPIs.
    fn variables(self) -> [&'static str; 4] {
        match self {
            Language::C => ["FERRY_CC", "MPICH_CC", "OMPI_CC", "I_MPI_CC"],
            Language::Cxx => ["FERRY_CXX", "MPICH_CXX", "OMPI_CXX", "I_MPI_CXX"],
            Language::Fortran => ["FERRY_FC", "MPICH_FC", "OMPI_FC", "I_MPI_FC"],
        }
    }

    /// The compiler where no variable names one.
    fn default_compiler(self) -> &'static str {
        match self {
            Language::C => "cc",
            Language::Cxx => "c++",
            Language::Fortran => "gfortran",
        }
    }

    /// Names of compilers that the default one may be a link to.
    fn telling_names(self) -> &'static [&'static str] {
        match self {
            Language::C => &["gcc", "clang"],
            Language::Cxx => &["g++", "clang++"],
            Language::Fortran => &[],
        }
    }

    /// The language of the wrapper of this name.
    fn of(name: &str) -> Language {
        if name.starts_with("mpif") {
            Language::Fortran
        } else if name.contains("++") || name.contains("xx") || name.ends_with("CC") {
            Language::Cxx
        } else {
            Language::C
        }
    }
}

/// The default compiler, by the name that says which one it is. Builds tell compilers by the first
/// word of `mpicxx -show`, or by the name before a complaint of the compiler, as Charm++'s does;
/// `c++` tells them nothing. A link to a launcher such as ccache keeps its name, by which it works.
fn telling_name(language: Language, path: OsString) -> &'static str {
    let default = language.default_compiler();
    let file = |name: &str| {
        let mut folders = env::split_paths(&path);
        folders.find_map(|f| f.join(name).canonicalize().ok())
    };
    let Some(own) = file(default) else {
        return default;
    };
    let base = own.file_name().unwrap_or_default().to_string_lossy();
    if !["gcc", "g++", "clang"].iter().any(|c| base.contains(c)) {
        return default;
    }
    let mut names = language.telling_names().iter();
    names
        .find(|n| file(n).as_ref() == Some(&own))
        .unwrap_or(&default)
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
    /// Finds the module files of a Fortran compiler, given the folder of libraries.
    modules: fn(&[OsString], &Path) -> Result<Modules, String>,
}

impl Wrapper {
    fn find(own: &str) -> Result<Wrapper, String> {
        let language = Language::of(own);
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
        let compiler = match chosen {
            Some(chosen) => words(&chosen),
            None => vec![telling_name(language, env::var_os("PATH").unwrap_or_default()).into()],
        };
        let wrapper = Wrapper {
            name: own.into(),
            language,
            compiler,
            include: prefix.join("include"),
            lib: prefix.join("lib"),
            modules: fortran::modules,
        };
        match wrapper.include.join("mpi.h").exists() {
            true => Ok(wrapper),
            false => Err(format!(
                "{} does not exist: this copy is not installed; run: make install PREFIX=DIR, \
                 then DIR/bin/{own}",
                wrapper.include.join("mpi.h").display()
            )),
        }
    }

    /// The folders with headers, and with module files for this Fortran compiler.
    fn include_folders(&self, compiler: &[OsString]) -> Result<Vec<PathBuf>, String> {
        let mut folders = vec![self.include.clone()];
        if self.language == Language::Fortran {
            folders.push(self.fortran(compiler)?.folder);
        }
        Ok(folders)
    }

    /// A wrapper for Fortran in an installation without it.
    fn is_without_fortran(&self) -> bool {
        self.language == Language::Fortran && !self.lib.join(fortran::LIBRARY).exists()
    }

    fn fortran(&self, compiler: &[OsString]) -> Result<Modules, String> {
        (self.modules)(compiler, &self.lib)
    }

    fn compile_flags(&self, compiler: &[OsString]) -> Result<Vec<OsString>, String> {
        let folders = self.include_folders(compiler)?;
        let mut flags: Vec<_> = folders.iter().map(|f| joined("-I", f)).collect();
        if self.language == Language::Fortran {
            flags.extend(self.fortran(compiler)?.options.iter().map(OsString::from));
        }
        Ok(flags)
    }

    /// The libraries, in the linker's order.
    fn libraries(&self) -> &'static [&'static str] {
        match self.language {
            Language::Fortran => &["mpifort_modules", "mpifort_abi", "mpi_abi"],
            _ => &["mpi_abi"],
        }
    }

    fn library_folders(&self, compiler: &[OsString]) -> Result<Vec<PathBuf>, String> {
        let mut folders = vec![self.lib.clone()];
        if self.language == Language::Fortran {
            folders.push(self.fortran(compiler)?.folder);
        }
        Ok(folders)
    }

    fn link_flags(&self, compiler: &[OsString]) -> Result<Vec<OsString>, String> {
        let folders = self.library_folders(compiler)?;
        let mut flags: Vec<_> = folders.iter().map(|f| joined("-L", f)).collect();
        flags.push(joined("-Wl,-rpath,", &self.lib));
        flags.push("-Wl,--enable-new-dtags".into());
        flags.extend(
            self.libraries()
                .iter()
                .map(|l| OsString::from(format!("-l{l}"))),
        );
        Ok(flags)
    }

    fn version(&self) -> String {
        let language = match self.language {
            Language::C => "C",
            Language::Cxx => "C++",
            Language::Fortran => "Fortran",
        };
        let version = env!("CARGO_PKG_VERSION");
        format!("{}: Ferry MPI {version} (Language: {language})", self.name)
    }

    /// What the command line asks for. Options that are none of the wrapper's go to the compiler.
    fn parse(&self, arguments: Vec<OsString>) -> Result<Action, String> {
        let mut compiler = self.compiler.clone();
        let mut rest = Vec::new();
        let mut show = None;
        for argument in arguments {
            let text = argument.to_string_lossy();
            let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'));
            let Some((query, value)) = name.and_then(options::find) else {
                if let Some(word) = name.and_then(|n| n.strip_prefix("showme:")) {
                    return Err(format!(
                        "-showme:{word} does not exist; after -showme: say {}",
                        options::showme_words().join(", ")
                    ));
                }
                rest.push(argument);
                continue;
            };
            match query {
                Query::CommandLine => show = Some(Show::All),
                Query::CompileInfo => show = Some(Show::Compile),
                Query::LinkInfo => show = Some(Show::Link),
                Query::CompileFlags | Query::LinkFlags if self.is_without_fortran() => {
                    return Ok(Action::Print(format!("-l{MISSING_LIBRARY}")));
                }
                Query::CompileFlags => return Ok(print(&self.compile_flags(&compiler)?)),
                Query::LinkFlags => return Ok(print(&self.link_flags(&compiler)?)),
                Query::IncludeFolders => return Ok(listed(&self.include_folders(&compiler)?)),
                Query::LibraryFolders => return Ok(listed(&self.library_folders(&compiler)?)),
                Query::Libraries => return Ok(Action::Print(self.libraries().join(" "))),
                Query::Compiler => return Ok(print(&compiler)),
                Query::Version => return Ok(Action::Print(self.version())),
                Query::SetCompiler => compiler = words(OsStr::new(value)),
            }
        }
        if compiler.is_empty() {
            return Err("no compiler is named".into());
        }
        let mut command = compiler.clone();
        let asks_only = !rest.iter().any(|a| is_input(a)) && show.is_none();
        let links = show == Some(Show::Link)
            || show != Some(Show::Compile)
                && !asks_only
                && !rest.iter().any(|a| stops_before_linking(a));
        // Without a file the user asks the compiler something (--version, -v, -print-…).
        if !asks_only && show != Some(Show::Link) {
            command.extend(self.compile_flags(&compiler)?);
        }
        command.extend(rest);
        if links {
            command.extend(self.link_flags(&compiler)?);
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
pub(crate) fn words(text: &OsStr) -> Vec<OsString> {
    let pieces = text
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .filter(|w| !w.is_empty());
    pieces.map(|w| OsStr::from_bytes(w).into()).collect()
}

fn listed(folders: &[PathBuf]) -> Action {
    let folders: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
    Action::Print(folders.join(" "))
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
mod tests;
