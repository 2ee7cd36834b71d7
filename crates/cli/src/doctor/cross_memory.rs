//! Whether the ranks of a node may read each other's memory (process_vm_readv), found by trying.

use super::{Finding, read};

/// What a probe with real processes said about process_vm_readv.
pub(super) struct CrossMemory {
    /// errno of reading a process that has not agreed; 0 if it worked.
    plain: i32,
    /// The same after it agreed (PR_SET_PTRACER), as ranks do.
    agreed: i32,
    scope: Option<String>,
}

impl CrossMemory {
    pub(super) fn allowed(&self) -> bool {
        self.agreed == 0
    }

    pub(super) fn finding(&self) -> Finding {
        let scope = self
            .scope
            .as_deref()
            .map_or("Yama is not there".into(), |s| {
                format!("kernel.yama.ptrace_scope is {s}")
            });
        let word = |errno: i32| match errno {
            0 => "allowed".to_string(),
            e => format!("refused ({})", std::io::Error::from_raw_os_error(e)),
        };
        let found = match (self.plain, self.agreed) {
            (0, _) => format!("CMA (process_vm_readv) between ranks: allowed; {scope}"),
            (p, 0) => format!(
                "CMA (process_vm_readv) between ranks: allowed since ranks agree to it ({} \
                 without); {scope}",
                word(p)
            ),
            (_, a) => format!("CMA (process_vm_readv) between ranks: {}; {scope}", word(a)),
        };
        let change = match (self.agreed, self.scope.as_deref()) {
            (0, _) => None,
            (_, Some("2" | "3")) => Some(
                "large messages are copied twice: sysctl kernel.yama.ptrace_scope=1 lets \
                    ranks read each other's memory"
                    .into(),
            ),
            _ => Some(
                "large messages are copied twice: let the container's seccomp filter pass \
                 process_vm_readv (docker run --cap-add=SYS_PTRACE)"
                    .into(),
            ),
        };
        Finding {
            topic: "single copy",
            found,
            change,
        }
    }
}

/// Forks a process that waits and one that reads its memory: siblings, as ranks are.
pub(super) fn cross_memory() -> CrossMemory {
    CrossMemory {
        plain: probe(false),
        agreed: probe(true),
        scope: read("/proc/sys/kernel/yama/ptrace_scope"),
    }
}

/// errno of one sibling reading another; 0 if it worked.
fn probe(agree: bool) -> i32 {
    let word: u64 = 0x6665_7272_7921;
    let mut ready = [0; 2];
    // SAFETY: the children make system calls only, on memory of their own, and end by _exit. Pids
    // are of children not yet waited for.
    unsafe {
        if libc::pipe(ready.as_mut_ptr()) != 0 {
            return *libc::__errno_location();
        }
        let parent = libc::getpid();
        let owner = libc::fork();
        if owner == 0 {
            if agree {
                libc::prctl(libc::PR_SET_PTRACER, parent as libc::c_ulong, 0, 0, 0);
            }
            libc::write(ready[1], (&raw const word).cast(), 1);
            libc::pause();
            libc::_exit(0);
        }
        let mut byte = 0u8;
        libc::read(ready[0], (&raw mut byte).cast(), 1);
        let reader = libc::fork();
        if reader == 0 {
            let mut copy = 0u64;
            let local = libc::iovec {
                iov_base: (&raw mut copy).cast(),
                iov_len: 8,
            };
            let remote = libc::iovec {
                iov_base: (&raw const word).cast_mut().cast(),
                iov_len: 8,
            };
            let n = libc::process_vm_readv(owner, &local, 1, &remote, 1, 0);
            libc::_exit(if n == 8 && copy == word {
                0
            } else {
                (*libc::__errno_location()).clamp(1, 255)
            });
        }
        let mut status = 0;
        libc::waitpid(reader, &mut status, 0);
        libc::kill(owner, libc::SIGKILL);
        libc::waitpid(owner, std::ptr::null_mut(), 0);
        libc::close(ready[0]);
        libc::close(ready[1]);
        if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            libc::EPERM
        }
    }
}
