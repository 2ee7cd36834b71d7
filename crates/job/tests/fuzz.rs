//! Bytes from outside that this crate reads: welcomes, notices, a segment's first page.

use ferry_fuzz::fuzz;
use ferry_job::{
    CARD_MAX_BYTES, Malformed, Nodes, PROTOCOL, RankInfo, Segment, SegmentLayout, TEXT_MAX_BYTES,
    ToLauncher, ToRank,
};
use std::os::fd::OwnedFd;

fn rank_info(rank: u32, ranks: u32) -> RankInfo {
    RankInfo {
        rank,
        size: ranks,
        local_rank: rank / 2,
        local_ranks: (rank % 2..ranks).step_by(2).collect(),
        appnum: 0,
        job: 0x1234_5678_9abc_def0,
        cores: 2,
        segment_len: SegmentLayout::new(ranks).total_bytes(),
        key: [0x5a; 32],
        parent: "ferry2:AAAA".into(),
        universe: 2 * ranks,
        nodes: Nodes::of(
            &["north".to_string(), "south".to_string()][..2.min(ranks as usize)],
            &(0..ranks).map(|r| r % 2).collect::<Vec<_>>(),
        ),
    }
}

#[test]
fn fuzz_welcome() {
    let seeds: Vec<Vec<u8>> = [(0, 1), (1, 2), (6, 7)]
        .map(|(rank, ranks)| rank_info(rank, ranks).encode())
        .into();
    fuzz("welcome", &seeds, |bytes| match RankInfo::decode(bytes) {
        Ok(w) => {
            assert!(
                w.rank < w.size && w.local_ranks[w.local_rank as usize] == w.rank && w.cores > 0
            );
            assert_eq!(w.encode(), bytes, "one welcome, two forms");
            w.local_ranks.len()
        }
        Err(Malformed::Magic) => 1001,
        Err(Malformed::Version(v)) => {
            assert_ne!(v, PROTOCOL);
            1002
        }
        Err(Malformed::Short(at, what)) => {
            assert_eq!(at, bytes.len());
            2000 + what.len()
        }
        Err(Malformed::Long(_)) => 1003,
        Err(e) => 3000 + e.to_string().len(),
    });
}

#[test]
fn fuzz_notice() {
    let medium = || "tcp".to_string();
    let seeds = [
        ToLauncher::Abort {
            code: 7,
            text: "enough".into(),
        },
        ToLauncher::Put {
            medium: medium(),
            card: vec![1, 2, 3],
        },
        ToLauncher::Get {
            medium: medium(),
            rank: 3,
        },
        ToLauncher::Log {
            text: "a stranger".into(),
        },
    ];
    fuzz("notice", &seeds.map(|n| n.encode()), |bytes| {
        let Some(notice) = ToLauncher::decode(bytes) else {
            return 0;
        };
        let again = ToLauncher::decode(&notice.encode());
        match notice {
            ToLauncher::Abort { text, .. } => {
                // Bytes that are no UTF-8 grow to a replacement character of three bytes each.
                assert!(text.len() <= 3 * TEXT_MAX_BYTES && again.is_some());
                1
            }
            ToLauncher::Put { ref card, .. } => {
                assert!(card.len() <= CARD_MAX_BYTES && again == Some(notice));
                2
            }
            ToLauncher::Log { text } => {
                assert!(text.len() <= 3 * TEXT_MAX_BYTES && again.is_some());
                4
            }
            ToLauncher::Get { .. } | ToLauncher::Spawn | ToLauncher::Name => {
                assert_eq!(again, Some(notice));
                3
            }
        }
    });
}

#[test]
fn fuzz_reply() {
    let seeds = [
        ToRank::AbortTaken,
        ToRank::Card {
            medium: "tcp".into(),
            rank: 3,
            card: vec![1, 2, 3],
        },
    ];
    fuzz(
        "reply",
        &seeds.map(|n| n.encode()),
        |bytes| match ToRank::decode(bytes) {
            Some(ToRank::Card { medium, rank, card }) => {
                assert!(card.len() <= CARD_MAX_BYTES && !medium.is_empty());
                rank as usize % 7
            }
            Some(ToRank::AbortTaken) => 8,
            None => 9,
        },
    );
}

#[test]
fn fuzz_segment_header() {
    let ranks = 2;
    let genuine = Segment::create(ranks).unwrap();
    let total = genuine.layout.total_bytes();
    let mut page = [0; 16];
    read_at(&genuine.fd, &mut page);
    let mut opened = 0;
    fuzz("segment", &[page.to_vec()], |bytes| {
        let file = memory(total);
        write_at(&file, bytes);
        // The file is longer than what was written, and zero there.
        let fits = (0..16).all(|i| bytes.get(i).copied().unwrap_or(0) == page[i]);
        if fits {
            // Each opened segment stays mapped: no more of them than a process may have mappings.
            opened += 1;
            if opened > 1000 {
                return 0;
            }
        }
        match Segment::open(file, ranks, Some(total)) {
            Ok(segment) => {
                assert!(fits, "a segment with another first page was taken");
                assert_eq!(segment.statuses().len(), ranks as usize);
                0
            }
            Err(e) => {
                assert!(!fits, "{e}");
                e.to_string().len()
            }
        }
    });
}

#[test]
fn fuzz_segment_length() {
    let total = SegmentLayout::new(3).total_bytes();
    fuzz("segment length", &[total.to_le_bytes().to_vec()], |bytes| {
        let Some((first, _)) = bytes.split_first_chunk::<8>() else {
            return false;
        };
        let said = u64::from_le_bytes(*first);
        // A file that is shorter than the layout must never be mapped, whatever was said of it.
        let there = said % (2 * total);
        let opened = Segment::open(memory(there), 3, Some(said));
        assert!(opened.is_err(), "a first page of zeros was taken");
        there < total
    });
}

fn memory(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    fd
}

fn write_at(fd: &OwnedFd, bytes: &[u8]) {
    if !bytes.is_empty() {
        rustix::io::pwrite(fd, bytes, 0).unwrap();
    }
}

fn read_at(fd: &OwnedFd, into: &mut [u8]) {
    assert_eq!(rustix::io::pread(fd, &mut *into, 0).unwrap(), into.len());
}
