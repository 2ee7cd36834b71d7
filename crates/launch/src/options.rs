//! The command line: what Hydra's users write, and what Open MPI's write where it means the same.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::hosts::{self, Host, MapBy, RankBy};

/// What `mpiexec -h` prints.
pub const HELP: &str = "\
usage: mpiexec [options] [-n N] PROGRAM [ARGUMENT…] [: [options] [-n N] PROGRAM [ARGUMENT…]]…
Starts the ranks of an MPI job here or on other hosts, watches them and ends the job when one fails.

Ranks and programs (for the block up to the next ':')
  -n N, -np N              N ranks of PROGRAM (default 1)
  -wdir DIR, -wd DIR       start them in DIR
  -env NAME VALUE          set a variable          -x NAME[=VALUE]   the same, Open MPI's form
  -envall | -envnone | -envlist A,B                pass all (default), none or these variables on
  -genv, -genvall, -genvnone, -genvlist            the same for all blocks

Input and output
  -l, -prepend-rank        put \"[rank] \" before each line
  -s, -stdin 0|N|all|none  which rank reads mpiexec's standard input (default 0)

Overlap of blocking collectives with what follows them (docs/overlap.md)
  --overlap[=MODE]         on (default), trace, always, comm or off (also FERRY_OVERLAP)
  --overlap-report         at the end, for each call site: calls, bytes, time hidden, faults, order, verdict

Watching
  --timeout SECONDS        after that long print who waits for whom, end the job, exit with 124 (also MPIEXEC_TIMEOUT)
  --on-hang end|report|ignore
                           when all ranks wait for each other: end the job (default), only say so, or do not look
                           (also FERRY_ON_HANG). Ctrl-\\ looks at once
  -v, --verbose            say what is started where

Hosts (without them all ranks run here; inside a Slurm allocation they are taken from it)
  --hosts A:4,B:4          hosts and their slots           -host, -H   the same, for this block alone
  --hostfile FILE, -f      a host a line: A:4 or A slots=4 max_slots=8 (also FERRY_HOSTFILE)
  -ppn N, --map-by slot|node|ppr:N:node, --rank-by slot|node
                           N ranks a host in turn; fill slots (default); one rank a host in turn. Ranks are numbered
                           as they are placed; --rank-by numbers them host by host, or one of each host in turn
  --launcher COMMAND       starts mpiexec there as COMMAND HOST MPIEXEC…, or with {host} in it; ssh without it (also FERRY_LAUNCHER)
  --launcher-path FILE     mpiexec on the other hosts, if it is not where this one is (also FERRY_PREFIX/bin/mpiexec)
  --host-timeout SECONDS   a host silent for so long is gone: 10; 0 never (also FERRY_HOST_TIMEOUT)

Modelled machines: the job runs as on hardware that is not there, in virtual time (docs/machines.md; ferry machines lists them)
  --machine NAME|FILE      the machine: one that comes with Ferry, or a file of your own (with a / in its name, or ending in .toml)
  --machine-report         at the end a table of what the ranks, the cards and the links did
  --machine-trace FILE     a timeline for ui.perfetto.dev or chrome://tracing
  --machine-compute zero|measured|FACTOR
                           the program's own computation takes no time, or as long as here, or so many times as long

Placement on cores
  --bind-to core|none      each rank to one core of its own, or none to any. Without it each rank gets an equal share of the
                           cores if there is one for each, and is free to move otherwise
  --report-bindings        say which rank got which cores

  -h, --help               this text
  -V, --version            the version

Ctrl-C is passed to all ranks; a second one kills them. Exit status: the highest of the ranks'; 128 + signal if a rank was killed
by one; the code given to MPI_Abort; 124 after a timeout, 125 after a hang; 127 if the program is missing, 126 if it cannot be
executed, 2 for a wrong command line.
";

