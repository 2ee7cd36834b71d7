//! What an ABI defines: the trait [`Abi`], which `ferry-abi-mpich` and `ferry-abi-openmpi`
//! implement.

use crate::standard::Status;

/// Kinds of objects behind handles, as types: parameters of [`Abi`]'s conversions.
pub mod kind {
    use crate::number;

    /// A kind of objects.
    pub trait Kind: 'static {
        /// Its index among the kinds, from 0.
        const INDEX: usize;
        /// The number of its MPI_X_fromint in [`crate::number`].
        const FROM_INT: u32;
        /// The number of its MPI_X_toint there.
        const TO_INT: u32;
        /// The null handle of the standard ABI.
        const NULL: u64;
    }

    macro_rules! kinds {
        ($($name:ident $index:literal $from:ident $to:ident $null:ident;)*) => {$(
            /// Objects of this kind.
            #[derive(Debug)]
            pub enum $name {}
            impl Kind for $name {
                const INDEX: usize = $index;
                const FROM_INT: u32 = number::$from;
                const TO_INT: u32 = number::$to;
                const NULL: u64 = crate::constants::$null;
            }
        )*};
    }

    kinds! {
        Comm 0 COMM_FROMINT COMM_TOINT MPI_COMM_NULL;
        Group 1 GROUP_FROMINT GROUP_TOINT MPI_GROUP_NULL;
        Datatype 2 TYPE_FROMINT TYPE_TOINT MPI_DATATYPE_NULL;
        Op 3 OP_FROMINT OP_TOINT MPI_OP_NULL;
        Request 4 REQUEST_FROMINT REQUEST_TOINT MPI_REQUEST_NULL;
        Message 5 MESSAGE_FROMINT MESSAGE_TOINT MPI_MESSAGE_NULL;
        Info 6 INFO_FROMINT INFO_TOINT MPI_INFO_NULL;
        Errhandler 7 ERRHANDLER_FROMINT ERRHANDLER_TOINT MPI_ERRHANDLER_NULL;
        Win 8 WIN_FROMINT WIN_TOINT MPI_WIN_NULL;
        Session 9 SESSION_FROMINT SESSION_TOINT MPI_SESSION_NULL;
        File 10 FILE_FROMINT FILE_TOINT MPI_FILE_NULL;
    }
}

/// The values of an enumeration: each in the program's ABI and in the standard one.
pub type Pairs = &'static [(i32, i32)];

/// The enumerations of an ABI, made from its table in `crates/api/abis`.
#[derive(Debug)]
pub struct Tables {
    /// Levels of thread support: MPI_THREAD_SINGLE to MPI_THREAD_MULTIPLE.
    pub threads: Pairs,
    /// Results of comparisons: MPI_IDENT, MPI_CONGRUENT, MPI_SIMILAR, MPI_UNEQUAL.
    pub comparisons: Pairs,
    /// Types of MPI_Comm_split_type.
    pub splits: Pairs,
    /// Topologies: MPI_CART, MPI_GRAPH, MPI_DIST_GRAPH.
    pub topologies: Pairs,
    /// Keys of the predefined attributes of communicators.
    pub comm_keys: Pairs,
    /// Keys of the predefined attributes of windows.
    pub win_keys: Pairs,
    /// Combiners of datatypes: MPI_COMBINER_VECTOR and so on.
    pub combiners: Pairs,
    /// Classes of MPI_Type_match_size.
    pub type_classes: Pairs,
    /// Orders of an array: MPI_ORDER_C, MPI_ORDER_FORTRAN.
    pub orders: Pairs,
    /// Distributions of an array (MPI_Type_create_darray), and MPI_DISTRIBUTE_DFLT_DARG.
    pub distributions: Pairs,
    /// Types of locks: MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE.
    pub locks: Pairs,
    /// Flavours of windows.
    pub flavors: Pairs,
    /// Memory models of windows.
    pub models: Pairs,
    /// Assertions of one-sided communication (MPI_MODE_NOCHECK and so on): bits.
    pub assertions: Pairs,
    /// Modes of MPI_File_open (MPI_MODE_RDONLY and so on): bits.
    pub modes: Pairs,
    /// Positions in files: MPI_SEEK_SET and so on.
    pub seeks: Pairs,
    /// Safety of tool callbacks.
    pub callback_safety: Pairs,
    /// Orders of event sources.
    pub source_orders: Pairs,
    /// Verbosity of tool variables.
    pub verbosity: Pairs,
    /// Objects that tool variables are bound to.
    pub bindings: Pairs,
    /// Scopes of control variables.
    pub scopes: Pairs,
    /// Classes of performance variables.
    pub pvar_classes: Pairs,
}

