//! Starting one rank.
//!
//! Uses clone(2) with CLONE_VM and CLONE_VFORK, as posix_spawn does. Nothing of mpiexec is copied,
//! so the cost of a start does not grow with the number of ranks. Unlike with posix_spawn, the
//! child can bind itself to cores and ask to die with mpiexec.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::process::Rlimit;

/// Number of the descriptor by which a rank inherits its socket. Shells use 3 to 9 for
/// redirections; small RLIMIT_NOFILE allow 20.
pub const RANK_SOCKET: RawFd = 19;

/// What a rank is started from. Prepared before the clone: after it, only async-signal-safe calls
/// are allowed.
pub struct SpawnSpec<'a> {
    /// The file to execute.
    pub program: &'a CStr,
    /// Its arguments, its name first.
    pub arguments: &'a [CString],
    /// Its environment.
    pub environment: &'a [CString],
    /// Variables that differ between ranks.
    pub own_environment: &'a [CString],
    /// Its working directory.
    pub wdir: Option<&'a CStr>,
    /// Standard input, output and error.
    pub standard: [BorrowedFd<'a>; 3],
    /// Becomes [`RANK_SOCKET`].
    pub socket: BorrowedFd<'a>,
    /// Mask of the CPUs to bind it to. Empty: not bound.
    pub affinity: &'a [u64],
    /// RLIMIT_NOFILE from before mpiexec raised it.
    pub descriptors: Rlimit,
    /// Reset these signals to their default action.
    pub default_signals: &'a [c_int],
    /// Signal mask from before mpiexec changed it.
    pub signal_mask: &'a libc::sigset_t,
    /// The rank writes its process group here before it executes the program, so that the
    /// parent-death watcher knows of it before it can have children. 0 again when the start fails.
    pub group: &'a AtomicI32,
}

/// A failed start.
#[derive(Debug)]
pub struct SpawnError {
    /// What was tried.
    pub step: &'static str,
    /// What the system said.
    pub cause: io::Error,
}

/// Memory for the child between clone and exec.
pub struct ChildStack {
    memory: Box<[MaybeUninit<u128>]>,
}

impl ChildStack {
    /// A stack of 64 KiB: the child makes system calls only.
    pub fn new() -> ChildStack {
        ChildStack {
            memory: Box::new_uninit_slice(64 * 1024 / 16),
        }
    }
}

/// What the child sees of its parent's memory.
struct Child<'a> {
    order: &'a SpawnSpec<'a>,
    program: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    parent: libc::pid_t,
    descriptors: libc::rlimit,
    failed_step: &'static str,
    failed_errno: c_int,
}

/// Starts a rank in a process group of its own. Returns its pid once the program runs. The caller
/// must have one thread and have blocked all signals: the rank is set to die with the thread that
/// started it.
pub fn spawn(order: &SpawnSpec<'_>, stack: &mut ChildStack) -> Result<i32, SpawnError> {
    match start(order, order.program, order.arguments, stack) {
        // A script without "#!" is run by the shell, as execvp does it.
        Err(refusal) if refusal.cause.raw_os_error() == Some(libc::ENOEXEC) => {
            let shell = c"/bin/sh";
            let mut arguments = vec![CString::from(shell), order.program.to_owned()];
            arguments.extend(order.arguments.iter().skip(1).cloned());
            if looks_binary(order.program, order.wdir) {
                Err(refusal)
            } else {
                start(order, shell, &arguments, stack)
            }
        }
        other => other,
    }
}

/// Is there a zero byte near the beginning of the file? Then it is no script.
fn looks_binary(program: &CStr, wdir: Option<&CStr>) -> bool {
    use std::io::Read;
    use std::os::unix::ffi::OsStrExt;
    let path = |text: &CStr| std::path::PathBuf::from(std::ffi::OsStr::from_bytes(text.to_bytes()));
    let program = wdir.map_or_else(|| path(program), |wdir| path(wdir).join(path(program)));
    let mut start = Vec::new();
    match std::fs::File::open(program).and_then(|f| f.take(256).read_to_end(&mut start)) {
        Ok(_) => start.is_empty() || start.contains(&0),
        Err(_) => true,
    }
}

