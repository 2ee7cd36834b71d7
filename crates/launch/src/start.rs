//! From a command line to running ranks.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use ferry_job::{Cores, LAUNCH_FD, Line, NodeJob};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Rlimit;

use crate::limits;
use crate::options::{Block, Options, Pass};
use crate::output::{Channel, Output};
use crate::placing;
use crate::program;
use crate::signals::{self, Signals};
use crate::spawn::{self, Order, RANK_SOCKET, Stack};
use crate::stdin::{Input, standard_input};
use crate::warden::Warden;

/// Descriptors that mpiexec keeps for each rank: stdout, stderr, socket; and one more for a copied stdin.
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
    fn because(text: impl Into<String>) -> NotStarted {
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
    /// The program as the user wrote it.
    pub program: String,
}

/// Everything that ranks are started from.
pub struct Starter {
    programs: Vec<Prepared>,
    /// Each rank's block.
    blocks: Vec<usize>,
    placing: Vec<Vec<usize>>,
    descriptors: Rlimit,
    null: File,
    stack: Stack,
    /// The node's part of the job.
    pub node: NodeJob,
}

/// A block, ready to be executed.
struct Prepared {
    shown: String,
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    wdir: Option<CString>,
}

impl Starter {
    /// Looks at programs, limits and cores, and makes the node's segment.
    pub fn prepare(options: &Options) -> Result<Starter, NotStarted> {
        let library = library_folder();
        let programs = options
            .blocks
            .iter()
            .map(|b| Prepared::new(b, library.as_deref()))
            .collect::<Result<Vec<_>, _>>()?;
        let blocks: Vec<usize> = options
            .blocks
            .iter()
            .enumerate()
            .flat_map(|(i, b)| std::iter::repeat_n(i, b.count as usize))
            .collect();
        let ranks = blocks.len() as u32;
        let descriptors = limits::make_room_for_descriptors(ranks, DESCRIPTORS_PER_RANK)
            .map_err(NotStarted::because)?;
        let cores = Cores::here();
        let placing = placing::place(blocks.len(), &cores, options.bind);
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let number = u64::from(std::process::id()) << 32
            | (clock.tv_nsec as u64 ^ clock.tv_sec as u64) & 0xffff_ffff;
        let node = NodeJob::new(number, ranks, cores.usable() as u32)
            .map_err(|e| NotStarted::because(e.to_string()))?;
        let null = File::options().read(true).write(true).open("/dev/null");
        let null =
            null.map_err(|e| NotStarted::because(format!("/dev/null cannot be opened: {e}")))?;
        Ok(Starter {
            programs,
            blocks,
            placing,
            descriptors,
            null,
            stack: Stack::new(),
            node,
        })
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> usize {
        self.blocks.len()
    }

    /// Where a rank is bound, in words.
    pub fn place_of(&self, rank: usize) -> String {
        placing::described(&self.placing[rank])
    }

    /// Starts one rank; its output goes to `output`.
    pub fn start(
        &mut self,
        rank: usize,
        output: &mut Output,
        input: &mut Input,
        signals: &Signals,
        warden: &Warden,
    ) -> Result<Started, NotStarted> {
        let block = self.blocks[rank];
        let program = &self.programs[block];
        let shown = &program.shown;
        let of = self.blocks.len();
        let refused = |what: &str, cause: std::io::Error| {
            NotStarted::because(format!(
                "rank {rank} of {of} ({shown}) cannot be started: {what}: {cause}"
            ))
        };
        let (line, socket) = self
            .node
            .welcome(rank as u32, block as u32)
            .map_err(|e| NotStarted::because(e.to_string()))?;
        let (out, out_end) = pipe().map_err(|e| refused("making a pipe for its stdout", e))?;
        let (err, err_end) = pipe().map_err(|e| refused("making a pipe for its stderr", e))?;
        let copied = match input {
            Input::Copied(pump) => pump
                .reader(rank as u32)
                .map_err(|e| refused("making a pipe for its stdin", e))?,
            _ => None,
        };
        let stdin: BorrowedFd<'_> = match (&copied, &input) {
            (Some(reader), _) => reader.as_fd(),
            (None, Input::Inherited(reader)) if *reader as usize == rank => standard_input(),
            _ => self.null.as_fd(),
        };
        let own = [
            ("FERRY_RANK", rank),
            ("FERRY_SIZE", of),
            ("PMI_RANK", rank),
            ("PMI_SIZE", of),
            ("MPI_LOCALRANKID", rank),
            ("MPI_LOCALNRANKS", of),
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
            affinity: &placing::mask(&self.placing[rank]),
            descriptors: self.descriptors,
            default_signals: &signals::RESET,
            signal_mask: &signals.before,
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
        warden.note(rank, pid);
        output.add(rank, Channel::Out, out);
        output.add(rank, Channel::Err, err);
        Ok(Started {
            pid,
            line,
            program: shown.clone(),
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
    fn new(block: &Block, library: Option<&OsStr>) -> Result<Prepared, NotStarted> {
        let environment = environment(block, library);
        let path = environment
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, value)| value.clone());
        let path =
            program::find(&block.program, block.wdir.as_deref(), path).map_err(|e| NotStarted {
                text: e.text,
                status: e.status,
            })?;
        let text = |s: OsString| {
            CString::new(s.into_vec())
                .map_err(|_| NotStarted::because("an argument or variable holds a zero byte"))
        };
        let mut arguments = vec![text(block.program.clone())?];
        for argument in &block.arguments {
            arguments.push(text(argument.clone())?);
        }
        let mut joined = Vec::with_capacity(environment.len());
        for (mut name, value) in environment {
            name.push("=");
            name.push(value);
            joined.push(text(name)?);
        }
        Ok(Prepared {
            shown: block.program.to_string_lossy().into_owned(),
            path: text(path.into_os_string())?,
            arguments,
            environment: joined,
            wdir: block
                .wdir
                .clone()
                .map(|d| text(d.into_os_string()))
                .transpose()?,
        })
    }
}

/// Variables that belong to one rank alone and must not be taken over from a job that mpiexec itself runs in.
const PER_RANK: [&str; 7] = [
    LAUNCH_FD,
    "FERRY_RANK",
    "FERRY_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
];

/// A block's environment.
fn environment(block: &Block, library: Option<&OsStr>) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = match &block.pass {
        Pass::All => env::vars_os().collect(),
        Pass::Only(names) => env::vars_os()
            .filter(|(name, _)| names.contains(name))
            .collect(),
    };
    all.retain(|(name, _)| {
        !PER_RANK.iter().any(|own| name == own) && !block.set.iter().any(|(set, _)| set == name)
    });
    for (at, (name, value)) in block.set.iter().enumerate() {
        if !block.set[at + 1..].iter().any(|(later, _)| later == name) {
            all.push((name.clone(), value.clone()));
        }
    }
    all.push((LAUNCH_FD.into(), RANK_SOCKET.to_string().into()));
    if let Some(library) = library
        && !block.set.iter().any(|(name, _)| name == LIBRARY_PATH)
    {
        match all.iter_mut().find(|(name, _)| name == LIBRARY_PATH) {
            Some((_, value)) if !value.is_empty() => {
                let mut longer = library.to_owned();
                longer.push(":");
                longer.push(&value);
                *value = longer;
            }
            Some((_, value)) => *value = library.to_owned(),
            None => all.push((LIBRARY_PATH.into(), library.to_owned())),
        }
    }
    all
}

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// The folder of the installation that holds libmpi_abi.so.1 and nothing else. Put first in LD_LIBRARY_PATH, it makes
/// programs that were built with another MPI's compiler wrapper for the standard ABI run on this library.
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

