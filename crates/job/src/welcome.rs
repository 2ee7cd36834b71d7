//! The first words of the launcher to a rank.

use thiserror::Error;

/// Version of everything a rank and its launcher share: welcome, notices, segment. Raised with each change of form.
pub const PROTOCOL: u32 = 1;
/// First bytes of a welcome: "ferry↵" and a nonsense byte, so that text from elsewhere is never taken for one.
const MAGIC: u64 = u64::from_le_bytes(*b"ferry\n\xfaW");
/// More ranks than this on a node are nonsense.
const RANKS_MAX: u32 = 1 << 20;

/// What the launcher tells each rank, written into its socket before the rank starts, together with the
/// node segment's descriptor (SCM_RIGHTS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// This rank in MPI_COMM_WORLD.
    pub rank: u32,
    /// Ranks in MPI_COMM_WORLD.
    pub size: u32,
    /// This rank's place among the ranks of its node.
    pub local_rank: u32,
    /// The job's ranks on this node (`local_ranks[local_rank] == rank`).
    pub local_ranks: Vec<u32>,
    /// Which program block of the mpiexec command this rank belongs to (MPI_APPNUM).
    pub appnum: u32,
    /// A number that tells this job from others on the node.
    pub job: u64,
    /// Cores that the job may use on this node (affinity and cgroup).
    pub cores: u32,
    /// Bytes in the node's segment.
    pub segment_len: u64,
}

/// Why bytes are no welcome.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Not Ferry's.
    #[error("it does not begin as a Ferry welcome")]
    Magic,
    /// From another version of Ferry.
    #[error(
        "mpiexec speaks version {0} of Ferry's launch protocol and this libmpi_abi version {PROTOCOL}; use the mpiexec of the same installation"
    )]
    Version(u32),
    /// Fewer bytes than it says.
    #[error("it ends after {0} bytes, in the middle of {1}")]
    Short(usize, &'static str),
    /// More bytes than it says.
    #[error("{0} bytes follow its end")]
    Long(usize),
    /// A field has an impossible value.
    #[error("{0}")]
    Field(String),
}

impl Welcome {
    /// The welcome as bytes, little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(56 + 4 * self.local_ranks.len());
        out.extend(MAGIC.to_le_bytes());
        for word in [
            PROTOCOL,
            self.rank,
            self.size,
            self.local_rank,
            self.appnum,
            self.cores,
        ] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.job.to_le_bytes());
        out.extend(self.segment_len.to_le_bytes());
        out.extend((self.local_ranks.len() as u32).to_le_bytes());
        for rank in &self.local_ranks {
            out.extend(rank.to_le_bytes());
        }
        out
    }

    /// Reads a welcome and checks that its numbers agree with each other.
    pub fn decode(bytes: &[u8]) -> Result<Welcome, Malformed> {
        let mut input = Input { bytes, at: 0 };
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
        let job = input.u64("the job's number")?;
        let segment_len = input.u64("the segment's length")?;
        let locals = input.u32("the number of local ranks")?;
        let field = |text: String| Err(Malformed::Field(text));
        if size == 0 || size > RANKS_MAX {
            return field(format!("it says that the job has {size} ranks"));
        }
        if rank >= size {
            return field(format!("it says that this is rank {rank} of {size}"));
        }
        if locals > size || local_rank >= locals {
            return field(format!(
                "it says that this is local rank {local_rank} of {locals} in a job of {size} ranks"
            ));
        }
        if cores == 0 {
            return field("it says that the job may use 0 cores".into());
        }
        let local_ranks = (0..locals)
            .map(|_| input.u32("the list of local ranks"))
            .collect::<Result<Vec<_>, _>>()?;
        if input.at < bytes.len() {
            return Err(Malformed::Long(bytes.len() - input.at));
        }
        if let Some(bad) = local_ranks.iter().find(|&&r| r >= size) {
            return field(format!(
                "it lists local rank {bad} in a job of {size} ranks"
            ));
        }
        if local_ranks[local_rank as usize] != rank {
            let listed = local_ranks[local_rank as usize];
            return field(format!(
                "its list says that local rank {local_rank} is rank {listed}, not {rank}"
            ));
        }
        Ok(Welcome {
            rank,
            size,
            local_rank,
            local_ranks,
            appnum,
            job,
            cores,
            segment_len,
        })
    }
}

/// Bytes from outside, read front to back.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn take<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let piece = self
            .bytes
            .get(self.at..self.at + N)
            .ok_or(Malformed::Short(self.bytes.len(), what))?;
        self.at += N;
        Ok(piece.try_into().unwrap_or([0; N]))
    }
    fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
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

    fn welcomes() -> impl Strategy<Value = Welcome> {
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
                let local_ranks = (0..size).rev().collect();
                Welcome {
                    rank,
                    size,
                    local_rank: size - 1 - rank,
                    local_ranks,
                    appnum,
                    job,
                    cores,
                    segment_len,
                }
            })
    }

    proptest! {
        #[test]
        fn comes_back_as_it_went(w in welcomes()) {
            prop_assert_eq!(Welcome::decode(&w.encode()), Ok(w));
        }
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Welcome::decode(&bytes).is_err());
        }
        #[test]
        fn every_cut_is_noticed(w in welcomes(), cut in any::<prop::sample::Index>()) {
            let bytes = w.encode();
            let cut = cut.index(bytes.len());
            prop_assert!(matches!(Welcome::decode(&bytes[..cut]), Err(Malformed::Short(n, _)) if n == cut));
        }
        #[test]
        fn a_changed_byte_never_breaks_the_agreement(w in welcomes(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
            let mut bytes = w.encode();
            let at = at.index(bytes.len());
            bytes[at] = to;
            if let Ok(read) = Welcome::decode(&bytes) {
                prop_assert!(read.rank < read.size && read.cores > 0);
                prop_assert_eq!(read.local_ranks[read.local_rank as usize], read.rank);
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let w = Welcome {
            rank: 0,
            size: 1,
            local_rank: 0,
            local_ranks: vec![0],
            appnum: 0,
            job: 1,
            cores: 1,
            segment_len: 4096,
        };
        let mut bytes = w.encode();
        bytes[8] = 77;
        let said = Welcome::decode(&bytes).unwrap_err().to_string();
        assert!(
            said.contains("version 77") && said.contains("same installation"),
            "{said}"
        );
    }
}
