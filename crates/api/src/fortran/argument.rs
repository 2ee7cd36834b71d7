//! What each parameter of a function is in Fortran.

use super::{Module, Procedure};
use crate::Parameter;
use crate::kind::{Kind, Passing};

/// The type of an argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Base {
    /// INTEGER.
    Integer,
    /// LOGICAL.
    Logical,
    /// INTEGER(KIND=MPI_ADDRESS_KIND).
    Address,
    /// INTEGER(KIND=MPI_COUNT_KIND).
    Count,
    /// INTEGER(KIND=MPI_OFFSET_KIND).
    Offset,
    /// A handle, with the name of its C type.
    Handle(&'static str),
    /// A choice buffer.
    Choice,
    /// CHARACTER of any length.
    Text,
    /// A status.
    Status,
    /// TYPE(C_PTR).
    Pointer,
    /// A procedure with the interface of this name, without `MPI_`.
    Procedure(String),
}

impl Base {
    /// The type with all kinds of eight bytes as one: what the rules of generic names look at.
    pub fn width(&self) -> Base {
        match self {
            Base::Count | Base::Offset => Base::Address,
            other => other.clone(),
        }
    }
}

/// The shape of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// One.
    Scalar,
    /// An array of any size.
    Array,
    /// Rows of three: (3, *).
    Ranges,
    /// The arguments of several programs: (count, *).
    Arguments,
}

/// The intent of an argument in `mpi_f08`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// None is given: the argument may be MPI_BOTTOM, MPI_STATUS_IGNORE and so on.
    Any,
    /// INTENT(IN)
    In,
    /// INTENT(OUT)
    Out,
    /// INTENT(INOUT)
    InOut,
}

/// An argument of a procedure.
#[derive(Clone, Debug)]
pub struct Argument {
    /// Its name in Fortran.
    pub name: String,
    /// Its type.
    pub base: Base,
    /// Its shape.
    pub shape: Shape,
    /// Its intent.
    pub intent: Intent,
    /// Has it the attribute ASYNCHRONOUS?
    pub asynchronous: bool,
    /// The parameter that it stands for.
    pub parameter: Parameter,
}

/// Arrays of int in C that are LOGICAL in Fortran.
const LOGICALS: [(&str, &str); 5] = [
    ("Cart_create", "periods"),
    ("Cart_map", "periods"),
    ("Cart_get", "periods"),
    ("Cart_sub", "remain_dims"),
    ("Dist_graph_neighbors_count", "weighted"),
];

impl Argument {
    /// The argument for a parameter. `None` if only C has it: the command line.
    pub fn new(procedure: &Procedure, parameter: &Parameter) -> Option<Argument> {
        let (base, shape, intent) = of_kind(procedure, parameter)?;
        let mut argument = Argument {
            name: match parameter.name.as_str() {
                "indx" => "index".into(),
                name => name.into(),
            },
            base,
            shape,
            intent,
            asynchronous: false,
            parameter: parameter.clone(),
        };
        let function = procedure.function.name.as_str();
        if LOGICALS.contains(&(function, parameter.name.as_str())) {
            argument.base = Base::Logical;
        }
        if function == "Cancel" {
            argument.intent = Intent::In;
        }
        argument.asynchronous = is_asynchronous(procedure, &argument);
        Some(argument)
    }
}

/// Whether a transfer may go on after the call, so that the compiler must not move the buffer
/// (MPI 5.0 §19.1.16).
fn is_asynchronous(procedure: &Procedure, argument: &Argument) -> bool {
    let f = procedure.function;
    let array = argument.shape == Shape::Array && argument.intent == Intent::In;
    let starts = f.parameters.iter().any(|p| p.name == "request")
        && matches!(f.chapter.as_str(), "pt2pt" | "coll" | "io" | "rma" | "part");
    let split = f.name.ends_with("_begin") || f.name.ends_with("_end");
    let lasting = matches!(f.chapter.as_str(), "rma")
        || f.name.contains("ttach_buffer")
        || matches!(
            f.name.as_str(),
            "Buffer_attach" | "Get_address" | "Free_mem"
        );
    match argument.base {
        Base::Choice => starts || split || lasting,
        // Set when the operation is complete.
        _ if argument.name == "newcomm" => f.name.starts_with("Comm_idup"),
        _ => array && starts && f.chapter == "coll",
    }
}

