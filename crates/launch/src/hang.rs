//! Who waits for whom: what the ranks' status pages say when nothing moves, and what mistake that
//! looks like.
//!
//! Pure functions of a snapshot, so that every case can be tested without a job.

use ferry_job::ITSELF;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is known of one rank at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RankView {
    /// How far it is.
    pub fate: Fate,
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
pub enum Fate {
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
pub struct Stillness(Vec<(u64, u64, u64)>);

/// Does this look like a job in which nobody can ever go on? Every rank sleeps in MPI or has
/// finished, and no message is under way, but for those to ranks that have finished and take
/// nothing any more. It is one only if it stays so; compare two answers.
pub fn stillness(ranks: &[RankView]) -> Option<Stillness> {
    let (mut asleep, mut finished) = (0, 0);
    for rank in ranks {
        match rank.fate {
            Fate::Started => return None,
            Fate::Running if !rank.asleep => return None,
            Fate::Running => asleep += 1,
            Fate::Finalized | Fate::Exited => finished += 1,
        }
    }
    let sum = |of: fn(&RankView) -> u64| ranks.iter().fold(0u64, |sum, r| sum.wrapping_add(of(r)));
    let under_way = sum(|r| r.sent) != sum(|r| r.received);
    if asleep == 0 || under_way && finished == 0 {
        return None;
    }
    Some(Stillness(
        ranks
            .iter()
            .map(|r| (r.since, r.sent, r.received))
            .collect(),
    ))
}

/// Rows of a table; more are left out.
const ROWS_MAX: usize = 40;

/// The table of who waits for whom, and the likely mistakes, each on lines of their own. `now` in
/// nanoseconds of the monotonic clock.
pub fn report(ranks: &[RankView], now: u64) -> String {
    let mut text = table(ranks, now);
    for line in mistakes(ranks) {
        let _ = writeln!(text, "likely: {line}");
    }
    text
}

/// Ranks in the same situation share a row.
fn table(ranks: &[RankView], now: u64) -> String {
    let mut rows: BTreeMap<Row, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        rows.entry(row(rank, now)).or_default().push(number);
    }
    let mut rows: Vec<(String, Row)> = {
        let mut sorted: Vec<_> = rows.into_iter().collect();
        sorted.sort_by_key(|(_, ranks)| ranks[0]);
        sorted
            .into_iter()
            .map(|(row, ranks)| (list(&ranks), row))
            .collect()
    };
    let left_out = rows.len().saturating_sub(ROWS_MAX);
    rows.truncate(ROWS_MAX);
    let head: Row = ["in", "on", "waits for", "tag", "for"].map(String::from);
    rows.insert(0, ("rank".into(), head));
    let width = |of: &dyn Fn(&(String, Row)) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let first = width(&|r| r.0.chars().count());
    let widths: Vec<usize> = (0..5).map(|i| width(&|r| r.1[i].chars().count())).collect();
    let mut text = String::new();
    for (who, row) in &rows {
        let _ = write!(text, "  {who:>first$}");
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "  {cell:<width$}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    if left_out > 0 {
        let _ = writeln!(text, "  … and {left_out} more rows");
    }
    text
}

/// Call, communicator, what it waits for, tag, how long.
type Row = [String; 5];

fn row(rank: &RankView, now: u64) -> Row {
    let idle = |text: &str| {
        [
            text.to_string(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ]
    };
    match rank.fate {
        Fate::Started => return idle("not in MPI yet (MPI_Init has not been called)"),
        Fate::Finalized => return idle("finished (MPI_Finalize is done)"),
        Fate::Exited => return idle("finished (its process has ended)"),
        Fate::Running if !rank.asleep => return idle("running"),
        Fate::Running => {}
    }
    let root = if rank.root >= 0 {
        format!(", root {}", rank.root)
    } else {
        String::new()
    };
    let (peer, tag) = match (rank.is_collective(), rank.peer) {
        (true, _) => (
            format!("collective #{}{root}", rank.collective),
            String::new(),
        ),
        (_, -1) => ("any rank".into(), tag(rank.tag)),
        (_, ITSELF) => ("its own program".into(), String::new()),
        (_, ..-1) => ("several".into(), String::new()),
        (_, peer) => (format!("rank {peer}"), tag(rank.tag)),
    };
    let comm = if rank.peer < -1 && !rank.is_collective() {
        String::new()
    } else {
        rank.comm_shown()
    };
    let seconds = now.saturating_sub(rank.since) / 100_000_000;
    [
        rank.call.clone(),
        comm,
        peer,
        tag,
        format!("{}.{} s", seconds / 10, seconds % 10),
    ]
}

fn tag(tag: i32) -> String {
    if tag < 0 {
        "any".into()
    } else {
        tag.to_string()
    }
}

impl RankView {
    /// Waits inside a collective, or while agreeing about a new object, which all members do
    /// together too.
    fn is_collective(&self) -> bool {
        self.collective > 0 || self.context & 3 != 0
    }
    fn waits(&self) -> bool {
        self.fate == Fate::Running && self.asleep
    }
    fn has_finished(&self) -> bool {
        matches!(self.fate, Fate::Finalized | Fate::Exited)
    }
    fn comm_shown(&self) -> String {
        match (self.context & !3, self.comm.as_str()) {
            (0, "") => "MPI_COMM_WORLD".into(),
            (context, "") => format!("communicator {context:#x}"),
            (_, name) => name.into(),
        }
    }
    /// The one rank that it waits for.
    fn waited_for(&self, ranks: usize) -> Option<usize> {
        let peer = usize::try_from(self.peer).ok().filter(|&p| p < ranks);
        peer.filter(|_| self.waits() && !self.is_collective())
    }
    /// In words: where it is.
    fn place(&self) -> String {
        match self.fate {
            Fate::Started => "has not called MPI_Init".into(),
            Fate::Finalized => "has finished (MPI_Finalize)".into(),
            Fate::Exited => "has ended".into(),
            Fate::Running if !self.asleep => {
                "is running outside of MPI or in a call that has not slept".into()
            }
            Fate::Running if self.is_collective() => {
                format!(
                    "is in {} on {} (collective #{})",
                    self.call,
                    self.comm_shown(),
                    self.collective
                )
            }
            Fate::Running => match self.peer {
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

/// "0-3, 7".
fn list(ranks: &[usize]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < ranks.len() {
        let start = at;
        while at + 1 < ranks.len() && ranks[at + 1] == ranks[at] + 1 {
            at += 1;
        }
        if !text.is_empty() {
            text += ", ";
        }
        let _ = match at - start {
            0 => write!(text, "{}", ranks[start]),
            1 => write!(text, "{}, {}", ranks[start], ranks[at]),
            _ => write!(text, "{}-{}", ranks[start], ranks[at]),
        };
        at += 1;
    }
    text
}

/// "rank 3", "ranks 0-3, 7".
pub fn ranks_named(ranks: &[usize]) -> String {
    format!(
        "rank{} {}",
        if ranks.len() == 1 { "" } else { "s" },
        list(ranks)
    )
}

/// Likely mistakes, the surest first; at least one for a job that hangs.
pub fn mistakes(ranks: &[RankView]) -> Vec<String> {
    let mut found = Vec::new();
    collective_mistakes(ranks, &mut found);
    finished_peers(ranks, &mut found);
    cycles(ranks, &mut found);
    own_programs(ranks, &mut found);
    if found.is_empty() {
        one_sided_waits(ranks, &mut found);
    }
    if found.is_empty() && ranks.iter().any(RankView::waits) {
        found.push(
            "no rank will send what the others wait for; compare tags, communicators and the number of sends and receives".into(),
        );
    }
    found.truncate(6);
    found
}

/// Members of a communicator that are in different collectives, or some in none.
fn collective_mistakes(ranks: &[RankView], found: &mut Vec<String>) {
    let mut comms: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks
        .iter()
        .enumerate()
        .filter(|(_, r)| r.waits() && r.is_collective())
    {
        comms.entry(rank.context & !3).or_default().push(number);
    }
    for (context, inside) in comms {
        let first = &ranks[inside[0]];
        let comm = first.comm_shown();
        let same = |of: &dyn Fn(&RankView) -> bool| -> (Vec<usize>, Vec<usize>) {
            inside.iter().partition(|&&r| of(&ranks[r]))
        };
        let (alike, others) = same(&|r| r.call == first.call);
        if let Some(&other) = others.first() {
            found.push(format!(
                "{} {} in {} but {} in {}: all ranks of {comm} must call the same collectives in the same order",
                ranks_named(&alike),
                if alike.len() == 1 { "is" } else { "are" },
                first.call,
                ranks_named(&others.iter().copied().filter(|&r| ranks[r].call == ranks[other].call).collect::<Vec<_>>()),
                ranks[other].call,
            ));
            continue;
        }
        let (alike, others) = same(&|r| r.root == first.root);
        if let Some(&other) = others.first() {
            found.push(format!(
                "in {} on {comm}, {} gave root {} but {} root {}: all must give the same root",
                first.call,
                ranks_named(&alike),
                first.root,
                ranks_named(
                    &others
                        .iter()
                        .copied()
                        .filter(|&r| ranks[r].root == ranks[other].root)
                        .collect::<Vec<_>>()
                ),
                ranks[other].root,
            ));
            continue;
        }
        if first.context & 3 == 1
            && let (alike, others) = same(&|r| r.collective == first.collective)
            && let Some(&other) = others.first()
        {
            found.push(format!(
                "{} in collective #{} of {comm} ({}) but {} in #{}: somebody has called one more or one less",
                ranks_named(&alike),
                first.collective,
                first.call,
                ranks_named(&others),
                ranks[other].collective,
            ));
        }
        missing_members(ranks, context, &inside, found);
    }
}

/// Members that are not in the collective in which others wait.
fn missing_members(ranks: &[RankView], context: u64, inside: &[usize], found: &mut Vec<String>) {
    let first = &ranks[inside[0]];
    let size = if first.comm_size > 0 {
        first.comm_size as usize
    } else {
        ranks.len()
    };
    if inside.len() >= size {
        return;
    }
    let call = &first.call;
    let who = ranks_named(inside);
    let wait = if inside.len() == 1 { "waits" } else { "wait" };
    // Only of the world's members (or of a communicator of the same size) is it known who they are.
    if context == 0 || size == ranks.len() {
        let missing: Vec<usize> = (0..ranks.len()).filter(|r| !inside.contains(r)).collect();
        let mut named: Vec<(String, Vec<usize>)> = Vec::new();
        for &rank in &missing {
            let place = ranks[rank].place();
            match named.iter_mut().find(|(p, _)| *p == place) {
                Some((_, group)) => group.push(rank),
                None => named.push((place, vec![rank])),
            }
        }
        let rest = named.len().saturating_sub(3);
        let mut places: Vec<String> = named
            .iter()
            .take(3)
            .map(|(place, group)| format!("{} {}", ranks_named(group), plural(place, group.len())))
            .collect();
        if rest > 0 {
            places.push(format!("and {rest} more kinds of places"));
        }
        found.push(format!(
            "{who} {wait} in {call} on {}, which not all have entered: {}",
            first.comm_shown(),
            places.join("; ")
        ));
    } else {
        found.push(format!(
            "{who} {wait} in {call} on {}, which has {size} ranks: {} of them {} not in it",
            first.comm_shown(),
            size - inside.len(),
            if size - inside.len() == 1 {
                "is"
            } else {
                "are"
            },
        ));
    }
}

/// "has ended" and "is in …" of several.
fn plural(place: &str, many: usize) -> String {
    match (many, place.split_once(' ')) {
        (2.., Some(("has", rest))) => format!("have {rest}"),
        (2.., Some(("is", rest))) => format!("are {rest}"),
        _ => place.into(),
    }
}

/// Ranks that wait for one that will never answer.
fn finished_peers(ranks: &[RankView], found: &mut Vec<String>) {
    let mut by_peer: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        if let Some(peer) = rank
            .waited_for(ranks.len())
            .filter(|&p| ranks[p].has_finished())
        {
            by_peer.entry(peer).or_default().push(number);
        }
    }
    for (peer, waiting) in by_peer {
        let one = &ranks[waiting[0]];
        let verb = if waiting.len() == 1 { "waits" } else { "wait" };
        found.push(format!(
            "{} {verb} in {} (tag {}) for rank {peer}, which {}: there are more receives than sends, or a tag or communicator differs",
            ranks_named(&waiting),
            one.call,
            tag(one.tag),
            ranks[peer].place(),
        ));
    }
    let any: Vec<usize> = (0..ranks.len())
        .filter(|&r| ranks[r].waits() && !ranks[r].is_collective() && ranks[r].peer == -1)
        .collect();
    let others_finished = (0..ranks.len()).all(|r| any.contains(&r) || ranks[r].has_finished());
    if let (Some(&one), true) = (any.first(), others_finished) {
        found.push(format!(
            "{} {} in {} for a message from any rank, but all others have finished",
            ranks_named(&any),
            if any.len() == 1 { "waits" } else { "wait" },
            ranks[one].call
        ));
    }
}

/// Rings of ranks that each wait for the next.
fn cycles(ranks: &[RankView], found: &mut Vec<String>) {
    let mut seen = vec![0usize; ranks.len()];
    for start in 0..ranks.len() {
        let mut path = Vec::new();
        let mut at = start;
        let next = loop {
            if seen[at] != 0 {
                break (seen[at] == start + 1).then_some(at);
            }
            seen[at] = start + 1;
            path.push(at);
            match ranks[at].waited_for(ranks.len()) {
                Some(peer) => at = peer,
                None => break None,
            }
        };
        let Some(entry) = next else { continue };
        let ring: Vec<usize> = path.iter().copied().skip_while(|&r| r != entry).collect();
        found.push(ring_in_words(ranks, &ring));
    }
}

fn ring_in_words(ranks: &[RankView], ring: &[usize]) -> String {
    // Of requests that are waited for only a receive says whom it waits for.
    let receives = |r: &usize| {
        matches!(
            ranks[*r].call.as_str(),
            "MPI_Recv"
                | "MPI_Probe"
                | "MPI_Mprobe"
                | "MPI_Mrecv"
                | "MPI_Wait"
                | "MPI_Waitall"
                | "MPI_Waitany"
                | "MPI_Waitsome"
        )
    };
    let sends = |r: &usize| {
        matches!(
            ranks[*r].call.as_str(),
            "MPI_Send" | "MPI_Ssend" | "MPI_Rsend" | "MPI_Bsend"
        )
    };
    if let [alone] = ring {
        return format!(
            "rank {alone} waits in {} for itself; nobody else can end that",
            ranks[*alone].call
        );
    }
    let mut who = if ring.len() == 2 {
        format!("ranks {} and {} wait for each other", ring[0], ring[1])
    } else if ring.len() <= 8 {
        let mut chain: Vec<String> = ring.iter().map(usize::to_string).collect();
        chain.push(ring[0].to_string());
        format!("ranks wait for each other in a ring: {}", chain.join(" → "))
    } else {
        format!(
            "{} ranks wait for each other in a ring: {} → {} → {} → …",
            ring.len(),
            ring[0],
            ring[1],
            ring[2]
        )
    };
    let _ = if ring.iter().all(receives) {
        write!(
            who,
            ", all receiving: nobody sends first (or a message came with another tag or on another communicator)"
        )
    } else if ring.iter().all(sends) {
        write!(
            who,
            ", all sending: a send of this size (or a synchronous one) returns only when its receive is there; use MPI_Sendrecv or MPI_Isend"
        )
    } else {
        let calls: Vec<String> = ring
            .iter()
            .take(4)
            .map(|&r| format!("{r} in {} (tag {})", ranks[r].call, tag(ranks[r].tag)))
            .collect();
        write!(
            who,
            ": {}; compare tags and communicators",
            calls.join(", ")
        )
    };
    who
}

/// Ranks that wait for generalised requests, which nobody but their own program completes.
fn own_programs(ranks: &[RankView], found: &mut Vec<String>) {
    let mut by_call: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        if rank.waits() && !rank.is_collective() && rank.peer == ITSELF {
            by_call.entry(&rank.call).or_default().push(number);
        }
    }
    for (call, who) in by_call {
        found.push(format!(
            "{} {} in {call} for generalised requests, which only {} own program can complete (MPI_Grequest_complete): before the wait, or in another thread, which may call MPI meanwhile only if the program has asked for MPI_THREAD_MULTIPLE",
            ranks_named(&who),
            if who.len() == 1 { "waits" } else { "wait" },
            if who.len() == 1 { "its" } else { "their" },
        ));
    }
}

/// Neither rings nor finished peers: say of each waited-for rank what it does instead.
fn one_sided_waits(ranks: &[RankView], found: &mut Vec<String>) {
    for (number, rank) in ranks.iter().enumerate() {
        if let Some(peer) = rank.waited_for(ranks.len()) {
            found.push(format!(
                "rank {number} waits in {} (tag {}) for rank {peer}, which {}",
                rank.call,
                tag(rank.tag),
                ranks[peer].place()
            ));
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod fuzz;
