//! Views: which bytes of a file a process sees, and in which order (MPI 5.0 §14.3).
//!
//! A *position* counts data bytes from the view's start; an *offset* counts bytes of the file. Both
//! stay below 2^63, as MPI_Offset does: sums with lengths are not checked. An offset that would lie
//! beyond is `u64::MAX`, which the system refuses.

mod copy;
mod order;
mod runs;

pub use runs::{Run, Runs};

use ferry_datatype::Datatype;
use std::ops::Range;
use std::sync::Arc;

/// Why a datatype cannot be a filetype.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ViewError {
    /// Offsets of a file are not negative.
    #[error("the filetype has a byte at displacement {0}, but displacements must not be negative")]
    Negative(i64),
    /// The standard asks for displacements that do not fall.
    #[error("the filetype's displacements must not become smaller in the order of its type map")]
    Falling,
    /// One filetype would lie on the other.
    #[error("the filetype's extent is {0} bytes, but must be positive, as it is repeated")]
    Extent(i64),
    /// The filetype is not made of etypes.
    #[error("the filetype has {filetype} bytes, which is no multiple of the etype's {etype}")]
    NotEtypes {
        /// Data bytes of the filetype.
        filetype: u64,
        /// Data bytes of the etype.
        etype: u64,
    },
    /// The type does not exist here.
    #[error("the filetype does not exist in this library")]
    Missing,
}

/// A view: filetypes one after the other, from a displacement on. A copy shares the filetype.
#[derive(Clone, Debug)]
pub struct View {
    etype_bytes: u64,
    tiling: Tiling,
}

/// Where the data of a view lie.
#[derive(Clone, Debug)]
enum Tiling {
    /// All bytes from `start` on.
    Contiguous { start: u64 },
    /// Equal blocks at equal distances in each filetype.
    Strided(Strided),
    /// Anything else.
    Irregular(Irregular),
    /// No data. Position 0 is at the displacement.
    Empty { displacement: u64 },
}

/// `count` blocks of `block` bytes, `stride` bytes from one to the next; and the same again each
/// `extent` bytes. Blocks do not overlap, and offsets rise.
#[derive(Clone, Debug)]
struct Strided {
    /// Offset of position 0.
    start: u64,
    count: u64,
    stride: u64,
    block: u64,
    extent: u64,
    /// The last block of a filetype goes on in the first one of the next.
    joins: bool,
    filetype: Arc<Datatype>,
    /// Offset of the first filetype.
    displacement: u64,
}

/// Filetypes of any layout.
#[derive(Clone, Debug)]
struct Irregular {
    displacement: u64,
    filetype: Arc<Datatype>,
    /// Data bytes of a filetype.
    size: u64,
    /// Bytes from one filetype to the next.
    extent: u64,
    /// Data bytes of a filetype lie in this range, from its start.
    data: Range<u64>,
    /// Runs of a filetype.
    runs: u64,
    /// Offsets rise with positions within a filetype.
    rises_within: bool,
    /// They do, over all filetypes.
    rising: bool,
}

impl View {
    /// All bytes of the file, in their order: what a file has when it is opened.
    pub fn bytes() -> View {
        View {
            etype_bytes: 1,
            tiling: Tiling::Contiguous { start: 0 },
        }
    }

    /// A view of `filetype`s from `displacement` on. `etype_bytes` is the size of the etype.
    ///
    /// # Errors
    /// [`ViewError`] for a filetype that the standard does not allow (MPI 5.0 §14.3). Overlaps are
    /// allowed for reading only: see [`View::overlaps`].
    pub fn new(
        displacement: u64,
        etype_bytes: u64,
        filetype: &Arc<Datatype>,
    ) -> Result<View, ViewError> {
        if !filetype.exists() {
            return Err(ViewError::Missing);
        }
        let size = filetype.size() as u64;
        if etype_bytes == 0 && size > 0 || etype_bytes > 0 && !size.is_multiple_of(etype_bytes) {
            return Err(ViewError::NotEtypes {
                filetype: size,
                etype: etype_bytes,
            });
        }
        Ok(View {
            etype_bytes: etype_bytes.max(1),
            tiling: Tiling::new(displacement, filetype)?,
        })
    }

