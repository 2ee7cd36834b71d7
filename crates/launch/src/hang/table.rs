//! The table of who waits for whom.

use std::collections::BTreeMap;
use std::fmt::Write;

use ferry_job::{PEER_AT_PORT, PEER_OWN_PROGRAM, PEER_SEVERAL};

use super::snapshot::{RankPhase, RankView, tag};

/// Rows of a table. More would scroll the reason off a terminal.
const ROWS_MAX: usize = 40;

/// The table as text. Ranks in the same situation share a row.
pub fn table(ranks: &[RankView], now: u64) -> String {
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
    awaited_requests(ranks, &mut text);
    text
}

/// Ranks whose requests are named, one by one. A choice: the reason should not scroll away.
const NAMED_RANKS_MAX: usize = 4;

/// Adds what the first ranks wait for that wait for several requests.
fn awaited_requests(ranks: &[RankView], text: &mut String) {
    let mut found = ranks
        .iter()
        .enumerate()
        .filter_map(|(number, rank)| Some((number, rank, rank.awaited_in_words()?)));
    for (number, rank, requests) in found.by_ref().take(NAMED_RANKS_MAX) {
        let _ = writeln!(text, "  rank {number}, {}: {requests}", rank.call);
    }
    match found.count() {
        0 => {}
        more => {
            _ = writeln!(
                text,
                "  … and {more} more ranks that wait for several requests"
            )
        }
    }
}

/// Cells of a row: call, communicator, awaited rank, tag, duration.
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
    match rank.phase {
        RankPhase::Started => return idle("not in MPI yet (MPI_Init has not been called)"),
        RankPhase::Finalized => return idle("finished (MPI_Finalize is done)"),
        RankPhase::Exited => return idle("finished (its process has ended)"),
        RankPhase::Running if !rank.asleep => return idle("running"),
        RankPhase::Running => {}
    }
    let root = if rank.root >= 0 {
        format!(", root {}", rank.root)
    } else {
        String::new()
    };
    let bytes = rank
        .bytes()
        .map_or(String::new(), |n| format!(", {}", bytes_in_words(n)));
    let more = match rank.awaited_count {
        0 | 1 => String::new(),
        _ if rank.peer == PEER_SEVERAL && !rank.is_collective() => String::new(),
        count => format!(", {} more", count - 1),
    };
    let function = match rank.function() {
        function if function == rank.call => String::new(),
        function => format!("{function}, "),
    };
    let on_window = rank.window_wait();
    let (peer, tag) = match (rank.is_collective(), rank.peer) {
        _ if let Some(what) = &on_window => (what.clone(), String::new()),
        (true, peer) if rank.is_agreement() => (
            match rank.peer_elsewhere {
                Some((job, peer)) => format!("rank {peer} of job {job:x}, collective"),
                None => format!("rank {peer}, collective"),
            },
            String::new(),
        ),
        (true, _) => (
            format!(
                "{function}collective #{}{root}{bytes}{more}",
                rank.collective
            ),
            String::new(),
        ),
        (_, -1) => (format!("any rank{more}"), tag(rank.tag)),
        (_, PEER_OWN_PROGRAM) => ("its own program".into(), String::new()),
        (_, PEER_AT_PORT) => ("another group, at a port".into(), String::new()),
        (_, ..-1) if rank.awaited_count > 1 => {
            (format!("{} requests", rank.awaited_count), String::new())
        }
        (_, ..-1) if !rank.operation.is_empty() => (rank.operation.clone(), String::new()),
        (_, ..-1) => ("several".into(), String::new()),
        (_, peer) => match rank.peer_elsewhere {
            Some((job, peer)) => (format!("rank {peer} of job {job:x}"), tag(rank.tag)),
            None if rank.call == "MPI_Finalize" => {
                (format!("rank {peer} to receive a send"), String::new())
            }
            None if rank.operation == "a send" => (format!("rank {peer}{more}"), String::new()),
            None => (format!("rank {peer}{more}"), tag(rank.tag)),
        },
    };
    let is_of_none = rank.peer < -1 || rank.call == "MPI_Finalize";
    let comm = if is_of_none && !rank.is_collective() && on_window.is_none() {
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

/// What [`RankView::bytes`] says.
pub(super) fn bytes_in_words(bytes: i32) -> String {
    match bytes {
        1 => "1 byte".into(),
        i32::MAX => format!("{bytes} bytes or more"),
        _ => format!("{bytes} bytes"),
    }
}

/// Ranks as a list: "0-3, 7".
pub(super) fn list(ranks: &[usize]) -> String {
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

/// Ranks as a list with the noun: "rank 3", "ranks 0-3, 7".
pub fn ranks_named(ranks: &[usize]) -> String {
    format!(
        "rank{} {}",
        if ranks.len() == 1 { "" } else { "s" },
        list(ranks)
    )
}

/// What these ranks do, with those together that do the same.
pub(super) fn activities(ranks: &[RankView], of: &[usize]) -> String {
    /// More would make the line long.
    const KINDS_MAX: usize = 3;
    let mut kinds: Vec<(String, Vec<usize>)> = Vec::new();
    for &rank in of {
        let activity = ranks[rank].activity();
        match kinds.iter_mut().find(|(a, _)| *a == activity) {
            Some((_, group)) => group.push(rank),
            None => kinds.push((activity, vec![rank])),
        }
    }
    let more = kinds.len().saturating_sub(KINDS_MAX);
    let mut texts: Vec<String> = kinds
        .iter()
        .take(KINDS_MAX)
        .map(|(activity, group)| {
            format!("{} {}", ranks_named(group), plural(activity, group.len()))
        })
        .collect();
    if more > 0 {
        texts.push(format!("and {more} more kinds of places"));
    }
    texts.join("; ")
}

/// Turns "has ended" and "is in …" into the plural.
fn plural(activity: &str, many: usize) -> String {
    match (many, activity.split_once(' ')) {
        (2.., Some(("has", rest))) => format!("have {rest}"),
        (2.., Some(("is", rest))) => format!("are {rest}"),
        _ => activity.into(),
    }
}
