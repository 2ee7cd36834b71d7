//! How an argument is converted for the standard ABI, and its result back.

use crate::kind::{Kind, Passing};
use crate::{Function, Parameter};

/// What is generated for one parameter.
#[derive(Default)]
pub(super) struct Lowered {
    /// Its type in this ABI's entry point.
    pub ty: String,
    /// Its type in the standard ABI's.
    pub standard: String,
    /// Statements before the call.
    pub before: String,
    /// What is passed.
    pub pass: String,
    /// Statements after the call, whatever it returned.
    pub after: String,
    /// Statements after a call that returned MPI_SUCCESS.
    pub on_success: String,
}

/// The type of the handles of an object.
pub(super) fn handle_type(c: &str) -> &'static str {
    match c {
        "MPI_File" => "F",
        _ => "H",
    }
}

/// The marker type of an object's kind.
pub(super) fn marker(c: &str) -> String {
    format!("kind::{}", c.trim_start_matches("MPI_"))
}

/// The functions that convert a handle of an object.
fn conversions(c: &str) -> (String, String) {
    match c {
        "MPI_File" => ("A::file_in".into(), "A::file_out".into()),
        _ => {
            let marker = marker(c);
            (
                format!("A::handle_in::<{marker}>"),
                format!("A::handle_out::<{marker}>"),
            )
        }
    }
}

/// An int that is translated on its way in. `$` stands for it.
fn int_in(function: &str, name: &str) -> Option<&'static str> {
    Some(match (function, name) {
        ("Abort", _) => return None,
        ("Status_set_source", "source") | ("Win_shared_query", "rank") => "rank_in::<A>($)",
        ("Status_set_tag", "tag") => "tag_in::<A>($)",
        ("Status_set_error", "error") => "A::code_in($)",
        (_, "errorcode") => "A::code_in($)",
        (_, "errorclass") => "A::class_in($)",
        (_, "amode") => "bits_in(A::TABLES.modes, $)",
        (_, "assert") => "bits_in(A::TABLES.assertions, $)",
        (_, "lock_type") => "value_in(A::TABLES.locks, $)",
        (_, "whence") => "value_in(A::TABLES.seeks, $)",
        (_, "order") => "value_in(A::TABLES.orders, $)",
        (_, "split_type") => "value_in(A::TABLES.splits, $)",
        (_, "typeclass") => "value_in(A::TABLES.type_classes, $)",
        (_, "required") => "value_in(A::TABLES.threads, $)",
        (_, "var_class") => "value_in(A::TABLES.pvar_classes, $)",
        (_, "win_keyval") => "value_in(A::TABLES.win_keys, $)",
        (_, "comm_keyval" | "keyval" | "type_keyval") => "value_in(A::TABLES.comm_keys, $)",
        _ => return None,
    })
}

/// An int that is translated on its way out. `$` stands for it.
fn int_out(function: &str, name: &str) -> Option<&'static str> {
    Some(match (function, name) {
        (_, "errorclass" | "errorcode") => "A::code_out($)",
        (_, "provided") => "value_out(A::TABLES.threads, $)",
        (_, "result") => "value_out(A::TABLES.comparisons, $)",
        ("Topo_test", "status") => "value_out(A::TABLES.topologies, $)",
        (_, "combiner") => "value_out(A::TABLES.combiners, $)",
        (_, "win_keyval") => "value_out(A::TABLES.win_keys, $)",
        (_, "comm_keyval" | "keyval" | "type_keyval") => "value_out(A::TABLES.comm_keys, $)",
        (_, "amode") => "bits_out(A::TABLES.modes, $)",
        (_, "rank_source" | "rank_dest") | ("Status_get_source", "source") => "rank_out::<A>($)",
        ("Status_get_tag", "tag") => "tag_out::<A>($)",
        ("Status_get_error", "error") => "A::code_out($)",
        (_, "verbosity") => "value_out(A::TABLES.verbosity, $)",
        (_, "bind") => "value_out(A::TABLES.bindings, $)",
        (_, "scope") => "value_out(A::TABLES.scopes, $)",
        (_, "var_class") => "value_out(A::TABLES.pvar_classes, $)",
        _ => return None,
    })
}

/// The parameter that says how long an array is.
fn length<'a>(f: &'a Function, p: &'a Parameter) -> &'a str {
    if let Some(length) = &p.argument {
        return length;
    }
    let counts = f.parameters.iter().take_while(|q| q.name != p.name);
    let mut counts = counts.filter(|q| q.kind.is("n") || q.kind.is("len") || q.kind.is("form n"));
    counts.next().map_or("0", |q| q.name.as_str())
}

