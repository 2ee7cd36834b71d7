//! Which CPUs share a socket, a NUMA node or a third-level cache, as the kernel says.

use std::fs;
use std::path::Path;

use ferry_job::Cores;

use crate::options::Binding;

/// Where the kernel describes the CPUs.
pub const CPUS: &str = "/sys/devices/system/cpu";

/// The CPUs of `cores` in groups: those that share what `binding` names, in the order of their
/// first CPUs. `root` is [`CPUS`], but for tests.
///
/// # Errors
/// One line if the kernel does not say what a CPU shares with others.
pub fn groups(root: &Path, cores: &Cores, binding: Binding) -> Result<Vec<Vec<usize>>, String> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for &cpu in cores.cores.iter().flatten() {
        let folder = root.join(format!("cpu{cpu}"));
        let key = match binding {
            Binding::Socket => socket(&folder),
            Binding::Numa => numa_node(&folder),
            Binding::L3Cache => l3_cache(&folder),
            _ => Some(cpu.to_string()),
        };
        let key = key.ok_or_else(|| {
            format!(
                "--bind-to {}: the kernel does not say which CPUs share one ({})",
                name(binding),
                folder.display()
            )
        })?;
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, cpus)) => cpus.push(cpu),
            None => groups.push((key, vec![cpu])),
        }
    }
    Ok(groups.into_iter().map(|(_, cpus)| cpus).collect())
}

/// What a binding is called on the command line.
pub fn name(binding: Binding) -> &'static str {
    match binding {
        Binding::Share => "share",
        Binding::Core => "core",
        Binding::HwThread => "hwthread",
        Binding::L3Cache => "l3cache",
        Binding::Numa => "numa",
        Binding::Socket => "socket",
        Binding::None => "none",
    }
}

/// A CPU's socket. Some virtual machines have none, or -1.
fn socket(cpu: &Path) -> Option<String> {
    let id = fs::read_to_string(cpu.join("topology/physical_package_id")).ok()?;
    let id = id.trim();
    id.parse::<u32>().is_ok().then(|| id.into())
}

/// A CPU's NUMA node: its folder holds a link of the node's name.
fn numa_node(cpu: &Path) -> Option<String> {
    let names = fs::read_dir(cpu).ok()?.flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| {
        let number = name.strip_prefix("node");
        number.is_some_and(|n| n.parse::<u32>().is_ok())
    })
}

/// The list of CPUs that share a CPU's third-level cache.
fn l3_cache(cpu: &Path) -> Option<String> {
    let caches = fs::read_dir(cpu.join("cache")).ok()?.flatten();
    let mut caches = caches.map(|entry| entry.path()).filter(|cache| {
        let level = fs::read_to_string(cache.join("level"));
        level.is_ok_and(|level| level.trim() == "3")
    });
    let shared = fs::read_to_string(caches.next()?.join("shared_cpu_list")).ok()?;
    Some(shared.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A tree like the kernel's; it goes when dropped.
    struct Tree(PathBuf);

    impl Tree {
        /// CPUs with their socket, NUMA node and third-level cache, where they have one.
        fn new(name: &str, cpus: &[(Option<i32>, Option<u32>, Option<&str>)]) -> Tree {
            let top =
                std::env::temp_dir().join(format!("ferry-cpus-{name}-{}", std::process::id()));
            for (number, (socket, node, l3)) in cpus.iter().enumerate() {
                let cpu = top.join(format!("cpu{number}"));
                let write = |file_name: &str, text: &str| {
                    let file = cpu.join(file_name);
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    fs::write(file, format!("{text}\n")).unwrap();
                };
                write("cache/index0/level", "1");
                write("cache/index0/shared_cpu_list", &number.to_string());
                if let Some(socket) = socket {
                    write("topology/physical_package_id", &socket.to_string());
                }
                if let Some(node) = node {
                    fs::create_dir_all(cpu.join(format!("node{node}"))).unwrap();
                }
                if let Some(l3) = l3 {
                    write("cache/index3/level", "3");
                    write("cache/index3/shared_cpu_list", l3);
                }
            }
            Tree(top)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn cores(cores: &[&[usize]]) -> Cores {
        Cores {
            cores: cores.iter().map(|c| c.to_vec()).collect(),
            quota: None,
        }
    }

    #[test]
    fn groups_by_what_is_shared() {
        // Two sockets with two caches each; NUMA nodes go across.
        let tree = Tree::new(
            "groups",
            &[
                (Some(0), Some(0), Some("0-1")),
                (Some(0), Some(1), Some("0-1")),
                (Some(0), Some(0), Some("2-3")),
                (Some(0), Some(1), Some("2-3")),
                (Some(1), Some(0), Some("4-5")),
                (Some(1), Some(1), Some("4-5")),
                (Some(1), Some(0), Some("6-7")),
                (Some(1), Some(1), Some("6-7")),
            ],
        );
        let all = cores(&[&[0, 1], &[2, 3], &[4, 5], &[6, 7]]);
        let some = cores(&[&[1], &[2], &[7]]);
        let table: [(&Cores, Binding, &[&[usize]]); 6] = [
            (&all, Binding::Socket, &[&[0, 1, 2, 3], &[4, 5, 6, 7]]),
            (&all, Binding::Numa, &[&[0, 2, 4, 6], &[1, 3, 5, 7]]),
            (
                &all,
                Binding::L3Cache,
                &[&[0, 1], &[2, 3], &[4, 5], &[6, 7]],
            ),
            (&some, Binding::Socket, &[&[1, 2], &[7]]),
            (&some, Binding::Numa, &[&[1, 7], &[2]]),
            (&some, Binding::L3Cache, &[&[1], &[2], &[7]]),
        ];
        for (cores, binding, expected) in table {
            let found = groups(&tree.0, cores, binding).unwrap();
            assert_eq!(found, expected, "{}", name(binding));
        }
    }

    #[test]
    fn what_the_kernel_does_not_say_is_refused() {
        let tree = Tree::new("unknown", &[(Some(-1), None, None)]);
        for binding in [Binding::Socket, Binding::Numa, Binding::L3Cache] {
            let error = groups(&tree.0, &cores(&[&[0]]), binding).unwrap_err();
            assert!(error.contains("does not say") && error.contains(name(binding)));
        }
        let nowhere = groups(Path::new("/no/such"), &cores(&[&[0]]), Binding::Socket);
        assert!(nowhere.is_err());
    }
}
