//! The rank info: the first message of the launcher to a rank.

use std::fmt;

use thiserror::Error;

use crate::Nodes;

/// Version of all that a rank and its launcher share: rank info, messages, segment. Raised with
/// each change of their form.
pub const PROTOCOL: u32 = 5;
/// First bytes of a rank info: "ferry", a newline and two bytes that no text holds in this order.
const MAGIC: u64 = u64::from_le_bytes(*b"ferry\n\xfaW");
/// Most ranks of a job that a rank info may claim. Bounds the memory that wrong bytes can ask for.
const RANKS_MAX: u32 = 1 << 20;

/// What the launcher tells a rank about the job and about itself. It lies in the rank's socket
/// before the rank starts, together with the descriptor of the node's segment (SCM_RIGHTS).
#[derive(Clone, PartialEq, Eq)]
pub struct RankInfo {
    /// This rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Ranks in MPI_COMM_WORLD.
    pub size: u32,
    /// This rank among the ranks of its node.
    pub local_rank: u32,
    /// The job's ranks on this node (`local_ranks[local_rank] == rank`).
    pub local_ranks: Vec<u32>,
    /// Number of the rank's program on the command line (MPI_APPNUM).
    pub appnum: u32,
    /// The job's id, which tells it from other jobs on the node.
    pub job: u64,
    /// Cores that the job may use on this node (affinity and cgroup).
    pub cores: u32,
    /// Bytes in the node's segment.
    pub segment_len: u64,
    /// The job's key: random, and known only to its ranks and launcher. Ranks authenticate each
    /// other by it.
    pub key: [u8; 32],
    /// The name of the port at which the process waits that has started this job
    /// (MPI_Comm_spawn). Empty: none has.
    pub parent: String,
    /// How many processes may be of use at a time (MPI_UNIVERSE_SIZE); at least `size`.
    pub universe: u32,
    /// The job's nodes, and which ranks each holds.
    pub nodes: Nodes,
}

