//! PMIx through the launcher's own library, which is loaded at run time.
//!
//! Layouts and numbers are those of PMIx's public headers, versions 4 and 5 (`pmix_common.h`). Both
//! agree in all that is used here. Other versions are refused.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use super::kvs::{Kvs, launcher_error};
use crate::error::JobError;
use crate::spawn_order::{SpawnOrder, SpawnProgram};

const NSPACE_BYTES: usize = 256;
const RANK_WILDCARD: u32 = u32::MAX - 1;
const STRING: u16 = 3;
const UINT32: u16 = 14;
const SCOPE_GLOBAL: u8 = 3;
const SUCCESS: c_int = 0;
/// PMIX_ERR_NOT_SUPPORTED.
const NOT_SUPPORTED: c_int = -47;
/// The variable by which processes that PMIx has started find the port of who has started them.
const PORT_VARIABLE: &str = "FERRY_SPAWN_PORT";
/// PMIX_ERR_TIMEOUT and PMIX_ERR_NOT_FOUND: the value has not been put.
const ABSENT: [c_int; 2] = [-24, -46];
/// Longest value that is put. The library takes more, but compresses strings of over 4096 bytes
/// (the default of its setting). Version 5 returns such strings compressed.
const VALUE_MAX_BYTES: usize = 2048;
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
struct Proc {
    nspace: [c_char; NSPACE_BYTES],
    rank: u32,
}

/// pmix_value_t. The union's largest member has three words.
#[repr(C)]
struct Value {
    kind: u16,
    data: ValueData,
}
#[repr(C)]
union ValueData {
    string: *mut c_char,
    uint32: u32,
    room: [u64; 3],
}

