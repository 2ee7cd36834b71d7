//! The mpi4py of the Python in PATH: can it run on Ferry?
//!
//! mpi4py's wheels are built for the ABIs of MPICH and Open MPI, and choose one when they are
//! imported. Under an installed mpiexec they get Ferry's library of MPICH's ABI.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What Python prints: its own path, mpi4py's version and its folder; nothing if there is none.
const QUESTION: &str = "
import importlib.util, os, sys
found = importlib.util.find_spec('mpi4py')
if found and found.submodule_search_locations:
    from importlib.metadata import version
    print(sys.executable)
    print(version('mpi4py'))
    print(list(found.submodule_search_locations)[0])
";

/// Python is given this long to answer.
const PYTHON_TIMEOUT: Duration = Duration::from_secs(5);

/// What an extension module is linked with that runs on Ferry: the standard ABI's library, or one
/// of another ABI that an installation has.
const LIBRARIES: [&str; 3] = ["libmpi_abi.so", "libmpi.so.12", "libmpi.so.40"];

/// A Python with mpi4py.
pub struct Mpi4py {
    pub python: String,
    pub version: String,
    /// The libraries of MPI that its extension modules are linked with and that Ferry has.
    pub libraries: Vec<String>,
}

/// The mpi4py of `python3` in PATH, if there is one.
pub fn find() -> Option<Mpi4py> {
    let answer = ask("python3")?;
    let mut lines = answer.lines();
    let (python, version, folder) = (lines.next()?, lines.next()?, lines.next()?);
    Some(Mpi4py {
        python: python.into(),
        version: version.into(),
        libraries: libraries(Path::new(folder)),
    })
}

/// What Python prints to the question; nothing if it fails or takes too long.
fn ask(python: &str) -> Option<String> {
    let mut child = Command::new(python)
        .args(["-c", QUESTION])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let end = Instant::now() + PYTHON_TIMEOUT;
    // The answer is short enough for the pipe to hold it.
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
    let output = child.wait_with_output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// The libraries of MPI that Ferry has and that the extension modules in mpi4py's folder need.
fn libraries(folder: &Path) -> Vec<String> {
    let modules = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let modules = modules.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("MPI") && name.ends_with(".so")
    });
    let modules: Vec<Vec<u8>> = modules
        .filter_map(|module: PathBuf| std::fs::read(module).ok())
        .collect();
    let holds = |name: &str| {
        let wanted = name.as_bytes();
        modules
            .iter()
            .any(|bytes| bytes.windows(wanted.len()).any(|w| w == wanted))
    };
    let found = LIBRARIES.iter().filter(|name| holds(name));
    found.map(|name| (*name).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_extension_modules_are_found() {
        let folder = std::env::temp_dir().join(format!("ferry-mpi4py-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let module = folder.join("MPI.mpich.cpython-311-x86_64-linux-gnu.so");
        std::fs::write(&module, b"ELF libmpi.so.20\0").unwrap();
        assert!(libraries(&folder).is_empty());
        std::fs::write(folder.join("MPI.py"), b"libmpi_abi.so.1").unwrap();
        assert!(libraries(&folder).is_empty());
        std::fs::write(&module, b"ELF libmpi.so.12\0").unwrap();
        assert_eq!(libraries(&folder), ["libmpi.so.12"]);
        let module = folder.join("MPI.cpython-311-x86_64-linux-gnu.so");
        std::fs::write(&module, b"ELF libmpi_abi.so.1\0").unwrap();
        assert_eq!(libraries(&folder), ["libmpi_abi.so", "libmpi.so.12"]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
