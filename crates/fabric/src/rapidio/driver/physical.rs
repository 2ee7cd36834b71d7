//! A node's physical memory: the pages of user buffers and bounce buffers, and their addresses.
//!
//! A user page keeps its place; what is registered is a range of bytes of it. The card writes to
//! physical addresses, and here they become bytes of the process again.

use crate::rapidio::command::{PAGE_BYTES, Physical, WINDOW_AT};
use rustc_hash::FxHashMap;

/// Bytes that lie one after the other in physical memory. A run never crosses a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Where they lie.
    pub at: Physical,
    /// Their number, from 1 to [`PAGE_BYTES`].
    pub bytes: u16,
}

/// Memory that the card may read and write, until it is released.
#[derive(Debug, Default)]
pub struct Registration {
    /// Its bytes, in order, a run for each page.
    pub runs: Vec<Run>,
    /// Where they lie in this process. For a bounce buffer: nowhere that counts.
    bounce: bool,
}

impl Registration {
    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.runs.len()
    }
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|r| usize::from(r.bytes)).sum()
    }
    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
    /// Returns whether this is a bounce buffer.
    pub fn is_bounce(&self) -> bool {
        self.bounce
    }
}

/// The card has reached for memory that is not registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{bytes} bytes at physical address {:#x} are not registered", at.0)]
pub struct Unregistered {
    /// Where.
    pub at: Physical,
    /// Number of bytes.
    pub bytes: usize,
}

/// Where a page's bytes are.
enum Place {
    /// In the program: the address of the page.
    User(usize),
    /// Here.
    Bounce(Box<[u8]>),
}

struct Page {
    place: Place,
    /// Ranges of its bytes that are registered: first byte, and the one behind the last.
    ranges: Vec<(u16, u16)>,
}

/// A node's physical memory.
#[derive(Default)]
pub struct PhysicalMemory {
    /// By frame number.
    pages: FxHashMap<u64, Page>,
    /// Frame numbers of user pages, by page number in the program.
    frames: FxHashMap<usize, u64>,
    /// Frame numbers that were used and are free.
    free: Vec<u64>,
    /// Frame numbers so far.
    used: u64,
    /// Address and bytes of the window.
    window: (usize, usize),
}

impl PhysicalMemory {
    /// A memory in which nothing is registered.
    pub fn new() -> PhysicalMemory {
        PhysicalMemory::default()
    }

    /// The window lies in these bytes from now on: the memory that the card maps
    /// ([`Client::mapped_memory`](crate::Client::mapped_memory)).
    ///
    /// # Safety
    /// They stay where they are for the life of this. Nobody has a reference to them.
    pub unsafe fn map_window(&mut self, memory: *mut u8, bytes: usize) {
        self.window = (memory.expose_provenance(), bytes);
    }

    /// Start and bytes of the window, which NREAD and NWRITE of other nodes reach.
    pub fn window(&self) -> (Physical, usize) {
        (WINDOW_AT, self.window.1)
    }

