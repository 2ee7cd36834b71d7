//! What Fortran needs of compilers: the library of its procedures, compiled by a C compiler when
//! Ferry is installed, and the module files, compiled once by each Fortran compiler.
//!
//! Module files are readable by the compiler alone that wrote them. So the sources are part of
//! Ferry, and what a compiler makes of them is kept: in the installation for the compiler that was
//! there when Ferry was installed, in the user's cache for others. A folder of the cache is made
//! under another name and renamed, by one process at a time.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ferry_api::abis::{self, Abi};
use ferry_api::fortran::{COMPILED_ONCE, COMPILED_TWICE, MODULES, files};
use rustix::fs::{FlockOperation, flock};

/// The folder of module files, below an installation's folder of libraries.
pub const INSTALLED_MODULES: &str = "ferry/fortran";
/// The library's name for the dynamic linker (MPI 5.0 §21.4.2).
pub const LIBRARY: &str = "libmpifort_abi.so.1";
/// The objects of the modules: tables of types that a compiler may refer to.
const MODULE_OBJECTS: &str = "libmpifort_modules.a";
/// Options of the compiler that every program needs, one line each.
const OPTIONS: &str = "options";
/// The same buffer may have several types in a program with `mpif.h`. GCC refuses that since
/// version 10 without this.
const ANY_TYPE: &str = "-fallow-argument-mismatch";

/// Module files of one compiler.
#[derive(Clone, Debug, PartialEq)]
pub struct Modules {
    /// Where they are.
    pub folder: PathBuf,
    /// Options that every program needs.
    pub options: Vec<String>,
}

/// The module files of a compiler: those below an installation's folder of libraries, or those of
/// the user's cache, where they are compiled if need be. Blocks while another process compiles
/// them.
///
/// # Errors
/// One line or more: the compiler's output, why the cache cannot be used, or that the installation
/// has no Fortran.
pub fn modules(compiler: &[OsString], lib: &Path) -> Result<Modules, String> {
    let library = lib.join(LIBRARY);
    match library.exists() {
        true => modules_below(compiler, lib),
        false => Err(format!(
            "{} does not exist: Ferry was installed where there was no C compiler; install it \
             again with one",
            library.display()
        )),
    }
}

fn modules_below(compiler: &[OsString], lib: &Path) -> Result<Modules, String> {
    let key = key(compiler, &of_modules());
    let installed = lib.join(INSTALLED_MODULES).join(&key);
    let folder = match installed.join(OPTIONS).exists() {
        true => installed,
        false => cached(&cache()?, &key, |folder| compile_modules(compiler, folder))?,
    };
    let options = fs::read_to_string(folder.join(OPTIONS))
        .map_err(|e| format!("{}: {e}", folder.join(OPTIONS).display()))?;
    Ok(Modules {
        options: options.lines().map(String::from).collect(),
        folder,
    })
}

/// The module that older compilers cannot compile: it needs descriptors of arrays of any rank
/// (Fortran 2018 §18).
const NEEDS_DESCRIPTORS: &str = "mpi_f08.F90";

/// What an installation has for Fortran.
#[derive(Debug)]
pub struct Products {
    /// The library of the procedures.
    pub library: PathBuf,
    /// The libraries of other ABIs, where their C libraries have been built.
    pub other_abis: Vec<(Abi, PathBuf)>,
    /// The module files of the Fortran compiler in PATH: the name of their folder, and the files.
    pub modules: Option<(String, Vec<PathBuf>)>,
}

/// Compiles what an installation has for Fortran, or finds it in the cache. `c_library` is
/// `libmpi_abi.so`, `other_abis` are the C libraries of other ABIs. The compilers are those of
/// `FERRY_CC` and `FERRY_FC`, else `cc` and `gfortran`.
///
/// # Errors
/// Why there is no library: no C compiler, or its output.
pub fn products(c_library: &Path, other_abis: &[(Abi, PathBuf)]) -> Result<Products, String> {
    let compiler = |variable: &str, default: &str| {
        let chosen = env::var_os(variable).filter(|v| !v.is_empty());
        crate::wrapper::words(chosen.as_deref().unwrap_or(OsStr::new(default)))
    };
    let (cc, fc) = (compiler("FERRY_CC", "cc"), compiler("FERRY_FC", "gfortran"));
    if find_program(&cc).is_none() {
        return Err(format!("there is no C compiler {}", shown(&cc)));
    }
    let mut sources = files();
    sources.retain(|f| is_c(f.0));
    sources.push(("mpi.h", ferry_api::header::mpi_h()));
    let library = library(&cc, LIBRARY, &[], &sources, c_library)?;
    let other_abis = other_abis.iter().map(|(abi, c_library)| {
        let define = format!("-D{}", abis::fortran::macro_name(*abi));
        let name = abis::fortran::names(*abi).soname;
        let sources = abis::fortran::files(*abi);
        Ok((
            *abi,
            self::library(&cc, name, &[define], &sources, c_library)?,
        ))
    });
    let other_abis: Vec<_> = other_abis.collect::<Result<_, String>>()?;
    let modules = find_program(&fc)
        .map(|_| {
            let found = modules_below(&fc, Path::new("/nonexistent"))?;
            let list = fs::read_dir(&found.folder).map_err(|e| e.to_string())?;
            let mut made: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
            made.sort();
            Ok::<_, String>((self::key(&fc, &of_modules()), made))
        })
        .transpose()?;
    Ok(Products {
        library,
        other_abis,
        modules,
    })
}

