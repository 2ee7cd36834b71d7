//! Errors of MPI calls: their kind and text. The abi layer maps a [`Kind`] to its number.

use crate::{Comm, File, Win};
use std::sync::Arc;

/// The standard's error classes (MPI 5.0 §9.4), one for each MPI_ERR_ name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)] // each is the MPI_ERR_ constant of the same name
pub enum Kind {
    Buffer,
    Count,
    Type,
    Tag,
    Comm,
    Rank,
    Request,
    Root,
    Group,
    Op,
    Topology,
    Dims,
    Arg,
    Unknown,
    Truncate,
    Other,
    Intern,
    InStatus,
    Pending,
    Access,
    Amode,
    Assert,
    BadFile,
    Base,
    Conversion,
    Disp,
    DupDatarep,
    FileExists,
    FileInUse,
    File,
    InfoKey,
    InfoNokey,
    InfoValue,
    Info,
    Io,
    Keyval,
    Locktype,
    Name,
    NoMem,
    NotSame,
    NoSpace,
    NoSuchFile,
    Port,
    Quota,
    ReadOnly,
    RmaConflict,
    RmaSync,
    Service,
    Size,
    Spawn,
    UnsupportedDatarep,
    UnsupportedOperation,
    Win,
    RmaRange,
    RmaAttach,
    RmaShared,
    RmaFlavor,
    Session,
    ProcAborted,
    ValueTooLarge,
    ErrhandlerArg,
    Abi,
    /// A code that user code returned (a callback, MPI_Add_error_code). It is passed on unchanged.
    Code(i32),
    /// The class of this number, of an error of another rank. Its code may mean nothing here.
    Class(i32),
}

/// An error of a call: its kind, its text, and the object to raise it on.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: Kind,
    text: String,
    scope: Option<ErrorScope>,
    /// The class of a code that user code returned.
    class: Option<i32>,
}

/// The object whose error handler gets an error, if it is not the call's own.
#[derive(Clone, Debug)]
pub enum ErrorScope {
    /// A communicator.
    Comm(Arc<Comm>),
    /// A window.
    Win(Arc<Win>),
    /// A file.
    File(Arc<File>),
}

/// The result of an MPI call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of class `kind`; `text` names the argument and its value.
    #[cold]
    pub fn new(kind: Kind, text: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            text: text.into(),
            scope: None,
            class: None,
        }))
    }
    /// This error, to be raised on `comm` instead of the call's own communicator.
    #[cold]
    pub fn on(mut self, comm: &Arc<Comm>) -> Error {
        self.0.scope = Some(ErrorScope::Comm(comm.clone()));
        self
    }
    /// This error, to be raised on `win`.
    #[cold]
    pub fn on_win(mut self, win: &Arc<Win>) -> Error {
        self.0.scope = Some(ErrorScope::Win(win.clone()));
        self
    }
    /// This error, to be raised on `file`.
    #[cold]
    pub fn on_file(mut self, file: &Arc<File>) -> Error {
        self.0.scope = Some(ErrorScope::File(file.clone()));
        self
    }
    /// This error, to be raised on the call's own object.
    pub fn on_call(mut self) -> Error {
        self.0.scope = None;
        self
    }
    /// This error, whose kind is a code of user code, with that code's class.
    #[cold]
    pub fn of_class(mut self, class: i32) -> Error {
        self.0.class = Some(class);
        self
    }
    /// What other ranks are told of its kind: the class of a code that they may not know.
    pub fn kind_elsewhere(&self) -> Kind {
        self.0.class.map_or(self.0.kind, Kind::Class)
    }
    /// Its class.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }
    /// Its text.
    pub fn text(&self) -> &str {
        &self.0.text
    }
    /// The object to raise it on, if not the call's own.
    pub fn scope(&self) -> Option<&ErrorScope> {
        self.0.scope.as_ref()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.text)
    }
}
impl std::error::Error for Error {}

/// `err!(Rank, "dest is {d}, but …")`: an [`Error`] of that kind.
#[macro_export]
macro_rules! err {
    ($kind:ident, $($arg:tt)+) => { $crate::Error::new($crate::Kind::$kind, format!($($arg)+)) };
}

impl From<ferry_op::OpError> for Error {
    fn from(e: ferry_op::OpError) -> Error {
        let kind = match e {
            ferry_op::OpError::NoSuchType { .. } | ferry_op::OpError::NotComparable { .. } => {
                Kind::Type
            }
            _ => Kind::Op,
        };
        Error::new(kind, e.to_string())
    }
}

impl From<ferry_datatype::TypeError> for Error {
    fn from(e: ferry_datatype::TypeError) -> Error {
        use ferry_datatype::TypeError;
        let kind = match &e {
            TypeError::Negative { .. } => Kind::Count,
            TypeError::Argument(_) => Kind::Arg,
            TypeError::Unusable(_) | TypeError::Malformed(_) => Kind::Type,
            TypeError::Overflow(_) => Kind::ValueTooLarge,
            TypeError::Conversion { .. } => Kind::Conversion,
        };
        Error::new(kind, e.to_string())
    }
}
