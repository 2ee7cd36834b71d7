//! This process in its job, and the models by which its program uses MPI: the world, from MPI_Init
//! to MPI_Finalize (MPI 5.0 §11.2), and sessions (§11.3).
//!
//! Whichever comes first starts the process; it stays started for the life of the program. What
//! ends and may begin again is its use.

use crate::overlap;
use crate::{Comm, ProcId, Result, coll, crash, device, err, unreceived};
use ferry_job::{Client, JobContext, RankInfo, RankState, RankStatus};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// What the launcher said.
    pub rank_info: RankInfo,
    /// The page that the launcher reads.
    pub status: &'static RankStatus,
    /// The level of thread support that the device was started for.
    level: ThreadLevel,
    model: OnceLock<WorldModel>,
    client: Option<Client>,
    next_context: AtomicU32,
    /// How many use it: the world model and each session.
    users: Mutex<u32>,
}

/// What is known of the world model once it has been initialised.
#[derive(Clone, Copy, Debug)]
struct WorldModel {
    level: ThreadLevel,
    main_thread: ThreadId,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
/// Only one thread starts. Within: the level for which the process is to be started at least,
/// because a tool's threads use it.
static STARTING: Mutex<ThreadLevel> = Mutex::new(ThreadLevel::Single);
/// The process between MPI_Init and MPI_Finalize, else null.
static IN_WORLD: AtomicPtr<Process> = AtomicPtr::new(null_mut());

/// This process. Panics before it has been started: the abi floor checks first.
#[inline]
pub fn process() -> &'static Process {
    PROCESS.get().expect("MPI is initialised")
}

/// This process, if it has been started.
#[inline]
pub fn started() -> Option<&'static Process> {
    PROCESS.get()
}

/// This process, if it is in the world model: between MPI_Init and MPI_Finalize.
#[inline]
pub fn in_world() -> Option<&'static Process> {
    // SAFETY: null, or the process, which lives for ever.
    unsafe { IN_WORLD.load(Ordering::Acquire).as_ref() }
}

/// Begins the world model (MPI_Init_thread); starts the process unless a session has. Provides what
/// is asked for.
///
/// Errors: it has begun before; the launcher cannot be spoken to; the shared segment cannot be
/// mapped.
pub fn init(level: ThreadLevel) -> Result<&'static Process> {
    let process = start(level)?;
    let model = WorldModel {
        level,
        main_thread: std::thread::current().id(),
    };
    if process.model.set(model).is_err() {
        return Err(err!(Other, "MPI has been initialised already"));
    }
    process.begin()?;
    IN_WORLD.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
    Ok(process)
}

/// The level of thread support that a tool's threads get beside the program's: what they ask for,
/// if the process has not been started yet, since it is then started for that level; otherwise at
/// most that for which it has been.
pub(crate) fn for_tool(asked: ThreadLevel) -> ThreadLevel {
    let mut least = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    match PROCESS.get() {
        Some(process) => asked.min(process.level),
        None => {
            *least = asked.max(*least);
            asked
        }
    }
}

/// Finds the job, starts the device and makes the predefined communicators, unless that has been
/// done. `level` counts at the first call only.
///
/// Errors: the launcher cannot be spoken to; the shared segment cannot be mapped.
pub(crate) fn start(level: ThreadLevel) -> Result<&'static Process> {
    let least = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = PROCESS.get() {
        return Ok(process);
    }
    let asked = level;
    let level = level.max(*least);
    let JobContext {
        rank_info,
        segment,
        status,
        client,
        directory,
    } = ferry_job::join().map_err(|e| err!(Other, "{e}"))?;
    if let Some(client) = &client {
        client.let_ranks_read_memory();
    }
    let overlaps = overlap::Mode::asked()? != overlap::Mode::Off;
    let progress = wants_progress_thread()? || overlaps;
    if progress && segment.as_ref().is_some_and(|s| s.machine.is_some()) {
        return Err(err!(
            Other,
            "{}, and a modelled machine (mpiexec --machine) has no core for a progress thread; \
             unset it",
            if overlaps {
                "FERRY_OVERLAP is set"
            } else {
                "FERRY_PROGRESS is \"thread\""
            }
        ));
    }
    device::start(
        &rank_info,
        segment,
        directory,
        status,
        level == ThreadLevel::Multiple,
        progress,
    )
    .map_err(|e| err!(Other, "{e}"))?;
    // A tool's threads wait for nobody: hangs are found as without them.
    let several = asked == ThreadLevel::Multiple;
    status
        .concurrent
        .store(u32::from(several), Ordering::Relaxed);
    let process = Process {
        me: rank_info.rank,
        size: rank_info.size,
        world: Comm::world(rank_info.rank, rank_info.size),
        itself: Comm::itself(rank_info.rank),
        rank_info,
        status,
        level,
        model: OnceLock::new(),
        client,
        next_context: AtomicU32::new(2),
        users: Mutex::new(0),
    };
    crash::install(process.me, process.size);
    Ok(PROCESS.get_or_init(|| process))
}

