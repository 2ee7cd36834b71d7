//! Foreign processes, which are those of other jobs: their names, which all processes know them by,
//! and their process numbers, which are this process's own.

use crate::Comm;
use crate::comm::agree::{Reader, malformed};
use crate::device::{self, ContextId, ForeignProcess};
use crate::process::process;
use crate::{Group, ProcId, Result, err};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The name of a process, the same for all processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ProcessName {
    /// Its job's random number.
    pub job: u64,
    /// Its rank in the job.
    pub rank: u32,
}

impl ProcessName {
    /// Bytes of an encoded name.
    pub(crate) const BYTES: usize = 12;

    /// Appends it.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.extend(self.job.to_le_bytes());
        out.extend(self.rank.to_le_bytes());
    }

    /// Reads what [`ProcessName::put`] has appended.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<ProcessName> {
        Ok(ProcessName {
            job: reader.u64()?,
            rank: reader.u32()?,
        })
    }
}

/// A process of another job.
struct Known {
    name: ProcessName,
    /// The link by which it connects.
    link: u64,
    /// Communicators in which it is.
    uses: usize,
}

/// The processes of other jobs that this one knows.
#[derive(Default)]
struct Table {
    by_name: HashMap<ProcessName, ProcId>,
    known: HashMap<ProcId, Known>,
    /// Links, with the number of processes that are known by each.
    links: HashMap<u64, usize>,
    /// Connections to processes of other jobs, which tell that the job has died.
    lifelines: Vec<Lifeline>,
    /// Processes of which no communicator is left. They are forgotten by [`release_unused`].
    unused: Vec<ProcId>,
}

/// A connection that tells when a job has died.
struct Lifeline {
    job: u64,
    /// The process at its other end.
    process: ProcId,
    /// The link by which it was made, for this purpose alone: the process is in no group. `None`:
    /// it is a member of one.
    link: Option<u64>,
    /// It is not watched any more.
    released: Arc<AtomicBool>,
}

static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
/// This process has known processes of other jobs, or is about to.
static ACTIVE: AtomicBool = AtomicBool::new(false);

fn table() -> MutexGuard<'static, Table> {
    let table = TABLE.get_or_init(Mutex::default);
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// From now on this process may know processes of other jobs.
pub(super) fn activate() {
    ACTIVE.store(true, Ordering::Relaxed);
}

/// Is this process one of another job?
pub fn is_foreign(process: ProcId) -> bool {
    process >= self::process().size
}

/// The name of a process.
pub fn name_of(process: ProcId) -> ProcessName {
    names(std::iter::once(process))[0]
}

/// The names of processes, in their order.
pub(crate) fn names(processes: impl Iterator<Item = ProcId>) -> Vec<ProcessName> {
    let (job, size) = (process().rank_info.job, process().size);
    let own = |rank| ProcessName { job, rank };
    if !is_active() {
        return processes.map(own).collect();
    }
    let table = table();
    let name = |p: ProcId| match table.known.get(&p) {
        Some(known) if p >= size => known.name,
        _ => own(p),
    };
    processes.map(name).collect()
}

/// The process number of a process of this name. `None`: it is not known.
pub(super) fn process_named(name: ProcessName) -> Option<ProcId> {
    if name.job == process().rank_info.job {
        return Some(name.rank).filter(|&rank| rank < process().size);
    }
    table().by_name.get(&name).copied()
}

/// The process numbers of the processes of these names.
///
/// Errors: one is not known.
pub(crate) fn processes(names: &[ProcessName]) -> Result<Vec<ProcId>> {
    let find = |&name: &ProcessName| process_named(name).ok_or_else(malformed);
    names.iter().map(find).collect()
}

/// Are these processes of more than one job?
pub(crate) fn span_jobs<'a>(mut names: impl Iterator<Item = &'a ProcessName>) -> bool {
    let first = names.next();
    names.any(|name| Some(name.job) != first.map(|f| f.job))
}

/// A context that no other process makes. `None`: the counter of this process will do, because it
/// knows no process of another job.
pub(crate) fn new_context() -> Option<ContextId> {
    is_active().then(|| ContextId::random(random()))
}

