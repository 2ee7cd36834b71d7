//! The C header with which the Fortran library of an ABI is compiled. Programs have that ABI's own.

use super::table::Table;
use super::{Abi, table};
use crate::constants::{Form, GROUPS};
use crate::fortran::constants::HANDLES;
use crate::functions;
use std::fmt::Write;

const TOP: &str =
    "/* Types, constants and functions of another ABI in C, as Ferry's Fortran library
 * of that ABI uses them.
 *
 * Made from crates/api/mpi.api and crates/api/abis; do not edit.
 */
#include <stddef.h>
#include <stdint.h>

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef int64_t MPI_Count;
typedef int MPI_Fint;
";

/// Types, and constants that are addresses of exported objects or functions, of MPICH.
const MPICH: &str = "
typedef struct {
    int count_low;
    int count_high_and_cancelled;
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
} MPI_Status;

extern int *const MPI_UNWEIGHTED;
extern int *const MPI_WEIGHTS_EMPTY;
extern void MPIR_Dup_fn(void);
#define DUP_FUNCTION(WORD) MPIR_Dup_fn
";

/// The same of Open MPI.
const OPEN_MPI: &str = "
typedef struct {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int cancelled;
    size_t bytes;
} MPI_Status;

extern void OMPI_C_MPI_COMM_DUP_FN(void);
extern void OMPI_C_MPI_TYPE_DUP_FN(void);
extern void OMPI_C_MPI_WIN_DUP_FN(void);
#define DUP_FUNCTION(WORD) OMPI_C_MPI_##WORD##_DUP_FN
";

/// Functions that the standard ABI does not have.
const OTHER_FUNCTIONS: &str = "
int MPI_Type_struct(int count, int *lengths, MPI_Aint *displacements, MPI_Datatype *types,
                    MPI_Datatype *newtype);
int PMPI_Type_struct(int count, int *lengths, MPI_Aint *displacements, MPI_Datatype *types,
                     MPI_Datatype *newtype);
";

/// The text of the header.
pub fn mpi_h(abi: Abi) -> String {
    let table = Table::of(abi);
    let mut out = String::from(TOP);
    out += match abi {
        Abi::Mpich => MPICH,
        Abi::OpenMpi => OPEN_MPI,
    };
    out.push('\n');
    for handle in HANDLES {
        let _ = match abi {
            Abi::Mpich if handle != "MPI_File" => writeln!(out, "typedef int {handle};"),
            _ => writeln!(out, "typedef struct {handle}_object *{handle};"),
        };
    }
    for group in GROUPS {
        constants(&mut out, abi, &table, group);
    }
    for (result, name, parameters) in crate::header::FUNCTION_TYPES {
        if !name.starts_with("T_") {
            let _ = writeln!(out, "typedef {result} (MPI_{name})({parameters});");
        }
    }
    for prefix in ["", "P"] {
        for f in functions().iter().filter(|f| f.chapter != "tool") {
            for (_, large) in f.forms() {
                let _ = writeln!(out, "{};", f.prototype(prefix, large));
            }
        }
    }
    for handle in HANDLES {
        let name = match handle {
            "MPI_Datatype" => "Type",
            _ => handle.trim_start_matches("MPI_"),
        };
        let _ = writeln!(
            out,
            "MPI_Fint PMPI_{name}_c2f({handle} handle);\n{handle} PMPI_{name}_f2c(MPI_Fint number);"
        );
    }
    out += OTHER_FUNCTIONS;
    out
}

fn constants(out: &mut String, abi: Abi, table: &Table, group: &crate::constants::Group) {
    let of_tools = |name: &str| name.starts_with("MPI_T_");
    for (name, standard) in group.constants.iter().filter(|c| !of_tools(c.0)) {
        let text = table.text(name);
        let _ = match (group.form, text) {
            (Form::Handle(c), _) if table::is_handles(group) => match (abi, text) {
                (Abi::OpenMpi, Some(object)) => {
                    writeln!(
                        out,
                        "extern char {object}[];\n#define {name} (({c}) {object})"
                    )
                }
                _ => writeln!(out, "#define {name} (({c}) {})", text.unwrap_or("0")),
            },
            (Form::Pointer(c), Some(text)) => {
                writeln!(out, "#define {name} (({}) {text})", pointer(c))
            }
            // Not in this ABI's headers: as the standard one has it.
            (Form::Pointer(c), None) if *name == "MPI_BUFFER_AUTOMATIC" => {
                writeln!(out, "#define {name} (({}) {standard})", pointer(c))
            }
            (Form::Pointer(_), None) => Ok(()),
            (_, Some(text)) => writeln!(out, "#define {name} {text}"),
            (_, None) => Ok(()),
        };
    }
}

/// The type of a constant that is an address.
fn pointer(c: &str) -> String {
    format!("{} *", c.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_each_abi() {
        let mpich = mpi_h(Abi::Mpich);
        assert!(mpich.contains("#define MPI_COMM_WORLD ((MPI_Comm) 0x44000000)"));
        assert!(mpich.contains("typedef struct MPI_File_object *MPI_File;"));
        let open = mpi_h(Abi::OpenMpi);
        assert!(open.contains("#define MPI_INT ((MPI_Datatype) ompi_mpi_int)"));
        assert!(!open.contains("MPI_T_cvar"));
    }
}