/// FERRY_PROGRESS: does the program want its operations to go on while it computes?
fn wants_progress_thread() -> Result<bool> {
    match std::env::var_os("FERRY_PROGRESS")
        .as_deref()
        .map(|v| v.as_encoded_bytes())
    {
        None | Some(b"" | b"calls") => Ok(false),
        Some(b"thread") => Ok(true),
        Some(other) => Err(err!(
            Other,
            "FERRY_PROGRESS is {:?}; what can be chosen is \"thread\" and \"calls\"",
            String::from_utf8_lossy(other)
        )),
    }
}

impl Process {
    /// A context never used before in this job; this process leads the communicator's creation.
    pub fn new_context(&self) -> device::ContextId {
        device::ContextId::new(self.me, self.next_context.fetch_add(1, Ordering::Relaxed))
    }

    /// The highest level of thread support that a session can have: any if a session started the
    /// process, as it then is ready for all of them, otherwise that of the world model or of a
    /// tool, whichever is higher.
    pub fn thread_limit(&self) -> ThreadLevel {
        self.level
    }

    /// What MPI_Init_thread provided; `None` if it has not been called.
    pub fn world_level(&self) -> Option<ThreadLevel> {
        self.model.get().map(|m| m.level)
    }

    /// The thread that called MPI_Init, if any has.
    pub fn main_thread(&self) -> Option<ThreadId> {
        self.model.get().map(|m| m.main_thread)
    }

    fn users(&self) -> MutexGuard<'_, u32> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: RankState) {
        self.status.state.store(state as u32, Ordering::Release);
    }

    /// One more uses MPI in this process. The first one starts the progress thread, if there is to
    /// be one.
    ///
    /// Errors: the system gives no thread.
    pub(crate) fn begin(&self) -> Result<()> {
        let mut users = self.users();
        if *users == 0 {
            device::start_progress_thread()
                .map_err(|e| err!(Other, "the progress thread cannot be started: {e}"))?;
            overlap::start()?;
            device::device().set_finalized(false);
        }
        *users += 1;
        self.tell(RankState::Running);
        Ok(())
    }

    /// One of those who use MPI has done. The last one completes what others still need of this
    /// process: blocks until then.
    pub(crate) fn end(&self) {
        {
            let mut users = self.users();
            *users -= 1;
            if *users > 0 {
                return;
            }
        }
        device::finish();
        // Another session may have begun meanwhile.
        let users = self.users();
        if *users == 0 {
            let mut say = |line: &str| {
                if let Some(client) = &self.client {
                    client.log(line);
                }
            };
            if let Err(e) = overlap::stop(&mut say) {
                say(e.text());
            }
            device::stop_progress_thread();
            let mut d = device::device();
            crate::request::clear_pool(&mut d);
            d.set_finalized(true);
            drop(d);
            self.tell(RankState::Finalized);
        }
    }

    /// Ends the world model (MPI_Finalize). Unless sessions go on, completes what others still need
    /// of this process; blocks until then. `comms`: the communicators that the program has made and
    /// not freed.
    ///
    /// Errors: a rank made other collective calls than this one, on MPI_COMM_WORLD or on one of
    /// `comms`. The world model has ended all the same.
    pub fn finalize(&self, comms: &[Arc<Comm>]) -> Result<()> {
        self.end();
        // While sessions go on, others may be ahead of this process in their communicators.
        let others = if *self.users() == 0 { comms } else { &[] };
        let mut d = device::device();
        // Who has nothing to wait for may not have looked for long.
        d.progress();
        let mut all = std::iter::once(&self.world).chain(others);
        let mismatch = all.find_map(|comm| coll::pending_mismatch(comm, &mut d));
        let unreceived = unreceived::warning(&mut d);
        drop(d);
        if let (Some(line), Some(client)) = (unreceived, &self.client) {
            client.log(&line);
        }
        IN_WORLD.store(null_mut(), Ordering::Release);
        mismatch.map_or(Ok(()), Err)
    }

    /// Ends the job with exit code `code`; `text` is shown by the launcher. Without a launcher:
    /// prints it and exits.
    pub fn abort(&self, code: i32, text: &str) -> ! {
        self.status.abort_code.store(code, Ordering::Relaxed);
        self.tell(RankState::Aborted);
        abort(self.client.as_ref(), code, text)
    }
}

/// Ends the job, or this process if it is none, with exit code `code`, after what the program has
/// printed.
pub fn abort(client: Option<&Client>, code: i32, text: &str) -> ! {
    crate::flush_stdio::flush();
    match client {
        Some(client) => client.abort(code, text),
        None => {
            use std::io::Write;
            let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
        }
    }
    // The launcher ends the job; should it be gone, this process ends by itself. No exit handlers:
    // the program is wrong. SAFETY: _exit is always safe to call.
    unsafe { libc::_exit(if code & 0xff == 0 { 1 } else { code & 0xff }) }
}
