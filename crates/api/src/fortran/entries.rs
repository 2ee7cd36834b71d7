//! The C sources of `libmpifort_abi.so.1`.

use super::argument::{Argument, Base};
use super::constants::{HANDLES, SENTINELS};
use super::lower::{Lowered, Usual, lower};
use super::text::c_statement;
use super::{Module, Procedure, procedures, section};
use crate::Returns;
use crate::kind::{Kind, Passing};
use std::fmt::Write;

/// Sources that are the same for all procedures: names and texts.
pub const SOURCES: [(&str, &str); 10] = [
    ("mpifort.h", include_str!("../../fortran/mpifort.h")),
    ("convert.c", include_str!("../../fortran/convert.c")),
    ("section.c", include_str!("../../fortran/section.c")),
    ("copies.c", include_str!("../../fortran/copies.c")),
    ("callback.c", include_str!("../../fortran/callback.c")),
    ("attribute.c", include_str!("../../fortran/attribute.c")),
    ("register.c", include_str!("../../fortran/register.c")),
    ("special.c", include_str!("../../fortran/special.c")),
    ("removed.c", include_str!("../../fortran/removed.c")),
    ("sizes.c", include_str!("../../fortran/sizes.c")),
];

/// Functions whose procedures are written by hand, in `special.c` and `callback.c`.
const BY_HAND: [&str; 25] = [
    "Attr_get",
    "Attr_put",
    "Keyval_create",
    "Comm_create_keyval",
    "Comm_get_attr",
    "Comm_set_attr",
    "Type_create_keyval",
    "Type_get_attr",
    "Type_set_attr",
    "Win_create_keyval",
    "Win_get_attr",
    "Win_set_attr",
    "Op_create",
    "Comm_create_errhandler",
    "Win_create_errhandler",
    "File_create_errhandler",
    "Session_create_errhandler",
    "Grequest_start",
    "Register_datarep",
    "Comm_spawn",
    "Comm_spawn_multiple",
    "Info_get",
    "Info_get_string",
    "Session_get_nth_pset",
    "Pcontrol",
];

/// Functions after which the library can be told about Fortran.
const INITIALIZING: [&str; 3] = ["Init", "Init_thread", "Session_init"];

const TOP: &str = "/* Procedures of Fortran on the C functions of the standard ABI.
 *
 * Made from crates/api/mpi.api; do not edit.
 */
#include \"mpifort.h\"
";

/// The generated header: handles, variables whose address has a meaning.
pub fn header() -> String {
    let mut out = String::from("/* Made from crates/api/mpi.api; do not edit. */\n");
    handles(&mut out);
    for s in &SENTINELS {
        for module in [Module::Mpi, Module::MpiF08] {
            let symbol = module.sentinel_symbol(s);
            let _ = writeln!(out, "SENTINEL({symbol}, {})", s.bytes);
        }
    }
    out
}

/// A line for each type of handles: its C type, the word for it, its part of functions' names.
pub fn handles(out: &mut String) {
    for handle in HANDLES {
        let word = super::lower::handle_word(handle);
        let short = match word.as_str() {
            "type" => "Type",
            _ => handle.trim_start_matches("MPI_"),
        };
        let _ = writeln!(out, "HANDLE({handle}, {word}, {short})");
    }
}

/// Is the procedure made from the description?
pub fn is_made(procedure: &Procedure) -> bool {
    !BY_HAND.contains(&procedure.function.name.as_str())
}

/// The procedures of the module `mpi`, and those of `mpi_f08` that are the same functions.
/// `splits`: the usual case of a transfer's arguments, with predefined handles, is apart.
pub fn source_of_mpi(splits: bool) -> String {
    let mut out = TOP.to_string();
    for procedure in procedures(Module::Mpi).filter(is_made) {
        let name = procedure.function.name.as_str();
        entry(&mut out, &procedure, splits, Descriptors::Standard);
        let (lower, upper) = (name.to_lowercase(), name.to_uppercase());
        let _ = writeln!(out, "ALIASES({lower}, {upper})");
        if procedure.has_pointer_form() {
            let _ = writeln!(out, "ALIAS_FORM({lower}_cptr, {lower})");
        }
        if is_shared(&procedure) {
            let _ = writeln!(out, "ALIAS_F08({lower})");
        }
    }
    out
}

/// The procedures of both modules that are made from the description.
pub fn source() -> String {
    let mut out = source_of_mpi(true);
    for procedure in procedures(Module::MpiF08).filter(is_made) {
        if !is_shared(&procedure) {
            entry(&mut out, &procedure, true, Descriptors::Standard);
        }
    }
    for handle in HANDLES {
        let _ = writeln!(out, "OPERATORS({})", handle.to_lowercase());
    }
    out
}

