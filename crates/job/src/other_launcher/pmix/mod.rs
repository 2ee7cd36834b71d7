//! The store of a launcher that speaks PMIx.

mod library;

use std::env;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use super::kvs::{Kvs, launcher_error};
use crate::error::JobError;
use crate::spawn_order::{SpawnOrder, SpawnProgram};
use library::{
    ABSENT, App, KEY_BYTES, Library, NOT_SUPPORTED, NSPACE_BYTES, Proc, RANK_WILDCARD,
    SCOPE_GLOBAL, STRING, SUCCESS, UINT32, Value, ValueData, load,
};

/// The variable by which processes that PMIx has started find the port of who has started them.
const PORT_VARIABLE: &str = "FERRY_SPAWN_PORT";
/// Longest value that is put. The library takes more, but compresses strings of over 4096 bytes
/// (the default of its setting). Version 5 returns such strings compressed.
const VALUE_MAX_BYTES: usize = 2048;

/// This rank at its launcher.
struct Pmix {
    library: Library,
    /// The library's file, or its name.
    file: PathBuf,
    me: Proc,
    /// Ranks of the job.
    size: u32,
    /// Number of the rank's program (MPI_APPNUM).
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

impl Pmix {
    /// A rank of this job, as PMIx names it.
    fn process(&self, rank: u32) -> Proc {
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
        let proc = self.process(rank);
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

    /// Fetches a number. `None` if it has not been put.
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

    /// The variables that started processes get: the launcher would give them its own paths and
    /// settings, so this process's go with them, and the port by which they find it.
    fn inherited_environment(&self, port: &str) -> Result<Vec<CString>, JobError> {
        let mut variables = vec![c_text(format!("{PORT_VARIABLE}={port}").as_bytes())?];
        for (name, value) in env::vars_os() {
            let is_own = name.as_bytes().starts_with(b"FERRY_") && name != PORT_VARIABLE;
            if is_own || name == "LD_LIBRARY_PATH" || name == "PATH" {
                variables.push(c_text(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
            }
        }
        // Their parent is mpiexec, which has not loaded the launcher's library.
        if self.file.is_absolute() {
            let file = self.file.as_os_str().as_bytes();
            variables.push(c_text(&[b"FERRY_PMIX_LIB=", file].concat())?);
        }
        Ok(variables)
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
        // The key's parameter is an array of this length in some versions of the header.
        let mut padded = [0 as c_char; KEY_BYTES];
        for (to, from) in padded
            .iter_mut()
            .zip(name.as_bytes().iter().take(KEY_BYTES - 1))
        {
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

    fn spawn(&mut self, order: &SpawnOrder) -> Result<bool, JobError> {
        let names_hosts = |p: &SpawnProgram| !p.hosts.is_empty() || !p.host_file.is_empty();
        if order.programs.iter().any(names_hosts) {
            return Ok(false);
        }
        let inherited = self.inherited_environment(&order.port)?;
        let programs = order.programs.iter();
        let texts = programs
            .map(|program| ProgramTexts::of(program, &inherited))
            .collect::<Result<Vec<_>, JobError>>()?;
        let apps: Vec<App> = texts.iter().map(ProgramTexts::app).collect();
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

/// A C string of these bytes.
fn c_text(bytes: &[u8]) -> Result<CString, JobError> {
    CString::new(bytes).map_err(|_| launcher_error("a zero byte in what is to be started"))
}

/// C strings of these bytes.
fn ctexts<'a>(all: impl Iterator<Item = &'a Vec<u8>>) -> Result<Vec<CString>, JobError> {
    all.map(|bytes| c_text(bytes)).collect()
}

/// A program to start, in C strings and lists of them that a null pointer ends.
struct ProgramTexts {
    command: *const c_char,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    directory: *const c_char,
    count: c_int,
    /// What the pointers lead to.
    texts: Vec<CString>,
}

impl ProgramTexts {
    fn of(program: &SpawnProgram, inherited: &[CString]) -> Result<ProgramTexts, JobError> {
        let arguments = std::iter::once(&program.command).chain(&program.arguments);
        let arguments = ctexts(arguments)?;
        let mut environment = inherited.to_vec();
        environment.extend(ctexts(program.variables.iter())?);
        let directory = c_text(&program.wdir)?;
        let list = |texts: &[CString]| -> Vec<*const c_char> {
            let end = std::iter::once(ptr::null());
            texts.iter().map(|text| text.as_ptr()).chain(end).collect()
        };
        let mut program = ProgramTexts {
            command: arguments[0].as_ptr(),
            arguments: list(&arguments),
            environment: list(&environment),
            directory: match directory.is_empty() {
                true => ptr::null(),
                false => directory.as_ptr(),
            },
            count: program.count as c_int,
            texts: arguments,
        };
        // Moved, not cloned: the pointers lead to the bytes of these.
        program.texts.extend(environment);
        program.texts.push(directory);
        Ok(program)
    }

    /// The same as a pmix_app_t. Valid as long as this.
    fn app(&self) -> App {
        App {
            command: self.command,
            arguments: self.arguments.as_ptr(),
            environment: self.environment.as_ptr(),
            directory: self.directory,
            count: self.count,
            info: ptr::null(),
            info_count: 0,
        }
    }
}
