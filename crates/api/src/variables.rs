//! Every environment variable that Ferry reads or sets, in one list.
//!
//! mpiexec looks here for the nearest name when it meets a `FERRY_` variable that does not exist.
//! `ferry doctor --variables` prints the list. `cargo run -p ferry-api -- variables` prints it as
//! the Markdown table of the manual. A test compares it with the sources, the scripts and the
//! documents: each `FERRY_` name there is in the list, and each entry is used somewhere.

/// Who sets a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Audience {
    /// Who runs programs: read by mpiexec, its agents and the library.
    User,
    /// Who compiles programs: read by mpicc and mpicxx.
    Compiler,
    /// mpiexec sets it for a rank. To set it by hand makes no sense.
    Rank,
    /// Who works on Ferry: read by its tests and scripts.
    Developer,
}

impl Audience {
    /// All of them, in the order in which lists show them.
    pub const ALL: [Audience; 4] = [
        Audience::User,
        Audience::Compiler,
        Audience::Rank,
        Audience::Developer,
    ];

    /// Who sets the variable, in the manual's table.
    fn setter(self) -> &'static str {
        match self {
            Audience::User => "user",
            Audience::Compiler => "user of mpicc",
            Audience::Rank => "mpiexec",
            Audience::Developer => "developer",
        }
    }

    /// A heading for the variables of this audience.
    pub fn title(self) -> &'static str {
        match self {
            Audience::User => "Running programs",
            Audience::Compiler => "Compiling programs",
            Audience::Rank => "Set by mpiexec for each rank",
            Audience::Developer => "Ferry's own tests and scripts",
        }
    }
}

/// An environment variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Who sets it.
    pub audience: Audience,
    /// Its values, in a few words.
    pub values: &'static str,
    /// Its effect, in one line.
    pub about: &'static str,
}

const fn user(name: &'static str, values: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        audience: Audience::User,
        values,
        about,
    }
}

const fn compiler(name: &'static str, values: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        audience: Audience::Compiler,
        values,
        about,
    }
}

const fn rank(name: &'static str, values: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        audience: Audience::Rank,
        values,
        about,
    }
}

const fn developer(name: &'static str, values: &'static str, about: &'static str) -> Variable {
    Variable {
        name,
        audience: Audience::Developer,
        values,
        about,
    }
}

/// Values of `FERRY_COLL_<NAME>`.
const ALGORITHM: &str = "algorithm, messages, auto";

