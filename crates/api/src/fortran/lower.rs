//! How an argument of Fortran becomes an argument in C, and what comes back.

use super::argument::{Argument, Base, Intent, Shape};
use super::{Module, Procedure, section};
use crate::kind::{Kind, Passing};

/// The C text for one argument. The functions that it calls are in `crates/api/fortran/mpifort.h`.
#[derive(Clone, Default, Debug)]
pub struct Lowered {
    /// The declaration of the parameter.
    pub parameter: String,
    /// The declaration of the hidden length, which stands behind all other parameters.
    pub hidden: Option<String>,
    /// Statements before the call.
    pub before: Vec<String>,
    /// What is passed.
    pub pass: String,
    /// What is passed in the usual case, without `before` and `after`.
    pub usual: Option<Usual>,
    /// Statements behind the call.
    pub after: Vec<String>,
}

/// The usual case of an argument, in which nothing has to be called for it.
#[derive(Clone, Debug)]
pub enum Usual {
    /// The elements of a described buffer are one behind the other. What is passed.
    Dense(String),
    /// A handle is predefined. What is passed.
    Predefined(String),
}

impl Usual {
    /// What is passed.
    pub fn pass(&self) -> &str {
        match self {
            Usual::Dense(text) | Usual::Predefined(text) => text,
        }
    }
}

/// The word for the functions that convert handles of a C type: `comm` for `MPI_Comm`.
pub fn handle_word(c: &str) -> String {
    match c.trim_start_matches("MPI_").to_lowercase().as_str() {
        "datatype" => "type".into(),
        word => word.into(),
    }
}

fn null_of(c: &str) -> String {
    format!("{}_NULL", c.to_uppercase())
}

/// The C type of an element.
fn element(base: &Base) -> &'static str {
    match base {
        Base::Address => "MPI_Aint",
        Base::Count => "MPI_Count",
        Base::Offset => "MPI_Offset",
        Base::Status => "MPI_Status",
        Base::Choice | Base::Pointer => "void",
        Base::Text => "char",
        Base::Integer | Base::Logical | Base::Handle(_) | Base::Procedure(_) => "fint",
    }
}

/// Lowers an argument of a procedure. The statements use its other arguments by their C names.
pub fn lower(procedure: &Procedure, a: &Argument) -> Lowered {
    let name = &a.parameter.name;
    let local = format!("{name}_c");
    let mut l = Lowered {
        parameter: format!("{} *{name}", element(&a.base)),
        pass: name.clone(),
        ..Lowered::default()
    };
    let scalar = a.shape == Shape::Scalar;
    match &a.base {
        Base::Handle(c) if scalar => handle(procedure, a, c, &mut l),
        Base::Handle(c) => handles(procedure, a, c, &mut l),
        Base::Logical if scalar && a.intent == Intent::In && !a.parameter.kind.is("pointer") => {
            l.pass = format!("(*{name} != 0)");
        }
        Base::Logical if scalar && !a.parameter.kind.is("pointer") => {
            l.before.push(format!("int {local} = 0;"));
            l.pass = format!("&{local}");
            l.after.push(format!("*{name} = {local} != 0;"));
        }
        Base::Integer if is_index(a) => {
            l.before.push(format!("int {local} = MPI_UNDEFINED;"));
            l.pass = format!("&{local}");
            l.after.push(format!("*{name} = index_out({local});"));
        }
        Base::Integer | Base::Address | Base::Count | Base::Offset
            if scalar && a.intent == Intent::In =>
        {
            l.pass = format!("*{name}");
        }
        Base::Integer if name.ends_with("weights") => l.pass = format!("weights_in({name})"),
        Base::Integer if name == "array_of_indices" => {
            let count = "err ? 0 : *outcount";
            l.after.push(format!("indices_out({count}, {name});"));
        }
        Base::Integer if a.shape == Shape::Ranges => l.pass = format!("(int (*)[3]) {name}"),
        Base::Status if a.intent == Intent::Any => {
            let function = if scalar { "status_in" } else { "statuses_in" };
            l.pass = format!("{function}({name})");
        }
        Base::Text => text(procedure, a, &mut l),
        Base::Choice => choice(procedure, a, &mut l),
        _ => {}
    }
    l
}

