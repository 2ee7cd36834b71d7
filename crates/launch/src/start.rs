//! From a command line to running ranks.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use ferry_job::{Cores, JobTerms, LAUNCH_FD, Line, NodeJob};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Rlimit;

use crate::frame::Program;
use crate::limits;
use crate::options::{AppContext, Binding, InheritedEnv};
use crate::placing;
use crate::program;
use crate::signals::{self, Signals};
use crate::spawn::{self, Order, RANK_SOCKET, Stack};
use crate::warden::Warden;

/// Descriptors that mpiexec keeps for each rank: stdout, stderr, socket; and one more for a copied
/// stdin.
const DESCRIPTORS_PER_RANK: u64 = 4;

/// Why a job could not be started.
#[derive(Debug)]
pub struct NotStarted {
    /// What to say.
    pub text: String,
    /// mpiexec's exit status.
    pub status: u8,
}

impl NotStarted {
    /// With exit status 1.
    pub fn because(text: impl Into<String>) -> NotStarted {
        NotStarted {
            text: text.into(),
            status: 1,
        }
    }
}

/// A rank as it was started.
pub struct Started {
    /// Its process and process group.
    pub pid: i32,
    /// The socket to it.
    pub line: Line,
    /// The reading ends of its standard output and error; they do not block.
    pub output: [OwnedFd; 2],
}

/// Everything that ranks are started from.
pub struct Starter {
    programs: Vec<Option<Prepared>>,
    /// Each local rank's program.
    apps: Vec<usize>,
    placing: Vec<Vec<usize>>,
    descriptors: Rlimit,
    null: File,
    stack: Stack,
    /// The node's part of the job.
    pub node: NodeJob,
}

/// A program, ready to be executed.
struct Prepared {
    shown: String,
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    wdir: Option<CString>,
}

impl Starter {
    /// Looks at programs, limits and cores of this host, and makes its segment. `app_of`: each of
    /// the job's ranks' program.
    pub fn prepare(
        programs: &[Program],
        app_of: &[u32],
        terms: JobTerms,
        node: usize,
        binding: Binding,
    ) -> Result<Starter, NotStarted> {
        let library = library_folder();
        let local = terms.nodes.ranks_of(node);
        let apps: Vec<usize> = local
            .iter()
            .filter_map(|&rank| app_of.get(rank as usize))
            .map(|&b| b as usize)
            .collect();
        if apps.len() != local.len() || apps.iter().any(|&b| b >= programs.len()) {
            return Err(NotStarted::because("a rank has no program"));
        }
        let mut prepared = Vec::with_capacity(programs.len());
        for (number, program) in programs.iter().enumerate() {
            // A program that only other hosts run need not be here.
            prepared.push(if apps.contains(&number) {
                Some(Prepared::new(program, library.as_deref())?)
            } else {
                None
            });
        }
        let ranks = apps.len();
        let descriptors = limits::make_room_for_descriptors(ranks as u32, DESCRIPTORS_PER_RANK)
            .map_err(NotStarted::because)?;
        let cores = Cores::here();
        let placing = placing::place(ranks, &cores, binding);
        let node = NodeJob::part(terms, node, cores.usable() as u32)
            .map_err(|e| NotStarted::because(e.to_string()))?;
        let null = File::options().read(true).write(true).open("/dev/null");
        let null =
            null.map_err(|e| NotStarted::because(format!("/dev/null cannot be opened: {e}")))?;
        Ok(Starter {
            programs: prepared,
            apps,
            placing,
            descriptors,
            null,
            stack: Stack::new(),
            node,
        })
    }

    /// The job's ranks on this host.
    pub fn ranks(&self) -> usize {
        self.apps.len()
    }

