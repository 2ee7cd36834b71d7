//! Match keys: the fields of a message that matching compares, and the pattern of a receive.

use ferry_transport::SHORT_HEAD_BYTES;

/// A process of the job, numbered from 0 across all its nodes (its rank in MPI_COMM_WORLD).
pub type ProcId = u32;

/// A communication context. Two messages of different contexts never match (MPI 5.0 §3.2.3).
///
/// It is unique in the job. The process that leads the creation of a communicator makes it from its
/// own process number and a counter of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ContextId(pub u64);

impl ContextId {
    /// The context of point-to-point messages in MPI_COMM_WORLD.
    pub const WORLD: ContextId = ContextId(0);
    /// The context of MPI_COMM_SELF; every process has its own.
    pub const SELF: ContextId = ContextId(4);

    /// The `counter`-th context (from 2 on) made by process `leader`.
    pub fn new(leader: ProcId, counter: u32) -> ContextId {
        ContextId((u64::from(leader) << 32) | (u64::from(counter) << 2))
    }

    /// A context that is no other process's, whatever its job: of 61 random bits.
    pub fn random(bits: u64) -> ContextId {
        ContextId((bits | 1 << 63) & !3)
    }

    /// Was it made by [`ContextId::random`]?
    pub fn is_random(self) -> bool {
        self.0 >> 63 != 0
    }

    /// The context of the communicator's point-to-point messages, of any of its contexts.
    pub(crate) fn of_comm(self) -> ContextId {
        ContextId(self.0 & !3)
    }

    /// The context of the communicator's collectives.
    pub fn collective(self) -> ContextId {
        ContextId(self.0 | 1)
    }

    /// Is this a communicator's context of collectives, and not that of point-to-point messages?
    pub fn is_collective(self) -> bool {
        self.0 & 3 == 1
    }

    /// The context of the messages by which members agree, for example on a new communicator.
    pub fn control(self) -> ContextId {
        ContextId(self.0 | 2)
    }

    /// The context in which partitioned sends and receives are matched.
    pub fn partitioned(self) -> ContextId {
        ContextId(self.0 | 3)
    }

    /// The context of agreements among some of the members, for example in MPI_Comm_create_group.
    /// The program's tag distinguishes them.
    pub fn tagged(self) -> ContextId {
        ContextId(self.0 | 3)
    }
}

/// The match key of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The communication context.
    pub context: ContextId,
    /// The sender's rank in the communicator's (remote) group.
    pub source: u32,
    /// The tag, not negative.
    pub tag: u32,
}

impl Key {
    /// As the header of an eager message (`Header::key`).
    #[inline]
    pub(crate) fn encode(&self) -> [u8; SHORT_HEAD_BYTES] {
        let mut out = [0; SHORT_HEAD_BYTES];
        out[..8].copy_from_slice(&self.context.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.source.to_le_bytes());
        out[12..].copy_from_slice(&self.tag.to_le_bytes());
        out
    }

    /// The envelope of a message with this key and `len` bytes.
    #[inline]
    pub(crate) fn envelope(&self, len: u64) -> Envelope {
        Envelope {
            source: self.source,
            tag: self.tag,
            len,
        }
    }
}

/// The tags that a receive or a probe accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tags {
    tag: u32,
    /// The bits that must be equal to those of `tag`.
    mask: u32,
}

impl Tags {
    /// Every tag (MPI_ANY_TAG).
    pub const ANY: Tags = Tags::masked(0, 0);

    /// One tag.
    #[inline]
    pub const fn one(tag: u32) -> Tags {
        Tags::masked(tag, u32::MAX)
    }

    /// The tags that are equal to `tag` in the bits of `mask`. The other bits are data for the
    /// receiver.
    #[inline]
    pub const fn masked(tag: u32, mask: u32) -> Tags {
        Tags { tag, mask }
    }

    #[inline]
    pub(crate) fn accept(self, tag: u32) -> bool {
        (self.tag ^ tag) & self.mask == 0
    }

    /// The tag, if only one is accepted.
    #[inline]
    pub fn only(self) -> Option<u32> {
        (self.mask == u32::MAX).then_some(self.tag)
    }
}

/// The given tag; every tag for `None`.
impl From<Option<u32>> for Tags {
    #[inline]
    fn from(tag: Option<u32>) -> Tags {
        tag.map_or(Tags::ANY, Tags::one)
    }
}

/// What a receive or a probe matches: the counterpart of [`Key`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// The communication context.
    pub context: ContextId,
    /// The sender's rank, or `None` for any source.
    pub source: Option<u32>,
    /// The tags.
    pub tag: Tags,
}

impl Pattern {
    /// Does a message with `key` match?
    #[inline]
    pub fn accepts(&self, key: &Key) -> bool {
        self.context == key.context
            && self.tag.accept(key.tag)
            && self.source.is_none_or(|s| s == key.source)
    }

    /// The source and the tag, if the pattern has no wildcard.
    #[inline]
    pub(crate) fn source_tag(&self) -> Option<(u32, u32)> {
        self.source.zip(self.tag.only())
    }
}

/// Source, tag and length of a message that has arrived or was announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender's rank in the communicator's (remote) group.
    pub source: u32,
    /// The tag.
    pub tag: u32,
    /// Bytes that the sender sent.
    pub len: u64,
}