/// An index into an array that the program passes: Fortran counts from one.
fn is_index(a: &Argument) -> bool {
    a.parameter.name == "indx" && a.shape == Shape::Scalar
}

fn handle(procedure: &Procedure, a: &Argument, c: &str, l: &mut Lowered) {
    let (name, word) = (&a.parameter.name, handle_word(c));
    let local = format!("{name}_c");
    match a.parameter.kind {
        Kind::Object(_, Passing::InOut) => {
            l.before.push(format!("{c} {local} = {word}_in(*{name});"));
            l.pass = format!("&{local}");
            let out = match (word.as_str(), procedure.function.name.as_str()) {
                (_, "Cancel") => None,
                ("request", "Start") => {
                    l.before.push(format!("requests_start(1, {name});"));
                    None
                }
                ("request", "Request_free") => {
                    l.before.push(format!("requests_complete(1, {name}, 1);"));
                    Some(format!("request_freed({name}, {local});"))
                }
                ("request", call) => {
                    let complete = if call == "Wait" { "1" } else { "flag_c" };
                    Some(format!(
                        "request_changed({name}, {local}, !err && {complete});"
                    ))
                }
                _ => Some(format!("*{name} = {word}_out({local});")),
            };
            l.after.extend(out);
        }
        Kind::Object(_, Passing::New | Passing::NewMaybe) => {
            l.before.push(format!("{c} {local} = {};", null_of(c)));
            l.pass = format!("&{local}");
            l.after.push("if (!err)".into());
            l.after.push(format!("    *{name} = {word}_out({local});"));
        }
        _ => {
            l.pass = format!("{word}_in(*{name})");
            l.usual = Some(Usual::Predefined(format!("({c}) (intptr_t) *{name}")));
            copies(procedure, name, l);
        }
    }
}

/// Statements before and after a call whose request may have copies of sections and stays what it
/// is.
fn copies(procedure: &Procedure, name: &str, l: &mut Lowered) {
    if name != "request" {
        return;
    }
    match procedure.function.name.as_str() {
        "Pready" => ready("*partition, *partition", l),
        "Pready_range" => ready("*partition_low, *partition_high", l),
        "Pready_list" => l
            .before
            .push("partitions_listed(*request, *length, array_of_partitions);".into()),
        "Parrived" => {
            l.after.push("if (!err && flag_c)".into());
            l.after
                .push("    partition_arrived(*request, *partition);".into());
        }
        "Request_get_status" => {
            l.after.push("if (!err && flag_c)".into());
            l.after.push("    requests_complete(1, request, 0);".into());
        }
        _ => {}
    }
}

fn ready(partitions: &str, l: &mut Lowered) {
    l.before
        .push(format!("partitions_ready(*request, {partitions});"));
}

/// Arrays of handles.
fn handles(procedure: &Procedure, a: &Argument, c: &str, l: &mut Lowered) {
    let (name, word) = (&a.parameter.name, handle_word(c));
    let local = format!("{name}_c");
    let count = count_of(procedure, a);
    l.before.push(format!("{c} {name}_few[FEW];"));
    l.pass = local.clone();
    if a.intent == Intent::Out {
        l.before
            .push(format!("{c} *{local} = {word}s_room({count}, {name}_few);"));
        l.after.push(format!(
            "{word}s_out({count}, {name}, {local}, {name}_few);"
        ));
        return;
    }
    l.before.push(format!(
        "{c} *{local} = {word}s_in({count}, {name}, {name}_few);"
    ));
    if word == "request" && procedure.function.name == "Startall" {
        l.before.push(format!("requests_start({count}, {name});"));
    }
    l.after.push(match a.intent {
        Intent::InOut => format!("{word}s_changed({count}, {name}, {local}, {name}_few);"),
        _ => format!("few_free({local}, {name}_few);"),
    });
    if word == "request" {
        l.after.extend(complete(procedure, name, &count));
    }
}

