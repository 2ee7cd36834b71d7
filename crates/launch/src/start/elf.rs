//! What ELF files ask the dynamic linker for, and where it finds it (ld.so(8)).

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, Sym};
use object::{Endianness, ReadCache, elf};

/// Libraries that are looked at for one program at most.
const LIBRARIES_MAX: usize = 512;
/// Folders that the dynamic linker searches after all others.
const SYSTEM_FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// Where further folders for the dynamic linker are named.
const LINKER_SETTINGS: &str = "/etc/ld.so.conf";
/// Settings that include each other are followed this deep.
const INCLUDES_MAX: usize = 4;

/// Which part of the search path leads to a library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// DT_RPATH of the file that needs it or of the program.
    Rpath,
    /// LD_LIBRARY_PATH.
    LibraryPath,
    /// DT_RUNPATH of the file that needs it.
    Runpath,
    /// The system's folders.
    System,
}

/// A library that a program needs, itself or through another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    /// Its name in DT_NEEDED.
    pub name: String,
    /// The file, where there is one of this kind of machine.
    pub file: Option<(PathBuf, FoundBy)>,
    /// The library that the program itself needs and that leads to this one.
    pub through: Option<String>,
}

/// Shows `visit` each library that a program needs, in the order in which the dynamic linker loads
/// them, until it breaks off. `library_path` is the LD_LIBRARY_PATH with which it will run. None if
/// the file is no ELF file of this kind of machine.
pub fn walk(
    program: &Path,
    library_path: Option<&OsStr>,
    mut visit: impl FnMut(&Library) -> ControlFlow<()>,
) -> Option<()> {
    let own = needs(program)?;
    // A DT_RPATH of the program holds for its libraries, too, and comes before LD_LIBRARY_PATH.
    let of_program = own.rpath.clone();
    let of_environment = library_path.map(split_path).unwrap_or_default();
    let mut system = None;
    let mut known: HashSet<String> = HashSet::new();
    let mut todo: VecDeque<(Option<String>, Needs)> = VecDeque::from([(None, own)]);
    while let Some((through, needs)) = todo.pop_front() {
        for name in needs.libraries {
            if known.len() >= LIBRARIES_MAX || !known.insert(name.clone()) {
                continue;
            }
            let system = system.get_or_insert_with(system_folders);
            let search_path = [
                (&needs.rpath, FoundBy::Rpath),
                (&of_program, FoundBy::Rpath),
                (&of_environment, FoundBy::LibraryPath),
                (&needs.runpath, FoundBy::Runpath),
                (&*system, FoundBy::System),
            ];
            let mut folders = search_path
                .iter()
                .flat_map(|(all, by)| all.iter().map(|folder| (folder.join(&name), *by)));
            let found = folders.find_map(|(file, by)| Some((self::needs(&file)?, file, by)));
            let (its_needs, file) = match found {
                Some((needs, file, by)) => (Some(needs), Some((file, by))),
                None => (None, None),
            };
            let library = Library {
                name,
                file,
                through: through.clone(),
            };
            if visit(&library).is_break() {
                return Some(());
            }
            if let Some(needs) = its_needs {
                todo.push_back((Some(through.clone().unwrap_or(library.name)), needs));
            }
        }
    }
    Some(())
}

/// A regular file. Opening a named pipe would wait for its other end.
fn open(path: &Path) -> Option<File> {
    fs::metadata(path).ok()?.is_file().then_some(())?;
    File::open(path).ok()
}

/// Names in a file's table of dynamic symbols.
#[derive(Clone, Default, Debug)]
pub struct Symbols {
    /// Those that it defines.
    pub defined: Vec<String>,
    /// Those that others must define. Weak ones are left out.
    pub undefined: Vec<String>,
}

