//! Kinds of arguments: their C types, their checks, and the types that the glue gets.

use std::fmt;

/// A kind of object behind a handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its name in `mpi.api`.
    pub word: &'static str,
    /// Its C type.
    pub c: &'static str,
    /// Its Rust type in the abi layer. `None` if the glue gets the plain handle (requests, messages
    /// and types that are not implemented).
    pub rust: Option<&'static str>,
    /// The function of the abi layer that checks it and finds its object.
    pub lookup: &'static str,
}

const fn object(
    word: &'static str,
    c: &'static str,
    rust: Option<&'static str>,
    lookup: &'static str,
) -> Object {
    Object {
        word,
        c,
        rust,
        lookup,
    }
}

/// All kinds of objects, with the names of restricted kinds.
pub const OBJECTS: [Object; 14] = [
    object("comm", "MPI_Comm", Some("Comm"), "comm"),
    object("intracomm", "MPI_Comm", Some("Comm"), "intracomm"),
    object("intercomm", "MPI_Comm", Some("Comm"), "intercomm"),
    object("group", "MPI_Group", Some("Group"), "object"),
    object("type", "MPI_Datatype", Some("Datatype"), "object"),
    object("ctype", "MPI_Datatype", Some("Datatype"), "committed"),
    object("op", "MPI_Op", Some("Op"), "object"),
    object("info", "MPI_Info", Some("Info"), "object"),
    object("errhandler", "MPI_Errhandler", Some("Errhandler"), "object"),
    object("request", "MPI_Request", None, ""),
    object("message", "MPI_Message", None, ""),
    object("win", "MPI_Win", Some("Win"), "object"),
    object("file", "MPI_File", Some("File"), "object"),
    object("session", "MPI_Session", Some("Session"), "object"),
];

/// A kind of argument that is not an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plain {
    /// Its name in `mpi.api`, without the parenthesised part.
    pub word: &'static str,
    /// Its C declaration. `@` stands for the parameter's name.
    pub c: &'static str,
    /// Its C declaration in the large-count form.
    pub c_large: &'static str,
    /// Its type in the Rust entry point.
    pub entry: &'static str,
    /// Its type in the Rust entry point of the large-count form.
    pub entry_large: &'static str,
    /// The type that the glue gets.
    pub glue: &'static str,
    /// The conversion: `$v` is the argument, `$n` its name as a literal, `$a` the parenthesised
    /// part, `$c` the communicator, `$w` true in the large-count form.
    pub convert: &'static str,
    /// The value for the glue where the argument has no meaning.
    pub absent: &'static str,
}

macro_rules! plain {
    ($($word:literal $c:literal, $large:literal, $e:literal, $el:literal, $glue:literal,
        $convert:literal, $absent:literal;)*) => {
        /// All kinds that are not objects.
        pub const PLAIN: &[Plain] = &[$(Plain {
            word: $word, c: $c, c_large: $large, entry: $e, entry_large: $el, glue: $glue,
                convert: $convert, absent: $absent,
        }),*];
    };
}

