//! Control variables: each FERRY_ setting that the library reads (MPI 5.0 §15.3.6).

use super::{Category, Enumeration, Result, ToolError, Type, Value, Verbosity, index_of};
use crate::coll::{Kind, process_setting, variable_name};
use crate::{Comm, device};
use std::sync::OnceLock;

/// The scope of a change of the variable (MPI 5.0 §15.3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// This process only.
    Local,
    /// All members of the communicator must set the same value.
    GroupEqual,
    /// It cannot be changed.
    ReadOnly,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    Yields,
    ReadMin,
    Algorithm(Kind),
    Environment(&'static str),
}

/// Settings that are read when the process or its job starts. Their value is that of the
/// environment. They cannot be changed.
const ENVIRONMENT: [(&str, &str, Category); 22] = [
    (
        "FERRY_ON_HANG",
        "what mpiexec does when all ranks wait for each other",
        Category::Waiting,
    ),
    (
        "FERRY_TRANSPORTS",
        "which transports may carry messages, in the order in which they are asked: self, shm, \
         tcp, tipc",
        Category::Transports,
    ),
    (
        "FERRY_TCP_IF",
        "the network interfaces or networks that TCP may use",
        Category::Transports,
    ),
    (
        "FERRY_TCP_TIMEOUT",
        "seconds for which a host may be silent before it counts as gone",
        Category::Transports,
    ),
    (
        "FERRY_TCP_CONGESTION",
        "the congestion control of TCP connections; system: the system's own",
        Category::Transports,
    ),
    (
        "FERRY_TCP_ZCOPY",
        "0: TCP copies large messages where they are sent; 1: the system takes them from where \
         they lie; otherwise what is found to be faster",
        Category::Transports,
    ),
    (
        "FERRY_TIPC_TYPE",
        "the TIPC service type under which ranks publish their names",
        Category::Transports,
    ),
    (
        "FERRY_ENCRYPT",
        "1: messages between hosts are encrypted",
        Category::Transports,
    ),
    (
        "FERRY_PROGRESS",
        "calls: progress in MPI calls only; thread: a thread makes progress also while the program \
         computes",
        Category::Waiting,
    ),
    (
        "FERRY_TIME_SLICE",
        "microseconds of the time slice that a waiting thread asks the system for; 0: it asks for \
         none",
        Category::Waiting,
    ),
    (
        "FERRY_OVERLAP",
        "whether blocking collectives overlap with what follows them: off, on (where it pays), \
         trace, always, or comm (where a communicator's info says so)",
        Category::Waiting,
    ),
    (
        "FERRY_OVERLAP_GUARD",
        "by what means data under way are guarded: move (userfaultfd), mprotect, off; otherwise \
         move where the system has it",
        Category::Waiting,
    ),
    (
        "FERRY_OVERLAP_MIN",
        "bytes that a collective must move here so that it may overlap",
        Category::Waiting,
    ),
    (
        "FERRY_OVERLAP_FILE",
        "the file of access orders, with each rank's number behind it: written by a trace run, \
         read by others",
        Category::Waiting,
    ),
    (
        "FERRY_OVERLAP_REPORT",
        "1: at the end each rank says what became of its call sites",
        Category::Waiting,
    ),
    (
        "FERRY_NAMES",
        "host:port of the server that keeps the names of MPI_Publish_name (ferry names)",
        Category::Job,
    ),
    (
        "FERRY_CONNECT_TIMEOUT",
        "seconds that MPI_Comm_connect and MPI_Comm_accept wait; otherwise for ever",
        Category::Job,
    ),
    (
        "FERRY_INITIAL_ERRHANDLER",
        "the error handler with which the process begins: mpi_errors_are_fatal, mpi_errors_abort \
         or mpi_errors_return",
        Category::Job,
    ),
    (
        "FERRY_PMI",
        "1 or 2: which PMI a program speaks with its launcher, where it would choose wrongly",
        Category::Job,
    ),
    (
        "FERRY_PMIX_LIB",
        "the file or folder of the launcher's libpmix.so.2",
        Category::Job,
    ),
    (
        "FERRY_BACKTRACE",
        "0: no backtrace when this process ends by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT",
        Category::Job,
    ),
    (
        "FERRY_SHOW_HANDLE_LEAKS",
        "1: MPI_Finalize names windows, files, communicators and requests that were not freed",
        Category::Job,
    ),
];

/// A control variable.
#[derive(Debug)]
pub struct Control {
    /// Its name, the same as in the environment.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its verbosity level.
    pub verbosity: Verbosity,
    /// Its category.
    pub category: Category,
    setting: Setting,
}

