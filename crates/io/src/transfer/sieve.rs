//! Data sieving: whole windows of the file are read or written in place of many small runs.

use super::{lock, lock_reach, read_exact_or_end, write_all};
use crate::error::Result;
use crate::store::{RangeLock, StoredFile};
use crate::view::View;
use std::ops::Range;

/// A window and the positions of the data in it.
struct Window {
    /// From the first data byte to behind the last.
    range: Range<u64>,
    positions: Range<u64>,
}

/// The window of the data from `position` on. Windows end at multiples of their size, so that they
/// end with a page of the file.
fn window(view: &View, position: u64, end: u64, bytes: u64) -> Window {
    let start = view.offset_of(position);
    let limit = (start / bytes + 1).saturating_mul(bytes);
    let stop = view.position_at(limit).clamp(position + 1, end);
    Window {
        range: start..view.end_of(position, stop - position),
        positions: position..stop,
    }
}

/// Reads data of a view whose offsets rise. Returns how many bytes lie before the end of the file.
pub(super) fn read(
    file: &dyn StoredFile,
    view: &View,
    position: u64,
    buf: &mut [u8],
    buffer_bytes: usize,
) -> Result<usize> {
    let end = position + buf.len() as u64;
    let buffer_bytes = buffer_bytes.max(1) as u64;
    let span = view.span(position, buf.len() as u64);
    let mut buffer = vec![0; (span.end - span.start).min(buffer_bytes) as usize];
    let mut done = 0;
    while done < buf.len() {
        let Window { range, positions } = window(view, position + done as u64, end, buffer_bytes);
        let len = (positions.end - positions.start) as usize;
        let bytes = (range.end - range.start) as usize;
        if bytes == len {
            let n = read_exact_or_end(file, &mut buf[done..done + len], range.start)?;
            done += n;
            if n < len {
                break;
            }
            continue;
        }
        let n = read_exact_or_end(file, &mut buffer[..bytes], range.start)?;
        // The data before the end of the file.
        let found = match n == bytes {
            true => len,
            false => (view.position_at(range.start + n as u64) - positions.start) as usize,
        };
        let part = &mut buf[done..done + found];
        view.gather(positions.start, &buffer[..n], range.start, part);
        done += found;
        if found < len {
            break;
        }
    }
    Ok(done)
}

/// Writes data of a view whose offsets rise (data sieving). The bytes between the data are read
/// before and written again, under locks if `locked`. A lock covers several windows if it is long
/// enough. Gaps behind the end of the file become zeros, as they do when each run is written alone.
pub(super) fn write(
    file: &dyn StoredFile,
    view: &View,
    position: u64,
    buf: &[u8],
    buffer_bytes: usize,
    locked: bool,
) -> Result<()> {
    let end = position + buf.len() as u64;
    let buffer_bytes = buffer_bytes.max(1) as u64;
    let span = view.span(position, buf.len() as u64);
    let mut buffer = vec![0; (span.end - span.start).min(buffer_bytes) as usize];
    let reach = lock_reach(buffer_bytes);
    let mut under: Option<(RangeLock<'_>, u64)> = None;
    let mut done = 0;
    while done < buf.len() {
        let Window { range, positions } = window(view, position + done as u64, end, buffer_bytes);
        let len = (positions.end - positions.start) as usize;
        let data = &buf[done..done + len];
        let bytes = (range.end - range.start) as usize;
        if locked && under.as_ref().is_none_or(|(_, to)| range.end > *to) {
            // The one before ends first: a thread has one lock at a time.
            drop(under.take());
            let to = range
                .end
                .max(span.end.min(range.start.saturating_add(reach)));
            under = Some((lock(file, range.start..to, true)?, to));
        }
        if bytes == len {
            write_all(file, data, range.start)?;
        } else {
            let buffer = &mut buffer[..bytes];
            let n = read_exact_or_end(file, buffer, range.start)?;
            buffer[n..].fill(0);
            view.scatter(positions.start, data, buffer, range.start);
            write_all(file, buffer, range.start)?;
        }
        done += len;
    }
    Ok(())
}
