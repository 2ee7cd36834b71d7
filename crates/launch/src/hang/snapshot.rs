//! What is known of all ranks at one moment.

/// What is known of one rank at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RankView {
    /// How far it is.
    pub phase: RankPhase,
    /// All its threads that are in MPI sleep.
    pub asleep: bool,
    /// The call it is in.
    pub call: String,
    /// Since when it sleeps, nanoseconds of the monotonic clock.
    pub since: u64,
    /// The communicator's context; the two lowest bits say what travels there: 0 messages, 1
    /// collectives, 2 agreement about new objects.
    pub context: u64,
    /// The communicator's name.
    pub comm: String,
    /// Ranks in the communicator; 0 unknown.
    pub comm_size: u32,
    /// The rank waited for; -1 any, or [`ferry_job::SEVERAL`], or [`ITSELF`].
    pub peer: i32,
    /// The tag waited for; -1 any.
    pub tag: i32,
    /// How many collectives the communicator has started.
    pub collective: u64,
    /// The collective's root in the communicator; -1 none.
    pub root: i32,
    /// Messages handed over.
    pub sent: u64,
    /// Messages taken.
    pub received: u64,
}

/// How far a rank is.
#[derive(Clone, Debug, PartialEq)]
pub enum RankPhase {
    /// MPI is not initialised.
    Started,
    /// Between initialisation and finalisation.
    Running,
    /// Finalised, still there.
    Finalized,
    /// Ended.
    Exited,
}

/// What makes two looks at a job the same: nothing moved between them.
#[derive(Clone, Debug, PartialEq)]
pub struct StalledState(Vec<(u64, u64, u64)>);

/// Does this look like a job in which nobody can ever go on? Every rank sleeps in MPI or has
/// finished, and no message is under way, but for those to ranks that have finished and take
/// nothing any more. It is one only if it stays so; compare two answers.
pub fn stalled_state(ranks: &[RankView]) -> Option<StalledState> {
    let (mut asleep, mut finished) = (0, 0);
    for rank in ranks {
        match rank.phase {
            RankPhase::Started => return None,
            RankPhase::Running if !rank.asleep => return None,
            RankPhase::Running => asleep += 1,
            RankPhase::Finalized | RankPhase::Exited => finished += 1,
        }
    }
    let sum = |of: fn(&RankView) -> u64| ranks.iter().fold(0u64, |sum, r| sum.wrapping_add(of(r)));
    let under_way = sum(|r| r.sent) != sum(|r| r.received);
    if asleep == 0 || under_way && finished == 0 {
        return None;
    }
    Some(StalledState(
        ranks
            .iter()
            .map(|r| (r.since, r.sent, r.received))
            .collect(),
    ))
}

impl RankView {
    /// ThreadState inside a collective, or while agreeing about a new object, which all members do
    /// together too.
    pub(super) fn is_collective(&self) -> bool {
        self.collective > 0 || self.context & 3 != 0
    }
    pub(super) fn waits(&self) -> bool {
        self.phase == RankPhase::Running && self.asleep
    }
    pub(super) fn has_finished(&self) -> bool {
        matches!(self.phase, RankPhase::Finalized | RankPhase::Exited)
    }
    pub(super) fn comm_shown(&self) -> String {
        match (self.context & !3, self.comm.as_str()) {
            (0, "") => "MPI_COMM_WORLD".into(),
            (context, "") => format!("communicator {context:#x}"),
            (_, name) => name.into(),
        }
    }
    /// The one rank that it waits for.
    pub(super) fn waited_for(&self, ranks: usize) -> Option<usize> {
        let peer = usize::try_from(self.peer).ok().filter(|&p| p < ranks);
        peer.filter(|_| self.waits() && !self.is_collective())
    }
    /// In words: where it is.
    pub(super) fn activity(&self) -> String {
        match self.phase {
            RankPhase::Started => "has not called MPI_Init".into(),
            RankPhase::Finalized => "has finished (MPI_Finalize)".into(),
            RankPhase::Exited => "has ended".into(),
            RankPhase::Running if !self.asleep => {
                "is running outside of MPI or in a call that has not slept".into()
            }
            RankPhase::Running if self.is_collective() => {
                format!(
                    "is in {} on {} (collective #{})",
                    self.call,
                    self.comm_shown(),
                    self.collective
                )
            }
            RankPhase::Running => match self.peer {
                ..-1 => format!("is in {}", self.call),
                -1 => format!("is in {} from any rank on {}", self.call, self.comm_shown()),
                peer => format!(
                    "is in {} with rank {peer}, tag {}, on {}",
                    self.call,
                    tag(self.tag),
                    self.comm_shown()
                ),
            },
        }
    }
}

/// A tag in words.
pub(super) fn tag(tag: i32) -> String {
    if tag < 0 {
        "any".into()
    } else {
        tag.to_string()
    }
}