/// Statements after a call that tells which operations of an array of requests are complete.
fn complete(procedure: &Procedure, name: &str, count: &str) -> Vec<String> {
    let all = format!("requests_complete({count}, {name}, err);");
    match procedure.function.name.as_str() {
        "Waitall" => vec![all],
        "Testall" | "Request_get_status_all" => {
            vec!["if (err || flag_c)".into(), format!("    {all}")]
        }
        call if call.ends_with("any") => vec![
            "if (!err)".into(),
            format!("    requests_some(1, &indx_c, {name});"),
        ],
        call if call.ends_with("some") => vec![
            "if (err)".into(),
            format!("    {all}"),
            "else".into(),
            format!("    requests_some(*outcount, array_of_indices, {name});"),
        ],
        _ => Vec::new(),
    }
}

/// A C expression for the number of elements of an array of handles.
fn count_of(procedure: &Procedure, a: &Argument) -> String {
    let name = a.parameter.name.as_str();
    if let Some(argument) = &a.parameter.argument {
        return format!("*{argument}");
    }
    let neighbours = procedure.function.name.to_lowercase().contains("neighbor");
    match name {
        "array_of_datatypes" => "*max_datatypes".into(),
        "sendtypes" if neighbours => "neighbours(comm, 1)".into(),
        "recvtypes" if neighbours => "neighbours(comm, 0)".into(),
        // With MPI_IN_PLACE they are not significant.
        "sendtypes" => format!(
            "{} ? 0 : peers(comm)",
            section::is_in_place(procedure, "sendbuf")
        ),
        "recvtypes" => "peers(comm)".into(),
        _ => "*count".into(),
    }
}

fn text(procedure: &Procedure, a: &Argument, l: &mut Lowered) {
    let name = &a.parameter.name;
    let local = format!("{name}_c");
    // With a choice buffer the procedure is BIND(C), and a string is a descriptor.
    let described = procedure.module == Module::MpiF08 && procedure.has_choice();
    let (at, length) = if described {
        l.parameter = format!("struct descriptor *{name}");
        (format!("{name}->base"), format!("{name}->elem_len"))
    } else {
        l.hidden = Some(format!("size_t {name}_len"));
        (name.clone(), format!("{name}_len"))
    };
    if a.intent == Intent::In {
        // Keys and values lose blanks on both sides (MPI 5.0 §10).
        let function = match a.parameter.kind.is("key") || a.parameter.kind.is("value") {
            true => "text_in_stripped",
            false => "text_in",
        };
        l.before.push(format!("char {name}_few[FEW_CHARS];"));
        l.before.push(format!(
            "char *{local} = {function}({at}, {length}, {name}_few);"
        ));
        l.pass = local.clone();
        l.after.push(format!("few_free({local}, {name}_few);"));
    } else {
        let room = a.parameter.argument.clone().unwrap_or_default();
        l.before
            .push(format!("char {local}[MPI_MAX_{room}] = \"\";"));
        l.pass = local.clone();
        l.after.push("if (!err)".into());
        l.after
            .push(format!("    text_out({at}, {length}, {local});"));
    }
}

fn choice(procedure: &Procedure, a: &Argument, l: &mut Lowered) {
    let name = &a.parameter.name;
    if procedure.module == Module::MpiF08 {
        l.parameter = format!("struct descriptor *{name}");
        section::lower(procedure, a, l);
        return;
    }
    if a.parameter.kind.is("new pointer") {
        // Fortran does not learn the buffer that is detached (MPI 5.0 §3.6).
        l.before.push(format!("void *{name}_c;"));
        l.before.push(format!("(void) {name};"));
        l.pass = format!("&{name}_c");
        return;
    }
    l.pass = format!("{}({name})", section::sentinel_check(a));
}
