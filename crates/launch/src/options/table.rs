//! The table of options: names, values, and the text for help and manual pages.
//!
//! The parser takes names and numbers of values from it, `mpiexec -h` its lines, the manual page
//! and the completions of `ferry install` all of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::option_id::{EnvOption, HostsOption, MachineOption, OptionId};

/// One option of the command line.
pub struct OptionSpec {
    /// What it does.
    pub(super) id: OptionId,
    /// Under which heading it is listed.
    pub section: Section,
    /// Its names, with the dashes that documents give them. One dash or two mean the same.
    pub names: &'static [&'static str],
    /// What its values are called: the arguments that follow it. At most two.
    pub values: &'static [&'static str],
    /// What its value is called if it has one only after an equal sign, and can do without.
    pub inline_value: Option<&'static str>,
    /// What it does, in words. Empty: accepted, and not listed.
    pub about: &'static str,
}

impl OptionSpec {
    /// Is `name`, which has no dashes, one of the option's names?
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.names.iter().any(|n| n.trim_start_matches('-') == name)
    }
}

/// A heading of the list of options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Section {
    /// What runs, and how often.
    Programs,
    /// Standard input, output and error.
    InputOutput,
    /// Overlap of collectives.
    Overlap,
    /// Hangs and time limits.
    Watching,
    /// Hosts.
    Hosts,
    /// Modelled machines.
    Machines,
    /// Cores.
    Binding,
    /// All else.
    General,
}

impl Section {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Section; 8] = [
        Section::Programs,
        Section::InputOutput,
        Section::Overlap,
        Section::Watching,
        Section::Hosts,
        Section::Machines,
        Section::Binding,
        Section::General,
    ];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Section::Programs => "Ranks and programs",
            Section::InputOutput => "Input and output",
            Section::Overlap => "Overlap of collectives",
            Section::Watching => "Watching",
            Section::Hosts => "Hosts",
            Section::Machines => "Modelled machines",
            Section::Binding => "Binding to cores",
            Section::General => "General",
        }
    }

    /// What holds for all of its options. May be empty.
    pub fn remark(self) -> &'static str {
        match self {
            Section::Programs => "for the program up to the next ':'",
            Section::Overlap => "blocking collectives with what follows them, docs/overlap.md",
            Section::Hosts => "without them all ranks run here, or in the Slurm allocation",
            Section::Machines => "as on hardware that is not there, in virtual time",
            Section::InputOutput | Section::Watching | Section::Binding | Section::General => "",
        }
    }
}

/// Shorthand for a row of [`OPTIONS`].
const fn option(
    id: OptionId,
    section: Section,
    names: &'static [&'static str],
    values: &'static [&'static str],
    about: &'static str,
) -> OptionSpec {
    OptionSpec {
        id,
        section,
        names,
        values,
        inline_value: None,
        about,
    }
}