/// The procedures of `mpi_f08` that have choice buffers, for callers that know them without
/// BIND(C): gfortran passes descriptors of its own form, and strings as elsewhere. Large ones have
/// other names, too.
pub fn source_without_bind() -> String {
    let mut out = String::new();
    for procedure in procedures(Module::MpiF08).filter(is_made) {
        if procedure.has_choice() {
            entry(&mut out, &procedure, false, Descriptors::Gfortran);
        }
    }
    out
}

/// Forms of descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descriptors {
    /// As of BIND(C) procedures.
    Standard,
    /// As of gfortran's other procedures.
    Gfortran,
}

/// Is one C function the procedure of both modules? The types of `mpi_f08` look in memory as those
/// of `mpi`.
pub fn is_shared(procedure: &Procedure) -> bool {
    let of = |module| Procedure {
        module,
        large: false,
        ..*procedure
    };
    let bases = |module| -> Vec<_> {
        let arguments = of(module).arguments().into_iter();
        arguments.map(|a| a.base == Base::Choice).collect()
    };
    !procedure.large && !of(Module::MpiF08).has_choice() && bases(Module::Mpi).iter().all(|c| !c)
}

/// Writes a procedure as a C function. `splits`: as for [`source_of_mpi`].
fn entry(out: &mut String, procedure: &Procedure, splits: bool, descriptors: Descriptors) {
    let f = procedure.function;
    let arguments = procedure.arguments();
    let lowered: Vec<Lowered> = arguments.iter().map(|a| lower(procedure, a)).collect();
    let mut parameters: Vec<String> = lowered.iter().map(|l| l.parameter.clone()).collect();
    if procedure.has_error() {
        parameters.push("fint *ierror".into());
    }
    parameters.extend(lowered.iter().filter_map(|l| l.hidden.clone()));
    let mut names: Vec<String> = arguments.iter().map(|a| a.parameter.name.clone()).collect();
    let hidden = lowered.iter().filter_map(|l| l.hidden.as_ref());
    let hidden_names = hidden.filter_map(|h| Some(h.split(' ').next_back()?.to_string()));
    if procedure.has_error() {
        names.push("ierror".into());
    }
    names.extend(hidden_names);
    let name = match procedure.module {
        Module::Mpi => format!("mpi_{}_", f.name.to_lowercase()),
        Module::MpiF08 => format!("{}_", procedure.specific().to_lowercase()),
    };
    let result = match f.returns {
        Returns::Code | Returns::Int => "void",
        ref other => other.c(),
    };
    if parameters.is_empty() {
        parameters.push("void".into());
    }
    let head = |before: &str, name: &str| {
        let parameters = parameters.join(", ");
        c_statement(0, &format!("{before}{result} {name}({parameters})"))
    };
    out.push('\n');
    let transfers = splits && arguments.iter().any(|a| a.base == Base::Choice);
    let unusual = unusual(&arguments, &lowered).filter(|_| transfers);
    if unusual.is_some() {
        // Apart, so that the usual case calls nothing before MPI and saves no registers for it.
        *out += &head("static COLD ", &format!("unusual_{name}"));
        out.push_str("{\n");
        body(out, procedure, &arguments, &lowered, false);
        out.push_str("}\n\n");
    }
    match descriptors {
        Descriptors::Standard => *out += &head("", &format!("N({name})")),
        Descriptors::Gfortran => *out += &head("static ", &format!("standard_{name}")),
    }
    out.push_str("{\n");
    if let Some(condition) = unusual {
        *out += &c_statement(4, &format!("if (UNLIKELY({condition})) {{"));
        *out += &c_statement(8, &format!("unusual_{name}({});", names.join(", ")));
        out.push_str("        return;\n    }\n");
    }
    body(out, procedure, &arguments, &lowered, transfers);
    out.push_str("}\n");
    if descriptors == Descriptors::Gfortran {
        from_gfortran(out, &name, &arguments, &lowered);
    }
}

/// The procedure that gets gfortran's descriptors and calls the one with those of BIND(C).
fn from_gfortran(out: &mut String, name: &str, arguments: &[Argument], lowered: &[Lowered]) {
    let (mut parameters, mut hidden) = (Vec::new(), Vec::new());
    let (mut before, mut passed) = (Vec::new(), Vec::new());
    for (a, l) in arguments.iter().zip(lowered) {
        let word = &a.parameter.name;
        if !l.parameter.starts_with("struct descriptor *") {
            parameters.push(l.parameter.clone());
            passed.push(word.clone());
        } else if a.base == Base::Choice {
            parameters.push(format!("const struct gfortran_descriptor *{word}"));
            before.push(format!("struct any_rank {word}_d;"));
            passed.push(format!("from_gfortran({word}, &{word}_d)"));
        } else {
            parameters.push(format!("char *{word}"));
            hidden.push(format!("size_t {word}_len"));
            before.push(format!(
                "struct descriptor {word}_d = {{.base = {word}, .elem_len = {word}_len}};"
            ));
            passed.push(format!("&{word}_d"));
        }
    }
    parameters.push("fint *ierror".into());
    passed.push("ierror".into());
    parameters.append(&mut hidden);
    *out += &c_statement(0, &format!("void N({name})({})", parameters.join(", ")));
    out.push_str("{\n");
    for line in before {
        *out += &c_statement(4, &line);
    }
    *out += &c_statement(4, &format!("standard_{name}({});", passed.join(", ")));
    out.push_str("}\n");
}