    /// The view of its first filetype only, if the offsets rise within it, but the next filetype
    /// begins before its end. Programs make such filetypes for one access: HDF5 has one over all
    /// chunks, whose extent is of no use. Positions behind the first filetype mean nothing.
    pub fn first_filetype(&self) -> Option<View> {
        let Tiling::Irregular(irregular) = &self.tiling else {
            return None;
        };
        let alone = !irregular.rising && irregular.rises_within;
        alone.then(|| View {
            etype_bytes: self.etype_bytes,
            tiling: Tiling::Irregular(Irregular {
                extent: irregular.data.end,
                rising: true,
                ..irregular.clone()
            }),
        })
    }

    /// Data bytes of a filetype. `u64::MAX` if the view is contiguous, or has no data.
    pub fn filetype_bytes(&self) -> u64 {
        match &self.tiling {
            Tiling::Contiguous { .. } | Tiling::Empty { .. } => u64::MAX,
            Tiling::Strided(strided) => strided.size(),
            Tiling::Irregular(irregular) => irregular.size,
        }
    }

    /// Returns whether the data are one run of the file.
    pub fn is_contiguous(&self) -> bool {
        matches!(self.tiling, Tiling::Contiguous { .. })
    }

    /// Returns whether the view has no data at all: nothing can be read or written.
    pub fn is_empty(&self) -> bool {
        matches!(self.tiling, Tiling::Empty { .. })
    }

    /// Bytes of the etype, at least 1.
    pub fn etype_bytes(&self) -> u64 {
        self.etype_bytes
    }

    /// Mean length of a run of the view, bytes. `u64::MAX` if the view is contiguous, or has no
    /// data.
    pub fn mean_run_bytes(&self) -> u64 {
        match &self.tiling {
            Tiling::Contiguous { .. } | Tiling::Empty { .. } => u64::MAX,
            Tiling::Strided(strided) => strided.block,
            Tiling::Irregular(irregular) => (irregular.size / irregular.runs).max(1),
        }
    }

    /// Bytes after which the runs of the view repeat. `None` if the view is contiguous, or has no
    /// data.
    pub fn period(&self) -> Option<u64> {
        match &self.tiling {
            Tiling::Contiguous { .. } | Tiling::Empty { .. } => None,
            Tiling::Strided(strided) => Some(strided.extent),
            Tiling::Irregular(irregular) => Some(irregular.extent),
        }
    }

    /// The runs of the file that hold the data bytes from `position` on, `len` of them. Neighbours
    /// are joined. The first run is found by one descent into the filetype's layout.
    pub fn runs(&self, position: u64, len: u64) -> Runs<'_> {
        Runs::new(self, position, len)
    }

    /// Offset of a data byte in the file (MPI_File_get_byte_offset). `u64::MAX` if it lies beyond.
    pub fn offset_of(&self, position: u64) -> u64 {
        match &self.tiling {
            Tiling::Contiguous { start } => start.saturating_add(position),
            Tiling::Strided(strided) => strided.offset_of(position),
            Tiling::Irregular(irregular) => irregular.offset_of(position),
            Tiling::Empty { displacement } => *displacement,
        }
    }

    /// Offset behind the last of `len` data bytes from `position` on: the end of the range that an
    /// access touches. The offset of `position` if `len` is 0.
    pub fn end_of(&self, position: u64, len: u64) -> u64 {
        if len == 0 || self.is_empty() {
            return self.offset_of(position);
        }
        if self.is_rising() {
            return self.offset_of(position + (len - 1)).saturating_add(1);
        }
        let ends = self.runs(position, len).map(|run| run.end());
        ends.max().unwrap_or(0)
    }

    /// The range of the file that `len` data bytes from `position` on span.
    pub fn span(&self, position: u64, len: u64) -> Range<u64> {
        if self.is_rising() || len == 0 {
            return self.offset_of(position)..self.end_of(position, len);
        }
        let runs = self.runs(position, len);
        runs.map(|run| run.offset..run.end())
            .reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
            .unwrap_or(0..0)
    }
}
