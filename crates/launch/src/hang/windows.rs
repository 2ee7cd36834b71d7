//! Ranks that wait in one-sided communication: for a lock, a post, a completion, a flush, or the
//! others in MPI_Win_free.

use ferry_job::{
    TAG_WINDOW_ACCUMULATE, TAG_WINDOW_COMPLETE, TAG_WINDOW_FLUSH, TAG_WINDOW_FREE, TAG_WINDOW_LOCK,
    TAG_WINDOW_POST,
};

use super::snapshot::RankView;
use super::table::{activities, ranks_named};
use std::collections::BTreeMap;

impl RankView {
    /// What the rank waits for on a window, in words. `None`: it waits for something else.
    pub(super) fn window_wait(&self) -> Option<String> {
        if self.is_collective() {
            return None;
        }
        let peer = match self.peer {
            ..0 => "another rank".to_string(),
            peer => format!("rank {peer}"),
        };
        Some(match self.tag {
            TAG_WINDOW_LOCK if self.peer >= 0 => {
                format!("the lock of rank {}, which {peer} holds", self.root)
            }
            TAG_WINDOW_LOCK => format!("the lock of rank {}, which others share", self.root),
            TAG_WINDOW_ACCUMULATE => format!("accumulates of {peer}"),
            TAG_WINDOW_POST => format!("MPI_Win_post of {peer}"),
            TAG_WINDOW_COMPLETE if self.peer >= 0 => format!("MPI_Win_complete of {peer}"),
            TAG_WINDOW_COMPLETE => "MPI_Win_complete of its origins".into(),
            TAG_WINDOW_FLUSH => format!("{peer} to do its operations"),
            TAG_WINDOW_FREE => "MPI_Win_free of the other ranks".into(),
            _ => return None,
        })
    }
}

/// Ranks that wait for others in one-sided communication.
pub(super) fn window_waits(ranks: &[RankView], found: &mut Vec<String>) {
    frees(ranks, found);
    for (number, rank) in ranks.iter().enumerate() {
        let Some(what) = rank.window_wait().filter(|_| rank.waits()) else {
            continue;
        };
        if rank.tag == TAG_WINDOW_FREE {
            continue;
        }
        let advice = match rank.tag {
            TAG_WINDOW_LOCK => ": who locks a window has to unlock it",
            TAG_WINDOW_POST => {
                ": each rank in the group of MPI_Win_start has to call MPI_Win_post with a group \
                 that has this rank"
            }
            TAG_WINDOW_COMPLETE => {
                ": each rank in the group of MPI_Win_post has to call MPI_Win_start and \
                 MPI_Win_complete"
            }
            _ => "",
        };
        let peer = usize::try_from(rank.peer).ok().and_then(|p| ranks.get(p));
        let activity = peer.map_or(String::new(), |peer| {
            format!(". Rank {} {}", rank.peer, peer.activity())
        });
        found.push(format!(
            "rank {number} waits in {} on {} for {what}{advice}{activity}",
            rank.call,
            rank.comm_shown()
        ));
    }
}

/// Ranks that wait in MPI_Win_free for the others of the window.
fn frees(ranks: &[RankView], found: &mut Vec<String>) {
    let mut windows: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (number, rank) in ranks.iter().enumerate() {
        if rank.waits() && !rank.is_collective() && rank.tag == TAG_WINDOW_FREE {
            windows.entry(rank.context).or_default().push(number);
        }
    }
    for inside in windows.into_values() {
        let first = &ranks[inside[0]];
        let others: Vec<usize> = (0..ranks.len()).filter(|r| !inside.contains(r)).collect();
        // Of a window of fewer ranks it is not known which they are.
        let activities = match first.comm_size as usize == ranks.len() && !others.is_empty() {
            true => format!(", but {}", activities(ranks, &others)),
            false => String::new(),
        };
        found.push(format!(
            "{} {} in {} on {}: all ranks of the window have to call MPI_Win_free{activities}",
            ranks_named(&inside),
            if inside.len() == 1 { "waits" } else { "wait" },
            first.call,
            first.comm_shown(),
        ));
    }
}
