//! Processes of other jobs (MPI 5.0 chapter 11): how two groups come to know each other, by a port
//! or through a spawn.
//!
//! ```text
//! base64    bytes as text
//! death     how a process learns that a job has died
//! join      two processes that have a socket between them
//! names     published names of ports
//! port      ports: their names and tickets; accept and connect
//! shared    memory that processes of several jobs on a host share
//! spawn     starting processes
//! universe  names of processes of other jobs, and their process numbers here
//! ```
//!
//! Two groups meet through their roots. Each root gathers what the others must know of its group:
//! names, business cards, hosts. The roots exchange it, together with a new key, and broadcast it.
//! Once all members of both groups have it, any two of them can connect, and do when one first
//! sends something to the other.

mod base64;
mod death;
pub mod join;
pub mod names;
pub mod port;
mod shared;
pub mod spawn;
pub mod universe;

use crate::comm::Comm;
use crate::comm::agree::{Agreement, Reader, put_framed, put_u64};
use crate::device::{self, ContextId, ForeignProcess, Link};
use crate::process::process;
use crate::{Group, Kind, Result, err};
use death::Partners;
use ferry_job::{NameRequest, NameSocket};
use shared::Sharing;
use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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

/// The version of what the roots exchange.
const VERSION: u64 = 5;

/// Where the key lies in what a root says of its group: behind version, a byte that says that it is
/// no [`refusal`], link and the key's length.
const KEY_AT: usize = 25;

/// What one group says of itself.
struct Side {
    /// A link that its root offers. Both sides take the one with the smaller number.
    link: u64,
    key: [u8; 32],
    /// It wants encrypted connections.
    encrypt: bool,
    /// The context that its root offers for a common communicator.
    context: ContextId,
    /// A context for a communicator of this side alone.
    local: ContextId,
    /// The rank of its root.
    root: u32,
    members: Vec<Member>,
}

/// What others must know of a process.
struct Member {
    name: ProcessName,
    /// The number of its host ([`host_number`]).
    host: u64,
    host_name: String,
    /// The number of the memory that it can share with others ([`shared::memory_number`]).
    memory: u64,
    pid: u32,
    card: Vec<u8>,
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

/// What a root says of its group, with the contact of its launcher
/// ([`ferry_job::NameRequest::Contact`]), which only roots and launchers know. Empty: there is
/// none.
fn with_contact(contact: &str, mut side: Vec<u8>) -> Vec<u8> {
    let rest = side.split_off(size_of::<u64>());
    put_framed(&mut side, contact.as_bytes());
    side.extend(rest);
    side
}

/// The reverse of [`with_contact`].
fn without_contact(said: Vec<u8>) -> Result<(Vec<u8>, String)> {
    let mut reader = Reader(&said);
    let mut side = Vec::new();
    let version = reader.u64()?;
    put_u64(&mut side, version);
    if version != VERSION {
        // It says so when it is read.
        return Ok((side, String::new()));
    }
    let contact = String::from_utf8_lossy(reader.framed()?).into_owned();
    side.extend(reader.0);
    Ok((side, contact))
}

/// Where this process's launcher listens, once it has said so. Empty: nowhere.
static CONTACT: OnceLock<String> = OnceLock::new();

/// Does the job at the other side of such a meeting have a launcher that this one's does not know?
fn is_apart(with: With) -> bool {
    matches!(with, With::Anyone | With::Known)
}

/// Asks this process's launcher where it listens for those of jobs that were started apart. `None`:
/// it is known, or need not be.
fn ask_contact(with: With) -> Option<NameSocket> {
    let client = process().client().filter(|_| is_apart(with))?;
    match CONTACT.get() {
        Some(_) => None,
        None => client.begin_to_ask(&NameRequest::Contact).ok(),
    }
}

/// Where it listens. Empty: nowhere, or the jobs were not started apart. `asked`: the question.
fn contact(with: With, asked: Option<NameSocket>) -> String {
    if let Some(Ok(Some(contact))) = asked.map(NameSocket::answer) {
        let _ = CONTACT.set(contact);
    }
    let contact = CONTACT.get().filter(|_| is_apart(with));
    contact.cloned().unwrap_or_default()
}

/// Tells this process's launcher of the other job's, so that both can find that the jobs hang.
fn tell_launcher(contact: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if let Some(client) = process().client() {
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(contact.clone()) {
            // Nobody waits for the answer. If it gets lost, the launchers do not look for hangs.
            drop(client.begin_to_ask(&NameRequest::Met { contact }));
        }
    }
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

/// An error as a message to the members of a group.
fn refusal(e: &crate::Error) -> Vec<u8> {
    let kind = match e.kind() {
        Kind::Port => 1,
        Kind::Spawn => 2,
        Kind::InfoValue => 3,
        Kind::Arg => 4,
        Kind::Comm => 6,
        _ => 5,
    };
    [&[kind], e.text().as_bytes()].concat()
}

/// The message of a root, or the error that it holds.
fn accepted(message: &[u8]) -> Result<&[u8]> {
    let (&kind, rest) = message.split_first().unwrap_or((&5, &[]));
    let text = String::from_utf8_lossy(rest);
    Err(match kind {
        0 => return Ok(rest),
        1 => err!(Port, "{text}"),
        2 => err!(Spawn, "{text}"),
        3 => err!(InfoValue, "{text}"),
        4 => err!(Arg, "{text}"),
        6 => err!(Comm, "{text}"),
        _ => err!(Other, "{text}"),
    })
}

/// What this member tells its root: its rank, then a [`Member`] or an error.
fn member_bytes(rank: u32, outside: bool) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, u64::from(rank));
    let opened = open_connections(outside);
    if let Some(why) = ferry_job::ended_program() {
        let why = format!("process {rank} of those that are started: {why}");
        out.extend(refusal(&err!(
            Spawn,
            "{why}; MPI_Comm_spawn starts MPI programs only"
        )));
        return out;
    }
    match opened {
        Ok(card) => {
            out.push(0);
            universe::name_of(process().me).put(&mut out);
            put_u64(&mut out, host_number());
            let info = &process().rank_info;
            put_framed(&mut out, info.nodes.host_of(info.rank).as_bytes());
            put_u64(&mut out, shared::memory_number());
            put_u64(&mut out, u64::from(std::process::id()));
            put_framed(&mut out, &card);
        }
        Err(e) => out.extend(refusal(&e)),
    }
    out
}

