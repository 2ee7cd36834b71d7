//! Starting processes (MPI 5.0 §11.8).
//!
//! The root opens a port, and has a launcher started for the new processes: mpiexec once more, a
//! child of the root's mpiexec, or on its own where the root has none. The new processes are a job
//! of their own. In MPI_Init they connect to the port.

use super::{foreign, port};
use crate::comm::Comm;
use crate::comm::agree::{Agreement, Reader, put_u64};
use crate::device::{self, Device};
use crate::process::process;
use crate::{Error, Info, Kind, Result, err};
use ferry_job::{InitialErrhandler, SoftError, SpawnNews, SpawnOrder, SpawnProgram, SpawnSocket};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program to start.
pub struct Program {
    /// A path, or a name to look for.
    pub command: Vec<u8>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The largest number of processes.
    pub maxprocs: u32,
    /// host, hosts, hostfile, wdir, path, file, env, soft, mpi_initial_errhandler (MPI 5.0
    /// §11.8.4).
    pub info: Option<Arc<Info>>,
}

/// What a spawn has come to.
pub struct Outcome {
    /// The intercommunicator with the new processes.
    pub comm: Result<Arc<Comm>>,
    /// Of all processes that were asked for, in order: has it been started?
    pub started: Vec<bool>,
}

/// Sockets to the launchers of processes that this one has started, by the number of their job.
static LAUNCHERS: Mutex<Option<HashMap<u64, Launcher>>> = Mutex::new(None);

/// The launcher of a job that this process has started.
struct Launcher {
    socket: SpawnSocket,
    /// It is not watched any more.
    released: Arc<AtomicBool>,
}

fn launchers() -> MutexGuard<'static, Option<HashMap<u64, Launcher>>> {
    LAUNCHERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts processes (MPI_Comm_spawn_multiple). Collective over `comm`; `programs` matters at `root`
/// only. Blocks until all of them have called MPI_Init, or will not.
///
/// Errors, in the outcome: Spawn if they cannot be started or end before MPI_Init; InfoValue or Arg
/// for bad arguments.
pub fn spawn(programs: Result<Vec<Program>>, comm: &Arc<Comm>, root: u32) -> Outcome {
    start_and_connect(programs, comm, root).unwrap_or_else(|e| Outcome {
        comm: Err(e),
        started: Vec::new(),
    })
}

/// As [`spawn`].
///
/// Errors: those of agreements among `comm`.
fn start_and_connect(
    programs: Result<Vec<Program>>,
    comm: &Arc<Comm>,
    root: u32,
) -> Result<Outcome> {
    let maxprocs: Vec<u32> = match &programs {
        Ok(programs) => programs.iter().map(|p| p.maxprocs).collect(),
        Err(_) => Vec::new(),
    };
    let order = programs.and_then(|programs| order_of(&programs));
    let counts: Vec<u32> = match &order {
        Ok(order) => order.programs.iter().map(|p| p.count).collect(),
        Err(_) => Vec::new(),
    };
    let other_hosts = order.as_ref().is_ok_and(may_use_other_hosts);
    let other_hosts = broadcast_flag(comm, root, other_hosts)?;
    let spawning = Spawning {
        order: RefCell::new(order),
        port: RefCell::new(None),
        launcher: RefCell::new(None),
    };
    let intercomm = port::accept_started(
        comm,
        root,
        &|| spawning.start(other_hosts),
        &|_: &mut Device| spawning.failure(),
        // Without a launcher of Ferry's, the connection tells of their death.
        &|| spawning.launcher.borrow().is_none(),
        other_hosts,
    );
    spawning.end(&intercomm);
    let started = broadcast_started(comm, root, &maxprocs, &counts, intercomm.is_ok())?;
    Ok(Outcome {
        comm: intercomm,
        started,
    })
}