/// A parsed command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The programs, in order of their ranks.
    pub blocks: Vec<Block>,
    /// Put the rank before each line.
    pub label: bool,
    /// Who reads standard input.
    pub stdin: StdinTo,
    /// End the job after this time.
    pub timeout: Option<Duration>,
    /// How ranks are placed on cores.
    pub bind: Binding,
    /// Say where ranks are bound.
    pub report_bindings: bool,
    /// What to do with a hanging job.
    pub on_hang: OnHang,
    /// Say what is started.
    pub verbose: bool,
    /// Hosts for all blocks that name none; none: this one.
    pub hosts: Option<Vec<Host>>,
    /// In which order hosts are filled.
    pub map_by: MapBy,
    /// In which order ranks get their numbers, if not in the one in which they are placed.
    pub rank_by: Option<RankBy>,
    /// The command that starts agents on other hosts.
    pub launcher: Option<String>,
    /// mpiexec on the other hosts.
    pub launcher_path: Option<PathBuf>,
    /// A host that is silent for so long is taken for gone; zero: never.
    pub host_timeout: Duration,
    /// The modelled machine to run on.
    pub machine: Option<Machine>,
}

/// A modelled machine, as it is asked for.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Machine {
    /// Its name or file.
    pub name: String,
    /// Print what happened.
    pub report: bool,
    /// Write a timeline there.
    pub trace: Option<PathBuf>,
    /// How computation counts, if not as the file says: how many times as long as here.
    pub compute: Option<f64>,
}

/// One program with its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Number of ranks; if none is given, one, or as many as the hosts have slots.
    pub count: Option<u32>,
    /// As given: a path, or a name to look for.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Working directory.
    pub wdir: Option<PathBuf>,
    /// Which of mpiexec's variables it sees.
    pub pass: Pass,
    /// Variables set for it.
    pub set: Vec<(OsString, OsString)>,
    /// Hosts for this block alone.
    pub hosts: Option<Vec<Host>>,
}

/// Which environment variables go from mpiexec to the ranks.
#[derive(Clone, Debug, PartialEq)]
pub enum Pass {
    /// All of them.
    All,
    /// These only.
    Only(Vec<OsString>),
}

/// Who reads mpiexec's standard input; all others read nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StdinTo {
    /// Nobody.
    Nobody,
    /// Every rank gets a copy.
    All,
    /// One rank.
    Rank(u32),
}

/// How ranks are placed on cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binding {
    /// An equal share of the cores each, if there is a core for each; else none.
    Share,
    /// One core each.
    Core,
    /// Free to move.
    None,
}

/// What to do with a job whose ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnHang {
    /// Say who waits for whom, and end it.
    End,
    /// Say who waits for whom.
    Report,
    /// Nothing; do not even look.
    Ignore,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// Run a job.
    Run(Box<Options>),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// Every option: its names, and how many values follow.
const OPTIONS: &[(What, usize, &[&str])] = &[
    (What::Count, 1, &["n", "np", "c"]),
    (What::Env, 2, &["env"]),
    (What::Genv, 2, &["genv"]),
    (What::Export, 1, &["x"]),
    (What::Pass, 0, &["envall"]),
    (What::PassNone, 0, &["envnone"]),
    (What::PassList, 1, &["envlist"]),
    (What::Gpass, 0, &["genvall"]),
    (What::GpassNone, 0, &["genvnone"]),
    (What::GpassList, 1, &["genvlist"]),
    (What::Wdir, 1, &["wdir", "wd", "cwd"]),
    (
        What::Label,
        0,
        &["l", "prepend-rank", "tag-output", "line-label"],
    ),
    (What::Stdin, 1, &["s", "stdin"]),
    (What::Timeout, 1, &["timeout"]),
    (What::Bind, 1, &["bind-to", "binding"]),
    (What::BindCore, 0, &["bind-to-core"]),
    (What::BindNone, 0, &["bind-to-none"]),
    (
        What::ReportBindings,
        0,
        &["report-bindings", "print-bindings"],
    ),
    (What::OnHang, 1, &["on-hang"]),
    (What::Overlap, 0, &["overlap"]),
    (What::OverlapReport, 0, &["overlap-report"]),
    (What::Host, 1, &["host", "H"]),
    (What::Hosts, 1, &["hosts"]),
    (What::HostFile, 1, &["f", "hostfile", "machinefile"]),
    (What::PerHost, 1, &["ppn", "perhost", "npernode", "N"]),
    (What::MapBy, 1, &["map-by"]),
    (What::ByNode, 0, &["bynode"]),
    (What::BySlot, 0, &["byslot"]),
    (
        What::Launcher,
        1,
        &["launcher", "rmk-launcher", "bootstrap", "launcher-exec"],
    ),
    (What::LauncherPath, 1, &["launcher-path"]),
    (What::HostTimeout, 1, &["host-timeout"]),
    (What::Machine, 1, &["machine"]),
    (What::MachineReport, 0, &["machine-report"]),
    (What::MachineTrace, 1, &["machine-trace"]),
    (What::MachineCompute, 1, &["machine-compute"]),
    (What::Verbose, 0, &["v", "verbose"]),
    (What::Help, 0, &["h", "help", "?"]),
    (What::Version, 0, &["V", "version", "info"]),
    // These change nothing.
    (
        What::Nothing,
        0,
        &[
            "oversubscribe",
            "allow-run-as-root",
            "use-hwthread-cpus",
            "nolocal",
            "q",
            "quiet",
            "overload-allowed",
        ],
    ),
    (What::RankBy, 1, &["rank-by"]),
    (What::Nothing, 1, &["prefix"]),
    (What::Nothing, 2, &["mca", "gmca", "prtemca", "pmixmca"]),
];

