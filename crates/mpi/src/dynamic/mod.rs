//! Processes of other jobs (MPI 5.0 chapter 11): how two groups establish communication, by a port
//! or through a spawn.
//!
//! ```text
//! base64      bytes as text
//! contact     launchers of jobs that were started apart
//! foreign     processes of other jobs: their names, and their process numbers here
//! group_info  what the two groups tell each other
//! join        two processes that have a socket between them
//! names       published names of ports
//! partners    how a process learns that a job has died
//! port        ports: their names and tickets; accept and connect
//! shared      memory that processes of several jobs on a host share
//! spawn       starting processes
//! ```
//!
//! Each root gathers what the other group must know of its own: names, business cards, hosts. The
//! roots exchange it, together with a new key, and broadcast it. Once all members of both groups
//! have it, any two of them can connect, and do when one first sends something to the other.

mod base64;
mod contact;
pub mod foreign;
mod group_info;
pub mod join;
pub mod names;
mod partners;
pub mod port;
mod shared;
pub mod spawn;

use crate::comm::Comm;
use crate::comm::agree::{Agreement, Reader, put_framed, put_u64};
use crate::device::{self, ContextId, ForeignProcess, Link};
use crate::process::process;
use crate::{Group, Result, err};
use contact::{
    are_started_apart, ask_contact, contact, tell_launcher, with_contact, without_contact,
};
use ferry_job::NameSocket;
use foreign::{ForeignMembers, ProcessName};
use group_info::{
    GroupInfo, NO_ERROR, VERSION, encode_error, encode_group, encode_member, payload_or_error,
    with_key_hidden,
};
use partners::Partners;
use shared::Sharing;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};

/// Exchanges bytes between the roots of two groups: sends the given bytes, and returns those of the
/// other root. Called at the root only. The first exchange blocks until the other root is there.
pub(crate) type RootExchange<'a> = dyn Fn(Vec<u8>) -> Result<Vec<u8>> + 'a;

/// How the other group comes to be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relation {
    /// This job has started it (MPI_Comm_spawn).
    Children,
    /// It has started this job.
    Parents,
    /// It connects to a port, or accepts there. It may be of any job.
    AnyJob,
    /// It accepts at a port of this job, or of a job of which processes are known. The root alone
    /// knows that it is one.
    KnownJob,
    /// The leaders have a peer communicator (MPI_Intercomm_create).
    PeerComm,
}

/// What two groups have agreed on.
struct Established {
    /// Of the intercommunicator.
    context: ContextId,
    /// Of the local group's own communicator.
    local_context: ContextId,
    /// The remote group, in the order of its ranks.
    remote: Vec<ProcessName>,
    /// Keeps those that were not known before connected, until a communicator does.
    new: ForeignMembers,
}

/// Makes an intercommunicator between `comm`'s group and another one, with whose root `exchange`
/// exchanges bytes. Collective over both, and blocks as [`establish_communication`] does.
/// `other_hosts`: processes of other hosts can connect.
///
/// Errors: as for [`establish_communication`]; Comm if a process is in both groups.
pub(crate) fn make_intercomm(
    comm: &Arc<Comm>,
    root: u32,
    exchange: &RootExchange<'_>,
    other_hosts: bool,
    relation: Relation,
) -> Result<Arc<Comm>> {
    foreign::release_unused();
    let agreement = Agreement::of_all(comm)?;
    let established = establish(&agreement, root, exchange, other_hosts, relation)?;
    let remote = Group::new(foreign::processes(&established.remote)?, process().me);
    let local = comm.group.clone();
    let (context, local_context) = (established.context, established.local_context);
    let intercomm = comm.inter(context, local_context, local, remote);
    drop(established.new);
    Ok(Arc::new(intercomm))
}

/// Makes the members of two groups known to each other. Collective over both; `root` is the rank of
/// the local root, whose `exchange` reaches the remote one. Blocks until all members of both groups
/// can connect to each other. The result keeps those connected that were not known before, until
/// it is dropped.
///
/// Errors: the root's, which all members get; a member cannot open its connections.
pub(crate) fn establish_communication(
    agreement: &Agreement<'_>,
    root: u32,
    exchange: &RootExchange<'_>,
    other_hosts: bool,
) -> Result<ForeignMembers> {
    let established = establish(agreement, root, exchange, other_hosts, Relation::PeerComm)?;
    Ok(established.new)
}