/// Every option. The names are those of Hydra (MPICH, Intel MPI) and of Open MPI.
pub const OPTIONS: &[OptionSpec] = &[
    option(
        OptionId::Count,
        Section::Programs,
        &["-n", "-np", "-c"],
        &["N"],
        "N ranks of the program (default 1, or as many as the hosts have slots)",
    ),
    option(
        OptionId::Soft,
        Section::Programs,
        &["-soft"],
        &["LIST"],
        "as many of the N ranks as the list allows: numbers and first:last:stride, 2,4 or 1:9:2",
    ),
    option(
        OptionId::Wdir,
        Section::Programs,
        &["-wdir", "-wd", "-cwd"],
        &["DIR"],
        "start them in this folder",
    ),
    option(
        OptionId::Path,
        Section::Programs,
        &["-path"],
        &["DIRS"],
        "look for the program in these folders first, A:B",
    ),
    option(
        OptionId::ConfigFile,
        Section::Programs,
        &["-configfile", "--app", "-app"],
        &["FILE"],
        "the programs of a file, a line each, as between two ':'",
    ),
    option(
        OptionId::Env(EnvOption::Set),
        Section::Programs,
        &["-env"],
        &["NAME", "VALUE"],
        "set an environment variable",
    ),
    option(
        OptionId::Env(EnvOption::Export),
        Section::Programs,
        &["-x"],
        &["NAME[=VALUE]"],
        "the same in Open MPI's form: set a variable, or pass one on; for all programs",
    ),
    option(
        OptionId::Env(EnvOption::InitialErrhandler),
        Section::Programs,
        &["-initial-errhandler"],
        &["NAME"],
        "mpi_errors_are_fatal (default), mpi_errors_abort or mpi_errors_return",
    ),
    option(
        OptionId::Env(EnvOption::InheritAll),
        Section::Programs,
        &["-envall"],
        &[],
        "pass all variables on (default)",
    ),
    option(
        OptionId::Env(EnvOption::InheritNone),
        Section::Programs,
        &["-envnone"],
        &[],
        "pass no variables on",
    ),
    option(
        OptionId::Env(EnvOption::InheritList),
        Section::Programs,
        &["-envlist"],
        &["A,B"],
        "pass only these variables on",
    ),
    option(
        OptionId::Env(EnvOption::GlobalSet),
        Section::Programs,
        &["-genv"],
        &["NAME", "VALUE"],
        "as -env, for all programs",
    ),
    option(
        OptionId::Env(EnvOption::GlobalInheritAll),
        Section::Programs,
        &["-genvall"],
        &[],
        "as -envall, for all programs",
    ),
    option(
        OptionId::Env(EnvOption::GlobalInheritNone),
        Section::Programs,
        &["-genvnone"],
        &[],
        "as -envnone, for all programs",
    ),
    option(
        OptionId::Env(EnvOption::GlobalInheritList),
        Section::Programs,
        &["-genvlist"],
        &["A,B"],
        "as -envlist, for all programs",
    ),
    option(
        OptionId::AllowOtherMpi,
        Section::Programs,
        &["--allow-other-mpi"],
        &[],
        "start programs that are linked with another MPI's library, too",
    ),
    option(
        OptionId::Label,
        Section::InputOutput,
        &["-l", "-prepend-rank", "--tag-output", "--line-label"],
        &[],
        "put \"[rank] \" before each line",
    ),
    option(
        OptionId::Stdin,
        Section::InputOutput,
        &["-s", "-stdin"],
        &["0|N|all|none"],
        "which rank reads mpiexec's standard input (default 0)",
    ),
    OptionSpec {
        id: OptionId::Env(EnvOption::Overlap),
        section: Section::Overlap,
        names: &["--overlap"],
        values: &[],
        inline_value: Some("MODE"),
        about: "on (default), trace, always, comm or off (also FERRY_OVERLAP)",
    },
    option(
        OptionId::Env(EnvOption::OverlapReport),
        Section::Overlap,
        &["--overlap-report"],
        &[],
        "at the end, for each call site: calls, bytes, time hidden, faults, order, verdict",
    ),
    option(
        OptionId::Timeout,
        Section::Watching,
        &["--timeout"],
        &["SECONDS"],
        "after that long print who waits for whom, end the job, exit with 124 (also \
         MPIEXEC_TIMEOUT)",
    ),
    option(
        OptionId::OnHang,
        Section::Watching,
        &["--on-hang"],
        &["end|report|ignore"],
        "when all ranks wait for each other: end the job (default), only say so, or do not \
         look (also FERRY_ON_HANG). Ctrl-\\ looks at once",
    ),
    option(
        OptionId::Verbose,
        Section::Watching,
        &["-v", "--verbose"],
        &[],
        "say what is started where",
    ),
    option(
        OptionId::Hosts(HostsOption::Hosts),
        Section::Hosts,
        &["--hosts"],
        &["A:4,B:4"],
        "hosts and their slots",
    ),
    option(
        OptionId::Hosts(HostsOption::Host),
        Section::Hosts,
        &["-host", "-H"],
        &["A:4,B:4"],
        "the same, for this program alone",
    ),
    option(
        OptionId::Hosts(HostsOption::HostFile),
        Section::Hosts,
        &["--hostfile", "-f", "--machinefile"],
        &["FILE"],
        "a host a line: A:4 or A slots=4 max_slots=8 (also FERRY_HOSTFILE)",
    ),
    option(
        OptionId::Hosts(HostsOption::PerHost),
        Section::Hosts,
        &["-ppn", "-perhost", "-npernode", "-N"],
        &["N"],
        "N ranks a host in turn",
    ),
    option(
        OptionId::Hosts(HostsOption::MapBy),
        Section::Hosts,
        &["--map-by"],
        &["slot|node|ppr:N:node"],
        "fill each host's slots (default), one rank a host in turn, or N ranks a host in turn",
    ),
    option(
        OptionId::Hosts(HostsOption::BySlot),
        Section::Hosts,
        &["--byslot"],
        &[],
        "as --map-by slot",
    ),
    option(
        OptionId::Hosts(HostsOption::ByNode),
        Section::Hosts,
        &["--bynode"],
        &[],
        "as --map-by node",
    ),
    option(
        OptionId::Hosts(HostsOption::RankBy),
        Section::Hosts,
        &["--rank-by"],
        &["slot|node"],
        "number the ranks host by host, or one of each host in turn; without it as they are \
         placed",
    ),
    option(
        OptionId::Hosts(HostsOption::Launcher),
        Section::Hosts,
        &[
            "--launcher",
            "--rmk-launcher",
            "--bootstrap",
            "--launcher-exec",
        ],
        &["COMMAND"],
        "starts mpiexec there as COMMAND HOST MPIEXEC…, or with {host} in it; ssh without it \
         (also FERRY_LAUNCHER)",
    ),
    option(
        OptionId::Hosts(HostsOption::LauncherPath),
        Section::Hosts,
        &["--launcher-path"],
        &["FILE"],
        "mpiexec on the other hosts, if it is not where this one is (also \
         FERRY_PREFIX/bin/mpiexec)",
    ),
    option(
        OptionId::Universe,
        Section::Hosts,
        &["-usize", "--universe-size"],
        &["N"],
        "what MPI_UNIVERSE_SIZE says (default: the hosts' slots, or this host's cores)",
    ),
    option(
        OptionId::Hosts(HostsOption::HostTimeout),
        Section::Hosts,
        &["--host-timeout"],
        &["SECONDS"],
        "a host silent for so long is gone: 10; 0 never (also FERRY_HOST_TIMEOUT)",
    ),
    option(
        OptionId::Names,
        Section::General,
        &["--names"],
        &["HOST:PORT"],
        "the server that keeps the names of MPI_Publish_name: ferry names (also FERRY_NAMES)",
    ),
    option(
        OptionId::Machine(MachineOption::Name),
        Section::Machines,
        &["--machine"],
        &["NAME|FILE"],
        "the machine: one that comes with Ferry (ferry machines lists them), or a file of \
         your own (with a / in its name, or ending in .toml)",
    ),
    option(
        OptionId::Machine(MachineOption::Report),
        Section::Machines,
        &["--machine-report"],
        &[],
        "at the end a table of what the ranks, the cards and the links did",
    ),
    option(
        OptionId::Machine(MachineOption::Paced),
        Section::Machines,
        &["--machine-paced"],
        &[],
        "holds virtual time back to real time",
    ),
    option(
        OptionId::Machine(MachineOption::Interfaces),
        Section::Machines,
        &["--machine-interfaces"],
        &["FD,..."],
        // For `ferry ethernet --mpi`.
        "",
    ),
    option(
        OptionId::Machine(MachineOption::Check),
        Section::Machines,
        &["--machine-check"],
        &[],
        "ends the job when a driver programs its card in a way that goes wrong, and names the \
         driver's call (kind rapidio)",
    ),
    option(
        OptionId::Machine(MachineOption::Trace),
        Section::Machines,
        &["--machine-trace"],
        &["FILE"],
        "a timeline for ui.perfetto.dev or chrome://tracing",
    ),
    option(
        OptionId::Machine(MachineOption::Compute),
        Section::Machines,
        &["--machine-compute"],
        &["zero|measured|FACTOR"],
        "the program's own computation takes no time, or as long as here, or so many times as \
         long",
    ),
    option(
        OptionId::Bind,
        Section::Binding,
        &["--bind-to", "--binding"],
        &["core|hwthread|l3cache|numa|socket|none"],
        "each rank to one core of its own, or to all allowed CPUs of a hardware thread, \
         third-level cache, NUMA node or socket, which the ranks take in turn; or to none. \
         Without it each rank gets an equal share of the cores if there is one for each, and \
         is free to move otherwise",
    ),
    option(
        OptionId::BindCore,
        Section::Binding,
        &["--bind-to-core"],
        &[],
        "as --bind-to core",
    ),
    option(
        OptionId::BindNone,
        Section::Binding,
        &["--bind-to-none"],
        &[],
        "as --bind-to none",
    ),
    option(
        OptionId::ReportBindings,
        Section::Binding,
        &["--report-bindings", "--print-bindings"],
        &[],
        "say which rank got which cores",
    ),
    option(
        OptionId::Help,
        Section::General,
        &["-h", "--help", "-?"],
        &[],
        "this text",
    ),
    option(
        OptionId::Version,
        Section::General,
        &["-V", "--version", "--info"],
        &[],
        "the version",
    ),
    // Accepted for the sake of other launchers' scripts; they change nothing.
    option(
        OptionId::Ignored,
        Section::General,
        &[
            "--oversubscribe",
            "--allow-run-as-root",
            "--use-hwthread-cpus",
            "--nolocal",
            "-q",
            "--quiet",
            "--overload-allowed",
        ],
        &[],
        "",
    ),
    option(
        OptionId::Ignored,
        Section::General,
        &["--prefix"],
        &["DIR"],
        "",
    ),
    option(
        OptionId::Ignored,
        Section::General,
        &["--mca", "--gmca", "--prtemca", "--pmixmca"],
        &["NAME", "VALUE"],
        "",
    ),
];

