//! `ferry uninstall`: removes what `ferry install` wrote, and nothing else.

use std::fs;
use std::path::{Path, PathBuf};

use super::manifest::{self, Content, Entry, Manifest};

/// What was removed and what was left.
#[derive(Debug, Default)]
pub struct Removed {
    /// Files and links that are gone.
    pub files: usize,
    /// Files that are not as they were installed. They stay.
    pub changed: Vec<PathBuf>,
}

/// Removes the installation under `prefix`. Files that somebody else has changed or replaced
/// stay; so do folders that installing did not make, or that hold other files.
///
/// # Errors
/// One line if there is no list of what was installed, or a file cannot be removed.
pub fn uninstall(prefix: &Path) -> Result<Removed, String> {
    let manifest = Manifest::read(prefix)?.ok_or_else(|| {
        format!(
            "{} does not exist: there is no installation under {}",
            prefix.join(manifest::MANIFEST_PATH).display(),
            prefix.display()
        )
    })?;
    let mut removed = Removed::default();
    for entry in &manifest.files {
        remove_file(prefix, entry, &mut removed)?;
    }
    let list = prefix.join(manifest::MANIFEST_PATH);
    fs::remove_file(&list).map_err(|e| format!("{} cannot be removed: {e}", list.display()))?;
    for folder in manifest.folders.iter().rev() {
        // One that is not empty stays.
        let _ = fs::remove_dir(prefix.join(folder));
    }
    Ok(removed)
}

/// Removes files of an older installation that the newer one does not have.
///
/// # Errors
/// One line that names the file.
pub fn remove_outdated(prefix: &Path, old: &Manifest, new: &Manifest) -> Result<(), String> {
    let mut removed = Removed::default();
    for entry in &old.files {
        if new.files.iter().all(|n| n.path != entry.path) {
            remove_file(prefix, entry, &mut removed)?;
        }
    }
    Ok(())
}

fn remove_file(prefix: &Path, entry: &Entry, removed: &mut Removed) -> Result<(), String> {
    let path = prefix.join(&entry.path);
    match Content::of(&path) {
        Ok(content) if content == entry.content => {
            fs::remove_file(&path)
                .map_err(|e| format!("{} cannot be removed: {e}", path.display()))?;
            removed.files += 1;
        }
        Ok(_) => removed.changed.push(path),
        // Somebody has removed it already.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(format!("{} cannot be read: {e}", path.display())),
    }
    Ok(())
}
