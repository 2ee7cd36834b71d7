//! What each rank tells all others of a collective transfer.

use super::super::view::FileView;
use ferry_io::store::FileSystem;
use ferry_io::transfer::Choice;

/// The numbers of an extent.
const WORDS: usize = 13;
/// The numbers of its parameters.
const PARAMETERS: usize = 6;

/// Which part of the file a rank accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    /// The rank takes no part in two phases: its arguments are bad, or its view is not in the order
    /// of the file.
    pub failed: bool,
    /// Where in its view's data the access begins, bytes.
    pub position: u64,
    /// Bytes.
    pub len: u64,
    /// The first byte of the file.
    pub start: u64,
    /// The end of the last.
    pub end: u64,
    /// Runs that hold the data, about.
    pub runs: u64,
    /// Length of the encoded view, bytes.
    pub view_bytes: u64,
    /// The rank's parameters. Those of rank 0 are in force.
    pub parameters: PlanParameters,
}

/// What a plan of two phases depends on, beside the extents. Ranks may have been given different
/// hints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PlanParameters {
    /// Ranks that aggregate.
    pub aggregators: u64,
    /// Bytes that an aggregator handles at a time.
    pub buffer_bytes: u64,
    /// Aggregators' domains begin at multiples of this, bytes.
    pub alignment: u64,
    /// Whether two phases are used.
    pub choice: Choice,
    /// Where the file is.
    pub file_system: FileSystem,
    /// All ranks are on one node, and each has a core.
    pub own_cores: bool,
}

impl PlanParameters {
    const NONE: PlanParameters = PlanParameters {
        aggregators: 1,
        buffer_bytes: 1,
        alignment: 1,
        choice: Choice::Never,
        file_system: FileSystem::Local,
        own_cores: false,
    };

    fn words(&self) -> [u64; PARAMETERS] {
        let choice = match self.choice {
            Choice::Automatic => 0,
            Choice::Always => 1,
            Choice::Never => 2,
        };
        // Those that the cost model tells apart.
        let file_system = match self.file_system {
            FileSystem::Tmpfs => 0,
            FileSystem::Local => 1,
            _ => 2,
        };
        [
            self.aggregators,
            self.buffer_bytes,
            self.alignment,
            choice,
            file_system,
            u64::from(self.own_cores),
        ]
    }

    fn of(words: &[u64]) -> PlanParameters {
        PlanParameters {
            aggregators: words[0],
            buffer_bytes: words[1],
            alignment: words[2],
            choice: match words[3] {
                0 => Choice::Automatic,
                1 => Choice::Always,
                _ => Choice::Never,
            },
            file_system: match words[4] {
                0 => FileSystem::Tmpfs,
                1 => FileSystem::Local,
                _ => FileSystem::Nfs,
            },
            own_cores: words[5] == 1,
        }
    }
}

impl Extent {
    /// Of a rank that cannot take part.
    pub const FAILED: Extent = Extent {
        failed: true,
        position: 0,
        len: 0,
        start: 0,
        end: 0,
        runs: 0,
        view_bytes: 0,
        parameters: PlanParameters::NONE,
    };

    pub fn new(
        view: &FileView,
        position: u64,
        len: u64,
        encoded: &[u8],
        parameters: PlanParameters,
    ) -> Extent {
        if !view.layout.is_rising() {
            return Extent::FAILED;
        }
        let span = view.layout.span(position, len);
        Extent {
            failed: false,
            position,
            len,
            start: span.start,
            end: span.end,
            runs: view.layout.run_count(len),
            view_bytes: encoded.len() as u64,
            parameters,
        }
    }

    pub fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (own, parameters) = words.split_at_mut(WORDS - PARAMETERS);
        own.copy_from_slice(&[
            u64::from(self.failed),
            self.position,
            self.len,
            self.start,
            self.end,
            self.runs,
            self.view_bytes,
        ]);
        parameters.copy_from_slice(&self.parameters.words());
        words
    }

    /// The extents of all ranks.
    pub fn all(words: &[u64]) -> Vec<Extent> {
        let extents = words.chunks_exact(WORDS);
        let of = |w: &[u64]| Extent {
            failed: w[0] != 0,
            position: w[1],
            len: w[2],
            start: w[3],
            end: w[4],
            runs: w[5],
            view_bytes: w[6],
            parameters: PlanParameters::of(&w[7..]),
        };
        extents.map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_travel_as_numbers() {
        let view = FileView::bytes();
        let parameters = PlanParameters {
            aggregators: 3,
            buffer_bytes: 1 << 20,
            alignment: 4096,
            choice: Choice::Always,
            file_system: FileSystem::Tmpfs,
            own_cores: true,
        };
        let a = Extent::new(&view, 10, 5, &[0; 40], parameters);
        assert_eq!((a.start, a.end, a.view_bytes), (10, 15, 40));
        let words: Vec<u64> = [a.words(), Extent::FAILED.words()].concat();
        assert_eq!(Extent::all(&words), [a, Extent::FAILED]);
    }
}
