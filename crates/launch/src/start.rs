//! Starting ranks: from programs and their environment to processes.
//!
//! ```text
//! environment  what a program's ranks inherit    program  which file a program's name means
//! binding      which CPUs each rank may use      limits   room for the descriptors of all ranks
//! topology     which CPUs share what             other_mpi  is a program linked with another MPI?
//! libraries    leads a program to Ferry's libraries
//! elf          which libraries a program needs, and where they are
//! spawn        clone and exec of one rank        orphans  ends what ranks leave behind
//! parent_death the process that cleans up after a killed mpiexec
//! ```

pub mod binding;
pub mod elf;
mod environment;
pub mod libraries;
mod limits;
mod orphans;
pub mod other_mpi;
mod parent_death;
pub mod program;
mod spawn;
mod topology;

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use ferry_job::{Cores, JobInfo, LAUNCH_FD, NodeJob, RankSocket};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Rlimit;

use crate::options::Binding;
use crate::protocol::Program;
use crate::signals::{self, Signals};
pub use environment::program_of;
use libraries::{Choice, LIBRARY_PATH, lead, library_folder};
pub use orphans::{KILL_DELAY, REAP_TIMEOUT, kill_orphans};
pub use parent_death::ParentDeathWatcher;
use spawn::{ChildStack, RANK_SOCKET, SpawnSpec};

/// Descriptors that mpiexec keeps for each rank: stdout, stderr, socket, and a pipe for copied
/// stdin.
const DESCRIPTORS_PER_RANK: u64 = 4;

/// mpiexec's exit status for a program that cannot be executed, as shells have it.
const STATUS_NOT_EXECUTABLE: u8 = 126;

/// Why a job could not be started.
#[derive(Debug)]
pub struct StartError {
    /// The message for the user.
    pub text: String,
    /// mpiexec's exit status.
    pub status: u8,
}

impl StartError {
    /// An error with exit status 1.
    pub fn new(text: impl Into<String>) -> StartError {
        StartError {
            text: text.into(),
            status: 1,
        }
    }
}

/// A rank that has been started.
pub struct StartedRank {
    /// Its process and process group.
    pub pid: i32,
    /// The socket to it.
    pub socket: RankSocket,
    /// The reading ends of its standard output and error. They are non-blocking.
    pub output: [OwnedFd; 2],
}

/// Starts the ranks of this host.
pub struct RankStarter {
    programs: Vec<Option<PreparedProgram>>,
    /// Each local rank's program.
    apps: Vec<usize>,
    cpus: Vec<Vec<usize>>,
    descriptors: Rlimit,
    null: File,
    stack: ChildStack,
    /// The node's part of the job.
    pub node: NodeJob,
}

/// A program, ready to be executed.
struct PreparedProgram {
    shown: String,
    /// Another MPI's library that it needs, or a program among its arguments.
    other_mpi: Option<String>,
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    wdir: Option<CString>,
}

impl RankStarter {
    /// Finds programs, checks limits and cores of this host, and makes its segment. `app_of` holds
    /// the program of each rank of the job.
    pub fn prepare(
        programs: &[Program],
        app_of: &[u32],
        job_info: JobInfo,
        node: usize,
        binding: Binding,
    ) -> Result<RankStarter, StartError> {
        let library = library_folder();
        let local = job_info.nodes.ranks_of(node);
        let apps: Vec<usize> = local
            .iter()
            .filter_map(|&rank| app_of.get(rank as usize))
            .map(|&b| b as usize)
            .collect();
        if apps.len() != local.len() || apps.iter().any(|&b| b >= programs.len()) {
            return Err(StartError::new("a rank has no program"));
        }
        let mut prepared = Vec::with_capacity(programs.len());
        for (number, program) in programs.iter().enumerate() {
            // A program that only other hosts run is not looked for here.
            prepared.push(if apps.contains(&number) {
                Some(PreparedProgram::new(program, library.as_deref())?)
            } else {
                None
            });
        }
        let ranks = apps.len();
        let descriptors = limits::make_room_for_descriptors(ranks as u32, DESCRIPTORS_PER_RANK)
            .map_err(StartError::new)?;
        let cores = Cores::here();
        let cpus = binding::assign_cpus(ranks, &cores, binding);
        let cpus = cpus.map_err(|text| StartError { text, status: 2 })?;
        let node = NodeJob::for_node(job_info, node, cores.usable() as u32)
            .map_err(|e| StartError::new(e.to_string()))?;
        let null = File::options().read(true).write(true).open("/dev/null");
        let null = null.map_err(|e| StartError::new(format!("/dev/null cannot be opened: {e}")))?;
        Ok(RankStarter {
            programs: prepared,
            apps,
            cpus,
            descriptors,
            null,
            stack: ChildStack::new(),
            node,
        })
    }

