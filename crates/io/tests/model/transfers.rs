//! Reading and writing through views.

use crate::filetypes::{any, rising};
use ferry_datatype::{Basic, Datatype};
use ferry_io::{
    Access, Choice, MemoryStore, OpenMode, PosixStore, Store, StoredFile, View, transfer,
};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn access() -> impl Strategy<Value = Access> {
    let choice = || {
        prop_oneof![
            Just(Choice::Automatic),
            Just(Choice::Always),
            Just(Choice::Never)
        ]
    };
    let (r, w) = (choice(), choice());
    (
        r,
        w,
        1usize..300,
        1usize..300,
        proptest::bool::ANY,
        proptest::bool::ANY,
    )
        .prop_map(
            |(sieve_reads, sieve_writes, read, write, atomic, lock_writes)| Access {
                sieve_reads,
                sieve_writes,
                read_buffer_bytes: read,
                write_buffer_bytes: write,
                atomic,
                locked: false,
                lock_writes,
            },
        )
}

/// A file with these bytes, in memory or of the system.
fn file(posix: bool, bytes: &[u8]) -> Arc<dyn StoredFile> {
    let file = match posix {
        false => MemoryStore::default()
            .open(Path::new("f"), &OpenMode::CREATE)
            .unwrap(),
        true => {
            static FILES: AtomicU64 = AtomicU64::new(0);
            let (process, n) = (std::process::id(), FILES.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(format!("ferry-io-{process}-{n}"));
            let file = PosixStore.open(&path, &OpenMode::CREATE).unwrap();
            PosixStore.delete(&path).unwrap();
            file
        }
    };
    transfer::write_all(&*file, bytes, 0).unwrap();
    file
}

fn contents(file: &dyn StoredFile) -> Vec<u8> {
    let mut bytes = vec![0; transfer::len(file).unwrap() as usize];
    let n = transfer::read_exact_or_end(file, &mut bytes, 0).unwrap();
    assert_eq!(n, bytes.len());
    bytes
}

proptest! {
    #[test]
    fn reads_are_those_of_the_bytes(
        filetype in any(), at in 0u64..50, position in 0u64..500, len in 0usize..500,
        file_len in 0usize..900, access in access(), posix in proptest::bool::ANY,
    ) {
        let bytes: Vec<u8> = (0..file_len).map(|i| (i * 7 % 251) as u8 + 1).collect();
        let file = file(posix, &bytes);
        let view = View::new(at, 1, &filetype.datatype).unwrap();
        let mut buf = vec![0; len];
        let n = transfer::read(&*file, &view, position, &mut buf, &access).unwrap();
        let offset = |i: usize| filetype.offset_of(at, position + i as u64) as usize;
        let want = (0..len).map_while(|i| bytes.get(offset(i)).copied());
        prop_assert_eq!(&buf[..n], &want.collect::<Vec<_>>()[..]);
    }

    #[test]
    fn writes_change_the_data_and_nothing_else(
        filetype in rising(), at in 0u64..50, position in 0u64..500, len in 0usize..500,
        file_len in 0usize..900, access in access(), posix in proptest::bool::ANY,
    ) {
        let mut bytes: Vec<u8> = (0..file_len).map(|i| (i * 7 % 251) as u8 + 1).collect();
        let file = file(posix, &bytes);
        let view = View::new(at, 1, &filetype.datatype).unwrap();
        let data: Vec<u8> = (0..len).map(|i| (i * 3 % 253) as u8).collect();
        let n = transfer::write(&*file, &view, position, &data, &access).unwrap();
        prop_assert_eq!(n, len);
        for (i, byte) in data.iter().enumerate() {
            let offset = filetype.offset_of(at, position + i as u64) as usize;
            if bytes.len() <= offset {
                bytes.resize(offset + 1, 0);
            }
            bytes[offset] = *byte;
        }
        prop_assert_eq!(contents(&*file), bytes);
    }
}

/// Threads with interleaved views of one file, sieving and not, lose nothing of each other.
#[test]
fn sieving_writes_do_not_undo_others() {
    use ferry_datatype::{Basic, Datatype};
    const THREADS: usize = 4;
    const RUNS: usize = 300;
    for posix in [false, true] {
        let file = file(posix, &[]);
        let byte = Datatype::basic(Basic::Byte);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let file = &file;
                scope.spawn(move || {
                    let filetype = Datatype::resized(0, THREADS as i64, byte).unwrap();
                    let view = View::new(thread as u64, 1, &filetype).unwrap();
                    let access = Access {
                        sieve_writes: [Choice::Always, Choice::Never][thread % 2],
                        write_buffer_bytes: 64,
                        lock_writes: true,
                        ..Access::default()
                    };
                    let data = [thread as u8 + 1; 10];
                    for i in 0..RUNS / 10 {
                        let position = (i * 10) as u64;
                        transfer::write(&**file, &view, position, &data, &access).unwrap();
                    }
                });
            }
        });
        let want: Vec<u8> = (0..RUNS * THREADS)
            .map(|i| (i % THREADS) as u8 + 1)
            .collect();
        assert_eq!(contents(&*file), want);
    }
}

/// Takes no lock of its own, which would wait for the caller's.
#[test]
fn an_access_under_the_callers_lock_takes_none() {
    let file = file(true, &[b'.'; 40]);
    let view = View::new(
        1,
        1,
        &Datatype::resized(0, 4, Datatype::basic(Basic::Byte)).unwrap(),
    );
    let view = view.unwrap();
    for (atomic, lock_writes) in [(true, false), (false, true)] {
        for sieve in [Choice::Always, Choice::Never] {
            let access = Access {
                sieve_reads: sieve,
                sieve_writes: sieve,
                atomic,
                locked: true,
                lock_writes,
                ..Access::default()
            };
            let _lock = transfer::lock(&*file, 0..u64::MAX, true).unwrap();
            let mut back = [0; 3];
            assert_eq!(
                transfer::write(&*file, &view, 2, b"abc", &access).unwrap(),
                3
            );
            assert_eq!(
                transfer::read(&*file, &view, 2, &mut back, &access).unwrap(),
                3
            );
            assert_eq!(&back, b"abc");
        }
    }
}
