//! This process in its job, and the models by which its program uses MPI: the world model, from
//! MPI_Init to MPI_Finalize (MPI 5.0 §11.2), and sessions (§11.3).
//!
//! The first of them starts the process. It stays started until the program ends. Only its use
//! count falls to 0 and rises again.

use crate::dynamic::foreign;
use crate::overlap;
use crate::{Comm, ProcId, Result, coll, crash, device, err, unreceived};
use ferry_job::{
    Client, Directory, InitialErrhandler, JobContext, RankInfo, RankState, RankStatus, Segment,
    settings,
};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread::ThreadId;

/// Levels of thread support (MPI 5.0 §11.6), lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum ThreadLevel {
    Single,
    Funneled,
    Serialized,
    Multiple,
}

impl ThreadLevel {
    /// Its constant's name.
    pub fn name(self) -> &'static str {
        match self {
            ThreadLevel::Single => "MPI_THREAD_SINGLE",
            ThreadLevel::Funneled => "MPI_THREAD_FUNNELED",
            ThreadLevel::Serialized => "MPI_THREAD_SERIALIZED",
            ThreadLevel::Multiple => "MPI_THREAD_MULTIPLE",
        }
    }
}

/// A process of the job, once started.
pub struct Process {
    /// This process's number in the job.
    pub me: ProcId,
    /// Number of processes in the job.
    pub size: u32,
    /// MPI_COMM_WORLD.
    pub world: Arc<Comm>,
    /// MPI_COMM_SELF.
    pub comm_self: Arc<Comm>,
    /// What the launcher passed to this rank.
    pub rank_info: RankInfo,
    /// The status page that the launcher reads.
    pub status: &'static RankStatus,
    /// Level of thread support that the device was started with.
    level: ThreadLevel,
    model: OnceLock<WorldModel>,
    client: Option<Client>,
    next_context: AtomicU32,
    /// Use count: the world model and each open session count one.
    use_count: Mutex<u32>,
}

/// The world model, once initialised.
#[derive(Clone, Copy, Debug)]
struct WorldModel {
    level: ThreadLevel,
    main_thread: ThreadId,
}

/// A rank that has found its job and could not start. It can still tell its launcher why.
struct Unstarted {
    rank: u32,
    size: u32,
    client: Option<Client>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
static UNSTARTED: OnceLock<Unstarted> = OnceLock::new();
/// Locked by the one thread that starts the process. Holds the minimum level of thread support to
/// start with: that of a tool that has called MPI_T_init_thread before.
static MIN_LEVEL: Mutex<ThreadLevel> = Mutex::new(ThreadLevel::Single);
/// The process between MPI_Init and MPI_Finalize, otherwise null.
static IN_WORLD: AtomicPtr<Process> = AtomicPtr::new(null_mut());

/// This process. Panics if it has not been started. The abi layer checks that first.
#[inline]
pub fn process() -> &'static Process {
    PROCESS.get().expect("MPI is initialised")
}

/// This process, if it has been started.
#[inline]
pub fn try_process() -> Option<&'static Process> {
    PROCESS.get()
}

/// This process's rank and the size of its job, as far as it knows them.
pub fn rank_and_size() -> Option<(u32, u32)> {
    let started = try_process().map(|p| (p.me, p.size));
    started.or_else(|| UNSTARTED.get().map(|u| (u.rank, u.size)))
}

/// This process, if it is in the world model: between MPI_Init and MPI_Finalize.
#[inline]
pub fn in_world() -> Option<&'static Process> {
    // SAFETY: null, or the process, which is never freed.
    unsafe { IN_WORLD.load(Ordering::Acquire).as_ref() }
}

/// Initialises the world model (MPI_Init_thread). Starts the process unless a session has. Provides
/// the level that is required.
///
/// Errors: it was initialised before; the launcher cannot be reached; the shared segment cannot be
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
    process.acquire()?;
    IN_WORLD.store(std::ptr::from_ref(process).cast_mut(), Ordering::Release);
    crate::dynamic::spawn::connect_to_parent()?;
    Ok(process)
}

/// The level of thread support for a tool (MPI_T_init_thread). Before the process starts, the tool
/// gets the level it requires, and the process will start with at least that level. Afterwards the
/// level is limited to that of the process.
pub(crate) fn provide_tool_level(requested: ThreadLevel) -> ThreadLevel {
    let mut least = MIN_LEVEL.lock().unwrap_or_else(PoisonError::into_inner);
    match PROCESS.get() {
        Some(process) => requested.min(process.level),
        None => {
            *least = requested.max(*least);
            requested
        }
    }
}

