//! The entry points of libmpi_abi.so.1 as Rust text, for the abi layer's build script.
//!
//! Each form of each function becomes one body. The exported `MPI_` and `PMPI_` symbols jump to it.
//! Bodies call no exported symbol, so a tool's `MPI_X` sees only the program's own calls.

use crate::kind::{Kind, Passing, Placeholders};
use crate::{Function, Parameter, Returns, Significance, functions, per_abi};
use std::fmt::Write;

/// The text of all entry points. It requires `args`, `calls`, `entry`, `handle`, `raise` and the
/// types of the glue in scope.
pub fn rust() -> String {
    let mut out = String::from("// Made from crates/api/mpi.api by crates/abi/build.rs.\n\n");
    let names: Vec<String> = functions()
        .iter()
        .flat_map(|f| f.forms().map(|(name, _)| name))
        .collect();
    let _ = writeln!(
        out,
        "/// The C names of all functions; function n stands at n - 1.\npub static NAMES: [&str; \
         {}] = {names:?};\n",
        names.len()
    );
    for f in functions() {
        for (at, (name, large)) in f.forms().enumerate() {
            body(&mut out, f, &name, f.number + at as u32, large);
            if f.is_without_status() {
                body_without_status(&mut out, f, &name, f.number + at as u32, large);
            }
            exported(&mut out, f, &name, large);
        }
    }
    table(&mut out, names.len());
    out
}

/// The table of bodies, for the libraries of other ABIs: these export symbols of the same names, so
/// they cannot call the bodies by name.
fn table(out: &mut String, count: usize) {
    let body = |name: &str, form: &str| {
        let name = body_name(name);
        format!("crate::translation::Body({name}{form} as *const c_void)")
    };
    let all = functions().iter().flat_map(|f| {
        let form = if f.is_per_abi() { "::<Handle>" } else { "" };
        f.forms().map(move |(name, _)| body(&name, form))
    });
    let _ = writeln!(
        out,
        "/// The bodies of all functions; function n stands at n - 1.\npub const BODIES: \
         [crate::translation::Body; {count}] = [{}];",
        all.collect::<Vec<_>>().join(", ")
    );
    let of_form: Vec<_> = per_abi()
        .map(|(f, name)| {
            let without = if f.is_without_status() {
                WITHOUT_STATUS
            } else {
                ""
            };
            body(&name, &format!("{without}::<R>"))
        })
        .collect();
    let _ = writeln!(
        out,
        "/// Number of functions that exist for each ABI.\n\
         pub const PER_ABI: usize = {};\n\
         /// Their bodies for the ABI whose requests have the form R.\n\
         pub const fn bodies_for<R: RequestForm>() -> \
         [crate::translation::Body; PER_ABI] {{ [{}] }}",
        of_form.len(),
        of_form.join(", ")
    );
}

/// The parameters of a Rust entry point. `request` is the type of its requests.
fn parameters(f: &Function, large: bool, request: &str) -> String {
    let ty = |p: &Parameter| match p.name.as_str() {
        "request" | "array_of_requests" => p.kind.entry(large).replace("Handle", request),
        _ => p.kind.entry(large).to_string(),
    };
    let all: Vec<String> = f
        .parameters_of(large)
        .filter(|p| p.kind != Kind::Variadic)
        .map(|p| format!("{}: {}", p.name, ty(p)))
        .collect();
    all.join(", ")
}

fn returns(f: &Function) -> &'static str {
    match f.returns {
        Returns::Code | Returns::Int => "i32",
        Returns::Double => "f64",
        Returns::Aint => "i64",
        Returns::Handle(_) => "Handle",
    }
}

fn body_name(name: &str) -> String {
    format!("body_{}", name.trim_start_matches("MPI_").to_lowercase())
}

