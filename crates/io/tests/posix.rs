//! Files of the system.

use ferry_datatype::{Basic, Datatype};
use ferry_io::{Access, Kind, OpenMode, PosixStore, Store, View, transfer};
use std::path::{Path, PathBuf};

/// A path of this test and process, in the folder for temporary files.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ferry-io-{}-{name}", std::process::id()))
}

#[test]
fn opening_tells_the_cause() {
    let (missing, file) = (path("missing"), path("exists"));
    let fails = |path: &Path, mode: &OpenMode| PosixStore.open(path, mode).err().unwrap().kind;
    assert_eq!(fails(&missing, &OpenMode::READ), Kind::NoSuchFile);
    assert_eq!(fails(&std::env::temp_dir(), &OpenMode::READ), Kind::BadFile);
    assert_eq!(
        fails(&std::env::temp_dir(), &OpenMode::CREATE),
        Kind::BadFile
    );
    let long = PathBuf::from("x".repeat(5000));
    assert_eq!(fails(&long, &OpenMode::READ), Kind::BadFile);
    drop(PosixStore.open(&file, &OpenMode::CREATE).unwrap());
    let exclusive = OpenMode {
        exclusive: true,
        ..OpenMode::CREATE
    };
    assert_eq!(fails(&file, &exclusive), Kind::FileExists);
    PosixStore.delete(&file).unwrap();
    assert_eq!(PosixStore.delete(&file).unwrap_err().kind, Kind::NoSuchFile);
}

#[test]
fn a_file_for_writing_only_can_be_read_by_sieving() {
    let path = path("write-only");
    let mode = OpenMode {
        read: false,
        ..OpenMode::CREATE
    };
    let file = PosixStore.open(&path, &mode).unwrap();
    PosixStore.delete(&path).unwrap();
    assert!(file.can_read() && file.can_write());
}

#[test]
fn lengths_and_space() {
    let path = path("lengths");
    let file = PosixStore.open(&path, &OpenMode::CREATE).unwrap();
    PosixStore.delete(&path).unwrap();
    let len = || transfer::len(&*file).unwrap();
    transfer::write_all(&*file, b"abc", 0).unwrap();
    transfer::allocate(&*file, 2).unwrap();
    assert_eq!(len(), 3);
    transfer::allocate(&*file, 5000).unwrap();
    assert_eq!(len(), 5000);
    transfer::set_len(&*file, 2).unwrap();
    assert_eq!(len(), 2);
    transfer::sync(&*file).unwrap();
    let mut bytes = [0; 4];
    assert_eq!(
        transfer::read_exact_or_end(&*file, &mut bytes, 0).unwrap(),
        2
    );
    assert_eq!(&bytes[..2], b"ab");
}

/// Runs far behind 4 GiB, in a file of holes.
#[test]
fn offsets_beyond_32_bits() {
    let path = path("far");
    let file = PosixStore.open(&path, &OpenMode::CREATE).unwrap();
    PosixStore.delete(&path).unwrap();
    const FAR: u64 = 5 << 30;
    let byte = Datatype::basic(Basic::Byte);
    let filetype = Datatype::resized(0, FAR as i64, byte).unwrap();
    let view = View::new(7, 1, &filetype).unwrap();
    let access = Access::default();
    assert_eq!(
        transfer::write(&*file, &view, 0, b"xyz", &access).unwrap(),
        3
    );
    assert_eq!(transfer::len(&*file).unwrap(), 2 * FAR + 8);
    let mut back = [0; 4];
    assert_eq!(
        transfer::read(&*file, &view, 0, &mut back, &access).unwrap(),
        3
    );
    assert_eq!(&back[..3], b"xyz");
    let mut last = [0; 1];
    assert_eq!(
        transfer::read(&*file, &view, 2, &mut last, &access).unwrap(),
        1
    );
    assert_eq!(&last, b"z");
}

/// Processes that count in one file, each addition under a lock.
#[test]
fn locks_bind_other_processes() {
    const PROCESSES: usize = 3;
    const ROUNDS: u64 = 300;
    let path = path("locks");
    let count = |path: &Path| {
        let file = PosixStore.open(path, &OpenMode::CREATE).unwrap();
        for _ in 0..ROUNDS {
            let lock = transfer::lock(&*file, 0..8, true).unwrap();
            let mut number = [0; 8];
            transfer::read_exact_or_end(&*file, &mut number, 0).unwrap();
            let next = u64::from_le_bytes(number) + 1;
            std::thread::yield_now();
            transfer::write_all(&*file, &next.to_le_bytes(), 0).unwrap();
            drop(lock);
        }
    };
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            // SAFETY: the child opens files, and ends by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                count(&path);
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(0) };
            }
            child
        })
        .collect();
    for child in children {
        let mut status = -1;
        // SAFETY: waits for a child made above.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
    }
    let file = PosixStore.open(&path, &OpenMode::READ).unwrap();
    PosixStore.delete(&path).unwrap();
    let mut number = [0; 8];
    transfer::read_exact_or_end(&*file, &mut number, 0).unwrap();
    assert_eq!(u64::from_le_bytes(number), PROCESSES as u64 * ROUNDS);
}