/// The conversion of a parameter. `large`: of the large-count form.
pub(super) fn lower(f: &Function, p: &Parameter, large: bool) -> Lowered {
    let n = p.name.as_str();
    let own = p.kind.entry(large).to_string();
    let plain = Lowered {
        ty: own.replace("Handle", "u64"),
        standard: own.replace("Handle", "u64"),
        pass: n.into(),
        ..Lowered::default()
    };
    match &p.kind {
        // As it is.
        _ if f.is_per_abi() && matches!(n, "request" | "array_of_requests") => Lowered {
            ty: own.replace("Handle", "H"),
            standard: own.replace("Handle", "H"),
            pass: n.into(),
            ..Lowered::default()
        },
        Kind::Object(o, passing) => object(n, o.c, *passing),
        Kind::Function(..) | Kind::Variadic => plain,
        Kind::Plain(kind) => plain_kind(f, p, kind.word, plain),
    }
}

fn object(n: &str, c: &str, passing: Passing) -> Lowered {
    let ty = handle_type(c);
    let (to, from) = conversions(c);
    match passing {
        Passing::Valid | Passing::Maybe | Passing::Raw => Lowered {
            ty: ty.into(),
            standard: "u64".into(),
            pass: format!("{to}({n})"),
            ..Lowered::default()
        },
        Passing::InOut => Lowered {
            ty: format!("*mut {ty}"),
            standard: "*mut u64".into(),
            before: format!(
                "let mut {n}_ = if {n}.is_null() {{ 0 }} else {{ {to}(*{n}) }};\n        let \
                 {n}_old = {n}_;\n        "
            ),
            pass: format!("place({n}, &raw mut {n}_)"),
            after: format!("if {n}_ != {n}_old {{ *{n} = {from}({n}_); }}\n        "),
            ..Lowered::default()
        },
        Passing::New | Passing::NewMaybe => Lowered {
            ty: format!("*mut {ty}"),
            standard: "*mut u64".into(),
            before: format!("let mut {n}_: u64 = 0;\n        "),
            pass: format!("place({n}, &raw mut {n}_)"),
            // 0 is never a handle of the standard ABI (MPI 5.0 chapter 21).
            after: format!("if {n}_ != 0 {{ *{n} = {from}({n}_); }}\n        "),
            ..Lowered::default()
        },
    }
}

/// A parameter that is no handle, by the word of its kind in `mpi.api`.
fn plain_kind(f: &Function, p: &Parameter, word: &str, mut plain: Lowered) -> Lowered {
    match word {
        "types" | "ctypes" | "requests" | "const_requests" => handle_array(f, p, word, &mut plain),
        "status" | "&status" | "new status" | "statuses" => status(f, p, word, &mut plain),
        "ints" | "new ints" => int_array(f, p, word, &mut plain),
        "new int" | "new int?" | "&int" => int_pointer(f, p, word, &mut plain),
        "new text" => text(&mut plain, p),
        "new pointer" if p.name == "buffer_addr" => {
            plain.on_success = "automatic_out::<A>(buffer_addr);\n        ".into();
        }
        "new T_source_order?" => {
            let n = &p.name;
            plain.on_success = format!(
                "if !{n}.is_null() {{ *{n} = value_out(A::TABLES.source_orders, *{n}); }}\n        "
            );
        }
        _ => {
            if let Some(how) = value_in(f, p, word) {
                plain.pass = how.replace('$', &p.name);
            }
        }
    }
    plain
}

/// A value that is translated on its way in. `$` stands for it.
fn value_in(f: &Function, p: &Parameter, word: &str) -> Option<&'static str> {
    let n = p.name.as_str();
    let name = f.name.as_str();
    Some(match word {
        "int" | "const int" | "len" => return int_in(name, n),
        "dest" | "source" | "root" | "target" => "rank_in::<A>($)",
        "stag" | "rtag" => "tag_in::<A>($)",
        "sbuf?" | "rbuf?" => "in_place::<A, _>($)",
        "sbuf" | "rbuf" if f.chapter == "coll" || name == "Reduce_local" => "in_place::<A, _>($)",
        "pointer" if n == "buffer" && name.contains("ttach") => "automatic::<A>($)",
        "weights" => "weights_in::<A>($.cast_mut()).cast_const()",
        "new ints*" if n.ends_with("weights") => "weights_in::<A>($)",
        "offset" if n == "disp" => "displacement::<A>($)",
        "T_pvar_handle" => "A::pvar_handle_in($)",
        "T_cb_safety" => "value_in(A::TABLES.callback_safety, $)",
        _ => return None,
    })
}