    /// Binds all ranks to one CPU: those of a modelled machine take turns, and handing over costs
    /// several times as much between two. Which one differs from job to job. Returns it, and
    /// after it the CPUs that the job may be spread over later.
    pub fn share_one_cpu(&mut self) -> Vec<usize> {
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
            self.placing = vec![vec![cpu]; self.ranks()];
        }
        cpus
    }

    /// The CPUs of a local rank.
    pub fn cpus_of(&self, local: usize) -> &[usize] {
        &self.placing[local]
    }

    /// Where a local rank is bound, in words.
    pub fn place_of(&self, local: usize) -> String {
        placing::described(&self.placing[local])
    }

    /// Starts one local rank; it reads `stdin`, or nothing.
    pub fn start(
        &mut self,
        local: usize,
        stdin: Option<BorrowedFd<'_>>,
        signals: &Signals,
        warden: &Warden,
    ) -> Result<Started, NotStarted> {
        let app = self.apps[local];
        let rank = self.node.local_ranks()[local] as usize;
        let of = self.node.terms().size as usize;
        let Some(program) = &self.programs[app] else {
            return Err(NotStarted::because(format!("rank {rank} has no program")));
        };
        let shown = &program.shown;
        let refused = |what: &str, cause: std::io::Error| {
            NotStarted::because(format!(
                "rank {rank} of {of} ({shown}) cannot be started: {what}: {cause}"
            ))
        };
        let (line, socket) = self
            .node
            .welcome(local as u32, app as u32)
            .map_err(|e| NotStarted::because(e.to_string()))?;
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
        let order = Order {
            program: &program.path,
            arguments: &program.arguments,
            environment: &program.environment,
            own_environment: &own,
            wdir: program.wdir.as_deref(),
            standard: [stdin, out_end.as_fd(), err_end.as_fd()],
            socket: socket.as_fd(),
            affinity: &placing::mask(&self.placing[local]),
            descriptors: self.descriptors,
            default_signals: &signals::RESET,
            signal_mask: &signals.before,
            group: warden.group(local),
        };
        let pid = spawn::spawn(&order, &mut self.stack).map_err(|refusal| {
            let advice = advice(&refusal);
            let mut not = refused(refusal.step, refusal.cause);
            not.text += &advice;
            not.status = if refusal.step == "executing it" {
                126
            } else {
                1
            };
            not
        })?;
        Ok(Started {
            pid,
            line,
            output: [out, err],
        })
    }
}

/// What to do about a refused start.
fn advice(refusal: &spawn::Refusal) -> String {
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
        Some(libc::ENOEXEC) => "; it is no program for this kind of machine".into(),
        _ => String::new(),
    }
}

/// A pipe whose reading end, ours, does not block.
fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    Ok((reader, writer))
}

impl Prepared {
    fn new(program: &Program, library: Option<&OsStr>) -> Result<Prepared, NotStarted> {
        let mut environment: Vec<(OsString, OsString)> = program
            .environment
            .iter()
            .map(|(name, value)| (name.os(), value.os()))
            .collect();
        environment.push((LAUNCH_FD.into(), RANK_SOCKET.to_string().into()));
        if let Some(library) = library
            && !program.own_library_path
        {
            put_first(&mut environment, library);
        }
        let path = environment
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone());
        let name = program.program.os();
        let wdir = program.wdir.as_ref().map(|d| PathBuf::from(d.os()));
        let path = program::find(&name, wdir.as_deref(), path).map_err(|e| NotStarted {
            text: e.text,
            status: e.status,
        })?;
        let text = |s: OsString| {
            CString::new(s.into_vec())
                .map_err(|_| NotStarted::because("an argument or variable holds a zero byte"))
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
        Ok(Prepared {
            shown: name.to_string_lossy().into_owned(),
            path: text(path.into_os_string())?,
            arguments,
            environment: joined,
            wdir: wdir.map(|d| text(d.into_os_string())).transpose()?,
        })
    }
}

/// Puts a folder first in LD_LIBRARY_PATH.
fn put_first(environment: &mut Vec<(OsString, OsString)>, library: &OsStr) {
    match environment
        .iter_mut()
        .find(|(name, _)| name == LIBRARY_PATH)
    {
        Some((_, value)) if !value.is_empty() => {
            let mut longer = library.to_owned();
            longer.push(":");
            longer.push(&value);
            *value = longer;
        }
        Some((_, value)) => *value = library.to_owned(),
        None => environment.push((LIBRARY_PATH.into(), library.to_owned())),
    }
}

/// A program of the command line as a program: its environment is put together, but for what belongs
/// to a rank or a host. `afar`: for another host, where variables that describe this one are not to
/// be seen.
pub fn program_of(app: &AppContext, afar: bool) -> Program {
    let environment = environment(app)
        .into_iter()
        .filter(|(name, _)| !afar || !describes_this_host(name))
        .map(|(name, value)| (name.as_os_str().into(), value.as_os_str().into()))
        .collect();
    Program {
        program: app.program.as_os_str().into(),
        arguments: app.arguments.iter().map(|a| a.as_os_str().into()).collect(),
        wdir: app.wdir.as_ref().map(|d| d.as_os_str().into()),
        environment,
        own_library_path: app.set_env.iter().any(|(name, _)| name == LIBRARY_PATH),
    }
}