/// As [`establish_communication`], and agrees on the contexts of an intercommunicator.
fn establish(
    agreement: &Agreement<'_>,
    root: u32,
    exchange: &RootExchange<'_>,
    other_hosts: bool,
    relation: Relation,
) -> Result<Established> {
    let groups = exchange_group_info(agreement, root, exchange, other_hosts, relation)?;
    let [local, remote] = &groups;
    check_disjoint(local, remote, relation)?;
    let mut new = ForeignMembers::default();
    let added = add_members(local, remote, agreement.rank(), &mut new);
    foreign::show_known_jobs(false);
    let partners = Partners::new(local, remote, agreement.rank(), relation, &new);
    let sharing = Sharing::new(local, remote, agreement.rank(), &new);
    connect(agreement, root, exchange, partners, sharing)?;
    added?;
    Ok(Established {
        context: local.context.min(remote.context),
        local_context: local.local_context,
        remote: remote.members.iter().map(|m| m.name).collect(),
        new,
    })
}

/// What all members get to know of both groups, the local one first. Collective over both.
fn exchange_group_info(
    agreement: &Agreement<'_>,
    root: u32,
    exchange: &RootExchange<'_>,
    other_hosts: bool,
    relation: Relation,
) -> Result<[GroupInfo; 2]> {
    let is_root = agreement.rank() == root;
    // The launcher answers while the group gathers.
    let asked = is_root.then(|| ask_contact(relation)).flatten();
    let mut own = Vec::new();
    put_framed(&mut own, &encode_member(agreement.rank(), other_hosts));
    let gathered = agreement.gather(root, own)?;
    let mut message = Vec::new();
    if is_root {
        let local = encode_group(&gathered, root);
        if let (Err(e), Relation::Parents) = (&local, relation) {
            // Who has started this job learns why it does not come about.
            let error = [&VERSION.to_le_bytes()[..], &encode_error(e)].concat();
            let _ = exchange(with_contact("", error));
        }
        message = match local.and_then(|local| exchange_first(local, exchange, relation, asked)) {
            Ok(groups) => {
                let mut both = vec![NO_ERROR];
                for group in groups {
                    put_framed(&mut both, &with_key_hidden(agreement, group));
                }
                both
            }
            Err(e) => encode_error(&e),
        };
    }
    let message = agreement.broadcast(root, message)?;
    let mut reader = Reader(payload_or_error(&message)?);
    let mut next = || -> Result<GroupInfo> {
        GroupInfo::parse(&with_key_hidden(agreement, reader.framed()?.to_vec()))
    };
    Ok([next()?, next()?])
}

/// Waits until the members of both groups can connect, have opened the memory that they share, and
/// are connected to their partners. Collective over both.
fn connect(
    agreement: &Agreement<'_>,
    root: u32,
    exchange: &RootExchange<'_>,
    partners: Partners,
    mut sharing: Sharing,
) -> Result<()> {
    // All members of both groups must know the new key before one of them connects, and how to
    // open the memory that they share.
    let offers = allgather_both(agreement, root, exchange, &sharing.offer())?;
    if sharing.is_possible || partners.any {
        partners.begin_to_connect();
        sharing.open(&offers);
        partners.await_connections();
        // Only those that all have opened the memory are reached by it, and all are connected.
        let opened = allgather_both(agreement, root, exchange, &sharing.result())?;
        sharing.finish(&opened);
        partners.watch();
    }
    Ok(())
}

/// A process in both groups could not tell their messages apart: the groups of an intercommunicator
/// are disjoint (MPI 5.0 §7.6). All members of both groups find the same.
fn check_disjoint(local: &GroupInfo, remote: &GroupInfo, relation: Relation) -> Result<()> {
    if !are_started_apart(relation) {
        return Ok(());
    }
    let names: HashSet<ProcessName> = local.members.iter().map(|m| m.name).collect();
    match remote.members.iter().find(|m| names.contains(&m.name)) {
        None => Ok(()),
        Some(both) => Err(err!(
            Comm,
            "process {} of a job is in both the local and the remote group",
            both.name.rank
        )),
    }
}

