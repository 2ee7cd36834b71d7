//! This process's part of the world model: what exists between MPI_Init and MPI_Finalize (MPI 5.0 §11.2).

use crate::{Comm, ProcId, Result, device, err};
use ferry_job::{Client, Place, RankState, RankStatus, Welcome};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

/// Levels of thread support (MPI 5.0 §11.6), least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum ThreadLevel {
    Single,
    Funneled,
    Serialized,
    Multiple,
}

/// What a started process has.
pub struct Process {
    /// Its number in the job.
    pub me: ProcId,
    /// Processes in the job.
    pub size: u32,
    /// MPI_COMM_WORLD.
    pub world: Arc<Comm>,
    /// MPI_COMM_SELF.
    pub itself: Arc<Comm>,
    /// What was provided at initialisation.
    pub thread_level: ThreadLevel,
    /// The thread that initialised MPI.
    pub main_thread: ThreadId,
    /// What the launcher said.
    pub welcome: Welcome,
    /// The page that the launcher reads.
    pub status: &'static RankStatus,
    client: Option<Client>,
    next_context: AtomicU32,
    finalized: AtomicBool,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
/// Only one thread initialises.
static STARTING: Mutex<()> = Mutex::new(());

/// This process. Panics before initialisation: the abi floor checks first.
#[inline]
pub fn process() -> &'static Process {
    PROCESS.get().expect("MPI is initialised")
}

/// This process, if MPI has been initialised.
#[inline]
pub fn started() -> Option<&'static Process> {
    PROCESS.get()
}

/// Finds the job, starts the device and makes the predefined communicators (MPI_Init_thread). Provides what is asked for.
///
/// Errors: MPI has been initialised before; the launcher cannot be spoken to; the shared segment cannot be mapped.
pub fn init(level: ThreadLevel) -> Result<&'static Process> {
    let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if PROCESS.get().is_some() {
        return Err(err!(Other, "MPI has been initialised already"));
    }
    let Place {
        welcome,
        segment,
        status,
        client,
    } = ferry_job::join().map_err(|e| err!(Other, "{e}"))?;
    if let Some(client) = &client {
        client.trust_ranks();
    }
    device::start(&welcome, segment, status, level == ThreadLevel::Multiple)
        .map_err(|e| err!(Other, "{e}"))?;
    let process = Process {
        me: welcome.rank,
        size: welcome.size,
        world: Comm::world(welcome.rank, welcome.size),
        itself: Comm::itself(welcome.rank),
        thread_level: level,
        main_thread: std::thread::current().id(),
        welcome,
        status,
        client,
        next_context: AtomicU32::new(2),
        finalized: AtomicBool::new(false),
    };
    let process = PROCESS.get_or_init(|| process);
    process
        .status
        .state
        .store(RankState::Running as u32, Ordering::Release);
    Ok(process)
}

impl Process {
    /// A context never used before in this job; this process leads the communicator's creation.
    pub fn new_context(&self) -> device::ContextId {
        device::ContextId::new(self.me, self.next_context.fetch_add(1, Ordering::Relaxed))
    }

    /// Completes what others still need of this process (MPI_Finalize). Blocks until then.
    pub fn finalize(&self) {
        device::finish();
        self.finalized.store(true, Ordering::Release);
        self.status
            .state
            .store(RankState::Finalized as u32, Ordering::Release);
    }

    /// Has MPI been finalised?
    #[inline]
    pub fn is_finalized(&self) -> bool {
        self.finalized.load(Ordering::Acquire)
    }

    /// Ends the job with exit code `code`; `text` is shown by the launcher. Without a launcher: prints it and exits.
    pub fn abort(&self, code: i32, text: &str) -> ! {
        self.status.abort_code.store(code, Ordering::Relaxed);
        self.status
            .state
            .store(RankState::Aborted as u32, Ordering::Release);
        abort(self.client.as_ref(), code, text)
    }
}

/// Ends the job, or this process if it is none, with exit code `code`.
pub fn abort(client: Option<&Client>, code: i32, text: &str) -> ! {
    match client {
        Some(client) => client.abort(code, text),
        None => {
            use std::io::Write;
            let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
        }
    }
    // The launcher ends the job; should it be gone, this process ends by itself. No exit handlers: the program is wrong.
    // SAFETY: _exit is always safe to call.
    unsafe { libc::_exit(if code & 0xff == 0 { 1 } else { code & 0xff }) }
}
