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
    /// The Rust expression that makes the glue's argument. [`Placeholders::fill`] replaces what
    /// begins with `$`.
    pub convert: &'static str,
    /// The Rust expression that the glue gets instead where the argument is not significant, or
    /// where this form of the function does not have it.
    pub absent: &'static str,
}

/// What stands for the placeholders of a conversion ([`Plain::convert`]).
#[derive(Clone, Copy, Debug)]
pub struct Placeholders<'a> {
    /// `$value`: the argument. `$name` is the same as a string literal.
    pub value: &'a str,
    /// `$argument`: the part of the kind in parentheses, such as an array's length.
    pub argument: &'a str,
    /// `$comm`: the communicator of the call.
    pub comm: &'a str,
    /// `$is_large`: is this the large-count form?
    pub is_large: bool,
    /// `$elements`: the number of elements of a buffer.
    pub elements: &'a str,
    /// `$at_root`: is this rank the root, or has the call no root?
    pub at_root: &'a str,
}

impl Placeholders<'_> {
    /// The expression `convert` with the placeholders replaced.
    pub fn fill(&self, convert: &str) -> String {
        convert
            .replace("$value", self.value)
            .replace("$name", &format!("\"{}\"", self.value))
            .replace("$argument", self.argument)
            .replace("$comm", self.comm)
            .replace("$is_large", if self.is_large { "true" } else { "false" })
            .replace("$elements", self.elements)
            .replace("$at_root", self.at_root)
    }
}

/// One row a kind:
///
/// ```text
/// "word": "C declaration", "type in the entry point" => "type for the glue", "conversion",
///     absent "what the glue gets without it";
/// ```
///
/// Where the large-count form has another declaration or type, it follows behind `|`. Kinds that
/// are always significant have no `absent`.
macro_rules! plain {
    ($($word:literal: $c:literal $(| $c_large:literal)?,
        $entry:literal $(| $entry_large:literal)? => $glue:literal,
        $convert:literal $(, absent $absent:literal)?;)*) => {
        /// All kinds that are not objects.
        pub const PLAIN: &[Plain] = &[$(Plain {
            word: $word,
            c: $c,
            c_large: first_of!($($c_large,)? $c),
            entry: $entry,
            entry_large: first_of!($($entry_large,)? $entry),
            glue: $glue,
            convert: $convert,
            absent: first_of!($($absent,)? ""),
        }),*];
    };
}

macro_rules! first_of {
    ($first:literal $(, $other:literal)?) => {
        $first
    };
}

