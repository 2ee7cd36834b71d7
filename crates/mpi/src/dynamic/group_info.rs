//! What the two groups of an intercommunicator tell each other through their roots: of each member
//! its name, host and business card, and of the group a key and contexts; or the error why not.

use super::{foreign, host_number, open_connections, shared};
use crate::comm::agree::{Agreement, Reader, malformed, put_framed, put_u64};
use crate::device::{self, ContextId};
use crate::process::process;
use crate::{Error, Kind, Result, err};
use foreign::ProcessName;

/// The version of what the roots exchange.
pub(super) const VERSION: u64 = 5;

/// Where the key lies in what a root says of its group: behind version, [`NO_ERROR`],
/// link and the key's length.
const KEY_AT: usize = 25;

/// First byte of a message that holds no error.
pub(super) const NO_ERROR: u8 = 0;

/// First byte of a message that holds an error of another kind than [`ERROR_KINDS`].
const OTHER_ERROR: u8 = 5;

/// First byte of a message that holds an error of this kind.
const ERROR_KINDS: [(u8, Kind); 5] = [
    (1, Kind::Port),
    (2, Kind::Spawn),
    (3, Kind::InfoValue),
    (4, Kind::Arg),
    (6, Kind::Comm),
];

/// What one group says of itself.
pub(super) struct GroupInfo {
    /// A link that its root offers. Both sides take the one with the smaller number.
    pub(super) link: u64,
    pub(super) key: [u8; 32],
    /// It wants encrypted connections.
    pub(super) encrypt: bool,
    /// The context that its root offers for a common communicator.
    pub(super) context: ContextId,
    /// A context for a communicator of this group alone.
    pub(super) local_context: ContextId,
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
pub(super) fn encode_error(e: &Error) -> Vec<u8> {
    let found = ERROR_KINDS.iter().find(|(_, kind)| *kind == e.kind());
    let code = found.map_or(OTHER_ERROR, |(code, _)| *code);
    [&[code], e.text().as_bytes()].concat()
}

/// The message of a root, or the error that it holds.
pub(super) fn payload_or_error(message: &[u8]) -> Result<&[u8]> {
    let (&code, rest) = message.split_first().unwrap_or((&OTHER_ERROR, &[]));
    if code == NO_ERROR {
        return Ok(rest);
    }
    let found = ERROR_KINDS.iter().find(|(of_kind, _)| *of_kind == code);
    let kind = found.map_or(Kind::Other, |(_, kind)| *kind);
    Err(Error::new(kind, String::from_utf8_lossy(rest)))
}

/// What this member tells its root: its rank, then a [`Member`] or an error.
pub(super) fn encode_member(rank: u32, other_hosts: bool) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, u64::from(rank));
    let opened = open_connections(other_hosts);
    if let Some(why) = ferry_job::ended_program() {
        let why = format!("process {rank} of those that are started: {why}");
        out.extend(encode_error(&err!(
            Spawn,
            "{why}; MPI_Comm_spawn starts MPI programs only"
        )));
        return out;
    }
    match opened {
        Ok(card) => {
            out.push(NO_ERROR);
            foreign::name_of(process().me).put(&mut out);
            put_u64(&mut out, host_number());
            let info = &process().rank_info;
            put_framed(&mut out, info.nodes.host_of(info.rank).as_bytes());
            put_u64(&mut out, shared::memory_number());
            put_u64(&mut out, u64::from(std::process::id()));
            put_framed(&mut out, &card);
        }
        Err(e) => out.extend(encode_error(&e)),
    }
    out
}

/// What a root says of its group, from what its members have told.
pub(super) fn encode_group(gathered: &[u8], root: u32) -> Result<Vec<u8>> {
    let mut reader = Reader(gathered);
    let mut members = Vec::new();
    while !reader.is_empty() {
        let mut member = Reader(reader.framed()?);
        let rank = member.u64()?;
        members.push((rank, payload_or_error(member.0)?));
    }
    members.sort_unstable_by_key(|m| m.0);
    let key = ferry_job::new_key().map_err(|e| err!(Other, "no key can be made: {e}"))?;
    let encrypt = ferry_job::settings::ENCRYPT.is("1");
    let mut out = Vec::new();
    put_u64(&mut out, VERSION);
    out.push(NO_ERROR);
    put_u64(&mut out, foreign::random());
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
pub(super) fn with_key_hidden(agreement: &Agreement<'_>, mut group: Vec<u8>) -> Vec<u8> {
    let one_job = agreement.members().all(|p| !foreign::is_foreign(p));
    if let Some((head, rest)) = group.split_first_chunk_mut::<KEY_AT>()
        && let Some(key) = rest.first_chunk_mut::<32>()
        && one_job
    {
        let link = head.last_chunk::<16>().and_then(|both| both.first_chunk());
        let link = u64::from_le_bytes(link.copied().unwrap_or_default());
        device::device().hide_key(link, key);
    }
    group
}

impl GroupInfo {
    /// Parses what a root says of its group.
    ///
    /// Errors: the one that it says instead, or Port if it is another version.
    pub(super) fn parse(bytes: &[u8]) -> Result<GroupInfo> {
        let mut reader = Reader(bytes);
        let version = reader.u64()?;
        if version != VERSION {
            return Err(err!(
                Port,
                "the other group speaks version {version} of Ferry's protocol between jobs, this \
                 one version {VERSION}: use the same installation for both"
            ));
        }
        let mut reader = Reader(payload_or_error(reader.0)?);
        let link = reader.u64()?;
        let key = reader.framed()?;
        let key = key.try_into().map_err(|_| malformed())?;
        let encrypt = reader.u64()? != 0;
        let (context, local_context) = (reader.context()?, reader.context()?);
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
        Ok(GroupInfo {
            link,
            key,
            encrypt,
            context,
            local_context,
            root,
            members,
        })
    }
}