plain! {
    // Numbers in.
    "int" "int @", "int @", "i32", "i32", "i32", "$v", "0";
    "const int" "const int @", "const int @", "i32", "i32", "i32", "$v", "0";
    "bool" "int @", "int @", "i32", "i32", "bool", "$v != 0", "false";
    "len" "int @", "int @", "i32", "i32", "usize", "args::length($v, $n)?", "0";
    "n" "int @", "MPI_Count @", "i32", "i64", "i64", "args::count($v, $n)?", "0";
    "n64" "MPI_Count @", "MPI_Count @", "i64", "i64", "i64", "args::count($v, $n)?", "0";
    "num" "int @", "MPI_Count @", "i32", "i64", "i64", "i64::from($v)", "0";
    "aint" "MPI_Aint @", "MPI_Aint @", "i64", "i64", "i64", "$v", "0";
    "aint/num" "MPI_Aint @", "MPI_Count @", "i64", "i64", "i64", "$v", "0";
    // With a flag for the large-count form, which a datatype stores.
    "form n" "int @", "MPI_Count @", "i32", "i64", "(i64, bool)", "(args::count($v, $n)?, $w)",
        "(0, false)";
    "form aint/num" "MPI_Aint @", "MPI_Count @", "i64", "i64", "(i64, bool)", "($v, $w)",
        "(0, false)";
    "disp_unit" "int @", "MPI_Aint @", "i32", "i64", "i64", "i64::from($v)", "0";
    "count64" "MPI_Count @", "MPI_Count @", "i64", "i64", "i64", "$v", "0";
    "offset" "MPI_Offset @", "MPI_Offset @", "i64", "i64", "i64", "$v", "0";
    // Ranks and tags.
    "dest" "int @", "int @", "i32", "i32", "Dest", "args::dest($v, $n, $c)?", "Dest::ProcNull";
    "source" "int @", "int @", "i32", "i32", "Source", "args::source($v, $n, $c)?",
        "Source::ProcNull";
    "root" "int @", "int @", "i32", "i32", "Root", "args::root($v, $c)?", "Root::ProcNull";
    "target" "int @", "int @", "i32", "i32", "i32", "$v", "0";
    "stag" "int @", "int @", "i32", "i32", "u32", "args::tag($v, $n)?", "0";
    "rtag" "int @", "int @", "i32", "i32", "Option<u32>", "args::tag_or_any($v, $n)?", "None";
    // Memory.
    "sbuf" "const void *@", "const void *@", "*const u8", "*const u8", "*const u8", "$v",
        "std::ptr::null()";
    "rbuf" "void *@", "void *@", "*mut u8", "*mut u8", "*mut u8", "$v", "std::ptr::null_mut()";
    "sbuf?" "const void *@", "const void *@", "*const u8", "*const u8", "Option<*const u8>",
        "args::send_in_place($v, $k, $n, $c, $i)?", "Some(std::ptr::null())";
    "rbuf?" "void *@", "void *@", "*mut u8", "*mut u8", "Option<*mut u8>",
        "args::receive_in_place($v, $k, $n, $c, $i)?", "Some(std::ptr::null_mut())";
    "address" "const void *@", "const void *@", "*const u8", "*const u8", "*const u8", "$v",
        "std::ptr::null()";
    "pointer" "void *@", "void *@", "*mut c_void", "*mut c_void", "*mut c_void", "$v",
        "std::ptr::null_mut()";
    // Arrays in.
    "counts" "const int @[]", "const MPI_Count @[]", "*const i32", "*const i64", "Ints",
        "Ints::from($v)", "Ints::NONE";
    "displs" "const int @[]", "const MPI_Aint @[]", "*const i32", "*const i64", "Ints",
        "Ints::from($v)", "Ints::NONE";
    "aints" "const MPI_Aint @[]", "const MPI_Aint @[]", "*const i64", "*const i64", "Ints",
        "Ints::from($v)", "Ints::NONE";
    "aints/counts" "const MPI_Aint @[]", "const MPI_Count @[]", "*const i64", "*const i64", "Ints",
        "Ints::from($v)", "Ints::NONE";
    "ints*" "const int @[]", "const int @[]", "*const i32", "*const i32", "Ints", "Ints::from($v)",
        "Ints::NONE";
    "ints" "const int @[]", "const int @[]", "*const i32", "*const i32", "&[i32]",
        "args::slice($v, $a, $n)?", "&[]";
    "ranges" "int @[][3]", "int @[][3]", "*mut [i32; 3]", "*mut [i32; 3]", "&[[i32; 3]]",
        "args::slice($v, $a, $n)?", "&[]";
    "weights" "const int @[]", "const int @[]", "*const i32", "*const i32", "Weights",
        "Weights::from($v)", "Weights::None";
    "types" "const MPI_Datatype @[]", "const MPI_Datatype @[]", "*const Handle", "*const Handle",
        "Types", "Types::new($v, false, $n)", "Types::NONE";
    "ctypes" "const MPI_Datatype @[]", "const MPI_Datatype @[]", "*const Handle", "*const Handle",
        "Types", "Types::new($v, true, $n)", "Types::NONE";
    "infos" "const MPI_Info @[]", "const MPI_Info @[]", "*const Handle", "*const Handle",
        "*const Handle", "$v", "std::ptr::null()";
    "requests" "MPI_Request @[]", "MPI_Request @[]", "*mut Handle", "*mut Handle", "&mut [Handle]",
        "args::slice_mut($v, $a, $n)?", "&mut []";
    "const_requests" "const MPI_Request @[]", "const MPI_Request @[]", "*const Handle",
        "*const Handle", "&[Handle]", "args::slice($v, $a, $n)?", "&[]";
    // Strings.
    "string" "const char *@", "const char *@", "*const c_char", "*const c_char", "&CStr",
        "args::string($v, $n)?", "c\"\"";
    "key" "const char *@", "const char *@", "*const c_char", "*const c_char", "&CStr",
        "args::key($v)?", "c\"\"";
    "value" "const char *@", "const char *@", "*const c_char", "*const c_char", "&CStr",
        "args::value($v)?", "c\"\"";
    "argc" "int *@", "int *@", "*mut i32", "*mut i32", "*mut i32", "$v", "std::ptr::null_mut()";
    "argv" "char *@[]", "char *@[]", "*mut *mut c_char", "*mut *mut c_char", "*mut *mut c_char",
        "$v", "std::ptr::null_mut()";
    "argvs" "char **@[]", "char **@[]", "*mut *mut *mut c_char", "*mut *mut *mut c_char",
        "*mut *mut *mut c_char", "$v", "std::ptr::null_mut()";
    "argv3" "char ***@", "char ***@", "*mut *mut *mut c_char", "*mut *mut *mut c_char",
        "*mut *mut *mut c_char", "$v", "std::ptr::null_mut()";
    // Results.
    "new int" "int *@", "int *@", "*mut i32", "*mut i32", "Out<i32>", "Out::new($v, $n)?",
        "Out::NONE";
    "new int?" "int *@", "int *@", "*mut i32", "*mut i32", "Out<i32>", "Out::maybe($v)",
        "Out::NONE";
    "new flag" "int *@", "int *@", "*mut i32", "*mut i32", "OutFlag", "OutFlag::new($v, $n)?",
        "OutFlag::NONE";
    "new count" "int *@", "MPI_Count *@", "*mut i32", "*mut i64", "OutCount",
        "OutCount::new($v, $n)?", "OutCount::NONE";
    "new disp_unit" "int *@", "MPI_Aint *@", "*mut i32", "*mut i64", "OutCount",
        "OutCount::new($v, $n)?", "OutCount::NONE";
    "new aint" "MPI_Aint *@", "MPI_Aint *@", "*mut i64", "*mut i64", "Out<i64>",
        "Out::new($v, $n)?", "Out::NONE";
    "new aint/count" "MPI_Aint *@", "MPI_Count *@", "*mut i64", "*mut i64", "Out<i64>",
        "Out::new($v, $n)?", "Out::NONE";
    "new count64" "MPI_Count *@", "MPI_Count *@", "*mut i64", "*mut i64", "Out<i64>",
        "Out::new($v, $n)?", "Out::NONE";
    "new count64?" "MPI_Count *@", "MPI_Count *@", "*mut i64", "*mut i64", "Out<i64>",
        "Out::maybe($v)", "Out::NONE";
    "new offset" "MPI_Offset *@", "MPI_Offset *@", "*mut i64", "*mut i64", "Out<i64>",
        "Out::new($v, $n)?", "Out::NONE";
    "&int" "int *@", "int *@", "*mut i32", "*mut i32", "&mut i32",
        "args::out_reference($v, $n)?", "&mut 0";
    "&int?" "int *@", "int *@", "*mut i32", "*mut i32", "Option<&mut i32>",
        "args::place_or_none($v)", "None";
    "&count" "int *@", "MPI_Count *@", "*mut i32", "*mut i64", "InOutCount",
        "InOutCount::new($v, $n)?", "";
    "&aint" "MPI_Aint *@", "MPI_Count *@", "*mut i64", "*mut i64", "InOutCount",
        "InOutCount::new($v, $n)?", "";
    "new pointer" "void *@", "void *@", "*mut c_void", "*mut c_void", "OutPointer",
        "OutPointer::new($v, $n)?", "";
    "new ints" "int @[]", "int @[]", "*mut i32", "*mut i32", "OutInts", "OutInts::new($v, $a, $n)?",
        "OutInts::NONE";
    "new ints*" "int @[]", "int @[]", "*mut i32", "*mut i32", "OutInts", "OutInts::unbounded($v)",
        "OutInts::NONE";
    "&ints" "int @[]", "int @[]", "*mut i32", "*mut i32", "&mut [i32]",
        "args::slice_mut($v, $a, $n)?", "&mut []";
    "new aints*" "MPI_Aint @[]", "MPI_Aint @[]", "*mut i64", "*mut i64", "*mut i64", "$v",
        "std::ptr::null_mut()";
    "new counts*" "MPI_Count @[]", "MPI_Count @[]", "*mut i64", "*mut i64", "*mut i64", "$v",
        "std::ptr::null_mut()";
    "new types" "MPI_Datatype @[]", "MPI_Datatype @[]", "*mut Handle", "*mut Handle", "OutTypes",
        "OutTypes::new($v)", "";
    "new text" "char *@", "char *@", "*mut c_char", "*mut c_char", "OutText",
        "OutText::new($v, constants::MPI_MAX_$a, $n)?", "";
    "new text?" "char *@", "char *@", "*mut c_char", "*mut c_char", "*mut c_char", "$v",
        "std::ptr::null_mut()";
    "new chars" "char *@", "char *@", "*mut c_char", "*mut c_char", "*mut c_char", "$v",
        "std::ptr::null_mut()";
    // Statuses.
    "status" "const MPI_Status *@", "const MPI_Status *@", "*const Status", "*const Status",
        "&Status", "args::status($v, $n)?", "";
    "&status" "MPI_Status *@", "MPI_Status *@", "*mut Status", "*mut Status", "&mut Status",
        "args::out_reference($v, $n)?", "";
    "new status" "MPI_Status *@", "MPI_Status *@", "*mut Status", "*mut Status", "OutStatus",
        "OutStatus::new($v)", "OutStatus::IGNORE";
    "statuses" "MPI_Status @[]", "MPI_Status @[]", "*mut Status", "*mut Status", "OutStatuses",
        "OutStatuses::new($v)", "";
    // Handles and enumerations of the tool interface.
    "T_enum" "MPI_T_enum @", "MPI_T_enum @", "Handle", "Handle", "Handle", "$v", "0";
    "T_cvar_handle" "MPI_T_cvar_handle @", "MPI_T_cvar_handle @", "Handle", "Handle", "Handle",
        "$v", "0";
    "T_pvar_handle" "MPI_T_pvar_handle @", "MPI_T_pvar_handle @", "Handle", "Handle", "Handle",
        "$v", "0";
    "T_pvar_session" "MPI_T_pvar_session @", "MPI_T_pvar_session @", "Handle", "Handle", "Handle",
        "$v", "0";
    "T_event_registration" "MPI_T_event_registration @", "MPI_T_event_registration @", "Handle",
        "Handle", "Handle", "$v", "0";
    "T_event_instance" "MPI_T_event_instance @", "MPI_T_event_instance @", "Handle", "Handle",
        "Handle", "$v", "0";
    "T_cb_safety" "MPI_T_cb_safety @", "MPI_T_cb_safety @", "i32", "i32", "i32", "$v", "0";
    "new T_enum?" "MPI_T_enum *@", "MPI_T_enum *@", "*mut Handle", "*mut Handle", "Out<Handle>",
        "Out::maybe($v)", "Out::NONE";
    "&T_cvar_handle" "MPI_T_cvar_handle *@", "MPI_T_cvar_handle *@", "*mut Handle", "*mut Handle",
        "&mut Handle", "args::out_reference($v, $n)?", "";
    "&T_pvar_handle" "MPI_T_pvar_handle *@", "MPI_T_pvar_handle *@", "*mut Handle", "*mut Handle",
        "&mut Handle", "args::out_reference($v, $n)?", "";
    "&T_pvar_session" "MPI_T_pvar_session *@", "MPI_T_pvar_session *@", "*mut Handle",
        "*mut Handle", "&mut Handle", "args::out_reference($v, $n)?", "";
    "new T_cvar_handle" "MPI_T_cvar_handle *@", "MPI_T_cvar_handle *@", "*mut Handle",
        "*mut Handle", "Out<Handle>", "Out::new($v, $n)?", "Out::NONE";
    "new T_pvar_handle" "MPI_T_pvar_handle *@", "MPI_T_pvar_handle *@", "*mut Handle",
        "*mut Handle", "Out<Handle>", "Out::new($v, $n)?", "Out::NONE";
    "new T_pvar_session" "MPI_T_pvar_session *@", "MPI_T_pvar_session *@", "*mut Handle",
        "*mut Handle", "Out<Handle>", "Out::new($v, $n)?", "Out::NONE";
    "new T_event_registration" "MPI_T_event_registration *@", "MPI_T_event_registration *@",
        "*mut Handle", "*mut Handle", "Out<Handle>", "Out::new($v, $n)?", "Out::NONE";
    "new T_source_order?" "MPI_T_source_order *@", "MPI_T_source_order *@", "*mut i32", "*mut i32",
        "Out<i32>", "Out::maybe($v)", "Out::NONE";
}