/// The condition in which a call is not the usual case of its arguments. `None` if there is no
/// difference.
fn unusual(arguments: &[Argument], lowered: &[Lowered]) -> Option<String> {
    let (mut handles, mut conditions) = (Vec::new(), Vec::new());
    for (a, l) in arguments.iter().zip(lowered) {
        let name = &a.parameter.name;
        match l.usual {
            Some(Usual::Dense(_)) => conditions.push(format!("!is_dense({name})")),
            Some(Usual::Predefined(_)) => handles.push(format!("(unsigned) *{name}")),
            None => {}
        }
    }
    if !handles.is_empty() {
        conditions.insert(0, format!("({}) >= PREDEFINED", handles.join(" | ")));
    }
    (!conditions.is_empty()).then(|| conditions.join(" || "))
}

/// What a procedure does, always or in the usual case of its arguments.
fn body(
    out: &mut String,
    procedure: &Procedure,
    arguments: &[Argument],
    lowered: &[Lowered],
    usual: bool,
) {
    let f = procedure.function;
    // What C gets, in its order.
    let mut passed = Vec::new();
    for p in f.parameters_of(procedure.large) {
        let found = arguments.iter().position(|a| a.parameter.name == p.name);
        let replaced = section::replaced(procedure, p).filter(|_| !usual);
        passed.push(match (replaced, found) {
            (Some(text), _) => text,
            (None, Some(at)) => {
                let direct = lowered[at].usual.as_ref().filter(|_| usual);
                direct
                    .map_or(lowered[at].pass.as_str(), Usual::pass)
                    .to_string()
            }
            (None, None) if p.kind.is("len") => "0".into(),
            (None, None) => "NULL".into(),
        });
    }
    let large = if procedure.large { "_c" } else { "" };
    let call = format!("M({}{large})({})", f.name, passed.join(", "));
    if !matches!(f.returns, Returns::Code | Returns::Int) {
        *out += &c_statement(4, &format!("return {call};"));
        return;
    }
    out.push_str("    int err = 0;\n");
    let takes_part = |l: &&Lowered| !(usual && l.usual.is_some());
    for line in lowered.iter().filter(takes_part).flat_map(|l| &l.before) {
        *out += &c_statement(4, line);
    }
    let before = lowered.iter().filter(takes_part).flat_map(|l| &l.before);
    if before.clone().any(|line| line.contains("err =")) {
        out.push_str("    if (!err)\n    ");
    }
    *out += &c_statement(4, &format!("err = {call};"));
    if INITIALIZING.contains(&f.name.as_str()) {
        out.push_str("    if (!err)\n        register_fortran();\n");
    }
    // Handles that are new come first: others need the request.
    let is_new = |at: &usize| {
        matches!(
            arguments[*at].parameter.kind,
            Kind::Object(_, Passing::New | Passing::NewMaybe)
        )
    };
    let order = (0..arguments.len()).filter(is_new);
    let order = order.chain((0..arguments.len()).filter(|at| !is_new(at)));
    for l in order.map(|at| &lowered[at]).filter(takes_part) {
        for line in &l.after {
            *out += &c_statement(4, line);
        }
    }
    out.push_str("    error_out(ierror, err);\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(name: &str) -> String {
        let text = source();
        let from = text.find(&format!("{name}(")).unwrap();
        text[from..].split_once("\n}\n").unwrap().0.into()
    }

    #[test]
    fn procedures_by_hand_are_functions() {
        let mut hand: Vec<&str> = BY_HAND.to_vec();
        hand.retain(|name| !crate::functions().iter().any(|f| f.name == *name));
        assert!(hand.is_empty(), "{hand:?}");
    }

    #[test]
    fn each_shape_of_argument() {
        let send = text_of("N(mpi_send_)");
        assert!(
            send.contains("M(Send)(address_in(buf), *count, (MPI_Datatype) (intptr_t) *datatype"),
            "{send}"
        );
        let wait = text_of("N(mpi_waitany_)");
        assert!(wait.contains("index_out(indx_c)"), "{wait}");
        let dense = text_of("N(mpi_send_f08ts_)");
        assert!(
            dense.contains("M(Send)(address_in_f08(buf), *count, (MPI_Datatype)"),
            "{dense}"
        );
        let sections = text_of("unusual_mpi_send_f08ts_");
        assert!(sections.contains("(int) buf_c.n, buf_c.type"), "{sections}");
        let large = text_of("unusual_mpi_bcast_c_f08ts_");
        assert!(large.contains(" buffer_c.n,"), "{large}");
    }
}