/// A random number.
pub(super) fn random() -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(0);
    static SEED: OnceLock<u64> = OnceLock::new();
    // Without random numbers, the job's number and the rank make it differ from those of others.
    let seed = *SEED.get_or_init(|| {
        let key = ferry_job::new_key().unwrap_or_default();
        let random = u64::from_le_bytes(std::array::from_fn(|i| key[i]));
        random ^ process().rank_info.job.rotate_left(32) ^ u64::from(process().me)
    });
    let step = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    // The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    // generators, 2014) maps different numbers to different numbers.
    let mut z = seed.wrapping_add(step);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Makes a process of this name known by a link, unless it is known. `members` keeps it.
///
/// Errors: there are no connections.
pub(super) fn add(
    name: ProcessName,
    process: ForeignProcess,
    members: &mut ForeignMembers,
) -> Result<()> {
    if process_named(name).is_some() {
        return Ok(());
    }
    let link = process.link;
    let new = device::device().add_foreign(process);
    let new = new.ok_or_else(|| err!(Intern, "there are no connections to other jobs"))?;
    let mut table = table();
    table.by_name.insert(name, new);
    table.known.insert(
        new,
        Known {
            name,
            link,
            uses: 1,
        },
    );
    *table.links.entry(link).or_default() += 1;
    members.processes.push(new);
    Ok(())
}

impl Table {
    /// The jobs of which processes are known.
    fn jobs(&self) -> BTreeSet<u64> {
        self.known.values().map(|k| k.name.job).collect()
    }
}

/// Tells the launcher of which jobs this process knows processes. `awaits_unknown`: it waits for
/// processes of another job.
pub(super) fn show_known_jobs(awaits_unknown: bool) {
    let jobs: Vec<u64> = table().jobs().into_iter().collect();
    device::device().show_known_jobs(&jobs, awaits_unknown);
}

/// Processes of a job fail, which has ended. `how`: "died: WHY", for example.
pub(super) fn fail_job(d: &mut device::Device, job: u64, how: &str) {
    let table = table();
    let of_job = table.by_name.iter().filter(|(name, _)| name.job == job);
    for (name, &process) in of_job {
        let text = format!("rank {} of job {job:x}, which has {how}", name.rank);
        d.fail_foreign(process, &text);
    }
}

/// The job of the remote group's first process, if it is another one.
pub(super) fn job_of_others(comm: &Comm) -> Option<u64> {
    let first = comm.peer(0);
    is_foreign(first).then(|| name_of(first).job)
}

/// Keeps the connection to a root of another job. If it breaks, all processes of the job fail: it
/// has died. `link` is the connection's, and ends with it.
pub(super) fn add_lifeline(job: u64, process: ProcId, link: u64) {
    let lifeline = watched(&mut device::device(), job, process, Some(link));
    table().lifelines.push(lifeline);
}

/// As [`add_lifeline`], for a connection to a process of the job that is in a group with this one.
pub(super) fn add_partner(job: u64, process: ProcId) {
    let lifeline = watched(&mut device::device(), job, process, None);
    table().lifelines.push(lifeline);
}

/// A connection whose loss is the death of a job.
fn watched(d: &mut device::Device, job: u64, process: ProcId, link: Option<u64>) -> Lifeline {
    let released = Arc::new(AtomicBool::new(false));
    let lifeline = Lifeline {
        job,
        process,
        link,
        released: released.clone(),
    };
    let look = move |d: &mut device::Device| {
        if released.load(Ordering::Relaxed) {
            return true;
        }
        let lost = d.is_lost(process);
        if lost {
            let why = device::last_failure().unwrap_or_else(|| "it has died".into());
            fail_job(d, job, &format!("died: {why}"));
        }
        lost
    };
    d.add_background(Arc::new(Mutex::new(look)));
    lifeline
}

/// Does [`add_lifeline`] keep the connection to this process?
pub(super) fn is_lifeline(process: ProcId) -> bool {
    table().lifelines.iter().any(|l| l.process == process)
}

/// Is a process of this job known?
pub(super) fn knows_job(job: u64) -> bool {
    table().by_name.keys().any(|name| name.job == job)
}

/// Forgets a link unless processes are known by it.
pub(super) fn drop_link_if_unused(link: u64) {
    if !table().links.contains_key(&link) {
        device::device().remove_link(link);
    }
}

/// The processes of other jobs in a communicator, which stay connected until this is dropped.
#[derive(Default)]
pub struct ForeignMembers {
    processes: Vec<ProcId>,
    /// The communicator's context, once there is one.
    context: Option<ContextId>,
}

