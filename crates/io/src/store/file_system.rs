//! Which file system holds a file.

/// The file system that holds a file, as far as its costs and abilities differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    /// On a device of this host: ext, XFS, Btrfs, ZFS, F2FS, overlay.
    Local,
    /// In memory.
    Tmpfs,
    /// Network File System.
    Nfs,
    /// A server in user space.
    Fuse,
    /// Lustre.
    Lustre,
    /// IBM Storage Scale.
    Gpfs,
    /// Another one, by its number (statfs(2), `f_type`).
    Other(u64),
}

impl FileSystem {
    /// The file system with this number in statfs(2).
    pub fn of_magic(magic: u64) -> FileSystem {
        match magic & 0xffff_ffff {
            // ext2 to ext4, XFS, Btrfs, ZFS, F2FS, overlay.
            0xef53 | 0x5846_5342 | 0x9123_683e | 0x2fc1_2fc1 | 0xf2f5_2010 | 0x794c_7630 => {
                FileSystem::Local
            }
            // tmpfs, ramfs, hugetlbfs.
            0x0102_1994 | 0x8584_58f6 | 0x9584_58f6 => FileSystem::Tmpfs,
            0x6969 => FileSystem::Nfs,
            0x6573_5546 => FileSystem::Fuse,
            0x0bd0_0bd0 => FileSystem::Lustre,
            0x4750_4653 => FileSystem::Gpfs,
            other => FileSystem::Other(other),
        }
    }

    /// The file system of an existing file or folder.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_path(path: &std::path::Path) -> std::io::Result<FileSystem> {
        let found = rustix::fs::statfs(path)?;
        Ok(FileSystem::of_magic(found.f_type as u64))
    }

    /// Returns whether calls may go to another host, and cost by the message.
    pub fn is_remote(self) -> bool {
        !matches!(self, FileSystem::Local | FileSystem::Tmpfs)
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Local => "local",
            FileSystem::Tmpfs => "tmpfs",
            FileSystem::Nfs => "NFS",
            FileSystem::Fuse => "FUSE",
            FileSystem::Lustre => "Lustre",
            FileSystem::Gpfs => "GPFS",
            FileSystem::Other(_) => "unknown",
        }
    }
}
