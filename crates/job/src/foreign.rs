//! Jobs that a launcher other than Ferry's has started: MPICH's Hydra, Slurm's srun, PRRTE's
//! prterun.
//!
//! What they have in common is a store of keys and values that all ranks of the job can reach, and
//! a fence after which everybody sees what was put before. From these a rank's [`Place`] is made as
//! if mpiexec had: rank 0 makes the job's key, the lowest rank of each node makes its segment and
//! hands it to the others ([`handover`]).

mod directory;
mod handover;
mod mapping;
mod pmi;
mod pmix;
mod wire;

use std::env;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::client::{Client, JobError, Place, host_name};
use crate::{Cores, Nodes, RankState, RankStatus, Segment, Welcome, new_key};
use directory::KvsDirectory;

/// With more nodes than this their names are not asked for: each is a question to the launcher.
const NAMED_NODES_MAX: usize = 512;

/// What a launcher offers.
pub(crate) trait Kvs: Send {
    /// This rank.
    fn rank(&self) -> u32;
    /// Ranks in the job.
    fn size(&self) -> u32;
    /// The program's number.
    fn appnum(&self) -> u32;
    /// Longest value, bytes.
    fn value_max(&self) -> usize;
    /// Puts a value; letters, digits and `-` only.
    fn put(&mut self, key: &str, value: &str) -> Result<(), JobError>;
    /// After this all ranks see what all have put. Blocks until all have come here.
    fn fence(&mut self) -> Result<(), JobError>;
    /// A value that `owner` has put before a fence; `None` if it has not.
    fn get(&mut self, owner: u32, key: &str) -> Result<Option<String>, JobError>;
    /// Each rank's node, if the launcher knows.
    fn nodes(&mut self) -> Result<Option<Vec<u32>>, JobError>;
    /// Ends the job.
    fn abort(&mut self, code: i32, text: &str);
    /// Says that this rank ends as it should.
    fn finalize(&mut self);
}

pub(crate) type SharedKvs = Arc<Mutex<Box<dyn Kvs>>>;

/// The launcher that the environment tells of; `None` if it tells of none.
///
/// # Errors
/// There are traces of one, but it cannot be spoken to.
pub(crate) fn find() -> Option<Result<Box<dyn Kvs>, JobError>> {
    let set = |name: &str| env::var_os(name).is_some_and(|v| !v.is_empty());
    if set("PMIX_NAMESPACE") {
        return Some(pmix::connect());
    }
    if set("PMI_FD") || set("PMI_PORT") {
        return Some(pmi::connect());
    }
    stranded(|name| env::var(name).ok()).map(Err)
}

/// Was this process meant to be one of several ranks by a launcher that left no way to speak to it?
fn stranded(variable: impl Fn(&str) -> Option<String>) -> Option<JobError> {
    let number = |name: &str| variable(name).and_then(|v| v.parse::<u32>().ok());
    if let Some(tasks) = number("SLURM_STEP_NUM_TASKS").filter(|&n| n > 1)
        && variable("SLURM_PROCID").is_some()
    {
        return Some(JobError::Launcher(format!(
            "srun has started {tasks} of this program, but gives it no PMI to find the others by; \
             use srun --mpi=pmix or --mpi=pmi2 (srun --mpi=list says what there is), or mpiexec \
             inside the allocation"
        )));
    }
    // Ferry's own mpiexec sets PMI_SIZE, too, and FERRY_SIZE with it.
    if let Some(size) = number("PMI_SIZE").filter(|&n| n > 1)
        && variable("FERRY_SIZE").is_none()
    {
        return Some(JobError::Launcher(format!(
            "a launcher has started {size} of this program (PMI_SIZE={size}), but PMI_FD and \
             PMI_PORT are not set, so it cannot be spoken to; does a wrapper clear the \
             environment? Start it with that launcher directly, or with mpiexec"
        )));
    }
    if let Some(size) = number("OMPI_COMM_WORLD_SIZE").filter(|&n| n > 1) {
        return Some(JobError::Launcher(format!(
            "a launcher has started {size} of this program (OMPI_COMM_WORLD_SIZE={size}), but \
             PMIX_NAMESPACE is not set, so it cannot be spoken to; does a wrapper clear the \
             environment? Start it with that launcher directly, or with mpiexec"
        )));
    }
    None
}

