//! Each call of the store fails in turn, is short, or is interrupted.

use ferry_datatype::{Basic, Datatype};
use ferry_io::store::{Call, Fault, FaultStore, Reaction};
use ferry_io::{Access, Choice, Kind, MemoryStore, OpenMode, Store, View, transfer};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

const PATH: &str = "f";
const FILE_BYTES: usize = 300;
const ENOSPC: i32 = 28;
const EINTR: i32 = 4;
const EIO: i32 = 5;

/// Blocks of 3 bytes, 7 bytes from one to the next.
fn view() -> View {
    let byte = Datatype::basic(Basic::Byte);
    let block = Datatype::contiguous(3, byte).unwrap();
    View::new(2, 1, &Datatype::resized(0, 7, &block).unwrap()).unwrap()
}

fn old(i: usize) -> u8 {
    (i % 100) as u8 + 1
}

fn access(sieve: Choice) -> Access {
    Access {
        sieve_reads: sieve,
        sieve_writes: sieve,
        read_buffer_bytes: 32,
        write_buffer_bytes: 32,
        ..Access::default()
    }
}

/// Opens a file of [`FILE_BYTES`] bytes in a store with these faults.
fn store(faults: &[Fault]) -> (MemoryStore, FaultStore) {
    let memory = MemoryStore::default();
    let file = memory.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
    let bytes: Vec<u8> = (0..FILE_BYTES).map(old).collect();
    transfer::write_all(&*file, &bytes, 0).unwrap();
    (memory.clone(), FaultStore::new(Arc::new(memory), faults))
}

/// Nothing but the data of the view has changed, and these are old or new.
fn check_bytes(memory: &MemoryStore, data: &[u8], complete: bool) {
    let bytes = memory.bytes(Path::new(PATH)).unwrap();
    let mut expected: Vec<u8> = (0..FILE_BYTES).map(old).collect();
    let mut position = 0;
    for run in view().runs(0, data.len() as u64) {
        for offset in run.offset as usize..run.end() as usize {
            if complete || bytes[offset] == data[position] {
                expected[offset] = data[position];
            }
            position += 1;
        }
    }
    assert_eq!(bytes, expected);
}

#[test]
fn each_call_that_fails_is_told_and_harms_nothing() {
    let data = [200; 90];
    for sieve in [Choice::Always, Choice::Never] {
        for (call, errno, kind) in [
            (Call::Write, ENOSPC, Kind::NoSpace),
            (Call::Read, EIO, Kind::Io),
            (Call::Lock, EIO, Kind::Io),
        ] {
            for n in 0.. {
                let (memory, faulty) = store(&[Fault::nth(call, n, Reaction::Fail(errno))]);
                let file = faulty.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
                let done = transfer::write(&*file, &view(), 0, &data, &access(sieve));
                if faulty.calls(call) <= n {
                    assert_eq!(done.unwrap(), data.len());
                    check_bytes(&memory, &data, true);
                    break;
                }
                let error = done.unwrap_err();
                assert_eq!((error.kind, error.path.as_path()), (kind, Path::new(PATH)));
                assert!(error.offset.is_some() && error.len.is_some(), "{error}");
                check_bytes(&memory, &data, false);
            }
        }
    }
}

#[test]
fn reads_that_fail_are_told() {
    for sieve in [Choice::Always, Choice::Never] {
        for n in 0.. {
            let (_, faulty) = store(&[Fault::nth(Call::Read, n, Reaction::Fail(EIO))]);
            let file = faulty.open(Path::new(PATH), &OpenMode::READ).unwrap();
            let done = transfer::read(&*file, &view(), 0, &mut [0; 90], &access(sieve));
            if faulty.calls(Call::Read) <= n {
                assert_eq!(done.unwrap(), 90);
                break;
            }
            assert_eq!(done.unwrap_err().kind, Kind::Io);
        }
    }
}

#[test]
fn short_and_interrupted_calls_go_on() {
    let data: Vec<u8> = (100..190).collect();
    for sieve in [Choice::Always, Choice::Never] {
        for call in [Call::Read, Call::Write, Call::Lock] {
            let faults = [
                Fault::nth(call, 0, Reaction::Fail(EINTR)),
                Fault::nth(call, 2, Reaction::Fail(EINTR)),
                Fault::from(call, 0, Reaction::Short(2)),
            ];
            let (memory, faulty) = store(&faults);
            let file = faulty.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
            let n = transfer::write(&*file, &view(), 0, &data, &access(sieve)).unwrap();
            assert_eq!(n, data.len());
            check_bytes(&memory, &data, true);
            faulty.restart(&faults);
            let mut buf = [0; 90];
            let n = transfer::read(&*file, &view(), 0, &mut buf, &access(sieve)).unwrap();
            assert_eq!((n, &buf[..]), (90, &data[..]));
        }
    }
}