/// Finds the job, starts the device and makes the predefined communicators. Does nothing if that
/// has been done. `level` matters in the first call only.
///
/// Errors: the launcher cannot be reached; the shared segment cannot be mapped; a variable has a
/// value that it cannot have.
pub(crate) fn start(level: ThreadLevel) -> Result<&'static Process> {
    let least = MIN_LEVEL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = PROCESS.get() {
        return Ok(process);
    }
    let requested = level;
    let level = level.max(*least);
    let job = ferry_job::join().map_err(|e| err!(Other, "{e}"))?;
    let JobContext {
        rank_info,
        segment,
        status,
        client,
        directory,
    } = job;
    if let Some(client) = &client {
        client.let_ranks_read_memory();
    }
    let concurrent = level == ThreadLevel::Multiple;
    if let Err(e) = start_device(&rank_info, segment, directory, status, concurrent) {
        let (rank, size) = (rank_info.rank, rank_info.size);
        let _ = UNSTARTED.set(Unstarted { rank, size, client });
        return Err(e);
    }
    // A tool's threads never block in MPI, so hang detection counts the program's threads only.
    let several = requested == ThreadLevel::Multiple;
    status
        .concurrent
        .store(u32::from(several), Ordering::Relaxed);
    let process = Process {
        me: rank_info.rank,
        size: rank_info.size,
        world: Comm::world(rank_info.rank, rank_info.size),
        comm_self: Comm::comm_self(rank_info.rank),
        rank_info,
        status,
        level,
        model: OnceLock::new(),
        client,
        next_context: AtomicU32::new(2),
        use_count: Mutex::new(0),
    };
    crash::install(process.me, process.size, level);
    device::on_several_threads(tell_of_several_threads);
    Ok(PROCESS.get_or_init(|| process))
}

/// Tells once that the program calls MPI from two threads at once and has not asked for that
/// (MPI 5.0 §11.6). What follows is undefined, and mostly shows as a hang or a crash.
fn tell_of_several_threads() {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        let Some(process) = try_process() else { return };
        let level = process.level.name();
        process.log(&format!(
            "two threads of this rank wait in MPI at once, but the program runs with {level}; it \
             has to ask MPI_Init_thread for MPI_THREAD_MULTIPLE"
        ));
    });
}

/// Checks the environment and starts the device. `concurrent`: several threads will call MPI.
///
/// Errors: the shared segment cannot be mapped; a variable has a value that it cannot have.
fn start_device(
    rank_info: &RankInfo,
    segment: Option<Segment>,
    directory: Option<Box<dyn Directory>>,
    status: &'static RankStatus,
    concurrent: bool,
) -> Result<()> {
    InitialErrhandler::from_environment().map_err(|e| err!(Other, "{e}"))?;
    settings::check(|name| std::env::var_os(name)).map_err(|e| err!(Other, "{e}"))?;
    crate::coll::check_variables()?;
    let overlaps = overlap::Mode::from_environment()? != overlap::Mode::Off;
    let progress = settings::PROGRESS.is("thread") || overlaps;
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
    device::start(rank_info, segment, directory, status, concurrent, progress)
        .map_err(|e| err!(Other, "{e}"))
}

impl Process {
    /// A context id that this job has not used yet. Called by the process that leads the creation
    /// of a communicator.
    ///
    /// Once the process knows processes of other jobs, whose counters it does not know, the context
    /// is random.
    pub fn new_context(&self) -> device::ContextId {
        if let Some(context) = foreign::new_context() {
            return context;
        }
        device::ContextId::new(self.me, self.next_context.fetch_add(1, Ordering::Relaxed))
    }

    /// The processes that share memory with this one: those of its node, in rising order. On a
    /// modelled machine itself alone.
    pub fn node_ranks(&self) -> &[ProcId] {
        if device::is_modelled() {
            std::slice::from_ref(&self.me)
        } else {
            &self.rank_info.local_ranks
        }
    }

    /// The connection to the launcher, if there is one.
    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// The highest level of thread support that a session can have. If a session started the
    /// process, that is MPI_THREAD_MULTIPLE. Otherwise it is the level of the world model or of a
    /// tool, whichever is higher.
    pub fn thread_limit(&self) -> ThreadLevel {
        self.level
    }