fn launcher_error(text: impl Into<String>) -> JobError {
    JobError::Launcher(text.into())
}

/// The place of this process in a job of a foreign launcher. Collective over the job; blocks until
/// all ranks are here.
pub(crate) fn join(mut kvs: Box<dyn Kvs>) -> Result<Place, JobError> {
    let (me, size, appnum) = (kvs.rank(), kvs.size(), kvs.appnum());
    if me >= size || size > 1 << 20 {
        return Err(launcher_error(format!(
            "the launcher says that this is rank {me} of {size}"
        )));
    }
    let node_of = nodes(kvs.as_mut())?;
    let my_node = node_of[me as usize];
    let local_ranks: Vec<u32> = (0..size)
        .filter(|&r| node_of[r as usize] == my_node)
        .collect();
    let local_rank = local_ranks.iter().position(|&r| r == me).unwrap_or(0) as u32;
    let leader = local_ranks[0];
    let cpus: Vec<usize> = Cores::counted().cores.concat();
    kvs.put(
        &format!("ferry-cpus-{me}"),
        &cpu_mask(&cpus, kvs.value_max()),
    )?;
    if me == 0 {
        let (key, job) = (fresh()?, fresh()?);
        kvs.put("ferry-key", &hex(&[&key[..], &job[..8]].concat()))?;
    }
    let mut giver = None;
    if me == leader {
        let host = host_name();
        kvs.put(
            &format!("ferry-host-{me}"),
            &hex(&host.as_bytes()[..host.len().min(255)]),
        )?;
        if local_ranks.len() > 1 {
            let new = handover::Giver::open()?;
            kvs.put(&format!("ferry-door-{me}"), &hex(new.name()))?;
            giver = Some(new);
        }
    }
    kvs.fence()?;
    let wanted = |kvs: &mut dyn Kvs, owner: u32, key: &str| {
        kvs.get(owner, key)?.ok_or_else(|| {
            launcher_error(format!(
                "the launcher does not pass on what rank {owner} has put ({key})"
            ))
        })
    };
    let secret = unhex(&wanted(kvs.as_mut(), 0, "ferry-key")?)
        .filter(|bytes| bytes.len() == 40)
        .ok_or_else(|| launcher_error("the launcher has changed the job's key"))?;
    let (mut key, mut job) = ([0u8; 32], [0u8; 8]);
    key.copy_from_slice(&secret[..32]);
    job.copy_from_slice(&secret[32..]);
    let segment = match (&giver, local_ranks.len()) {
        (_, 1) => None,
        (Some(giver), n) => {
            let segment = Segment::create(n as u32)?;
            giver.give(&segment, &key, n as u32)?;
            Some(segment)
        }
        (None, n) => {
            let door = unhex(&wanted(
                kvs.as_mut(),
                leader,
                &format!("ferry-door-{leader}"),
            )?)
            .ok_or_else(|| launcher_error("the launcher has changed what rank 0 has put"))?;
            let fd = handover::take(&door, &key, local_rank)?;
            let len = crate::SegmentLayout::new(n as u32).total();
            Some(Segment::open(fd, n as u32, len)?)
        }
    };
    let mut together = cpus;
    for &rank in local_ranks.iter().filter(|&&r| r != me) {
        together.extend(mask_cpus(&wanted(
            kvs.as_mut(),
            rank,
            &format!("ferry-cpus-{rank}"),
        )?));
    }
    together.sort_unstable();
    together.dedup();
    let quota = crate::cpu_quota().map_or(usize::MAX, |q| q.ceil().max(1.0) as usize);
    let hosts = host_names(kvs.as_mut(), &node_of)?;
    let status: &'static RankStatus = match &segment {
        Some(segment) => segment
            .status(local_rank)
            .ok_or_else(|| launcher_error("the node's segment is too small"))?,
        None => Box::leak(Box::default()),
    };
    let welcome = Welcome {
        rank: me,
        size,
        local_rank,
        local_ranks,
        appnum,
        job: u64::from_le_bytes(job),
        cores: together.len().min(quota).max(1) as u32,
        segment_len: segment.as_ref().map_or(0, |s| s.layout.total()),
        key,
        nodes: Nodes::of(&hosts, &node_of),
    };
    let kvs: SharedKvs = Arc::new(Mutex::new(kvs));
    finalize_at_exit(kvs.clone(), status);
    Ok(Place {
        welcome,
        segment,
        status,
        client: Some(Client::foreign(kvs.clone())),
        directory: Some(Box::new(KvsDirectory::new(kvs, me, size))),
    })
}