/// The value of each table of [`Tables`] from constants of a module that was made from the ABI's
/// table.
#[macro_export]
macro_rules! tables {
    ($module:ident) => {
        $crate::abi::Tables {
            threads: $module::THREADS,
            comparisons: $module::COMPARISONS,
            splits: $module::SPLITS,
            topologies: $module::TOPOLOGIES,
            comm_keys: $module::COMM_KEYS,
            win_keys: $module::WIN_KEYS,
            combiners: $module::COMBINERS,
            type_classes: $module::TYPE_CLASSES,
            orders: $module::ORDERS,
            distributions: $module::DISTRIBUTIONS,
            locks: $module::LOCKS,
            flavors: $module::FLAVORS,
            models: $module::MODELS,
            assertions: $module::ASSERTIONS,
            modes: $module::MODES,
            seeks: $module::SEEKS,
            callback_safety: $module::CALLBACK_SAFETY,
            source_orders: $module::SOURCE_ORDERS,
            verbosity: $module::VERBOSITY,
            bindings: $module::BINDINGS,
            scopes: $module::SCOPES,
            pvar_classes: $module::PVAR_CLASSES,
        }
    };
}

/// Room that programs have for strings, in bytes with the final null.
#[derive(Debug)]
pub struct StringSizes {
    /// MPI_MAX_DATAREP_STRING.
    pub datarep_string: usize,
    /// MPI_MAX_ERROR_STRING.
    pub error_string: usize,
    /// MPI_MAX_INFO_KEY.
    pub info_key: usize,
    /// MPI_MAX_LIBRARY_VERSION_STRING.
    pub library_version_string: usize,
    /// MPI_MAX_OBJECT_NAME.
    pub object_name: usize,
    /// MPI_MAX_PORT_NAME.
    pub port_name: usize,
    /// MPI_MAX_PROCESSOR_NAME.
    pub processor_name: usize,
}

/// The value of [`StringSizes`] from constants of a module that was made from the ABI's table.
#[macro_export]
macro_rules! string_sizes {
    ($module:ident) => {
        $crate::abi::StringSizes {
            datarep_string: $module::SIZE_OF_DATAREP_STRING,
            error_string: $module::SIZE_OF_ERROR_STRING,
            info_key: $module::SIZE_OF_INFO_KEY,
            library_version_string: $module::SIZE_OF_LIBRARY_VERSION_STRING,
            object_name: $module::SIZE_OF_OBJECT_NAME,
            port_name: $module::SIZE_OF_PORT_NAME,
            processor_name: $module::SIZE_OF_PROCESSOR_NAME,
        }
    };
}

/// A handle that is none in the standard ABI: neither predefined nor one of an object.
pub const INVALID: u64 = 1;

/// Handles of the standard ABI below this are predefined.
pub const PREDEFINED: u64 = 4096;

/// The form of an ABI's requests.
#[derive(Clone, Copy, Debug)]
pub enum Requests {
    /// Ints: the index of the handle below two bits that are set.
    Ints,
    /// The handles themselves, but for the null request.
    Addresses,
}

