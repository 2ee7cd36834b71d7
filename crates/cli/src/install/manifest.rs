//! The list of what an installation wrote, kept with it: what `ferry uninstall` removes.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use ferry_cli::digest::digest;

/// Where the list is, below the prefix.
pub const MANIFEST_PATH: &str = "lib/ferry/installed";
const FIRST_LINE: &str = "Ferry MPI, installed files: kind, content, path";

/// What an installation wrote.
#[derive(Debug, Default, PartialEq)]
pub struct Manifest {
    /// Folders that did not exist before, each before those below it.
    pub folders: Vec<PathBuf>,
    /// Files and links.
    pub files: Vec<Entry>,
}

/// A file or link that an installation wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Below the prefix.
    pub path: PathBuf,
    /// What it held.
    pub content: Content,
}

/// What a file held, or where a link pointed.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// A digest of the file's bytes.
    File(u64),
    /// The link's target.
    Link(PathBuf),
}

impl Content {
    /// What is at `path` now.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn of(path: &Path) -> io::Result<Content> {
        if path.symlink_metadata()?.is_symlink() {
            Ok(Content::Link(fs::read_link(path)?))
        } else {
            Ok(Content::File(digest(&fs::read(path)?)))
        }
    }
}

impl Manifest {
    /// The list of the installation under `prefix`; none if there is none.
    ///
    /// # Errors
    /// One line if the list cannot be read or understood.
    pub fn read(prefix: &Path) -> Result<Option<Manifest>, String> {
        let path = prefix.join(MANIFEST_PATH);
        match fs::read_to_string(&path) {
            Ok(text) => Manifest::parse(&text)
                .map(Some)
                .map_err(|e| format!("{}: {e}", path.display())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{} cannot be read: {e}", path.display())),
        }
    }

    /// The list as text.
    pub fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for folder in &self.folders {
            text += &format!("folder\t-\t{}\n", folder.display());
        }
        for Entry { path, content } in &self.files {
            let path = path.display();
            text += &match content {
                Content::File(digest) => format!("file\t{digest:016x}\t{path}\n"),
                Content::Link(target) => format!("link\t{}\t{path}\n", target.display()),
            };
        }
        text
    }

    fn parse(text: &str) -> Result<Manifest, String> {
        let mut manifest = Manifest::default();
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err("this is not a list of installed files".into());
        }
        for line in lines {
            let wrong = || format!("a line is not understood: {line}");
            let mut fields = line.splitn(3, '\t');
            let (Some(kind), Some(content), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(wrong());
            };
            let path = PathBuf::from(path);
            // Nothing outside of the prefix is removed, whatever the list says.
            let inside = |c: Component<'_>| matches!(c, Component::Normal(_));
            if path.as_os_str().is_empty() || !path.components().all(inside) {
                return Err(wrong());
            }
            let content = match kind {
                "folder" => {
                    manifest.folders.push(path);
                    continue;
                }
                "file" => Content::File(u64::from_str_radix(content, 16).map_err(|_| wrong())?),
                "link" => Content::Link(content.into()),
                _ => return Err(wrong()),
            };
            manifest.files.push(Entry { path, content });
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_as_it_was_written() {
        let manifest = Manifest {
            folders: vec!["lib/ferry".into()],
            files: vec![
                Entry {
                    path: "bin/mpicc".into(),
                    content: Content::File(digest(b"mpicc")),
                },
                Entry {
                    path: "bin/mpicxx".into(),
                    content: Content::Link("mpicc".into()),
                },
            ],
        };
        assert_eq!(Manifest::parse(&manifest.text()), Ok(manifest));
    }

    #[test]
    fn a_list_stays_below_its_prefix() {
        for path in ["/etc/passwd", "../x", "a/../../x", "", "./x"] {
            let text = format!("{FIRST_LINE}\nfile\t0\t{path}\n");
            assert!(Manifest::parse(&text).is_err(), "{path}");
        }
        assert!(Manifest::parse("x").is_err());
        assert!(Manifest::parse(&format!("{FIRST_LINE}\nfile\tbin\n")).is_err());
    }
}