/// C functions that the user passes: the type that the glue gets, and the conversion.
pub const FUNCTIONS: &[(&str, &str, &str)] = &[
    (
        "Comm_errhandler_function",
        "ErrorFunction",
        "callback::error_function($v, $n)?",
    ),
    (
        "File_errhandler_function",
        "ErrorFunction",
        "callback::error_function($v, $n)?",
    ),
    (
        "Win_errhandler_function",
        "ErrorFunction",
        "callback::error_function($v, $n)?",
    ),
    (
        "Session_errhandler_function",
        "ErrorFunction",
        "callback::error_function($v, $n)?",
    ),
    (
        "Copy_function",
        "CopyFunction",
        "callback::copy_function($v)",
    ),
    (
        "Comm_copy_attr_function",
        "CopyFunction",
        "callback::copy_function($v)",
    ),
    (
        "Type_copy_attr_function",
        "CopyFunction",
        "callback::copy_function($v)",
    ),
    (
        "Win_copy_attr_function",
        "CopyFunction",
        "callback::copy_function($v)",
    ),
    (
        "Delete_function",
        "DeleteFunction",
        "callback::delete_function($v)",
    ),
    (
        "Comm_delete_attr_function",
        "DeleteFunction",
        "callback::delete_function($v)",
    ),
    (
        "Type_delete_attr_function",
        "DeleteFunction",
        "callback::delete_function($v)",
    ),
    (
        "Win_delete_attr_function",
        "DeleteFunction",
        "callback::delete_function($v)",
    ),
    (
        "User_function",
        "UserFunction",
        "callback::user_function($v, $w, $n)?",
    ),
    (
        "Grequest_query_function",
        "QueryFunction",
        "callback::query_function($v, $n)?",
    ),
    (
        "Grequest_free_function",
        "FreeFunction",
        "callback::free_function($v, $n)?",
    ),
    (
        "Grequest_cancel_function",
        "CancelFunction",
        "callback::cancel_function($v, $n)?",
    ),
    (
        "Datarep_conversion_function",
        "Option<ConversionFunction>",
        "callback::conversion_function($v, $w)",
    ),
    (
        "Datarep_extent_function",
        "ExtentFunction",
        "callback::extent_function($v, $n)?",
    ),
    ("T_event_cb_function", "*const c_void", "$v"),
    ("T_event_free_cb_function", "*const c_void", "$v"),
    ("T_event_dropped_cb_function", "*const c_void", "$v"),
];