/// May these programs run on other hosts than the root's?
fn may_use_other_hosts(order: &SpawnOrder) -> bool {
    let names_hosts = |p: &SpawnProgram| !p.hosts.is_empty() || !p.host_file.is_empty();
    let launcher = process().client();
    order.programs.iter().any(names_hosts)
        || launcher.is_some_and(|client| client.is_other_launcher())
}

/// A spawn that goes on, as the root sees it.
struct Spawning {
    /// What is to be started, until it has been ordered.
    order: RefCell<Result<SpawnOrder>>,
    /// The name of the port to which the new processes connect.
    port: RefCell<Option<String>>,
    /// To their launcher. `None`: it is not started yet, or is another MPI's.
    launcher: RefCell<Option<SpawnSocket>>,
}

impl Spawning {
    /// Opens the port, and has a launcher started. Returns the port's number.
    fn start(&self, other_hosts: bool) -> Result<u64> {
        let mut order = self
            .order
            .replace(Err(err!(Intern, "the processes have been ordered already")))?;
        order.programs.retain(|p| p.count > 0);
        order.port = port::open(other_hosts)?;
        self.port.replace(Some(order.port.clone()));
        self.launcher.replace(start_launcher(&order)?);
        port::own_port(&order.port)
    }

    /// Why the new processes will not connect, once the launcher has said so.
    fn failure(&self) -> Option<Error> {
        match self.launcher.borrow_mut().as_mut()?.news() {
            SpawnNews::Nothing => None,
            SpawnNews::Failed(why) => Some(err!(Spawn, "{why}")),
            SpawnNews::Ended => Some(err!(
                Spawn,
                "all processes that were started have ended before MPI_Init"
            )),
        }
    }

    /// Closes the port. The launcher is watched from now on if there is an intercommunicator.
    fn end(self, intercomm: &Result<Arc<Comm>>) {
        if let Some(port) = self.port.take() {
            let _ = port::close(&port);
        }
        let Some(mut launcher) = self.launcher.take() else {
            return;
        };
        match intercomm {
            Ok(intercomm) => {
                launcher.connected();
                let job = foreign::name_of(intercomm.peer(0)).job;
                watch_job(job, launcher);
            }
            Err(_) => device::device().unwatch(launcher.as_fd()),
        }
    }
}

/// Watches the launcher of a job: if the job dies or ends while processes of it are connected to
/// this one, operations with them fail.
fn watch_job(job: u64, socket: SpawnSocket) {
    let released = Arc::new(AtomicBool::new(false));
    let launcher = Launcher {
        socket,
        released: released.clone(),
    };
    launchers().get_or_insert_default().insert(job, launcher);
    let look = move |d: &mut Device| {
        if released.load(Ordering::Relaxed) {
            return true;
        }
        if !d.watched_is_ready() {
            return false;
        }
        let mut launchers = launchers();
        let Some(launcher) = launchers.as_mut().and_then(|all| all.get_mut(&job)) else {
            return true;
        };
        let how = match launcher.socket.news() {
            SpawnNews::Nothing => return false,
            SpawnNews::Failed(why) => format!("died: {why}"),
            SpawnNews::Ended => {
                "ended: all of its processes have, without MPI_Comm_disconnect".into()
            }
        };
        d.unwatch(launcher.socket.as_fd());
        if let Some(all) = launchers.as_mut() {
            all.remove(&job);
        }
        drop(launchers);
        foreign::fail_job(d, job, &how);
        true
    };
    device::device().add_background(Arc::new(Mutex::new(look)));
}

/// Broadcasts the root's flag to all members.
fn broadcast_flag(comm: &Arc<Comm>, root: u32, flag: bool) -> Result<bool> {
    let bytes = Agreement::of_all(comm)?.broadcast(root, vec![u8::from(flag)])?;
    Ok(bytes.first() == Some(&1))
}

