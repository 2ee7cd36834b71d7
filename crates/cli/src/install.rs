//! `ferry install`: puts an installation under a prefix.
//!
//! ```text
//! bin/       ferry mpiexec mpicc; mpirun mpicxx mpic++ mpicc_abi mpicxx_abi as links
//! include/   mpi.h
//! lib/       libmpi_abi.so.1, libmpi_abi.so; ferry/libmpi_abi.so.1, alone in its folder, for mpiexec
//! lib/pkgconfig/  ferry.pc mpi_abi.pc
//! ```

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Links in bin and what they point to.
const LINKS: [(&str, &str); 6] = [
    ("mpirun", "mpiexec"),
    ("mpicxx", "mpicc"),
    ("mpic++", "mpicc"),
    ("mpicc_abi", "mpicc"),
    ("mpicxx_abi", "mpicc"),
    ("mpic++_abi", "mpicc"),
];

/// Installs from the folder `from`, where cargo has put its products, to `prefix`; what is there
/// already is replaced in one step each, so that programs running on it are not disturbed. Returns
/// the files written.
///
/// # Errors
/// One line that names the file.
pub fn install(from: &Path, prefix: &Path) -> Result<Vec<PathBuf>, String> {
    let mut written = Vec::new();
    let mut put = |place: &str, content: Content<'_>| -> Result<(), String> {
        let target = prefix.join(place);
        place_file(&target, content)
            .map_err(|e| format!("{} cannot be written: {e}", target.display()))?;
        written.push(target);
        Ok(())
    };
    let library = from.join("libmpi_abi.so");
    for needed in [
        &library,
        &from.join("mpiexec"),
        &from.join("mpicc"),
        &from.join("ferry"),
    ] {
        if !needed.exists() {
            return Err(format!(
                "{} does not exist; run: cargo build --release",
                needed.display()
            ));
        }
    }
    for program in ["ferry", "mpiexec", "mpicc"] {
        put(
            &format!("bin/{program}"),
            Content::Copy(&from.join(program), 0o755),
        )?;
    }
    for (link, to) in LINKS {
        put(&format!("bin/{link}"), Content::Link(to))?;
    }
    put("lib/libmpi_abi.so.1", Content::Copy(&library, 0o755))?;
    put("lib/libmpi_abi.so", Content::Link("libmpi_abi.so.1"))?;
    put(
        "lib/ferry/libmpi_abi.so.1",
        Content::Link("../libmpi_abi.so.1"),
    )?;
    put("include/mpi.h", Content::Text(&ferry_api::header::mpi_h()))?;
    for name in ["ferry", "mpi_abi"] {
        put(
            &format!("lib/pkgconfig/{name}.pc"),
            Content::Text(&pkg_config(name)),
        )?;
    }
    Ok(written)
}

enum Content<'a> {
    Copy(&'a Path, u32),
    Link(&'a str),
    Text(&'a str),
}

/// Makes the file beside its place, then moves it there.
fn place_file(target: &Path, content: Content<'_>) -> io::Result<()> {
    if let Some(folder) = target.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut fresh = target.as_os_str().to_owned();
    fresh.push(format!(".new{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    let made = match content {
        Content::Copy(from, mode) => fs::copy(from, &fresh)
            .and_then(|_| fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))),
        Content::Link(to) => symlink(to, &fresh),
        Content::Text(text) => fs::write(&fresh, text),
    };
    made.and_then(|()| fs::rename(&fresh, target))
        .inspect_err(|_| {
            let _ = fs::remove_file(&fresh);
        })
}

/// A pkg-config file that finds its prefix from its own place.
fn pkg_config(name: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib
bindir=${{prefix}}/bin

Name: {name}
Description: Ferry MPI, an implementation of the MPI 5.0 standard ABI
URL: {}
Version: {}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -Wl,--enable-new-dtags -lmpi_abi
",
        env!("CARGO_PKG_REPOSITORY"),
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_whole_and_can_be_repeated() {
        let top = std::env::temp_dir().join(format!("ferry-install-{}", std::process::id()));
        let from = top.join("from");
        fs::create_dir_all(&from).unwrap();
        for product in ["libmpi_abi.so", "mpiexec", "mpicc", "ferry"] {
            fs::write(from.join(product), product).unwrap();
        }
        let prefix = top.join("prefix");
        install(&from, &prefix).unwrap();
        let written = install(&from, &prefix).unwrap();
        assert!(written.iter().all(|f| f.exists()), "{written:?}");
        assert_eq!(
            fs::read_to_string(prefix.join("bin/mpirun")).unwrap(),
            "mpiexec"
        );
        assert_eq!(
            fs::read_to_string(prefix.join("lib/ferry/libmpi_abi.so.1")).unwrap(),
            "libmpi_abi.so"
        );
        assert!(
            fs::read_to_string(prefix.join("include/mpi.h"))
                .unwrap()
                .contains("MPI_Init")
        );
        assert!(
            fs::read_dir(prefix.join("bin")).unwrap().all(|f| !f
                .unwrap()
                .path()
                .to_string_lossy()
                .contains(".new"))
        );
        fs::remove_file(from.join("mpicc")).unwrap();
        assert!(
            install(&from, &prefix)
                .unwrap_err()
                .contains("mpicc does not exist")
        );
        fs::remove_dir_all(top).unwrap();
    }
}
