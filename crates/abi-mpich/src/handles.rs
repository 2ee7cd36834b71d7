//! Handles that are ints.

use crate::standard_handles;
use crate::table;
use ferry_translate::abi::kind::{self, Kind};
use ferry_translate::abi::{INVALID, PREDEFINED};
use ferry_translate::constants;

/// Handles of objects are not below this. MPICH's predefined ones are.
const OBJECTS: u32 = 0xc000_0000;
/// Bits of the index. The standard ABI's generation has no room: as with MPICH, a handle that has
/// been freed cannot be told from that of a new object which has got its number.
const INDEX_MASK: u32 = !OBJECTS;

/// The predefined handles of a kind, with those of the standard ABI.
#[inline(always)]
const fn predefined<K: Kind>() -> &'static [(u32, u64)] {
    match K::INDEX {
        0 => table::COMM_HANDLES,
        1 => table::GROUP_HANDLES,
        2 => table::DATATYPE_HANDLES,
        3 => table::OP_HANDLES,
        4 => table::REQUEST_HANDLES,
        5 => table::MESSAGE_HANDLES,
        6 => table::INFO_HANDLES,
        7 => table::ERRHANDLER_HANDLES,
        8 => table::WIN_HANDLES,
        9 => table::SESSION_HANDLES,
        _ => table::FILE_HANDLES,
    }
}

/// The place of a predefined datatype: its number, shifted by its kind so that no two meet.
#[inline(always)]
const fn place(datatype: u32) -> usize {
    datatype.wrapping_add(datatype >> 26) as u8 as usize
}

/// MPICH's extension MPIX_C_FLOAT16, another name of binary16. Programs get it instead of
/// MPI_REAL2, as mpi4py's wheel knows no other.
const C_FLOAT16: u32 = 0x4c00_0246;
/// The standard ABI's MPI_REAL2.
const REAL2: u32 = constants::MPI_REAL2 as u32;

/// The predefined datatypes by their places.
static DATATYPES: [(u32, u32); 256] = {
    let mut all = [(0, INVALID as u32); 256];
    let mut at = 0;
    while at < table::DATATYPE_HANDLES.len() {
        let (own, standard) = table::DATATYPE_HANDLES[at];
        assert!(all[place(own)].0 == 0, "two datatypes have one place");
        all[place(own)] = (own, standard as u32);
        at += 1;
    }
    assert!(all[place(C_FLOAT16)].0 == 0, "two datatypes have one place");
    all[place(C_FLOAT16)] = (C_FLOAT16, REAL2);
    all
};

/// The standard ABI's datatypes start here.
const FIRST_DATATYPE: usize = 0x200;

/// The predefined datatypes by the standard ABI's numbers.
static DATATYPES_OUT: [u32; 256] = {
    let mut all = [0; 256];
    let mut at = 0;
    while at < table::DATATYPE_HANDLES.len() {
        let (own, standard) = table::DATATYPE_HANDLES[at];
        all[standard as usize - FIRST_DATATYPE] = own;
        at += 1;
    }
    all[REAL2 as usize - FIRST_DATATYPE] = C_FLOAT16;
    all
};

/// The index of datatypes among the kinds.
const DATATYPE: usize = kind::Datatype::INDEX;
/// The index of requests among the kinds.
const REQUEST: usize = kind::Request::INDEX;
/// The index of communicators among the kinds.
const COMM: usize = kind::Comm::INDEX;

/// The handle of a predefined communicator.
const fn communicator(standard: u64) -> u32 {
    let mut at = 0;
    while table::COMM_HANDLES[at].1 != standard {
        at += 1;
    }
    table::COMM_HANDLES[at].0
}

/// MPI_COMM_WORLD. MPI_COMM_SELF is the next one, as in the standard ABI.
const WORLD: u32 = communicator(constants::MPI_COMM_WORLD);
const _: () = assert!(
    communicator(constants::MPI_COMM_SELF) == WORLD + 1
        && constants::MPI_COMM_SELF == constants::MPI_COMM_WORLD + 1
);

/// The standard ABI's handle. Predefined datatypes and communicators come first: most messages have
/// them, and so no branch is taken on their way.
#[inline(always)]
pub fn standard<K: Kind>(handle: u32) -> u64 {
    if K::INDEX == DATATYPE {
        let (own, standard) = DATATYPES[place(handle)];
        if own == handle {
            return u64::from(standard);
        }
    }
    if K::INDEX == COMM && handle.wrapping_sub(WORLD) <= 1 {
        return constants::MPI_COMM_WORLD + u64::from(handle - WORLD);
    }
    if handle >= OBJECTS {
        return if K::INDEX == REQUEST {
            ferry_translate::standard::request_at(handle & INDEX_MASK)
        } else {
            standard_handles::look_up(K::INDEX, handle & INDEX_MASK)
        };
    }
    if K::INDEX == DATATYPE {
        return INVALID;
    }
    let mut all = predefined::<K>().iter();
    all.find(|(own, _)| *own == handle)
        .map_or(INVALID, |(_, standard)| *standard)
}

/// The handle of one of the standard ABI.
#[inline(always)]
pub fn of_standard<K: Kind>(handle: u64) -> u32 {
    if handle >= PREDEFINED {
        let index = handle as u32;
        assert!(index <= INDEX_MASK, "more objects of one kind than handles");
        if K::INDEX != REQUEST {
            standard_handles::store(K::INDEX, index, handle);
        }
        return OBJECTS | index;
    }
    if K::INDEX == DATATYPE {
        let at = (handle as usize).wrapping_sub(FIRST_DATATYPE);
        return DATATYPES_OUT.get(at).copied().unwrap_or(0);
    }
    for (own, standard) in predefined::<K>() {
        if *standard == handle {
            return *own;
        }
    }
    0
}