/// How a handle is passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// A valid handle by value.
    Valid,
    /// A handle by value that may be null.
    Maybe,
    /// A handle by value that is not looked up.
    Raw,
    /// A pointer to a valid handle, which the call may change.
    InOut,
    /// A pointer to where a new handle goes.
    New,
    /// A pointer to where a new handle goes, which may be null.
    NewMaybe,
}

/// A kind of argument, as `mpi.api` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A handle.
    Object(Object, Passing),
    /// Something else.
    Plain(&'static Plain),
    /// A C function: its index in [`FUNCTIONS`], and whether it has a large-count form.
    Function(usize, bool),
    /// Any further arguments (MPI_Pcontrol).
    Variadic,
}

impl Kind {
    /// Parses a kind. `text` has no significance mark, `+` or parentheses.
    pub fn parse(text: &str) -> Option<Kind> {
        if let Some(name) = text.strip_prefix("fn ") {
            let (plain, large) = match name.split_once('/') {
                Some((plain, large)) if large.strip_suffix("_c") == Some(plain) => (plain, true),
                Some(_) => return None,
                None => (name, false),
            };
            let at = FUNCTIONS.iter().position(|f| f.0 == plain)?;
            return Some(Kind::Function(at, large));
        }
        if let Some(plain) = PLAIN.iter().find(|p| p.word == text) {
            return Some(Kind::Plain(plain));
        }
        let (word, passing) = if let Some(word) = text.strip_prefix("raw ") {
            (word, Passing::Raw)
        } else if let Some(word) = text.strip_prefix('&') {
            (word, Passing::InOut)
        } else if let Some(word) = text.strip_prefix("new ") {
            match word.strip_suffix('?') {
                Some(word) => (word, Passing::NewMaybe),
                None => (word, Passing::New),
            }
        } else if let Some(word) = text.strip_suffix('?') {
            (word, Passing::Maybe)
        } else {
            (text, Passing::Valid)
        };
        let object = OBJECTS.iter().find(|o| o.word == word)?;
        Some(Kind::Object(*object, passing))
    }

