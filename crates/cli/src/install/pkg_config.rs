//! The pkg-config files.

/// Names under which pkg-config finds Ferry: its own two, and those that other MPIs' files have.
/// With Ferry's folder first in PKG_CONFIG_PATH, `mpi`, `mpi-c` and `mpi-cxx` are Ferry's.
pub const NAMES: [&str; 5] = ["ferry", "mpi_abi", "mpi", "mpi-c", "mpi-cxx"];

/// The name of other MPIs' file for Fortran. Ferry's file requires a package that does not exist.
/// So pkg-config says that there is no Fortran yet, and does not take another MPI's file further
/// back in its path.
pub const FORTRAN_NAME: &str = "mpi-fort";

/// The file of the MX library.
pub fn mx_file() -> String {
    let (url, version) = (env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
    format!(
        "prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: ferry_mx
Description: Message passing by match bits on Ferry's modelled machines, after Myrinet Express
URL: {url}
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -Wl,--enable-new-dtags -lferry_mx
"
    )
}

/// A file that finds its prefix from its own place.
pub fn file(name: &str) -> String {
    let (url, version) = (env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
    if name == FORTRAN_NAME {
        return format!(
            "Name: {name}
Description: Ferry MPI has no Fortran yet
URL: {url}
Version: {version}
Requires: ferry-has-no-fortran-yet
"
        );
    }
    format!(
        "prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib
bindir=${{prefix}}/bin

Name: {name}
Description: Ferry MPI, an implementation of the MPI 5.0 standard ABI
URL: {url}
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -Wl,--enable-new-dtags -lmpi_abi
"
    )
}
