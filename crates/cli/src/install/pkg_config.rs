//! The pkg-config files.

/// Names under which pkg-config finds Ferry: its own two, and those that other MPIs' files have.
/// With Ferry's folder first in PKG_CONFIG_PATH, `mpi`, `mpi-c` and `mpi-cxx` are Ferry's.
pub const NAMES: [&str; 5] = ["ferry", "mpi_abi", "mpi", "mpi-c", "mpi-cxx"];

/// The name of the file for Fortran, which other MPIs have, too.
pub const FORTRAN_NAME: &str = "mpi-fort";

/// The file for Fortran. `modules` is the folder of the module files of the compiler that was there
/// when Ferry was installed; pkg-config cannot ask which compiler is used.
pub fn fortran_file(modules: Option<&str>) -> String {
    let (url, version) = (env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
    let modules = modules.map_or(String::new(), |key| {
        format!(" -I${{libdir}}/ferry/fortran/{key}")
    });
    format!(
        "prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib
bindir=${{prefix}}/bin

Name: {FORTRAN_NAME}
Description: Ferry MPI for Fortran: mpif.h and the modules mpi and mpi_f08
URL: {url}
Version: {version}
Cflags: -I${{includedir}}{modules}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -Wl,--enable-new-dtags -lmpifort_abi -lmpi_abi
"
    )
}

/// The file where Ferry was installed without Fortran. It requires a package that does not exist.
/// So pkg-config does not take another MPI's file further back in its path.
pub fn no_fortran() -> String {
    let (url, version) = (env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
    format!(
        "Name: {FORTRAN_NAME}
Description: Ferry MPI was installed without Fortran
URL: {url}
Version: {version}
Requires: ferry-without-fortran
"
    )
}

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
