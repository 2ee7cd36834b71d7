//! Choice buffers of `mpi_f08`: descriptors, maybe of array sections that are not contiguous.

use super::argument::Argument;
use super::lower::{Lowered, Usual};
use super::{Module, Procedure};
use crate::Parameter;

/// How the elements of a buffer are found.
enum Layout<'a> {
    /// By the address alone.
    Address,
    /// One run of elements: a count and a type, which a datatype for the section replaces.
    Run(&'a Parameter, &'a Parameter),
    /// One run for each process, with a type. It is replaced if the elements have one stride.
    Runs(&'a Parameter),
    /// Elements of a predefined type, bytes, or types of each process: a copy serves.
    Copy,
}

/// The function that turns an address into what C expects: MPI_BOTTOM and so on.
pub fn sentinel_check(a: &Argument) -> &'static str {
    let kind = &a.parameter.kind;
    if kind.may_be_in_place() {
        "address_or_in_place"
    } else if kind.is("pointer") {
        "address_or_automatic"
    } else {
        "address_in"
    }
}

/// A C expression: is the argument MPI_IN_PLACE? False for a procedure without such an argument.
pub fn is_in_place(procedure: &Procedure, name: &str) -> String {
    match procedure.module {
        Module::Mpi => format!("is_in_place({name})"),
        Module::MpiF08 => format!("is_in_place_f08({name})"),
    }
}

fn layout<'a>(procedure: &'a Procedure, a: &Argument) -> Layout<'a> {
    let f = procedure.function;
    let parameters: Vec<&Parameter> = f.parameters_of(procedure.large).collect();
    let at = parameters.iter().position(|p| p.name == a.parameter.name);
    let rest = &parameters[at.map_or(0, |at| at + 1)..];
    let of_buffer: Vec<&Parameter> = rest
        .iter()
        .take_while(|p| !p.kind.is_buffer() && !p.kind.is("address"))
        .copied()
        .collect();
    let find = |words: &[&str]| {
        let found = of_buffer
            .iter()
            .find(|p| words.iter().any(|w| p.kind.is(w)));
        found.copied()
    };
    let ty = of_buffer
        .iter()
        .find(|p| p.kind.to_string().trim_end_matches('?') == "ctype")
        .copied();
    let count = find(&["n", "num", "n64"]);
    let lower = f.name.to_lowercase();
    let reduces = f.parameters.iter().any(|p| p.kind.is("op")) && f.chapter != "rma";
    let sends = a.parameter.name == "sendbuf";
    let many = if lower.contains("alltoall") {
        true
    } else if lower.contains("gather") {
        !sends
    } else if lower.contains("scatter") {
        sends
    } else {
        is_partitioned(procedure)
    };
    match (ty, count) {
        (None, _) if a.parameter.kind.is("pointer") => Layout::Address,
        _ if reduces || lower.contains("alltoallw") => Layout::Copy,
        (None, Some(_)) => Layout::Copy,
        (Some(ty), _) if many => Layout::Runs(ty),
        (Some(ty), Some(count)) => Layout::Run(count, ty),
        _ if find(&["aint/num"]).is_some() && f.chapter == "datatype" => Layout::Copy,
        _ => Layout::Address,
    }
}

/// Lowers a descriptor. The argument's count and type, where it has such, are replaced by what
/// [`replaced`] says.
pub fn lower(procedure: &Procedure, a: &Argument, l: &mut Lowered) {
    let name = &a.parameter.name;
    let local = format!("{name}_c");
    let base = format!("{}_f08({name})", sentinel_check(a));
    let (count, ty, function) = match layout(procedure, a) {
        Layout::Address => {
            l.pass = base;
            return;
        }
        Layout::Run(count, ty) => (
            format!("*{}", count.name),
            format!("type_in(*{})", ty.name),
            "section",
        ),
        Layout::Runs(ty) => {
            // The elements of a partition are all that a copy has to know.
            let count = if is_partitioned(procedure) {
                "*count"
            } else {
                "0"
            };
            (count.into(), format!("type_in(*{})", ty.name), "strided")
        }
        Layout::Copy => ("0".into(), "MPI_DATATYPE_NULL".into(), "copied"),
    };
    l.before.push(format!(
        "struct buffer {local} = {{{base}, {count}, {ty}, 0}};"
    ));
    l.before.push(format!("if (!err && !is_dense({name}))"));
    l.before
        .push(format!("    err = {function}({name}, &{local});"));
    l.pass = format!("{local}.at");
    l.usual = Some(Usual::Dense(base.clone()));
    let persistent = procedure.function.name.ends_with("_init");
    let bits = [
        (procedure_writes(a), "RECEIVES"),
        (persistent, "PERSISTENT"),
        (is_partitioned(procedure), "PARTITIONS"),
    ];
    let bits: Vec<&str> = bits.iter().filter(|b| b.0).map(|b| b.1).collect();
    let how = if bits.is_empty() {
        "0".into()
    } else {
        bits.join(" | ")
    };
    let has_request = procedure
        .function
        .parameters
        .iter()
        .any(|p| p.name == "request");
    let request = if has_request { "request" } else { "NULL" };
    l.after.push(format!("if ({local}.made)"));
    l.after.push(format!(
        "    section_done({name}, &{local}, err, {request}, {how});"
    ));
}

fn is_partitioned(procedure: &Procedure) -> bool {
    procedure.function.chapter == "part"
}

fn procedure_writes(a: &Argument) -> bool {
    a.parameter.kind.to_string().starts_with("rbuf")
}

/// What is passed for a parameter that belongs to a descriptor: a count or a type.
pub fn replaced(procedure: &Procedure, parameter: &Parameter) -> Option<String> {
    if procedure.module == Module::Mpi {
        return None;
    }
    let arguments = procedure.arguments();
    for a in arguments
        .iter()
        .filter(|a| a.parameter.kind.is_buffer() || a.parameter.kind.is("address"))
    {
        let buffer = format!("{}_c", a.parameter.name);
        let cast = if procedure.large || parameter.kind.is("n64") {
            ""
        } else {
            "(int) "
        };
        match layout(procedure, a) {
            Layout::Run(count, _) if count.name == parameter.name => {
                return Some(format!("{cast}{buffer}.n"));
            }
            Layout::Run(_, ty) | Layout::Runs(ty) if ty.name == parameter.name => {
                return Some(format!("{buffer}.type"));
            }
            _ => {}
        }
    }
    None
}