#[derive(Clone, Copy, PartialEq)]
enum What {
    Count,
    Env,
    Genv,
    Export,
    Pass,
    PassNone,
    PassList,
    Gpass,
    GpassNone,
    GpassList,
    Wdir,
    Label,
    Stdin,
    Timeout,
    Bind,
    BindCore,
    BindNone,
    ReportBindings,
    OnHang,
    Overlap,
    OverlapReport,
    Host,
    Hosts,
    HostFile,
    PerHost,
    MapBy,
    RankBy,
    ByNode,
    BySlot,
    Launcher,
    LauncherPath,
    HostTimeout,
    Machine,
    MachineReport,
    MachineTrace,
    MachineCompute,
    Verbose,
    Help,
    Version,
    Nothing,
}

/// Reads the arguments (without the command's own name). `variable` answers for the environment.
///
/// # Errors
/// One line that says which argument is wrong and what it should be.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Asked, String> {
    let mut options = Options {
        blocks: Vec::new(),
        label: false,
        stdin: StdinTo::Rank(0),
        timeout: variable("MPIEXEC_TIMEOUT")
            .map(|v| seconds("MPIEXEC_TIMEOUT", &v))
            .transpose()?,
        bind: Binding::Share,
        report_bindings: false,
        on_hang: variable("FERRY_ON_HANG")
            .map_or(Ok(OnHang::End), |v| on_hang("FERRY_ON_HANG", &v))?,
        verbose: false,
        hosts: None,
        map_by: MapBy::Slot,
        rank_by: None,
        launcher: variable("FERRY_LAUNCHER"),
        launcher_path: None,
        host_timeout: variable("FERRY_HOST_TIMEOUT")
            .map_or(Ok(HOST_TIMEOUT), |v| host_timeout("FERRY_HOST_TIMEOUT", &v))?,
        machine: None,
    };
    let mut machine = Machine::default();
    let mut pass_everywhere = None;
    let mut set_everywhere = Vec::new();
    let mut arguments = arguments.into_iter().peekable();
    loop {
        let mut block = Block {
            count: None,
            program: OsString::new(),
            arguments: Vec::new(),
            wdir: None,
            pass: Pass::All,
            set: Vec::new(),
            hosts: None,
        };
        let mut pass_here = None;
        // The block's options.
        let program = loop {
            let Some(argument) = arguments.next() else {
                break None;
            };
            if argument == "--" {
                break arguments.next();
            }
            let Some(name) = option_name(&argument) else {
                break Some(argument);
            };
            let (name, glued) = split_glued(&name);
            let Some(&(what, values, _)) =
                OPTIONS.iter().find(|(_, _, names)| names.contains(&name))
            else {
                return Err(unknown(&argument, name));
            };
            let mode = glued;
            let mut glued = glued.filter(|_| values == 1);
            let given = argument.to_string_lossy().into_owned();
            let mut value = || {
                glued
                    .take()
                    .map(OsString::from)
                    .or_else(|| arguments.next())
                    .ok_or_else(|| {
                        format!(
                            "{given} wants {}",
                            if values == 2 {
                                "a name and a value after it"
                            } else {
                                "a value after it"
                            }
                        )
                    })
            };
            match what {
                What::Count => block.count = Some(count(&given, &value()?)?),
                What::Env => block.set.push((env_name(&given, value()?)?, value()?)),
                What::Genv => set_everywhere.push((env_name(&given, value()?)?, value()?)),
                What::Export => {
                    let text = value()?.into_vec();
                    if let Some(at) = text.iter().position(|&b| b == b'=') {
                        let (name, value) = text.split_at(at);
                        let name = env_name(&given, OsString::from_vec(name.into()))?;
                        set_everywhere.push((name, OsString::from_vec(value[1..].into())));
                    } else if let Some(Pass::Only(names)) = &mut pass_everywhere {
                        names.push(OsString::from_vec(text));
                    }
                }
                What::Pass => pass_here = Some(Pass::All),
                What::PassNone => pass_here = Some(Pass::Only(Vec::new())),
                What::PassList => pass_here = Some(Pass::Only(list(&value()?))),
                What::Gpass => pass_everywhere = Some(Pass::All),
                What::GpassNone => pass_everywhere = Some(Pass::Only(Vec::new())),
                What::GpassList => pass_everywhere = Some(Pass::Only(list(&value()?))),
                What::Wdir => block.wdir = Some(value()?.into()),
                What::Label => options.label = true,
                What::Stdin => options.stdin = stdin_to(&given, &value()?)?,
                What::Timeout => {
                    options.timeout = Some(seconds(&given, &value()?.to_string_lossy())?)
                }
                What::Bind => options.bind = binding(&given, &value()?.to_string_lossy())?,
                What::BindCore => options.bind = Binding::Core,
                What::BindNone => options.bind = Binding::None,
                What::ReportBindings => options.report_bindings = true,
                What::OnHang => options.on_hang = on_hang(&given, &value()?.to_string_lossy())?,
                What::Overlap => {
                    let mode = overlap(&given, mode)?;
                    set_everywhere.push(("FERRY_OVERLAP".into(), mode.into()));
                }
                What::OverlapReport => {
                    set_everywhere.push(("FERRY_OVERLAP_REPORT".into(), "1".into()));
                }
                What::Host => {
                    let text = value()?.to_string_lossy().into_owned();
                    let named = hosts::parse_list(&text);
                    block.hosts = Some(named.map_err(|e| format!("{given} {text}: {e}"))?);
                }
                What::Hosts => {
                    let text = value()?.to_string_lossy().into_owned();
                    let named = hosts::parse_list(&text);
                    options.hosts = Some(named.map_err(|e| format!("{given} {text}: {e}"))?);
                }
                What::HostFile => {
                    options.hosts = Some(host_file(&given, &PathBuf::from(value()?))?);
                }
                What::PerHost => {
                    options.map_by = MapBy::PerHost(count(&given, &value()?)?);
                }
                What::MapBy => options.map_by = map_by(&given, &value()?.to_string_lossy())?,
                What::RankBy => {
                    options.rank_by = Some(rank_by(&given, &value()?.to_string_lossy())?);
                }
                What::ByNode => options.map_by = MapBy::Node,
                What::BySlot => options.map_by = MapBy::Slot,
                What::Launcher => {
                    options.launcher = Some(value()?.to_string_lossy().into_owned());
                }
                What::LauncherPath => options.launcher_path = Some(value()?.into()),
                What::HostTimeout => {
                    options.host_timeout = host_timeout(&given, &value()?.to_string_lossy())?;
                }
                What::Machine => machine.name = value()?.to_string_lossy().into_owned(),
                What::MachineReport => machine.report = true,
                What::MachineTrace => machine.trace = Some(value()?.into()),
                What::MachineCompute => {
                    machine.compute = Some(compute(&given, &value()?.to_string_lossy())?);
                }
                What::Verbose => options.verbose = true,
                What::Help => return Ok(Asked::Help),
                What::Version => return Ok(Asked::Version),
                What::Nothing => {
                    for _ in 0..values {
                        value()?;
                    }
                }
            }
        };
        let Some(program) = program.filter(|p| p != ":") else {
            return Err(if options.blocks.is_empty() {
                "no program given; try: mpiexec -n 2 PROGRAM (or mpiexec -h)".into()
            } else {
                "no program given after ':'".into()
            });
        };
        block.program = program;
        let mut more = false;
        for argument in arguments.by_ref() {
            if argument == ":" {
                more = true;
                break;
            }
            block.arguments.push(argument);
        }
        block.pass = pass_here.unwrap_or(Pass::All);
        options.blocks.push(block);
        if !more {
            break;
        }
    }
    for block in &mut options.blocks {
        if let (Pass::All, Some(pass)) = (&block.pass, &pass_everywhere) {
            block.pass = pass.clone();
        }
        // What a block sets itself comes last, and so holds.
        let mut set = set_everywhere.clone();
        set.append(&mut block.set);
        block.set = set;
    }
    if !machine.name.is_empty() {
        if options.hosts.is_some() || options.blocks.iter().any(|b| b.hosts.is_some()) {
            return Err("--machine and hosts: a modelled machine runs here, whole".into());
        }
        options.machine = Some(machine);
        return Ok(Asked::Run(Box::new(options)));
    }
    if machine != Machine::default() {
        return Err(
            "--machine-report, --machine-trace and --machine-compute go with --machine".into(),
        );
    }
    if options.hosts.is_none() && options.blocks.iter().all(|b| b.hosts.is_none()) {
        options.hosts = hosts_from_outside(&variable)?;
    }
    Ok(Asked::Run(Box::new(options)))
}

