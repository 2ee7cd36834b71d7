//! A program that another launcher starts by order of a rank: starts it and watches it. See
//! `ferry-job`, `watched.rs`.

use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use ferry_job::{NO_FOLDERS, PROGRAM_ENDED, WATCHED_FD, WatchSocket};

/// Signals that are passed on to the program. The launcher's SIGKILL reaches it through this
/// process's death.
const PASSED_ON: [c_int; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCONT,
    libc::SIGTSTP,
];

/// Starts a program and waits for its end. `arguments`: those behind the option. To be called from
/// the only thread of the process. Returns the exit status.
pub fn watch(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let (Some(library), Some(folders), Some(program)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        crate::complain("this option is for Ferry's own use");
        return 2;
    };
    let file = found(&folders, &program);
    let why = match start(&file, arguments) {
        Err(e) => format!("{} cannot be started: {e}", program.display()),
        Ok((mut child, socket)) => {
            let status = wait(&mut child);
            if socket.has_started() {
                return end_as(status);
            }
            let how = match (status.code(), status.signal()) {
                (Some(code), _) => format!("ended before MPI_Init, with exit status {code}"),
                (_, signal) => format!(
                    "was killed by signal {} before MPI_Init",
                    signal.unwrap_or(0)
                ),
            };
            format!("{} {how}", program.display())
        }
    };
    stand_in(&library, &why)
}

/// The program, looked for in the folders.
fn found(folders: &OsStr, program: &OsStr) -> OsString {
    if folders == NO_FOLDERS || program.as_bytes().contains(&b'/') {
        return program.into();
    }
    let mut files = std::env::split_paths(folders).map(|folder| folder.join(program));
    let file = files.find(|file| Path::new(file).is_file());
    file.map_or(program.into(), |file| file.into_os_string())
}

/// The set of these signals and SIGCHLD.
fn signals() -> libc::sigset_t {
    // SAFETY: a set is written before it is read.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

fn start(
    file: &OsStr,
    arguments: impl Iterator<Item = OsString>,
) -> io::Result<(Child, WatchSocket)> {
    let (socket, theirs, value) = WatchSocket::pair()?;
    let number = theirs.as_raw_fd();
    let parent = std::process::id() as i32;
    // SAFETY: the set is valid, and the one before is written before it is read.
    let before = unsafe {
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, &signals(), &mut before);
        before
    };
    let mut command = Command::new(file);
    command.args(arguments).env(WATCHED_FD, value);
    // SAFETY: only calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::fcntl(number, libc::F_SETFD, 0) < 0
                || libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) < 0
                || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0
            {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        })
    };
    command.spawn().map(|child| (child, socket))
}

/// Waits for the program's end, and passes signals on to it.
fn wait(child: &mut Child) -> ExitStatus {
    let set = signals();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return status;
        }
        let mut signal = 0;
        // SAFETY: a set of blocked signals, and where to put one.
        if unsafe { libc::sigwait(&set, &mut signal) } == 0 && signal != libc::SIGCHLD {
            // SAFETY: a plain system call; the child has not been waited for.
            unsafe { libc::kill(child.id() as i32, signal) };
        }
    }
}

/// Ends as the program has ended. Returns the exit status.
fn end_as(status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal() {
        // SAFETY: plain system calls, and a set that is written before it is read.
        unsafe {
            let no_core = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::signal(signal, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
            libc::raise(signal);
        }
    }
    status.code().unwrap_or(1) as u8
}

/// Takes the program's place in MPI_Init, which tells why it has ended. Returns the exit status if
/// that fails.
fn stand_in(library: &OsStr, why: &str) -> u8 {
    type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var(PROGRAM_ENDED, why) };
    let Ok(name) = CString::new(library.as_bytes()) else {
        return 1;
    };
    // SAFETY: Ferry's own library, whose MPI_Init has this type and takes null for both.
    unsafe {
        let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        let init = match handle.is_null() {
            true => std::ptr::null_mut(),
            false => libc::dlsym(handle, c"MPI_Init".as_ptr()),
        };
        if init.is_null() {
            crate::complain(&format!("{why}, which cannot be told"));
            return 1;
        }
        std::mem::transmute::<*mut c_void, Init>(init)(std::ptr::null_mut(), std::ptr::null_mut());
    }
    // MPI_Init ends this process where it can tell.
    1
}
