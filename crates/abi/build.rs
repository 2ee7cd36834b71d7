//! Makes the entry points and the ABI's constants from the description in `ferry-api`, and names
//! the library.

use std::path::Path;
use std::{env, fs};

fn main() -> std::io::Result<()> {
    let out = env::var("OUT_DIR").map_err(std::io::Error::other)?;
    fs::write(
        Path::new(&out).join("entries.rs"),
        ferry_api::entries::rust(),
    )?;
    fs::write(
        Path::new(&out).join("constants.rs"),
        ferry_api::constants::rust(),
    )?;
    // The ABI fixes the name that programs ask the dynamic linker for (MPI 5.0 chapter 21).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}