/// Tells all members of each process that was asked for whether it has been started. At the root,
/// `maxprocs` and `counts` have for each program how many were asked for and how many ordered.
fn broadcast_started(
    comm: &Arc<Comm>,
    root: u32,
    maxprocs: &[u32],
    counts: &[u32],
    have_connected: bool,
) -> Result<Vec<bool>> {
    let agreement = Agreement::of_all(comm)?;
    let mut bytes = Vec::new();
    if agreement.rank() == root {
        for (at, &maxprocs) in maxprocs.iter().enumerate() {
            put_u64(&mut bytes, maxprocs.into());
            let count = counts.get(at).copied().filter(|_| have_connected);
            put_u64(&mut bytes, count.unwrap_or(0).into());
        }
    }
    let bytes = agreement.broadcast(root, bytes)?;
    let (mut reader, mut started) = (Reader(&bytes), Vec::new());
    while !reader.is_empty() {
        let (maxprocs, count) = (reader.u64()?, reader.u64()?);
        started.extend((0..maxprocs).map(|n| n < count));
    }
    Ok(started)
}

/// The order for programs.
///
/// Errors: a value of an info makes no sense.
fn order_of(programs: &[Program]) -> Result<SpawnOrder> {
    let here = std::env::current_dir().map(|d| d.into_os_string().into_vec());
    let mut order = SpawnOrder::default();
    for program in programs {
        let value = |keys: &[&str]| {
            let info = program.info.as_ref()?;
            let value = keys.iter().find_map(|key| info.value(key.as_bytes()))?;
            Some(value.into_vec())
        };
        let mut variables = variables_of(&value(&["env"]).unwrap_or_default())?;
        if let Some(name) = value(&["mpi_initial_errhandler"]) {
            variables.push(initial_errhandler(&name)?);
        }
        let soft = value(&["soft"]).map(|soft| String::from_utf8_lossy(&soft).into_owned());
        let count = match &soft {
            None => program.maxprocs,
            Some(soft) => soft_count(soft, program.maxprocs)?,
        };
        if count == 0 && programs.len() == 1 {
            let soft = soft.unwrap_or_else(|| "not given".into());
            return Err(err!(
                Spawn,
                "no process is to be started: maxprocs is {}, soft is {soft}",
                program.maxprocs
            ));
        }
        order.programs.push(SpawnProgram {
            command: program.command.clone(),
            arguments: program.arguments.clone(),
            count,
            wdir: value(&["wdir", "cwd"])
                .or_else(|| here.as_ref().ok().cloned())
                .unwrap_or_default(),
            hosts: value(&["host", "hosts", "add-host"]).unwrap_or_default(),
            host_file: value(&["file", "hostfile", "add-hostfile"]).unwrap_or_default(),
            path: value(&["path"]).unwrap_or_default(),
            variables,
        });
    }
    Ok(order)
}

/// The variables of an info's "env": NAME=VALUE, one a line.
fn variables_of(env: &[u8]) -> Result<Vec<Vec<u8>>> {
    let lines = env.split(|&b| b == b'\n').filter(|line| !line.is_empty());
    let variables: Vec<Vec<u8>> = lines.map(<[u8]>::to_vec).collect();
    match variables.iter().find(|line| !line.contains(&b'=')) {
        None => Ok(variables),
        Some(line) => Err(err!(
            InfoValue,
            "env is {:?}: NAME=VALUE is wanted on each line",
            String::from_utf8_lossy(line)
        )),
    }
}

/// The variable for an info's "mpi_initial_errhandler".
fn initial_errhandler(name: &[u8]) -> Result<Vec<u8>> {
    let name = String::from_utf8_lossy(name);
    match InitialErrhandler::from_name(name.trim()) {
        Some(handler) => {
            Ok(format!("{}={}", InitialErrhandler::VARIABLE, handler.name()).into_bytes())
        }
        None => Err(err!(
            InfoValue,
            "mpi_initial_errhandler is {name:?}; what can be chosen is {}",
            InitialErrhandler::names()
        )),
    }
}

