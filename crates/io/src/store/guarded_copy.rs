//! Copying from and to mapped pages of a file that may go away.
//!
//! A page behind the end of the file, and one for which there is no memory, raise SIGBUS when they
//! are touched. The copy is a function of its own in assembly. The handler of SIGBUS knows its
//! instructions, and makes it return early with what is left.

use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

// rdi: to, rsi: from, rdx: bytes that are left. Vector registers instead of `rep movsb`, which is
// ten times as slow on some AMD processors if the target is not aligned as the source is.
std::arch::global_asm!(
    ".pushsection .text.ferry_io_guarded_copy, \"ax\", @progbits",
    ".globl ferry_io_guarded_copy",
    ".hidden ferry_io_guarded_copy",
    ".globl ferry_io_guarded_copy_end",
    ".hidden ferry_io_guarded_copy_end",
    ".type ferry_io_guarded_copy, @function",
    ".p2align 6",
    "ferry_io_guarded_copy:",
    "cmp rdx, 64",
    "jb 3f",
    ".p2align 5",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "jae 2b",
    "3:",
    "test rdx, rdx",
    "jz ferry_io_guarded_copy_end",
    "4:",
    "mov al, [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jnz 4b",
    "ferry_io_guarded_copy_end:",
    "mov rax, rdx",
    "ret",
    ".size ferry_io_guarded_copy, . - ferry_io_guarded_copy",
    ".popsection",
);

unsafe extern "sysv64" {
    fn ferry_io_guarded_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    /// Where it returns. Only the address means something.
    static ferry_io_guarded_copy_end: u8;
}

/// The handler of SIGBUS that was installed before. Never freed.
static PREVIOUS_ACTION: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

/// Copies `len` bytes that do not overlap. Returns how many it could copy before a page that is not
/// there; up to 63 bytes behind them may have been copied, too.
///
/// # Safety
/// Both are memory of the process, or pages of a mapped file, and [`install`] returned true.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> usize {
    // SAFETY: the caller's promise.
    len - unsafe { ferry_io_guarded_copy(to, from, len) }
}

/// Installs the handler of SIGBUS, once. It calls the one before for faults that are not the
/// copy's. Returns whether it is there.
pub(super) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    // SAFETY: both structures are valid, zeros included; the handler is safe in a signal.
    *INSTALLED.get_or_init(|| unsafe {
        let mut before = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGBUS, null(), &raw mut before) != 0 {
            return false;
        }
        PREVIOUS_ACTION.store(Box::into_raw(Box::new(before)), Ordering::SeqCst);
        let mut own = std::mem::zeroed::<libc::sigaction>();
        own.sa_sigaction = on_bus_error as *const () as usize;
        own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigaction(libc::SIGBUS, &raw const own, null_mut()) == 0
    })
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let start = ferry_io_guarded_copy as *const () as usize;
    let end = (&raw const ferry_io_guarded_copy_end) as usize;
    // SAFETY: the system passes the registers of the thread that was interrupted.
    let at = unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        &mut registers[libc::REG_RIP as usize]
    };
    if (start..end).contains(&(*at as usize)) {
        *at = end as i64;
        return;
    }
    // SAFETY: the arguments are the system's.
    unsafe { call_previous_handler(signal, info, context) };
}

/// Does what would have happened without this handler.
///
/// # Safety
/// The arguments are those of the handler.
unsafe fn call_previous_handler(
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let previous = PREVIOUS_ACTION.load(Ordering::SeqCst);
    // SAFETY: the pointer is null or never freed, and its handler has the form that its flags tell.
    unsafe {
        match previous.as_ref() {
            Some(action)
                if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN =>
            {
                let function = action.sa_sigaction as *const ();
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(function);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(i32) = std::mem::transmute(function);
                    handler(signal);
                }
            }
            // The access is made again, and ends the process as it always would.
            _ => {
                let mut default = std::mem::zeroed::<libc::sigaction>();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(libc::SIGBUS, &raw const default, null_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_all_lengths() {
        assert!(install());
        let from: Vec<u8> = (0..1000).map(|i| (i * 7 % 251) as u8).collect();
        for len in (0..200).chain([255, 256, 999]) {
            for shift in [0, 1, 24] {
                let mut to = vec![0; 1100];
                let len = len.min(from.len() - shift);
                // SAFETY: both have so many bytes.
                let done = unsafe { copy(to.as_mut_ptr(), from[shift..].as_ptr(), len) };
                assert_eq!(done, len);
                assert_eq!(to[..len], from[shift..shift + len]);
                assert!(to[len..].iter().all(|&b| b == 0));
            }
        }
    }
}
