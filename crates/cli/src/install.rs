//! `ferry install`: puts an installation under a prefix. `ferry uninstall` takes it away again.
//!
//! ```text
//! bin/       ferry mpiexec mpicc; mpirun, mpicxx, mpifort and so on as links
//! include/   mpi.h mpif.h ferry_mx.h
//! lib/       libmpi_abi.so.1, libmpi_abi.so; libmpifort_abi.so.1, libmpifort_abi.so;
//!            libferry_mx.so.0, libferry_mx.so if it was built
//! lib/ferry/ what mpiexec puts before programs: libmpi_abi.so.1, libmpi.so.12 and libmpich.so.12
//!            (MPICH's ABI), libmpi.so.40 (Open MPI's), their libraries of Fortran; installed, the
//!            list of all files
//! lib/ferry/fortran/ sources of the modules; a folder with module files for a compiler
//! lib/pkgconfig/  ferry.pc mpi_abi.pc mpi.pc mpi-c.pc mpi-cxx.pc mpi-fort.pc ferry_mx.pc
//! share/man/man1/ manual pages
//! share/bash-completion/completions/, share/zsh/site-functions/,
//! share/fish/vendor_completions.d/    completions
//! ```

mod manifest;
mod pkg_config;
mod uninstall;

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ferry_api::abis::Abi;
use ferry_cli::fortran;
use manifest::{Entry, Manifest};
pub use uninstall::uninstall;

use crate::manual;

/// Links in bin and what they point to.
const LINKS: [(&str, &str); 12] = [
    ("mpirun", "mpiexec"),
    ("mpicxx", "mpicc"),
    ("mpic++", "mpicc"),
    ("mpicc_abi", "mpicc"),
    ("mpicxx_abi", "mpicc"),
    ("mpic++_abi", "mpicc"),
    ("mpifort", "mpicc"),
    ("mpifort_abi", "mpicc"),
    ("mpif77", "mpicc"),
    ("mpif90", "mpicc"),
    ("mpif95", "mpicc"),
    ("mpifc", "mpicc"),
];

/// Libraries of other ABIs: cargo's products.
const OTHER_ABIS: [(Abi, &str); 2] = [
    (Abi::Mpich, "libmpi_mpich.so"),
    (Abi::OpenMpi, "libmpi_openmpi.so"),
];

/// The libraries of other ABIs that cargo has made in the folder `from`.
pub fn other_abis(from: &Path) -> Vec<(Abi, PathBuf)> {
    let products = OTHER_ABIS.map(|(abi, product)| (abi, from.join(product)));
    let made = products.into_iter().filter(|(_, product)| product.exists());
    made.collect()
}

/// The header of `libferry_mx.so`.
const MX_HEADER: &str = include_str!("../../mx/include/ferry_mx.h");

/// Installs from the folder `from`, where cargo has put its products, to `prefix`. What is there
/// already is replaced in one step each, so that programs running on it are not disturbed. Returns
/// the files written, below the prefix. Without `products` there is no Fortran.
///
/// # Errors
/// One line that names the file.
pub fn install(
    from: &Path,
    prefix: &Path,
    products: Option<&fortran::Products>,
) -> Result<Vec<PathBuf>, String> {
    check_built(from)?;
    let old = Manifest::read(prefix)?.unwrap_or_default();
    let mut new = Manifest {
        folders: old.folders.clone(),
        files: Vec::new(),
    };
    let mut put = |path: &str, content: Content<'_>| put_file(prefix, path, content, &mut new);
    put_commands(from, &mut put)?;
    put_libraries(from, &mut put)?;
    put("include/mpi.h", Content::Text(&ferry_api::header::mpi_h()))?;
    for name in pkg_config::NAMES {
        let text = pkg_config::file(name);
        put(&format!("lib/pkgconfig/{name}.pc"), Content::Text(&text))?;
    }
    put_fortran(products, &mut put)?;
    put_mx(from, &mut put)?;
    for page in manual::pages() {
        put(&page.path, page.content())?;
    }
    uninstall::remove_outdated(prefix, &old, &new)?;
    let text = new.text();
    let mut written: Vec<PathBuf> = new.files.iter().map(|f| f.path.clone()).collect();
    let target = prefix.join(manifest::MANIFEST_PATH);
    place_file(&target, Content::Text(&text)).map_err(|e| not_written(&target, &e))?;
    written.push(manifest::MANIFEST_PATH.into());
    Ok(written)
}

/// What cargo makes of the commands, and of the library.
const PROGRAMS: [&str; 3] = ["ferry", "mpiexec", "mpicc"];
const LIBRARY: &str = "libmpi_abi.so";

fn check_built(from: &Path) -> Result<(), String> {
    for needed in PROGRAMS.iter().chain([&LIBRARY]) {
        let path = from.join(needed);
        if !path.exists() {
            let path = path.display();
            return Err(format!("{path} does not exist; run: cargo build --release"));
        }
    }
    Ok(())
}

