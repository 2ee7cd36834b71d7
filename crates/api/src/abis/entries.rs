//! The exported functions of the libraries, as Rust text.

use super::parameter::{Lowered, lower};
use crate::kind::Kind;
use crate::{Function, Parameter, Returns, functions, per_abi};
use std::fmt::Write;

/// Functions with compound arguments, whose conversion is not made from the description: functions
/// of the program, or arrays whose meaning depends on other values.
const COMPOUND: &[&str] = &[
    "Abi_get_version",
    "Attr_get",
    "Comm_create_errhandler",
    "Comm_create_keyval",
    "Comm_get_attr",
    "Comm_spawn_multiple",
    "File_create_errhandler",
    "Grequest_start",
    "Keyval_create",
    "Op_create",
    "Register_datarep",
    "Session_create_errhandler",
    "T_cvar_handle_alloc",
    "T_event_get_info",
    "T_event_handle_alloc",
    "T_event_handle_free",
    "T_event_register_callback",
    "T_event_set_dropped_handler",
    "T_pvar_handle_alloc",
    "Type_create_keyval",
    "Type_get_contents",
    "Win_create_errhandler",
    "Win_create_keyval",
    "Win_get_attr",
];

/// The text of all entry points. It requires the type `A` and what `ferry_translate::prelude`
/// exports. Functions with compound arguments are those of `ferry_translate::compound`.
pub fn entries() -> String {
    let mut out = String::from("// Made from crates/api/mpi.api.\n\n");
    for f in functions() {
        for (at, (name, large)) in f.forms().enumerate() {
            entry(&mut out, f, &name, f.number + at as u32, large);
        }
    }
    out
}

fn entry(out: &mut String, f: &Function, name: &str, number: u32, large: bool) {
    let parameters: Vec<_> = f
        .parameters_of(large)
        .filter(|p| p.kind != Kind::Variadic)
        .collect();
    let lowered: Vec<Lowered> = parameters.iter().map(|p| lower(f, p, large)).collect();
    let declared: Vec<String> = parameters
        .iter()
        .zip(&lowered)
        .map(|(p, l)| format!("{}: {}", p.name, compound_type(f, p.kind, &p.name, l)))
        .collect();
    let declared = declared.join(", ");
    let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
    let names = names.join(", ");
    let short = name.trim_start_matches("MPI_").to_lowercase();
    let result = result(f);
    if COMPOUND.contains(&f.name.as_str()) {
        let _ = writeln!(
            out,
            "unsafe extern \"C\" fn body_{short}({declared}) -> {result} {{\n    \
             // SAFETY: the arguments are passed on as they are.\n    unsafe {{ \
             compound::{short}::<A>({names}) }}\n}}"
        );
    } else {
        body(
            out,
            f,
            name,
            number,
            (&parameters, &lowered),
            (&declared, &names),
        );
    }
    for prefix in ["", "P"] {
        let _ = writeln!(
            out,
            "/// The symbol {prefix}{name}.\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn \
             {prefix}{name}({declared}) -> {result} {{\n    // SAFETY: the arguments are passed \
             on as they are.\n    unsafe {{ body_{short}({names}) }}\n}}"
        );
    }
    out.push('\n');
}

/// The type of a parameter. Arrays of handles of functions with compound arguments have their own
/// types.
fn compound_type(f: &Function, kind: Kind, name: &str, lowered: &Lowered) -> String {
    match (f.name.as_str(), name) {
        ("Type_get_contents", "array_of_datatypes")
        | ("T_event_get_info", "array_of_datatypes") => "*mut H".into(),
        ("Comm_spawn_multiple", "array_of_info") => "*const H".into(),
        _ if matches!(kind, Kind::Function(..)) => "*const c_void".into(),
        _ => lowered.ty.clone(),
    }
}

fn result(f: &Function) -> &'static str {
    match &f.returns {
        Returns::Code | Returns::Int => "i32",
        Returns::Double => "f64",
        Returns::Aint => "i64",
        Returns::Handle(c) => super::parameter::handle_type(c),
    }
}

/// The call that converts a handle to an int or back. These conversions are those of Fortran, which
/// each ABI defines.
fn conversion(f: &Function) -> String {
    let argument = &f.parameters[0].name;
    let c = match &f.returns {
        Returns::Handle(c) => c.as_str(),
        _ => f.parameters[0].kind.c("", false).leak().trim(),
    };
    let marker = super::parameter::marker(c);
    match (&f.returns, c) {
        (Returns::Handle(_), "MPI_File") => "A::file_from_int(file)".to_string(),
        (_, "MPI_File") => "A::file_to_int(file)".into(),
        (Returns::Handle(_), _) => format!("A::from_int::<{marker}>({argument})"),
        _ => format!("A::to_int::<{marker}>({argument})"),
    }
}