    /// Is this a buffer that messages are read from or written to?
    pub fn is_buffer(&self) -> bool {
        matches!(self, Kind::Plain(p) if matches!(p.word, "sbuf" | "rbuf" | "sbuf?" | "rbuf?"))
    }

    /// Is this a buffer that may be MPI_IN_PLACE?
    pub fn may_be_in_place(&self) -> bool {
        matches!(self, Kind::Plain(p) if matches!(p.word, "sbuf?" | "rbuf?"))
    }

    /// Is this a plain kind of the name `word`?
    pub fn is(&self, word: &str) -> bool {
        match self {
            Kind::Plain(p) => p.word == word,
            Kind::Object(o, Passing::Valid) => o.word == word,
            _ => false,
        }
    }

    /// The C declaration of a parameter of this kind.
    pub fn c(&self, name: &str, large: bool) -> String {
        match self {
            Kind::Object(o, Passing::Valid | Passing::Maybe | Passing::Raw) => {
                format!("{} {name}", o.c)
            }
            Kind::Object(o, _) => format!("{} *{name}", o.c),
            Kind::Plain(p) => (if large { p.c_large } else { p.c }).replace('@', name),
            Kind::Function(at, has_large) => {
                let suffix = if *has_large && large { "_c" } else { "" };
                // The standard declares the tool interface's callbacks as functions, which C
                // converts to pointers.
                let star = if FUNCTIONS[*at].0.starts_with("T_") {
                    ""
                } else {
                    "*"
                };
                format!("MPI_{}{suffix} {star}{name}", FUNCTIONS[*at].0)
            }
            Kind::Variadic => "...".into(),
        }
    }

