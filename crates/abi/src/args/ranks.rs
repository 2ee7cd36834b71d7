//! Counts, ranks, tags and roots.

use crate::constants::{MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_PROC_NULL, MPI_ROOT};
use ferry_mpi::pt2pt::{Dest, From as Source};
use ferry_mpi::{Comm, Error, Kind, Result, err};

/// The largest tag (MPI_TAG_UB): every int that is not negative.
pub const TAG_UB: i32 = i32::MAX;

/// A count. Not negative.
#[inline]
pub fn count(value: impl Into<i64>, name: &str) -> Result<i64> {
    let value = value.into();
    if value >= 0 {
        Ok(value)
    } else {
        Err(negative(Kind::Count, value, name))
    }
}

/// A length of an array. Not negative.
#[inline]
pub fn length(value: i32, name: &str) -> Result<usize> {
    if value >= 0 {
        Ok(value as usize)
    } else {
        Err(negative(Kind::Arg, value.into(), name))
    }
}

#[cold]
fn negative(kind: Kind, value: i64, name: &str) -> Error {
    Error::new(kind, format!("{name} is {value}, which is negative"))
}

/// A rank to send to.
#[inline]
pub fn dest(value: i32, name: &str, comm: &Comm) -> Result<Dest> {
    if (value as u32) < comm.remote_group().size() {
        Ok(Dest::Rank(value as u32))
    } else if value == MPI_PROC_NULL {
        Ok(Dest::ProcNull)
    } else {
        Err(bad_rank(value, name, comm))
    }
}

/// A rank to receive from.
#[inline]
pub fn source(value: i32, name: &str, comm: &Comm) -> Result<Source> {
    if (value as u32) < comm.remote_group().size() {
        return Ok(Source::Rank(value as u32));
    }
    match value {
        MPI_ANY_SOURCE => Ok(Source::Any),
        MPI_PROC_NULL => Ok(Source::ProcNull),
        _ => Err(bad_rank(value, name, comm)),
    }
}

#[cold]
fn bad_rank(value: i32, name: &str, comm: &Comm) -> Error {
    let (whose, size) = (
        if comm.is_inter() {
            "the remote group"
        } else {
            "the communicator"
        },
        comm.remote_group().size(),
    );
    let hint = rank_constant(value);
    err!(
        Rank,
        "{name} is {value}{hint}, but {whose} has {}",
        ranks(size)
    )
}

/// What to say of a constant for ranks where it is none.
fn rank_constant(value: i32) -> &'static str {
    match value {
        MPI_ANY_SOURCE => " (MPI_ANY_SOURCE, which is for receives)",
        MPI_ROOT => " (MPI_ROOT, which is for collectives on intercommunicators)",
        MPI_PROC_NULL => " (MPI_PROC_NULL)",
        _ => "",
    }
}

/// A tag to send with.
#[inline]
pub fn tag(value: i32, name: &str) -> Result<u32> {
    if value >= 0 {
        Ok(value as u32)
    } else {
        Err(bad_tag(value, name))
    }
}

/// A tag to receive, or `None` for any.
#[inline]
pub fn tag_or_any(value: i32, name: &str) -> Result<Option<u32>> {
    if value >= 0 {
        Ok(Some(value as u32))
    } else if value == MPI_ANY_TAG {
        Ok(None)
    } else {
        Err(bad_tag(value, name))
    }
}

#[cold]
fn bad_tag(value: i32, name: &str) -> Error {
    let hint = match value {
        MPI_ANY_TAG => ", which is MPI_ANY_TAG; only receives may use it",
        MPI_ANY_SOURCE => ", which is MPI_ANY_SOURCE, not MPI_ANY_TAG",
        _ => "",
    };
    err!(Tag, "{name} is {value}{hint}; tags go from 0 to {TAG_UB}")
}

/// The root of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// A rank: of the communicator, or of an intercommunicator's remote group.
    Rank(u32),
    /// This process, in the root's group of an intercommunicator (MPI_ROOT).
    ThisProcess,
    /// Another process of this group of an intercommunicator (MPI_PROC_NULL).
    ProcNull,
}

/// The root of a collective on `comm`.
#[inline]
pub fn root(value: i32, comm: &Comm) -> Result<Root> {
    if (value as u32) < comm.remote_group().size() {
        return Ok(Root::Rank(value as u32));
    }
    match value {
        MPI_ROOT if comm.is_inter() => Ok(Root::ThisProcess),
        MPI_PROC_NULL if comm.is_inter() => Ok(Root::ProcNull),
        _ => Err(bad_root(value, comm)),
    }
}

#[cold]
fn bad_root(value: i32, comm: &Comm) -> Error {
    let whose = if comm.is_inter() {
        "the remote group"
    } else {
        "the communicator"
    };
    err!(
        Root,
        "root is {value}{}, but {whose} has {}",
        rank_constant(value),
        ranks(comm.remote_group().size())
    )
}

/// This process's role in a rooted collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootedRole {
    /// It is the root.
    pub root: bool,
    /// It sends to or receives from the root.
    pub leaf: bool,
}

impl RootedRole {
    /// Does it take part?
    pub fn any(&self) -> bool {
        self.root || self.leaf
    }
}

/// This process's role in a collective with this root.
#[inline]
pub fn rooted_role(root: &Root, comm: &Comm) -> RootedRole {
    match (root, comm.is_inter()) {
        (Root::Rank(rank), false) => RootedRole {
            root: *rank == comm.rank(),
            leaf: true,
        },
        (Root::Rank(_), true) => RootedRole {
            root: false,
            leaf: true,
        },
        (Root::ThisProcess, _) => RootedRole {
            root: true,
            leaf: false,
        },
        (Root::ProcNull, _) => RootedRole {
            root: false,
            leaf: false,
        },
    }
}

/// "1 rank" or "4 ranks".
pub fn ranks(size: u32) -> String {
    if size == 1 {
        "1 rank".into()
    } else {
        format!("{size} ranks")
    }
}
