//! Memory that processes of several jobs on one host share.
//!
//! When two groups establish communication, those of their members that are on one host get a
//! segment together. The first of them makes it, and the others open it through the first one's
//! descriptor (/proc/PID/fd), which the kernel allows processes of the same user alone. Processes
//! that knew each other before keep the way that their messages go.

use super::{ForeignMembers, GroupInfo, foreign, host_number};
use crate::ProcId;
use crate::device::{self, SharedSegment};
use crate::process::process;
use ferry_job::Segment;
use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// A number for the memory that this process can share: the same for all processes of the user on
/// this host that see each other's /proc. 0: it shares none.
pub(super) fn memory_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    if !device::device().may_share() {
        return 0;
    }
    *NUMBER.get_or_init(|| {
        let Ok(processes) = std::fs::metadata("/proc/self/ns/pid") else {
            return 0;
        };
        // SAFETY: a plain system call.
        let user = unsafe { libc::geteuid() };
        let mut hasher = DefaultHasher::new();
        (host_number(), processes.ino(), user).hash(&mut hasher);
        hasher.finish().max(1)
    })
}

/// This process's part in sharing memory between two groups.
pub(super) struct Sharing {
    /// There are members of both groups that share memory: both sides agree on it then.
    pub is_possible: bool,
    /// Those that share memory with this process, in the order of the segment: side (0 is this
    /// one's), rank, process id.
    members: Vec<(usize, usize, u32)>,
    /// Their process numbers here.
    processes: Vec<ProcId>,
    /// Of those, the ones that this process has not known before.
    new_processes: Vec<ProcId>,
    me: usize,
    /// The segment, at the first of them.
    made: Option<Segment>,
    opened: Option<SharedSegment>,
}

impl Sharing {
    pub fn new(local: &GroupInfo, remote: &GroupInfo, rank: u32, new: &ForeignMembers) -> Sharing {
        let shares =
            |side: &GroupInfo, memory: u64| side.members.iter().any(|m| m.memory == memory);
        let is_possible = local
            .members
            .iter()
            .any(|m| m.memory != 0 && shares(remote, m.memory));
        let memory = local.members.get(rank as usize).map_or(0, |m| m.memory);
        let mut sharing = Sharing {
            is_possible,
            members: Vec::new(),
            processes: Vec::new(),
            new_processes: Vec::new(),
            me: 0,
            made: None,
            opened: None,
        };
        // Without a process that is new to it, nothing is to be shared; the others have none, too.
        if memory == 0 || !shares(remote, memory) {
            return sharing;
        }
        // Both sides put them in the same order.
        let sides = if local.link < remote.link {
            [(0, local), (1, remote)]
        } else {
            [(1, remote), (0, local)]
        };
        for (side, of) in sides {
            for (at, member) in of.members.iter().enumerate() {
                if member.memory != memory {
                    continue;
                }
                let Some(process) = foreign::process_named(member.name) else {
                    return sharing;
                };
                if (side, at) == (0, rank as usize) {
                    sharing.me = sharing.members.len();
                }
                sharing.members.push((side, at, member.pid));
                sharing.processes.push(process);
                if side == 1 && new.contains(process) {
                    sharing.new_processes.push(process);
                }
            }
        }
        sharing
    }

    /// What this process tells the others: the descriptor of the segment that it has made, plus 1.
    pub fn offer(&mut self) -> Vec<u8> {
        if self.members.is_empty() || self.me != 0 {
            return Vec::new();
        }
        match Segment::create_shared(self.members.len() as u32) {
            Ok(made) => {
                let number = made.fd.as_raw_fd() as u32 + 1;
                self.made = Some(made);
                number.to_le_bytes().to_vec()
            }
            Err(_) => Vec::new(),
        }
    }

    /// Opens the segment. `offers`: what all have told.
    pub fn open(&mut self, offers: &[Vec<Vec<u8>>; 2]) {
        if self.members.is_empty() {
            return;
        }
        let segment = self.made.take().or_else(|| {
            let &(side, rank, pid) = self.members.first()?;
            let number = u32::from_le_bytes(offers[side].get(rank)?[..].try_into().ok()?);
            let path = format!("/proc/{pid}/fd/{}", number - 1);
            let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
            Segment::open_shared(file.into(), self.members.len() as u32).ok()
        });
        let Some(segment) = segment else { return };
        let info = &process().rank_info;
        let processes = self.processes.clone();
        let opened = device::device().share(segment, processes, self.me, info);
        self.opened = opened.ok();
    }

    /// What this process tells the others: has it opened the segment?
    pub fn result(&self) -> Vec<u8> {
        vec![u8::from(self.opened.is_some())]
    }

    /// Reaches the others by the segment. `results`: what all have told.
    pub fn finish(self, results: &[Vec<Vec<u8>>; 2]) {
        let Some(opened) = self.opened else { return };
        let has = |&(side, rank, _): &(usize, usize, u32)| {
            results[side].get(rank).is_some_and(|said| said[..] == [1])
        };
        let both = self.members.iter().zip(&self.processes);
        let reached: Vec<ProcId> = both
            .filter(|(member, process)| has(member) && self.new_processes.contains(process))
            .map(|(_, process)| *process)
            .collect();
        device::device().reach_by(&opened, &reached);
    }
}