/// The dynamic symbols of a file whose names `is_wanted`; none if it is no ELF file of this kind of
/// machine.
pub fn symbols(path: &Path, is_wanted: impl Fn(&str) -> bool) -> Option<Symbols> {
    let data = ReadCache::new(open(path)?);
    let header = elf::FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let table = sections.symbols(endian, &data, elf::SHT_DYNSYM).ok()?;
    let mut found = Symbols::default();
    for symbol in table.iter() {
        let name = symbol.name(endian, table.strings()).unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        if name.is_empty() || !is_wanted(&name) {
            continue;
        }
        if symbol.st_shndx(endian) != elf::SHN_UNDEF {
            found.defined.push(name.into());
        } else if symbol.st_bind() != elf::STB_WEAK {
            found.undefined.push(name.into());
        }
    }
    Some(found)
}

/// What an ELF file asks the dynamic linker for.
pub struct Needs {
    /// Names of libraries (DT_NEEDED).
    pub libraries: Vec<String>,
    /// Folders in which to look for them before LD_LIBRARY_PATH (DT_RPATH without DT_RUNPATH).
    pub rpath: Vec<PathBuf>,
    /// Folders in which to look for them after LD_LIBRARY_PATH (DT_RUNPATH).
    pub runpath: Vec<PathBuf>,
}

/// What a file needs; nothing if it is no ELF file of this kind of machine.
pub fn needs(path: &Path) -> Option<Needs> {
    let data = ReadCache::new(open(path)?);
    let header = elf::FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let dynamic = sections.dynamic_table(endian, &data).ok()?;
    let mut needs = Needs {
        libraries: Vec::new(),
        rpath: Vec::new(),
        runpath: Vec::new(),
    };
    let origin = fs::canonicalize(path).ok()?;
    let origin = origin.parent()?.as_os_str();
    for entry in &dynamic {
        match entry.tag {
            elf::DT_NEEDED => {
                let name = dynamic.string(entry).ok()?;
                needs.libraries.push(String::from_utf8_lossy(name).into());
            }
            elf::DT_RPATH | elf::DT_RUNPATH => {
                let text = dynamic.string(entry).ok()?;
                let path = with_origin(text, origin);
                let folders = match entry.tag {
                    elf::DT_RPATH => &mut needs.rpath,
                    _ => &mut needs.runpath,
                };
                folders.extend(split_path(&path));
            }
            _ => {}
        }
    }
    // The dynamic linker ignores DT_RPATH where there is DT_RUNPATH (ld.so(8)).
    if !needs.runpath.is_empty() {
        needs.rpath.clear();
    }
    Some(needs)
}

/// A search path with the folder of its file for $ORIGIN.
fn with_origin(text: &[u8], origin: &OsStr) -> OsString {
    let text = String::from_utf8_lossy(text);
    let origin = origin.to_string_lossy();
    let text = text.replace("${ORIGIN}", &origin);
    text.replace("$ORIGIN", &origin).into()
}

/// The folders of a search path. An empty one, which means the working directory, is left out.
fn split_path(path: &OsStr) -> Vec<PathBuf> {
    let folders = path.as_bytes().split(|&b| b == b':' || b == b';');
    let folders = folders.filter(|folder| !folder.is_empty());
    folders
        .map(|f| PathBuf::from(OsStr::from_bytes(f)))
        .collect()
}

/// Folders that the dynamic linker searches for all programs.
fn system_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    read_settings(Path::new(LINKER_SETTINGS), INCLUDES_MAX, &mut folders);
    folders.extend(SYSTEM_FOLDERS.map(PathBuf::from));
    folders
}

/// Folders that a file of the dynamic linker's settings names, and those that it includes.
fn read_settings(file: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    let text = fs::read_to_string(file).unwrap_or_default();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include ") {
            // Patterns there are of the form FOLDER/*.conf.
            let pattern = Path::new(pattern.trim());
            let folder = pattern.parent().unwrap_or(Path::new("/"));
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            let files = files.map(|entry| entry.path());
            for file in files.filter(|f| f.extension().is_some_and(|e| e == "conf")) {
                if depth > 0 {
                    read_settings(&file, depth - 1, folders);
                }
            }
        } else if line.starts_with('/') {
            folders.push(line.into());
        }
    }
}