    /// The job's ranks on this host.
    pub fn ranks(&self) -> usize {
        self.apps.len()
    }

    /// Binds all ranks to one CPU. Ranks of a modelled machine take turns, and handing over between
    /// two CPUs costs several times as much. The CPU depends on the process id, so that two jobs
    /// differ. Returns the CPU, then the CPUs that the job may be spread over later.
    pub fn bind_all_to_one_cpu(&mut self) -> Vec<usize> {
        let here = Cores::here();
        let mut cpus: Vec<usize> = here
            .cores
            .iter()
            .filter_map(|c| c.first().copied())
            .collect();
        let at = std::process::id() as usize % cpus.len().max(1);
        cpus.rotate_left(at);
        cpus.truncate(here.usable());
        if let Some(&cpu) = cpus.first() {
            self.cpus = vec![vec![cpu]; self.ranks()];
        }
        cpus
    }

    /// The CPUs of a local rank.
    pub fn cpus_of(&self, local: usize) -> &[usize] {
        &self.cpus[local]
    }

    /// A program of another MPI, with the library that it needs: one that the user allows, or one
    /// among the arguments of a program without MPI.
    pub fn other_mpi(&self) -> Option<&str> {
        let mut programs = self.programs.iter().flatten();
        programs.find_map(|program| program.other_mpi.as_deref())
    }

    /// Binding of a local rank, in words.
    pub fn binding_of(&self, local: usize) -> String {
        binding::described(&self.cpus[local])
    }

    /// Starts one local rank. It reads `stdin`, or nothing.
    pub fn start(
        &mut self,
        local: usize,
        stdin: Option<BorrowedFd<'_>>,
        signals: &Signals,
        watcher: &ParentDeathWatcher,
    ) -> Result<StartedRank, StartError> {
        let app = self.apps[local];
        let rank = self.node.local_ranks()[local] as usize;
        let of = self.node.info().size as usize;
        let Some(program) = &self.programs[app] else {
            return Err(StartError::new(format!("rank {rank} has no program")));
        };
        let shown = &program.shown;
        let refused = |what: &str, cause: std::io::Error| {
            StartError::new(format!(
                "rank {rank} of {of} ({shown}) cannot be started: {what}: {cause}"
            ))
        };
        let (socket, rank_end) = self
            .node
            .create_rank_socket(local as u32, app as u32)
            .map_err(|e| StartError::new(e.to_string()))?;
        let (out, out_end) = pipe().map_err(|e| refused("making a pipe for its stdout", e))?;
        let (err, err_end) = pipe().map_err(|e| refused("making a pipe for its stderr", e))?;
        let stdin = stdin.unwrap_or_else(|| self.null.as_fd());
        let own = [
            ("FERRY_RANK", rank),
            ("FERRY_SIZE", of),
            ("PMI_RANK", rank),
            ("PMI_SIZE", of),
            ("MPI_LOCALRANKID", local),
            ("MPI_LOCALNRANKS", self.apps.len()),
        ];
        let own: Vec<CString> = own
            .iter()
            .filter_map(|(name, n)| CString::new(format!("{name}={n}")).ok())
            .collect();
        let order = SpawnSpec {
            program: &program.path,
            arguments: &program.arguments,
            environment: &program.environment,
            own_environment: &own,
            wdir: program.wdir.as_deref(),
            standard: [stdin, out_end.as_fd(), err_end.as_fd()],
            socket: rank_end.as_fd(),
            affinity: &binding::mask(&self.cpus[local]),
            descriptors: self.descriptors,
            default_signals: &signals::DEFAULT_SIGNALS,
            signal_mask: &signals.original_mask,
            group: watcher.group(local),
        };
        let pid = spawn::spawn(&order, &mut self.stack).map_err(|refusal| {
            let advice = advice(&refusal, &program.path, program.wdir.as_deref());
            let mut not = refused(refusal.step, refusal.cause);
            not.text += &advice;
            not.status = if refusal.step == "executing it" {
                126
            } else {
                1
            };
            not
        })?;
        Ok(StartedRank {
            pid,
            socket,
            output: [out, err],
        })
    }
}

