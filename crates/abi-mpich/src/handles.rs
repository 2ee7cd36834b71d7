//! Handles that are ints.

use crate::given;
use crate::table;
use ferry_translate::abi::{INVALID, PREDEFINED, kind::Kind};

/// Handles of objects are not below this. MPICH's predefined ones are.
const OBJECTS: u32 = 0xc000_0000;
/// Bits of the index. The standard ABI's generation has no room: as with MPICH, a handle that has
/// been freed cannot be told from that of a new object which has got its number.
const INDEX_MASK: u32 = !OBJECTS;

/// The predefined handles of a kind, with those of the standard ABI.
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
const fn place(datatype: u32) -> usize {
    datatype.wrapping_add(datatype >> 26) as u8 as usize
}

/// MPICH's extension MPIX_C_FLOAT16, another name of binary16. Programs get it instead of
/// MPI_REAL2, as mpi4py's wheel knows no other.
const C_FLOAT16: u32 = 0x4c00_0246;
/// The standard ABI's MPI_REAL2.
const REAL2: u32 = ferry_translate::constants::MPI_REAL2 as u32;

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
const DATATYPE: usize = ferry_translate::abi::kind::Datatype::INDEX;

/// The predefined handle that most calls are given, which is looked at first: MPI_COMM_WORLD.
const fn likely<K: Kind>() -> Option<(u32, u64)> {
    let all = predefined::<K>();
    let mut at = 0;
    while at < all.len() {
        if all[at].1 == ferry_translate::constants::MPI_COMM_WORLD {
            return Some(all[at]);
        }
        at += 1;
    }
    None
}

/// The standard ABI's handle.
#[inline(always)]
pub fn standard<K: Kind>(handle: u32) -> u64 {
    if handle >= OBJECTS {
        return given::standard(K::INDEX, handle & INDEX_MASK);
    }
    if K::INDEX == DATATYPE {
        let (own, standard) = DATATYPES[place(handle)];
        return if own == handle {
            u64::from(standard)
        } else {
            INVALID
        };
    }
    let all = predefined::<K>();
    if let Some((own, standard)) = const { likely::<K>() }
        && own == handle
    {
        return standard;
    }
    all.iter()
        .find(|(own, _)| *own == handle)
        .map_or(INVALID, |(_, standard)| *standard)
}

/// The handle of one of the standard ABI.
#[inline(always)]
pub fn of_standard<K: Kind>(handle: u64) -> u32 {
    if handle >= PREDEFINED {
        let index = handle as u32;
        assert!(index <= INDEX_MASK, "more objects of one kind than handles");
        given::store(K::INDEX, index, handle);
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
