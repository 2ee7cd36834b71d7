//! Is a program linked with another MPI's library?
//!
//! Such a program does not find Ferry's mpiexec: each process becomes a job of one rank, all exit
//! with 0, and several write the same files. A program of the standard ABI needs `libmpi_abi.so`;
//! those of MPICH and its kin need `libmpi.so.12` or `libmpich.so.12`, those of Open MPI
//! `libmpi.so.40`. All that a program needs is looked at, also through its libraries.
//!
//! An installed mpiexec puts Ferry's libraries of these names first in LD_LIBRARY_PATH. They need
//! `libmpi_abi.so`, so the program is then none of another MPI. A DT_RPATH comes before
//! LD_LIBRARY_PATH; Ferry's library is then put before all others by LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::elf;

/// Another MPI's library that a program needs.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherMpi {
    /// Its name, such as "libmpi.so.12".
    pub library: String,
    /// The library of the program that needs it, if not the program itself.
    pub through: Option<String>,
}

impl OtherMpi {
    /// The finding in words: which file needs which library.
    pub fn described(&self, program: &str) -> String {
        match &self.through {
            None => format!("{program} is linked with {}", self.library),
            Some(through) => format!("{program} needs {} through {through}", self.library),
        }
    }

    /// Why mpiexec does not start the program, and what to do.
    pub fn refusal(&self, program: &str) -> String {
        format!(
            "{}, another MPI's library, and each of its processes would be a job of one rank: \
             {ADVICE} (--allow-other-mpi starts it all the same)",
            self.described(program)
        )
    }
}

/// What to do about a program of another MPI.
pub const ADVICE: &str =
    "compile it again with Ferry's mpicc, or start it by that MPI's own mpiexec";

/// The first program of another MPI among the arguments of one without MPI, such as `env` or
/// `valgrind`, with what it needs. Only paths are looked at.
pub fn of_arguments(
    arguments: impl Iterator<Item = OsString>,
    directory: &Path,
    library_path: Option<&OsStr>,
) -> Option<String> {
    let mut paths = arguments.filter(|argument| argument.as_bytes().contains(&b'/'));
    paths.find_map(|argument| {
        let other = of_program(&directory.join(&argument), library_path)?;
        Some(other.described(&argument.to_string_lossy()))
    })
}

/// Another MPI's library that a process or one of its descendants has loaded.
pub fn loaded_by(pid: i32) -> Option<String> {
    loaded_by_tree(pid, GENERATIONS_MAX)
}

/// A shell script, `env` and `time` are generations. More are not looked at.
const GENERATIONS_MAX: usize = 4;

fn loaded_by_tree(pid: i32, generations: usize) -> Option<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let files = maps.lines().filter_map(|line| line.rsplit('/').next());
    let mut other = None;
    for file in files {
        if file.starts_with("libmpi_abi.so") {
            return None;
        }
        if is_other_mpi(file) {
            other = Some(file.to_owned());
        }
    }
    if other.is_some() || generations == 0 {
        return other;
    }
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    let mut children = children.split_whitespace().filter_map(|c| c.parse().ok());
    children.find_map(|child| loaded_by_tree(child, generations - 1))
}

