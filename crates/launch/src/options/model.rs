//! A parsed command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::hosts::{Host, MapBy, RankBy};

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Run a job.
    Run(Box<Options>),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// How to run a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The programs, in order of their ranks.
    pub apps: Vec<AppContext>,
    /// Put the rank before each line of output.
    pub label: bool,
    /// Which ranks read standard input.
    pub stdin: StdinTarget,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// How ranks are bound to cores.
    pub bind: Binding,
    /// Print where ranks are bound.
    pub report_bindings: bool,
    /// Start programs that are linked with another MPI's library, too.
    pub allow_other_mpi: bool,
    /// What to do with a hanging job.
    pub on_hang: OnHang,
    /// Print what is started.
    pub verbose: bool,
    /// Hosts for all programs that name none. `None`: this host.
    pub hosts: Option<Vec<Host>>,
    /// In which order hosts are filled.
    pub map_by: MapBy,
    /// In which order ranks are numbered. `None`: in the order of mapping.
    pub rank_by: Option<RankBy>,
    /// The command that starts agents on other hosts.
    pub launcher: Option<String>,
    /// mpiexec on the other hosts.
    pub launcher_path: Option<PathBuf>,
    /// A host that is silent for longer is taken for lost. Zero: never.
    pub host_timeout: Duration,
    /// The address of a name server.
    pub names: Option<String>,
    /// What MPI_UNIVERSE_SIZE says. `None`: the hosts' slots, or this host's cores.
    pub universe: Option<u32>,
    /// The modelled machine to run on.
    pub machine: Option<MachineOptions>,
}

/// The options of a modelled machine.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MachineOptions {
    /// Its name or file.
    pub name: String,
    /// Print a table of what ranks, cards and links did.
    pub report: bool,
    /// Write a timeline to this file.
    pub trace: Option<PathBuf>,
    /// End the job when a driver programs its card in a way that goes wrong.
    pub check: bool,
    /// Virtual time does not run ahead of real time.
    pub paced: bool,
    /// Descriptors of TAP devices whose frames cross the machine beside MPI's messages, one a rank.
    pub interfaces: Vec<i32>,
    /// The program's own computation takes this many times as long as on this host. `None`: what
    /// the machine's file says.
    pub compute: Option<f64>,
}

/// One program with its ranks: what stands between two colons of the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppContext {
    /// Number of ranks. `None`: one, or as many as the hosts have slots.
    pub count: Option<u32>,
    /// Which numbers of ranks the program can do with. `count` is the largest of them, once all
    /// options were read.
    pub soft: Option<String>,
    /// As the user wrote it: a path, or a name to look for in PATH.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Working directory.
    pub wdir: Option<PathBuf>,
    /// Folders to look for the program in before those of PATH, with colons between them.
    pub path: OsString,
    /// Which of mpiexec's own environment variables it gets.
    pub inherited_env: InheritedEnv,
    /// Variables set for it on the command line.
    pub set_env: Vec<(OsString, OsString)>,
    /// Hosts for this program alone.
    pub hosts: Option<Vec<Host>>,
}

/// Which environment variables go from mpiexec to the ranks.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum InheritedEnv {
    /// All of them.
    #[default]
    All,
    /// These only.
    Only(Vec<OsString>),
}

/// Which ranks read mpiexec's standard input. All others read nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StdinTarget {
    /// No rank.
    None,
    /// Every rank gets a copy.
    All,
    /// This rank.
    Rank(u32),
}

/// How ranks are bound to cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binding {
    /// Each rank gets an equal share of the cores if there is a core for each. Else none is bound.
    Share,
    /// One core each: its first hardware thread.
    Core,
    /// One hardware thread each.
    HwThread,
    /// The CPUs that share a third-level cache; the ranks take these groups in turn.
    L3Cache,
    /// The CPUs of a NUMA node, in turn.
    Numa,
    /// The CPUs of a socket, in turn.
    Socket,
    /// Not bound.
    None,
}

impl Binding {
    /// All of them, in the order of their numbers.
    const ALL: [Binding; 7] = [
        Binding::Share,
        Binding::Core,
        Binding::None,
        Binding::HwThread,
        Binding::L3Cache,
        Binding::Numa,
        Binding::Socket,
    ];

    /// Its number in messages to agents.
    pub fn number(self) -> u8 {
        let at = Binding::ALL.iter().position(|b| *b == self);
        at.unwrap_or_default() as u8
    }

    /// The binding with this number.
    pub fn from_number(number: u8) -> Option<Binding> {
        Binding::ALL.get(usize::from(number)).copied()
    }
}

/// What to do with a job whose ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnHang {
    /// Print who waits for whom, and end it.
    End,
    /// Print who waits for whom.
    Report,
    /// Nothing. The ranks are not even watched.
    Ignore,
}
