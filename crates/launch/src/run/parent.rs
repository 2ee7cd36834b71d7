//! A job that a rank of another job has ordered (MPI_Comm_spawn): mpiexec in a mode of its own.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ferry_job::{ParentNews, ParentSocket, SpawnOrder, SpawnProgram};
use rustix::event::epoll;

use super::{Job, run_for};
use crate::options::{self, Action, AppContext, InheritedEnv, Options, StdinTarget};

/// The rank that has ordered the job.
pub(super) struct Parent {
    socket: ParentSocket,
    port: String,
    connected: bool,
    /// The rank was told that the job's ranks have failed. It decides what follows from that.
    has_failed: bool,
}

impl Parent {
    /// The port at which the rank waits for the job's ranks.
    pub(super) fn port(&self) -> &str {
        &self.port
    }

    /// Have the job's ranks connected to the rank's port?
    pub(super) fn is_connected(&self) -> bool {
        self.connected
    }

    /// Was the rank told that the job's ranks have failed?
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Tells the rank that all of the job's ranks have ended without failure.
    pub(super) fn ended(&mut self) {
        self.socket.ended();
    }

    /// Tells the rank that the job's ranks cannot be started, or have died, and why.
    pub(super) fn failed(&mut self, why: &str) {
        self.has_failed |= !self.connected;
        self.socket.failed(why);
    }
}

impl AsFd for Parent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Job<'_> {
    /// Reads what the rank that has ordered this job says.
    pub(super) fn read_parent(&mut self) {
        let Some(parent) = &mut self.parent else {
            return;
        };
        let news = parent.socket.news();
        if matches!(news, ParentNews::Released | ParentNews::Died) {
            // Closing it would not do: the starter of the ranks, a copy of this process, has it.
            let _ = epoll::delete(&self.poll, &parent.socket);
        }
        match news {
            ParentNews::Nothing => {}
            ParentNews::Connected => parent.connected = true,
            ParentNews::Released => self.parent = None,
            // It knows that they do not come, and waits no longer.
            ParentNews::Died if parent.has_failed => {}
            ParentNews::Died => {
                self.parent = None;
                // Its own launcher says what has happened.
                if self.shutdown.is_none() {
                    self.end("", 1);
                }
            }
        }
    }
}

/// The descriptor of this number, which the starter has passed on.
fn inherited(number: Option<&str>) -> Option<OwnedFd> {
    let number = number.and_then(|n| n.parse::<RawFd>().ok());
    let Some(number) = number.filter(|n| *n > 2) else {
        crate::complain("this option is for Ferry's own use");
        return None;
    };
    // SAFETY: inherited from the starter, for nobody else to use.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
    Some(socket)
}

/// Answers the question about a name that comes through a socket, whose number is given. Returns
/// the exit status.
pub fn answer_name(number: Option<OsString>) -> u8 {
    let number = number.unwrap_or_default();
    inherited(number.to_str()).map_or(2, super::names::answer_one)
}

/// Runs the job whose order comes through a socket. Returns the exit status.
///
/// `arguments`: `SOCKET[,UPSTREAM,FAMILY]`, then options. SOCKET is the descriptor to the rank,
/// UPSTREAM that to the launcher which has started this one, FAMILY that launcher's family.
/// `detached`: run in a process that is no child of its starter.
pub fn run_spawned(mut arguments: impl Iterator<Item = OsString>, detached: bool) -> u8 {
    let first = arguments.next().unwrap_or_default().into_string();
    let first = first.unwrap_or_default();
    let mut numbers = first.split(',');
    let Some(socket) = inherited(numbers.next()) else {
        return 2;
    };
    let family = numbers.next().and_then(|number| {
        let socket = inherited(Some(number))?;
        Some((UnixStream::from(socket), numbers.next()?.parse().ok()?))
    });
    if detached {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {}
            -1 => return 1,
            _ => return 0,
        }
    }
    let mut socket = ParentSocket::new(socket);
    let order = match socket.order() {
        Ok(order) => order,
        Err(e) => {
            socket.failed(&format!(
                "their launcher cannot read what is to be started: {e}"
            ));
            return 1;
        }
    };
    match options_of(&order, arguments) {
        Ok(options) => {
            let parent = Parent {
                socket,
                port: order.port,
                connected: false,
                has_failed: false,
            };
            run_for(&options, Some(parent), family)
        }
        Err(why) => {
            socket.failed(&why);
            0
        }
    }
}

/// The options of a job: those that its launcher was given, and those of the order.
fn options_of(
    order: &SpawnOrder,
    arguments: impl Iterator<Item = OsString>,
) -> Result<Options, String> {
    let arguments = arguments.chain(["--".into(), "program".into()]);
    let parsed = options::parse(arguments, |name| std::env::var(name).ok())?;
    let Action::Run(mut options) = parsed else {
        return Err("an option asks for something else than a job".into());
    };
    options.stdin = StdinTarget::None;
    options.timeout = None;
    options.apps.clear();
    for program in &order.programs {
        if !program.host_file.is_empty() {
            let path = Path::new(OsStr::from_bytes(&program.host_file));
            options.hosts = Some(options::host_file("file", path)?);
        }
        options.apps.push(app(program)?);
    }
    Ok(*options)
}

fn app(program: &SpawnProgram) -> Result<AppContext, String> {
    let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let hosts = String::from_utf8_lossy(&program.hosts);
    let hosts = match hosts.trim() {
        "" => None,
        list => Some(options::host_list("host", list)?),
    };
    let wdir = Some(PathBuf::from(text(&program.wdir))).filter(|d| !d.as_os_str().is_empty());
    let variable = |both: &Vec<u8>| {
        let at = both.iter().position(|&b| b == b'=').unwrap_or(both.len());
        (text(&both[..at]), text(both.get(at + 1..).unwrap_or(&[])))
    };
    Ok(AppContext {
        soft: None,
        count: Some(program.count),
        program: text(&program.command),
        arguments: program.arguments.iter().map(|a| text(a)).collect(),
        wdir,
        path: text(&program.path),
        inherited_env: InheritedEnv::All,
        set_env: program.variables.iter().map(variable).collect(),
        hosts,
    })
}
