//! Processes of other jobs (MPI 5.0 chapter 11): how two groups come to know each other, by a port
//! or through a spawn.
//!
//! ```text
//! base64    bytes as text
//! contact   launchers of jobs that were started apart
//! death     how a process learns that a job has died
//! join      two processes that have a socket between them
//! names     published names of ports
//! port      ports: their names and tickets; accept and connect
//! shared    memory that processes of several jobs on a host share
//! side      what the two groups tell each other
//! spawn     starting processes
//! universe  names of processes of other jobs, and their process numbers here
//! ```
//!
//! Two groups meet through their roots. Each root gathers what the others must know of its group:
//! names, business cards, hosts. The roots exchange it, together with a new key, and broadcast it.
//! Once all members of both groups have it, any two of them can connect, and do when one first
//! sends something to the other.

mod base64;
mod contact;
mod death;
pub mod join;
pub mod names;
pub mod port;
mod shared;
mod side;
pub mod spawn;
pub mod universe;

use crate::comm::Comm;
use crate::comm::agree::{Agreement, Reader, put_framed, put_u64};
use crate::device::{self, ContextId, ForeignProcess, Link};
use crate::process::process;
use crate::{Group, Result, err};
use contact::{ask_contact, contact, is_apart, tell_launcher, with_contact, without_contact};
use death::Partners;
use ferry_job::NameSocket;
use shared::Sharing;
use side::{Side, VERSION, accepted, member_bytes, refusal, side_bytes, with_key_hidden};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};
use universe::ProcessName;

/// What the two roots say to each other: bytes of this root for bytes of the other one. The first
/// message may take as long as the other root does not come.
pub(crate) type Talk<'a> = dyn Fn(Vec<u8>) -> Result<Vec<u8>> + 'a;

/// With whom a group meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum With {
    /// A job that this one has started.
    Children,
    /// The job that has started this one.
    Parents,
    /// Whoever comes to a port, or accepts there.
    Anyone,
    /// Who accepts at a port of this job, or of one of which processes are known. The root alone
    /// knows that it is one.
    Known,
    /// Processes that those of a common communicator know.
    Introduced,
}

/// What two groups have agreed on.
struct Meeting {
    context: ContextId,
    local: ContextId,
    /// The other group, in the order of its ranks.
    remote: Vec<ProcessName>,
    /// Keeps those that were not known before, until a communicator does.
    held: universe::Held,
}

/// Makes an intercommunicator between `comm`'s group and another one, whose root `talk` reaches.
/// Collective over both, and blocks as [`introduce`] does. `outside`: processes of other hosts can
/// connect.
///
/// Errors: as for [`introduce`]; Comm if a process is in both groups.
pub(crate) fn intercomm_by(
    comm: &Arc<Comm>,
    root: u32,
    talk: &Talk<'_>,
    outside: bool,
    with: With,
) -> Result<Arc<Comm>> {
    universe::release_unused();
    let agreement = Agreement::of_all(comm)?;
    let meeting = meet(&agreement, root, talk, outside, with)?;
    let remote = Group::new(universe::processes(&meeting.remote)?, process().me);
    let group = comm.group.clone();
    let new = comm.inter(meeting.context, meeting.local, group, remote);
    drop(meeting.held);
    Ok(Arc::new(new))
}

/// Makes the members of two groups known to each other. Collective over both; `root` is the rank of
/// this side's root, whose `talk` reaches the other side's. Blocks until all members of both groups
/// can connect to each other. The result keeps those that were not known until it is dropped.
///
/// Errors: the root's, which all members get; a member cannot open its connections.
pub(crate) fn introduce(
    agreement: &Agreement<'_>,
    root: u32,
    talk: &Talk<'_>,
    outside: bool,
) -> Result<universe::Held> {
    meet(agreement, root, talk, outside, With::Introduced).map(|meeting| meeting.held)
}

/// As [`introduce`], and agrees on the contexts of an intercommunicator.
fn meet(
    agreement: &Agreement<'_>,
    root: u32,
    talk: &Talk<'_>,
    outside: bool,
    with: With,
) -> Result<Meeting> {
    // The answer comes while the group gathers.
    let is_root = agreement.rank() == root;
    let asked = is_root.then(|| ask_contact(with)).flatten();
    let mut own = Vec::new();
    put_framed(&mut own, &member_bytes(agreement.rank(), outside));
    let gathered = agreement.gather(root, own)?;
    let mut message = Vec::new();
    if agreement.rank() == root {
        let mine = side_bytes(&gathered, root);
        if let (Err(e), With::Parents) = (&mine, with) {
            // Who has started this job learns why it does not come about.
            let _ = talk(with_contact(
                "",
                [&VERSION.to_le_bytes()[..], &refusal(e)].concat(),
            ));
        }
        message = match mine.and_then(|mine| exchange(mine, talk, with, asked)) {
            Ok([mine, theirs]) => {
                let mut both = vec![0];
                for side in [mine, theirs] {
                    put_framed(&mut both, &with_key_hidden(agreement, side));
                }
                both
            }
            Err(e) => refusal(&e),
        };
    }
    let message = agreement.broadcast(root, message)?;
    let mut reader = Reader(accepted(&message)?);
    let mut sides = Vec::new();
    for _ in 0..2 {
        let side = with_key_hidden(agreement, reader.framed()?.to_vec());
        sides.push(Side::parse(&side)?);
    }
    let [mine, theirs] = &sides[..] else {
        return Err(crate::comm::agree::malformed());
    };
    check_disjoint(mine, theirs, with)?;
    let mut held = universe::Held::default();
    let added = add_members(mine, theirs, agreement.rank(), &mut held);
    universe::show_known_jobs(false);
    let partners = Partners::new(mine, theirs, agreement.rank(), with, &held);
    let mut sharing = Sharing::new(mine, theirs, agreement.rank(), &held);
    // All members of both groups must know the new key before one of them connects, and how to
    // open the memory that they share.
    let ready = tell_all(agreement, root, talk, &sharing.offer())?;
    if sharing.is_possible || partners.any {
        partners.begin_to_connect();
        sharing.open(&ready);
        partners.await_connections();
        // Only those that all have opened the memory are reached by it, and all are connected.
        let opened = tell_all(agreement, root, talk, &sharing.result())?;
        sharing.finish(&opened);
        partners.watch();
    }
    added?;
    Ok(Meeting {
        context: mine.context.min(theirs.context),
        local: mine.local,
        remote: theirs.members.iter().map(|m| m.name).collect(),
        held,
    })
}