/// Advice after a refused start.
fn advice(refusal: &spawn::SpawnError, program: &CStr, wdir: Option<&CStr>) -> String {
    match refusal.cause.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) if refusal.step == "making its process" => {
            format!(
                "; too many processes or too little memory: {}",
                limits::process_limits()
            )
        }
        Some(libc::ENOENT) if refusal.step == "executing it" => {
            "; the program is there, but not the interpreter or loader that it names".into()
        }
        Some(libc::E2BIG) => "; its arguments and environment together are too long".into(),
        Some(libc::ENOEXEC) => {
            let os = |path: &CStr| PathBuf::from(OsStr::from_bytes(path.to_bytes()));
            let file = wdir.map_or_else(PathBuf::new, os).join(os(program));
            format!("; {}", program::why_no_program(&file))
        }
        _ => String::new(),
    }
}

/// A pipe with a non-blocking reading end.
fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

impl PreparedProgram {
    fn new(program: &Program, library: Option<&OsStr>) -> Result<PreparedProgram, StartError> {
        let mut environment: Vec<(OsString, OsString)> = program
            .environment
            .iter()
            .map(|(name, value)| (name.os(), value.os()))
            .collect();
        environment.push((LAUNCH_FD.into(), RANK_SOCKET.to_string().into()));
        let name = program.program.os();
        let wdir = program.wdir.as_ref().map(|d| PathBuf::from(d.os()));
        let choice = Choice {
            own_library_path: program.own_library_path,
            allow_other_mpi: program.allow_other_mpi,
        };
        let led = lead(&mut environment, &name, wdir.as_deref(), library, choice)?;
        let path = led.path;
        let arguments = program.arguments.iter().map(|argument| argument.os());
        let other_mpi = match led.other_mpi {
            Some(other) => Some(other.described(&name.to_string_lossy())),
            None => {
                let library_path = libraries::value(&environment, LIBRARY_PATH);
                let folder = wdir.clone().unwrap_or_default();
                other_mpi::of_arguments(arguments, &folder, library_path)
            }
        };
        let text = |s: OsString| {
            CString::new(s.into_vec())
                .map_err(|_| StartError::new("an argument or variable holds a zero byte"))
        };
        let mut arguments = vec![text(name.clone())?];
        for argument in &program.arguments {
            arguments.push(text(argument.os())?);
        }
        let mut joined = Vec::with_capacity(environment.len());
        for (mut name, value) in environment {
            name.push("=");
            name.push(value);
            joined.push(text(name)?);
        }
        Ok(PreparedProgram {
            shown: name.to_string_lossy().into_owned(),
            other_mpi,
            path: text(path.into_os_string())?,
            arguments,
            environment: joined,
            wdir: wdir.map(|d| text(d.into_os_string())).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests;