fn is_c(name: &str) -> bool {
    name.ends_with(".c") || name.ends_with(".h") && name != "mpif.h"
}

/// A name for what a compiler makes of sources. It differs for another compiler, another version or
/// other sources. No process is started for it.
fn key(compiler: &[OsString], sources: &[(&str, String)]) -> String {
    let mut text = String::new();
    for word in compiler {
        match find_program(std::slice::from_ref(word)).and_then(|p| Some((p.metadata().ok()?, p))) {
            Some((file, path)) => {
                let (path, size) = (path.display(), file.len());
                text += &format!("{path} {size} {}.{}\n", file.mtime(), file.mtime_nsec());
            }
            None => text += &format!("{}\n", word.to_string_lossy()),
        }
    }
    for (name, source) in sources {
        text += &format!("{name}\n{source}");
    }
    let name = compiler.last().map(Path::new).and_then(Path::file_name);
    let name = name.unwrap_or_default().to_string_lossy();
    format!("{name}-{:016x}", crate::digest::digest(text.as_bytes()))
}

/// The file that the shell would run for the first word.
fn find_program(words: &[OsString]) -> Option<PathBuf> {
    let word = Path::new(words.first()?);
    let runs = |path: &PathBuf| {
        let mode = path.metadata().ok().filter(|m| m.is_file());
        mode.is_some_and(|m| m.permissions().mode() & 0o111 != 0)
    };
    let found = if word.components().count() > 1 {
        Some(word.to_path_buf()).filter(runs)
    } else {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|p| p.join(word)).find(runs)
    };
    found.and_then(|path| path.canonicalize().ok())
}

fn shown(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
    words.join(" ")
}

/// The user's cache (XDG Base Directory Specification).
fn cache() -> Result<PathBuf, String> {
    let from = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let folder = from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")));
    folder
        .map(|f| f.join("ferry-mpi"))
        .ok_or_else(|| "module files cannot be kept: neither XDG_CACHE_HOME nor HOME is set".into())
}

/// The folder `key` of the cache. `make` fills it if it is not there. Of several processes that
/// want it, one fills it, and the others wait.
fn cached(
    cache: &Path,
    key: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = cache.join(key);
    if folder.exists() {
        return Ok(folder);
    }
    let unusable = |e: std::io::Error| {
        format!(
            "the cache {} cannot be used: {e}; XDG_CACHE_HOME names another",
            cache.display()
        )
    };
    fs::create_dir_all(cache).map_err(unusable)?;
    let lock = File::create(cache.join(format!("{key}.lock"))).map_err(unusable)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|e| unusable(e.into()))?;
    if folder.exists() {
        return Ok(folder);
    }
    // What a process left here that was killed is of no use.
    let unfinished = cache.join(format!("{key}.new"));
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir(&unfinished).map_err(unusable)?;
    let made = make(&unfinished);
    if let Err(text) = made {
        let _ = fs::remove_dir_all(&unfinished);
        return Err(text);
    }
    fs::rename(&unfinished, &folder).map_err(unusable)?;
    Ok(folder)
}

/// The sources of the modules.
fn of_modules() -> Vec<(&'static str, String)> {
    let mut sources = files();
    sources.retain(|f| MODULES.contains(&f.0));
    sources
}

fn write_sources(folder: &Path, sources: &[(&str, String)]) -> Result<(), String> {
    for (name, text) in sources {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    }
    Ok(())
}

/// Starts a compiler in a folder.
fn start(compiler: &[OsString], arguments: &[&str], folder: &Path) -> Result<Child, String> {
    let (program, own) = compiler.split_first().ok_or("no compiler is named")?;
    Command::new(program)
        .args(own)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("the compiler {} cannot be run: {e}", shown(compiler)))
}

/// What the compiler prints; an error if it fails.
fn finish(compiler: &[OsString], child: Child) -> Result<String, String> {
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    match output.status.success() {
        true => Ok(text),
        false => Err(format!(
            "{} cannot compile Ferry's sources for Fortran:\n{text}",
            shown(compiler)
        )),
    }
}

fn run(compiler: &[OsString], arguments: &[&str], folder: &Path) -> Result<String, String> {
    finish(compiler, start(compiler, arguments, folder)?)
}