/// A process in both groups could not tell its two sides' messages apart: the groups of an
/// intercommunicator are disjoint (MPI 5.0 §7.6). All members of both groups find the same.
fn check_disjoint(mine: &Side, theirs: &Side, with: With) -> Result<()> {
    if !is_apart(with) {
        return Ok(());
    }
    let names: HashSet<ProcessName> = mine.members.iter().map(|m| m.name).collect();
    match theirs.members.iter().find(|m| names.contains(&m.name)) {
        None => Ok(()),
        Some(both) => Err(err!(
            Comm,
            "process {} of a job is in both the local and the remote group",
            both.name.rank
        )),
    }
}

/// What the roots say first: this one's for the other one's. Their launchers get to know each
/// other.
fn exchange(
    mine: Vec<u8>,
    talk: &Talk<'_>,
    with: With,
    asked: Option<NameSocket>,
) -> Result<[Vec<u8>; 2]> {
    let contact = contact(with, asked);
    // Who comes to a port, or who is started, is not known yet: it may be anyone.
    universe::show_known_jobs(!matches!(with, With::Introduced | With::Known));
    let said = talk(with_contact(&contact, mine.clone()));
    universe::show_known_jobs(false);
    let (theirs, their_contact) = without_contact(said?)?;
    if !contact.is_empty() && !their_contact.is_empty() {
        tell_launcher(their_contact);
    }
    Ok([mine, theirs])
}

/// What all members of both groups tell: of each side, by rank. Collective over both.
fn tell_all(
    agreement: &Agreement<'_>,
    root: u32,
    talk: &Talk<'_>,
    mine: &[u8],
) -> Result<[Vec<Vec<u8>>; 2]> {
    let mut own = Vec::new();
    put_u64(&mut own, u64::from(agreement.rank()));
    put_framed(&mut own, mine);
    let gathered = agreement.gather(root, own)?;
    let mut both = Vec::new();
    if agreement.rank() == root {
        match talk(gathered.clone()) {
            Ok(theirs) => {
                both.push(0);
                put_framed(&mut both, &gathered);
                put_framed(&mut both, &theirs);
            }
            Err(e) => both = refusal(&e),
        }
    }
    let both = agreement.broadcast(root, both)?;
    let mut reader = Reader(accepted(&both)?);
    let read = |bytes: &[u8]| -> Result<Vec<Vec<u8>>> {
        let (mut reader, mut all) = (Reader(bytes), Vec::new());
        while !reader.is_empty() {
            all.push((reader.u64()?, reader.framed()?.to_vec()));
        }
        all.sort_by_key(|(rank, _)| *rank);
        Ok(all.into_iter().map(|(_, said)| said).collect())
    };
    Ok([read(reader.framed()?)?, read(reader.framed()?)?])
}

/// Makes the members of the other group known, those that are not yet.
fn add_members(mine: &Side, theirs: &Side, rank: u32, held: &mut universe::Held) -> Result<()> {
    let first = mine.link < theirs.link;
    let offer = if first { mine } else { theirs };
    // The sides number their members apart.
    let number = |first: bool, rank: u32| u32::from(!first) << 31 | rank;
    let id = offer.link;
    device::device().add_link(&Link {
        id,
        wire: id,
        key: offer.key,
        number: number(first, rank),
        encrypt: mine.encrypt || theirs.encrypt,
        is_port: false,
    });
    let mut added = Ok(());
    for (rank, member) in (0u32..).zip(&theirs.members) {
        let process = ForeignProcess {
            link: id,
            number: number(!first, rank),
            card: member.card.clone(),
            same_host: member.host == host_number(),
            host: member.host_name.clone(),
        };
        let known = universe::add(member.name, process, held);
        added = added.and(known);
    }
    universe::drop_link_if_unused(id);
    added
}

/// A number for this host: the same for all processes that share its kernel and its network, and
/// different on other hosts.
fn host_number() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = std::fs::metadata("/proc/self/ns/net").map_or(0, |m| m.ino());
        // The same in all processes: this hasher has no random key.
        let mut hasher = DefaultHasher::new();
        (boot.trim(), network).hash(&mut hasher);
        hasher.finish()
    })
}

/// Opens this process's connections and returns its business card. `outside`: other hosts can
/// connect, too.
fn open_connections(outside: bool) -> Result<Vec<u8>> {
    universe::activate();
    let opened = device::device().open_connections(&process().rank_info, outside);
    opened.map_err(|e| err!(Other, "processes of other jobs cannot be reached: {e}"))
}
