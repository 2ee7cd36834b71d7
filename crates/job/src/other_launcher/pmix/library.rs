//! The launcher's PMIx library, loaded at run time: its data layouts, constants and functions.
//!
//! Layouts and numbers are those of PMIx's public headers, versions 4 and 5 (`pmix_common.h`). Both
//! agree in all that is used here. Other versions are refused.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::super::kvs::launcher_error;
use crate::error::JobError;

/// PMIX_MAX_NSLEN and a zero byte.
pub(super) const NSPACE_BYTES: usize = 256;
/// PMIX_MAX_KEYLEN and a zero byte.
pub(super) const KEY_BYTES: usize = 512;
/// PMIX_RANK_WILDCARD: the job rather than one of its ranks.
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;
/// PMIX_STRING, the kind of a value.
pub(super) const STRING: u16 = 3;
/// PMIX_UINT32, the kind of a value.
pub(super) const UINT32: u16 = 14;
/// PMIX_GLOBAL: all ranks of the job see a value.
pub(super) const SCOPE_GLOBAL: u8 = 3;
/// PMIX_SUCCESS.
pub(super) const SUCCESS: c_int = 0;
/// PMIX_ERR_NOT_SUPPORTED.
pub(super) const NOT_SUPPORTED: c_int = -47;
/// PMIX_ERR_TIMEOUT and PMIX_ERR_NOT_FOUND: the value has not been put.
pub(super) const ABSENT: [c_int; 2] = [-24, -46];
/// The library's name. Its major interface version is 2 since PMIx 2.
const LIBRARY: &str = "libpmix.so.2";
/// Folders of distributions outside of the loader's path.
const FOLDERS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/pmix2/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/lib",
    "/opt/pmix/lib",
];

/// pmix_proc_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub(super) nspace: [c_char; NSPACE_BYTES],
    pub(super) rank: u32,
}

/// pmix_value_t. The union's largest member has three words.
#[repr(C)]
pub(super) struct Value {
    pub(super) kind: u16,
    pub(super) data: ValueData,
}
#[repr(C)]
pub(super) union ValueData {
    pub(super) string: *mut c_char,
    pub(super) uint32: u32,
    room: [u64; 3],
}

/// pmix_app_t.
#[repr(C)]
pub(super) struct App {
    pub(super) command: *const c_char,
    pub(super) arguments: *const *const c_char,
    pub(super) environment: *const *const c_char,
    pub(super) directory: *const c_char,
    pub(super) count: c_int,
    pub(super) info: *const c_void,
    pub(super) info_count: usize,
}

type Init = unsafe extern "C" fn(*mut Proc, *const c_void, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const Proc,
    *const c_char,
    *const c_void,
    usize,
    *mut *mut Value,
) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *const Proc, usize) -> c_int;
type Spawn = unsafe extern "C" fn(*const c_void, usize, *const App, usize, *mut c_char) -> c_int;
type ResolveNodes = unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int;
type ResolvePeers =
    unsafe extern "C" fn(*const c_char, *const c_char, *mut *mut Proc, *mut usize) -> c_int;
type Text = unsafe extern "C" fn() -> *const c_char;
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions that are used. The library stays loaded: it has threads of its own.
#[derive(Clone, Copy)]
pub(super) struct Library {
    pub(super) init: Init,
    pub(super) finalize: Finalize,
    pub(super) put: Put,
    pub(super) commit: Commit,
    pub(super) fence: Fence,
    pub(super) get: Get,
    pub(super) abort: Abort,
    pub(super) spawn: Spawn,
    pub(super) resolve_nodes: ResolveNodes,
    pub(super) resolve_peers: ResolvePeers,
    error_text: ErrorText,
}

/// Files that may be the library, the likeliest first. A name without a slash is looked for by the
/// loader.
fn candidates() -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(given) = env::var_os("FERRY_PMIX_LIB").filter(|v| !v.is_empty()) {
        let given = PathBuf::from(given);
        return vec![if given.is_dir() {
            given.join(LIBRARY)
        } else {
            given
        }];
    }
    // The launcher's own library: another version may not understand it.
    let parent = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get());
    if let Ok(maps) = std::fs::read_to_string(format!("/proc/{parent}/maps")) {
        files.extend(library_in(&maps));
    }
    files.push(PathBuf::from(LIBRARY));
    files.extend(FOLDERS.iter().map(|folder| Path::new(folder).join(LIBRARY)));
    files
}

/// The library in a process's memory map.
fn library_in(maps: &str) -> Option<PathBuf> {
    let path = maps
        .lines()
        .filter_map(|line| line.split_once('/').map(|(_, path)| format!("/{path}")))
        .find(|path| {
            path.rsplit('/')
                .next()
                .is_some_and(|n| n.starts_with("libpmix.so"))
        })?;
    Some(path.into())
}