/// The two symbols that jump to a body. Those of a function with a fast path try it first: both
/// forms of counts have the same one.
fn exported(out: &mut String, f: &Function, name: &str, large: bool) {
    let names: Vec<&str> = f
        .parameters_of(large)
        .filter(|p| p.kind != Kind::Variadic)
        .map(|p| p.name.as_str())
        .collect();
    let names = names.join(", ");
    let fast = if f.fast {
        let call = f.name.to_lowercase();
        format!("if crate::fast_path::{call}({names}) {{ return 0; }} ")
    } else {
        String::new()
    };
    for prefix in ["", "P"] {
        let _ = writeln!(
            out,
            "/// The symbol {prefix}{name}.\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn \
             {prefix}{name}({}) -> {} {{\n    \
             // SAFETY: the arguments are passed on as they are.\n    \
             unsafe {{ {fast}{}{}({names}) }}\n}}",
            parameters(f, large, "Handle"),
            returns(f),
            body_name(name),
            if f.is_per_abi() { "::<Handle>" } else { "" },
        );
    }
    out.push('\n');
}

fn body(out: &mut String, f: &Function, name: &str, number: u32, large: bool) {
    let (form, request) = if f.is_per_abi() {
        ("<R: RequestForm>", "R")
    } else {
        ("", "Handle")
    };
    let head = format!(
        "#[inline(never)]\nunsafe extern \"C\" fn {}{form}({}) -> {} {{",
        body_name(name),
        parameters(f, large, request),
        returns(f)
    );
    if f.returns != Returns::Code {
        let _ = writeln!(out, "{head}\n    {}\n}}", value(f));
        return;
    }
    call(out, f, &head, (name, number), large);
}

/// What the name of an entry point without a status ends with.
const WITHOUT_STATUS: &str = "_without_status";

/// The entry point for other ABIs that has no status ([`Function::is_without_status`]).
fn body_without_status(out: &mut String, f: &Function, name: &str, number: u32, large: bool) {
    let all = parameters(f, large, "R");
    let (others, status) = all.rsplit_once(", ").expect("it has seven parameters");
    let head = format!(
        "#[inline(never)]\nunsafe extern \"C\" fn {}{WITHOUT_STATUS}<R: RequestForm>({others}) -> \
         {} {{\n    let {status} = std::ptr::null_mut();",
        body_name(name),
        returns(f)
    );
    call(out, f, &head, (name, number), large);
}

/// The rest of a body that returns an error code, behind the line `head`: converts and checks the
/// arguments, calls the glue, raises an error.
fn call(out: &mut String, f: &Function, head: &str, (name, number): (&str, u32), large: bool) {
    let _ = writeln!(
        out,
        "{head}\n    // SAFETY: the program passes what the MPI standard asks for; what can be \
         checked is.\n    \
         let result: Result<()> = (|| unsafe {{\n        entry::{}({number}){};",
        if f.anytime { "record_call" } else { "enter" },
        if f.anytime { "" } else { "?" },
    );
    if f.todo {
        let _ = writeln!(out, "        Err(raise::unsupported(\"{name}\"))");
    } else {
        call_glue(out, f, large);
    }
    let raised = if f.chapter == "tool" {
        "raise::tool_code(error)".to_string()
    } else {
        format!("raise::raise({number}, {}, error)", scope(f))
    };
    let raised = if f.is_per_abi() {
        format!("R::code({raised})")
    } else {
        raised
    };
    let _ = writeln!(
        out,
        "    }})();\n    match result {{\n        Ok(()) => 0,\n        // SAFETY: the handles \
         that the call was given are what its errors are raised on.\n        Err(error) => unsafe \
        {{ {raised} }},\n    }}\n}}"
    );
}

/// The statements that convert the arguments and call the glue. The glue of a `joint` function gets
/// its first argument, and the others as one `Result`.
fn call_glue(out: &mut String, f: &Function, large: bool) {
    let names: Vec<&str> = f
        .parameters
        .iter()
        .filter(|p| p.kind != Kind::Variadic)
        .map(|p| p.name.as_str())
        .collect();
    let glue = format!("calls::{}::{}", f.chapter, f.name.to_lowercase());
    if !f.joint {
        conversions(out, f, large);
        let _ = writeln!(out, "        {glue}({})", names.join(", "));
        return;
    }
    let (object, others) = (names[0], &names[1..]);
    let convert = Placeholders {
        value: object,
        argument: "",
        comm: object,
        is_large: large,
        elements: "1",
        at_root: "true",
    }
    .fill(&f.parameters[0].kind.convert());
    let _ = writeln!(
        out,
        "        let {object} = {convert};\n        \
         // SAFETY: as above.\n        \
         let arguments: Result<_> = (|| unsafe {{"
    );
    conversions(out, f, large);
    let passed = match others {
        [only] => (*only).to_string(),
        several => format!("({})", several.join(", ")),
    };
    let _ = writeln!(
        out,
        "        Ok({passed})\n        }})();\n        {glue}({object}, arguments)"
    );
}