fn compile_modules(compiler: &[OsString], folder: &Path) -> Result<(), String> {
    write_sources(folder, &of_modules())?;
    let mut objects = Vec::new();
    for source in MODULES {
        match run(compiler, &["-O2", "-fPIC", "-c", source], folder) {
            Ok(_) => objects.push(source.replace(".F90", ".o")),
            // flang 16 writes the module file, but has no object for variables with BIND(C). The
            // library has them, so programs need no object.
            Err(_) if run(compiler, &["-fsyntax-only", source], folder).is_ok() => {}
            // The other module serves all the same.
            Err(text) if source == NEEDS_DESCRIPTORS => eprint!("no module mpi_f08: {text}"),
            Err(text) => return Err(text),
        }
    }
    let archive = ["rcs", MODULE_OBJECTS].into_iter();
    let arguments: Vec<&str> = archive.chain(objects.iter().map(String::as_str)).collect();
    run(&["ar".into()], &arguments, folder)?;
    let probe = folder.join("probe.f90");
    fs::write(&probe, "end\n").map_err(|e| format!("{}: {e}", probe.display()))?;
    let known = run(compiler, &[ANY_TYPE, "-c", "probe.f90"], folder);
    let options = if known.is_ok_and(|text| text.trim().is_empty()) {
        format!("{ANY_TYPE}\n")
    } else {
        String::new()
    };
    for used in objects
        .iter()
        .map(String::as_str)
        .chain(["probe.f90", "probe.o"])
    {
        let _ = fs::remove_file(folder.join(used));
    }
    // The last file: where it is, the folder is whole.
    let path = folder.join(OPTIONS);
    fs::write(&path, options).map_err(|e| format!("{}: {e}", path.display()))
}

/// The library `name` in the cache, compiled from `sources` with the options `defines`.
fn library(
    cc: &[OsString],
    name: &str,
    defines: &[String],
    sources: &[(&str, String)],
    c_library: &Path,
) -> Result<PathBuf, String> {
    let key = key(cc, sources);
    let compile = |folder: &Path| {
        write_sources(folder, sources)?;
        compile_library(cc, name, defines, c_library, folder)
    };
    Ok(cached(&cache()?, &key, compile)?.join(name))
}

fn compile_library(
    cc: &[OsString],
    name: &str,
    defines: &[String],
    c_library: &Path,
    folder: &Path,
) -> Result<(), String> {
    let once = COMPILED_ONCE.iter().chain(&COMPILED_TWICE);
    let once = once.map(|source| (*source, source.replace(".c", ".o"), ""));
    let again = COMPILED_TWICE.iter();
    let again = again.map(|source| (*source, format!("p{source}.o"), "-DMPIFORT_PROFILE"));
    let jobs: Vec<_> = once.chain(again).collect();
    let mut running = Vec::new();
    for (source, object, define) in &jobs {
        let mut arguments = vec!["-O2", "-fPIC", "-w", "-I.", "-c", source, "-o", object];
        arguments.extend([*define].iter().filter(|d| !d.is_empty()));
        arguments.extend(defines.iter().map(String::as_str));
        running.push(start(cc, &arguments, folder)?);
    }
    let results: Vec<_> = running.into_iter().map(|child| finish(cc, child)).collect();
    results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let soname = format!("-Wl,-soname,{name}");
    let c_library = std::path::absolute(c_library).map_err(|e| e.to_string())?;
    let c_library = c_library.to_string_lossy().into_owned();
    // The C library beside it, if the program did not load one already.
    let mut arguments = vec!["-shared", "-o", name, &soname, "-Wl,-rpath,$ORIGIN"];
    arguments.push("-Wl,--enable-new-dtags");
    arguments.extend(jobs.iter().map(|(_, object, _)| object.as_str()));
    arguments.push(&c_library);
    run(cc, &arguments, folder)?;
    for (_, object, _) in &jobs {
        let _ = fs::remove_file(folder.join(object));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_key_tells_compilers_and_sources_apart() {
        let of = |words: &[&str], source: &str| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            key(&words, &[("mpi.F90", source.into())])
        };
        let shell = of(&["sh"], "module mpi");
        assert!(shell.starts_with("sh-"), "{shell}");
        assert_eq!(shell, of(&["sh"], "module mpi"));
        assert_ne!(shell, of(&["sh", "-i8"], "module mpi"));
        assert_ne!(shell, of(&["sh"], "module mpi_f08"));
        assert_ne!(of(&["nothing-1"], ""), of(&["nothing-2"], ""));
    }
    #[test]
    fn one_of_many_fills_a_folder_of_the_cache() {
        let cache = env::temp_dir().join(format!("ferry-cache-{}", std::process::id()));
        fs::create_dir_all(cache.join("key.new")).unwrap();
        fs::write(cache.join("key.new/half"), "of a killed process").unwrap();
        let refused = cached(&cache, "key", |_| Err("does not compile".into()));
        assert_eq!(refused.unwrap_err(), "does not compile");
        assert!(!cache.join("key").exists() && !cache.join("key.new").exists());

        let (ready, made) = (Barrier::new(8), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    ready.wait();
                    let folder = cached(&cache, "key", |folder| {
                        made.fetch_add(1, Ordering::Relaxed);
                        fs::write(folder.join("mpi.mod"), "whole").map_err(|e| e.to_string())
                    });
                    let text = fs::read_to_string(folder.unwrap().join("mpi.mod"));
                    assert_eq!(text.unwrap(), "whole");
                });
            }
        });
        assert_eq!(made.into_inner(), 1);
        fs::remove_dir_all(&cache).unwrap();
    }
}
