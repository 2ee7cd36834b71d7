//! Match keys: what an arriving message carries and what a receive asks for.

/// A process of the job, numbered from 0 across all its nodes (its rank in MPI_COMM_WORLD).
pub type ProcId = u32;

/// A communication context. Two messages of different contexts never match (MPI 5.0 §3.2.3).
///
/// Unique in the job without agreement: the process that leads the creation of a communicator
/// numbers it with its own process number and a counter of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ContextId(pub u64);

impl ContextId {
    /// The context in which MPI_COMM_WORLD's point-to-point messages travel.
    pub const WORLD: ContextId = ContextId(0);
    /// The context of MPI_COMM_SELF; every process has its own.
    pub const SELF: ContextId = ContextId(4);

    /// The `counter`-th context (from 2 on) made by process `leader`.
    pub fn new(leader: ProcId, counter: u32) -> ContextId {
        ContextId((u64::from(leader) << 32) | (u64::from(counter) << 2))
    }

    /// The twin of this context in which the communicator's collectives travel.
    pub fn collective(self) -> ContextId {
        ContextId(self.0 | 1)
    }

    /// Is it the twin for collectives?
    pub fn is_collective(self) -> bool {
        self.0 & 3 == 1
    }

    /// The twin for messages with which a communicator's members agree on something (creation of
    /// others).
    pub fn control(self) -> ContextId {
        ContextId(self.0 | 2)
    }

    /// The twin in which partitioned sends and receives find each other.
    pub fn partitioned(self) -> ContextId {
        ContextId(self.0 | 3)
    }

    /// The twin for such messages where not all members take part: the tag that the program gives
    /// tells them apart.
    pub fn tagged(self) -> ContextId {
        ContextId(self.0 | 3)
    }
}

/// What a message carries to be matched by.
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
    /// What is known of a message that carries this key and `len` bytes.
    #[inline]
    pub(crate) fn envelope(&self, len: u64) -> Envelope {
        Envelope {
            source: self.source,
            tag: self.tag,
            len,
        }
    }
}

/// The tags that a receive or a probe asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tags {
    tag: u32,
    /// The bits that must be those of `tag`.
    matched: u32,
}

impl Tags {
    /// Any.
    pub const ANY: Tags = Tags::alike(0, 0);

    /// This one.
    #[inline]
    pub const fn one(tag: u32) -> Tags {
        Tags::alike(tag, u32::MAX)
    }

    /// Those that are like `tag` in the bits of `matched`; what the others say is left to the
    /// receiver.
    #[inline]
    pub const fn alike(tag: u32, matched: u32) -> Tags {
        Tags { tag, matched }
    }

    #[inline]
    fn accept(self, tag: u32) -> bool {
        (self.tag ^ tag) & self.matched == 0
    }

    /// The tag, if there is only one.
    #[inline]
    pub fn only(self) -> Option<u32> {
        (self.matched == u32::MAX).then_some(self.tag)
    }
}

/// This one, or any.
impl From<Option<u32>> for Tags {
    #[inline]
    fn from(tag: Option<u32>) -> Tags {
        tag.map_or(Tags::ANY, Tags::one)
    }
}

/// What a receive or a probe asks for.
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

    /// The source and the tag, if there is only one of each.
    #[inline]
    pub(crate) fn address(&self) -> Option<(u32, u32)> {
        self.source.zip(self.tag.only())
    }
}

/// What is known of a message that has arrived or been announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The sender's rank in the communicator's (remote) group.
    pub source: u32,
    /// The tag.
    pub tag: u32,
    /// Bytes that the sender sent.
    pub len: u64,
}
