//! Which rank goes to which host.

use super::Host;

/// The order in which hosts are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapBy {
    /// Each host's slots, one host after the other.
    Slot,
    /// One rank on each host in turn.
    Node,
    /// This many ranks on each host in turn, whatever its slots (-ppn).
    PerHost(u32),
}

/// In which order mapped ranks are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankBy {
    /// All ranks of a host, then those of the next.
    Slot,
    /// One rank of each host in turn.
    Node,
}

/// The hosts of the ranks, ordered by rank. `mapped` holds them in the order of mapping.
pub fn number(mapped: &[usize], by: RankBy) -> Vec<usize> {
    let mut numbered: Vec<(usize, usize)> = Vec::with_capacity(mapped.len());
    let mut ranks_of = std::collections::HashMap::new();
    for &host in mapped {
        let ordinal = ranks_of.entry(host).or_insert(0);
        numbered.push((*ordinal, host));
        *ordinal += 1;
    }
    match by {
        RankBy::Slot => numbered.sort_by_key(|&(ordinal, host)| (host, ordinal)),
        RankBy::Node => numbered.sort_unstable(),
    }
    numbered.into_iter().map(|(_, host)| host).collect()
}

/// The index of the host of each of `ranks` ranks. `taken` counts the ranks that each host has, and
/// is updated. With more ranks than slots it begins again at the first host, as Hydra does.
/// `max_slots` is never exceeded.
///
/// # Errors
/// One line that says how much room there is.
pub fn map(
    hosts: &[Host],
    ranks: u32,
    by: MapBy,
    taken: &mut Vec<u32>,
) -> Result<Vec<usize>, String> {
    taken.resize(hosts.len(), 0);
    let mut mapped = Vec::with_capacity(ranks as usize);
    // Ranks that a host may have before the next round begins.
    let mut level: Vec<u32> = hosts.iter().map(|h| h.slots).collect();
    if let MapBy::PerHost(n) = by {
        level = vec![n; hosts.len()];
        for (level, taken) in level.iter_mut().zip(taken.iter()) {
            while *level <= *taken {
                *level = level.saturating_add(n);
            }
        }
    }
    let most = |host: usize| hosts[host].max_slots.unwrap_or(u32::MAX);
    while mapped.len() < ranks as usize {
        let before = mapped.len();
        let open =
            |host: usize, level: &[u32], taken: &[u32]| taken[host] < level[host].min(most(host));
        match by {
            MapBy::Slot | MapBy::PerHost(_) => {
                for host in 0..hosts.len() {
                    while mapped.len() < ranks as usize && open(host, &level, taken) {
                        taken[host] += 1;
                        mapped.push(host);
                    }
                }
            }
            MapBy::Node => loop {
                let round = mapped.len();
                for host in 0..hosts.len() {
                    if mapped.len() < ranks as usize && open(host, &level, taken) {
                        taken[host] += 1;
                        mapped.push(host);
                    }
                }
                if mapped.len() == round {
                    break;
                }
            },
        }
        if mapped.len() == before && (0..hosts.len()).all(|h| taken[h] >= most(h)) {
            let room: u64 = (0..hosts.len()).map(|h| u64::from(most(h))).sum();
            return Err(format!(
                "{ranks} ranks do not fit: the hosts allow {room} (max_slots)"
            ));
        }
        for (level, host) in level.iter_mut().zip(hosts) {
            let more = match by {
                MapBy::PerHost(n) => n,
                _ => host.slots,
            };
            *level = level.saturating_add(more.max(1));
        }
    }
    Ok(mapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::parse_file;

    fn mapped(hosts: &str, ranks: u32, by: MapBy) -> Result<Vec<usize>, String> {
        let hosts = parse_file(hosts).unwrap();
        map(&hosts, ranks, by, &mut Vec::new())
    }

    #[test]
    fn slots_are_filled_then_begun_again() {
        assert_eq!(mapped("a:2\nb:1", 3, MapBy::Slot).unwrap(), [0, 0, 1]);
        assert_eq!(mapped("a:2\nb:1", 5, MapBy::Slot).unwrap(), [0, 0, 1, 0, 0]);
        assert_eq!(mapped("a\nb", 4, MapBy::Slot).unwrap(), [0, 1, 0, 1]);
    }

    #[test]
    fn round_robin() {
        assert_eq!(mapped("a:2\nb:2", 4, MapBy::Node).unwrap(), [0, 1, 0, 1]);
        assert_eq!(mapped("a:1\nb:3", 4, MapBy::Node).unwrap(), [0, 1, 1, 1]);
        assert_eq!(
            mapped("a\nb\nc", 5, MapBy::PerHost(2)).unwrap(),
            [0, 0, 1, 1, 2]
        );
        assert_eq!(
            mapped("a:9\nb:9", 4, MapBy::PerHost(1)).unwrap(),
            [0, 1, 0, 1]
        );
    }

    #[test]
    fn a_limit_is_a_limit() {
        assert_eq!(
            mapped("a slots=1 max_slots=2\nb", 4, MapBy::Slot).unwrap(),
            [0, 1, 0, 1]
        );
        let wrong = mapped("a max_slots=2", 3, MapBy::Slot).unwrap_err();
        assert!(wrong.contains("allow 2"), "{wrong}");
    }

    #[test]
    fn a_second_block_goes_on_where_the_first_ended() {
        let hosts = parse_file("a:2\nb:2").unwrap();
        let mut taken = Vec::new();
        assert_eq!(map(&hosts, 1, MapBy::Slot, &mut taken).unwrap(), [0]);
        assert_eq!(map(&hosts, 3, MapBy::Slot, &mut taken).unwrap(), [0, 1, 1]);
    }

    #[test]
    fn ranks_are_numbered_host_by_host_or_in_turn() {
        let mapped = [0, 0, 0, 1, 2, 2];
        assert_eq!(number(&mapped, RankBy::Slot), mapped);
        assert_eq!(number(&mapped, RankBy::Node), [0, 1, 2, 0, 2, 0]);
        let dealt = [2, 0, 1, 2, 0];
        assert_eq!(number(&dealt, RankBy::Slot), [0, 0, 1, 2, 2]);
        assert_eq!(number(&dealt, RankBy::Node), [0, 1, 2, 0, 2]);
        assert!(number(&[], RankBy::Node).is_empty());
    }
}
