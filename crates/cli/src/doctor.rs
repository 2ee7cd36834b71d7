//! `ferry doctor`: what is found on this machine, what it means for jobs, and what to change.

mod cross_memory;
pub mod program;

use std::fs;
use std::path::{Path, PathBuf};

use ferry_job::{Cores, Segment};
use rustix::process::{Resource, getrlimit};

use crate::mpi4py::Mpi4py;
use cross_memory::cross_memory;

/// Descriptors that mpiexec needs for each rank.
const DESCRIPTORS_PER_RANK: u64 = 4;

/// One thing that was looked at.
struct Finding {
    topic: &'static str,
    found: String,
    /// What to change, if it stands in the way of something.
    change: Option<String>,
}

/// The whole report.
pub fn report() -> String {
    let cma = cross_memory();
    let mut findings = vec![system(), cores(), memory(), shared_memory()];
    findings.push(cma.finding());
    findings.extend([huge_pages(), descriptors(), processes(), locked_memory()]);
    findings.extend([files(), library(), environment()]);
    findings.extend(crate::mpi4py::find().map(|found| python(&found)));
    let mut text = format!(
        "Ferry MPI {} on {}\n\n",
        env!("CARGO_PKG_VERSION"),
        rustix::system::uname().nodename().to_string_lossy()
    );
    text += &listed(&findings);
    text += "\nMessages between ranks of this machine\n";
    for line in protocols(cma.allowed()) {
        text += &format!("  {line}\n");
    }
    text += &changes(&findings);
    text
}

/// Findings and what to change.
fn text_of(findings: &[Finding]) -> String {
    listed(findings) + &changes(findings)
}

fn listed(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { topic, found, .. } in findings {
        let mut lines = found.lines();
        text += &format!("{topic:<16} {}\n", lines.next().unwrap_or_default());
        for line in lines {
            text += &format!("{:<16} {line}\n", "");
        }
    }
    text
}

fn changes(findings: &[Finding]) -> String {
    let changes: Vec<_> = findings
        .iter()
        .filter_map(|f| f.change.as_deref())
        .collect();
    let mut text = String::from(if changes.is_empty() {
        "\nNothing needs to be changed.\n"
    } else {
        "\nTo change\n"
    });
    for change in changes {
        text += &format!("  - {change}\n");
    }
    text
}

fn plain(topic: &'static str, found: impl Into<String>) -> Finding {
    Finding {
        topic,
        found: found.into(),
        change: None,
    }
}

/// Which protocol serves which sizes; `cma`: ranks may read each other's memory.
fn protocols(cma: bool) -> Vec<String> {
    use ferry_transport::shm;
    /// Bytes that the device puts before a message's own.
    const HEAD: usize = 16;
    let pieces = "announced; then pieces through the ring, while sender and receiver overlap";
    vec![
        format!(
            "{:<22} shm   sent at once, in one cache line with its header where it answers the one \
             before",
            format!("to {} bytes", shm::FASTBOX_LINE_MAX_BYTES - HEAD)
        ),
        format!(
            "{:<22} shm   sent at once, up to 16 KiB through the lines that brought the one that \
             it answers, else through a ring of {} KiB for each pair",
            format!("to {} KiB", (shm::EAGER_MAX_BYTES - HEAD) / 1024),
            shm::RING_DATA_BYTES / 1024
        ),
        match shm::read_min() {
            _ if !cma => format!("{:<22} shm   {pieces}", "larger"),
            shm::READ_MIN_ADAPTIVE => format!(
                "{:<22} shm   announced; then read from the sender's memory by both \
                 (process_vm_readv, _writev), or in pieces \
                 through the ring, whichever was faster so far",
                "larger"
            ),
            bytes => format!(
                "{:<22} shm   {pieces}; from {bytes} bytes on read from the sender's memory \
                 (FERRY_SHM_READ_MIN)",
                "larger"
            ),
        },
        format!("{:<22} self  copied once", "to oneself"),
    ]
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_string())
}

fn system() -> Finding {
    let uname = rustix::system::uname();
    let cpu = read("/proc/cpuinfo").and_then(|text| {
        text.lines()
            .find(|l| l.starts_with("model name"))
            .and_then(|l| l.split_once(": ").map(|(_, name)| name.to_string()))
    });
    let found = format!(
        "{} {} {}, {}",
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy(),
        uname.machine().to_string_lossy(),
        cpu.unwrap_or_else(|| "unknown processor".into())
    );
    plain("system", found)
}

fn cores() -> Finding {
    let cores = Cores::here();
    let all = read("/sys/devices/system/cpu/online").unwrap_or_else(|| "?".into());
    let quota = cores.quota.map_or("no cgroup limit".into(), |q| {
        format!("cgroup limit {q:.2} CPUs")
    });
    let mut cpus: Vec<usize> = cores.cores.concat();
    cpus.sort_unstable();
    let usable = cores.usable();
    let mut finding = plain(
        "cores",
        format!(
            "{} cores with {} hardware threads allowed (CPUs {}; online {all}), {quota}\nup to \
             {usable} ranks are bound to cores of their own and wait actively for short; more \
             ranks share and sleep",
            cores.cores.len(),
            cpus.len(),
            ranges(&cpus),
        ),
    );
    if cores.quota.is_some_and(|q| q.fract() > 0.01) {
        finding.change = Some(
            "the cgroup's CPU limit is no whole number: the rank on the last, \
            partial core slows the others; use a whole number (cpu.max)"
                .into(),
        );
    }
    finding
}

