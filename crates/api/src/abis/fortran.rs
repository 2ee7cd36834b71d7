//! The Fortran library of an ABI: its names, and what of its sources depends on the ABI.
//!
//! It is made from the same sources as that of the standard ABI, compiled with the ABI's own C
//! header, so it calls the C functions of that ABI: a tool that replaces them sees the calls of
//! Fortran, too. Constants that programs have compiled in are the ABI's.

use super::table::Table;
use super::{Abi, header};
use crate::constants::GROUPS;
use crate::fortran::constants::{HANDLES, SENTINELS};
use crate::fortran::{Module, Procedure, entries, procedures};
use std::fmt::Write;

/// INTEGERs of Open MPI's predefined handles.
const OPEN_MPI_INTEGERS: &str = include_str!("../../abis/openmpi.fortran");

/// Names of a Fortran library.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// The name for the dynamic linker.
    pub soname: &'static str,
    /// Other names under which programs ask for it.
    pub others: &'static [&'static str],
}

/// The names of an ABI's Fortran library.
pub fn names(abi: Abi) -> Names {
    match abi {
        Abi::Mpich => Names {
            soname: "libmpifort.so.12",
            // Debian's MPICH.
            others: &["libmpichfort.so.12"],
        },
        Abi::OpenMpi => Names {
            soname: "libmpi_mpifh.so.40",
            others: &["libmpi_usempif08.so.40", "libmpi_usempi_ignore_tkr.so.40"],
        },
    }
}

/// The macro of the C sources that says which ABI they are compiled for.
pub fn macro_name(abi: Abi) -> &'static str {
    match abi {
        Abi::Mpich => "MPIFORT_MPICH",
        Abi::OpenMpi => "MPIFORT_OPENMPI",
    }
}

/// The sources of the library, for the C compiler: names and texts.
pub fn files(abi: Abi) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("mpi.h", header::mpi_h(abi)),
        ("generated.h", generated_header(abi)),
        ("procedures.c", source(abi)),
    ];
    all.extend(entries::SOURCES.map(|(name, text)| (name, text.to_string())));
    all
}

