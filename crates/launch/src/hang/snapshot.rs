//! What is known of all ranks at one moment.

use std::collections::BTreeSet;

use ferry_job::{PEER_AT_PORT, PEER_OWN_PROGRAM};

use crate::protocol::AwaitedView;

/// What is known of one rank at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RankView {
    /// How far it is.
    pub phase: RankPhase,
    /// All its threads that are in MPI sleep.
    pub asleep: bool,
    /// The call it is in.
    pub call: String,
    /// When it fell asleep, nanoseconds of the monotonic clock.
    pub since: u64,
    /// The communicator's context id. Its two lowest bits tell the kind of traffic: 0
    /// point-to-point, 1 collectives, 2 agreement about new objects.
    pub context: u64,
    /// The communicator's name.
    pub comm: String,
    /// Ranks in the communicator. 0 if unknown.
    pub comm_size: u32,
    /// It waits for processes of a job that it does not know.
    pub awaits_unknown: bool,
    /// It has known processes of other jobs that it knows no more.
    pub has_parted: bool,
    /// The other jobs of which it knows processes.
    pub known_jobs: Vec<u64>,
    /// Job and rank of a peer that is of another job, whose number here means nothing.
    pub peer_elsewhere: Option<(u64, u32)>,
    /// The rank that is waited for. -1 for any, else [`ferry_job::PEER_SEVERAL`],
    /// [`ferry_job::PEER_OWN_PROGRAM`] or [`ferry_job::PEER_AT_PORT`].
    pub peer: i32,
    /// The tag that is waited for. -1 for any. For collectives see [`RankView::bytes`].
    pub tag: i32,
    /// How many collectives the communicator has started.
    pub collective: u64,
    /// The collective's root in the communicator. -1 for none.
    pub root: i32,
    /// What the request is that it waits for: the function that has started it, or a word. Empty if
    /// it waits for none, or that is not known.
    pub operation: String,
    /// How many requests it waits for, where a call waits for several. The other fields tell of the
    /// first if all of them have to be complete.
    pub awaited_count: u32,
    /// The first of them.
    pub awaited: Vec<AwaitedView>,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
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

/// Signature of a job in which no rank moves. If two snapshots have the same one, nothing has moved
/// between them.
#[derive(Clone, Debug, PartialEq)]
pub struct StalledState {
    ranks: Vec<(u64, u64, u64)>,
    /// Messages that its ranks have sent and received.
    pub traffic: Traffic,
    /// The other jobs of which its ranks know processes, any of which may wake them.
    pub known_jobs: BTreeSet<u64>,
}

/// Messages of a job, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Sent, modulo 2^64.
    pub sent: u64,
    /// Received, modulo 2^64.
    pub received: u64,
    /// A process has finished, and takes no messages any more; or what was exchanged with
    /// processes that are known no more is still counted.
    pub has_finished: bool,
}

impl Traffic {
    /// The sum of both.
    pub fn with(self, other: Traffic) -> Traffic {
        Traffic {
            sent: self.sent.wrapping_add(other.sent),
            received: self.received.wrapping_add(other.received),
            has_finished: self.has_finished || other.has_finished,
        }
    }

    /// Is a message under way? Those to processes that have finished do not count.
    pub fn is_under_way(self) -> bool {
        self.sent != self.received && !self.has_finished
    }

    /// Has every message been taken that was sent? If not, those that are left may be for processes
    /// that have finished.
    pub fn all_taken(self) -> bool {
        self.sent == self.received
    }
}

/// The signature of a job that seems to hang: every rank sleeps in MPI or has finished, and no
/// message is under way. The job hangs only if the signature stays the same, and if the jobs that
/// its ranks know hang, too; messages may be under way between the jobs then.
pub fn stalled_state(ranks: &[RankView]) -> Option<StalledState> {
    let (mut asleep, mut known_jobs) = (0, BTreeSet::new());
    let mut traffic = Traffic::default();
    for rank in ranks {
        match rank.phase {
            RankPhase::Started => return None,
            RankPhase::Running if !rank.asleep => return None,
            // Anyone may come to a port.
            RankPhase::Running if rank.awaits_unknown => return None,
            RankPhase::Running => asleep += 1,
            RankPhase::Finalized | RankPhase::Exited => {}
        }
        if !rank.has_finished() {
            known_jobs.extend(&rank.known_jobs);
        }
        traffic = traffic.with(Traffic {
            sent: rank.sent,
            received: rank.received,
            has_finished: rank.has_finished() || rank.has_parted,
        });
    }
    if asleep == 0 || known_jobs.is_empty() && traffic.is_under_way() {
        return None;
    }
    let signature = |r: &RankView| (r.since, r.sent, r.received);
    Some(StalledState {
        ranks: ranks.iter().map(signature).collect(),
        traffic,
        known_jobs,
    })
}