    /// No two frames that are taken one after the other are neighbours.
    fn take_frame(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 2;
            self.used
        })
    }

    /// Registers memory of the program: finds the physical address of each page.
    ///
    /// # Safety
    /// The bytes stay valid, for reading and writing, until [`PhysicalMemory::release`]. While the
    /// card may access them ([`PhysicalMemory::read`], [`PhysicalMemory::write`]) nobody else
    /// holds a reference to them that this breaks. Memory that is only sent is only read.
    pub unsafe fn register(&mut self, address: usize, len: usize) -> Registration {
        let page_bytes = PAGE_BYTES as usize;
        let mut runs = Vec::with_capacity(len.div_ceil(page_bytes) + 1);
        let mut at = address;
        while at < address + len {
            let (page, offset) = (at / page_bytes, at % page_bytes);
            let bytes = (page_bytes - offset).min(address + len - at);
            let frame = match self.frames.get(&page) {
                Some(frame) => *frame,
                None => {
                    let frame = self.take_frame();
                    self.frames.insert(page, frame);
                    frame
                }
            };
            let user = self.pages.entry(frame).or_insert_with(|| Page {
                place: Place::User(page * page_bytes),
                ranges: Vec::new(),
            });
            let range = (offset as u16, (offset + bytes) as u16);
            user.ranges.push(range);
            runs.push(Run {
                at: Physical(frame * PAGE_BYTES + offset as u64),
                bytes: bytes as u16,
            });
            at += bytes;
        }
        Registration {
            runs,
            bounce: false,
        }
    }

    /// Allocates a bounce buffer: whole pages, of which `len` bytes count.
    pub fn allocate(&mut self, len: usize) -> Registration {
        let mut runs = Vec::new();
        let mut left = len;
        while left > 0 {
            let frame = self.take_frame();
            let bytes = left.min(PAGE_BYTES as usize);
            let page = Page {
                place: Place::Bounce(vec![0; PAGE_BYTES as usize].into()),
                ranges: vec![(0, PAGE_BYTES as u16)],
            };
            self.pages.insert(frame, page);
            runs.push(Run {
                at: Physical(frame * PAGE_BYTES),
                bytes: bytes as u16,
            });
            left -= bytes;
        }
        Registration { runs, bounce: true }
    }

    /// Releases registered memory, or a bounce buffer.
    pub fn release(&mut self, registration: Registration) {
        for run in registration.runs {
            let (frame, offset) = split(run.at);
            let Some(page) = self.pages.get_mut(&frame) else {
                continue;
            };
            let range = (offset as u16, offset as u16 + run.bytes);
            if let Some(known) = page.ranges.iter().position(|r| *r == range) {
                page.ranges.swap_remove(known);
            }
            if registration.bounce || page.ranges.is_empty() {
                if let Place::User(address) = page.place {
                    self.frames.remove(&(address / PAGE_BYTES as usize));
                }
                self.pages.remove(&frame);
                self.free.push(frame);
            }
        }
    }

    /// Number of pages that are registered or bounce buffers.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Calls `access` with the address in this process of each run of registered bytes.
    fn each_run(
        &mut self,
        at: Physical,
        bytes: usize,
        mut access: impl FnMut(*mut u8, usize, usize),
    ) -> Result<(), Unregistered> {
        let wrong = Unregistered { at, bytes };
        if at >= WINDOW_AT {
            let offset = (at.0 - WINDOW_AT.0) as usize;
            let end = offset.checked_add(bytes).ok_or(wrong)?;
            if end > self.window.1 {
                return Err(wrong);
            }
            access(pointer(self.window.0 + offset), 0, bytes);
            return Ok(());
        }
        // All is checked before anything is touched.
        for touch in [false, true] {
            let mut done = 0;
            while done < bytes {
                let (frame, offset) = split(at.plus(done as u64));
                let run = (PAGE_BYTES as usize - offset).min(bytes - done);
                let page = self.pages.get_mut(&frame).ok_or(wrong)?;
                let range = (offset as u16, (offset + run) as u16);
                let covers = |r: &(u16, u16)| r.0 <= range.0 && range.1 <= r.1;
                if !page.ranges.iter().any(covers) {
                    return Err(wrong);
                }
                if touch {
                    let start = match &mut page.place {
                        Place::User(address) => pointer(*address + offset),
                        Place::Bounce(bytes) => bytes[offset..].as_mut_ptr(),
                    };
                    access(start, done, run);
                }
                done += run;
            }
        }
        Ok(())
    }

    /// Reads registered bytes.
    ///
    /// # Errors
    /// Some of them are not registered. None is read then.
    pub fn read(&mut self, at: Physical, out: &mut [u8]) -> Result<(), Unregistered> {
        let bytes = out.len();
        self.each_run(at, bytes, |from, done, run| {
            // SAFETY: `each_run` gives registered bytes, which `register` and `map_window` say are
            // valid; `out` is another object, and `done + run` is within it.
            unsafe { out[done..][..run].as_mut_ptr().copy_from(from, run) };
        })
    }

    /// Writes registered bytes.
    ///
    /// # Errors
    /// Some of them are not registered. None is written then.
    pub fn write(&mut self, at: Physical, data: &[u8]) -> Result<(), Unregistered> {
        self.each_run(at, data.len(), |to, done, run| {
            // SAFETY: as in `read`.
            unsafe { to.copy_from(data[done..][..run].as_ptr(), run) };
        })
    }
}