/// How many times as long as here computation takes.
fn compute(option: &str, text: &str) -> Result<f64, String> {
    match text {
        "zero" => return Ok(0.0),
        "measured" => return Ok(1.0),
        _ => {}
    }
    let factor = text.parse::<f64>().ok();
    factor.filter(|f| f.is_finite() && *f >= 0.0).ok_or_else(|| {
        format!("{option} {text}: it can be zero, measured, or how many times as long as here computation takes")
    })
}

/// Host files that schedulers and operators leave in the environment, ours first.
const HOST_FILES: [&str; 5] = [
    "FERRY_HOSTFILE",
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
];

/// The hosts that a variable or an allocation names where the command line names none.
fn hosts_from_outside(
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Vec<Host>>, String> {
    for name in HOST_FILES {
        if let Some(path) = variable(name).filter(|p| !p.is_empty()) {
            return host_file(name, &PathBuf::from(path)).map(Some);
        }
    }
    hosts::allocation(variable).transpose()
}

fn host_file(option: &str, path: &std::path::Path) -> Result<Vec<Host>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("{option} {shown}: it cannot be read: {e}"))?;
    hosts::parse_file(&text).map_err(|e| format!("{option} {shown}: {e}"))
}

/// `slot`, `node`, `ppr:2:node`, with Open MPI's modifiers after a colon; everything smaller than a
/// node fills slots.
fn map_by(option: &str, text: &str) -> Result<MapBy, String> {
    let mut words = text.split(':');
    let (first, second, third) = (words.next(), words.next(), words.next());
    match (first, second, third) {
        (Some("ppr"), Some(n), Some("node")) => Ok(MapBy::PerHost(count(option, OsStr::new(n))?)),
        (Some("node"), ..) => Ok(MapBy::Node),
        (
            Some(
                "" | "slot" | "core" | "hwthread" | "socket" | "package" | "numa" | "l1cache"
                | "l2cache" | "l3cache",
            ),
            ..,
        ) => Ok(MapBy::Slot),
        _ => Err(format!("{option} {text:?}: say slot, node or ppr:N:node")),
    }
}

