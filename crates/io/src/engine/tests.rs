//! Operations in the background.

use super::*;
use crate::{MemoryStore, OpenMode, PosixStore, RangeLock, Store};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::mpsc::channel;

fn engines() -> [Engine; 2] {
    [true, false].map(|io_uring| {
        Engine::new(Options {
            io_uring,
            threads: 2,
            spare_cores: None,
        })
    })
}

fn posix(name: &str) -> Arc<dyn StoredFile> {
    let name = format!("ferry-io-engine-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = PosixStore.open(&path, &OpenMode::CREATE).unwrap();
    PosixStore.delete(&path).unwrap();
    file
}

/// Writes a file in parts and reads it back.
fn write_and_read(engine: &Engine, file: &Arc<dyn StoredFile>, part_bytes: usize) {
    const PARTS: usize = 300;
    let data: Vec<u8> = (0..PARTS * part_bytes).map(|i| (i % 251) as u8).collect();
    let mut back = vec![0; data.len()];
    let on_end = || Box::new(move |n: Result<usize>| assert_eq!(n.unwrap(), part_bytes));
    for (i, part) in data.chunks(part_bytes).enumerate() {
        let (at, len, offset) = (part.as_ptr(), part.len(), (i * part_bytes) as u64);
        // SAFETY: `data` lives until the engine has waited.
        unsafe { engine.write(file.clone(), at, len, offset, on_end()) };
    }
    engine.wait();
    for (i, part) in back.chunks_mut(part_bytes).enumerate() {
        let (at, len, offset) = (part.as_mut_ptr(), part.len(), (i * part_bytes) as u64);
        // SAFETY: `back` lives until the engine has waited, and nobody else uses it.
        unsafe { engine.read(file.clone(), at, len, offset, on_end()) };
    }
    engine.wait();
    assert_eq!(back, data);
}

#[test]
fn writes_then_reads_in_the_background() {
    for engine in engines() {
        let memory = MemoryStore::default().open(Path::new("f"), &OpenMode::CREATE);
        let memory = memory.unwrap();
        let posix = posix("many");
        let remote: Arc<dyn StoredFile> = Arc::new(Remote(posix.clone()));
        for part_bytes in [700, 70_000] {
            write_and_read(&engine, &posix, part_bytes);
            write_and_read(&engine, &memory, part_bytes);
            write_and_read(&engine, &remote, part_bytes);
        }
    }
}

/// A file that says it is on another host: its writes go to io_uring.
struct Remote(Arc<dyn StoredFile>);

impl StoredFile for Remote {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn can_read(&self) -> bool {
        true
    }
    fn can_write(&self) -> bool {
        true
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(buf, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn lock(&self, range: Range<u64>, exclusive: bool) -> io::Result<RangeLock<'_>> {
        self.0.lock(range, exclusive)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }
    fn file_system(&self) -> FileSystem {
        FileSystem::Nfs
    }
}

/// Straight to io_uring, where reads go only if the device must be waited for.
#[test]
fn the_ring_reads_and_writes() {
    let lazy = LazyRing {
        wanted: true,
        ring: OnceLock::new(),
    };
    let under_way = Arc::new(UnderWay::default());
    let file = posix("ring");
    let mut buf = vec![0u8; 500 * 1000];
    for direction in [Direction::Write, Direction::Read] {
        if direction == Direction::Write {
            buf.iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = (i % 251) as u8);
        } else {
            buf.fill(0);
        }
        for (i, part) in buf.chunks_mut(1000).enumerate() {
            let rest = lazy.start_transfer(Transfer {
                direction,
                file: file.clone(),
                buf: part.as_mut_ptr(),
                len: part.len(),
                offset: (i * 1000) as u64,
                done: 0,
                on_end: Box::new(|n| assert_eq!(n.unwrap(), 1000)),
                operation: under_way.begin(),
            });
            if rest.is_some() {
                // The kernel refuses io_uring: nothing to test.
                return;
            }
        }
        under_way.wait();
    }
    assert!(buf.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
    if let Some(Some(ring)) = lazy.ring.into_inner() {
        ring.stop();
    }
}

/// From here on io_uring_enter(2) fails in the calling thread, and in threads that it starts: where
/// it waits, or where it submits.
fn refuse_io_uring(submissions: bool) {
    let ins = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    // The second argument is the number of submissions. It lies at byte 24.
    let (on_none, on_some) = if submissions { (0, 1) } else { (1, 0) };
    let mut filter = [
        ins(load, 0, 0, 0),
        ins(equal, libc::SYS_io_uring_enter as u32, 0, 2),
        ins(load, 24, 0, 0),
        ins(equal, 0, on_none, on_some),
        ins(give, libc::SECCOMP_RET_ALLOW, 0, 0),
        ins(give, libc::SECCOMP_RET_ERRNO | libc::EIO as u32, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the filter is sound and is copied. It binds this thread and those that it starts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        let set = libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program);
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }
}

/// A kernel that refuses later what it has granted at first: the pool takes over.
#[test]
fn a_ring_that_is_refused_later_loses_nothing() {
    for submissions in [true, false] {
        std::thread::spawn(move || {
            let engine = Engine::new(Options::default());
            let remote: Arc<dyn StoredFile> = Arc::new(Remote(posix("refused")));
            // Where it waits: of the completion thread, which starts later.
            if submissions {
                write_and_read(&engine, &remote, 70_000);
            }
            refuse_io_uring(submissions);
            write_and_read(&engine, &remote, 70_000);
            drop(engine);
        })
        .join()
        .unwrap();
    }
}

#[test]
fn a_read_ends_with_the_file_and_an_error_is_told() {
    for engine in engines() {
        let file = posix("short");
        transfer::write_all(&*file, b"abc", 0).unwrap();
        let (tell, told) = channel();
        let mut buf = [0; 10];
        let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
        // SAFETY: `buf` lives until the result has come.
        unsafe { engine.read(file, buf.as_mut_ptr(), 10, 1, on_end) };
        assert_eq!(told.recv().unwrap().unwrap(), 2);
        assert_eq!(&buf[..2], b"bc");
        let full = PosixStore
            .open(Path::new("/dev/full"), &OpenMode::CREATE)
            .unwrap();
        let (tell, told) = channel();
        let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
        // SAFETY: `buf` lives until the result has come.
        unsafe { engine.write(full, buf.as_ptr(), 10, 0, on_end) };
        let error = told.recv().unwrap().unwrap_err();
        assert_eq!(error.kind, crate::Kind::NoSpace);
    }
}

#[test]
fn operations_outlive_the_thread_that_starts_them() {
    for engine in engines() {
        let file = posix("thread");
        let data = vec![7u8; 64 << 20];
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
                // SAFETY: `data` lives until the result has come.
                unsafe { engine.write(file.clone(), data.as_ptr(), data.len(), 0, on_end) };
            });
        });
        assert_eq!(told.recv().unwrap().unwrap(), data.len());
        assert_eq!(transfer::len(&*file).unwrap(), data.len() as u64);
    }
}

