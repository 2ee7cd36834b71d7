//! A window: a range of the file in an aggregator's memory.

use super::super::access::Direction;
use super::super::sieve_exclusion::SieveExclusion;
use crate::device;
use crate::{Error, Result};
use ferry_io::store::StoredFile;
use ferry_io::two_phase::{self, Portion};
use ferry_io::{View, transfer};
use std::ops::Range;
use std::sync::Arc;

/// A window is read and written piece by piece where the data are less than one part in so many of
/// its range. A choice.
const SPARSE: u64 = 16;

/// A rank's data in a window.
pub(super) struct Piece {
    pub view: View,
    /// Which of the view's data they are, bytes.
    pub data: Range<u64>,
}

/// A range of the file in memory.
pub(super) struct Window {
    direction: Direction,
    stored: Arc<dyn StoredFile>,
    sieve_exclusion: Arc<SieveExclusion>,
    /// The byte of the file where it begins.
    start: u64,
    /// Its bytes, and room for more.
    memory: Vec<u8>,
    len: usize,
    pieces: Vec<Piece>,
    /// How the transfer went.
    pub result: Result<()>,
}

/// A rank's data in a window, as a buffer of messages.
pub(super) struct PieceLayout {
    view: View,
    position: u64,
    bytes: u64,
    window_start: u64,
    at: *mut u8,
    len: usize,
}

// SAFETY: the address is a window's, which stays until its messages are complete; only the device
// accesses it, under its lock.
unsafe impl Send for PieceLayout {}

impl Window {
    pub fn new(
        stored: &Arc<dyn StoredFile>,
        sieve_exclusion: &Arc<SieveExclusion>,
        direction: Direction,
    ) -> Window {
        Window {
            direction,
            stored: stored.clone(),
            sieve_exclusion: sieve_exclusion.clone(),
            start: 0,
            memory: Vec::new(),
            len: 0,
            pieces: Vec::new(),
            result: Ok(()),
        }
    }

    /// Makes it the window of these pieces, of which there is at least one.
    pub fn place(&mut self, pieces: Vec<Piece>) {
        let spans = pieces
            .iter()
            .map(|p| p.view.span(p.data.start, p.data.end - p.data.start));
        let span = spans.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let span = span.unwrap_or(0..0);
        self.start = span.start;
        self.len = (span.end - span.start) as usize;
        if self.memory.len() < self.len {
            self.memory.resize(self.len, 0);
        }
        self.pieces = pieces;
        self.result = Ok(());
    }

    /// Which data of its view piece number `n` is, bytes.
    pub fn data(&self, n: usize) -> Range<u64> {
        self.pieces[n].data.clone()
    }

    /// Piece number `n` as the buffer of a message, and its bytes.
    pub fn scattered(&mut self, n: usize) -> (Box<PieceLayout>, usize) {
        let Piece { view, data } = &self.pieces[n];
        let bytes = data.end - data.start;
        let scattered = PieceLayout {
            view: view.clone(),
            position: data.start,
            bytes,
            window_start: self.start,
            at: self.memory.as_mut_ptr(),
            len: self.len,
        };
        (Box::new(scattered), bytes as usize)
    }

    /// Stores piece number `n`.
    pub fn put(&mut self, n: usize, data: &[u8]) {
        let piece = &self.pieces[n];
        let window = &mut self.memory[..self.len];
        piece
            .view
            .scatter(piece.data.start, data, window, self.start);
    }

    /// Copies piece number `n`.
    pub fn get(&self, n: usize, out: &mut [u8]) {
        let piece = &self.pieces[n];
        let window = &self.memory[..self.len];
        piece.view.gather(piece.data.start, window, self.start, out);
    }

    /// Reads or writes the pieces. Blocks. `result` tells how that went.
    pub fn transfer(&mut self) {
        let done = match self.direction {
            Direction::Read => self.read(),
            Direction::Write => self.write(),
        };
        self.result = done.map_err(Error::from);
    }

    fn read(&mut self) -> ferry_io::Result<()> {
        let (stored, start) = (&*self.stored, self.start);
        let data: u64 = self.pieces.iter().map(Piece::len).sum();
        if data.saturating_mul(SPARSE) >= self.len as u64 {
            return fill(stored, &mut self.memory[..self.len], start);
        }
        for piece in &self.pieces {
            for run in piece.runs() {
                let at = (run.offset - start) as usize;
                fill(
                    stored,
                    &mut self.memory[at..at + run.len as usize],
                    run.offset,
                )?;
            }
        }
        Ok(())
    }

    /// Nothing is written but the pieces: what lies between them may be written by others at the
    /// same time.
    fn write(&mut self) -> ferry_io::Result<()> {
        let (stored, start) = (&*self.stored, self.start);
        let portions: Vec<Portion<'_>> = self.pieces.iter().map(Piece::portion).collect();
        let coverage = two_phase::coverage(&portions, &(start..start + self.len as u64));
        if coverage.is_none_or(|c| !c.has_holes) {
            return self
                .sieve_exclusion
                .write(stored, &self.memory[..self.len], start);
        }
        // Held until all runs are written, as is the lock.
        let unlocked_write = self.sieve_exclusion.begin(stored, false);
        // One lock for all runs: each is two messages to a server.
        let _lock = match unlocked_write {
            Some(_) => None,
            None => transfer::lock_write(stored, start..start.saturating_add(self.len as u64))?,
        };
        for run in two_phase::union(self.pieces.iter().map(Piece::runs)) {
            let at = (run.offset - start) as usize;
            transfer::write_all(stored, &self.memory[at..at + run.len as usize], run.offset)?;
        }
        Ok(())
    }
}