/// `slot` or `node`, with modifiers after a colon.
fn rank_by(option: &str, text: &str) -> Result<RankBy, String> {
    match text.split(':').next() {
        Some("node") => Ok(RankBy::Node),
        Some("slot" | "fill" | "core") => Ok(RankBy::Slot),
        _ => Err(format!("{option} {text:?}: say slot or node")),
    }
}

fn host_timeout(option: &str, text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(Duration::ZERO),
        Ok(s) if (0.1..1e6).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!(
            "{option} {text:?}: not a number of seconds from 0.1 on, or 0 for never"
        )),
    }
}

/// How long a host may be silent unless the user says otherwise.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);
/// One more than a job may have ranks.
pub const RANKS_MAX: u32 = 65_537;

/// "-np" and "--np" → "np"; `None` for what is no option.
fn option_name(argument: &OsStr) -> Option<String> {
    let text = argument.as_bytes().strip_prefix(b"-")?;
    let text = text.strip_prefix(b"-").unwrap_or(text);
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// "timeout=5" → ("timeout", Some("5")).
fn split_glued(name: &str) -> (&str, Option<&str>) {
    name.split_once('=')
        .map_or((name, None), |(name, value)| (name, Some(value)))
}

/// How blocking collectives overlap; nothing said: where it pays.
fn overlap(given: &str, mode: Option<&str>) -> Result<String, String> {
    match mode.unwrap_or("on") {
        mode @ ("on" | "off" | "trace" | "always" | "comm") => Ok(mode.to_owned()),
        _ => Err(format!(
            "{given} is not --overlap, or --overlap=MODE with on, trace, always, comm or off"
        )),
    }
}

fn unknown(argument: &OsStr, name: &str) -> String {
    let nearest = OPTIONS
        .iter()
        .flat_map(|(_, _, names)| names.iter())
        .map(|known| (distance(name, known), *known))
        .min();
    let dashes = |known: &str| {
        if known.len() > 4 && known.contains('-') || known == "timeout" {
            "--"
        } else {
            "-"
        }
    };
    match nearest {
        Some((far, known)) if far <= 2 && far < name.len() => {
            format!(
                "unknown option {}; did you mean {}{known}?",
                argument.to_string_lossy(),
                dashes(known)
            )
        }
        _ => format!(
            "unknown option {}; mpiexec -h lists them all",
            argument.to_string_lossy()
        ),
    }
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let up = row[j + 1];
            row[j + 1] = (corner + usize::from(x != *y)).min(up + 1).min(row[j] + 1);
            corner = up;
        }
    }
    row[b.len()]
}

