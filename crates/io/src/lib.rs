//! Files below MPI: layouts, offsets and files, and no MPI (MPI 5.0 §14).
//!
//! ```text
//!   two_phase    plans of collective transfers: who writes which part of the file
//!   engine       background operations of a process
//!   transfer     independent access, data sieving ──► loops around the calls of a file
//!   view         which bytes of a file a process sees: runs of the file
//!   hints        the names of the hints
//!   store        files: POSIX, memory (for tests), faults (for tests)
//! ```
//!
//! # Example
//! Every second number of a file:
//!
//! ```
//! use ferry_datatype::{Basic, Datatype};
//! use ferry_io::{Access, MemoryStore, OpenMode, Store, View, transfer};
//! use std::path::Path;
//!
//! let file = MemoryStore::default().open(Path::new("numbers"), &OpenMode::CREATE).unwrap();
//! transfer::write_all(&*file, b"0a1b2c3d", 0).unwrap();
//! let byte = Datatype::basic(Basic::Byte);
//! let filetype = Datatype::resized(0, 2, byte).unwrap();
//! let view = View::new(1, 1, &filetype).unwrap();
//! let mut letters = [0; 3];
//! let n = transfer::read(&*file, &view, 1, &mut letters, &Access::default()).unwrap();
//! assert_eq!((n, &letters), (3, b"bcd"));
//! ```

mod cost;
pub mod engine;
mod error;
pub mod hints;
pub mod store;
pub mod transfer;
pub mod two_phase;
mod view;

pub use engine::Engine;
pub use error::{Error, Kind, Result};
pub use store::{FileSystem, MemoryStore, OpenMode, PosixStore, RangeLock, Store, StoredFile};
pub use transfer::{Access, Choice};
pub use view::{Run, Runs, View, ViewError};
