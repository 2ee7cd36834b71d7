//! From positions to offsets and back.

use super::{Irregular, Strided, Tiling, View, ViewError};
use ferry_datatype::Datatype;
use std::ops::Range;
use std::sync::Arc;

/// Runs of overlapping filetypes that are compared with each other at most.
const OVERLAP_MAX_RUNS: u64 = 1 << 22;

impl Tiling {
    pub(super) fn new(displacement: u64, filetype: &Arc<Datatype>) -> Result<Tiling, ViewError> {
        let order = filetype.run_order();
        if filetype.size() == 0 || order.runs == 0 {
            return Ok(Tiling::Empty { displacement });
        }
        let Ok(low) = u64::try_from(filetype.true_lb()) else {
            return Err(ViewError::Negative(filetype.true_lb()));
        };
        if !order.nondecreasing {
            return Err(ViewError::Falling);
        }
        let extent = match u64::try_from(filetype.extent()) {
            Ok(extent) if extent > 0 => extent,
            _ => return Err(ViewError::Extent(filetype.extent())),
        };
        let data = low..low.saturating_add(filetype.true_extent() as u64);
        let start = displacement.saturating_add(low);
        if filetype.run(2).is_some() {
            return Ok(Tiling::Contiguous { start });
        }
        let rising = order.rising && data.end - data.start <= extent;
        if let Some(regular) = filetype.regular_runs()
            && rising
        {
            let stride = regular.stride.max(0) as u64;
            // Blocks that go on at the same distance in the next filetype need no filetypes.
            let (count, extent) = match stride.checked_mul(regular.count) {
                Some(next) if next == extent => (1, stride),
                _ => (regular.count, extent),
            };
            return Ok(Tiling::Strided(Strided {
                start,
                count,
                stride,
                block: regular.block,
                extent,
                joins: (count - 1) * stride + regular.block == extent,
                filetype: filetype.clone(),
                displacement,
            }));
        }
        Ok(Tiling::Irregular(Irregular {
            displacement,
            filetype: filetype.clone(),
            size: filetype.size() as u64,
            extent,
            data,
            runs: order.runs,
            rises_within: order.rising,
            rising,
        }))
    }
}

impl Strided {
    /// Data bytes of a filetype.
    pub(super) fn size(&self) -> u64 {
        self.count * self.block
    }

    pub(super) fn offset_of(&self, position: u64) -> u64 {
        let (tile, rest) = (position / self.size(), position % self.size());
        let (block, rest) = (rest / self.block, rest % self.block);
        let tile = tile.saturating_mul(self.extent);
        // Within a filetype nothing is beyond 64 bits.
        self.start
            .saturating_add(tile)
            .saturating_add(block * self.stride + rest)
    }

    fn position_at(&self, offset: u64) -> u64 {
        let Some(rest) = offset.checked_sub(self.start) else {
            return 0;
        };
        let (tile, rest) = (rest / self.extent, rest % self.extent);
        let block = match self.count {
            1 => 0,
            count => (rest / self.stride).min(count - 1),
        };
        let rest = rest - block * self.stride;
        let data = block * self.block + rest.min(self.block);
        tile.saturating_mul(self.size()).saturating_add(data)
    }
}

impl Irregular {
    pub(super) fn offset_of(&self, position: u64) -> u64 {
        let (tile, rest) = (position / self.size, position % self.size);
        let at = self
            .displacement
            .saturating_add(tile.saturating_mul(self.extent));
        at.saturating_add(self.offset_in_filetype(rest, &mut Vec::with_capacity(1)))
    }

    /// Offset of a data byte from the start of its filetype. `room` has room for one run.
    fn offset_in_filetype(&self, position: u64, room: &mut Vec<(*mut u8, usize)>) -> u64 {
        room.clear();
        self.filetype.runs(std::ptr::null_mut(), 1, position, room);
        room.first().map_or(0, |(at, _)| at.addr() as u64)
    }