impl fmt::Debug for RankInfo {
    /// Leaves the key out: what is printed may end in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankInfo")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("local_rank", &self.local_rank)
            .field("appnum", &self.appnum)
            .field("job", &self.job)
            .field("cores", &self.cores)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// Makes a job's key with the kernel's generator. Blocks only shortly after the machine's start,
/// until the generator is ready.
///
/// # Errors
/// The kernel has no getrandom(2) (before Linux 3.17), or a filter forbids it.
pub fn new_key() -> std::io::Result<[u8; 32]> {
    let mut key = [0u8; 32];
    let mut filled = 0;
    while filled < key.len() {
        filled +=
            rustix::rand::getrandom(&mut key[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(key)
}

/// Why bytes are no rank info.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// The magic number is missing.
    #[error("it does not begin as a Ferry welcome")]
    Magic,
    /// The protocol's version differs.
    #[error(
        "mpiexec speaks version {0} of Ferry's launch protocol and this libmpi_abi version \
         {PROTOCOL}; use the mpiexec of the same installation"
    )]
    Version(u32),
    /// The bytes end too early.
    #[error("it ends after {0} bytes, in the middle of {1}")]
    Short(usize, &'static str),
    /// Bytes follow the end.
    #[error("{0} bytes follow its end")]
    Long(usize),
    /// A field has an impossible value.
    #[error("{0}")]
    Field(String),
}

impl RankInfo {
    /// The rank info of `rank` in a job of `size` ranks on one host, for tests and jobs of one
    /// rank. Job id and key are zero, there is one core and no segment.
    pub fn on_one_host(rank: u32, size: u32, host: &str) -> RankInfo {
        RankInfo {
            rank,
            size,
            local_rank: rank,
            local_ranks: (0..size).collect(),
            appnum: 0,
            job: 0,
            cores: 1,
            segment_len: 0,
            key: [0; 32],
            parent: String::new(),
            universe: size,
            nodes: Nodes::one(host, size),
        }
    }

    /// Encodes it, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.extend(MAGIC.to_le_bytes());
        for word in [
            PROTOCOL,
            self.rank,
            self.size,
            self.local_rank,
            self.appnum,
            self.cores,
            self.universe,
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.job.to_le_bytes());
        out.extend(self.segment_len.to_le_bytes());
        out.extend(self.key);
        out.extend((self.parent.len() as u32).to_le_bytes());
        out.extend(self.parent.as_bytes());
        self.nodes.encode(&mut out);
        out
    }

    /// Decodes a rank info, and checks that its numbers agree with each other.
    pub fn decode(bytes: &[u8]) -> Result<RankInfo, Malformed> {
        let mut input = Input::new(bytes);
        if input.u64("the magic number")? != MAGIC {
            return Err(Malformed::Magic);
        }
        match input.u32("the version")? {
            PROTOCOL => {}
            other => return Err(Malformed::Version(other)),
        }
        let rank = input.u32("the rank")?;
        let size = input.u32("the size")?;
        let local_rank = input.u32("the local rank")?;
        let appnum = input.u32("the program's number")?;
        let cores = input.u32("the number of cores")?;
        let universe = input.u32("the size of the universe")?;
        let job = input.u64("the job's number")?;
        let segment_len = input.u64("the segment's length")?;
        let key = input.take("the job's key")?;
        let parent = input.u32("the length of the parent's port")?;
        let parent = input.bytes(parent as usize, "the parent's port")?;
        let parent = String::from_utf8(parent.to_vec())
            .map_err(|_| Malformed::Field("the name of the parent's port is no text".into()))?;
        let field = |text: String| Err(Malformed::Field(text));
        if size == 0 || size > RANKS_MAX {
            return field(format!("it says that the job has {size} ranks"));
        }
        if rank >= size {
            return field(format!("it says that this is rank {rank} of {size}"));
        }
        if cores == 0 {
            return field("it says that the job may use 0 cores".into());
        }
        if universe < size {
            return field(format!(
                "its universe of {universe} is smaller than its {size} ranks"
            ));
        }
        let nodes = Nodes::decode(&mut input, size)?;
        if input.at < bytes.len() {
            return Err(Malformed::Long(bytes.len() - input.at));
        }
        let local_ranks = nodes
            .node_of(rank)
            .map(|node| nodes.ranks_of(node))
            .unwrap_or_default();
        match local_ranks.get(local_rank as usize) {
            Some(&listed) if listed == rank => {}
            Some(listed) => {
                return field(format!(
                    "it says that local rank {local_rank} is rank {rank}, and by its list that is \
                     rank {listed}"
                ));
            }
            None => {
                return field(format!(
                    "it says that this is local rank {local_rank} of {} in a job of {size} ranks",
                    local_ranks.len()
                ));
            }
        }
        Ok(RankInfo {
            rank,
            size,
            local_rank,
            local_ranks,
            appnum,
            job,
            cores,
            segment_len,
            key,
            parent,
            universe,
            nodes,
        })
    }
}

/// Reads bytes from outside, front to back.
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, at: 0 }
    }
    pub(crate) fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let piece = self
            .at
            .checked_add(len)
            .and_then(|end| self.bytes.get(self.at..end))
            .ok_or(Malformed::Short(self.bytes.len(), what))?;
        self.at += len;
        Ok(piece)
    }
    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let piece = self
            .bytes
            .get(self.at..self.at + N)
            .ok_or(Malformed::Short(self.bytes.len(), what))?;
        self.at += N;
        Ok(piece.try_into().unwrap_or([0; N]))
    }
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.take(what).map(u32::from_le_bytes)
    }
    fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.take(what).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rank_infos() -> impl Strategy<Value = RankInfo> {
        (
            1u32..300,
            any::<u32>(),
            any::<u64>(),
            1u32..512,
            any::<u64>(),
            any::<prop::sample::Index>(),
        )
            .prop_map(|(size, appnum, job, cores, segment_len, which)| {
                let rank = which.index(size as usize) as u32;
                let nodes: u32 = 1 + which.index(3.min(size as usize)) as u32;
                let hosts: Vec<String> = (0..nodes).map(|n| format!("node{n}")).collect();
                let node_of: Vec<u32> = (0..size).map(|r| r % nodes).collect();
                let nodes = Nodes::of(&hosts, &node_of);
                let local_ranks = nodes.ranks_of(node_of[rank as usize] as usize);
                let local_rank = local_ranks.iter().position(|&r| r == rank).unwrap() as u32;
                RankInfo {
                    rank,
                    size,
                    local_rank,
                    local_ranks,
                    key: [job as u8; 32],
                    parent: "port".repeat(cores as usize % 3),
                    universe: size + appnum % 9,
                    nodes,
                    appnum,
                    job,
                    cores,
                    segment_len,
                }
            })
    }

    proptest! {
        #[test]
        fn comes_back_as_it_went(w in rank_infos()) {
            prop_assert_eq!(RankInfo::decode(&w.encode()), Ok(w));
        }
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(RankInfo::decode(&bytes).is_err());
        }
        #[test]
        fn every_cut_is_noticed(w in rank_infos(), cut in any::<prop::sample::Index>()) {
            let bytes = w.encode();
            let cut = cut.index(bytes.len());
            let read = RankInfo::decode(&bytes[..cut]);
            prop_assert!(matches!(read, Err(Malformed::Short(n, _)) if n == cut));
        }
        #[test]
        fn a_changed_byte_never_breaks_the_agreement(
            w in rank_infos(),
            at in any::<prop::sample::Index>(),
            to in any::<u8>(),
        ) {
            let mut bytes = w.encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(read) = RankInfo::decode(&bytes) {
                prop_assert!(read.rank < read.size && read.cores > 0);
                prop_assert_eq!(read.local_ranks[read.local_rank as usize], read.rank);
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let w = RankInfo {
            key: [7; 32],
            ..RankInfo::on_one_host(0, 1, "here")
        };
        assert!(
            !format!("{w:?}").contains("key"),
            "a log is no place for it"
        );
        assert_ne!(new_key().unwrap(), new_key().unwrap());
        let mut bytes = w.encode();
        bytes[8] = 77;
        let error = RankInfo::decode(&bytes).unwrap_err().to_string();
        assert!(
            error.contains("version 77") && error.contains("same installation"),
            "{error}"
        );
    }
}