fn count(option: &str, value: &OsStr) -> Result<u32, String> {
    let text = value.to_string_lossy();
    match text.parse::<u32>() {
        Ok(0) => Err(format!("{option} 0: a job has at least 1 rank")),
        Ok(n) if n < RANKS_MAX => Ok(n),
        Ok(_) => Err(format!(
            "{option} {text}: more than {} ranks",
            RANKS_MAX - 1
        )),
        Err(_) => Err(format!(
            "{option} {text:?}: not a number of ranks (1, 2, …)"
        )),
    }
}

fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s < 1e9 => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!(
            "{option} {text:?}: not a number of seconds above 0"
        )),
    }
}

fn on_hang(option: &str, text: &str) -> Result<OnHang, String> {
    match text {
        "end" | "abort" | "kill" => Ok(OnHang::End),
        "report" => Ok(OnHang::Report),
        "ignore" => Ok(OnHang::Ignore),
        _ => Err(format!("{option} {text:?}: say end, report or ignore")),
    }
}

fn binding(option: &str, text: &str) -> Result<Binding, String> {
    match text.split(':').next().unwrap_or_default() {
        "core" | "hwthread" | "cpu" | "user" => Ok(Binding::Core),
        "none" => Ok(Binding::None),
        "share" | "socket" | "package" | "numa" | "l1cache" | "l2cache" | "l3cache" | "board"
        | "machine" => Ok(Binding::Share),
        _ => Err(format!("{option} {text:?}: say core or none")),
    }
}

fn stdin_to(option: &str, value: &OsStr) -> Result<StdinTo, String> {
    let text = value.to_string_lossy();
    match &*text {
        "all" => Ok(StdinTo::All),
        "none" => Ok(StdinTo::Nobody),
        _ => text
            .parse()
            .map(StdinTo::Rank)
            .map_err(|_| format!("{option} {text:?}: say all, none or a rank")),
    }
}

fn env_name(option: &str, name: OsString) -> Result<OsString, String> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(format!("{option} {name:?}: not the name of a variable"));
    }
    Ok(name)
}

fn list(value: &OsStr) -> Vec<OsString> {
    value
        .as_bytes()
        .split(|&b| b == b',')
        .filter(|n| !n.is_empty())
        .map(|n| OsStr::from_bytes(n).into())
        .collect()
}

#[cfg(test)]
mod tests;