#[test]
fn a_short_transfer_goes_on_behind_what_is_done() {
    let file = MemoryStore::default()
        .open(Path::new("f"), &OpenMode::CREATE)
        .unwrap();
    let data = *b"abcdefgh";
    let (tell, told) = channel();
    let transfer = Transfer {
        direction: Direction::Write,
        file: file.clone(),
        buf: data.as_ptr().cast_mut(),
        len: data.len(),
        offset: 10,
        done: 0,
        on_end: Box::new(move |n| tell.send(n.unwrap()).unwrap()),
        operation: Arc::new(UnderWay::default()).begin(),
    };
    let transfer = transfer.advance(Ok(2)).unwrap();
    let interrupted = io::Error::from_raw_os_error(libc::EINTR);
    let transfer = transfer.advance(Err(interrupted)).unwrap();
    let transfer = transfer.advance(Ok(3)).unwrap();
    assert_eq!(transfer.done, 5);
    transfer.run();
    assert_eq!(told.recv(), Ok(8));
    let mut found = [0; 9];
    assert_eq!(
        transfer::read_exact_or_end(&*file, &mut found, 15).unwrap(),
        3
    );
    assert_eq!(&found[..3], b"fgh");
}

#[test]
fn dropping_waits_for_jobs() {
    let (tell, told) = channel();
    let engine = Engine::new(Options::default());
    for i in 0..20 {
        let tell = tell.clone();
        engine.run(Box::new(move || tell.send(i).unwrap()));
    }
    drop((engine, tell));
    assert_eq!(told.iter().sum::<i32>(), 190);
}

#[test]
fn a_child_has_an_engine_of_its_own() {
    let engine = Engine::new(Options::default());
    let file = posix("fork");
    let write = |byte: u8| {
        let data = [byte; 100];
        let (tell, told) = channel();
        let on_end = Box::new(move |n: Result<usize>| tell.send(n).unwrap());
        // SAFETY: `data` lives until the result has come.
        unsafe { engine.write(file.clone(), data.as_ptr(), 100, byte.into(), on_end) };
        told.recv().unwrap().unwrap()
    };
    assert_eq!(write(1), 100);
    // SAFETY: the child uses memory and threads of its own, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(write(200) != 100);
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(transfer::len(&*file).unwrap(), 300);
    assert_eq!(write(2), 100);
}