/// The body of a function that returns no error code.
fn value(f: &Function) -> String {
    let first = f.parameters.first().map_or("", |p| p.name.as_str());
    let object = |c: &str| match c {
        // Other calls get these two as plain handles, but here the objects are needed.
        "MPI_Request" => Some("ferry_mpi::Request".to_string()),
        "MPI_Message" => Some("ferry_mpi::pt2pt::Message".to_string()),
        _ => {
            let kind = crate::kind::OBJECTS.iter().find(|o| o.c == c);
            kind.and_then(|o| o.rust).map(str::to_string)
        }
    };
    match (&f.returns, f.chapter.as_str()) {
        (Returns::Handle(c), "convert") => match object(c) {
            Some(rust) => format!("handle::from_int::<{rust}>({first})"),
            None => panic!("mpi.api: {c} has no objects"),
        },
        (Returns::Int, "convert") => {
            let c = f.parameters[0].kind.c("", false);
            match object(c.trim()) {
                Some(rust) => format!("handle::to_int::<{rust}>({first})"),
                None => panic!("mpi.api: {c} has no objects"),
            }
        }
        _ => {
            let names: Vec<&str> = f.parameters.iter().map(|p| p.name.as_str()).collect();
            format!(
                "calls::{}::{}({})",
                f.chapter,
                f.name.to_lowercase(),
                names.join(", ")
            )
        }
    }
}

/// The object whose error handler gets the errors of `f`.
fn scope(f: &Function) -> String {
    let opens_file = f
        .parameters
        .iter()
        .any(|p| matches!(p.kind, Kind::Object(o, Passing::New) if o.c == "MPI_File"));
    if opens_file {
        // Errors of MPI_File_open are not raised on its communicator (MPI 5.0 §14.7).
        return "Scope::NoFile".into();
    }
    for p in &f.parameters {
        if let Kind::Object(o, passing) = p.kind {
            let scope = match o.c {
                "MPI_Comm" => "Comm",
                "MPI_Win" => "Win",
                "MPI_File" => "File",
                "MPI_Session" => "Session",
                _ => continue,
            };
            match passing {
                Passing::Valid | Passing::Maybe | Passing::Raw => {
                    return format!("Scope::{scope}({})", p.name);
                }
                Passing::InOut => return format!("Scope::{scope}(args::peek({}))", p.name),
                Passing::New | Passing::NewMaybe => {}
            }
        }
    }
    // A call that creates an object with an error handler from objects without one.
    let passed = |wanted: Passing, c: &[&str]| {
        f.parameters.iter().find_map(|p| match p.kind {
            Kind::Object(o, passing) if passing == wanted && c.contains(&o.c) => Some((p, o)),
            _ => None,
        })
    };
    let handler = passed(Passing::Valid, &["MPI_Errhandler"]);
    let made = passed(Passing::New, &["MPI_Comm", "MPI_Session"]);
    if let (Some((handler, _)), Some((_, made))) = (handler, made) {
        return format!(
            "Scope::Unmade({}, constants::{}_NULL)",
            handler.name,
            made.c.to_uppercase()
        );
    }
    if f.chapter == "io" {
        "Scope::NoFile".into()
    } else {
        "Scope::Process".into()
    }
}

/// The count of a datatype: the parameter before it.
fn count_of<'a>(f: &'a Function, datatype: &Parameter) -> &'a str {
    let before = f
        .parameters
        .iter()
        .take_while(|p| p.name != datatype.name)
        .last();
    let count = before.filter(|p| p.kind.is("n") || p.kind.is("n64") || p.kind.is("num"));
    count.map_or("1", |p| p.name.as_str())
}

