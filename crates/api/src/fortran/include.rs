//! `mpif.h`: lines that fixed and free form both read, at most 72 columns, without continuation.

use super::constants::{FORTRAN_NUMBERS, SENTINELS, constants};
use std::fmt::Write;

const TOP: &str = "! mpif.h of Ferry MPI, for the MPI 5.0 standard ABI. Deprecated since MPI 4.1:
! new programs use the module mpi_f08.
!
! Made from crates/api/mpi.api; do not edit.
";

/// Functions that return a time.
const TIMES: [&str; 4] = ["MPI_WTIME", "MPI_WTICK", "PMPI_WTIME", "PMPI_WTICK"];
/// Functions that return an address.
const ADDRESSES: [&str; 4] = [
    "MPI_AINT_ADD",
    "MPI_AINT_DIFF",
    "PMPI_AINT_ADD",
    "PMPI_AINT_DIFF",
];

/// The text of mpif.h.
pub fn mpif_h() -> String {
    let mut out = TOP.to_string();
    let mut number = |name: &str, value: i64| {
        let _ = writeln!(
            out,
            "      INTEGER {name}\n      PARAMETER ({name}={value})"
        );
    };
    for (name, value) in FORTRAN_NUMBERS {
        number(name, value);
    }
    for c in constants() {
        number(c.name, c.value);
    }
    out += "      INTEGER(KIND=MPI_OFFSET_KIND) MPI_DISPLACEMENT_CURRENT\n      \
            PARAMETER (MPI_DISPLACEMENT_CURRENT=-1)\n";
    for name in ["MPI_SUBARRAYS_SUPPORTED", "MPI_ASYNC_PROTECTS_NONBLOCKING"] {
        let _ = writeln!(
            out,
            "      LOGICAL {name}\n      PARAMETER ({name}=.FALSE.)"
        );
    }
    for s in &SENTINELS {
        let (ty, block) = (s.types[0].to_uppercase(), s.block.to_uppercase());
        let _ = writeln!(
            out,
            "      {ty} {}{}\n      COMMON /{block}/ {}\n      SAVE /{block}/",
            s.name, s.shapes[0], s.name
        );
    }
    for name in TIMES {
        let _ = writeln!(out, "      {CLOCK} {name}\n      EXTERNAL {name}");
    }
    for name in ADDRESSES {
        let _ = writeln!(
            out,
            "      INTEGER(KIND=MPI_ADDRESS_KIND) {name}\n      EXTERNAL {name}"
        );
    }
    for name in predefined_procedures() {
        let _ = writeln!(out, "      EXTERNAL {name}");
    }
    out
}

/// What the clocks return: C's double. Flags that make REAL wider, as gfortran's -fdefault-real-8,
/// make DOUBLE PRECISION wider than that, too, and this kind not.
const CLOCK: &str = "REAL(KIND=SELECTED_REAL_KIND(15,307))";

/// Procedures of the library that programs pass by name.
pub fn predefined_procedures() -> Vec<String> {
    let mut all = vec![];
    for word in ["MPI", "MPI_COMM", "MPI_TYPE", "MPI_WIN"] {
        all.extend(["DUP", "NULL_COPY", "NULL_DELETE"].map(|what| format!("{word}_{what}_FN")));
    }
    all.push("MPI_CONVERSION_FN_NULL".into());
    all
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_fit_fixed_form() {
        for line in super::mpif_h().lines() {
            let comment = line.starts_with('!');
            assert!(comment || line.starts_with("      "), "{line}");
            assert!(comment || line.len() <= 72, "{line}");
        }
    }
}
