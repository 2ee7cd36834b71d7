//! Leads a program to Ferry's library of the ABI that it was linked for.

use std::env;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::other_mpi::{self, OtherMpi};
use super::{STATUS_NOT_EXECUTABLE, StartError, elf, program};

/// The file of a program, and the other MPI that it will use all the same.
pub struct ResolvedProgram {
    /// The file.
    pub path: PathBuf,
    /// Another MPI's library that the user allows.
    pub other_mpi: Option<OtherMpi>,
}

/// What the user has chosen.
#[derive(Clone, Copy, Default, Debug)]
pub struct Choice {
    /// LD_LIBRARY_PATH is as the user wants it.
    pub own_library_path: bool,
    /// A program of another MPI may be started as it is.
    pub allow_other_mpi: bool,
}

/// Finds the file of the program `name` and changes `environment` so that the program gets Ferry's
/// libraries, which are in `folder` if it is installed.
///
/// # Errors
/// There is no such program, or it would run on another MPI.
pub fn lead(
    environment: &mut Vec<(OsString, OsString)>,
    name: &OsStr,
    wdir: Option<&Path>,
    folder: Option<&OsStr>,
    choice: Choice,
) -> Result<ResolvedProgram, StartError> {
    if let Some(folder) = folder
        && !choice.own_library_path
    {
        put_first(environment, folder);
        choose_mpi4py(environment, folder);
    }
    let path = value(environment, "PATH").map(OsStr::to_owned);
    let path = program::find(name, wdir, path).map_err(|e| StartError {
        text: e.text,
        status: e.status,
    })?;
    let file = wdir.unwrap_or(Path::new("")).join(&path);
    let library_path = value(environment, LIBRARY_PATH);
    let Some(other) = other_mpi::of_program(&file, library_path) else {
        let other_mpi = None;
        return Ok(ResolvedProgram { path, other_mpi });
    };
    let is_chosen = choice.own_library_path || choice.allow_other_mpi;
    let stand_ins = match folder {
        Some(folder) if !is_chosen => stand_ins(&file, library_path, Path::new(folder)),
        _ => Vec::new(),
    };
    if stand_ins.iter().any(|s| s.ends_with(&other.library)) {
        for stand_in in stand_ins {
            preload(environment, stand_in.as_os_str());
        }
        let other_mpi = None;
        return Ok(ResolvedProgram { path, other_mpi });
    }
    if !choice.allow_other_mpi {
        return Err(StartError {
            text: other.refusal(&name.to_string_lossy()),
            status: STATUS_NOT_EXECUTABLE,
        });
    }
    let other_mpi = Some(other);
    Ok(ResolvedProgram { path, other_mpi })
}

/// Ferry's libraries for those that a program finds elsewhere, by a DT_RPATH that comes before
/// LD_LIBRARY_PATH.
pub fn stand_ins(program: &Path, library_path: Option<&OsStr>, folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    elf::walk(program, library_path, |library| {
        let own = folder.join(&library.name);
        let elsewhere = match &library.file {
            Some((file, _)) => file.parent() != Some(folder),
            None => true,
        };
        if elsewhere && own.exists() {
            found.push(own);
        }
        ControlFlow::Continue(())
    });
    found
}

/// The value of a variable.
pub fn value<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    let found = environment.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_os_str())
}

/// The search path of the dynamic linker that comes before the system's folders.
pub const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The folder of the installation that holds Ferry's libraries under the names that programs of the
/// standard ABI, MPICH and Open MPI ask for. First in LD_LIBRARY_PATH, it makes programs run on
/// Ferry that were built with another MPI's compiler wrapper.
pub fn library_folder() -> Option<OsString> {
    let folder: PathBuf = env::current_exe()
        .ok()?
        .parent()?
        .parent()?
        .join("lib/ferry");
    folder
        .join("libmpi_abi.so.1")
        .exists()
        .then(|| folder.as_os_str().as_bytes().to_vec())
        .map(OsString::from_vec)
}

/// Puts a folder first in LD_LIBRARY_PATH.
fn put_first(environment: &mut Vec<(OsString, OsString)>, library: &OsStr) {
    match environment
        .iter_mut()
        .find(|(name, _)| name == LIBRARY_PATH)
    {
        Some((_, value)) if !value.is_empty() => {
            let mut longer = library.to_owned();
            longer.push(":");
            longer.push(&value);
            *value = longer;
        }
        Some((_, value)) => *value = library.to_owned(),
        None => environment.push((LIBRARY_PATH.into(), library.to_owned())),
    }
}

/// Puts a library before all others that a program loads (ld.so(8)).
fn preload(environment: &mut Vec<(OsString, OsString)>, library: &OsStr) {
    match environment
        .iter_mut()
        .find(|(name, _)| name == "LD_PRELOAD")
    {
        Some((_, value)) if !value.is_empty() => {
            value.push(":");
            value.push(library);
        }
        Some((_, value)) => *value = library.to_owned(),
        None => environment.push(("LD_PRELOAD".into(), library.to_owned())),
    }
}

/// The variable by which users of mpi4py's wheels choose one of the ABIs that these have. Without
/// it mpi4py takes the first MPI library that it finds, in Python's own folder at first, and loads
/// that, wherever LD_LIBRARY_PATH leads (mpi4py, "MPI ABI").
const MPI4PY_ABI: &str = "MPI4PY_MPIABI";

/// Has mpi4py use MPICH's ABI, and so Ferry's library of it, unless the user has chosen.
fn choose_mpi4py(environment: &mut Vec<(OsString, OsString)>, library: &OsStr) {
    let chosen = [MPI4PY_ABI, "MPI4PY_LIBMPI"];
    let is_chosen = environment
        .iter()
        .any(|(name, _)| chosen.iter().any(|c| name == c));
    if !is_chosen && PathBuf::from(library).join("libmpi.so.12").exists() {
        environment.push((MPI4PY_ABI.into(), "mpich".into()));
    }
}