fn start(
    order: &SpawnSpec<'_>,
    program: &CStr,
    arguments: &[CString],
    stack: &mut ChildStack,
) -> Result<i32, SpawnError> {
    let ended = |strings: &mut dyn Iterator<Item = &CString>| -> Vec<*const c_char> {
        strings.map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let argv = ended(&mut arguments.iter());
    let envp = ended(&mut order.environment.iter().chain(order.own_environment));
    let limit = |value: Option<u64>| value.unwrap_or(libc::RLIM_INFINITY);
    let mut child = Child {
        order,
        program: program.as_ptr(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        parent: std::process::id() as i32,
        descriptors: libc::rlimit {
            rlim_cur: limit(order.descriptors.current),
            rlim_max: limit(order.descriptors.maximum),
        },
        failed_step: "",
        failed_errno: 0,
    };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let top = stack.memory.as_mut_ptr_range().end;
    // SAFETY: the child runs `run_child` on memory of its own and this thread is held until it has
    // executed the program or ended, so everything it points to outlives its use. It only makes
    // system calls, and all signals are blocked.
    let pid = unsafe {
        libc::clone(
            run_child,
            top.cast(),
            flags,
            ptr::from_mut(&mut child).cast(),
        )
    };
    if pid < 0 {
        return Err(SpawnError {
            step: "making its process",
            cause: io::Error::last_os_error(),
        });
    }
    // The child wrote there before this thread went on.
    // SAFETY: a plain read of a field, volatile because the compiler cannot see the writer.
    let errno = unsafe { ptr::read_volatile(&raw const child.failed_errno) };
    if errno != 0 {
        // SAFETY: waits for the child just made; no status is wanted.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        order.group.store(0, Ordering::Relaxed);
        return Err(SpawnError {
            step: child.failed_step,
            cause: io::Error::from_raw_os_error(errno),
        });
    }
    Ok(pid)
}

extern "C" fn run_child(argument: *mut c_void) -> c_int {
    // SAFETY: `start` passes a Child that nobody else touches meanwhile.
    let child = unsafe { &mut *argument.cast::<Child<'_>>() };
    child.failed_step = set_up(child);
    // SAFETY: reads this thread's errno.
    child.failed_errno = unsafe { *libc::__errno_location() }.max(1);
    // SAFETY: ends the child alone, without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Sets everything up and executes the program. Returns only on failure, with the step that failed;
/// errno says why.
fn set_up(child: &Child<'_>) -> &'static str {
    let order = child.order;
    // SAFETY: system calls only (async-signal-safe), with pointers that `start` keeps valid until
    // exec.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return "asking to die with mpiexec";
        }
        if libc::getppid() != child.parent {
            libc::_exit(127);
        }
        if libc::setpgid(0, 0) != 0 {
            return "giving it a process group";
        }
        order.group.store(libc::getpid(), Ordering::Relaxed);
        if !order.affinity.is_empty()
            && libc::syscall(
                libc::SYS_sched_setaffinity,
                0,
                size_of_val(order.affinity),
                order.affinity.as_ptr(),
            ) != 0
        {
            return "binding it to its cores";
        }
        if let Some(wdir) = order.wdir
            && libc::chdir(wdir.as_ptr()) != 0
        {
            return "going to its working directory";
        }
        for (fd, number) in order.standard.iter().zip(0..) {
            if libc::dup2(fd.as_raw_fd(), number) < 0 {
                return "giving it its standard input, output and error";
            }
        }
        let socket = order.socket.as_raw_fd();
        let given = if socket == RANK_SOCKET {
            libc::fcntl(socket, libc::F_SETFD, 0)
        } else {
            libc::dup2(socket, RANK_SOCKET)
        };
        if given < 0 {
            return "giving it its socket (is RLIMIT_NOFILE below 20?)";
        }
        libc::setrlimit(libc::RLIMIT_NOFILE, &child.descriptors);
        for &signal in order.default_signals {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::sigprocmask(libc::SIG_SETMASK, order.signal_mask, ptr::null_mut());
        libc::execve(child.program, child.argv, child.envp);
    }
    "executing it"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// Starts the program under /dev/null and returns its wait status.
    fn status_of(
        program: &CStr,
        arguments: &[CString],
        wdir: Option<&CStr>,
    ) -> Result<i32, SpawnError> {
        let null = File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap();
        // SAFETY: an all-zero sigset_t is the empty set.
        let mask = unsafe { std::mem::zeroed() };
        let group = AtomicI32::new(0);
        let order = SpawnSpec {
            program,
            arguments,
            environment: &[c"A=1".into()],
            own_environment: &[c"B=2".into()],
            wdir,
            standard: [null.as_fd(); 3],
            socket: null.as_fd(),
            affinity: &[],
            descriptors: rustix::process::getrlimit(rustix::process::Resource::Nofile),
            default_signals: &[libc::SIGPIPE],
            signal_mask: &mask,
            group: &group,
        };
        let pid = spawn(&order, &mut ChildStack::new()).inspect_err(|_| {
            assert_eq!(group.load(Ordering::Relaxed), 0, "nothing runs");
        })?;
        assert_eq!(group.load(Ordering::Relaxed), pid);
        let mut status = 0;
        // SAFETY: waits for the child just started.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        Ok(libc::WEXITSTATUS(status))
    }

    #[test]
    fn a_program_runs_with_its_environment_and_directory() {
        let script: CString = c"test \"$A$B\" = 12 && test \"$(pwd)\" = / && exit 7".into();
        let status = status_of(
            c"/bin/sh",
            &[c"sh".into(), c"-c".into(), script],
            Some(c"/"),
        )
        .unwrap();
        assert_eq!(status, 7);
    }

    #[test]
    fn a_refusal_says_what_and_why() {
        let refusal = status_of(c"/no/such/program", &[c"x".into()], None).unwrap_err();
        assert_eq!(
            (refusal.step, refusal.cause.raw_os_error()),
            ("executing it", Some(libc::ENOENT))
        );
        let refusal = status_of(c"/bin/true", &[c"x".into()], Some(c"/no/such")).unwrap_err();
        assert_eq!(refusal.step, "going to its working directory");
    }
}
