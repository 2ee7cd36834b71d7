//! The libraries of the ABIs that programs were linked with before the standard one: MPICH's
//! `libmpi.so.12` and Open MPI's `libmpi.so.40`.
//!
//! Each is a thin layer over the standard ABI. The same Rust text is made for both from `mpi.api`:
//! it converts arguments, calls the entry of the standard ABI, and converts results. What differs
//! stands in a table of each ABI (`abis/*.abi`: constants, and the forms of handles) and in its
//! crate.

mod entries;
pub mod fortran;
mod header;
mod parameter;
mod table;

pub use entries::entries;
pub use table::{Table, probe, rust_table};

/// An ABI that Ferry translates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Abi {
    /// MPICH's: handles are ints.
    Mpich,
    /// Open MPI's: handles are addresses, those of predefined objects addresses of exported data.
    OpenMpi,
}

impl Abi {
    /// The ABI of this name.
    pub fn of_name(name: &str) -> Option<Abi> {
        match name {
            "mpich" => Some(Abi::Mpich),
            "openmpi" => Some(Abi::OpenMpi),
            _ => None,
        }
    }

    /// The name of its library for the dynamic linker.
    pub fn soname(self) -> &'static str {
        match self {
            Abi::Mpich => "libmpi.so.12",
            Abi::OpenMpi => "libmpi.so.40",
        }
    }

    /// Its table as text.
    fn text(self) -> &'static str {
        match self {
            Abi::Mpich => include_str!("../abis/mpich.abi"),
            Abi::OpenMpi => include_str!("../abis/openmpi.abi"),
        }
    }
}

/// What the build script of an ABI's library does: makes the entry points and the table in OUT_DIR,
/// and names the library.
///
/// # Errors
/// A file cannot be written; the linker cannot be run, or fails.
pub fn build(abi: Abi) -> std::io::Result<()> {
    let out = std::env::var("OUT_DIR").map_err(std::io::Error::other)?;
    let out = std::path::Path::new(&out);
    std::fs::write(out.join("entries.rs"), entries())?;
    std::fs::write(out.join("table.rs"), rust_table(abi))?;
    let library = standard_library_stand_in(out)?;
    for argument in [
        format!("-Wl,-soname,{}", abi.soname()),
        "-Wl,--no-as-needed".into(),
        library.display().to_string(),
        // Installed, the standard library stands beside this one.
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN".into(),
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}

/// Makes a library in `folder` to link with in the place of libmpi_abi.so.1, which may not have
/// been built yet. It has the same name for the dynamic linker, and the one symbol that the
/// libraries of other ABIs use.
///
/// # Errors
/// The linker cannot be run, or fails.
fn standard_library_stand_in(folder: &std::path::Path) -> std::io::Result<std::path::PathBuf> {
    let source = folder.join("stand_in.c");
    let library = folder.join("libmpi_abi.so");
    std::fs::write(&source, "const void *ferry_translation[1];\n")?;
    let linker = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = std::process::Command::new(linker)
        .args([
            "-shared",
            "-nostdlib",
            "-fPIC",
            "-Wl,-soname,libmpi_abi.so.1",
            "-o",
        ])
        .arg(&library)
        .arg(&source)
        .status()?;
    if !status.success() {
        return Err(std::io::Error::other(format!("cc fails: {status}")));
    }
    Ok(library)
}
