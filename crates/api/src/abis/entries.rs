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
            Entry::new(f, &name, f.number + at as u32, large).write(&mut out);
        }
    }
    out
}

/// One form of a function, as its entry point is written.
struct Entry<'a> {
    f: &'a Function,
    /// Its C name.
    name: &'a str,
    /// Its number in the standard ABI's table.
    number: u32,
    parameters: Vec<&'a Parameter>,
    /// How each parameter is converted.
    lowered: Vec<Lowered>,
    /// The declarations of the parameters in Rust.
    declared: String,
    /// Their names.
    names: String,
    /// The name without `MPI_`, in small letters.
    short: String,
    /// The type of what is returned.
    result: &'static str,
}

impl<'a> Entry<'a> {
    fn new(f: &'a Function, name: &'a str, number: u32, large: bool) -> Entry<'a> {
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
        let names: Vec<&str> = parameters.iter().map(|p| p.name.as_str()).collect();
        Entry {
            f,
            name,
            number,
            declared: declared.join(", "),
            names: names.join(", "),
            short: name.trim_start_matches("MPI_").to_lowercase(),
            result: result(f),
            parameters,
            lowered,
        }
    }

    /// Writes the body and the two symbols that jump to it.
    fn write(&self, out: &mut String) {
        let Entry {
            short,
            declared,
            names,
            result,
            name,
            ..
        } = self;
        if COMPOUND.contains(&self.f.name.as_str()) {
            let _ = writeln!(
                out,
                "unsafe extern \"C\" fn body_{short}({declared}) -> {result} {{\n    \
                 // SAFETY: the arguments are passed on as they are.\n    unsafe {{ \
                 compound::{short}::<A>({names}) }}\n}}"
            );
        } else if self.f.chapter == "convert" {
            let call = conversion(self.f);
            let _ = writeln!(
                out,
                "unsafe extern \"C\" fn body_{short}({declared}) -> {result} {{\n    \
                 // SAFETY: the handle is of this kind.\n    unsafe {{ {call} }}\n}}"
            );
        } else {
            self.write_body(out);
        }
        for prefix in ["", "P"] {
            let _ = writeln!(
                out,
                "/// The symbol {prefix}{name}.\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn \
                 {prefix}{name}({declared}) -> {result} {{\n    \
                 // SAFETY: the arguments are passed on as they are.\n    \
                 unsafe {{ body_{short}({names}) }}\n}}"
            );
        }
        out.push('\n');
    }

    /// Writes the body that converts the arguments, calls the standard ABI's function and converts
    /// the results back.
    fn write_body(&self, out: &mut String) {
        let f = self.f;
        let of_form = per_abi().position(|(_, of_form)| of_form == self.name);
        // The entry for this form of requests returns this ABI's codes.
        let own = of_form.map(|at| format!("abi_function::<A, _>({at})"));
        let status = self
            .parameters
            .iter()
            .find(|p| p.kind.is("new status") || p.kind.is("statuses"));
        let (short, declared, result) = (&self.short, &self.declared, self.result);
        let head = if let (Some(own), Some(status)) = (&own, status) {
            self.write_jump_without_status(out, own, status);
            format!(
                "#[inline(never)]\nunsafe extern \"C\" fn with_status_{short}({declared}) -> \
                 {result}"
            )
        } else {
            format!("unsafe extern \"C\" fn body_{short}({declared}) -> {result}")
        };
        let standard = format!("function({})", self.number);
        let entry = match own {
            Some(own) if !f.is_without_status() => own,
            _ => standard.clone(),
        };
        let value = match f.returns {
            Returns::Code if entry == standard => "A::code_out(returned)",
            _ => "returned",
        };
        let types: Vec<&str> = self.lowered.iter().map(|l| l.standard.as_str()).collect();
        let passed: Vec<String> = self.lowered.iter().map(|l| l.pass.clone()).collect();
        let _ = writeln!(
            out,
            "{head} {{\n    // SAFETY: the entry has these types; what the program passes is \
             converted and no more.\n    unsafe {{\n        {}let returned = {{ {} }};\n        \
             {}{}{value}\n    }}\n}}",
            self.statements(|l| &l.before),
            call(&entry, self.standard_result(), &types, &passed),
            self.statements(|l| &l.after),
            self.on_success(),
        );
    }

    /// Writes the body of a function with a status. If the program ignores the status, there is
    /// nothing to do after the call of `own`: it becomes a jump. Otherwise the body calls
    /// `with_status_…`.
    fn write_jump_without_status(&self, out: &mut String, own: &str, status: &Parameter) {
        let n = &status.name;
        let arguments: Vec<(&str, String)> = self
            .parameters
            .iter()
            .zip(&self.lowered)
            .filter(|(p, _)| **p != status || !self.f.is_without_status())
            .map(|(p, l)| match *p == status {
                true => (l.standard.as_str(), format!("{n}.cast()")),
                false => (l.standard.as_str(), l.pass.clone()),
            })
            .collect();
        let (types, passed): (Vec<&str>, Vec<String>) = arguments.into_iter().unzip();
        let _ = writeln!(
            out,
            "unsafe extern \"C\" fn body_{short}({}) -> {} {{\n    // SAFETY: as below.\n    \
             unsafe {{\n        if is_ignored::<A>({n}) {{\n            {}\n        \
             }} else {{\n            with_status_{short}({})\n        }}\n    }}\n}}",
            self.declared,
            self.result,
            call(own, self.standard_result(), &types, &passed),
            self.names,
            short = self.short,
        );
    }

    /// The type of what the standard ABI's function returns.
    fn standard_result(&self) -> &'static str {
        match self.f.returns {
            Returns::Code | Returns::Int => "i32",
            _ => self.result,
        }
    }

    /// One part of the conversions of all parameters.
    fn statements(&self, part: fn(&Lowered) -> &String) -> String {
        self.lowered.iter().map(|l| part(l).as_str()).collect()
    }

    /// The statement that converts results back if the call has succeeded.
    fn on_success(&self) -> String {
        let has_length = self.f.parameters.iter().any(|p| p.name == "resultlen");
        let length = if has_length {
            "resultlen"
        } else {
            "null_mut()"
        };
        let all = self.statements(|l| &l.on_success);
        match all.replace("RESULTLEN", length).as_str() {
            "" => String::new(),
            text => format!("if returned == 0 {{ {} }}\n        ", text.trim_end()),
        }
    }
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

/// The type of what the entry point returns.
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