    fn block(set: &[(&str, &str)], pass: Pass) -> Block {
        Block {
            count: 1,
            program: "true".into(),
            arguments: vec![],
            wdir: None,
            pass,
            set: set.iter().map(|(a, b)| (a.into(), b.into())).collect(),
        }
    }
    fn value(all: &[(OsString, OsString)], name: &str) -> Option<String> {
        let found: Vec<_> = all.iter().filter(|(n, _)| n == name).collect();
        assert!(found.len() < 2, "{name} is there twice");
        found.first().map(|(_, v)| v.to_string_lossy().into_owned())
    }

    #[test]
    fn what_is_set_last_holds() {
        let all = environment(
            &block(&[("A", "1"), ("A", "2"), ("PATH", "/x")], Pass::All),
            None,
        );
        assert_eq!(
            (value(&all, "A"), value(&all, "PATH")),
            (Some("2".into()), Some("/x".into()))
        );
        assert_eq!(value(&all, LAUNCH_FD), Some("19".into()));
    }

    #[test]
    fn an_environment_can_be_empty() {
        let all = environment(&block(&[], Pass::Only(vec![])), None);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn our_library_comes_first_unless_the_user_says_otherwise() {
        let ours = Some(OsStr::new("/ours"));
        let all = environment(&block(&[], Pass::Only(vec![])), ours);
        assert_eq!(value(&all, LIBRARY_PATH), Some("/ours".into()));
        let all = environment(&block(&[(LIBRARY_PATH, "/theirs")], Pass::All), ours);
        assert_eq!(value(&all, LIBRARY_PATH), Some("/theirs".into()));
    }
}
