//! `mpifort`, `mpif90`, `mpif77` and so on: say that Ferry has no Fortran yet.
//!
//! Without them a build that has Ferry first in PATH takes the next MPI's `mpifort`, and mixes two
//! MPIs in one program without a word.

use std::ffi::OsString;

/// A library that does not exist. Its name is what a linker or CMake reports as missing.
const MISSING_LIBRARY: &str = "ferry_has_no_fortran_yet";

/// Whether a wrapper of this name compiles Fortran.
pub fn is_fortran(name: &str) -> bool {
    name.starts_with("mpif")
}

/// What the wrapper prints for the question with which CMake's FindMPI begins, or the error for
/// all else.
///
/// FindMPI asks with one dash. Where a wrapper fails, FindMPI goes on to pkg-config's `mpi-fort`,
/// which may be the system's, and takes that. An answer that needs a library that does not exist
/// makes it say that Fortran is missing, with the library's name as the reason.
///
/// # Errors
/// The text for all other calls.
pub fn answer(arguments: &[OsString]) -> Result<String, String> {
    let only = match arguments {
        [only] => only.to_str(),
        _ => None,
    };
    match only {
        Some("-showme:compile") => Ok(format!("-D{}", MISSING_LIBRARY.to_uppercase())),
        Some("-showme:link") => Ok(format!("-l{MISSING_LIBRARY}")),
        _ => Err(
            "Ferry has no Fortran yet: mpif.h and the modules mpi and mpi_f08 do not exist. Build \
             the program without its Fortran parts, or with another MPI as a whole: put that MPI's \
             bin before Ferry's in PATH, and use its mpiexec"
                .into(),
        ),
    }
}