/// Frame number and offset of an address.
fn split(at: Physical) -> (u64, usize) {
    (at.0 / PAGE_BYTES, (at.0 % PAGE_BYTES) as usize)
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: usize = PAGE_BYTES as usize;

    /// Memory of a program that keeps its place.
    fn program(pages: usize) -> (Vec<u8>, usize) {
        let mut memory = vec![0xee; (pages + 1) * PAGE];
        let address = memory.as_mut_ptr().expose_provenance();
        (memory, address.next_multiple_of(PAGE))
    }

    proptest! {
        /// What is registered or allocated is read as it was written, whatever else comes and
        /// goes. Nothing else changes, and nothing else can be reached.
        #[test]
        fn registered_bytes_are_those_of_the_program(
            steps in prop::collection::vec(
                (any::<bool>(), 0usize..7 * PAGE, 1usize..3 * PAGE),
                1..30,
            ),
        ) {
            let (content, base) = program(10);
            let at = |offset: usize| base - content.as_ptr().addr() + offset;
            let mut memory = PhysicalMemory::new();
            // By number: the registration, where its bytes are in the program, and its bytes.
            let mut kept: Vec<(Registration, Option<usize>, usize)> = Vec::new();
            let mut expected = content.clone();
            for (number, (bounces, offset, bytes)) in steps.into_iter().enumerate() {
                if number % 3 == 2 {
                    let (registration, _, _) = kept.swap_remove(offset % kept.len());
                    memory.release(registration);
                    continue;
                }
                let registration = match bounces {
                    true => memory.allocate(bytes),
                    // SAFETY: within `content`, to which there is no reference until the end.
                    false => unsafe { memory.register(base + offset, bytes) },
                };
                prop_assert_eq!(registration.len(), bytes);
                prop_assert_eq!(registration.is_bounce(), bounces);
                let mut done = 0;
                for run in &registration.runs {
                    prop_assert!(run.at.0 as usize % PAGE + usize::from(run.bytes) <= PAGE);
                    let data: Vec<u8> = (0..run.bytes).map(|i| i as u8 ^ number as u8).collect();
                    prop_assert_eq!(memory.write(run.at, &data), Ok(()));
                    if !bounces {
                        expected[at(offset) + done..][..data.len()].copy_from_slice(&data);
                    }
                    let mut read = vec![0; data.len()];
                    prop_assert_eq!(memory.read(run.at, &mut read), Ok(()));
                    prop_assert!(read == data);
                    done += data.len();
                }
                let place = (!bounces).then(|| at(offset));
                kept.push((registration, place, bytes));
            }
            for (registration, place, _) in &kept {
                let mut done = 0;
                for run in &registration.runs {
                    let mut read = vec![0; run.bytes.into()];
                    prop_assert_eq!(memory.read(run.at, &mut read), Ok(()));
                    if let Some(place) = place {
                        prop_assert!(read == expected[place + done..][..read.len()]);
                    }
                    done += read.len();
                }
            }
            // Pages that two registrations share stay until the last one is released.
            while let Some((registration, _, _)) = kept.pop() {
                let runs = registration.runs.clone();
                memory.release(registration);
                for run in runs {
                    let (first, end) = (run.at.0, run.at.0 + u64::from(run.bytes));
                    let covers = |r: &Run| r.at.0 <= first && end <= r.at.0 + u64::from(r.bytes);
                    let still = kept.iter().any(|(r, _, _)| r.runs.iter().any(covers));
                    let read = memory.read(run.at, &mut vec![0; run.bytes.into()]);
                    // Two that overlap may cover it together; the card's driver registers whole
                    // messages, so that one must.
                    prop_assert_eq!(read.is_ok(), still);
                }
            }
            prop_assert_eq!(memory.pages(), 0);
            prop_assert!(content == expected);
        }
    }

    #[test]
    fn an_access_that_is_not_registered_whole_touches_nothing() {
        let (content, base) = program(3);
        let mut memory = PhysicalMemory::new();
        // SAFETY: within `content`, to which there is no reference until the release.
        let registration = unsafe { memory.register(base + 8, PAGE) };
        let [first, second] = registration.runs[..] else {
            panic!("{} runs", registration.pages());
        };
        assert_eq!((first.bytes, second.bytes), (4088, 8));
        // Pages are no neighbours: behind the first run's last byte there is nothing.
        for (at, bytes) in [
            (Physical(first.at.0 - 1), 2),
            (first.at, 4089),
            (second.at, 9),
            (Physical(second.at.0 + 8), 1),
            (Physical(0), 1),
            (Physical(u64::MAX - 4), 8),
            (WINDOW_AT, 1),
        ] {
            let wrong = Err(Unregistered { at, bytes });
            assert_eq!(memory.write(at, &vec![1; bytes]), wrong);
            assert_eq!(memory.read(at, &mut vec![1; bytes]), wrong);
        }
        memory.release(registration);
        assert!(content.iter().all(|b| *b == 0xee));
    }

    #[test]
    fn the_window_is_reached_to_its_last_byte() {
        let (content, base) = program(1);
        let mut memory = PhysicalMemory::new();
        // SAFETY: within `content`, to which there is no reference until the end.
        unsafe { memory.map_window(pointer(base), 64) };
        assert_eq!(memory.window(), (WINDOW_AT, 64));
        assert_eq!(memory.write(WINDOW_AT.plus(56), b"8 bytes!"), Ok(()));
        assert!(memory.write(WINDOW_AT.plus(57), b"8 bytes!").is_err());
        let place = base - content.as_ptr().addr();
        assert_eq!(&content[place + 56..][..9], b"8 bytes!\xee");
    }
}