/// Writes the body of a function's entry point: converts the arguments, calls the standard ABI's
/// function and converts the results back.
fn body(
    out: &mut String,
    f: &Function,
    name: &str,
    number: u32,
    (parameters, lowered): (&[&Parameter], &[Lowered]),
    (declared, names): (&str, &str),
) {
    let result = result(f);
    let short = name.trim_start_matches("MPI_").to_lowercase();
    let mut head = format!("unsafe extern \"C\" fn body_{short}({declared}) -> {result}");
    if f.chapter == "convert" {
        let call = conversion(f);
        let _ = writeln!(
            out,
            "{head} {{\n    // SAFETY: the handle is of this kind.\n    unsafe {{ {call} }}\n}}"
        );
        return;
    }
    let join = |part: fn(&Lowered) -> &String| -> String {
        lowered.iter().map(|l| part(l).as_str()).collect()
    };
    let standard = match &f.returns {
        Returns::Code | Returns::Int => "i32",
        _ => result,
    };
    let before = join(|l| &l.before);
    let after = join(|l| &l.after);
    let has_length = f.parameters.iter().any(|p| p.name == "resultlen");
    let length = if has_length {
        "resultlen"
    } else {
        "null_mut()"
    };
    let on_success = join(|l| &l.on_success).replace("RESULTLEN", length);
    let on_success = match on_success.as_str() {
        "" => String::new(),
        text => format!("if returned == 0 {{ {} }}\n        ", text.trim_end()),
    };
    let of_form = per_abi().position(|(_, of_form)| of_form == name);
    // The entry for this form of requests returns this ABI's codes.
    let own = of_form.map(|at| format!("abi_function::<A, _>({at})"));
    let standards = || format!("function({number})");
    let mut statuses = parameters
        .iter()
        .filter(|p| p.kind.is("new status") || p.kind.is("statuses"));
    if let (Some(own), Some(status)) = (&own, statuses.next()) {
        // Without a status there is nothing to do after the call: it becomes a jump.
        let n = &status.name;
        let arguments = parameters.iter().zip(lowered);
        let arguments: Vec<(&str, String)> = arguments
            .filter(|(p, _)| *p != status || !f.is_without_status())
            .map(|(p, l)| match p == status {
                true => (l.standard.as_str(), format!("{n}.cast()")),
                false => (l.standard.as_str(), l.pass.clone()),
            })
            .collect();
        let (types, passed): (Vec<&str>, Vec<String>) = arguments.into_iter().unzip();
        let _ = writeln!(
            out,
            "{head} {{\n    // SAFETY: as below.\n    unsafe {{\n        if \
             is_ignored::<A>({n}) {{\n            {}\n        }} else {{\n            \
             with_status_{short}({names})\n        }}\n    }}\n}}",
            call(own, standard, &types, &passed),
        );
        head = format!(
            "#[inline(never)]\nunsafe extern \"C\" fn with_status_{short}({declared}) -> {result}"
        );
    }
    let entry = match own {
        Some(own) if !f.is_without_status() => own,
        _ => standards(),
    };
    let value = match f.returns {
        Returns::Code if entry == standards() => "A::code_out(returned)",
        _ => "returned",
    };
    let types: Vec<&str> = lowered.iter().map(|l| l.standard.as_str()).collect();
    let passed: Vec<String> = lowered.iter().map(|l| l.pass.clone()).collect();
    let _ = writeln!(
        out,
        "{head} {{\n    // SAFETY: the entry has these types; what the program passes is \
         converted and no more.\n    unsafe {{\n        {before}let returned = {{ {} }};\n        \
         {after}{on_success}{value}\n    }}\n}}",
        call(&entry, standard, &types, &passed),
    );
}

/// The call of `entry`, whose parameters have these types, with converted arguments. The entry is
/// read last, so that conversions have its register.
fn call(entry: &str, standard: &str, types: &[&str], arguments: &[String]) -> String {
    let converted: String = arguments.iter().map(|one| format!("{one}, ")).collect();
    let places: Vec<String> = (0..arguments.len())
        .map(|at| format!("passed.{at}"))
        .collect();
    format!(
        "let passed = ({converted}); let entry: unsafe extern \"C\" fn({}) -> {standard} = \
         {entry}; entry({})",
        types.join(", "),
        places.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_exported_under_both_names() {
        let text = entries();
        for f in functions() {
            for (name, _) in f.forms() {
                assert!(text.contains(&format!("fn {name}(")), "{name}");
                assert!(text.contains(&format!("fn P{name}(")), "P{name}");
            }
        }
        for name in COMPOUND {
            assert!(functions().iter().any(|f| f.name == *name), "{name}");
        }
    }
}