/// pmix_app_t.
#[repr(C)]
struct App {
    command: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    directory: *const c_char,
    count: c_int,
    info: *const c_void,
    info_count: usize,
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
struct Library {
    init: Init,
    finalize: Finalize,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    abort: Abort,
    spawn: Spawn,
    resolve_nodes: ResolveNodes,
    resolve_peers: ResolvePeers,
    error_text: ErrorText,
}

struct Pmix {
    library: Library,
    /// The library's file, or its name.
    file: PathBuf,
    me: Proc,
    size: u32,
    appnum: u32,
}

/// Loads the library and connects to the launcher.
pub(super) fn connect() -> Result<Box<dyn Kvs>, JobError> {
    let (library, file) = load()?;
    let mut me = Proc {
        nspace: [0; NSPACE_BYTES],
        rank: 0,
    };
    // SAFETY: `me` is a pmix_proc_t; no directives are given.
    let code = unsafe { (library.init)(&mut me, ptr::null(), 0) };
    if code != SUCCESS {
        return Err(launcher_error(format!(
            "a launcher has started this program (PMIX_NAMESPACE is set), but PMIx_Init says: {}. \
             Was it started by another program that is in MPI itself, or is its launcher gone? \
             Unset PMIX_NAMESPACE to run it alone",
            library.text(code)
        )));
    }
    me.nspace[NSPACE_BYTES - 1] = 0;
    let mut pmix = Pmix {
        library,
        file,
        me,
        size: 0,
        appnum: 0,
    };
    pmix.size = pmix
        .number(RANK_WILDCARD, c"pmix.job.size")?
        .ok_or_else(|| {
            launcher_error("the launcher does not say how many ranks there are (PMIx)")
        })?;
    pmix.appnum = pmix
        .number(me.rank, c"pmix.appnum")
        .ok()
        .flatten()
        .unwrap_or(0);
    Ok(Box::new(pmix))
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

fn load() -> Result<(Library, PathBuf), JobError> {
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

    fn text(&self, code: c_int) -> String {
        // SAFETY: returns a string that lives for ever, for any number.
        let text = unsafe { (self.error_text)(code) };
        if text.is_null() {
            return code.to_string();
        }
        // SAFETY: a C string, as said.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({code})", text.to_string_lossy())
    }

    fn check(&self, what: &str, code: c_int) -> Result<(), JobError> {
        if code == SUCCESS {
            return Ok(());
        }
        let text = self.text(code);
        Err(launcher_error(format!("{what}: the launcher says {text}")))
    }
}

impl Pmix {
    fn of(&self, rank: u32) -> Proc {
        Proc { rank, ..self.me }
    }

    /// Fetches a value, and passes it to `take` if it is of this kind. `None` if it has not been
    /// put.
    fn fetch<T>(
        &self,
        rank: u32,
        key: &CStr,
        kind: u16,
        take: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, JobError> {
        let proc = self.of(rank);
        let mut value: *mut Value = ptr::null_mut();
        // SAFETY: all pointers are valid; no directives are given.
        let code = unsafe { (self.library.get)(&proc, key.as_ptr(), ptr::null(), 0, &mut value) };
        if ABSENT.contains(&code) {
            return Ok(None);
        }
        self.library.check(&format!("asking for {key:?}"), code)?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: a pmix_value_t that the library made for us. Of strings, both parts are ours to
        // free with the C library's free, as the header's PMIX_VALUE_RELEASE does; other
        // kinds are not asked for.
        unsafe {
            let found = (*value).kind;
            let taken = if found == kind { take(&*value) } else { None };
            if found == STRING {
                libc::free((*value).data.string.cast());
            }
            libc::free(value.cast());
            if found != kind {
                return Err(launcher_error(format!(
                    "the launcher has a value of kind {found} for {key:?} (PMIx), not of kind \
                     {kind}"
                )));
            }
            Ok(taken)
        }
    }

    fn number(&self, rank: u32, key: &CStr) -> Result<Option<u32>, JobError> {
        self.fetch(rank, key, UINT32, |value| {
            // SAFETY: `fetch` makes sure of the kind, which says which member holds.
            Some(unsafe { value.data.uint32 })
        })
    }

    /// Ranks of this job on a node.
    fn peers(&self, node: &CStr) -> Vec<u32> {
        let (mut procs, mut count) = (ptr::null_mut::<Proc>(), 0usize);
        // SAFETY: two strings, and where to put an array and its length.
        let code = unsafe {
            (self.library.resolve_peers)(
                node.as_ptr(),
                self.me.nspace.as_ptr(),
                &mut procs,
                &mut count,
            )
        };
        if code != SUCCESS || procs.is_null() {
            return Vec::new();
        }
        // SAFETY: an array of that length, made with malloc for us.
        unsafe {
            let ranks = std::slice::from_raw_parts(procs, count)
                .iter()
                .map(|p| p.rank)
                .collect();
            libc::free(procs.cast());
            ranks
        }
    }
}

impl Kvs for Pmix {
    fn rank(&self) -> u32 {
        self.me.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn appnum(&self) -> u32 {
        self.appnum
    }
    fn value_max(&self) -> usize {
        VALUE_MAX_BYTES
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError> {
        let text = |t: &str| CString::new(t).map_err(|_| launcher_error("a zero byte in a value"));
        let (name, value) = (text(key)?, text(value)?);
        // The key's parameter is an array of 512 bytes in some versions of the header.
        let mut padded = [0 as c_char; 512];
        for (to, from) in padded.iter_mut().zip(name.as_bytes().iter().take(511)) {
            *to = *from as c_char;
        }
        let mut holder = Value {
            kind: STRING,
            data: ValueData {
                string: value.as_ptr().cast_mut(),
            },
        };
        // SAFETY: the library copies key and value, and changes neither.
        let code = unsafe { (self.library.put)(SCOPE_GLOBAL, padded.as_ptr(), &mut holder) };
        self.library.check("leaving a value", code)
    }

    fn fence(&mut self) -> Result<(), JobError> {
        // SAFETY: without arguments.
        let code = unsafe { (self.library.commit)() };
        self.library.check("making values known", code)?;
        // No list of processes: all of the job. Values stay where they are until they are asked
        // for.
        // SAFETY: null and zero are allowed for both lists.
        let code = unsafe { (self.library.fence)(ptr::null(), 0, ptr::null(), 0) };
        self.library.check("waiting for the other ranks", code)
    }

    fn get(&mut self, owner: u32, key: &str) -> Result<Option<String>, JobError> {
        let key = CString::new(key).map_err(|_| launcher_error("a zero byte in a key"))?;
        self.fetch(owner, &key, STRING, |value| {
            // SAFETY: `fetch` makes sure of the kind, so this member holds; it is null or a C
            // string.
            unsafe {
                let string = value.data.string;
                (!string.is_null()).then(|| CStr::from_ptr(string).to_string_lossy().into_owned())
            }
        })
    }

    fn nodes(&mut self) -> Result<Option<Vec<u32>>, JobError> {
        let mut list: *mut c_char = ptr::null_mut();
        // SAFETY: a string, and where to put another.
        let code = unsafe { (self.library.resolve_nodes)(self.me.nspace.as_ptr(), &mut list) };
        if code != SUCCESS || list.is_null() {
            return Ok(None);
        }
        // SAFETY: a C string made with malloc for us.
        let names = unsafe {
            let names = CStr::from_ptr(list).to_string_lossy().into_owned();
            libc::free(list.cast());
            names
        };
        let mut node_of = vec![u32::MAX; self.size as usize];
        for (number, name) in (0u32..).zip(names.split(',')) {
            let Ok(name) = CString::new(name) else {
                continue;
            };
            for rank in self.peers(&name) {
                if let Some(node) = node_of.get_mut(rank as usize) {
                    *node = number;
                }
            }
        }
        Ok((!node_of.contains(&u32::MAX)).then_some(node_of))
    }

    /// The programs get this process's paths and settings of Ferry's: the launcher gives them those
    /// that it had itself when it started.
    fn spawn(&mut self, order: &SpawnOrder) -> Result<bool, JobError> {
        let chosen = |p: &SpawnProgram| !p.hosts.is_empty() || !p.host_file.is_empty();
        if order.programs.iter().any(chosen) {
            return Ok(false);
        }
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| launcher_error("a zero byte in what is to be started"))
        };
        let mut inherited = vec![text(format!("{PORT_VARIABLE}={}", order.port).as_bytes())?];
        for (name, value) in env::vars_os() {
            let is_own = name.as_bytes().starts_with(b"FERRY_") && name != PORT_VARIABLE;
            if is_own || name == "LD_LIBRARY_PATH" || name == "PATH" {
                inherited.push(text(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
            }
        }
        // Their parent is mpiexec, which has not loaded the launcher's library.
        if self.file.is_absolute() {
            let file = self.file.as_os_str().as_bytes();
            inherited.push(text(&[b"FERRY_PMIX_LIB=", file].concat())?);
        }
        let mut texts = Vec::new();
        for program in &order.programs {
            let mut arguments = vec![text(&program.command)?];
            for argument in &program.arguments {
                arguments.push(text(argument)?);
            }
            let mut environment = inherited.clone();
            for variable in &program.variables {
                environment.push(text(variable)?);
            }
            texts.push((arguments, environment, text(&program.wdir)?));
        }
        let list = |texts: &[CString]| -> Vec<*const c_char> {
            let ends = std::iter::once(ptr::null());
            texts.iter().map(|text| text.as_ptr()).chain(ends).collect()
        };
        let lists: Vec<_> = texts.iter().map(|t| (list(&t.0), list(&t.1))).collect();
        let programs = order.programs.iter().zip(&texts).zip(&lists);
        let apps: Vec<App> = programs
            .map(
                |((program, (names, _, wdir)), (arguments, environment))| App {
                    command: names[0].as_ptr(),
                    arguments: arguments.as_ptr(),
                    environment: environment.as_ptr(),
                    directory: if wdir.is_empty() {
                        ptr::null()
                    } else {
                        wdir.as_ptr()
                    },
                    count: program.count as c_int,
                    info: ptr::null(),
                    info_count: 0,
                },
            )
            .collect();
        let mut namespace = [0 as c_char; NSPACE_BYTES];
        // SAFETY: the library only reads the programs, whose texts and lists live until it returns,
        // and writes the new job's name, for which there is room.
        let code = unsafe {
            (self.library.spawn)(
                ptr::null(),
                0,
                apps.as_ptr(),
                apps.len(),
                namespace.as_mut_ptr(),
            )
        };
        if code == NOT_SUPPORTED {
            return Ok(false);
        }
        self.library.check("starting processes", code)?;
        Ok(true)
    }

    fn parent(&mut self) -> Result<Option<String>, JobError> {
        Ok(env::var(PORT_VARIABLE).ok().filter(|port| !port.is_empty()))
    }

    fn universe(&mut self) -> Option<u32> {
        self.number(RANK_WILDCARD, c"pmix.univ.size").ok().flatten()
    }

    fn abort(&mut self, code: i32, text: &str) {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: a string; no list of processes means all of the job.
        unsafe { (self.library.abort)(code, text.as_ptr(), ptr::null(), 0) };
    }

    fn finalize(&mut self) {
        // SAFETY: null and zero are allowed.
        unsafe { (self.library.finalize)(ptr::null(), 0) };
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
