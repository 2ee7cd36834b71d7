//! The cores that this process, and so a job under it, may use.

use std::fs;
use std::path::{Path, PathBuf};

/// Cores open to this process.
#[derive(Clone, Debug, PartialEq)]
pub struct Cores {
    /// CPU numbers (hardware threads) of the affinity mask, those of one core together.
    pub cores: Vec<Vec<usize>>,
    /// CPU time per second that the cgroups allow, if they limit it.
    pub quota: Option<f64>,
}

impl Cores {
    /// Asks the kernel: affinity mask, cgroup quota, which CPUs share a core.
    pub fn here() -> Cores {
        let mut cores: Vec<(usize, Vec<usize>)> = Vec::new();
        for cpu in affinity() {
            let siblings = fs::read_to_string(format!(
                "/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            ));
            let first = siblings
                .ok()
                .and_then(|s| cpu_list(&s).first().copied())
                .unwrap_or(cpu);
            match cores.iter_mut().find(|(f, _)| *f == first) {
                Some((_, core)) => core.push(cpu),
                None => cores.push((first, vec![cpu])),
            }
        }
        Cores {
            cores: cores.into_iter().map(|(_, core)| core).collect(),
            quota: cpu_quota(),
        }
    }

    /// Like [`Cores::here`], but without looking which CPUs share a core. Faster, for those who
    /// need only the number.
    pub fn counted() -> Cores {
        Cores {
            cores: affinity().into_iter().map(|cpu| vec![cpu]).collect(),
            quota: cpu_quota(),
        }
    }

    /// CPUs in the affinity mask.
    pub fn cpus(&self) -> usize {
        self.cores.iter().map(Vec::len).sum()
    }

    /// How many ranks can compute at once: at least 1.
    pub fn usable(&self) -> usize {
        let quota = self
            .quota
            .map_or(usize::MAX, |q| q.ceil().max(1.0) as usize);
        self.cpus().min(quota).max(1)
    }
}

/// CPU numbers of this thread's affinity mask. The mask grows until the kernel's fits, so any
/// number of CPUs works.
fn affinity() -> Vec<usize> {
    let mut mask = vec![0u64; 16];
    loop {
        let bytes = mask.len() * 8;
        // SAFETY: the kernel writes at most `bytes` bytes into the mask.
        let written =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, mask.as_mut_ptr()) };
        if written > 0 {
            let bits = (written as usize * 8).min(mask.len() * 64);
            return (0..bits)
                .filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1)
                .collect();
        }
        if mask.len() > 4096 {
            return vec![0];
        }
        mask.resize(mask.len() * 2, 0);
    }
}

/// The smallest CPU quota of this process's cgroups (versions 1 and 2) in CPUs; `None` if there is
/// no limit.
pub fn cpu_quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut least: Option<f64> = None;
    for (controllers, path) in groups.lines().filter_map(split_group) {
        let (root, unified) = match controllers {
            "" => (["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], true),
            c if c.split(',').any(|c| c == "cpu") => {
                (["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"], false)
            }
            _ => continue,
        };
        for root in root {
            for folder in upwards(Path::new(root), path) {
                let quota = if unified {
                    quota_v2(&folder)
                } else {
                    quota_v1(&folder)
                };
                least = match (least, quota) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
    }
    least
}

/// Splits a line of /proc/self/cgroup: "4:cpu,cpuacct:/path" gives ("cpu,cpuacct", "/path").
fn split_group(line: &str) -> Option<(&str, &str)> {
    let mut parts = line.splitn(3, ':').skip(1);
    Some((parts.next()?, parts.next()?))
}

/// The folders of a group and its ancestors: `root/a/b`, `root/a`, `root`. In a container the path
/// may be the host's and not be mounted; then the root is the container's own group.
fn upwards(root: &Path, path: &str) -> Vec<PathBuf> {
    let full = root.join(path.trim_start_matches('/'));
    full.ancestors()
        .take_while(|a| a.starts_with(root))
        .map(Path::to_path_buf)
        .collect()
}

fn quota_v2(folder: &Path) -> Option<f64> {
    parse_quota(&fs::read_to_string(folder.join("cpu.max")).ok()?)
}

fn quota_v1(folder: &Path) -> Option<f64> {
    let quota = fs::read_to_string(folder.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(folder.join("cpu.cfs_period_us")).ok()?;
    parse_quota(&format!("{} {}", quota.trim(), period.trim()))
}

/// Quota divided by period: "200000 100000" gives 2 CPUs. `None` for "max …" and "-1 …": no limit.
fn parse_quota(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next().unwrap_or("100000").parse().ok()?;
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Expands a list of CPUs: "0-3,8" gives 0 1 2 3 8. What cannot be read is left out.
fn cpu_list(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>())
            && last - first.min(last) < 65536
        {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read() {
        assert_eq!(parse_quota("max 100000\n"), None);
        assert_eq!(parse_quota("-1 100000"), None);
        assert_eq!(parse_quota("150000 100000\n"), Some(1.5));
        assert_eq!(parse_quota("0 100000\n"), None);
        assert_eq!(parse_quota("x"), None);
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(cpu_list("5"), [5]);
        assert!(cpu_list("x-,").is_empty());
    }

    #[test]
    fn a_quota_rounds_up_and_never_to_nothing() {
        let cores = |n, quota| Cores {
            cores: (0..n).map(|cpu| vec![cpu]).collect(),
            quota,
        };
        assert_eq!(cores(8, None).usable(), 8);
        assert_eq!(cores(8, Some(1.5)).usable(), 2);
        assert_eq!(cores(8, Some(0.1)).usable(), 1);
        assert_eq!(cores(0, None).usable(), 1);
    }

    #[test]
    fn groups_are_walked_to_the_root() {
        let all = upwards(Path::new("/sys/fs/cgroup"), "/a/b");
        assert_eq!(all.len(), 3);
        assert_eq!(all[2], Path::new("/sys/fs/cgroup"));
        assert_eq!(
            split_group("4:cpu,cpuacct:/x:y"),
            Some(("cpu,cpuacct", "/x:y"))
        );
    }

    #[test]
    fn this_process_has_a_core() {
        let cores = Cores::here();
        assert!(cores.usable() >= 1 && cores.cpus() >= 1);
    }
}