/// Loads the library. Returns its functions and its file.
pub(super) fn load() -> Result<(Library, PathBuf), JobError> {
    let mut tried = Vec::new();
    for file in candidates() {
        let Ok(name) = CString::new(file.as_os_str().as_bytes()) else {
            continue;
        };
        // SAFETY: loads a library, whose initialisers run; it is the launcher's, or what the user
        // named. Global, because it loads parts of itself that look for its symbols.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            tried.push(file.display().to_string());
            continue;
        }
        return Library::of(handle, &file).map(|library| (library, file));
    }
    Err(launcher_error(format!(
        "a launcher that speaks PMIx has started this program (PMIX_NAMESPACE is set), but its \
         library {LIBRARY} is not to be found (tried {}); set FERRY_PMIX_LIB to its file or folder",
        tried.join(", ")
    )))
}

/// The major version in "OpenPMIx 4.2.2 (…)" or "5.0.3".
fn major(version: &str) -> Option<u32> {
    let number = version
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .find(|w| w.contains('.') && w.starts_with(|c: char| c.is_ascii_digit()))?;
    number.split('.').next()?.parse().ok()
}

impl Library {
    /// Looks up the functions, if the version is one of those that Ferry knows.
    fn of(handle: *mut c_void, file: &Path) -> Result<Library, JobError> {
        let symbol = |name: &CStr| {
            // SAFETY: a handle of dlopen and a string.
            let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if at.is_null() {
                return Err(launcher_error(format!(
                    "{} has no function {}; set FERRY_PMIX_LIB to the launcher's own library",
                    file.display(),
                    name.to_string_lossy()
                )));
            }
            Ok(at)
        };
        // SAFETY: the functions have these types in PMIx 4 and 5; the version is looked at before
        // any other is called.
        let library = unsafe {
            use std::mem::transmute;
            let version: Text = transmute::<*mut c_void, Text>(symbol(c"PMIx_Get_version")?);
            let text = version();
            let text = if text.is_null() {
                String::new()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            };
            if !matches!(major(&text), Some(4 | 5)) {
                return Err(launcher_error(format!(
                    "{} is {text:?}; Ferry knows PMIx 4 and 5. Set FERRY_PMIX_LIB to one of these",
                    file.display()
                )));
            }
            Library {
                init: transmute::<*mut c_void, Init>(symbol(c"PMIx_Init")?),
                finalize: transmute::<*mut c_void, Finalize>(symbol(c"PMIx_Finalize")?),
                put: transmute::<*mut c_void, Put>(symbol(c"PMIx_Put")?),
                commit: transmute::<*mut c_void, Commit>(symbol(c"PMIx_Commit")?),
                fence: transmute::<*mut c_void, Fence>(symbol(c"PMIx_Fence")?),
                get: transmute::<*mut c_void, Get>(symbol(c"PMIx_Get")?),
                abort: transmute::<*mut c_void, Abort>(symbol(c"PMIx_Abort")?),
                spawn: transmute::<*mut c_void, Spawn>(symbol(c"PMIx_Spawn")?),
                resolve_nodes: transmute::<*mut c_void, ResolveNodes>(symbol(
                    c"PMIx_Resolve_nodes",
                )?),
                resolve_peers: transmute::<*mut c_void, ResolvePeers>(symbol(
                    c"PMIx_Resolve_peers",
                )?),
                error_text: transmute::<*mut c_void, ErrorText>(symbol(c"PMIx_Error_string")?),
            }
        };
        Ok(library)
    }

    /// The library's text for a status code.
    pub(super) fn text(&self, code: c_int) -> String {
        // SAFETY: returns a string that lives for ever, for any number.
        let text = unsafe { (self.error_text)(code) };
        if text.is_null() {
            return code.to_string();
        }
        // SAFETY: a C string, as said.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({code})", text.to_string_lossy())
    }

    /// An error that names `what`, unless the status code is [`SUCCESS`].
    pub(super) fn check(&self, what: &str, code: c_int) -> Result<(), JobError> {
        if code == SUCCESS {
            return Ok(());
        }
        let text = self.text(code);
        Err(launcher_error(format!("{what}: the launcher says {text}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<Proc>(), 260);
        assert_eq!(size_of::<Value>(), 32);
        assert_eq!(std::mem::offset_of!(Value, data), 8);
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(
            major("OpenPMIx 4.2.2 (PMIx Standard: 4.1, Stable ABI: 4.1)"),
            Some(4)
        );
        assert_eq!(major("OpenPMIx 5.0.11rc1, repo rev: x"), Some(5));
        assert_eq!(major("PMIx"), None);
    }

    #[test]
    fn the_launchers_own_library_is_found() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 12   /usr/lib/libc.so.6\n\
                    7f02-7f03 r--p 0 08:01 13  /opt/my mpi/lib/libpmix.so.2.13.1\n";
        let found = library_in(maps).unwrap();
        assert_eq!(found, Path::new("/opt/my mpi/lib/libpmix.so.2.13.1"));
        assert!(library_in("").is_none());
    }
}