/// The first exchange of the roots: what each says of its group, the local one first. Their
/// launchers get to know each other.
fn exchange_first(
    local: Vec<u8>,
    exchange: &RootExchange<'_>,
    relation: Relation,
    asked: Option<NameSocket>,
) -> Result<[Vec<u8>; 2]> {
    let contact = contact(relation, asked);
    // Who comes to a port, or who is started, is not known yet: it may be anyone.
    let awaits_unknown = !matches!(relation, Relation::PeerComm | Relation::KnownJob);
    foreign::show_known_jobs(awaits_unknown);
    let received = exchange(with_contact(&contact, local.clone()));
    foreign::show_known_jobs(false);
    let (remote, remote_contact) = without_contact(received?)?;
    if !contact.is_empty() && !remote_contact.is_empty() {
        tell_launcher(remote_contact);
    }
    Ok([local, remote])
}

/// Gathers `own` of each member of both groups to all of them: by rank, the local group first.
/// Collective over both.
fn allgather_both(
    agreement: &Agreement<'_>,
    root: u32,
    exchange: &RootExchange<'_>,
    own: &[u8],
) -> Result<[Vec<Vec<u8>>; 2]> {
    let mut with_rank = Vec::new();
    put_u64(&mut with_rank, u64::from(agreement.rank()));
    put_framed(&mut with_rank, own);
    let local = agreement.gather(root, with_rank)?;
    let mut both = Vec::new();
    if agreement.rank() == root {
        match exchange(local.clone()) {
            Ok(remote) => {
                both.push(NO_ERROR);
                put_framed(&mut both, &local);
                put_framed(&mut both, &remote);
            }
            Err(e) => both = encode_error(&e),
        }
    }
    let both = agreement.broadcast(root, both)?;
    let mut reader = Reader(payload_or_error(&both)?);
    let by_rank = |bytes: &[u8]| -> Result<Vec<Vec<u8>>> {
        let (mut reader, mut all) = (Reader(bytes), Vec::new());
        while !reader.is_empty() {
            all.push((reader.u64()?, reader.framed()?.to_vec()));
        }
        all.sort_by_key(|(rank, _)| *rank);
        Ok(all.into_iter().map(|(_, bytes)| bytes).collect())
    };
    Ok([by_rank(reader.framed()?)?, by_rank(reader.framed()?)?])
}

/// Makes the members of the remote group known, those that are not yet, and puts them into `new`.
fn add_members(
    local: &GroupInfo,
    remote: &GroupInfo,
    rank: u32,
    new: &mut ForeignMembers,
) -> Result<()> {
    let first = local.link < remote.link;
    let offer = if first { local } else { remote };
    // The groups number their members apart.
    let number = |first: bool, rank: u32| u32::from(!first) << 31 | rank;
    let id = offer.link;
    device::device().add_link(&Link {
        id,
        wire: id,
        key: offer.key,
        number: number(first, rank),
        encrypt: local.encrypt || remote.encrypt,
        is_port: false,
    });
    let mut added = Ok(());
    for (rank, member) in (0u32..).zip(&remote.members) {
        let process = ForeignProcess {
            link: id,
            number: number(!first, rank),
            card: member.card.clone(),
            same_host: member.host == host_number(),
            host: member.host_name.clone(),
        };
        let known = foreign::add(member.name, process, new);
        added = added.and(known);
    }
    foreign::drop_link_if_unused(id);
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

/// Opens this process's connections and returns its business card. `other_hosts`: other hosts can
/// connect, too.
fn open_connections(other_hosts: bool) -> Result<Vec<u8>> {
    foreign::activate();
    let opened = device::device().open_connections(&process().rank_info, other_hosts);
    opened.map_err(|e| err!(Other, "processes of other jobs cannot be reached: {e}"))
}
