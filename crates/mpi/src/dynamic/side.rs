//! What the two groups of an intercommunicator tell each other through their roots: of each member
//! its name, host and business card, and of the group a key and contexts; or the error why not.

use super::{host_number, open_connections, shared, universe};
use crate::comm::agree::{Agreement, Reader, put_framed, put_u64};
use crate::device::{self, ContextId};
use crate::process::process;
use crate::{Kind, Result, err};
use universe::ProcessName;

/// The version of what the roots exchange.
pub(super) const VERSION: u64 = 5;

/// Where the key lies in what a root says of its group: behind version, a byte that says that it is
/// no [`refusal`], link and the key's length.
const KEY_AT: usize = 25;

/// What one group says of itself.
pub(super) struct Side {
    /// A link that its root offers. Both sides take the one with the smaller number.
    pub(super) link: u64,
    pub(super) key: [u8; 32],
    /// It wants encrypted connections.
    pub(super) encrypt: bool,
    /// The context that its root offers for a common communicator.
    pub(super) context: ContextId,
    /// A context for a communicator of this side alone.
    pub(super) local: ContextId,
    /// The rank of its root.
    pub(super) root: u32,
    pub(super) members: Vec<Member>,
}

/// What others must know of a process.
pub(super) struct Member {
    pub(super) name: ProcessName,
    /// The number of its host ([`host_number`]).
    pub(super) host: u64,
    pub(super) host_name: String,
    /// The number of the memory that it can share with others ([`shared::memory_number`]).
    pub(super) memory: u64,
    pub(super) pid: u32,
    pub(super) card: Vec<u8>,
}

/// An error as a message to the members of a group.
pub(super) fn refusal(e: &crate::Error) -> Vec<u8> {
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
pub(super) fn accepted(message: &[u8]) -> Result<&[u8]> {
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
pub(super) fn member_bytes(rank: u32, outside: bool) -> Vec<u8> {
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
pub(super) fn side_bytes(gathered: &[u8], root: u32) -> Result<Vec<u8>> {
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
pub(super) fn with_key_hidden(agreement: &Agreement<'_>, mut side: Vec<u8>) -> Vec<u8> {
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
    /// Parses what a root says of its group.
    ///
    /// Errors: the one that it says instead, or Port if it is another version.
    pub(super) fn parse(bytes: &[u8]) -> Result<Side> {
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
