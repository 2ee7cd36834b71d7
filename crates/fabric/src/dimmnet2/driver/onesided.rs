//! One-sided transfers and strided data by vector commands, which the paper's authors had planned.

use super::{CardDriver, CardPort};
use crate::dimmnet2::card::LlcmWord;
use crate::dimmnet2::card::command::{Addressing, Command, Location};
use crate::dimmnet2::card::packet::Request;
use crate::dimmnet2::card::pattern::Pattern;

/// An address in a peer's SO-DIMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer.
    pub rank: u32,
    /// Its SO-DIMM address.
    pub memory: u32,
}

impl<P: CardPort> CardDriver<P> {
    /// Address of the SO-DIMM that the driver does not use. It is the same in every process.
    pub fn free_memory_at(&self) -> u32 {
        self.layout.driver_memory(self.senders) as u32
    }

    /// Puts bytes from ordinary memory into a peer's SO-DIMM, by RVS packets that are sent by BOTF.
    /// Returns when the bytes may be used again. They have arrived when a later message of this
    /// process arrives there, or after [`CardDriver::fence`].
    pub fn put(&mut self, to: Remote, bytes: &[u8]) {
        let piece = self.layout.image_data() as usize;
        for (i, data) in bytes.chunks(piece).enumerate() {
            self.await_slot();
            let request = Request::Store {
                memory: u64::from(to.memory) + (i * piece) as u64,
                pattern: Pattern::Contiguous {
                    bytes: data.len() as u32,
                },
                data: data.to_vec(),
            };
            self.send_packet(to.rank, &request);
        }
    }

    /// Puts bytes from ordinary memory into blocks of a peer's SO-DIMM, each beginning `stride`
    /// bytes after the one before, by RVS packets with a stride. Returns as [`CardDriver::put`].
    pub fn put_blocks(&mut self, to: Remote, block: u32, stride: u32, bytes: &[u8]) {
        let blocks = (self.layout.image_data() / block).max(1);
        for (i, data) in (0..).zip(bytes.chunks((blocks * block) as usize)) {
            self.await_slot();
            let request = Request::Store {
                memory: u64::from(to.memory) + i * u64::from(blocks) * u64::from(stride),
                pattern: Pattern::Stride {
                    block,
                    stride,
                    count: data.len() as u32 / block,
                },
                data: data.to_vec(),
            };
            self.send_packet(to.rank, &request);
        }
    }

    /// Gets bytes of a peer's SO-DIMM into ordinary memory, by RVL into the Prefetch Window, two at
    /// a time. Blocks until they have arrived.
    pub fn get(&mut self, from: Remote, into: &mut [u8]) {
        let slot = self.layout.slot;
        self.get_pieces(from, slot, slot, into, Addressing::Contiguous);
    }

    /// Gets blocks of a peer's SO-DIMM, each beginning `stride` bytes after the one before, as
    /// [`CardDriver::get`]. Panics if a block has more bytes than a slot.
    pub fn get_blocks(&mut self, from: Remote, block: u32, stride: u32, into: &mut [u8]) {
        let most = self.layout.slot / block;
        assert!(most > 0, "a block of {block} bytes");
        let blocks = most.min(into.len() as u32 / block);
        let what = |bytes| Addressing::Stride {
            block,
            stride,
            count: bytes / block,
        };
        self.get_pieces(from, blocks * block, blocks * stride, into, what);
    }

    /// Gets pieces of `piece` bytes. `distance`: from the beginning of one to that of the next in
    /// the peer's SO-DIMM. `what`: where the bytes of a piece lie from there.
    fn get_pieces(
        &mut self,
        from: Remote,
        piece: u32,
        distance: u32,
        into: &mut [u8],
        what: impl Fn(u32) -> Addressing,
    ) {
        let (slot, step) = (self.layout.slot as usize, piece as usize);
        self.prefetched = None;
        let first = self.loads_issued;
        let count = into.len().div_ceil(step);
        let len = into.len();
        let issue = |driver: &mut Self, i: usize| {
            driver.await_slot();
            let bytes = (len - i * step).min(step) as u32;
            driver.issue(&Command::RemoteLoad {
                from: driver.peers[from.rank as usize].process,
                into: Location::Window((i % 2 * slot) as u32),
                memory: from.memory + i as u32 * distance,
                what: what(bytes),
            });
        };
        if count > 0 {
            issue(self, 0);
        }
        for (i, piece) in into.chunks_mut(step).enumerate() {
            if i + 1 < count {
                issue(self, i + 1);
            }
            self.await_counter(LlcmWord::LoadsDone, first.wrapping_add(i as u32 + 1));
            self.port.charge(
                "reads of the window",
                self.costs.load_time(piece.len() as u32),
            );
            self.port.load((i % 2 * slot) as u32, piece);
        }
    }