impl Control {
    /// All control variables, by index. The order never changes.
    pub fn all() -> &'static [Control] {
        static ALL: OnceLock<Vec<Control>> = OnceLock::new();
        ALL.get_or_init(|| {
            let mut all = vec![
                Control {
                    name: "FERRY_YIELDS".into(),
                    description: "where ranks outnumber cores: how often a waiting rank hands its \
                         core over at least before it sleeps (for up to 50 µs where the core is \
                         free; for up to 1 ms, however often, while large messages come or go \
                         between nodes)"
                        .into(),
                    verbosity: Verbosity::TunerBasic,
                    category: Category::Waiting,
                    setting: Setting::Yields,
                },
                Control {
                    name: "FERRY_SHM_READ_MIN".into(),
                    description: "bytes from which on this process reads a large message from its \
                         sender's memory instead of getting it in pieces; the greatest number: \
                    whichever was faster so far"
                        .into(),
                    verbosity: Verbosity::TunerBasic,
                    category: Category::Protocols,
                    setting: Setting::ReadMin,
                },
            ];
            all.extend(Kind::ALL.map(|kind| Control {
                name: variable_name(kind),
                description: format!(
                    "the algorithm of {} on this communicator: auto, messages (no board in shared \
                     memory), or its name",
                    kind.name()
                ),
                verbosity: Verbosity::TunerDetail,
                category: Category::Algorithms,
                setting: Setting::Algorithm(kind),
            }));
            all.extend(ENVIRONMENT.map(|(name, description, category)| Control {
                name: name.into(),
                description: description.into(),
                verbosity: Verbosity::UserBasic,
                category,
                setting: Setting::Environment(name),
            }));
            all
        })
    }

    /// The index of the variable of that name.
    pub fn index(name: &str) -> Result<usize> {
        index_of(Control::all(), name, |c| &c.name)
    }

    /// The type of its value.
    pub fn value_type(&self) -> Type {
        match self.setting {
            Setting::Yields => Type::Unsigned,
            Setting::ReadMin => Type::Large,
            Setting::Algorithm(_) => Type::Int,
            Setting::Environment(_) => Type::Text,
        }
    }

    /// The enumeration of its values.
    pub fn enumeration(&self) -> Option<Enumeration> {
        match self.setting {
            Setting::Algorithm(kind) => Some(Enumeration(kind)),
            _ => None,
        }
    }

    /// Its scope.
    pub fn scope(&self) -> Scope {
        match self.setting {
            Setting::Yields | Setting::ReadMin => Scope::Local,
            Setting::Algorithm(_) => Scope::GroupEqual,
            Setting::Environment(_) => Scope::ReadOnly,
        }
    }

    /// Is it bound to a communicator?
    pub fn is_of_comm(&self) -> bool {
        matches!(self.setting, Setting::Algorithm(_))
    }

    /// Its value. `comm` is given if the variable is bound to a communicator.
    pub fn read(&self, comm: Option<&Comm>) -> Result<Value> {
        Ok(match self.setting {
            Setting::Yields => Value::Unsigned(device::yields()),
            Setting::ReadMin => Value::Large(match device::read_min() {
                device::READ_MIN_ADAPTIVE => u64::MAX,
                bytes => bytes as u64,
            }),
            Setting::Algorithm(kind) => {
                let comm = comm.ok_or(ToolError::InvalidHandle)?;
                let own = comm.coll.settings.get(kind);
                Value::Int(Enumeration(kind).value(own.unwrap_or_else(|| process_setting(kind))))
            }
            Setting::Environment(name) => Value::Text(std::env::var(name).unwrap_or_default()),
        })
    }

    /// Sets its value, which applies from the next call that reads it.
    ///
    /// Errors: Invalid if its enumeration lacks the value. SetNever if it cannot be changed.
    pub fn write(&self, comm: Option<&Comm>, value: Value) -> Result<()> {
        match (self.setting, value) {
            (Setting::Yields, Value::Unsigned(n)) => device::set_yields(n),
            (Setting::ReadMin, Value::Large(n)) => {
                device::set_read_min(usize::try_from(n).unwrap_or(usize::MAX));
            }
            (Setting::Algorithm(kind), Value::Int(n)) => {
                let setting = Enumeration(kind).setting(n).ok_or(ToolError::Invalid)?;
                let comm = comm.ok_or(ToolError::InvalidHandle)?;
                comm.coll.settings.set(kind, setting);
            }
            (Setting::Environment(_), _) => return Err(ToolError::SetNever),
            _ => return Err(ToolError::Invalid),
        }
        Ok(())
    }
}
