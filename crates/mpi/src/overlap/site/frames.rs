//! Where in the program a call stands: the return addresses on its stack that identify a site.

use super::FRAMES_PER_SITE;
use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

struct Walk {
    found: [usize; FRAMES_PER_SITE],
    count: usize,
}

fn module(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: zeros are valid for the structure, and it is filled or left.
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        (libc::dladdr(address as *const c_void, &raw mut info) != 0).then_some(info)
    }
}

/// Returns whether the address is in the library. The dynamic linker takes microseconds to answer,
/// so answers are kept: the library does not move.
fn is_own(address: usize) -> bool {
    static KNOWN: Mutex<Option<HashMap<usize, bool>>> = Mutex::new(None);
    let base = |address| module(address).map(|m| m.dli_fbase as usize);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    *known.entry(address).or_insert_with(|| {
        base(address).is_some_and(|b| Some(b) == base(each as *const () as usize))
    })
}

extern "C" fn each(context: *mut c_void, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the walk below, the context the unwinder's.
    unsafe {
        let walk = &mut *argument.cast::<Walk>();
        let at = _Unwind_GetIP(context);
        let own = walk.count == 0 && is_own(at);
        if at == 0 || own {
            return 0;
        }
        walk.found[walk.count] = at;
        walk.count += 1;
        if walk.count == FRAMES_PER_SITE { 4 } else { 0 }
    }
}

/// Where in the program the call stands: return addresses outside the library, innermost first;
/// 0: none.
pub fn of_program() -> [usize; FRAMES_PER_SITE] {
    let mut walk = Walk {
        found: [0; FRAMES_PER_SITE],
        count: 0,
    };
    // SAFETY: the walk outlives the call.
    unsafe { _Unwind_Backtrace(each, (&raw mut walk).cast()) };
    walk.found
}

/// An address as the file that it is in and its place there, with the function's name if that
/// is known.
pub fn name(address: usize) -> String {
    let Some(info) = module(address) else {
        return "?".into();
    };
    let text = |p: *const libc::c_char| {
        // SAFETY: null, or a string of the dynamic linker's.
        (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
    };
    let file = text(info.dli_fname).unwrap_or_default();
    let file = file.rsplit('/').next().unwrap_or_default();
    let offset = address - info.dli_fbase as usize;
    match text(info.dli_sname) {
        Some(function) => format!("{file}:{function}+{offset:#x}"),
        None => format!("{file}+{offset:#x}"),
    }
    .replace(char::is_whitespace, "_")
}