/// The ABI of a program that was linked with another MPI library.
pub trait Abi: Sized + 'static {
    /// Handles of all objects but files.
    type Handle: Copy + PartialEq + 'static;
    /// Handles of files.
    type File: Copy + PartialEq + 'static;
    /// MPI_Status.
    type Status: Copy + 'static;

    /// The form of its requests.
    const REQUESTS: Requests;
    /// Enumerations.
    const TABLES: Tables;
    /// Room for strings.
    const STRING_SIZES: StringSizes;
    /// MPI_ANY_SOURCE.
    const ANY_SOURCE: i32;
    /// MPI_ANY_TAG.
    const ANY_TAG: i32;
    /// MPI_PROC_NULL.
    const PROC_NULL: i32;
    /// MPI_ROOT.
    const ROOT: i32;
    /// MPI_IN_PLACE.
    const IN_PLACE: usize;
    /// MPI_BUFFER_AUTOMATIC, where the ABI has it.
    const BUFFER_AUTOMATIC: usize;
    /// MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE.
    const STATUS_IGNORE: usize;
    /// MPI_DISPLACEMENT_CURRENT.
    const DISPLACEMENT_CURRENT: i64;

    /// MPI_UNWEIGHTED and MPI_WEIGHTS_EMPTY.
    fn weights() -> [*mut i32; 2];
    /// The standard ABI's handle of a handle of the program. [`INVALID`] for what is no handle.
    ///
    /// # Safety
    /// `handle` came from a program: if it is an address, then of a predefined object.
    unsafe fn handle_in<K: kind::Kind>(handle: Self::Handle) -> u64;
    /// The program's handle of a handle of the standard ABI.
    fn handle_out<K: kind::Kind>(handle: u64) -> Self::Handle;
    /// As `handle_in`, of a file.
    ///
    /// # Safety
    /// As `handle_in`.
    unsafe fn file_in(file: Self::File) -> u64;
    /// As `handle_out`, of a file.
    fn file_out(file: u64) -> Self::File;
    /// Fortran's int of a handle (MPI_X_c2f).
    ///
    /// # Safety
    /// As `handle_in`.
    unsafe fn to_int<K: kind::Kind>(handle: Self::Handle) -> i32;
    /// The handle of Fortran's int (MPI_X_f2c).
    ///
    /// # Safety
    /// None beyond that of a call of MPI.
    unsafe fn from_int<K: kind::Kind>(number: i32) -> Self::Handle;
    /// As `to_int`, of a file.
    ///
    /// # Safety
    /// As `handle_in`.
    unsafe fn file_to_int(file: Self::File) -> i32;
    /// As `from_int`, of a file.
    ///
    /// # Safety
    /// None beyond that of a call of MPI.
    unsafe fn file_from_int(number: i32) -> Self::File;
    /// The standard ABI's form of an error code or class of the program.
    fn code_in(code: i32) -> i32;
    /// The standard ABI's form of an error class of the program.
    fn class_in(class: i32) -> i32 {
        Self::code_in(class)
    }
    /// The program's form of an error code or class of the standard ABI.
    fn code_out(code: i32) -> i32;
    /// A status of the program in the standard ABI's layout.
    fn status_in(status: &Self::Status) -> Status;
    /// Stores a status, with its error if that has been stored.
    ///
    /// # Safety
    /// `to` is valid.
    unsafe fn store_status(status: &Status, to: *mut Self::Status);
    /// Stores a status. Does nothing where the program has none.
    ///
    /// # Safety
    /// `to` is valid, null or MPI_STATUS_IGNORE.
    unsafe fn status_out(status: &Status, to: *mut Self::Status) {
        if to as usize != Self::STATUS_IGNORE && !to.is_null() {
            // SAFETY: neither null nor the constant.
            unsafe { Self::store_status(status, to) };
        }
    }
    /// A handle of a performance variable, or MPI_T_PVAR_ALL_HANDLES.
    fn pvar_handle_in(handle: u64) -> u64;
}