/// Each rank's node, numbered from 0 in order of their lowest ranks.
fn nodes(kvs: &mut dyn Kvs) -> Result<Vec<u32>, JobError> {
    let size = kvs.size() as usize;
    let raw: Vec<String> = match kvs.nodes()? {
        Some(numbers) if numbers.len() == size => numbers.iter().map(u32::to_string).collect(),
        _ => {
            // The launcher does not know: hosts' names tell. The kernel's boot number tells apart
            // hosts of the same name.
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let name = format!("{} {}", host_name(), boot.unwrap_or_default().trim());
            let me = kvs.rank();
            kvs.put(
                &format!("ferry-node-{me}"),
                &hex(&name.as_bytes()[..name.len().min(200)]),
            )?;
            kvs.fence()?;
            (0..size as u32)
                .map(|rank| {
                    Ok(kvs
                        .get(rank, &format!("ferry-node-{rank}"))?
                        .unwrap_or_default())
                })
                .collect::<Result<_, JobError>>()?
        }
    };
    let mut known = std::collections::HashMap::new();
    Ok(raw
        .into_iter()
        .map(|name| {
            let next = known.len() as u32;
            *known.entry(name).or_insert(next)
        })
        .collect())
}

/// The nodes' names, as their lowest ranks have put them.
fn host_names(kvs: &mut dyn Kvs, node_of: &[u32]) -> Result<Vec<String>, JobError> {
    let mut leaders = Vec::new();
    for (rank, &node) in (0u32..).zip(node_of) {
        if node as usize == leaders.len() {
            leaders.push(rank);
        }
    }
    let ask = leaders.len() <= NAMED_NODES_MAX;
    let name = |(number, &leader): (usize, &u32)| {
        let named = if ask {
            kvs.get(leader, &format!("ferry-host-{leader}"))?
        } else {
            None
        };
        let named = named.and_then(|text| String::from_utf8(unhex(&text)?).ok());
        Ok(named.unwrap_or_else(|| format!("node {number}")))
    };
    leaders.iter().enumerate().map(name).collect()
}

fn fresh() -> Result<[u8; 32], JobError> {
    new_key().map_err(|cause| JobError::Refused {
        attempted: "making the job's key (getrandom)".into(),
        cause,
        advice: "Ferry needs the kernel's random numbers (Linux 3.17)",
    })
}

/// CPUs as a value: a bit each, in hexadecimal, cut where a value must end.
fn cpu_mask(cpus: &[usize], value_max: usize) -> String {
    let mut bytes = vec![0u8; cpus.iter().max().map_or(1, |most| most / 8 + 1)];
    for cpu in cpus {
        bytes[cpu / 8] |= 1 << (cpu % 8);
    }
    bytes.truncate((value_max / 2).clamp(1, 400));
    hex(&bytes)
}

fn mask_cpus(text: &str) -> Vec<usize> {
    let bytes = unhex(text).unwrap_or_default();
    (0..bytes.len() * 8)
        .filter(|cpu| bytes[cpu / 8] >> (cpu % 8) & 1 == 1)
        .collect()
}

/// Bytes as hexadecimal digits, which every launcher's store takes.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |d: u8| (d as char).to_digit(16).map(|v| v as u8);
    digits
        .chunks(2)
        .map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?))
        .collect()
}

/// What is to be said to the launcher when the program ends.
struct AtExit {
    kvs: SharedKvs,
    status: &'static RankStatus,
    pid: u32,
}
static AT_EXIT: OnceLock<AtExit> = OnceLock::new();