/// Type, shape and intent of a parameter by its kind. `None` if Fortran has no such argument.
fn of_kind(procedure: &Procedure, p: &Parameter) -> Option<(Base, Shape, Intent)> {
    if p.name == "argc" {
        return None;
    }
    match &p.kind {
        Kind::Object(o, passing) => {
            let intent = match passing {
                Passing::Valid | Passing::Maybe | Passing::Raw => Intent::In,
                Passing::InOut => Intent::InOut,
                Passing::New | Passing::NewMaybe => Intent::Out,
            };
            Some((Base::Handle(o.c), Shape::Scalar, intent))
        }
        Kind::Function(callback, has_large) => {
            let is_large = *has_large && procedure.large;
            let suffix = if is_large { "_c" } else { "" };
            let base = Base::Procedure(format!("{}{suffix}", callback.name));
            Some((base, Shape::Scalar, Intent::Any))
        }
        Kind::Variadic => None,
        Kind::Plain(plain) => input(procedure, p, plain.word)
            .or_else(|| output(procedure, p, plain.word))
            .unwrap_or_else(|| unreachable!("{} is a kind of the tool interface", plain.word)),
    }
}

/// The answer of [`of_kind`] for a plain kind. `None` if it is not among those of the function that
/// was asked.
type OfPlain = Option<Option<(Base, Shape, Intent)>>;

/// An integer of a kind that has 64 bits, `big`, in the large-count form alone.
fn sized(procedure: &Procedure, big: Base) -> Base {
    if procedure.large { big } else { Base::Integer }
}

/// An argument that has MPI_Count in the large-count form and an address otherwise.
fn address_or_count(procedure: &Procedure) -> Base {
    if procedure.large {
        Base::Count
    } else {
        Base::Address
    }
}

/// What the call reads, and buffers.
fn input(procedure: &Procedure, p: &Parameter, word: &str) -> OfPlain {
    use Intent::{Any, In};
    use Shape::{Array, Scalar};
    let of = match word {
        "int" | "const int" | "len" | "dest" | "source" | "root" | "target" | "stag" | "rtag" => {
            (Base::Integer, Scalar, In)
        }
        "bool" => (Base::Logical, Scalar, In),
        "n" | "num" | "form n" => (sized(procedure, Base::Count), Scalar, In),
        "n64" | "count64" => (Base::Count, Scalar, In),
        "aint" => (Base::Address, Scalar, In),
        "aint/num" | "form aint/num" => (address_or_count(procedure), Scalar, In),
        "disp_unit" => (sized(procedure, Base::Address), Scalar, In),
        "offset" => (Base::Offset, Scalar, In),
        "sbuf" | "sbuf?" => (Base::Choice, Scalar, In),
        "rbuf" | "rbuf?" => (Base::Choice, Scalar, Any),
        "address" if p.name == "origin_addr" => (Base::Choice, Scalar, In),
        "address" => (Base::Choice, Scalar, Any),
        "pointer" => pointer(procedure, p),
        "counts" => (sized(procedure, Base::Count), Array, In),
        "displs" => (sized(procedure, Base::Address), Array, In),
        "aints" => (Base::Address, Array, In),
        "aints/counts" => (address_or_count(procedure), Array, In),
        "ints*" | "ints" | "weights" => (Base::Integer, Array, In),
        "ranges" => (Base::Integer, Shape::Ranges, In),
        "types" | "ctypes" => (Base::Handle("MPI_Datatype"), Array, In),
        "infos" => (Base::Handle("MPI_Info"), Array, In),
        "const_requests" => (Base::Handle("MPI_Request"), Array, In),
        "string" | "key" | "value" => (Base::Text, Scalar, In),
        "argv" if procedure.function.chapter == "dpm" => (Base::Text, Array, In),
        "argvs" => (Base::Text, Shape::Arguments, In),
        "argc" | "argv" | "argv3" => return Some(None),
        "status" => (Base::Status, Scalar, In),
        _ => return None,
    };
    Some(Some(of))
}