/// The number of processes that the info key "soft" allows, at most `maxprocs`.
fn soft_count(soft: &str, maxprocs: u32) -> Result<u32> {
    ferry_job::soft_count(soft, maxprocs).map_err(|e| match e {
        SoftError::NoList => err!(InfoValue, "soft is {soft:?}; {e}"),
        SoftError::NoneUpTo(_) => err!(Spawn, "soft is {soft:?}; {e}"),
    })
}

/// Has a launcher started, and orders processes from it. `None`: the launcher of this job, which is
/// another one, has started them by itself.
fn start_launcher(order: &SpawnOrder) -> Result<Option<SpawnSocket>> {
    let not_started = |e: std::io::Error| err!(Spawn, "they cannot be started: {e}");
    if let Some(client) = process().client()
        && client.spawn(order).map_err(not_started)?
    {
        return Ok(None);
    }
    let refused = |e: std::io::Error| err!(Spawn, "a launcher for them cannot be started: {e}");
    let (mut socket, end) = SpawnSocket::pair().map_err(refused)?;
    match process().client() {
        Some(client) => client.start_launcher(&end),
        None => ferry_job::start_launcher(&end),
    }
    .map_err(refused)?;
    drop(end);
    socket.order(order).map_err(refused)?;
    let watched = device::device().watch(socket.as_fd());
    watched.map_err(|e| err!(Spawn, "{e}"))?;
    Ok(Some(socket))
}

/// Lets jobs go on independently of which no process is connected to this one any more.
pub(super) fn release_independent() {
    let mut independent = Vec::new();
    if let Some(launchers) = launchers().as_mut() {
        let jobs = launchers.keys().copied();
        let jobs: Vec<u64> = jobs.filter(|&job| !foreign::knows_job(job)).collect();
        independent.extend(jobs.iter().filter_map(|job| launchers.remove(job)));
    }
    for Launcher { socket, released } in independent {
        released.store(true, Ordering::Relaxed);
        device::device().unwatch(socket.as_fd());
        socket.release();
    }
}

/// Lets all jobs go on that this process has started. Called when MPI is finalised.
pub(crate) fn release_all() {
    for (_, launcher) in launchers().take().unwrap_or_default() {
        launcher.released.store(true, Ordering::Relaxed);
        launcher.socket.release();
    }
}

static PARENT: Mutex<Option<Arc<Comm>>> = Mutex::new(None);

fn parent_slot() -> MutexGuard<'static, Option<Arc<Comm>>> {
    PARENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects to the process that has started this job, if one has. Collective over the job; called
/// by MPI_Init. Where another launcher has started the job and it does not come about, because a
/// program of it has ended before MPI_Init, this ends the process: an error would make the launcher
/// end the job of who has ordered it, too.
///
/// Errors: it cannot be reached.
pub(crate) fn connect_to_parent() -> Result<()> {
    let process = process();
    if process.rank_info.parent.is_empty() {
        return Ok(());
    }
    let connected = port::connect_started(&process.rank_info.parent, &process.world);
    let is_others = process.client().is_some_and(|c| c.is_other_launcher());
    let comm = match connected {
        Err(e) if e.kind() == Kind::Spawn && is_others => {
            process.leave();
        }
        connected => connected?,
    };
    comm.rename(b"MPI_COMM_PARENT");
    *parent_slot() = Some(comm);
    Ok(())
}

/// The intercommunicator with the processes that have started this job (MPI_Comm_get_parent).
/// `None`: nobody has, or it was disconnected.
pub fn parent() -> Option<Arc<Comm>> {
    parent_slot().clone().filter(|comm| !comm.is_freed())
}

/// Lets go of that communicator, once the program has freed it.
pub(super) fn forget_parent() {
    let freed = parent_slot().take_if(|comm| comm.is_freed());
    // Without the lock: it may be the last.
    drop(freed);
}