/// Variables that say something of mpiexec's host, terminal or Slurm task that is not true of
/// another host.
fn describes_this_host(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let whole: [&[u8]; 12] = [
        b"HOSTNAME",
        b"HOST",
        b"DISPLAY",
        b"XAUTHORITY",
        b"XDG_RUNTIME_DIR",
        b"DBUS_SESSION_BUS_ADDRESS",
        b"SLURMD_NODENAME",
        b"SLURM_NODEID",
        b"SLURM_PROCID",
        b"SLURM_LOCALID",
        b"SLURM_TASK_PID",
        b"SLURM_TOPOLOGY_ADDR",
    ];
    whole.contains(&name) || name.starts_with(b"SSH_")
}

/// Variables that belong to one rank alone and must not be taken over from a job that mpiexec
/// itself runs in.
const PER_RANK: [&str; 7] = [
    LAUNCH_FD,
    "FERRY_RANK",
    "FERRY_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
];

/// A program's environment.
fn environment(app: &AppContext) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = match &app.inherited_env {
        InheritedEnv::All => env::vars_os().collect(),
        InheritedEnv::Only(names) => env::vars_os()
            .filter(|(name, _)| names.contains(name))
            .collect(),
    };
    all.retain(|(name, _)| {
        !PER_RANK.iter().any(|own| name == own) && !app.set_env.iter().any(|(set, _)| set == name)
    });
    for (at, (name, value)) in app.set_env.iter().enumerate() {
        if !app.set_env[at + 1..].iter().any(|(later, _)| later == name) {
            all.push((name.clone(), value.clone()));
        }
    }
    all
}

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The folder of the installation that holds libmpi_abi.so.1 and nothing else. Put first in
/// LD_LIBRARY_PATH, it makes programs that were built with another MPI's compiler wrapper for the
/// standard ABI run on this library.
fn library_folder() -> Option<OsString> {
    let folder: PathBuf = env::current_exe()
        .ok()?
        .parent()?
        .parent()?
        .join("lib/ferry");
    folder
        .join("libmpi_abi.so.1")
        .exists()
        .then(|| folder.as_os_str().as_bytes().to_vec())
        .map(OsString::from_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(set: &[(&str, &str)], pass: InheritedEnv) -> AppContext {
        AppContext {
            count: Some(1),
            program: "true".into(),
            arguments: vec![],
            wdir: None,
            inherited_env: pass,
            set_env: set.iter().map(|(a, b)| (a.into(), b.into())).collect(),
            hosts: None,
        }
    }
    fn value(app: &AppContext, library: Option<&str>, name: &str) -> Option<String> {
        let prepared = Prepared::new(&program_of(app, false), library.map(OsStr::new)).unwrap();
        let start = format!("{name}=");
        let mut found = prepared
            .environment
            .iter()
            .filter_map(|v| v.to_str().unwrap_or_default().strip_prefix(&start));
        let first = found.next().map(String::from);
        assert!(found.next().is_none(), "{name} is there twice");
        first
    }

    #[test]
    fn what_is_set_last_holds() {
        let app = app(
            &[("A", "1"), ("A", "2"), ("PATH", "/x:/bin")],
            InheritedEnv::All,
        );
        assert_eq!(value(&app, None, "A").as_deref(), Some("2"));
        assert_eq!(value(&app, None, "PATH").as_deref(), Some("/x:/bin"));
        assert_eq!(value(&app, None, LAUNCH_FD).as_deref(), Some("19"));
    }

    #[test]
    fn an_environment_can_be_empty() {
        let program = program_of(&app(&[], InheritedEnv::Only(vec![])), false);
        assert_eq!(program.environment.len(), 0);
    }

    #[test]
    fn our_library_comes_first_unless_the_user_says_otherwise() {
        let ours = Some("/ours");
        let none = app(&[], InheritedEnv::Only(vec![]));
        assert_eq!(value(&none, ours, LIBRARY_PATH).as_deref(), Some("/ours"));
        let theirs = app(&[(LIBRARY_PATH, "/theirs")], InheritedEnv::All);
        assert_eq!(
            value(&theirs, ours, LIBRARY_PATH).as_deref(),
            Some("/theirs")
        );
    }

    #[test]
    fn another_host_has_its_own_name() {
        let named = app(
            &[("HOSTNAME", "here"), ("A", "1")],
            InheritedEnv::Only(vec![]),
        );
        assert_eq!(program_of(&named, true).environment.len(), 1);
        assert_eq!(program_of(&named, false).environment.len(), 2);
    }
}