impl Piece {
    fn len(&self) -> u64 {
        self.data.end - self.data.start
    }

    fn runs(&self) -> ferry_io::Runs<'_> {
        self.view.runs(self.data.start, self.len())
    }

    fn portion(&self) -> Portion<'_> {
        Portion {
            view: &self.view,
            position: self.data.start,
            len: self.len(),
        }
    }
}

/// Reads all of `buf`, which lay in the file when the ranks looked.
fn fill(stored: &dyn StoredFile, buf: &mut [u8], offset: u64) -> ferry_io::Result<()> {
    let read = transfer::read_exact_or_end(stored, buf, offset)?;
    if read == buf.len() {
        return Ok(());
    }
    let (at, missing) = (offset + read as u64, (buf.len() - read) as u64);
    let cause = std::io::Error::new(
        std::io::ErrorKind::UnexpectedEof,
        "the file has become shorter during a collective read",
    );
    Err(ferry_io::Error::at(
        "pread",
        stored.path(),
        at,
        missing,
        cause,
    ))
}

impl device::Layout for PieceLayout {
    unsafe fn pack(&self, offset: u64, out: &mut [u8]) {
        // SAFETY: the window has so many bytes, and stays while its messages are under way.
        let window = unsafe { std::slice::from_raw_parts(self.at, self.len) };
        let start = self.window_start;
        self.view.gather(self.position + offset, window, start, out);
    }

    unsafe fn unpack(&self, offset: u64, data: &[u8]) {
        // SAFETY: as above; the device accesses it under its lock.
        let window = unsafe { std::slice::from_raw_parts_mut(self.at, self.len) };
        let start = self.window_start;
        self.view
            .scatter(self.position + offset, data, window, start);
    }

    fn runs(&self, offset: u64, runs: &mut Vec<(*mut u8, usize)>) -> u64 {
        let mut listed = 0;
        let left = self.bytes.saturating_sub(offset);
        for run in self.view.runs(self.position + offset, left) {
            if runs.len() == runs.capacity() {
                break;
            }
            let at = (run.offset - self.window_start) as usize;
            runs.push((self.at.wrapping_add(at), run.len as usize));
            listed += run.len;
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sieve_exclusion::{OtherOpens, Ranks};
    use super::*;
    use crate::Datatype;
    use device::Layout;
    use ferry_datatype::Basic;
    use ferry_io::store::{MemoryStore, OpenMode, Store};
    use std::path::Path;

    /// Every `of`-th byte, from byte `first` on.
    fn view(first: u64, of: i64) -> View {
        let byte = Datatype::basic(Basic::Byte);
        View::new(first, 1, &Datatype::resized(0, of, byte).unwrap()).unwrap()
    }

    fn alone() -> Arc<SieveExclusion> {
        Arc::new(SieveExclusion::new(Ranks::One, OtherOpens::Unknown))
    }

    fn piece(first: u64, of: i64, data: Range<u64>) -> Piece {
        Piece {
            view: view(first, of),
            data,
        }
    }

    #[test]
    fn a_window_writes_its_pieces_and_nothing_else() {
        let store = MemoryStore::default();
        let file = store.open(Path::new("x"), &OpenMode::CREATE).unwrap();
        transfer::write_all(&*file, &[b'.'; 12], 0).unwrap();
        let mut window = Window::new(&file, &alone(), Direction::Write);
        window.place(vec![piece(0, 4, 0..3), piece(1, 4, 0..3)]);
        window.put(0, b"abc");
        let (scattered, bytes) = window.scattered(1);
        assert_eq!(bytes, 3);
        // SAFETY: the window stays.
        unsafe { scattered.unpack(0, b"xyz") };
        window.transfer();
        assert!(window.result.is_ok());
        let mut all = [0; 12];
        transfer::read_exact_or_end(&*file, &mut all, 0).unwrap();
        assert_eq!(&all, b"ax..by..cz..");
        let mut window = Window::new(&file, &alone(), Direction::Read);
        window.place(vec![piece(0, 4, 1..3), piece(1, 4, 0..3)]);
        window.transfer();
        let mut two = [0; 2];
        window.get(0, &mut two);
        assert_eq!(&two, b"bc");
        let (scattered, _) = window.scattered(1);
        let mut runs = Vec::with_capacity(2);
        assert_eq!(scattered.runs(1, &mut runs), 2);
        // SAFETY: the window stays.
        unsafe { scattered.pack(1, &mut two) };
        assert_eq!(&two, b"yz");
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error() {
        let store = MemoryStore::default();
        let file = store.open(Path::new("x"), &OpenMode::CREATE).unwrap();
        transfer::write_all(&*file, b"abc", 0).unwrap();
        let mut window = Window::new(&file, &alone(), Direction::Read);
        window.place(vec![piece(0, 1, 0..5)]);
        window.transfer();
        let e = window.result.unwrap_err();
        assert_eq!(e.kind(), crate::Kind::Io);
        assert!(
            e.text().contains("shorter") && e.text().contains("offset 3"),
            "{e}"
        );
    }
}
