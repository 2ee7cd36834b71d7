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

/// The communicator of a handle, valid until that is freed ([`handle::get`]).
pub(crate) type CommRef = &'static Arc<Comm>;
/// The datatype of a handle, valid until that is freed.
pub(crate) type DatatypeRef = &'static Arc<Datatype>;
/// The operation of a handle, valid until that is freed.
pub(crate) type OpRef = &'static Arc<Op>;
