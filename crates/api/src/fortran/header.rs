//! What `mpi.h` has for programs in C that speak to Fortran (MPI 5.0 §19.3.4, §19.3.5).
//!
//! The ABI has no MPI_Comm_c2f and its like, since they depend on the size of INTEGER. Here they
//! are inline functions on MPI_Comm_toint and its like. So a program that uses them needs no symbol
//! that another library of the ABI has not.

use super::constants::HANDLES;
use super::lower::handle_word;
use std::fmt::Write;

const TOP: &str = "
/* Conversions between C and Fortran. They are inline, since the ABI leaves them to each MPI: a
 * program that uses them runs on any library of the ABI. */
typedef int MPI_Fint;

typedef struct {
    MPI_Fint MPI_SOURCE;
    MPI_Fint MPI_TAG;
    MPI_Fint MPI_ERROR;
    MPI_Fint MPI_internal[5];
} MPI_F08_status;

/* Variables of libmpifort_abi.so.1. Without that library their addresses are null. */
extern MPI_Fint mpifstatus_[] __attribute__((weak));
extern MPI_Fint mpifstatuses_[] __attribute__((weak));
extern MPI_F08_status mpif08status_[] __attribute__((weak));
extern MPI_F08_status mpif08statuses_[] __attribute__((weak));
#define MPI_F_STATUS_IGNORE mpifstatus_
#define MPI_F_STATUSES_IGNORE mpifstatuses_
#define MPI_F08_STATUS_IGNORE mpif08status_
#define MPI_F08_STATUSES_IGNORE mpif08statuses_
";

/// Types of a status: the letters in the names of conversions, the C type, and whether its fields
/// have names.
const STATUSES: [(&str, &str, bool); 3] = [
    ("c", "MPI_Status", true),
    ("f", "MPI_Fint", false),
    ("f08", "MPI_F08_status", true),
];

/// The part of `mpi.h`.
pub fn conversions() -> String {
    let mut out = TOP.to_string();
    for prefix in ["", "P"] {
        out.push('\n');
        for handle in HANDLES {
            let word = handle_word(handle);
            // The functions for datatypes are called MPI_Type_.
            let name = match word.as_str() {
                "type" => "Type",
                _ => handle.trim_start_matches("MPI_"),
            };
            let _ = write!(
                out,
                "static __inline__ MPI_Fint {prefix}MPI_{name}_c2f({handle} {word})\n\
                 {{\n    return {prefix}MPI_{name}_toint({word});\n}}\n\
                 static __inline__ {handle} {prefix}MPI_{name}_f2c(MPI_Fint {word})\n\
                 {{\n    return {prefix}MPI_{name}_fromint({word});\n}}\n"
            );
        }
        for from in STATUSES {
            for to in STATUSES.iter().filter(|to| to.0 != from.0) {
                let name = format!("{prefix}MPI_Status_{}2{}", from.0, to.0);
                status(&mut out, &name, from, *to);
            }
        }
    }
    out
}

fn status(out: &mut String, name: &str, from: (&str, &str, bool), to: (&str, &str, bool)) {
    let _ = write!(
        out,
        "static __inline__ int {name}(const {} *from, {} *to)\n{{\n    int at;\n",
        from.1, to.1
    );
    let place = |of: (&str, &str, bool), name: &str, at: usize| match of.2 {
        true => format!("->{name}"),
        false => format!("[{at}]"),
    };
    for (at, field) in ["MPI_SOURCE", "MPI_TAG", "MPI_ERROR"]
        .into_iter()
        .enumerate()
    {
        let (to, from) = (place(to, field, at), place(from, field, at));
        let _ = writeln!(out, "    to{to} = from{from};");
    }
    let rest = |of: (&str, &str, bool)| match of.2 {
        true => "->MPI_internal[at]",
        false => "[3 + at]",
    };
    let _ = write!(
        out,
        "    for (at = 0; at < 5; at++)\n        to{} = from{};\n    return MPI_SUCCESS;\n}}\n",
        rest(to),
        rest(from)
    );
}

#[cfg(test)]
mod tests {
    #[test]
    fn conversions_of_handles_and_statuses() {
        let text = super::conversions();
        for name in [
            "MPI_Fint MPI_Comm_c2f(MPI_Comm comm)",
            "MPI_Datatype PMPI_Type_f2c(MPI_Fint type)",
            "int MPI_Status_f082c(const MPI_F08_status *from, MPI_Status *to)",
            "int MPI_Status_f2f08(const MPI_Fint *from, MPI_F08_status *to)",
        ] {
            assert!(text.contains(name), "{name}");
        }
    }
}
