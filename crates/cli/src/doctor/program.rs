//! `ferry doctor PROGRAM`: the ABI that a program was linked for, the library that it gets, and
//! what would be missing.

use std::ffi::OsStr;
use std::path::Path;

use ferry_launch::diagnosis::{Diagnosis, MpiLibrary, diagnose};

use super::{Finding, plain, text_of};

/// Symbols that are named for one file at most.
const SYMBOLS_MAX: usize = 12;

/// The report on a program.
///
/// # Errors
/// There is no such program.
pub fn report(name: &OsStr) -> Result<String, String> {
    let diagnosis = diagnose(name)?;
    Ok(text_of(&findings(&diagnosis)))
}

fn findings(of: &Diagnosis) -> Vec<Finding> {
    let mut all = vec![plain("program", of.file.display().to_string())];
    if !of.is_elf {
        all[0].found += ", no program or library of this kind of machine: a script, perhaps\n\
             what it starts or loads finds Ferry's libraries under mpiexec and ferry run";
        return all;
    }
    let Some(first) = of.libraries.first() else {
        all.push(plain(
            "ABI",
            "needs no library of MPI; one that it loads later is not seen",
        ));
        return all;
    };
    all.push(abi(of, first));
    // The library of another ABI brings the standard one's along.
    let is_standard = |name: &str| name.starts_with("libmpi_abi.so");
    let shown = of.libraries.iter();
    let shown = shown.filter(|l| is_standard(&first.name) || !is_standard(&l.name));
    all.extend(shown.map(|library| library_of(of, library)));
    all.push(functions(of));
    all
}

/// The ABI of a library of MPI.
fn abi_of(name: &str) -> Option<&'static str> {
    let is = |stems: &[&str]| stems.iter().any(|stem| name.starts_with(stem));
    if is(&["libmpi_abi.so", "libmpifort_abi.so"]) {
        Some("the MPI 5.0 standard ABI")
    } else if is(&[
        "libmpi.so.12",
        "libmpich.so.12",
        "libmpifort.so.12",
        "libmpichfort.so.12",
    ]) {
        Some("MPICH's ABI (MPICH, Intel MPI, MVAPICH, Cray MPICH)")
    } else if is(&[
        "libmpi.so.40",
        "libmpi_mpifh.so.40",
        "libmpi_usempi",
        "libmpi_cxx.so.40",
    ]) {
        Some("Open MPI's ABI (Open MPI 4 and 5)")
    } else {
        None
    }
}

fn abi(of: &Diagnosis, first: &MpiLibrary) -> Finding {
    let through = match &first.through {
        Some(through) => format!(", through {through}"),
        None => String::new(),
    };
    let name = &first.name;
    let mut finding = match abi_of(name) {
        Some(abi) => plain("ABI", format!("{abi}: needs {name}{through}")),
        None => Finding {
            topic: "ABI",
            found: format!("one that Ferry does not have: needs {name}{through}"),
            change: Some("compile it again with Ferry's mpicc".into()),
        },
    };
    let other = of.libraries.iter().find(|library| {
        let (own, other) = (abi_of(name), abi_of(&library.name));
        other.is_some() && own.is_some() && own != other
    });
    if let Some(other) = other
        && !other.name.starts_with("libmpi_abi")
    {
        finding.found += &format!("\nand of another ABI {}", other.name);
        finding.change = Some(format!(
            "it needs {name} and {} at once, which no MPI can serve: a library of it was built \
             with another MPI",
            other.name
        ));
    }
    finding
}

fn library_of(of: &Diagnosis, library: &MpiLibrary) -> Finding {
    let shown = |file: &Option<std::path::PathBuf>| match file {
        Some(file) => file.display().to_string(),
        None => "not found".into(),
    };
    let name = &library.name;
    let own = |file: &Path| {
        let folder = of.folder.as_deref();
        let beside = folder.and_then(Path::parent);
        file.parent()
            .is_some_and(|f| Some(f) == folder || Some(f) == beside)
    };
    let mut finding = plain(
        "library",
        format!(
            "{name} under mpiexec and ferry run: {}",
            shown(&library.file)
        ),
    );
    if library.otherwise != library.file {
        finding.found += &format!("\nwithout them: {}", shown(&library.otherwise));
    }
    let is_own = library.file.as_deref().is_some_and(own);
    if is_own && library.by_rpath {
        finding.found += "\nDT_RPATH leads to another file; Ferry's is put before it by LD_PRELOAD";
        finding.change = Some(format!(
            "without mpiexec and ferry run its DT_RPATH leads to another MPI: patchelf \
             --remove-rpath, or LD_PRELOAD={}",
            shown(&library.file)
        ));
    } else if is_own && library.otherwise.as_deref().is_some_and(|file| !own(file)) {
        let folder = of.folder.as_deref().unwrap_or(Path::new(""));
        finding.found += &format!(
            "\nother launchers: ferry run before the program, or LD_LIBRARY_PATH={}",
            folder.display()
        );
    } else if !is_own && library.file.is_some() {
        finding.change = Some(match of.folder {
            Some(_) => format!("{name} is another MPI's: Ferry has no library of this name"),
            None => {
                format!("this ferry is not installed, so {name} is another MPI's: ferry install")
            }
        });
    } else if library.file.is_none() {
        finding.change = Some(format!("{name} is not found: the program cannot start"));
    }
    finding
}

fn functions(of: &Diagnosis) -> Finding {
    let count: usize = of.missing.values().map(Vec::len).sum();
    let mut finding = plain(
        "symbols",
        match count {
            0 => format!("all {} symbols of MPI that it needs are there", of.needed),
            _ => format!(
                "{count} of {} symbols of MPI that it needs are missing",
                of.needed
            ),
        },
    );
    for (file, names) in &of.missing {
        let named = names.iter().take(SYMBOLS_MAX).map(String::as_str);
        let more = match names.len().saturating_sub(SYMBOLS_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named: Vec<&str> = named.collect();
        finding.found += &format!("\n{file}: {}{more}", named.join(" "));
    }
    if count > 0 {
        finding.change = Some(
            "a call of a missing function ends the program with the dynamic linker's message; \
             missing data keep it from starting"
                .into(),
        );
    }
    finding
}
