//! Makes the numbers of all functions from the description in `ferry-api`.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() -> std::io::Result<()> {
    let mut text = String::new();
    let mut count = 0;
    for f in ferry_api::functions() {
        for (at, (name, _)) in f.forms().enumerate() {
            let short = name.trim_start_matches("MPI_").to_uppercase();
            let number = f.number + at as u32;
            let _ = writeln!(text, "/// {name}.\npub const {short}: u32 = {number};");
            count += 1;
        }
    }
    let _ = writeln!(
        text,
        "/// Number of functions.\npub const COUNT: usize = {count};"
    );
    let with_requests = ferry_api::per_abi().count();
    let _ = writeln!(
        text,
        "/// Number of functions that exist for each ABI.\n\
         pub const PER_ABI: usize = {with_requests};"
    );
    let out = env::var("OUT_DIR").map_err(std::io::Error::other)?;
    fs::write(Path::new(&out).join("number.rs"), text)?;
    let constants = ferry_api::constants::rust();
    fs::write(Path::new(&out).join("constants.rs"), constants)?;
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}