/// The only peer rank of a communication datatype's message, if there is exactly one. A message
/// with MPI_PROC_NULL, or without elements, needs no datatype.
fn only_rank<'a>(f: &'a Function, datatype: &Parameter) -> Option<&'a str> {
    if !datatype.kind.is("ctype") {
        return None;
    }
    // A one-sided operation has one target, wherever its datatypes stand.
    if let Some(target) = f.parameters.iter().find(|p| p.kind.is("target")) {
        return Some(target.name.as_str());
    }
    let mut ranks = f
        .parameters
        .iter()
        .skip_while(|p| p.name != datatype.name)
        .take_while(|p| !p.kind.is_buffer())
        .filter(|p| p.kind.is("dest") || p.kind.is("source"));
    let first = ranks.next()?;
    ranks.next().is_none().then_some(first.name.as_str())
}

/// The statements that convert the arguments to those of the glue.
fn conversions(out: &mut String, f: &Function, large: bool) {
    let comm = f
        .parameters
        .iter()
        .find(|p| matches!(p.kind, Kind::Object(o, Passing::Valid) if o.c == "MPI_Comm"));
    let comm = comm.map_or("", |p| p.name.as_str());
    let rooted = f.parameters.iter().any(|p| p.kind.is("root"));
    let mut has_role = false;
    // The in-place buffer that the current parameter belongs to.
    let mut in_place: Option<&str> = None;
    for p in conversion_order(f) {
        if rooted && !has_role && !has_error_handler(p) && !p.kind.is("root") {
            let role = format!("let role = args::rooted_role(&root, {comm});");
            let _ = writeln!(out, "        {role}");
            has_role = true;
        }
        if p.kind.is_buffer() {
            in_place = None;
        }
        let n = &p.name;
        if p.large_only && !large {
            let _ = writeln!(out, "        let {n} = {};", p.kind.absent());
            continue;
        }
        if n == "origin_datatype" {
            let _ = writeln!(out, "        let origin = {n};");
        }
        let convert = Placeholders {
            value: n,
            argument: p.argument.as_deref().unwrap_or(""),
            comm,
            is_large: large,
            elements: &elements(f, p),
            at_root: if rooted { "role.root" } else { "true" },
        }
        .fill(&conversion(f, p));
        let conditions = significance(f, p, in_place);
        if conditions.is_empty() {
            let _ = writeln!(out, "        let {n} = {convert};");
        } else {
            let _ = writeln!(
                out,
                "        let {n} = if {} {{ {convert} }} else {{ {} }};",
                conditions.join(" && "),
                p.kind.absent()
            );
        }
        if p.kind.may_be_in_place() && group(f, p).is_some_and(|(own, ..)| own) {
            in_place = Some(n);
        }
    }
    for p in f.parameters.iter().filter(|p| p.kind.is_buffer()) {
        check_buffer(out, f, p);
    }
}

/// Is the parameter a handle whose object has an error handler?
fn has_error_handler(p: &Parameter) -> bool {
    const OBJECTS: [&str; 4] = ["MPI_Comm", "MPI_Win", "MPI_File", "MPI_Session"];
    matches!(p.kind, Kind::Object(o, _) if OBJECTS.contains(&o.c))
}

/// The parameters in the order in which they are converted: first those whose error handlers get
/// the errors of the others, then the root, by which others are significant or not. That of a
/// `joint` function is not among them, as it has been converted.
fn conversion_order(f: &Function) -> Vec<&Parameter> {
    let mut ordered: Vec<&Parameter> = f
        .parameters
        .iter()
        .filter(|p| has_error_handler(p))
        .collect();
    if f.joint {
        ordered.retain(|p| p.name != f.parameters[0].name);
    }
    ordered.extend(f.parameters.iter().filter(|p| p.kind.is("root")));
    let is_other =
        |p: &&Parameter| !has_error_handler(p) && !p.kind.is("root") && p.kind != Kind::Variadic;
    ordered.extend(f.parameters.iter().filter(is_other));
    ordered
}

