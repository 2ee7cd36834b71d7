//! Finds the file that a program's name means.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Why a program cannot be started. The exit status is that of shells: 127 missing, 126 not
/// executable.
#[derive(Debug, PartialEq)]
pub struct ProgramError {
    /// The message for the user, one line.
    pub text: String,
    /// mpiexec's exit status.
    pub status: u8,
}

/// `name` in the first of these folders that has it, as a path relative to `wdir`. Itself if none
/// has it, or if it has a slash. `folders`: with colons between them.
pub fn in_folders(name: &OsStr, wdir: Option<&Path>, folders: &OsStr) -> OsString {
    if folders.is_empty() || name.as_bytes().contains(&b'/') {
        return name.into();
    }
    let base = wdir.unwrap_or(Path::new(""));
    let mut files = std::env::split_paths(folders).map(|folder| match folder.as_os_str() {
        here if here.is_empty() => Path::new(".").join(name),
        _ => folder.join(name),
    });
    let found = files.find(|file| base.join(file).is_file());
    found.map_or_else(|| name.into(), PathBuf::into_os_string)
}

/// The file that `name` means. A name with a slash is a path, relative to `wdir`. Others are looked
/// for in `path`.
pub fn find(
    name: &OsStr,
    wdir: Option<&Path>,
    path: Option<OsString>,
) -> Result<PathBuf, ProgramError> {
    let shown = name.to_string_lossy();
    if let Some(dir) = wdir
        && !dir.is_dir()
    {
        return Err(ProgramError {
            text: format!("the working directory {} does not exist", dir.display()),
            status: 127,
        });
    }
    if name.as_bytes().contains(&b'/') || matches!(name.as_bytes(), b"." | b"..") {
        let seen = wdir.map_or_else(|| PathBuf::from(name), |dir| dir.join(name));
        // The rank changes its directory before it executes the program, so the name stays as it
        // is.
        return check_executable(&seen, &shown).map(|()| PathBuf::from(name));
    }
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for dir in path.as_bytes().split(|&b| b == b':') {
        let dir = if dir.is_empty() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(dir))
        };
        let candidate = dir.join(name);
        if candidate.is_file() {
            match check_executable(&candidate, &candidate.to_string_lossy()) {
                // A link is not followed: programs look at the name by which they are called.
                Ok(()) => return Ok(std::path::absolute(&candidate).unwrap_or(candidate)),
                Err(e) => refused = refused.or(Some(e)),
            }
        }
    }
    Err(refused.unwrap_or_else(|| {
        let here = wdir.unwrap_or(Path::new(".")).join(name);
        let hint = match here.is_dir() {
            _ if here.is_file() => format!("; there is one here: write ./{shown}"),
            true => format!("; {shown} here is a directory"),
            false => String::new(),
        };
        ProgramError {
            text: format!("program {shown} is not in PATH{hint}"),
            status: 127,
        }
    }))
}

/// Why the system takes a file that may be executed for no program, in words.
pub fn why_no_program(file: &Path) -> String {
    let mut head = [0; 20];
    let read = fs::File::open(file).and_then(|mut file| file.read(&mut head));
    match (read, &head) {
        (Ok(0), _) => "the file is empty".into(),
        // The machine's number is at byte 18 of an ELF file's header (elf(5)).
        (Ok(20), [0x7f, b'E', b'L', b'F', .., low, high]) => {
            let machine = match u16::from_le_bytes([*low, *high]) {
                libc::EM_386 => "x86 of 32 bits".into(),
                libc::EM_ARM => "ARM of 32 bits".into(),
                libc::EM_AARCH64 => "AArch64".into(),
                libc::EM_PPC64 => "PowerPC".into(),
                libc::EM_X86_64 => "x86-64".into(),
                EM_RISCV => "RISC-V".into(),
                other => format!("machines of number {other} (elf.h)"),
            };
            let own = std::env::consts::ARCH.replace('_', "-");
            format!("it is a program for {machine}, and this machine is {own}")
        }
        _ => "it is neither a program nor a script that begins with #!".into(),
    }
}

/// Number of RISC-V in ELF files (elf.h).
const EM_RISCV: u16 = 243;

/// Checks that a file can be executed. `shown`: its name in messages.
fn check_executable(file: &Path, shown: &str) -> Result<(), ProgramError> {
    let (text, status) = match fs::metadata(file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            (format!("program {shown} does not exist"), 127)
        }
        Err(e) => (format!("program {shown} cannot be looked at: {e}"), 126),
        Ok(meta) if meta.is_dir() => (format!("{shown} is a directory, not a program"), 126),
        Ok(_) => match access(file, Access::EXEC_OK) {
            Ok(()) => return Ok(()),
            Err(_) => (
                format!("program {shown} is not executable; chmod +x {shown}?"),
                126,
            ),
        },
    };
    Err(ProgramError { text, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(name: &str, path: &str) -> ProgramError {
        find(name.as_ref(), None, Some(path.into())).unwrap_err()
    }

    #[test]
    fn a_name_is_looked_for_in_the_path() {
        let sh = find("sh".as_ref(), None, Some("/nowhere:/bin".into())).unwrap();
        assert!(sh.is_absolute() && sh.exists());
        assert_eq!(error_of("sh", "/nowhere").status, 127);
    }

    #[test]
    fn a_link_in_the_path_is_called_by_its_own_name() {
        let folder = std::env::temp_dir().join(format!("ferry-program-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let link = folder.join("by-another-name");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        let found = find("by-another-name".as_ref(), None, Some((&folder).into()));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, Ok(link));
    }

    #[test]
    fn what_is_no_program_is_told() {
        let file = std::env::temp_dir().join(format!("ferry-no-program-{}", std::process::id()));
        let told = |bytes: &[u8]| {
            fs::write(&file, bytes).unwrap();
            why_no_program(&file)
        };
        assert_eq!(told(b""), "the file is empty");
        let mut elf = *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xb7\0";
        let own = std::env::consts::ARCH.replace('_', "-");
        let expected = format!("it is a program for AArch64, and this machine is {own}");
        assert_eq!(told(&elf), expected);
        elf[18] = 1;
        assert!(told(&elf).contains("machines of number 1 (elf.h)"));
        assert!(told(b"hello").contains("neither a program nor a script"));
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn mistakes_are_told_apart() {
        assert!(error_of("./none-such", "").text.contains("does not exist"));
        assert!(error_of("/etc", "").text.contains("directory"));
        assert_eq!(error_of(".", "").text, ". is a directory, not a program");
        let plain = error_of("/etc/passwd", "");
        assert!(plain.text.contains("not executable") && plain.status == 126);
        let wdir = find("sh".as_ref(), Some("/no/such".as_ref()), None).unwrap_err();
        assert!(wdir.text.contains("working directory /no/such"));
    }
}