/// "0-3, 7".
fn ranges(sorted: &[usize]) -> String {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for &n in sorted {
        match pieces.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => pieces.push((n, n)),
        }
    }
    let shown = pieces.iter().map(|(a, b)| {
        if a == b {
            a.to_string()
        } else {
            format!("{a}-{b}")
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn memory() -> Finding {
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let line = |name: &str| -> Option<u64> {
        let rest = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
        rest.trim_start_matches(':')
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
            .map(|kib| kib * 1024)
    };
    let mut found = format!(
        "{} of {} free",
        size(line("MemAvailable").unwrap_or(0)),
        size(line("MemTotal").unwrap_or(0))
    );
    let limit = cgroup_memory();
    match limit {
        Some((most, used)) => {
            found += &format!(", cgroup limit {} ({} used)", size(most), size(used))
        }
        None => found += ", no cgroup limit",
    }
    let address_space = getrlimit(Resource::As).current;
    if let Some(most) = address_space {
        found += &format!(", RLIMIT_AS {}", size(most));
    }
    let mut finding = plain("memory", found);
    if limit.is_some_and(|(most, used)| most.saturating_sub(used) < 256 << 20) {
        finding.change = Some(
            "less than 256 MiB are left in this cgroup; shared memory counts \
            there too (memory.max)"
                .into(),
        );
    } else if address_space.is_some() {
        finding.change = Some(
            "RLIMIT_AS limits address space, of which shared memory takes some \
            for each pair of ranks that speak: ulimit -v unlimited"
                .into(),
        );
    }
    finding
}

/// The tightest memory limit of this process's cgroups and what is used of it, bytes.
fn cgroup_memory() -> Option<(u64, u64)> {
    let groups = read("/proc/self/cgroup")?;
    let mut least: Option<(u64, u64)> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (root, most, used) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
            c if c.split(',').any(|c| c == "memory") => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            ),
            _ => continue,
        };
        let full = Path::new(root).join(path.trim_start_matches('/'));
        for folder in full.ancestors().take_while(|a| a.starts_with(root)) {
            let number = |name: &str| read(folder.join(name)).and_then(|t| t.parse::<u64>().ok());
            // Version 1 says "no limit" with a number near the largest.
            if let (Some(most), Some(used)) = (number(most).filter(|m| *m < 1 << 60), number(used))
                && least.is_none_or(|(l, _)| most < l)
            {
                least = Some((most, used));
            }
        }
    }
    least
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b if b >= 10 << 20 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

fn shared_memory() -> Finding {
    match Segment::create(64) {
        Ok(segment) => plain(
            "shared memory",
            format!(
                "memfd works (a segment for 64 ranks: {} of addresses, pages on first use); \
                 /dev/shm is not used",
                size(segment.layout.arena_offset)
            ),
        ),
        Err(e) => Finding {
            topic: "shared memory",
            found: format!("memfd does not work: {e}"),
            change: Some(
                "without memfd_create no job of more than one rank runs; a seccomp filter \
                (container) may forbid it"
                    .into(),
            ),
        },
    }
}

fn huge_pages() -> Finding {
    let chosen = |path: &str| {
        read(path)
            .and_then(|t| t.split(['[', ']']).nth(1).map(String::from))
            .unwrap_or_else(|| "not there".into())
    };
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let reserved = read("/proc/sys/vm/nr_hugepages").unwrap_or_else(|| "0".into());
    plain(
        "huge pages",
        format!(
            "transparent: {}, for shared memory: {}; reserved: {reserved} (Ferry needs none)",
            chosen(&format!("{folder}/enabled")),
            chosen(&format!("{folder}/shmem_enabled"))
        ),
    )
}

fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let shown = |n: Option<u64>| n.map_or("unlimited".into(), |n| n.to_string());
    let most = limit.maximum.unwrap_or(u64::MAX);
    let ranks = most.saturating_sub(32) / DESCRIPTORS_PER_RANK;
    let mut finding = plain(
        "descriptors",
        format!(
            "RLIMIT_NOFILE {} (mpiexec raises it to {}): enough for {} ranks",
            shown(limit.current),
            shown(limit.maximum),
            if ranks > 65536 {
                "65536".into()
            } else {
                ranks.to_string()
            }
        ),
    );
    if ranks < 512 {
        finding.change = Some(format!(
            "jobs of more than {ranks} ranks need more file descriptors: ulimit -Hn 4096"
        ));
    }
    finding
}