plain! {
    // Numbers in.
    "int": "int @", "i32" => "i32", "$value", absent "0";
    "const int": "const int @", "i32" => "i32", "$value", absent "0";
    "bool": "int @", "i32" => "bool", "$value != 0", absent "false";
    "len": "int @", "i32" => "usize", "args::length($value, $name)?", absent "0";
    "n": "int @" | "MPI_Count @", "i32" | "i64" => "i64", "args::count($value, $name)?", absent "0";
    "n64": "MPI_Count @", "i64" => "i64", "args::count($value, $name)?", absent "0";
    "num": "int @" | "MPI_Count @", "i32" | "i64" => "i64", "i64::from($value)", absent "0";
    "aint": "MPI_Aint @", "i64" => "i64", "$value", absent "0";
    "aint/num": "MPI_Aint @" | "MPI_Count @", "i64" => "i64", "$value", absent "0";
    // With a flag for the large-count form, which a datatype stores.
    "form n": "int @" | "MPI_Count @", "i32" | "i64" => "(i64, bool)",
        "(args::count($value, $name)?, $is_large)", absent "(0, false)";
    "form aint/num": "MPI_Aint @" | "MPI_Count @", "i64" => "(i64, bool)", "($value, $is_large)",
        absent "(0, false)";
    "disp_unit": "int @" | "MPI_Aint @", "i32" | "i64" => "i64", "i64::from($value)", absent "0";
    "count64": "MPI_Count @", "i64" => "i64", "$value", absent "0";
    "offset": "MPI_Offset @", "i64" => "i64", "$value", absent "0";
    // Ranks and tags.
    "dest": "int @", "i32" => "Dest", "args::dest($value, $name, $comm)?", absent "Dest::ProcNull";
    "source": "int @", "i32" => "Source", "args::source($value, $name, $comm)?",
        absent "Source::ProcNull";
    "root": "int @", "i32" => "Root", "args::root($value, $comm)?", absent "Root::ProcNull";
    "target": "int @", "i32" => "i32", "$value", absent "0";
    "stag": "int @", "i32" => "u32", "args::tag($value, $name)?", absent "0";
    "rtag": "int @", "i32" => "Option<u32>", "args::tag_or_any($value, $name)?", absent "None";
    // Memory.
    "sbuf": "const void *@", "*const u8" => "*const u8", "$value", absent "std::ptr::null()";
    "rbuf": "void *@", "*mut u8" => "*mut u8", "$value", absent "std::ptr::null_mut()";
    "sbuf?": "const void *@", "*const u8" => "Option<*const u8>",
        "args::send_in_place($value, $elements, $name, $comm, $at_root)?",
        absent "Some(std::ptr::null())";
    "rbuf?": "void *@", "*mut u8" => "Option<*mut u8>",
        "args::receive_in_place($value, $elements, $name, $comm, $at_root)?",
        absent "Some(std::ptr::null_mut())";
    "address": "const void *@", "*const u8" => "*const u8", "$value", absent "std::ptr::null()";
    "pointer": "void *@", "*mut c_void" => "*mut c_void", "$value", absent "std::ptr::null_mut()";
    // Arrays in.
    "counts": "const int @[]" | "const MPI_Count @[]", "*const i32" | "*const i64" => "Ints",
        "Ints::from($value)", absent "Ints::NONE";
    "displs": "const int @[]" | "const MPI_Aint @[]", "*const i32" | "*const i64" => "Ints",
        "Ints::from($value)", absent "Ints::NONE";
    "aints": "const MPI_Aint @[]", "*const i64" => "Ints", "Ints::from($value)",
        absent "Ints::NONE";
    "aints/counts": "const MPI_Aint @[]" | "const MPI_Count @[]", "*const i64" => "Ints",
        "Ints::from($value)", absent "Ints::NONE";
    "ints*": "const int @[]", "*const i32" => "Ints", "Ints::from($value)", absent "Ints::NONE";
    "ints": "const int @[]", "*const i32" => "&[i32]", "args::slice($value, $argument, $name)?",
        absent "&[]";
    "ranges": "int @[][3]", "*mut [i32; 3]" => "&[[i32; 3]]",
        "args::slice($value, $argument, $name)?", absent "&[]";
    "weights": "const int @[]", "*const i32" => "Weights", "Weights::from($value)",
        absent "Weights::None";
    "types": "const MPI_Datatype @[]", "*const Handle" => "Types",
        "Types::new($value, false, $name)", absent "Types::NONE";
    "ctypes": "const MPI_Datatype @[]", "*const Handle" => "Types",
        "Types::new($value, true, $name)", absent "Types::NONE";
    "infos": "const MPI_Info @[]", "*const Handle" => "*const Handle", "$value",
        absent "std::ptr::null()";
    "requests": "MPI_Request @[]", "*mut Handle" => "&mut [Handle]",
        "args::slice_mut($value, $argument, $name)?", absent "&mut []";
    "const_requests": "const MPI_Request @[]", "*const Handle" => "&[Handle]",
        "args::slice($value, $argument, $name)?", absent "&[]";
    // Strings.
    "string": "const char *@", "*const c_char" => "&CStr", "args::string($value, $name)?",
        absent "c\"\"";
    "key": "const char *@", "*const c_char" => "&CStr", "args::key($value)?", absent "c\"\"";
    "value": "const char *@", "*const c_char" => "&CStr", "args::value($value)?", absent "c\"\"";
    "argc": "int *@", "*mut i32" => "*mut i32", "$value", absent "std::ptr::null_mut()";
    "argv": "char *@[]", "*mut *mut c_char" => "*mut *mut c_char", "$value",
        absent "std::ptr::null_mut()";
    "argvs": "char **@[]", "*mut *mut *mut c_char" => "*mut *mut *mut c_char", "$value",
        absent "std::ptr::null_mut()";
    "argv3": "char ***@", "*mut *mut *mut c_char" => "*mut *mut *mut c_char", "$value",
        absent "std::ptr::null_mut()";
    // Results.
    "new int": "int *@", "*mut i32" => "Out<i32>", "Out::new($value, $name)?", absent "Out::NONE";
    "new int?": "int *@", "*mut i32" => "Out<i32>", "Out::maybe($value)", absent "Out::NONE";
    "new flag": "int *@", "*mut i32" => "OutFlag", "OutFlag::new($value, $name)?",
        absent "OutFlag::NONE";
    "new count": "int *@" | "MPI_Count *@", "*mut i32" | "*mut i64" => "OutCount",
        "OutCount::new($value, $name)?", absent "OutCount::NONE";
    "new disp_unit": "int *@" | "MPI_Aint *@", "*mut i32" | "*mut i64" => "OutCount",
        "OutCount::new($value, $name)?", absent "OutCount::NONE";
    "new aint": "MPI_Aint *@", "*mut i64" => "Out<i64>", "Out::new($value, $name)?",
        absent "Out::NONE";
    "new aint/count": "MPI_Aint *@" | "MPI_Count *@", "*mut i64" => "Out<i64>",
        "Out::new($value, $name)?", absent "Out::NONE";
    "new count64": "MPI_Count *@", "*mut i64" => "Out<i64>", "Out::new($value, $name)?",
        absent "Out::NONE";
    "new count64?": "MPI_Count *@", "*mut i64" => "Out<i64>", "Out::maybe($value)",
        absent "Out::NONE";
    "new offset": "MPI_Offset *@", "*mut i64" => "Out<i64>", "Out::new($value, $name)?",
        absent "Out::NONE";
    "&int": "int *@", "*mut i32" => "&mut i32", "args::out_reference($value, $name)?",
        absent "&mut 0";
    "&int?": "int *@", "*mut i32" => "Option<&mut i32>", "args::place_or_none($value)",
        absent "None";
    "&count": "int *@" | "MPI_Count *@", "*mut i32" | "*mut i64" => "InOutCount",
        "InOutCount::new($value, $name)?";
    "&aint": "MPI_Aint *@" | "MPI_Count *@", "*mut i64" => "InOutCount",
        "InOutCount::new($value, $name)?";
    "new pointer": "void *@", "*mut c_void" => "OutPointer", "OutPointer::new($value, $name)?";
    "new ints": "int @[]", "*mut i32" => "OutInts", "OutInts::new($value, $argument, $name)?",
        absent "OutInts::NONE";
    "new ints*": "int @[]", "*mut i32" => "OutInts", "OutInts::unbounded($value)",
        absent "OutInts::NONE";
    "&ints": "int @[]", "*mut i32" => "&mut [i32]", "args::slice_mut($value, $argument, $name)?",
        absent "&mut []";
    "new aints*": "MPI_Aint @[]", "*mut i64" => "*mut i64", "$value", absent "std::ptr::null_mut()";
    "new counts*": "MPI_Count @[]", "*mut i64" => "*mut i64", "$value",
        absent "std::ptr::null_mut()";
    "new types": "MPI_Datatype @[]", "*mut Handle" => "OutTypes", "OutTypes::new($value)";
    "new text": "char *@", "*mut c_char" => "OutText",
        "OutText::new($value, constants::MPI_MAX_$argument, $name)?";
    "new text?": "char *@", "*mut c_char" => "*mut c_char", "$value", absent "std::ptr::null_mut()";
    "new chars": "char *@", "*mut c_char" => "*mut c_char", "$value", absent "std::ptr::null_mut()";
    // Statuses.
    "status": "const MPI_Status *@", "*const Status" => "&Status", "args::status($value, $name)?";
    "&status": "MPI_Status *@", "*mut Status" => "&mut Status",
        "args::out_reference($value, $name)?";
    "new status": "MPI_Status *@", "*mut Status" => "OutStatus", "OutStatus::new($value)",
        absent "OutStatus::IGNORE";
    "statuses": "MPI_Status @[]", "*mut Status" => "OutStatuses", "OutStatuses::new($value)";
    // Handles and enumerations of the tool interface.
    "T_enum": "MPI_T_enum @", "Handle" => "Handle", "$value", absent "0";
    "T_cvar_handle": "MPI_T_cvar_handle @", "Handle" => "Handle", "$value", absent "0";
    "T_pvar_handle": "MPI_T_pvar_handle @", "Handle" => "Handle", "$value", absent "0";
    "T_pvar_session": "MPI_T_pvar_session @", "Handle" => "Handle", "$value", absent "0";
    "T_event_registration": "MPI_T_event_registration @", "Handle" => "Handle", "$value",
        absent "0";
    "T_event_instance": "MPI_T_event_instance @", "Handle" => "Handle", "$value", absent "0";
    "T_cb_safety": "MPI_T_cb_safety @", "i32" => "i32", "$value", absent "0";
    "new T_enum?": "MPI_T_enum *@", "*mut Handle" => "Out<Handle>", "Out::maybe($value)",
        absent "Out::NONE";
    "&T_cvar_handle": "MPI_T_cvar_handle *@", "*mut Handle" => "&mut Handle",
        "args::out_reference($value, $name)?";
    "&T_pvar_handle": "MPI_T_pvar_handle *@", "*mut Handle" => "&mut Handle",
        "args::out_reference($value, $name)?";
    "&T_pvar_session": "MPI_T_pvar_session *@", "*mut Handle" => "&mut Handle",
        "args::out_reference($value, $name)?";
    "new T_cvar_handle": "MPI_T_cvar_handle *@", "*mut Handle" => "Out<Handle>",
        "Out::new($value, $name)?", absent "Out::NONE";
    "new T_pvar_handle": "MPI_T_pvar_handle *@", "*mut Handle" => "Out<Handle>",
        "Out::new($value, $name)?", absent "Out::NONE";
    "new T_pvar_session": "MPI_T_pvar_session *@", "*mut Handle" => "Out<Handle>",
        "Out::new($value, $name)?", absent "Out::NONE";
    "new T_event_registration": "MPI_T_event_registration *@", "*mut Handle" => "Out<Handle>",
        "Out::new($value, $name)?", absent "Out::NONE";
    "new T_source_order?": "MPI_T_source_order *@", "*mut i32" => "Out<i32>", "Out::maybe($value)",
        absent "Out::NONE";
}