#[test]
fn without_locks_writes_go_one_by_one() {
    let data = [200; 90];
    let enolck = Reaction::Fail(37);
    let automatic = |sieve_writes| Access {
        sieve_writes,
        lock_writes: true,
        // One window, in which sieving is cheaper.
        ..Access::default()
    };
    let (memory, faulty) = store(&[Fault::from(Call::Lock, 0, enolck)]);
    let file = faulty.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
    let n = transfer::write(&*file, &view(), 0, &data, &automatic(Choice::Automatic)).unwrap();
    assert_eq!((n, faulty.calls(Call::Write)), (90, 30));
    check_bytes(&memory, &data, true);
    let forced = transfer::write(&*file, &view(), 0, &data, &automatic(Choice::Always));
    let error = forced.unwrap_err();
    assert_eq!(error.kind, Kind::Unsupported);
    assert!(error.to_string().contains("romio_ds_write"), "{error}");
}

#[test]
fn calls_on_the_whole_file_are_told_and_repeated() {
    for call in [Call::Len, Call::SetLen, Call::Allocate, Call::Sync] {
        let run = |errno, count| {
            let fault = Fault {
                count,
                ..Fault::nth(call, 0, Reaction::Fail(errno))
            };
            let (_, faulty) = store(&[fault]);
            let file = faulty.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
            match call {
                Call::Len => transfer::len(&*file).map(|_| ()),
                Call::SetLen => transfer::set_len(&*file, 10),
                Call::Allocate => transfer::allocate(&*file, 10),
                _ => transfer::sync(&*file),
            }
        };
        run(EINTR, 3).unwrap();
        assert_eq!(run(ENOSPC, 1).unwrap_err().kind, Kind::NoSpace);
    }
}

#[test]
fn writes_take_locks_where_others_sieve() {
    let data = [200; 90];
    let contiguous = View::bytes();
    for (view, atomic, lock_writes, locks) in [
        (view(), false, false, 0),
        (view(), false, true, 1),
        (view(), true, true, 1),
        (contiguous.clone(), false, false, 0),
        (contiguous.clone(), false, true, 1),
        (contiguous, true, false, 1),
    ] {
        let (_, faulty) = store(&[]);
        let file = faulty.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
        let access = Access {
            atomic,
            lock_writes,
            ..access(Choice::Never)
        };
        transfer::write(&*file, &view, 0, &data, &access).unwrap();
        assert_eq!(faulty.calls(Call::Lock), locks);
    }
}

#[test]
fn opening_and_deleting_fail_with_their_path() {
    let (_, faulty) = store(&[
        Fault::nth(Call::Open, 0, Reaction::Fail(EIO)),
        Fault::nth(Call::Delete, 0, Reaction::Fail(EIO)),
    ]);
    let path = Path::new(PATH);
    for error in [
        faulty.open(path, &OpenMode::READ).err().unwrap(),
        faulty.delete(path).unwrap_err(),
    ] {
        assert_eq!((error.kind, error.path.as_path()), (Kind::Io, path));
    }
    faulty.delete(path).unwrap();
    let error = faulty.open(path, &OpenMode::READ).err().unwrap();
    assert_eq!(error.kind, Kind::NoSuchFile);
}

#[test]
fn vectored_calls_go_on_and_tell() {
    let parts: [&[u8]; 5] = [b"", b"abc", b"", b"defgh", b"i"];
    let faults = [
        Fault::nth(Call::Write, 1, Reaction::Fail(EINTR)),
        Fault::from(Call::Write, 0, Reaction::Short(2)),
        Fault::nth(Call::Read, 1, Reaction::Fail(EINTR)),
        Fault::from(Call::Read, 0, Reaction::Short(2)),
    ];
    let (memory, faulty) = store(&faults);
    let file = faulty.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
    let slices = || parts.map(IoSlice::new);
    let start = FILE_BYTES as u64 - 2;
    transfer::write_all_vectored(&*file, &mut slices(), start).unwrap();
    assert_eq!(
        &memory.bytes(Path::new(PATH)).unwrap()[start as usize..],
        b"abcdefghi"
    );
    let (mut one, mut two) = ([0; 4], [0; 9]);
    let mut bufs = [&mut [][..], &mut one, &mut two].map(IoSliceMut::new);
    let n = transfer::read_vectored_or_end(&*file, &mut bufs, start).unwrap();
    assert_eq!((n, &one, &two[..5]), (9, b"abcd", &b"efghi"[..]));
    faulty.restart(&[Fault::from(Call::Write, 1, Reaction::Fail(ENOSPC))]);
    let done = transfer::write_all_vectored(&*file, &mut slices(), 0);
    let error = done.unwrap_err();
    assert_eq!(
        (error.kind, error.offset, error.len),
        (Kind::NoSpace, Some(3), Some(6))
    );
}

#[test]
fn one_lock_serves_many_windows() {
    let (memory, store) = store(&[]);
    let file = store.open(Path::new(PATH), &OpenMode::CREATE).unwrap();
    let data: Vec<u8> = (0..90).map(|i| i + 150).collect();
    for (sieve, lock_writes) in [(Choice::Always, false), (Choice::Never, true)] {
        store.restart(&[]);
        let access = Access {
            lock_writes,
            ..access(sieve)
        };
        transfer::write(&*file, &view(), 0, &data, &access).unwrap();
        assert!(
            store.calls(Call::Write) > 5,
            "windows of 32 bytes, or runs of 3"
        );
        assert_eq!(store.calls(Call::Lock), 1, "{sieve:?}");
        check_bytes(&memory, &data, true);
    }
}