/// What the call writes or changes.
fn output(procedure: &Procedure, p: &Parameter, word: &str) -> OfPlain {
    use Intent::{Any, InOut, Out};
    use Shape::{Array, Scalar};
    let of = match word {
        "requests" => (Base::Handle("MPI_Request"), Array, InOut),
        "new int" | "new int?" => (Base::Integer, Scalar, Out),
        "new flag" => (Base::Logical, Scalar, Out),
        "new count" => (sized(procedure, Base::Count), Scalar, Out),
        "new disp_unit" => (sized(procedure, Base::Address), Scalar, Out),
        "new aint" => (Base::Address, Scalar, Out),
        "new aint/count" => (address_or_count(procedure), Scalar, Out),
        "new count64" => (Base::Count, Scalar, Out),
        "new offset" => (Base::Offset, Scalar, Out),
        "&int" | "&int?" => (Base::Integer, Scalar, InOut),
        "&count" => (sized(procedure, Base::Count), Scalar, InOut),
        "&aint" => (address_or_count(procedure), Scalar, InOut),
        "new pointer" => new_pointer(procedure),
        // May be MPI_UNWEIGHTED or MPI_ERRCODES_IGNORE.
        "new ints*" if p.name.ends_with("weights") || p.name.ends_with("errcodes") => {
            (Base::Integer, Array, Any)
        }
        "new ints" | "new ints*" => (Base::Integer, Array, Out),
        "&ints" => (Base::Integer, Array, InOut),
        "new aints*" => (Base::Address, Array, Out),
        "new counts*" => (Base::Count, Array, Out),
        "new types" => (Base::Handle("MPI_Datatype"), Array, Out),
        "new text" | "new chars" => (Base::Text, Scalar, Out),
        "&status" => (Base::Status, Scalar, InOut),
        "new status" => (Base::Status, Scalar, Any),
        "statuses" => (Base::Status, Array, Any),
        _ => return None,
    };
    Some(Some(of))
}

/// A `void **`: an attribute, or the address of memory that the call hands out or gives back.
fn new_pointer(procedure: &Procedure) -> (Base, Shape, Intent) {
    let function = procedure.function;
    let (base, intent) = match (function.chapter.as_str(), procedure.module) {
        ("attr", _) if function.name == "Attr_get" => (Base::Integer, Intent::Out),
        ("attr", _) => (Base::Address, Intent::Out),
        (_, Module::MpiF08) => (Base::Pointer, Intent::Out),
        // The buffer that is detached, which Fortran does not learn (MPI 5.0 §3.6).
        ("pt2pt" | "session", _) => (Base::Choice, Intent::Any),
        _ => (Base::Address, Intent::Out),
    };
    (base, Shape::Scalar, intent)
}

/// A `void *`: a buffer, an attribute, or what a callback gets.
fn pointer(procedure: &Procedure, p: &Parameter) -> (Base, Shape, Intent) {
    let base = match (procedure.function.name.as_str(), p.name.as_str()) {
        ("Attr_put", _) | ("Keyval_create", "extra_state") => Base::Integer,
        (_, "extra_state" | "attribute_val") => Base::Address,
        (name, "logical_true" | "logical_false") => {
            let get = name == "Abi_get_fortran_booleans";
            let intent = if get { Intent::Out } else { Intent::In };
            return (Base::Logical, Shape::Scalar, intent);
        }
        ("Free_mem", _) => return (Base::Choice, Shape::Scalar, Intent::In),
        _ => Base::Choice,
    };
    let intent = match base {
        Base::Choice => Intent::Any,
        _ => Intent::In,
    };
    (base, Shape::Scalar, intent)
}