    /// For rising offsets.
    fn position_at(&self, offset: u64) -> u64 {
        let Some(rest) = offset.checked_sub(self.displacement + self.data.start) else {
            return 0;
        };
        let tile = rest / self.extent;
        let rest = self.data.start + rest % self.extent;
        // The first data byte of the filetype at or behind the offset, found by halves.
        let mut room = Vec::with_capacity(1);
        let (mut low, mut high) = (0, self.size);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.offset_in_filetype(middle, &mut room) < rest {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        tile.saturating_mul(self.size).saturating_add(low)
    }
}

impl View {
    /// Returns whether the offsets rise with the positions. Then no byte of the file is seen
    /// twice, and the data of a range of the file are one range of positions.
    pub fn is_rising(&self) -> bool {
        match &self.tiling {
            Tiling::Irregular(irregular) => irregular.rising,
            _ => true,
        }
    }

    /// The first position whose byte lies at or behind an offset. For views whose offsets rise
    /// ([`View::is_rising`]).
    ///
    /// # Panics
    /// If they do not rise.
    pub fn position_at(&self, offset: u64) -> u64 {
        match &self.tiling {
            Tiling::Contiguous { start } => offset.saturating_sub(*start),
            Tiling::Strided(strided) => strided.position_at(offset),
            Tiling::Irregular(irregular) => {
                assert!(irregular.rising, "positions of offsets need rising offsets");
                irregular.position_at(offset)
            }
            Tiling::Empty { .. } => 0,
        }
    }

    /// The positions between `position` and `position + len` whose bytes lie in a range of the
    /// file. For views whose offsets rise.
    pub fn positions_in(&self, position: u64, len: u64, range: &Range<u64>) -> Range<u64> {
        let end = position.saturating_add(len);
        let at = |offset| self.position_at(offset).clamp(position, end);
        at(range.start)..at(range.end)
    }

    /// Where MPI_SEEK_END counts from: the position of the first etype that starts at or behind the
    /// end of a file of `file_len` bytes (MPI 5.0 §14.1.1, "end of file").
    pub fn position_of_end(&self, file_len: u64) -> u64 {
        let etype = self.etype_bytes;
        match &self.tiling {
            Tiling::Irregular(irregular) if !irregular.rising => {
                // Filetypes that end before it have no such etype.
                let behind = (file_len.saturating_sub(irregular.displacement))
                    .saturating_sub(irregular.data.end);
                let mut position = behind / irregular.extent * irregular.size;
                while self.offset_of(position) < file_len {
                    position += etype;
                }
                position
            }
            _ => self
                .position_at(file_len)
                .div_ceil(etype)
                .saturating_mul(etype),
        }
    }

    /// Returns whether a byte of the file is seen twice. Such a view must not be used for writing
    /// (MPI 5.0 §14.3).
    pub fn overlaps(&self) -> bool {
        let Tiling::Irregular(irregular) = &self.tiling else {
            return false;
        };
        // Only filetypes that begin before the first one ends can lie over it.
        let span = irregular.data.end - irregular.data.start;
        !irregular.rising && self.overlap(irregular, span.div_ceil(irregular.extent) + 1)
    }

    /// Returns whether a byte of the file is seen twice in one filetype.
    pub fn overlaps_within_filetype(&self) -> bool {
        let Tiling::Irregular(irregular) = &self.tiling else {
            return false;
        };
        !irregular.rises_within && self.overlap(irregular, 1)
    }

    /// Does a byte lie twice in so many filetypes?
    fn overlap(&self, irregular: &Irregular, filetypes: u64) -> bool {
        if irregular.runs.saturating_mul(filetypes) > OVERLAP_MAX_RUNS {
            return true;
        }
        let runs = self.runs(0, filetypes.saturating_mul(irregular.size));
        let mut ranges: Vec<_> = runs.map(|run| (run.offset, run.end())).collect();
        ranges.sort_unstable();
        ranges.windows(2).any(|w| w[1].0 < w[0].1)
    }

    /// The filetype whose elements lie from an offset on, for views that are not contiguous.
    pub(super) fn filetype(&self) -> Option<(&Arc<Datatype>, u64)> {
        match &self.tiling {
            Tiling::Strided(strided) => Some((&strided.filetype, strided.displacement)),
            Tiling::Irregular(irregular) => Some((&irregular.filetype, irregular.displacement)),
            _ => None,
        }
    }

    /// The runs, for the cost of an access: how many there are, about.
    pub fn run_count(&self, len: u64) -> u64 {
        len.div_ceil(self.mean_run_bytes())
    }
}
