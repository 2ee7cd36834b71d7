//! Finds the file that a program's name means.

use std::ffi::{OsStr, OsString};
use std::fs;
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
    if name.as_bytes().contains(&b'/') {
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
        let hint = if here.is_file() {
            format!("; there is one here: write ./{shown}")
        } else {
            String::new()
        };
        ProgramError {
            text: format!("program {shown} is not in PATH{hint}"),
            status: 127,
        }
    }))
}

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
    fn mistakes_are_told_apart() {
        assert!(error_of("./none-such", "").text.contains("does not exist"));
        assert!(error_of("/etc", "").text.contains("directory"));
        let plain = error_of("/etc/passwd", "");
        assert!(plain.text.contains("not executable") && plain.status == 126);
        let wdir = find("sh".as_ref(), Some("/no/such".as_ref()), None).unwrap_err();
        assert!(wdir.text.contains("working directory /no/such"));
    }
}