/// The expression that converts a parameter, with placeholders.
fn conversion(f: &Function, p: &Parameter) -> String {
    let convert = p.kind.convert();
    if f.is_per_abi() && (p.kind.is("new status") || p.kind.is("statuses")) {
        return convert.replace("$value", "R::status($value)");
    }
    // Most one-sided calls name one type twice: it is looked up once.
    let origin = f.parameters.iter().find(|p| p.name == "origin_datatype");
    if p.name == "target_datatype" && origin.is_some_and(|o| o.kind.convert() == convert) {
        let like = "committed_like($value, (origin, origin_datatype)";
        return convert.replace("committed($value", like);
    }
    convert
}

/// The expressions that must all be true for the parameter to be significant. `in_place` is the
/// buffer before it that may be MPI_IN_PLACE.
fn significance(f: &Function, p: &Parameter, in_place: Option<&str>) -> Vec<String> {
    let mut conditions = Vec::from_iter(condition(p.significance));
    if let Some(buffer) = in_place
        && belongs(p)
    {
        conditions.push(format!("{buffer}.is_some()"));
    }
    if let Some(rank) = only_rank(f, p) {
        let (datatype, count) = (&p.name, count_of(f, p));
        conditions.push(format!(
            "!args::needs_no_datatype({datatype}, {rank}, {count})"
        ));
    }
    conditions
}

/// Does the parameter describe a buffer, and not the whole call?
fn belongs(p: &Parameter) -> bool {
    ["n", "num", "counts", "displs", "aints", "ctypes", "ctype"]
        .iter()
        .any(|w| p.kind.is(w))
}

/// The expression that is true on ranks where a parameter of this significance is significant.
fn condition(significance: Significance) -> Option<String> {
    match significance {
        Significance::Always => None,
        Significance::Root => Some("role.root".into()),
        Significance::Leaf => Some("role.leaf".into()),
        Significance::Any => Some("role.any()".into()),
    }
}

/// Count and datatype of a buffer, and whether they are its own. Its own are between it and the
/// next buffer. Without any, the next buffer's are used.
fn group<'a>(
    f: &'a Function,
    buffer: &Parameter,
) -> Option<(bool, Option<&'a str>, Option<&'a str>)> {
    let at = f.parameters.iter().position(|p| p.name == buffer.name)?;
    let mut own = true;
    let (mut count, mut datatype) = (None, None);
    let mut described = false;
    for p in &f.parameters[at + 1..] {
        if p.kind.is_buffer() {
            if described {
                break;
            }
            own = false;
        } else if belongs(p) {
            described = true;
            if p.kind.is("n") && count.is_none() {
                count = Some(p.name.as_str());
            }
            if p.kind.is("ctype") && datatype.is_none() {
                datatype = Some(p.name.as_str());
            }
        }
    }
    described.then_some((own, count, datatype))
}

/// The number of elements of a buffer, as an expression. 1 if several counts determine it.
fn elements(f: &Function, buffer: &Parameter) -> String {
    match group(f, buffer) {
        Some((_, Some(count), _)) => format!("i64::from({count})"),
        _ => "1".into(),
    }
}

/// The statement that checks a buffer: its address, and its count and datatype if one of each
/// describes it.
fn check_buffer(out: &mut String, f: &Function, p: &Parameter) {
    let Some((_, count, datatype)) = group(f, p) else {
        return;
    };
    let n = &p.name;
    let check = |at: &str| match (count, datatype) {
        (Some(count), Some(datatype)) => {
            format!("args::buffer({at}.cast(), {count}, {datatype}, \"{n}\")?;")
        }
        (count, _) => format!(
            "args::address({at}.cast(), {}, \"{n}\")?;",
            count.unwrap_or("1")
        ),
    };
    let mut text = if p.kind.may_be_in_place() {
        format!("if let Some(at) = {n} {{ {} }}", check("at"))
    } else {
        check(n)
    };
    if let Some(condition) = condition(p.significance) {
        text = format!("if {condition} {{ {text} }}");
    }
    let _ = writeln!(out, "        {text}");
}