/// What a root says of its group, from what its members have told.
fn side_bytes(gathered: &[u8], root: u32) -> Result<Vec<u8>> {
    let mut reader = Reader(gathered);
    let mut members = Vec::new();
    while !reader.is_empty() {
        let mut member = Reader(reader.framed()?);
        let rank = member.u64()?;
        members.push((rank, accepted(member.0)?));
    }
    members.sort_unstable_by_key(|m| m.0);
    let key = ferry_job::new_key().map_err(|e| err!(Other, "no key can be made: {e}"))?;
    let encrypt = std::env::var("FERRY_ENCRYPT").is_ok_and(|v| v.trim() == "1");
    let mut out = Vec::new();
    put_u64(&mut out, VERSION);
    out.push(0);
    put_u64(&mut out, universe::random());
    put_framed(&mut out, &key);
    put_u64(&mut out, u64::from(encrypt));
    put_u64(&mut out, process().new_context().0);
    put_u64(&mut out, process().new_context().0);
    put_u64(&mut out, root.into());
    for (_, member) in members {
        put_framed(&mut out, member);
    }
    Ok(out)
}

/// What a root says of its group, with the key hidden, or shown again: the root's own job need not
/// encrypt its messages. A group of several jobs has no common secret, and nothing is hidden.
fn with_key_hidden(agreement: &Agreement<'_>, mut side: Vec<u8>) -> Vec<u8> {
    let one_job = agreement.members().all(|p| !universe::is_foreign(p));
    if let Some((head, rest)) = side.split_first_chunk_mut::<KEY_AT>()
        && let Some(key) = rest.first_chunk_mut::<32>()
        && one_job
    {
        let link = head.last_chunk::<16>().and_then(|both| both.first_chunk());
        let link = u64::from_le_bytes(link.copied().unwrap_or_default());
        device::device().hide_key(link, key);
    }
    side
}

impl Side {
    fn parse(bytes: &[u8]) -> Result<Side> {
        let mut reader = Reader(bytes);
        let version = reader.u64()?;
        if version != VERSION {
            return Err(err!(
                Port,
                "the other group speaks version {version} of Ferry's protocol between jobs, this \
                 one version {VERSION}: use the same installation for both"
            ));
        }
        let mut reader = Reader(accepted(reader.0)?);
        let link = reader.u64()?;
        let key = reader.framed()?;
        let key = key
            .try_into()
            .map_err(|_| crate::comm::agree::malformed())?;
        let encrypt = reader.u64()? != 0;
        let (context, local) = (reader.context()?, reader.context()?);
        let root = reader.u64()? as u32;
        let mut members = Vec::new();
        while !reader.is_empty() {
            let mut member = Reader(reader.framed()?);
            members.push(Member {
                name: ProcessName::read(&mut member)?,
                host: member.u64()?,
                host_name: String::from_utf8_lossy(member.framed()?).into_owned(),
                memory: member.u64()?,
                pid: member.u64()? as u32,
                card: member.framed()?.to_vec(),
            });
        }
        Ok(Side {
            link,
            key,
            encrypt,
            context,
            local,
            root,
            members,
        })
    }
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

/// An intercommunicator between `comm`'s group and another one, whose root `talk` reaches.
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
