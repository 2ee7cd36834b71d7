//! Which MPI a program was linked with, and what it gets.

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::start::elf::{self, FoundBy};
use crate::start::libraries::{self, LIBRARY_PATH};
use crate::start::program;

/// A library of MPI that a program needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MpiLibrary {
    /// Its name in DT_NEEDED.
    pub name: String,
    /// The library of the program that needs it, if not the program itself.
    pub through: Option<String>,
    /// The file that the program gets under mpiexec and `ferry run`.
    pub file: Option<PathBuf>,
    /// The file that it gets without them.
    pub otherwise: Option<PathBuf>,
    /// Does a DT_RPATH, which comes before LD_LIBRARY_PATH, lead to another file?
    pub by_rpath: bool,
}

/// What is known of a program.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// Its file.
    pub file: PathBuf,
    /// Is it a program or library of this kind of machine? Otherwise a script, perhaps.
    pub is_elf: bool,
    /// The libraries of MPI that it needs, in the order in which they are loaded.
    pub libraries: Vec<MpiLibrary>,
    /// Number of MPI's symbols that it needs, itself or through its libraries.
    pub needed: usize,
    /// Those that no library has under mpiexec: the file that needs them, and their names.
    pub missing: BTreeMap<String, Vec<String>>,
    /// Ferry's folder of libraries, if Ferry is installed.
    pub folder: Option<PathBuf>,
}

/// Looks at the program `name`, as a shell would find it, or at a library.
///
/// # Errors
/// There is no such file.
pub fn diagnose(name: &OsStr) -> Result<Diagnosis, String> {
    let file = match Path::new(name).is_file() && name.as_encoded_bytes().contains(&b'/') {
        // A library is not executable.
        true => PathBuf::from(name),
        false => program::find(name, None, env::var_os("PATH")).map_err(|e| e.text)?,
    };
    let of_environment = env::var_os(LIBRARY_PATH).filter(|path| !path.is_empty());
    let folder = libraries::library_folder().map(PathBuf::from);
    let mut with_ferry = OsString::new();
    let parts = folder.iter().map(|f| f.as_os_str().to_owned());
    for part in parts.chain(of_environment.clone()) {
        if !with_ferry.is_empty() {
            with_ferry.push(":");
        }
        with_ferry.push(part);
    }
    let files = loaded(&file, Some(&with_ferry)).unwrap_or_default();
    let otherwise = loaded(&file, of_environment.as_deref()).unwrap_or_default();
    let stand_in = |name: &str| Some(folder.as_ref()?.join(name)).filter(|own| own.exists());
    // What is loaded under mpiexec: a library that a DT_RPATH hides is loaded before all others.
    let chosen = |library: &elf::Library| {
        let found = library.file.as_ref().map(|(file, _)| file.clone());
        stand_in(&library.name).or(found)
    };
    let mpi = files.iter().filter(|library| is_mpi(&library.name));
    let mpi = mpi.map(|library| MpiLibrary {
        name: library.name.clone(),
        through: library.through.clone(),
        file: chosen(library),
        otherwise: otherwise
            .iter()
            .find(|other| other.name == library.name)
            .and_then(|other| Some(other.file.as_ref()?.0.clone())),
        by_rpath: library
            .file
            .as_ref()
            .is_some_and(|(file, by)| *by == FoundBy::Rpath && file.parent() != folder.as_deref()),
    });
    let mpi: Vec<MpiLibrary> = mpi.collect();
    let (needed, missing) = missing(&file, &files, chosen, folder.as_deref());
    Ok(Diagnosis {
        is_elf: elf::needs(&file).is_some(),
        file,
        libraries: mpi,
        needed,
        missing,
        folder,
    })
}

fn loaded(file: &Path, library_path: Option<&OsStr>) -> Option<Vec<elf::Library>> {
    let mut all = Vec::new();
    elf::walk(file, library_path, |library| {
        all.push(library.clone());
        ControlFlow::Continue(())
    })?;
    Some(all)
}

/// Libraries of MPI by the beginnings of their names: C, Fortran, C++.
const MPI_LIBRARIES: [&str; 10] = [
    "libmpi.so",
    "libmpich.so",
    "libmpi_abi.so",
    "libmpifort",
    "libmpichfort",
    "libmpi_mpifh",
    "libmpi_usempi",
    "libmpi_cxx",
    "libmpicxx",
    "libmpichcxx",
];

fn is_mpi(name: &str) -> bool {
    MPI_LIBRARIES.iter().any(|stem| name.starts_with(stem))
}

/// Symbols of MPI's libraries by the beginnings of their names.
const MPI_SYMBOLS: [&str; 10] = [
    "MPI_", "PMPI_", "MPIX_", "PMPIX_", "MPIR_", "MPIO_", "mpi_", "pmpi_", "mpix_", "ompi_",
];

fn is_mpi_symbol(name: &str) -> bool {
    MPI_SYMBOLS.iter().any(|stem| name.starts_with(stem))
}

/// Number of MPI's symbols that are needed, and those that nothing defines.
fn missing(
    program: &Path,
    libraries: &[elf::Library],
    chosen: impl Fn(&elf::Library) -> Option<PathBuf>,
    folder: Option<&Path>,
) -> (usize, BTreeMap<String, Vec<String>>) {
    let is_standard = |name: &str| name.starts_with("libmpi_abi.so");
    // Where a library of another ABI comes first, the standard one's symbols are no answer.
    let mpi = libraries.iter().find(|library| is_mpi(&library.name));
    let other_abi = mpi.is_some_and(|library| !is_standard(&library.name));
    let mut defined: HashSet<String> = HashSet::new();
    let mut undefined: Vec<(String, Vec<String>)> = Vec::new();
    let mut look_at = |name: String, file: &Path| {
        let Some(symbols) = elf::symbols(file, is_mpi_symbol) else {
            return;
        };
        defined.extend(symbols.defined);
        // Ferry's own libraries are whole.
        if folder.is_none() || file.parent() != folder {
            undefined.push((name, symbols.undefined));
        }
    };
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    look_at(name.into_owned(), program);
    for library in libraries {
        if let Some(file) = chosen(library)
            && !(other_abi && is_standard(&library.name))
        {
            look_at(library.name.clone(), &file);
        }
    }
    let all: HashSet<&String> = undefined.iter().flat_map(|(_, names)| names).collect();
    let needed = all.len();
    let mut missing = BTreeMap::new();
    for (file, mut names) in undefined {
        names.retain(|name| !defined.contains(name));
        names.sort_unstable();
        names.dedup();
        if !names.is_empty() {
            missing.insert(file, names);
        }
    }
    (needed, missing)
}