/// An array of datatypes or requests.
fn handle_array(f: &Function, p: &Parameter, word: &str, plain: &mut Lowered) {
    let n = p.name.as_str();
    match word {
        "types" => types(plain, n, &format!("{} as usize", length(f, p))),
        // The w-forms: a datatype for each peer. No send types are read where the call is in place.
        "ctypes" => {
            let sends = n.starts_with("send");
            let neighbours = f.name.to_lowercase().contains("neighbor");
            let count = format!("peers::<A>(comm, {neighbours}, {sends})");
            let skip = match sends {
                true => "is_in_place::<A>(sendbuf.cast())",
                false => "false",
            };
            types(plain, n, &format!("if {skip} {{ 0 }} else {{ {count} }}"));
        }
        _ => {
            let mutable = word == "requests";
            let pointer = if mutable { "*mut" } else { "*const" };
            plain.ty = format!("{pointer} H");
            plain.before = format!(
                "let mut {n}_ = Handles::<A, kind::Request>::new({n}, {} as usize);\n\
                 \x20       ",
                length(f, p)
            );
            plain.pass = format!("{n}_.pointer()");
            if mutable {
                plain.after = format!("{n}_.store();\n        ");
            }
        }
    }
}

/// A status that is read, changed or written, or an array of them that is written.
fn status(f: &Function, p: &Parameter, word: &str, plain: &mut Lowered) {
    let n = p.name.as_str();
    plain.ty = "*mut S".into();
    match word {
        "status" => {
            plain.ty = "*const S".into();
            plain.before = format!("let {n}_ = status_in::<A>({n});\n        ");
            plain.pass = format!("if {n}.is_null() {{ null() }} else {{ &raw const {n}_ }}");
        }
        "&status" => {
            plain.before = format!("let mut {n}_ = status_in::<A>({n});\n        ");
            plain.pass = format!("if {n}.is_null() {{ null_mut() }} else {{ &raw mut {n}_ }}");
            plain.on_success = format!("A::status_out(&{n}_, {n});\n        ");
        }
        "new status" => {
            plain.before = format!("let mut {n}_ = NewStatus::<A>::unwritten();\n        ");
            plain.pass = format!("{n}_.pointer({n})");
            plain.after = format!("{n}_.store({n});\n        ");
        }
        _ => {
            plain.before = format!(
                "let mut {n}_ = Statuses::<A>::new({n}, {} as usize);\n        ",
                length(f, p)
            );
            plain.pass = format!("{n}_.pointer()");
            plain.after = format!("{n}_.store();\n        ");
        }
    }
}

/// An array of integers, some of which are constants whose values depend on the ABI.
fn int_array(f: &Function, p: &Parameter, word: &str, plain: &mut Lowered) {
    let n = p.name.as_str();
    let convert = match (word, n) {
        ("ints", "array_of_dargs") => {
            format!(
                "distribution_arguments::<A>({n}, {} as usize)",
                length(f, p)
            )
        }
        ("ints", "array_of_distribs") => {
            format!("distributions::<A>({n}, {} as usize)", length(f, p))
        }
        ("ints", "ranks1") => format!("ranks_in::<A>({n}, n as usize)"),
        ("new ints", "ranks2") => {
            plain.on_success = format!("ranks_out::<A>({n}, n as usize);\n        ");
            return;
        }
        _ => return,
    };
    plain.before = format!("let mut {n}_ = {convert};\n        ");
    plain.pass = format!("if {n}.is_null() {{ null() }} else {{ {n}_.as_mut_ptr() }}");
}

/// An integer that is written, or read and written.
fn int_pointer(f: &Function, p: &Parameter, word: &str, plain: &mut Lowered) {
    let n = p.name.as_str();
    let assign = |how: &str| {
        let value = how.replace('$', &format!("*{n}"));
        format!("if !{n}.is_null() {{ *{n} = {value}; }}\n        ")
    };
    if word == "&int"
        && let Some(how) = int_in(&f.name, n)
    {
        plain.before = assign(how);
    }
    if let Some(how) = int_out(&f.name, n) {
        plain.on_success = assign(how);
    }
}

/// An array of datatypes that is read.
fn types(plain: &mut Lowered, n: &str, count: &str) {
    plain.ty = "*const H".into();
    plain.before =
        format!("let mut {n}_ = Handles::<A, kind::Datatype>::new({n}, {count});\n        ");
    plain.pass = format!("{n}_.pointer()");
}

/// A string whose room depends on the ABI.
fn text(plain: &mut Lowered, p: &Parameter) {
    let n = &p.name;
    let room = p.argument.as_deref().unwrap_or_default();
    let standard = crate::constants::value(&format!("MPI_MAX_{room}")).unwrap_or(0);
    plain.before = format!(
        "let mut {n}_ = Text::<{standard}>::new({n}, A::STRING_SIZES.{});\n        ",
        room.to_lowercase()
    );
    plain.pass = format!("{n}_.pointer()");
    plain.on_success = format!("{n}_.store(RESULTLEN);\n        ");
}