/// The other MPI that a program needs; none if it needs the standard ABI's library as well, or if
/// it is a script. `library_path` is the LD_LIBRARY_PATH with which it will run.
pub fn of_program(program: &Path, library_path: Option<&OsStr>) -> Option<OtherMpi> {
    let mut found = None;
    let mut is_standard = false;
    elf::walk(program, library_path, |library| {
        is_standard = library.name.starts_with("libmpi_abi.so");
        if found.is_none() && is_other_mpi(&library.name) {
            found = Some(OtherMpi {
                library: library.name.clone(),
                through: library.through.clone(),
            });
        }
        match is_standard {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    found.filter(|_| !is_standard)
}

/// Whether a library of this name is another MPI's.
pub fn is_other_mpi(name: &str) -> bool {
    ["libmpi.so", "libmpich.so"].iter().any(|stem| {
        let rest = name.strip_prefix(stem);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    /// A scratch folder; it goes when dropped.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let folder = std::env::temp_dir().join(format!("ferry-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Scratch(folder)
        }

        /// Makes an ELF file by the C compiler.
        fn cc(&self, out: &str, arguments: &[&str]) -> PathBuf {
            let source = self.0.join("x.c");
            fs::write(&source, "int main(void) { return 0; }").unwrap();
            let made = Command::new("cc")
                .current_dir(&self.0)
                .args(["x.c", "-Wl,--no-as-needed", "-o", out])
                .args(arguments)
                .status()
                .unwrap();
            assert!(made.success());
            self.0.join(out)
        }

        fn library(&self, name: &str, arguments: &[&str]) -> PathBuf {
            let soname = format!("-Wl,-soname,{name}");
            let own = ["-shared", "-fPIC", &soname];
            self.cc(name, &[&own[..], arguments].concat())
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn names_of_other_libraries() {
        for name in [
            "libmpi.so.12",
            "libmpi.so.40",
            "libmpich.so.12",
            "libmpi.so",
        ] {
            assert!(is_other_mpi(name), "{name}");
        }
        for name in [
            "libmpi_abi.so.1",
            "libmpi_cxx.so.40",
            "libc.so.6",
            "libmpifoo.so",
        ] {
            assert!(!is_other_mpi(name), "{name}");
        }
    }

    #[test]
    fn programs_of_other_mpis_are_told_from_ours() {
        let scratch = Scratch::new("other-mpi");
        let other = |library: &str, through: Option<&str>| {
            Some(OtherMpi {
                library: library.into(),
                through: through.map(String::from),
            })
        };
        scratch.library("libmpi.so.12", &[]);
        scratch.library("libmpi.so.40", &[]);
        scratch.library("libmpi_abi.so.1", &[]);
        let of = |program: &Path| of_program(program, None);
        assert_eq!(of(&scratch.cc("plain", &[])), None);
        assert_eq!(of(&scratch.cc("ours", &["libmpi_abi.so.1"])), None);
        let mpich = scratch.cc("mpich", &["libmpi.so.12"]);
        assert_eq!(of(&mpich), other("libmpi.so.12", None));
        let both = scratch.cc("both", &["libmpi.so.12", "libmpi_abi.so.1"]);
        assert_eq!(of(&both), None);
        assert_eq!(of(&scratch.cc("static", &["-static"])), None);
        // Through a library, which LD_LIBRARY_PATH or the file itself leads to.
        scratch.library("libsolver.so", &["libmpi.so.40"]);
        let through = other("libmpi.so.40", Some("libsolver.so"));
        let plain = scratch.cc("by-path", &["libsolver.so"]);
        assert_eq!(of(&plain), None, "nobody finds libsolver.so");
        assert_eq!(of_program(&plain, Some(scratch.0.as_os_str())), through);
        let origin = scratch.cc("by-origin", &["libsolver.so", "-Wl,-rpath,$ORIGIN"]);
        assert_eq!(of(&origin), through);
        // A library that translates for the standard ABI.
        fs::remove_file(scratch.0.join("libmpi.so.40")).unwrap();
        scratch.library("libmpi.so.40", &["libmpi_abi.so.1"]);
        assert_eq!(of_program(&plain, Some(scratch.0.as_os_str())), None);
        assert_eq!(of(&origin), through, "nobody finds that library");
    }

    #[test]
    fn what_is_no_program_needs_nothing() {
        let scratch = Scratch::new("no-mpi");
        let script = scratch.0.join("script");
        fs::write(&script, "#!/bin/sh\n./mpich\n").unwrap();
        assert_eq!(of_program(&script, None), None);
        assert_eq!(of_program(&scratch.0, None), None);
        let pipe = scratch.0.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(
            of_program(&pipe, None),
            None,
            "without waiting for a writer"
        );
        assert_eq!(of_program(Path::new("/no/such/file"), None), None);
        // One that is cut off, wherever.
        scratch.library("libmpi.so.12", &[]);
        let whole = fs::read(scratch.cc("mpich", &["libmpi.so.12"])).unwrap();
        let cut = scratch.0.join("cut");
        for length in (0..whole.len()).step_by(97) {
            fs::write(&cut, &whole[..length]).unwrap();
            let _ = of_program(&cut, None);
        }
    }

    #[test]
    fn programs_among_arguments_are_found() {
        let scratch = Scratch::new("argument-mpi");
        scratch.library("libmpi.so.12", &[]);
        scratch.cc("mpich", &["libmpi.so.12"]);
        let of = |words: &[&str]| of_arguments(words.iter().map(OsString::from), &scratch.0, None);
        let told = of(&["-v", "./mpich", "x"]).unwrap();
        assert_eq!(told, "./mpich is linked with libmpi.so.12");
        assert_eq!(of(&["mpich", "./x.c", "/no/such"]), None);
        // This process has loaded none.
        assert_eq!(loaded_by(std::process::id() as i32), None);
    }
}