/// All variables, grouped by audience, in alphabetical order.
pub const ALL: &[Variable] = &[
    user(
        "FERRY_BACKTRACE",
        "0, 1; 1",
        "0: no backtrace when a rank ends by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT",
    ),
    user(
        "FERRY_COLL_ALLGATHER",
        ALGORITHM,
        "algorithm of MPI_Allgather",
    ),
    user(
        "FERRY_COLL_ALLGATHERV",
        ALGORITHM,
        "algorithm of MPI_Allgatherv",
    ),
    user(
        "FERRY_COLL_ALLREDUCE",
        ALGORITHM,
        "algorithm of MPI_Allreduce",
    ),
    user(
        "FERRY_COLL_ALLTOALL",
        ALGORITHM,
        "algorithm of MPI_Alltoall",
    ),
    user("FERRY_COLL_BARRIER", ALGORITHM, "algorithm of MPI_Barrier"),
    user("FERRY_COLL_BCAST", ALGORITHM, "algorithm of MPI_Bcast"),
    user("FERRY_COLL_GATHER", ALGORITHM, "algorithm of MPI_Gather"),
    user("FERRY_COLL_REDUCE", ALGORITHM, "algorithm of MPI_Reduce"),
    user(
        "FERRY_COLL_REDUCE_SCATTER",
        ALGORITHM,
        "algorithm of MPI_Reduce_scatter",
    ),
    user("FERRY_COLL_SCAN", ALGORITHM, "algorithm of MPI_Scan"),
    user("FERRY_COLL_SCATTER", ALGORITHM, "algorithm of MPI_Scatter"),
    user(
        "FERRY_CONNECT_TIMEOUT",
        "seconds; no limit",
        "how long MPI_Comm_connect and MPI_Comm_accept wait",
    ),
    user("FERRY_ENCRYPT", "1", "encrypt all messages between hosts"),
    user(
        "FERRY_HOSTFILE",
        "file",
        "hosts of the job, where the command line names none",
    ),
    user(
        "FERRY_HOST_TIMEOUT",
        "seconds, 0 for never; 10",
        "a host that is silent for longer counts as gone (mpiexec)",
    ),
    user(
        "FERRY_LAUNCHER",
        "command; srun under Slurm, else ssh",
        "starts mpiexec's agents on other hosts",
    ),
    user(
        "FERRY_NAMES",
        "host:port; none",
        "the name server for MPI_Publish_name (ferry names)",
    ),
    user(
        "FERRY_NAMES_KEY",
        "file; ~/.ferry-names.key",
        "the key of the name server",
    ),
    user(
        "FERRY_ON_HANG",
        "end, report, ignore; end",
        "what mpiexec does when all ranks wait for each other",
    ),
    user(
        "FERRY_OVERLAP",
        "off, on, trace, always, comm; off",
        "blocking collectives overlap with what follows them",
    ),
    user(
        "FERRY_OVERLAP_FILE",
        "file",
        "access orders: written by a trace run, read by other runs",
    ),
    user(
        "FERRY_OVERLAP_GUARD",
        "move, mprotect, off; move",
        "how data under way are protected from early access",
    ),
    user(
        "FERRY_OVERLAP_MIN",
        "bytes; 65536",
        "smallest collective that may overlap",
    ),
    user(
        "FERRY_OVERLAP_REPORT",
        "1",
        "each rank reports its overlapped call sites at the end",
    ),
    user(
        "FERRY_PMI",
        "1, 2",
        "version of PMI spoken with another launcher",
    ),
    user(
        "FERRY_PMIX_LIB",
        "file or folder",
        "libpmix.so.2 of the launcher",
    ),
    user(
        "FERRY_PREFIX",
        "folder",
        "installation on the other hosts, if it differs from the one here",
    ),
    user(
        "FERRY_PROGRESS",
        "calls, thread; calls",
        "thread: messages move while the program computes, too",
    ),
    user(
        "FERRY_SHM_READ_MIN",
        "bytes; measured as it runs",
        "large messages from this size on are read from the sender's memory",
    ),
    user(
        "FERRY_SHOW_HANDLE_LEAKS",
        "0, 1; 0",
        "1: MPI_Finalize names windows, files, communicators and requests that were not freed",
    ),
    user(
        "FERRY_TCP_CONGESTION",
        "name, system",
        "congestion control of TCP connections",
    ),
    user(
        "FERRY_TCP_IF",
        "interfaces, networks, addresses",
        "where TCP listens",
    ),
    user(
        "FERRY_TCP_TIMEOUT",
        "seconds, 1 to 86400; 30",
        "a peer that is silent for longer counts as gone (TCP)",
    ),
    user(
        "FERRY_TCP_ZCOPY",
        "0, 1; measured as it runs",
        "1: large TCP messages are sent without a copy; 0: they are copied",
    ),
    user(
        "FERRY_TIME_SLICE",
        "microseconds; 100; 0: the system's",
        "time slice that a waiting thread asks the system for",
    ),
    user(
        "FERRY_TIPC_TYPE",
        "64 to 4294967295; 18888",
        "TIPC service type of the ranks' names",
    ),
    user(
        "FERRY_TRANSPORTS",
        "list of self, shm, tcp, tipc",
        "transports that may be used, in order of preference",
    ),
    user(
        "FERRY_YIELDS",
        "number; 10",
        "least sched_yield calls of a waiting rank before it sleeps, where ranks outnumber cores",
    ),
    compiler("FERRY_CC", "command; cc", "C compiler of mpicc"),
    compiler("FERRY_CXX", "command; c++", "C++ compiler of mpicxx"),
    compiler(
        "FERRY_FC",
        "command; gfortran",
        "Fortran compiler of mpifort",
    ),
    rank(
        "FERRY_INITIAL_ERRHANDLER",
        "mpi_errors_are_fatal, mpi_errors_abort, mpi_errors_return",
        "the error handler that predefined communicators begin with",
    ),
    rank("FERRY_LAUNCH_FD", "descriptor", "socket to mpiexec"),
    rank(
        "FERRY_PROGRAM_ENDED",
        "text",
        "why the program has ended for which another launcher's process stands",
    ),
    rank("FERRY_RANK", "number", "rank in MPI_COMM_WORLD"),
    rank("FERRY_SIZE", "number", "size of MPI_COMM_WORLD"),
    rank(
        "FERRY_SPAWN_PORT",
        "name of a port",
        "where who has started this process by PMIx awaits it",
    ),
    rank(
        "FERRY_WATCHED_FD",
        "descriptor and inode",
        "socket to the process that watches a program which another launcher has started",
    ),
    developer(
        "FERRY_CACHE",
        "folder; .cache",
        "virtual environments and downloads of the scripts",
    ),
    developer(
        "FERRY_DEVICE_TEST",
        "set by the test",
        "tells a test of ferry-device that it is a rank",
    ),
    developer(
        "FERRY_FUZZ_SECONDS",
        "seconds; 60 under make fuzz",
        "time for each fuzz test",
    ),
    developer("FERRY_FUZZ_SEED", "number", "repeats one fuzz run"),
    developer(
        "FERRY_INTEL_VENV",
        "folder",
        "virtual environment with Intel MPI's launcher",
    ),
    developer(
        "FERRY_MPICH_VENV",
        "folder",
        "virtual environment with MPICH's launcher and header",
    ),
    developer(
        "FERRY_NET_INSIDE",
        "set by the test",
        "tells tests/net that it is in its own network namespace",
    ),
    developer(
        "FERRY_OMPI_VENV",
        "folder",
        "virtual environment with Open MPI's launcher",
    ),
    developer(
        "FERRY_RAPIDIO_SEGMENTS",
        "number; 1,500,000, 100 million under make rapidio-soak",
        "segments of the RapidIO card's long test",
    ),
    developer(
        "FERRY_REFERENCE_HEADER",
        "file",
        "mpi.h of another standard-ABI library, to compare with",
    ),
    developer(
        "FERRY_TEST_SCRIPT",
        "set by the test",
        "what a rank of crates/cli/tests/ranks.rs does",
    ),
    developer(
        "FERRY_TEST_TIPC",
        "1",
        "conformance tests over TIPC, in a guest that has it",
    ),
];