impl RankView {
    /// Waits in a collective, or in the agreement about a new object, which is collective, too.
    pub(super) fn is_collective(&self) -> bool {
        self.collective > 0 || self.context & 3 != 0
    }
    /// Waits in the agreement of a collective call that makes or frees an object.
    pub(super) fn is_agreement(&self) -> bool {
        self.collective == 0 && self.context & 3 > 1
    }
    /// Bytes of its collective's data by the rank's own arguments, at most [`i32::MAX`].
    pub(super) fn bytes(&self) -> Option<i32> {
        let known = self.is_collective() && !self.is_agreement() && self.tag >= 0;
        (known && self.has_counts()).then_some(self.tag)
    }
    /// Its collective has counts or a root. A barrier has neither, nor a call that makes an object.
    pub(super) fn has_counts(&self) -> bool {
        let stems = ["cast", "educe", "ather", "catter", "lltoall", "can"];
        stems.iter().any(|stem| self.function().contains(stem))
    }
    /// Waits for a request's operation, not for what the call itself does.
    pub(super) fn waits_for_request(&self) -> bool {
        self.call.starts_with("MPI_Wait")
    }
    /// The function that its collective is: the one that has started the request, or the call.
    pub(super) fn function(&self) -> &str {
        match self.waits_for_request() && self.operation.starts_with("MPI_") {
            true => &self.operation,
            false => &self.call,
        }
    }
    /// The function is known.
    pub(super) fn names_function(&self) -> bool {
        !self.waits_for_request() || self.operation.starts_with("MPI_")
    }
    /// The call, and what has started what it waits for.
    pub(super) fn call_in_words(&self) -> String {
        match self.function() {
            function if function != self.call => format!("{} for {function}", self.call),
            _ => self.call.clone(),
        }
    }
    /// What a call waits for that waits for several requests. `None`: it does not.
    pub(super) fn awaited_in_words(&self) -> Option<String> {
        if self.awaited_count < 2 || !self.waits() {
            return None;
        }
        let of = |one: &AwaitedView| {
            let on = match one.context == self.context {
                true => self.comm_shown(),
                false => comm_shown(one.context, ""),
            };
            let what = match one.operation.as_str() {
                "" => "an operation",
                what => what,
            };
            match (one.collective, one.peer) {
                (1.., _) => format!("{what} on {on} (collective #{})", one.collective),
                (_, PEER_OWN_PROGRAM) => "a generalised request".into(),
                (_, ..-1) => format!("{what} on {on}"),
                (_, -1) => format!("{what} from any rank, tag {}, on {on}", tag(one.tag)),
                (_, peer) if what == "a send" => format!("{what} to rank {peer} on {on}"),
                (_, peer) => format!("{what} from rank {peer}, tag {}, on {on}", tag(one.tag)),
            }
        };
        let mut all: Vec<String> = self.awaited.iter().map(of).collect();
        match self.awaited_count as usize - all.len().min(self.awaited_count as usize) {
            0 => {}
            more => all.push(format!("{more} more")),
        }
        Some(all.join("; "))
    }
    /// It waits for a send.
    pub(super) fn sends(&self) -> bool {
        match self.waits_for_request() || self.call == "MPI_Finalize" {
            true => self.operation == "a send",
            false => matches!(
                self.call.as_str(),
                "MPI_Send" | "MPI_Ssend" | "MPI_Rsend" | "MPI_Bsend"
            ),
        }
    }
    /// It waits for a receive.
    pub(super) fn receives(&self) -> bool {
        match self.waits_for_request() {
            true => self.operation == "a receive",
            false => matches!(
                self.call.as_str(),
                "MPI_Recv" | "MPI_Probe" | "MPI_Mprobe" | "MPI_Mrecv"
            ),
        }
    }
    /// The tag that it waits for, in parentheses. Of a request that sends it is not known.
    pub(super) fn tag_in_words(&self) -> String {
        match self.operation == "a send" {
            true => String::new(),
            false => format!(" (tag {})", tag(self.tag)),
        }
    }
    pub(super) fn waits(&self) -> bool {
        self.phase == RankPhase::Running && self.asleep
    }
    pub(super) fn has_finished(&self) -> bool {
        matches!(self.phase, RankPhase::Finalized | RankPhase::Exited)
    }
    pub(super) fn comm_shown(&self) -> String {
        match self.is_agreement() && self.context & 3 == 3 {
            true => format!("a group of {}", self.comm_size),
            false => comm_shown(self.context, &self.comm),
        }
    }
    /// The rank whose message it waits for, if it is exactly one.
    pub(super) fn waited_for(&self, ranks: usize) -> Option<usize> {
        let peer = usize::try_from(self.peer).ok().filter(|&p| p < ranks);
        peer.filter(|_| self.waits() && !self.is_collective() && self.window_wait().is_none())
    }
    /// What the rank does, in words.
    pub(super) fn activity(&self) -> String {
        match self.phase {
            RankPhase::Started => "has not called MPI_Init".into(),
            RankPhase::Finalized => "has finished (MPI_Finalize)".into(),
            RankPhase::Exited => "has ended".into(),
            RankPhase::Running if !self.asleep => {
                "is running outside of MPI or in a call that has not slept".into()
            }
            RankPhase::Running if self.is_agreement() => {
                format!("is in {} on {}", self.call, self.comm_shown())
            }
            RankPhase::Running if self.is_collective() => {
                format!(
                    "is in {} on {} (collective #{})",
                    self.call_in_words(),
                    self.comm_shown(),
                    self.collective
                )
            }
            RankPhase::Running if let Some(what) = self.window_wait() => {
                format!("is in {} on {}, for {what}", self.call, self.comm_shown())
            }
            RankPhase::Running if let Some((job, rank)) = self.peer_elsewhere => format!(
                "is in {} with rank {rank} of job {job:x}, tag {}, on {}",
                self.call,
                tag(self.tag),
                self.comm_shown()
            ),
            RankPhase::Running => match self.peer {
                PEER_AT_PORT => format!("is in {}, at a port", self.call),
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

/// A communicator in words.
fn comm_shown(context: u64, name: &str) -> String {
    match (context & !3, name) {
        (0, "") => "MPI_COMM_WORLD".into(),
        (context, "") => format!("communicator {context:#x}"),
        (_, name) => name.into(),
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