    /// The level that MPI_Init_thread provided. `None` if it has not been called.
    pub fn world_level(&self) -> Option<ThreadLevel> {
        self.model.get().map(|m| m.level)
    }

    /// The thread that called MPI_Init, if one has.
    pub fn main_thread(&self) -> Option<ThreadId> {
        self.model.get().map(|m| m.main_thread)
    }

    fn use_count(&self) -> MutexGuard<'_, u32> {
        self.use_count
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has mpiexec print a line with the rank before it. Without mpiexec it is lost.
    fn log(&self, line: &str) {
        if let Some(client) = &self.client {
            client.log(line);
        }
    }

    fn set_state(&self, state: RankState) {
        self.status.state.store(state as u32, Ordering::Release);
    }

    /// Adds one to the use count. The first use starts the progress thread if there is to be one.
    ///
    /// Errors: the system cannot make a thread.
    pub(crate) fn acquire(&self) -> Result<()> {
        let mut use_count = self.use_count();
        if *use_count == 0 {
            device::start_progress_thread()
                .map_err(|e| err!(Other, "the progress thread cannot be started: {e}"))?;
            overlap::start()?;
            device::device().set_finalized(false);
        }
        *use_count += 1;
        self.set_state(RankState::Running);
        Ok(())
    }

    /// Ends this process, of a job that does not come about: its launcher takes it for a rank that
    /// has finalised MPI.
    pub(crate) fn leave(&self) -> ! {
        self.release();
        // SAFETY: called from MPI_Init, no exit handler.
        unsafe { libc::exit(0) }
    }

    /// Takes one from the use count. The last use blocks until this process has completed what
    /// other processes need from it.
    pub(crate) fn release(&self) {
        {
            let mut use_count = self.use_count();
            *use_count -= 1;
            if *use_count > 0 {
                return;
            }
        }
        crate::dynamic::port::close_all();
        device::finish();
        crate::dynamic::spawn::release_all();
        // Another session may have been initialised in the meantime.
        let use_count = self.use_count();
        if *use_count == 0 {
            let mut print = |line: &str| {
                if let Some(client) = &self.client {
                    client.log(line);
                }
            };
            if let Err(e) = overlap::stop(&mut print) {
                print(e.text());
            }
            device::stop_progress_thread();
            let mut d = device::device();
            crate::request::clear_pool(&mut d);
            d.set_finalized(true);
            drop(d);
            self.set_state(RankState::Finalized);
        }
    }

    /// Finalises the world model (MPI_Finalize). Without open sessions it blocks until this process
    /// has completed what other processes need from it. `comms` are the communicators that the
    /// program has made and not freed; `leaks` is a line to print about what it has not freed.
    ///
    /// Errors: another rank made other collective calls than this one, on MPI_COMM_WORLD or on one
    /// of `comms`. The world model has still ended.
    pub fn finalize(&self, comms: &[Arc<Comm>], leaks: Option<String>) -> Result<()> {
        self.release();
        // With open sessions, other ranks may be ahead of this one in their communicators.
        let others = if *self.use_count() == 0 { comms } else { &[] };
        let mut d = device::device();
        // A process that did not wait recently may not have polled for long.
        d.progress();
        let mut all = std::iter::once(&self.world).chain(others);
        let mismatch = all.find_map(|comm| coll::pending_mismatch(comm, &mut d));
        let unreceived = unreceived::warning(&mut d);
        drop(d);
        for line in unreceived.into_iter().chain(leaks) {
            self.log(&line);
        }
        IN_WORLD.store(null_mut(), Ordering::Release);
        mismatch.map_or(Ok(()), Err)
    }
}

/// Ends the job with exit code `code`, or only this process if it has no launcher. The launcher
/// prints `text`, else this process does. Writes buffered output first.
pub fn abort(code: i32, text: &str) -> ! {
    let client = match try_process() {
        Some(process) => {
            process.status.abort_code.store(code, Ordering::Relaxed);
            process.set_state(RankState::Aborted);
            process.client.as_ref()
        }
        None => UNSTARTED.get().and_then(|u| u.client.as_ref()),
    };
    crate::flush_stdio::flush();
    match client {
        Some(client) => client.abort(code, text),
        None => {
            use std::io::Write;
            let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
        }
    }
    // The launcher ends the job. If the launcher is gone, this process still ends here. Exit
    // handlers are skipped, because the program is in error. SAFETY: _exit is always safe to call.
    unsafe { libc::_exit(ferry_job::abort_status(code).into()) }
}