/// A C function that the program passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Callback {
    /// Its type's name, without `MPI_`.
    pub name: &'static str,
    /// The type that the glue gets.
    pub glue: &'static str,
    /// The conversion, with placeholders as in [`Plain::convert`].
    pub convert: &'static str,
}

/// One row a type of the glue: `"type" "conversion": "names of the C functions", …;`.
macro_rules! callbacks {
    ($($glue:literal $convert:literal: $($name:literal),*;)*) => {
        /// All C functions that programs pass.
        pub const FUNCTIONS: &[Callback] = &[$($(Callback {
            name: $name,
            glue: $glue,
            convert: $convert,
        }),*),*];
    };
}

callbacks! {
    "ErrorFunction" "callback::error_function($value, $name)?":
        "Comm_errhandler_function", "File_errhandler_function", "Win_errhandler_function",
        "Session_errhandler_function";
    "CopyFunction" "callback::copy_function($value)":
        "Copy_function", "Comm_copy_attr_function", "Type_copy_attr_function",
        "Win_copy_attr_function";
    "DeleteFunction" "callback::delete_function($value)":
        "Delete_function", "Comm_delete_attr_function", "Type_delete_attr_function",
        "Win_delete_attr_function";
    "UserFunction" "callback::user_function($value, $is_large, $name)?": "User_function";
    "QueryFunction" "callback::query_function($value, $name)?": "Grequest_query_function";
    "FreeFunction" "callback::free_function($value, $name)?": "Grequest_free_function";
    "CancelFunction" "callback::cancel_function($value, $name)?": "Grequest_cancel_function";
    "Option<ConversionFunction>" "callback::conversion_function($value, $is_large)":
        "Datarep_conversion_function";
    "ExtentFunction" "callback::extent_function($value, $name)?": "Datarep_extent_function";
    "*const c_void" "$value":
        "T_event_cb_function", "T_event_free_cb_function", "T_event_dropped_cb_function";
}

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
    /// A C function, and whether it has a large-count form.
    Function(&'static Callback, bool),
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
            let callback = FUNCTIONS.iter().find(|f| f.name == plain)?;
            return Some(Kind::Function(callback, large));
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
            Kind::Function(callback, has_large) => {
                let suffix = if *has_large && large { "_c" } else { "" };
                // The standard declares the tool interface's callbacks as functions, which C
                // converts to pointers.
                let star = if callback.name.starts_with("T_") {
                    ""
                } else {
                    "*"
                };
                format!("MPI_{}{suffix} {star}{name}", callback.name)
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
                (Some(rust), Passing::Valid) => format!("{rust}Ref"),
                (Some(rust), Passing::Maybe) => format!("Option<{rust}Ref>"),
                (Some(rust), Passing::InOut) => format!("InOutHandle<{rust}>"),
                (Some(rust), Passing::New | Passing::NewMaybe) => format!("New<{rust}>"),
            },
            Kind::Plain(p) => p.glue.into(),
            Kind::Function(callback, _) => callback.glue.into(),
            Kind::Variadic => String::new(),
        }
    }

    /// The conversion from the entry point's argument to the glue's, with placeholders as in
    /// [`Plain::convert`].
    pub fn convert(&self) -> String {
        match self {
            Kind::Object(o, passing) => match (o.rust, passing) {
                (_, Passing::Raw) | (None, Passing::Valid | Passing::Maybe) => "$value".into(),
                (None, Passing::InOut) => "args::out_reference($value, $name)?".into(),
                (None, Passing::New) => "Out::new($value, $name)?".into(),
                (None, Passing::NewMaybe) => "Out::maybe($value)".into(),
                (Some(rust), Passing::Valid) if o.lookup == "object" => {
                    format!("args::object::<{rust}>($value, $name)?")
                }
                (Some(_), Passing::Valid) => format!("args::{}($value, $name)?", o.lookup),
                (Some(rust), Passing::Maybe) => {
                    format!("args::object_or_null::<{rust}>($value, $name)?")
                }
                (Some(rust), Passing::InOut) => {
                    format!("InOutHandle::<{rust}>::new($value, $name)?")
                }
                (Some(rust), Passing::New) => format!("New::<{rust}>::new($value, $name)?"),
                (Some(rust), Passing::NewMaybe) => format!("New::<{rust}>::maybe($value)"),
            },
            Kind::Plain(p) => p.convert.into(),
            Kind::Function(callback, _) => callback.convert.into(),
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
            Kind::Function(callback, _) => write!(f, "fn {}", callback.name),
            Kind::Variadic => f.write_str("..."),
        }
    }
}
