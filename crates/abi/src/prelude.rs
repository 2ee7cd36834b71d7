//! Imports for the glue of every chapter.

#![allow(unused_imports)]

pub(crate) use crate::args::{self, InOutHandle, Ints, Root, Types, Weights};
pub(crate) use crate::callback::{
    self, CancelFunction, ConversionFunction, CopyFunction, DeleteFunction, ErrorFunction,
    ExtentFunction, FreeFunction, QueryFunction, UserFunction,
};
pub(crate) use crate::constants;
pub(crate) use crate::handle::{self, Handle, RequestForm};
pub(crate) use crate::raise::{self, Scope};
pub(crate) use crate::results::{
    InOutCount, New, Out, OutCount, OutFlag, OutInts, OutPointer, OutStatus, OutStatuses, OutText,
    OutTypes,
};
pub(crate) use crate::status::Status;
pub(crate) use ferry_mpi::pt2pt::{Dest, From as Source};
pub(crate) use ferry_mpi::{
    Comm, Datatype, Errhandler, Error, File, Group, Info, Kind, Op, Request, Result, Session, Win,
    err,
};
pub(crate) use std::ffi::{CStr, c_char, c_void};
pub(crate) use std::sync::Arc;

/// The communicator of a valid handle: the reference lives until that is freed ([`handle::get`]).
pub(crate) type CommRef = &'static Arc<Comm>;
/// The datatype of a valid handle.
pub(crate) type DatatypeRef = &'static Arc<Datatype>;
/// The error handler of a valid handle.
pub(crate) type ErrhandlerRef = &'static Arc<Errhandler>;
/// The file of a valid handle.
pub(crate) type FileRef = &'static Arc<File>;
/// The group of a valid handle.
pub(crate) type GroupRef = &'static Arc<Group>;
/// The info object of a valid handle.
pub(crate) type InfoRef = &'static Arc<Info>;
/// The operation of a valid handle.
pub(crate) type OpRef = &'static Arc<Op>;
/// The session of a valid handle.
pub(crate) type SessionRef = &'static Arc<Session>;
/// The window of a valid handle.
pub(crate) type WinRef = &'static Arc<Win>;
