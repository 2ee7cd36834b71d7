//! Generates mpi.h from the descriptions of functions and constants.

use crate::constants::{ALIASES, Form, GROUPS};
use crate::functions;
use std::fmt::Write;

/// Handle types: the C name, and the part of the structure's name that differs.
const HANDLES: [&str; 17] = [
    "Comm",
    "Group",
    "Datatype",
    "Op",
    "Request",
    "Message",
    "Info",
    "Errhandler",
    "Win",
    "File",
    "Session",
    "T_enum",
    "T_cvar_handle",
    "T_pvar_handle",
    "T_pvar_session",
    "T_event_registration",
    "T_event_instance",
];

/// Function types: result, name, parameters.
pub(crate) const FUNCTION_TYPES: &[(&str, &str, &str)] = &[
    (
        "void",
        "User_function",
        "void *invec, void *inoutvec, int *len, MPI_Datatype *datatype",
    ),
    (
        "void",
        "User_function_c",
        "void *invec, void *inoutvec, MPI_Count *len, MPI_Datatype *datatype",
    ),
    (
        "int",
        "Grequest_query_function",
        "void *extra_state, MPI_Status *status",
    ),
    ("int", "Grequest_free_function", "void *extra_state"),
    (
        "int",
        "Grequest_cancel_function",
        "void *extra_state, int complete",
    ),
    (
        "int",
        "Copy_function",
        "MPI_Comm comm, int keyval, void *extra_state, void *attribute_val_in, void \
         *attribute_val_out, int *flag",
    ),
    (
        "int",
        "Delete_function",
        "MPI_Comm comm, int keyval, void *attribute_val, void *extra_state",
    ),
    (
        "int",
        "Comm_copy_attr_function",
        "MPI_Comm comm, int keyval, void *extra_state, void *attribute_val_in, void \
         *attribute_val_out, int *flag",
    ),
    (
        "int",
        "Comm_delete_attr_function",
        "MPI_Comm comm, int keyval, void *attribute_val, void *extra_state",
    ),
    (
        "int",
        "Type_copy_attr_function",
        "MPI_Datatype datatype, int keyval, void *extra_state, void *attribute_val_in, void \
         *attribute_val_out, int *flag",
    ),
    (
        "int",
        "Type_delete_attr_function",
        "MPI_Datatype datatype, int keyval, void *attribute_val, void *extra_state",
    ),
    (
        "int",
        "Win_copy_attr_function",
        "MPI_Win win, int keyval, void *extra_state, void *attribute_val_in, void \
         *attribute_val_out, int *flag",
    ),
    (
        "int",
        "Win_delete_attr_function",
        "MPI_Win win, int keyval, void *attribute_val, void *extra_state",
    ),
    (
        "void",
        "Comm_errhandler_function",
        "MPI_Comm *comm, int *error_code, ...",
    ),
    (
        "void",
        "Win_errhandler_function",
        "MPI_Win *win, int *error_code, ...",
    ),
    (
        "void",
        "File_errhandler_function",
        "MPI_File *file, int *error_code, ...",
    ),
    (
        "void",
        "Session_errhandler_function",
        "MPI_Session *session, int *error_code, ...",
    ),
    (
        "int",
        "Datarep_extent_function",
        "MPI_Datatype datatype, MPI_Aint *extent, void *extra_state",
    ),
    (
        "int",
        "Datarep_conversion_function",
        "void *userbuf, MPI_Datatype datatype, int count, void *filebuf, MPI_Offset position, void \
         *extra_state",
    ),
    (
        "int",
        "Datarep_conversion_function_c",
        "void *userbuf, MPI_Datatype datatype, MPI_Count count, void *filebuf, MPI_Offset \
         position, void *extra_state",
    ),
    (
        "void",
        "T_event_cb_function",
        "MPI_T_event_instance event_instance, MPI_T_event_registration event_registration, \
         MPI_T_cb_safety cb_safety, void *user_data",
    ),
    (
        "void",
        "T_event_free_cb_function",
        "MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety, void *user_data",
    ),
    (
        "void",
        "T_event_dropped_cb_function",
        "MPI_Count count, MPI_T_event_registration event_registration, int source_index, \
         MPI_T_cb_safety cb_safety, void *user_data",
    ),
];

const TOP: &str = "/* mpi.h of Ferry MPI: the MPI 5.0 standard ABI for C and C++.
 *
 * Made from crates/api/mpi.api; do not edit. Programs compiled with this file run on any library
 * that implements the standard ABI, and the other way round.
 */
#ifndef MPI_H_ABI /* the guard of the ABI's public stub header, by which programs recognise it */
#define MPI_H_ABI

#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef int64_t MPI_Count;

typedef struct {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;
";

/// The text of mpi.h.
pub fn mpi_h() -> String {
    let mut out = String::from(TOP);
    out += "\n/* Handles */\n";
    for name in HANDLES {
        let _ = writeln!(out, "typedef struct MPI_ABI_{name} *MPI_{name};");
    }
    let enumerations = |out: &mut String, types: bool| {
        for group in GROUPS
            .iter()
            .filter(|g| matches!(g.form, Form::Enumeration(_)) == types)
        {
            constants(out, group.title, group.form, group.constants);
        }
    };
    enumerations(&mut out, true);
    out += "\n/* Functions that programs pass */\n";
    for (result, name, parameters) in FUNCTION_TYPES {
        let _ = writeln!(out, "typedef {result} (MPI_{name})({parameters});");
    }
    for object in ["Comm", "Win", "File", "Session"] {
        let _ = writeln!(
            out,
            "typedef MPI_{object}_errhandler_function MPI_{object}_errhandler_fn;"
        );
    }
    enumerations(&mut out, false);
    out += "\n/* Second names */\n";
    for (name, of) in ALIASES {
        let _ = writeln!(out, "#define {name} {of}");
    }
    for (prefix, title) in [
        ("", "Functions"),
        ("P", "The same under the names that tools call"),
    ] {
        let _ = writeln!(out, "\n/* {title} */");
        for f in functions() {
            for (_, large) in f.forms() {
                let note = f.deprecated.as_ref().map_or(String::new(), |v| {
                    format!(" /* deprecated since MPI {v} */")
                });
                let _ = writeln!(out, "{};{note}", f.prototype(prefix, large));
            }
        }
    }
    out += &crate::fortran::header::conversions();
    out += "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    out
}

fn constants(out: &mut String, title: &str, form: Form, all: &[(&str, i64)]) {
    let _ = writeln!(out, "\n/* {title} */");
    match form {
        Form::Enumerators | Form::Enumeration(_) => {
            out.push_str(match form {
                Form::Enumeration(_) => "typedef enum {\n",
                _ => "enum {\n",
            });
            for (at, (name, value)) in all.iter().enumerate() {
                let comma = if at + 1 < all.len() { "," } else { "" };
                let _ = writeln!(out, "    {name} = {value}{comma}");
            }
            match form {
                Form::Enumeration(name) => {
                    let _ = writeln!(out, "}} {name};");
                }
                _ => out.push_str("};\n"),
            }
        }
        Form::Numbers => {
            for (name, value) in all {
                let _ = writeln!(out, "#define {name} {value}");
            }
        }
        Form::Handle(c) => {
            for (name, value) in all {
                let _ = if *value < 0 {
                    writeln!(out, "#define {name} (({c}){value})")
                } else {
                    writeln!(out, "#define {name} (({c})0x{value:03x})")
                };
            }
        }
        Form::Pointer(c) => {
            for (name, value) in all {
                let _ = writeln!(out, "#define {name} (({} *){value})", c.trim_end());
            }
        }
    }
}