/// Keeps the processes of other jobs in a communicator's group connected.
pub(crate) fn keep_connected(context: ContextId, group: &Group) -> ForeignMembers {
    if !is_active() {
        return ForeignMembers::default();
    }
    let size = process().size;
    let processes: Vec<ProcId> = group.iter().filter(|&p| p >= size).collect();
    let mut table = table();
    for process in &processes {
        if let Some(known) = table.known.get_mut(process) {
            known.uses += 1;
        }
    }
    drop(table);
    device::add_foreign_members(context, &processes);
    ForeignMembers {
        processes,
        context: Some(context),
    }
}

impl ForeignMembers {
    /// Is this process one of them?
    pub(super) fn contains(&self, process: ProcId) -> bool {
        self.processes.contains(&process)
    }

    /// Are there none?
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }
}

impl Drop for ForeignMembers {
    fn drop(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        if let Some(context) = self.context {
            device::remove_foreign_members(context, &self.processes);
        }
        let mut table = table();
        for &process in &self.processes {
            let Some(known) = table.known.get_mut(&process) else {
                continue;
            };
            known.uses -= 1;
            if known.uses == 0 {
                table.unused.push(process);
            }
        }
    }
}

/// Ends the connections to processes of which no communicator is left. Called without the device.
pub fn release_unused() {
    if !is_active() {
        return;
    }
    super::spawn::forget_parent();
    let (processes, links) = table().take_unused();
    if processes.is_empty() {
        return;
    }
    let mut d = device::device();
    let (jobs, ended) = {
        let mut table = table();
        let ended = table.replace_lifelines(&mut d, &processes);
        (table.jobs(), ended)
    };
    let jobs: Vec<u64> = jobs.into_iter().collect();
    d.show_known_jobs(&jobs, false);
    for lifeline in ended {
        lifeline.released.store(true, Ordering::Relaxed);
        if let Some(link) = lifeline.link {
            d.remove_foreign(lifeline.process);
            d.remove_link(link);
        }
    }
    for process in processes {
        d.remove_foreign(process);
    }
    for link in links {
        d.remove_link(link);
    }
    drop(d);
    super::spawn::release_independent();
}

impl Table {
    /// Forgets the processes that are in no communicator. Returns them, and the links by which no
    /// process is known any more.
    fn take_unused(&mut self) -> (Vec<ProcId>, Vec<u64>) {
        let (mut processes, mut links) = (Vec::new(), Vec::new());
        for process in std::mem::take(&mut self.unused) {
            if self.known.get(&process).is_none_or(|k| k.uses > 0) {
                continue;
            }
            let Some(known) = self.known.remove(&process) else {
                continue;
            };
            self.by_name.remove(&known.name);
            processes.push(process);
            if let Some(users) = self.links.get_mut(&known.link) {
                *users -= 1;
                if *users == 0 {
                    self.links.remove(&known.link);
                    links.push(known.link);
                }
            }
        }
        (processes, links)
    }

    /// Replaces lifelines to processes that are forgotten by lifelines to others of their jobs.
    /// Returns those to jobs of which no process is known any more.
    fn replace_lifelines(&mut self, d: &mut device::Device, forgotten: &[ProcId]) -> Vec<Lifeline> {
        let mut ended = Vec::new();
        for lifeline in std::mem::take(&mut self.lifelines) {
            let job = lifeline.job;
            let mut of_job = self.by_name.iter().filter(|(name, _)| name.job == job);
            let Some((_, &another)) = of_job.next() else {
                ended.push(lifeline);
                continue;
            };
            if lifeline.link.is_some() || !forgotten.contains(&lifeline.process) {
                self.lifelines.push(lifeline);
                continue;
            }
            lifeline.released.store(true, Ordering::Relaxed);
            d.connect_to(another);
            self.lifelines.push(watched(d, job, another, None));
        }
        ended
    }
}

/// The job and the rank of a process of another job, for messages.
pub fn described(process: ProcId) -> Option<String> {
    if !is_active() || !is_foreign(process) {
        return None;
    }
    let table = table();
    let known = table.known.get(&process)?;
    Some(format!(
        "rank {} of job {:x}",
        known.name.rank, known.name.job
    ))
}