    /// Puts contiguous blocks of this process's SO-DIMM into a peer's, to where `what` says. It is
    /// one RVS, and the processor packs nothing. A list must be written with [`CardDriver::list`]
    /// before.
    pub fn put_vector(&mut self, to: Remote, memory: u32, what: Addressing) {
        self.await_slot();
        self.issue(&Command::RemoteStore {
            to: self.peers[to.rank as usize].process,
            from: Location::Memory(memory),
            memory: to.memory,
            what,
        });
    }

    /// Gets blocks of a peer's SO-DIMM from where `what` says into this process's SO-DIMM, where
    /// they are contiguous. Blocks until they have arrived.
    pub fn get_vector(&mut self, from: Remote, memory: u32, what: Addressing) {
        self.await_slot();
        self.issue(&Command::RemoteLoad {
            from: self.peers[from.rank as usize].process,
            into: Location::Memory(memory),
            memory: from.memory,
            what,
        });
        self.await_counter(LlcmWord::LoadsDone, self.loads_issued);
    }

    /// Writes a list of offsets into the Write Window, for a command's [`Addressing`]. Returns
    /// where it lies until the next call. `None`: it is too long.
    pub fn list(&mut self, list: &Pattern) -> Option<u32> {
        let bytes = list.list();
        let at = self.layout.slots * self.layout.slot + self.layout.window() / 4;
        if bytes.len() as u32 > self.layout.window() / 4 {
            return None;
        }
        // The command that used the last one must have been executed.
        self.flush();
        self.await_counter(LlcmWord::VectorsDone, self.vectors_issued);
        self.port.charge(
            "writes to the window",
            self.costs.store_time(bytes.len() as u32),
        );
        self.port.store(at, &bytes);
        Some(at)
    }

    /// Stores bytes of ordinary memory in this process's SO-DIMM, to where `what` says, by VS.
    /// Blocks until they are there. Panics if there are more bytes than a slot has.
    pub fn store(&mut self, bytes: &[u8], memory: u32, what: Addressing) {
        assert!(bytes.len() <= self.layout.slot as usize);
        let window = self.layout.slots * self.layout.slot;
        self.port.charge(
            "writes to the window",
            self.costs.store_time(bytes.len() as u32),
        );
        self.port.store(window, bytes);
        self.issue(&Command::VectorStore {
            window,
            memory,
            what,
        });
        self.await_counter(LlcmWord::VectorsDone, self.vectors_issued);
    }

    /// Loads bytes of this process's SO-DIMM from where `what` says, by VL. Panics if there are
    /// more bytes than a slot has.
    pub fn load(&mut self, memory: u32, what: Addressing, into: &mut [u8]) {
        assert!(into.len() <= self.layout.slot as usize);
        self.prefetched = None;
        self.issue(&Command::VectorLoad {
            window: 0,
            memory,
            what,
        });
        self.await_counter(LlcmWord::VectorsDone, self.vectors_issued);
        self.port.charge(
            "reads of the window",
            self.costs.load_time(into.len() as u32),
        );
        self.port.load(0, into);
    }

    /// Waits until everything put to a peer lies in its SO-DIMM. It is an RVL of nothing, which
    /// does not overtake what was put. Blocks until then.
    pub fn fence(&mut self, rank: u32) {
        self.await_slot();
        self.issue(&Command::RemoteLoad {
            from: self.peers[rank as usize].process,
            into: Location::Window(0),
            memory: 0,
            what: Addressing::Contiguous(0),
        });
        self.await_counter(LlcmWord::LoadsDone, self.loads_issued);
    }
}
