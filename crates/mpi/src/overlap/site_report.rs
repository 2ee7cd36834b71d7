//! The report of call sites at the end of a run, and access orders in files.

use super::site::{self, Key};
use crate::{Result, err};
use ferry_schedule::Kind;
use std::fmt::Write;

/// The file of a trace run, if FERRY_OVERLAP_FILE has no value.
const DEFAULT_FILE: &str = "ferry-overlap.trace";
/// The first line of such a file.
const FILE_HEADER: &str = "ferry overlap orders 1";
/// Maximum length of a file that is read, bytes. A choice.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// A line for each site.
pub(super) fn lines(without: Option<&str>) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(why) = without {
        out.push(format!(
            "overlap: all calls block, as memory cannot be guarded: {why}"
        ));
    }
    site::with_all(|sites| {
        for s in sites {
            let frame = s.key.frames.first().map_or("?", String::as_str);
            let mut line = format!(
                "overlap: {} at {frame}: {} calls, {} overlapped, {} bytes, {:.3} s hidden, {} \
                 faults",
                s.key.kind.name(),
                s.calls,
                s.overlapped,
                s.bytes,
                s.hidden_s,
                s.faults,
            );
            if let Some(blocked) = s.blocked() {
                let _ = write!(line, ", {:.6} s a call when blocking", blocked);
            }
            if !s.order.is_empty() {
                let order: Vec<String> = s.order.iter().take(16).map(u32::to_string).collect();
                let more = if s.order.len() > 16 { ",…" } else { "" };
                let _ = write!(line, ", read in the order {}{more}", order.join(","));
            }
            let _ = write!(line, "; {}", s.verdict());
            out.push(line);
        }
    });
    out
}

fn file(rank: u32) -> Option<String> {
    let set = std::env::var("FERRY_OVERLAP_FILE").ok();
    set.filter(|f| !f.trim().is_empty())
        .map(|f| format!("{f}.{rank}"))
}

/// Writes the orders that this rank has seen.
///
/// Errors: the file cannot be written.
pub(super) fn write_orders(rank: u32) -> Result<()> {
    let file = file(rank).unwrap_or(format!("{DEFAULT_FILE}.{rank}"));
    let mut text = format!("{FILE_HEADER}\n");
    site::with_all(|sites| {
        for s in sites.iter().filter(|s| !s.order.is_empty()) {
            let order: Vec<String> = s.order.iter().map(u32::to_string).collect();
            let _ = writeln!(
                text,
                "{} {} {} {}",
                s.key.kind.name(),
                s.key.class,
                s.key.frames.join(";"),
                order.join(",")
            );
        }
    });
    std::fs::write(&file, text).map_err(|e| {
        err!(
            Other,
            "the trace of overlap cannot be written to {file} (FERRY_OVERLAP_FILE): {e}"
        )
    })
}

/// Reads the orders of an earlier trace run, if FERRY_OVERLAP_FILE names its file and it is there.
///
/// Errors: it is no such file.
pub(super) fn read_orders(rank: u32) -> Result<()> {
    let Some(file) = file(rank) else {
        return Ok(());
    };
    let Ok(about) = std::fs::metadata(&file) else {
        return Ok(());
    };
    let wrong = |what: String| err!(Other, "FERRY_OVERLAP_FILE: {file} {what}");
    if about.len() > FILE_MAX_BYTES {
        return Err(wrong(format!("has more than {FILE_MAX_BYTES} bytes")));
    }
    let bytes = std::fs::read(&file).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    let orders = parse(&String::from_utf8_lossy(&bytes)).map_err(|line| {
        wrong(format!(
            "is no trace of overlap: line {line} makes no sense"
        ))
    })?;
    site::set_recorded_orders(orders);
    Ok(())
}

/// `Err`: the number of the line that makes no sense.
fn parse(text: &str) -> std::result::Result<Vec<(Key, Vec<u32>)>, usize> {
    let mut lines = text.lines().enumerate();
    if lines.next().map(|l| l.1) != Some(FILE_HEADER) {
        return Err(1);
    }
    lines.map(|(at, line)| entry(line).ok_or(at + 1)).collect()
}

fn entry(line: &str) -> Option<(Key, Vec<u32>)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [kind, class, frames, order] = words[..] else {
        return None;
    };
    let kind = Kind::ALL.into_iter().find(|k| k.name() == kind)?;
    let frames: Vec<String> = frames.split(';').map(str::to_owned).collect();
    let order: Option<Vec<u32>> = order.split(',').map(|n| n.parse().ok()).collect();
    let key = Key {
        frames,
        kind,
        class: class.parse().ok()?,
    };
    Some((key, order?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn orders_are_read_back() {
        let text = format!("{FILE_HEADER}\nalltoall 20 prog:main+0x10;libc.so+0x5 2,0,1\n");
        let orders = parse(&text).unwrap();
        assert_eq!(orders[0].1, [2, 0, 1]);
        assert_eq!((orders[0].0.kind, orders[0].0.class), (Kind::Alltoall, 20));
        assert_eq!(parse("something else"), Err(1));
        assert_eq!(
            parse(&format!("{FILE_HEADER}\nalltoall 20 x 2,y\n")),
            Err(2)
        );
    }

    proptest! {
        #[test]
        fn fuzz_any_text_is_read_or_refused(
            lines in prop::collection::vec(
                "(alltoall|bcast|[a-z]{0,4}) ?[0-9]{0,12} ?[!-~]{0,9} ?[0-9,]{0,20}",
                0..6,
            ),
            head: bool,
        ) {
            let mut text = lines.join("\n");
            if head {
                text = format!("{FILE_HEADER}\n{text}");
            }
            let _ = parse(&text);
        }
    }
}
