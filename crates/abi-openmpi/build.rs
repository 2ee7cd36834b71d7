//! Makes the entry points and tables from the descriptions in `ferry-api`, and names the library.

use ferry_api::abis::{Abi, entries, rust_table, standard_library_stand_in};
use std::path::Path;
use std::{env, fs};

fn main() -> std::io::Result<()> {
    let out = env::var("OUT_DIR").map_err(std::io::Error::other)?;
    let out = Path::new(&out);
    let abi = Abi::OpenMpi;
    fs::write(out.join("entries.rs"), entries())?;
    fs::write(out.join("table.rs"), rust_table(abi))?;
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