/// The variable of this name.
pub fn find(name: &str) -> Option<&'static Variable> {
    ALL.iter().find(|v| v.name == name)
}

/// The message that there is no such variable, with the nearest one that a user may set. `None` if
/// `name` exists or is not Ferry's.
pub fn complaint(name: &str) -> Option<String> {
    if !name.starts_with("FERRY_") || find(name).is_some() {
        return None;
    }
    Some(match nearest(name) {
        Some(v) => format!("there is no setting {name}; did you mean {}?", v.name),
        None => format!("there is no setting {name}; ferry doctor --variables lists them all"),
    })
}

/// The variable whose name differs least from `name`, within a limit.
fn nearest(name: &str) -> Option<&'static Variable> {
    /// At most one letter in four may differ. A name with more differences is another name.
    const LETTERS_PER_MISTAKE: usize = 4;
    let given = name.trim_start_matches("FERRY_").to_uppercase();
    let allowed = (given.len() / LETTERS_PER_MISTAKE).max(1);
    ALL.iter()
        .filter(|v| matches!(v.audience, Audience::User | Audience::Compiler))
        .map(|v| {
            let known = v.name.trim_start_matches("FERRY_");
            (strsim::damerau_levenshtein(&given, known), v)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, v)| v)
}

/// The list as text for a terminal.
pub fn listing() -> String {
    let name_width = ALL.iter().map(|v| v.name.len()).max().unwrap_or(0);
    let value_width = ALL.iter().map(|v| v.values.len()).max().unwrap_or(0);
    let mut text = String::new();
    for audience in Audience::ALL {
        text += &format!("{}\n", audience.title());
        for v in ALL.iter().filter(|v| v.audience == audience) {
            text += &format!(
                "  {:name_width$}  {:value_width$}  {}\n",
                v.name, v.values, v.about
            );
        }
        text += "\n";
    }
    text + "A value after a semicolon holds where the variable is not set.\n"
}

/// The list as one Markdown table.
pub fn markdown() -> String {
    let row = |v: &Variable| {
        let setter = v.audience.setter();
        format!("| `{}` | {setter} | {} | {} |\n", v.name, v.values, v.about)
    };
    let rows: String = ALL.iter().map(row).collect();
    format!("| variable | set by | values; default | what it does |\n|---|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_gets_the_nearest_one() {
        let text = complaint("FERRY_TRANPORTS").unwrap();
        assert!(text.ends_with("did you mean FERRY_TRANSPORTS?"), "{text}");
        let text = complaint("FERRY_tcp_if").unwrap();
        assert!(text.contains("FERRY_TCP_IF"), "{text}");
        assert!(complaint("FERRY_MOON").unwrap().contains("lists them all"));
    }

    #[test]
    fn known_names_and_others_names_pass() {
        assert_eq!(complaint("FERRY_COLL_BCAST"), None);
        assert_eq!(complaint("FERRY_CACHE"), None);
        assert_eq!(complaint("FERRYMAN"), None);
    }

    #[test]
    fn the_list_is_in_order_and_each_entry_is_a_line() {
        let position = |v: &Variable| {
            let audience = Audience::ALL.iter().position(|a| *a == v.audience);
            (audience.unwrap(), v.name)
        };
        assert!(
            ALL.windows(2)
                .all(|two| position(&two[0]) < position(&two[1]))
        );
        assert!(
            ALL.iter()
                .all(|v| v.about.len() < 90 && !v.about.contains('|'))
        );
    }
}