    /// Its type in the Rust entry point.
    pub fn entry(&self, large: bool) -> &'static str {
        match self {
            Kind::Object(_, Passing::Valid | Passing::Maybe | Passing::Raw) => "Handle",
            Kind::Object(..) => "*mut Handle",
            Kind::Plain(p) if large => p.entry_large,
            Kind::Plain(p) => p.entry,
            Kind::Function(..) => "*const c_void",
            Kind::Variadic => "",
        }
    }

    /// The type that the glue gets.
    pub fn glue(&self) -> String {
        match self {
            Kind::Object(o, passing) => match (o.rust, passing) {
                (_, Passing::Raw) | (None, Passing::Valid | Passing::Maybe) => "Handle".into(),
                (None, Passing::InOut) => "&mut Handle".into(),
                (None, Passing::New | Passing::NewMaybe) => "Out<Handle>".into(),
                (Some(rust), Passing::Valid) => format!("&'static Arc<{rust}>"),
                (Some(rust), Passing::Maybe) => format!("Option<&'static Arc<{rust}>>"),
                (Some(rust), Passing::InOut) => format!("InOutHandle<{rust}>"),
                (Some(rust), Passing::New | Passing::NewMaybe) => format!("New<{rust}>"),
            },
            Kind::Plain(p) => p.glue.into(),
            Kind::Function(at, _) => FUNCTIONS[*at].1.into(),
            Kind::Variadic => String::new(),
        }
    }

    /// The conversion from the entry point's argument to the glue's, with placeholders as in
    /// [`Plain::convert`].
    pub fn convert(&self) -> String {
        match self {
            Kind::Object(o, passing) => match (o.rust, passing) {
                (_, Passing::Raw) | (None, Passing::Valid | Passing::Maybe) => "$v".into(),
                (None, Passing::InOut) => "args::out_reference($v, $n)?".into(),
                (None, Passing::New) => "Out::new($v, $n)?".into(),
                (None, Passing::NewMaybe) => "Out::maybe($v)".into(),
                (Some(rust), Passing::Valid) if o.lookup == "object" => {
                    format!("args::object::<{rust}>($v, $n)?")
                }
                (Some(_), Passing::Valid) => format!("args::{}($v, $n)?", o.lookup),
                (Some(rust), Passing::Maybe) => format!("args::object_or_null::<{rust}>($v, $n)?"),
                (Some(rust), Passing::InOut) => format!("InOutHandle::<{rust}>::new($v, $n)?"),
                (Some(rust), Passing::New) => format!("New::<{rust}>::new($v, $n)?"),
                (Some(rust), Passing::NewMaybe) => format!("New::<{rust}>::maybe($v)"),
            },
            Kind::Plain(p) => p.convert.into(),
            Kind::Function(at, _) => FUNCTIONS[*at].2.into(),
            Kind::Variadic => String::new(),
        }
    }

    /// The value for the glue where the argument has no meaning.
    pub fn absent(&self) -> &'static str {
        match self {
            Kind::Object(o, _) if o.word == "ctype" || o.word == "type" => "args::unused_type()",
            Kind::Object(o, _) if o.word == "op" => "args::unused_op()",
            Kind::Object(_, Passing::Maybe) => "None",
            Kind::Object(..) => "",
            Kind::Plain(p) => p.absent,
            Kind::Function(..) | Kind::Variadic => "",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Object(o, Passing::Valid) => f.write_str(o.word),
            Kind::Object(o, Passing::Maybe) => write!(f, "{}?", o.word),
            Kind::Object(o, Passing::Raw) => write!(f, "raw {}", o.word),
            Kind::Object(o, Passing::InOut) => write!(f, "&{}", o.word),
            Kind::Object(o, Passing::New) => write!(f, "new {}", o.word),
            Kind::Object(o, Passing::NewMaybe) => write!(f, "new {}?", o.word),
            Kind::Plain(p) => f.write_str(p.word),
            Kind::Function(at, _) => write!(f, "fn {}", FUNCTIONS[*at].0),
            Kind::Variadic => f.write_str("..."),
        }
    }
}
