//! Installing, installing again and uninstalling, with files that stand for cargo's products.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

/// A scratch folder with products in `from`; it goes when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let top = std::env::temp_dir().join(format!("ferry-{name}-{}", std::process::id()));
        let from = top.join("from");
        fs::create_dir_all(&from).unwrap();
        for product in [
            "libmpi_abi.so",
            "libferry_mx.so",
            "mpiexec",
            "mpicc",
            "ferry",
        ] {
            fs::write(from.join(product), product).unwrap();
        }
        Scratch(top)
    }

    fn from(&self) -> PathBuf {
        self.0.join("from")
    }

    fn prefix(&self) -> PathBuf {
        self.0.join("prefix")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Everything below a folder.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

#[test]
fn an_installation_is_whole_and_can_be_repeated() {
    let scratch = Scratch::new("install");
    let (from, prefix) = (scratch.from(), scratch.prefix());
    install(&from, &prefix, None).unwrap();
    let written = install(&from, &prefix, None).unwrap();
    assert!(
        written.iter().all(|f| prefix.join(f).exists()),
        "{written:?}"
    );
    let read = |place: &str| fs::read_to_string(prefix.join(place)).unwrap();
    assert_eq!(read("bin/mpirun"), "mpiexec");
    assert_eq!(read("lib/ferry/libmpi_abi.so.1"), "libmpi_abi.so");
    assert!(read("include/mpi.h").contains("MPI_Init"));
    assert!(read("lib/pkgconfig/mpi-c.pc").contains("-lmpi_abi"));
    assert_eq!(read("lib/libferry_mx.so"), "libferry_mx.so");
    assert!(read("include/ferry_mx.h").contains("mx_isend"));
    assert!(read("lib/pkgconfig/ferry_mx.pc").contains("-lferry_mx"));
    assert!(read("lib/pkgconfig/mpi-fort.pc").contains("ferry-without-fortran"));
    let unfinished = |f: &PathBuf| f.to_string_lossy().contains(".new");
    assert!(!tree(&prefix).iter().any(unfinished));
    fs::remove_file(from.join("mpicc")).unwrap();
    let error = install(&from, &prefix, None).unwrap_err();
    assert!(error.contains("mpicc does not exist"));
    // The MX library was not built this time: what the last installation had of it goes.
    fs::write(from.join("mpicc"), "mpicc").unwrap();
    fs::remove_file(from.join("libferry_mx.so")).unwrap();
    install(&from, &prefix, None).unwrap();
    assert!(!prefix.join("include/ferry_mx.h").exists());
}

#[test]
fn uninstalling_removes_what_was_installed_and_nothing_else() {
    let scratch = Scratch::new("uninstall");
    let (from, prefix) = (scratch.from(), scratch.prefix());
    fs::create_dir_all(prefix.join("share/man")).unwrap();
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::write(prefix.join("bin/other"), "other").unwrap();
    install(&from, &prefix, None).unwrap();
    // A second installation remembers which folders the first one made.
    let written = install(&from, &prefix, None).unwrap();
    fs::write(prefix.join("include/other.h"), "other").unwrap();
    fs::write(prefix.join("bin/mpicc"), "another MPI's").unwrap();
    let removed = uninstall(&prefix).unwrap();
    assert_eq!(removed.changed, [prefix.join("bin/mpicc")]);
    assert_eq!(
        removed.files + 2,
        written.len(),
        "all but the list and mpicc"
    );
    let mut left = tree(&prefix);
    left.sort();
    let expected = [
        "bin",
        "bin/mpicc",
        "bin/other",
        "include",
        "include/other.h",
    ];
    let expected = expected.into_iter().chain(["share", "share/man"]);
    assert_eq!(left, expected.map(|f| prefix.join(f)).collect::<Vec<_>>());
    assert!(uninstall(&prefix).unwrap_err().contains("no installation"));
}

#[test]
fn files_that_a_newer_version_does_not_have_go() {
    let scratch = Scratch::new("upgrade");
    let (from, prefix) = (scratch.from(), scratch.prefix());
    install(&from, &prefix, None).unwrap();
    let old = prefix.join("bin/mpiold");
    fs::write(&old, "old").unwrap();
    let mut list = Manifest::read(&prefix).unwrap().unwrap();
    list.files.push(Entry {
        path: "bin/mpiold".into(),
        content: manifest::Content::of(&old).unwrap(),
    });
    fs::write(prefix.join(manifest::MANIFEST_PATH), list.text()).unwrap();
    install(&from, &prefix, None).unwrap();
    assert!(!old.exists());
}

#[test]
fn fortran_is_installed_with_the_modules_of_its_compiler() {
    let scratch = Scratch::new("fortran");
    let (from, prefix) = (scratch.from(), scratch.prefix());
    let place = |name: &str, text: &str| {
        let path = from.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let products = fortran::Products {
        other_abis: Vec::new(),
        library: place(fortran::LIBRARY, "library"),
        modules: Some(("fc-1".into(), vec![place("mpi.mod", "module")])),
    };
    install(&from, &prefix, Some(&products)).unwrap();
    let read = |place: &str| fs::read_to_string(prefix.join(place)).unwrap();
    assert_eq!(read("lib/libmpifort_abi.so"), "library");
    assert_eq!(read("lib/ferry/fortran/fc-1/mpi.mod"), "module");
    assert!(read("lib/ferry/fortran/mpi_f08.F90").contains("module mpi_f08"));
    assert!(read("include/mpif.h").contains("MPI_COMM_WORLD"));
    assert!(read("lib/pkgconfig/mpi-fort.pc").contains("ferry/fortran/fc-1"));
    install(&from, &prefix, None).unwrap();
    assert!(!prefix.join("include/mpif.h").exists());
}
