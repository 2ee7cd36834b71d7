//! The runs of a view, one after the other.

use super::{Irregular, Strided, Tiling, View};

/// Neighbouring bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub len: u64,
}

impl Run {
    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// Runs that are taken from an irregular filetype at a time: few at first, as most accesses have
/// few.
const FIRST_BATCH_RUNS: usize = 8;
/// The same later on.
const BATCH_RUNS: usize = 256;

/// The runs of some data bytes of a view, in the order of their positions. Neighbours are joined.
#[derive(Debug)]
pub struct Runs<'a> {
    source: Source<'a>,
    /// Position behind the last run that was taken from the filetype.
    position: u64,
    /// Data bytes behind `position`.
    rest: u64,
    /// A run that the next one may go on.
    pending: Option<Run>,
}

#[derive(Debug)]
enum Source<'a> {
    One(Run),
    Strided(StridedCursor<'a>),
    Irregular(&'a Irregular, Batch),
    Empty,
}

/// The next run of a regular filetype.
#[derive(Debug)]
struct StridedCursor<'a> {
    strided: &'a Strided,
    /// Offset of the first block of this filetype.
    filetype_start: u64,
    /// The block, counted in this filetype.
    block: u64,
    /// Bytes of the block that lie before the run.
    skip: u64,
}

impl<'a> StridedCursor<'a> {
    fn new(strided: &'a Strided, position: u64) -> StridedCursor<'a> {
        let (tile, rest) = (position / strided.size(), position % strided.size());
        StridedCursor {
            strided,
            filetype_start: strided.offset_of(tile.saturating_mul(strided.size())),
            block: rest / strided.block,
            skip: rest % strided.block,
        }
    }

    fn next(&mut self) -> Run {
        let offset = self.block * self.strided.stride + self.skip;
        let run = Run {
            offset: self.filetype_start.saturating_add(offset),
            len: self.strided.block - self.skip,
        };
        self.skip = 0;
        self.block += 1;
        if self.block == self.strided.count {
            self.block = 0;
            self.filetype_start = self.filetype_start.saturating_add(self.strided.extent);
        }
        run
    }
}

/// Runs that an irregular filetype has told.
#[derive(Debug, Default)]
struct Batch {
    /// Offsets, as pointers from address 0, and lengths.
    runs: Vec<(*mut u8, usize)>,
    /// The next one.
    next: usize,
    /// Offset from which they count.
    base: u64,
}

// SAFETY: the pointers are offsets; they are never followed.
unsafe impl Send for Batch {}
// SAFETY: as above.
unsafe impl Sync for Batch {}

impl<'a> Runs<'a> {
    pub(super) fn new(view: &'a View, position: u64, len: u64) -> Runs<'a> {
        let source = match &view.tiling {
            _ if len == 0 => Source::Empty,
            Tiling::Contiguous { start } => {
                let offset = start.saturating_add(position);
                Source::One(Run { offset, len })
            }
            Tiling::Strided(strided) => Source::Strided(StridedCursor::new(strided, position)),
            Tiling::Irregular(irregular) => Source::Irregular(irregular, Batch::default()),
            Tiling::Empty { .. } => Source::Empty,
        };
        let rest = match source {
            Source::Empty => 0,
            _ => len,
        };
        Runs {
            source,
            position,
            rest,
            pending: None,
        }
    }

    /// Returns whether the run that was pulled last may go on in the next one.
    #[inline]
    fn may_go_on(&self) -> bool {
        match &self.source {
            Source::One(_) | Source::Empty => false,
            // Blocks of a filetype have gaps between them.
            Source::Strided(cursor) => cursor.block == 0 && cursor.strided.joins,
            // The runs of a batch are joined.
            Source::Irregular(_, batch) => batch.next == batch.runs.len(),
        }
    }

    /// The next run as the filetype has it.
    #[inline]
    fn pull(&mut self) -> Option<Run> {
        if self.rest == 0 {
            return None;
        }
        let run = match &mut self.source {
            Source::Empty => return None,
            Source::One(run) => *run,
            Source::Strided(cursor) => cursor.next(),
            Source::Irregular(irregular, batch) => batch.next(irregular, self.position, self.rest),
        };
        let len = run.len.min(self.rest);
        self.position = self.position.saturating_add(len);
        self.rest -= len;
        Some(Run { len, ..run })
    }
}

impl Batch {
    fn next(&mut self, irregular: &Irregular, position: u64, rest: u64) -> Run {
        if self.next == self.runs.len() {
            let room = match self.runs.capacity() {
                0 => FIRST_BATCH_RUNS,
                _ => BATCH_RUNS,
            };
            self.runs.clear();
            self.runs.reserve_exact(room);
            self.next = 0;
            let (tile, skip) = (position / irregular.size, position % irregular.size);
            let shift = tile.saturating_mul(irregular.extent);
            self.base = irregular.displacement.saturating_add(shift);
            let tiles = skip.saturating_add(rest).div_ceil(irregular.size);
            let tiles = i64::try_from(tiles).unwrap_or(i64::MAX);
            let origin = std::ptr::null_mut();
            irregular.filetype.runs(origin, tiles, skip, &mut self.runs);
        }
        let (at, len) = self.runs[self.next];
        self.next += 1;
        Run {
            offset: self.base.saturating_add(at.addr() as u64),
            len: len as u64,
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        let mut run = match self.pending.take() {
            Some(run) => run,
            None => self.pull()?,
        };
        while self.may_go_on()
            && let Some(next) = self.pull()
        {
            if next.offset != run.end() {
                self.pending = Some(next);
                break;
            }
            run.len += next.len;
        }
        Some(run)
    }
}