fn processes() -> Finding {
    let user = getrlimit(Resource::Nproc).current;
    let group = ["/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"]
        .iter()
        .find_map(read)
        .unwrap_or_else(|| "no limit".into());
    let mut finding = plain(
        "processes",
        format!(
            "RLIMIT_NPROC {}, cgroup pids.max {group}",
            user.map_or("unlimited".into(), |n| n.to_string())
        ),
    );
    if user.is_some_and(|n| n < 1024) {
        finding.change =
            Some("RLIMIT_NPROC is below 1024: big jobs may not start (ulimit -u)".into());
    }
    finding
}

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    plain(
        "locked memory",
        format!(
            "RLIMIT_MEMLOCK {} (Ferry locks nothing)",
            limit.map_or("unlimited".into(), size)
        ),
    )
}

/// Where files of the present folder are, and the hints that MPI_File_open takes.
fn files() -> Finding {
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
    let system = ferry_io::FileSystem::of_path(&here);
    let mut found = match system {
        Ok(system) => format!("this folder is on {}", system.name()),
        Err(e) => format!("the file system of this folder cannot be told: {e}"),
    };
    found += "\nhints of MPI_File_open and MPI_File_set_view (MPI_Info_set):";
    for (key, meaning) in ferry_io::hints::ALL {
        found += &format!("\n  {key:<22} {meaning}");
    }
    plain("files", found)
}

fn library() -> Finding {
    let exe = std::env::current_exe().unwrap_or_default();
    let folder = exe.parent().unwrap_or(Path::new("."));
    let installed = folder.join("../lib/ferry/libmpi_abi.so.1");
    if installed.exists() {
        let shown = fs::canonicalize(&installed).unwrap_or(installed);
        plain(
            "library",
            format!("{}; mpiexec puts it first for its ranks", shown.display()),
        )
    } else {
        Finding {
            topic: "library",
            found: format!("not installed beside {}", exe.display()),
            change: Some(
                "this copy is not installed: make install PREFIX=DIR, then put DIR/bin into PATH"
                    .into(),
            ),
        }
    }
}

/// Other MPIs that come first.
fn environment() -> Finding {
    let folders = |variable: &str| -> Vec<PathBuf> {
        std::env::var_os(variable)
            .map(|v| std::env::split_paths(&v).collect())
            .unwrap_or_default()
    };
    let own = std::env::current_exe()
        .ok()
        .and_then(|e| e.parent().map(PathBuf::from))
        .unwrap_or_default();
    let first = folders("PATH")
        .into_iter()
        .map(|d| d.join("mpiexec"))
        .find(|f| f.exists());
    let ours = first
        .as_ref()
        .and_then(|f| fs::canonicalize(f).ok())
        .is_some_and(|f| f.starts_with(&own));
    let found = match &first {
        Some(first) if ours => format!(
            "mpiexec in PATH is this installation's ({})",
            first.display()
        ),
        Some(first) => format!("mpiexec in PATH is another one: {}", first.display()),
        None => "no mpiexec in PATH".into(),
    };
    let mut finding = plain("environment", found);
    if !ours {
        finding.change = Some(format!(
            "put this installation first: export PATH={}:$PATH",
            own.display()
        ));
    }
    let set: Vec<String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| name.starts_with("FERRY_"))
        .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
        .collect();
    if !set.is_empty() {
        finding.found += &format!("\n{}", set.join(" "));
    }
    finding
}

/// The mpi4py that python3 in PATH imports.
fn python(found: &Mpi4py) -> Finding {
    let Mpi4py {
        python,
        version,
        libraries,
    } = found;
    if let Some(first) = libraries.first() {
        let how = match first.starts_with("libmpi_abi") {
            true => "is built for the standard ABI".to_string(),
            false => format!("runs under mpiexec on Ferry's {}", libraries.join(" or ")),
        };
        return plain("Python", format!("mpi4py {version} of {python} {how}"));
    }
    Finding {
        topic: "Python",
        found: format!("mpi4py {version} of {python} is built for other MPIs' ABIs only"),
        change: Some(format!(
            "that mpi4py cannot run on Ferry (an ImportError tells): MPICC=mpicc {python} -m pip \
             install --force-reinstall --no-cache-dir --no-binary mpi4py mpi4py"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_covers_everything() {
        let text = report();
        for topic in [
            "cores",
            "memory",
            "shared memory",
            "single copy",
            "huge pages",
            "descriptors",
            "processes",
            "library",
            "larger",
        ] {
            assert!(text.contains(topic), "{topic} is missing in:\n{text}");
        }
    }

    #[test]
    fn an_mpi4py_of_other_abis_is_told_with_its_cure() {
        let mut found = Mpi4py {
            python: "/usr/bin/python3".into(),
            version: "4.1.2".into(),
            libraries: vec!["libmpi.so.12".into()],
        };
        assert!(python(&found).change.is_none());
        found.libraries.clear();
        let change = python(&found).change.unwrap();
        assert!(change.contains("MPICC=mpicc") && change.contains("--no-binary mpi4py"));
    }

    #[test]
    fn sizes_and_ranges() {
        assert_eq!(
            (size(8 << 20), size(24 << 30), size(64 << 20)),
            ("8192 KiB".into(), "24 GiB".into(), "64 MiB".into())
        );
        assert_eq!(ranges(&[0, 1, 2, 5]), "0-2, 5");
    }
}