/// A common block or variable of the ABI: its linker's name, its size in bytes, and the names of
/// [`SENTINELS`] that lie in it, with their places. `mpi_f08`'s begin with `mpif08`.
type Block = (&'static str, usize, &'static [(&'static str, usize)]);

/// MPICH's, of mpif.h and of mpi_f08's constants that are bound to C.
const MPICH_BLOCKS: &[Block] = &[
    (
        "mpipriv1_",
        28,
        &[("mpifbottom", 0), ("mpifinplace", 4), ("mpifstatus", 8)],
    ),
    (
        "mpipriv2_",
        24,
        &[("mpifstatuses", 0), ("mpiferrcodes", 20)],
    ),
    ("mpiprivc_", 2, &[("mpifargvs", 0), ("mpifargv", 1)]),
    ("mpifcmb5_", 4, &[("mpifunweighted", 0)]),
    ("mpifcmb9_", 4, &[("mpifweightsempty", 0)]),
    ("mpifcmba_", 4, &[("mpifautomatic", 0)]),
    ("MPIR_F08_MPI_BOTTOM", 4, &[("mpif08bottom", 0)]),
    ("MPIR_F08_MPI_IN_PLACE", 4, &[("mpif08inplace", 0)]),
    ("MPIR_F08_MPI_STATUS_IGNORE_OBJ", 20, &[("mpif08status", 0)]),
    (
        "MPIR_F08_MPI_STATUSES_IGNORE_OBJ",
        20,
        &[("mpif08statuses", 0)],
    ),
    (
        "__mpi_f08_link_constants_MOD_mpi_unweighted",
        4,
        &[("mpif08unweighted", 0)],
    ),
    (
        "__mpi_f08_link_constants_MOD_mpi_weights_empty",
        4,
        &[("mpif08weightsempty", 0)],
    ),
    (
        "__mpi_f08_link_constants_MOD_mpi_argv_null",
        1,
        &[("mpif08argv", 0)],
    ),
    (
        "__mpi_f08_link_constants_MOD_mpi_argvs_null",
        1,
        &[("mpif08argvs", 0)],
    ),
    (
        "__mpi_f08_link_constants_MOD_mpi_errcodes_ignore",
        4,
        &[("mpif08errcodes", 0)],
    ),
];

/// Open MPI's. Those of mpi_f08 are the same variables.
const OPEN_MPI_BLOCKS: &[Block] = &[
    (
        "mpi_fortran_bottom_",
        4,
        &[("mpifbottom", 0), ("mpif08bottom", 0)],
    ),
    (
        "mpi_fortran_in_place_",
        4,
        &[("mpifinplace", 0), ("mpif08inplace", 0)],
    ),
    (
        "mpi_fortran_status_ignore_",
        24,
        &[("mpifstatus", 0), ("mpif08status", 0)],
    ),
    (
        "mpi_fortran_statuses_ignore_",
        24,
        &[("mpifstatuses", 0), ("mpif08statuses", 0)],
    ),
    (
        "mpi_fortran_errcodes_ignore_",
        4,
        &[("mpiferrcodes", 0), ("mpif08errcodes", 0)],
    ),
    (
        "mpi_fortran_unweighted_",
        4,
        &[("mpifunweighted", 0), ("mpif08unweighted", 0)],
    ),
    (
        "mpi_fortran_weights_empty_",
        4,
        &[("mpifweightsempty", 0), ("mpif08weightsempty", 0)],
    ),
    (
        "mpi_fortran_argv_null_",
        1,
        &[("mpifargv", 0), ("mpif08argv", 0)],
    ),
    (
        "mpi_fortran_argvs_null_",
        1,
        &[("mpifargvs", 0), ("mpif08argvs", 0)],
    ),
];

fn generated_header(abi: Abi) -> String {
    let mut out = String::from("/* Made from crates/api; do not edit. */\n");
    entries::handles(&mut out);
    let blocks = match abi {
        Abi::Mpich => MPICH_BLOCKS,
        Abi::OpenMpi => OPEN_MPI_BLOCKS,
    };
    for (symbol, bytes, members) in blocks {
        let _ = writeln!(out, "SENTINEL({symbol}, {bytes})");
        for (name, at) in *members {
            let _ = writeln!(out, "#define {name}_ ({symbol} + {at})");
        }
    }
    // What the ABI does not have gets a variable that no program knows.
    for s in &SENTINELS {
        for module in [Module::Mpi, Module::MpiF08] {
            let symbol = module.sentinel_symbol(s);
            let known = |block: &Block| block.2.iter().any(|m| symbol == format!("{}_", m.0));
            if !blocks.iter().any(known) {
                let _ = writeln!(out, "SENTINEL({symbol}, {})", s.bytes);
            }
        }
    }
    out
}

fn source(abi: Abi) -> String {
    let mut out = entries::source_of_mpi(false);
    if abi == Abi::OpenMpi {
        // Choice buffers of its mpi_f08 are addresses, as those of mpi: one procedure for both.
        for procedure in procedures(Module::MpiF08).filter(|p| !p.large) {
            if entries::is_made(&procedure) && !entries::is_shared(&procedure) {
                let _ = writeln!(out, "ALIAS_F08({})", procedure.function.name.to_lowercase());
            }
        }
    }
    for handle in HANDLES {
        let _ = writeln!(out, "OPERATORS({})", handle.to_lowercase());
    }
    if abi == Abi::Mpich {
        mpich_f08(&mut out);
    }
    out += "#ifndef MPIFORT_PROFILE\n";
    for (name, value) in integers(abi) {
        let module = match abi {
            Abi::Mpich => "mpi_f08_compile_constants",
            Abi::OpenMpi => "mpi_f08_types",
        };
        let _ = writeln!(
            out,
            "const fint __{module}_MOD_{} = {value};",
            name.to_lowercase()
        );
        if abi == Abi::OpenMpi {
            let _ = writeln!(
                out,
                "const fint ompi_f08_{} = {value};",
                name.to_lowercase()
            );
        }
    }
    for handle in HANDLES.iter().filter(|_| abi == Abi::OpenMpi) {
        let word = handle.trim_start_matches("MPI_").to_lowercase();
        for operator in ["eq", "ne"] {
            let _ = writeln!(
                out,
                "ALIAS(__mpi_f08_types_MOD_ompi_{word}_op_{operator}, \
                 mpi_{word}_{operator}_f08_)"
            );
        }
    }
    out += "#endif\n";
    out
}

/// What MPICH's modules of `mpi_f08` call beyond the procedures of `mpi`.
fn mpich_f08(out: &mut String) {
    *out += &entries::source_without_bind();
    let names = |p: &Procedure| {
        let name = p.function.name.to_lowercase();
        let suffix = if p.has_choice() { "f08ts" } else { "f08" };
        (
            format!("mpi_{name}_{suffix}_"),
            format!("{}_", p.specific().to_lowercase()),
            name,
            suffix,
        )
    };
    let made = procedures(Module::MpiF08).filter(entries::is_made);
    let known: Vec<Procedure> = made.filter(Procedure::has_choice).collect();
    *out += "#ifdef MPIFORT_PROFILE\n";
    for procedure in &known {
        let (_, ours, name, suffix) = names(procedure);
        let large = if procedure.large { "large_" } else { "" };
        let _ = writeln!(out, "ALIAS(pmpir_{name}_{suffix}_{large}, p{ours})");
    }
    *out += "#else\n";
    for procedure in known.iter().filter(|p| p.large) {
        let (theirs, ours, ..) = names(procedure);
        let _ = writeln!(out, "ALIAS({theirs}large_, {ours})");
    }
    for handle in HANDLES {
        let ours = handle.to_lowercase();
        let short = match ours.as_str() {
            "mpi_datatype" => "datatype",
            other => other.trim_start_matches("mpi_"),
        };
        for (operator, other) in [("eq", "eq"), ("ne", "neq")] {
            for form in ["", "_f08_f", "_f_f08"] {
                let theirs = match form {
                    "" => format!("{ours}_{other}"),
                    "_f08_f" => format!("{ours}_f08_{other}_f"),
                    _ => format!("{ours}_f_{other}_f08"),
                };
                let _ = writeln!(
                    out,
                    "ALIAS(__mpi_f08_types_MOD_{theirs}, {ours}_{operator}_f08_)"
                );
            }
            let _ = writeln!(
                out,
                "ALIAS(__mpi_constants_MOD_{short}{other}, {ours}_{operator}_f08_)"
            );
        }
    }
    *out += "#endif\n";
}

/// INTEGERs of the predefined handles.
pub(super) fn integers(abi: Abi) -> Vec<(&'static str, i64)> {
    let handles = GROUPS.iter().filter(|g| super::table::is_handles(g));
    let names = handles.flat_map(|g| g.constants).map(|c| c.0);
    match abi {
        Abi::Mpich => {
            let table = Table::of(abi);
            let value = |name| Some((name, i64::from(table.value(name)? as i32)));
            names.filter_map(value).collect()
        }
        Abi::OpenMpi => {
            let table = Table::of_text(OPEN_MPI_INTEGERS);
            names
                .filter_map(|name| Some((name, table.value(name)?)))
                .collect()
        }
    }
}

/// Open MPI's INTEGERs of predefined handles as Rust text: for each kind the standard ABI's handles
/// by these numbers, 0 for none.
pub(super) fn rust_integers() -> String {
    let known = integers(Abi::OpenMpi);
    let mut out = String::new();
    for group in GROUPS.iter().filter(|g| super::table::is_handles(g)) {
        let crate::constants::Form::Handle(c) = group.form else {
            continue;
        };
        let mut handles = vec![0; 128];
        for (name, standard) in group.constants {
            if let Some((_, at)) = known.iter().find(|k| k.0 == *name) {
                handles[*at as usize] = *standard;
            }
        }
        while handles.last() == Some(&0) {
            handles.pop();
        }
        let _ = writeln!(
            out,
            "/// {}, by their INTEGERs in Fortran.\npub const {}_INTEGERS: &[u64] = &{handles:?};",
            group.title,
            c.trim_start_matches("MPI_").to_uppercase()
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_has_a_place() {
        for abi in [Abi::Mpich, Abi::OpenMpi] {
            let text = generated_header(abi);
            for s in &SENTINELS {
                assert!(text.contains(&format!("{}_", s.block)), "{}", s.name);
            }
        }
        assert!(generated_header(Abi::Mpich).contains("#define mpifinplace_ (mpipriv1_ + 4)"));
    }

    #[test]
    fn integers_of_predefined_handles() {
        assert!(integers(Abi::OpenMpi).contains(&("MPI_DOUBLE_PRECISION", 17)));
        assert!(integers(Abi::Mpich).contains(&("MPI_COMM_WORLD", 0x4400_0000)));
        assert!(source(Abi::OpenMpi).contains("ALIAS_F08(send)"));
        assert!(rust_integers().contains("COMM_INTEGERS: &[u64] = &[257, 258, 256]"));
    }
}
