//! `ferry-api`: prints text generated from the description of the MPI functions.

use std::process::ExitCode;

const USAGE: &str =
    "usage: ferry-api glue CHAPTER | header | entries | coverage | names | variables
       ferry-api fortran FILE | abi NAME FILE
  glue CHAPTER   the Rust signatures of the glue of a chapter (or of one function)
  header         mpi.h
  entries        the Rust entry points
  coverage       the functions that are not there yet
  names          every MPI_ and PMPI_ name
  variables      the environment variables, as Markdown tables
  fortran FILE   a source of Fortran: mpif.h mpi.F90 mpi_f08.F90 procedures.c generated.h
  abi NAME FILE  of the ABI mpich or openmpi: entries.rs table.rs, or probe.c, which compares the
                 table with an mpi.h";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let text = match words.as_slice() {
        ["glue", what] => match ferry_api::glue::signatures(what) {
            Some(text) => text,
            None => {
                eprintln!(
                    "ferry-api: no chapter or function is called {what}; chapters: {}",
                    ferry_api::glue::chapters().join(" ")
                );
                return ExitCode::FAILURE;
            }
        },
        ["header"] => ferry_api::header::mpi_h(),
        ["entries"] => ferry_api::entries::rust(),
        ["coverage"] => ferry_api::missing()
            .iter()
            .map(|n| format!("{n}\n"))
            .collect(),
        ["names"] => ferry_api::functions()
            .iter()
            .flat_map(|f| f.forms())
            .map(|(name, _)| format!("{name}\nP{name}\n"))
            .collect(),
        ["fortran", file] => match ferry_api::fortran::files()
            .into_iter()
            .find(|f| f.0 == *file)
        {
            Some((_, text)) => text,
            None => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        },
        ["abi", name, file] => match abi_file(name, file) {
            Some(text) => text,
            None => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        },
        ["variables"] => ferry_api::variables::markdown(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    print!("{text}");
    ExitCode::SUCCESS
}

/// A file that is made for another ABI.
fn abi_file(name: &str, file: &str) -> Option<String> {
    use ferry_api::abis::{Abi, entries, probe, rust_table};
    let abi = Abi::of_name(name)?;
    match file {
        "entries.rs" => Some(entries()),
        "table.rs" => Some(rust_table(abi)),
        "probe.c" => Some(probe(abi)),
        _ => None,
    }
}