/// What writes one file below the prefix.
type Put<'a> = &'a mut dyn FnMut(&str, Content<'_>) -> Result<(), String>;

fn put_commands(from: &Path, put: Put<'_>) -> Result<(), String> {
    for program in PROGRAMS {
        let file = Content::Copy(&from.join(program), 0o755);
        put(&format!("bin/{program}"), file)?;
    }
    for (link, to) in LINKS {
        put(&format!("bin/{link}"), Content::Link(to))?;
    }
    Ok(())
}

/// The library, and those of other ABIs that were built.
fn put_libraries(from: &Path, put: Put<'_>) -> Result<(), String> {
    let library = Content::Copy(&from.join(LIBRARY), 0o755);
    put("lib/libmpi_abi.so.1", library)?;
    put("lib/libmpi_abi.so", Content::Link("libmpi_abi.so.1"))?;
    let link = Content::Link("../libmpi_abi.so.1");
    put("lib/ferry/libmpi_abi.so.1", link)?;
    for (abi, product) in other_abis(from) {
        let file = Content::Copy(&product, 0o755);
        put(&format!("lib/ferry/{}", abi.soname()), file)?;
        if abi == Abi::Mpich {
            // Debian's MPICH has the first name. Programs that load an MPI while they run ask for
            // the others.
            for link in ["libmpich.so.12", "libmpi.so", "libmpich.so"] {
                put(&format!("lib/ferry/{link}"), Content::Link(abi.soname()))?;
            }
        }
    }
    Ok(())
}

/// Myrinet Express's library, if it was built.
fn put_mx(from: &Path, put: Put<'_>) -> Result<(), String> {
    let mx = from.join("libferry_mx.so");
    if !mx.exists() {
        return Ok(());
    }
    put("lib/libferry_mx.so.0", Content::Copy(&mx, 0o755))?;
    put("lib/libferry_mx.so", Content::Link("libferry_mx.so.0"))?;
    put("include/ferry_mx.h", Content::Text(MX_HEADER))?;
    let text = pkg_config::mx_file();
    put("lib/pkgconfig/ferry_mx.pc", Content::Text(&text))
}

/// The library, the header, the sources and the module files of Fortran.
fn put_fortran(products: Option<&fortran::Products>, put: Put<'_>) -> Result<(), String> {
    let modules = products.and_then(|p| p.modules.as_ref());
    let text = match products {
        Some(_) => pkg_config::fortran_file(modules.map(|m| m.0.as_str())),
        None => pkg_config::no_fortran(),
    };
    let path = format!("lib/pkgconfig/{}.pc", pkg_config::FORTRAN_NAME);
    put(&path, Content::Text(&text))?;
    let Some(products) = products else {
        return Ok(());
    };
    for (abi, library) in &products.other_abis {
        let names = ferry_api::abis::fortran::names(*abi);
        let path = |name: &str| format!("lib/ferry/{name}");
        put(&path(names.soname), Content::Copy(library, 0o755))?;
        for other in names.others {
            put(&path(other), Content::Link(names.soname))?;
        }
    }
    let library = format!("lib/{}", fortran::LIBRARY);
    put(&library, Content::Copy(&products.library, 0o755))?;
    put("lib/libmpifort_abi.so", Content::Link(fortran::LIBRARY))?;
    let folder = format!("lib/{}", fortran::INSTALLED_MODULES);
    for (name, text) in ferry_api::fortran::files() {
        if name == "mpif.h" {
            put("include/mpif.h", Content::Text(&text))?;
        } else if ferry_api::fortran::MODULES.contains(&name) {
            put(&format!("{folder}/{name}"), Content::Text(&text))?;
        }
    }
    if let Some((key, files)) = modules {
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let path = format!("{folder}/{key}/{name}");
            put(&path, Content::Copy(file, 0o644))?;
        }
    }
    Ok(())
}

/// What a file is made from.
pub enum Content<'a> {
    /// A file and its mode.
    Copy(&'a Path, u32),
    /// A link to this.
    Link(&'a str),
    /// A file with this text.
    Text(&'a str),
}

fn not_written(target: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}", target.display())
}

/// Writes a file below `prefix` and adds it to the list, with the folders that were made for it.
fn put_file(
    prefix: &Path,
    path: &str,
    content: Content<'_>,
    list: &mut Manifest,
) -> Result<(), String> {
    let target = prefix.join(path);
    let above = Path::new(path).ancestors().skip(1);
    let above = above.filter(|folder| !folder.as_os_str().is_empty());
    let mut made: Vec<PathBuf> = above
        .take_while(|folder| !prefix.join(folder).exists())
        .map(Path::to_path_buf)
        .collect();
    made.reverse();
    made.retain(|folder| !list.folders.contains(folder));
    list.folders.append(&mut made);
    place_file(&target, content).map_err(|e| not_written(&target, &e))?;
    list.files.push(Entry {
        path: path.into(),
        content: manifest::Content::of(&target).map_err(|e| not_written(&target, &e))?,
    });
    Ok(())
}

/// Makes the file beside its path, then renames it.
fn place_file(target: &Path, content: Content<'_>) -> io::Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut temporary = target.as_os_str().to_owned();
    temporary.push(format!(".new{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let made = match content {
        Content::Copy(from, mode) => fs::copy(from, &temporary)
            .and_then(|_| fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))),
        Content::Link(to) => symlink(to, &temporary),
        Content::Text(text) => fs::write(&temporary, text),
    };
    made.and_then(|()| fs::rename(&temporary, target))
        .inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
}

#[cfg(test)]
mod tests;