/// An option's name without its dashes: "-np" and "--np" give "np". `None` if it is no option.
pub(super) fn option_name(argument: &OsStr) -> Option<String> {
    let text = argument.as_bytes().strip_prefix(b"-")?;
    let text = text.strip_prefix(b"-").unwrap_or(text);
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Splits "timeout=5" into "timeout" and "5".
pub(super) fn split_inline_value(name: &str) -> (&str, Option<&str>) {
    name.split_once('=')
        .map_or((name, None), |(name, value)| (name, Some(value)))
}

/// A name is suggested for a misspelt one if at most this many letters differ. With three, most
/// short names are near each other.
const SUGGESTION_EDITS_MAX: usize = 2;

/// Options that MPI 5.0 §11.5 suggests and Ferry does not support, without dashes, and what to do
/// instead.
const UNSUPPORTED: [(&str, &str); 2] = [
    (
        "arch",
        "hosts are not chosen by their architecture: name them with -host",
    ),
    (
        "file",
        "options come from the file of -configfile, hosts from that of --hostfile",
    ),
];

/// The error for an option that is not in the table, with what to write instead: its replacement if
/// it is known, or else the nearest name in the table.
pub(super) fn unknown(argument: &OsStr, name: &str) -> String {
    if let Some((_, instead)) = UNSUPPORTED.iter().find(|(known, _)| *known == name) {
        let argument = argument.to_string_lossy();
        return format!("{argument} is not supported; {instead}");
    }
    let names = OPTIONS.iter().flat_map(|option| option.names);
    let nearest = names
        .map(|known| (edit_distance(name, known.trim_start_matches('-')), *known))
        .min();
    let argument = argument.to_string_lossy();
    match nearest {
        Some((edits, known)) if edits <= SUGGESTION_EDITS_MAX && edits < name.len() => {
            format!("unknown option {argument}; did you mean {known}?")
        }
        _ => format!("unknown option {argument}; mpiexec -h lists them all"),
    }
}

/// Levenshtein distance: the least number of letters to insert, delete or change.
fn edit_distance(a: &str, b: &str) -> usize {
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