/// Tells the launcher at the program's end that it ends as it should, if MPI has been finalised by
/// then. Not earlier: sessions may begin again after MPI_Finalize, and the launchers' protocols
/// begin only once.
fn finalize_at_exit(kvs: SharedKvs, status: &'static RankStatus) {
    let pid = std::process::id();
    if AT_EXIT.set(AtExit { kvs, status, pid }).is_ok() {
        // SAFETY: a function that lives as long as this library; if it is unloaded the C library
        // runs it then.
        unsafe { libc::atexit(say_goodbye) };
    }
}

extern "C" fn say_goodbye() {
    let Some(at_exit) = AT_EXIT.get() else { return };
    let state = at_exit
        .status
        .state
        .load(std::sync::atomic::Ordering::Acquire);
    // A child that the rank has forked runs this, too, and is no rank.
    if at_exit.pid == std::process::id() && RankState::from_number(state) == RankState::Finalized {
        let mut kvs = at_exit.kvs.lock().unwrap_or_else(PoisonError::into_inner);
        kvs.finalize();
    }
}

/// How long an aborting rank waits for its last words to be taken.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

/// Waits, [`TAKEN_WITHIN`] at most, until what was written into a pipe has been read. Hydra's proxy
/// looks at the rank's output and at its PMI socket in any order, and once it has passed an abort
/// on, output is lost: the text has to be with it before. The writer of a pipe is not told when it
/// is empty, so this asks, every millisecond. Returns at once for anything but a pipe.
fn taken(pipe: std::os::fd::BorrowedFd) {
    let began = std::time::Instant::now();
    while rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes > 0)
        && began.elapsed() < TAKEN_WITHIN
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ends the job; another thread may be in the middle of a fence, and then this process's end has to
/// do.
pub(crate) fn abort(kvs: &SharedKvs, code: i32, text: &str) {
    if !text.is_empty() {
        let text = format!("{}\n", text.trim_end());
        // SAFETY: descriptor 2 is only written to; if it is closed that fails.
        let stderr = unsafe { std::os::fd::BorrowedFd::borrow_raw(2) };
        let _ = rustix::io::write(stderr, text.as_bytes());
        taken(stderr);
    }
    for _ in 0..100 {
        if let Ok(mut kvs) = kvs.try_lock() {
            // A status of 0 would pass for success.
            kvs.abort(if code & 0xff == 0 { 1 } else { code }, text);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_goes_both_ways() {
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
        assert_eq!(unhex("00ff10"), Some(vec![0, 255, 16]));
        assert!(unhex("0").is_none() && unhex("zz").is_none());
        assert_eq!(mask_cpus(&cpu_mask(&[0, 3, 17], 1024)), [0, 3, 17]);
    }

    #[test]
    fn last_words_are_waited_for() {
        use std::os::fd::AsFd;
        use std::sync::atomic::{AtomicBool, Ordering};
        let (reads, writes) = rustix::pipe::pipe().unwrap();
        taken(writes.as_fd());
        rustix::io::write(&writes, b"MPI_Abort").unwrap();
        let read = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                read.store(true, Ordering::SeqCst);
                rustix::io::read(&reads, &mut [0u8; 16]).unwrap();
            });
            taken(writes.as_fd());
            assert!(read.load(Ordering::SeqCst));
        });
        let file = std::fs::File::open("/dev/null").unwrap();
        taken(file.as_fd());
    }

    #[test]
    fn a_rank_without_its_launcher_is_told_so() {
        let with = |set: &'static [(&str, &str)]| {
            stranded(move |name| {
                let found = set.iter().find(|(n, _)| *n == name);
                found.map(|(_, v)| v.to_string())
            })
            .map(|e| e.to_string())
        };
        assert!(with(&[]).is_none());
        assert!(with(&[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")]).is_none());
        let said = with(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")]).unwrap();
        assert!(said.contains("--mpi=pmix"), "{said}");
        assert!(with(&[("PMI_SIZE", "4"), ("FERRY_SIZE", "4")]).is_none());
        assert!(with(&[("PMI_SIZE", "4")]).unwrap().contains("PMI_FD"));
        assert!(
            with(&[("OMPI_COMM_WORLD_SIZE", "2")])
                .unwrap()
                .contains("PMIX_NAMESPACE")
        );
    }
}
