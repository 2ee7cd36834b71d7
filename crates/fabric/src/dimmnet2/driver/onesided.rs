//! One-sided transfers and strided data by vector commands: what the paper's authors had planned.

use super::{Driver, Port};
use crate::dimmnet2::card::Word;
use crate::dimmnet2::command::{Addressing, Command, Place};
use crate::dimmnet2::packet::Request;
use crate::dimmnet2::pattern::Pattern;

/// A place in a peer's exposed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer.
    pub rank: u32,
    /// Its SO-DIMM address.
    pub memory: u32,
}

impl<P: Port> Driver<P> {
    /// Where the SO-DIMM that is not the driver's begins; it is the same in every process.
    pub fn exposed(&self) -> u32 {
        self.plan.memory(self.senders) as u32
    }

    /// Puts bytes from ordinary memory into a peer's SO-DIMM: RVS packets by BOTF. Returns when
    /// they may be used again; they are there when a later message of this process arrives
    /// there, or after [`Driver::fence`].
    pub fn put(&mut self, to: Remote, bytes: &[u8]) {
        let piece = self.plan.data() as usize;
        for (i, data) in bytes.chunks(piece).enumerate() {
            self.await_slot();
            let request = Request::Store {
                memory: u64::from(to.memory) + (i * piece) as u64,
                pattern: Pattern::Contiguous {
                    bytes: data.len() as u32,
                },
                data: data.to_vec(),
            };
            self.fly(to.rank, &request);
        }
    }

    /// Gets bytes of a peer's SO-DIMM into ordinary memory: RVL into the Prefetch Window, two at a
    /// time. Blocks until they are here.
    pub fn get(&mut self, from: Remote, into: &mut [u8]) {
        let slot = self.plan.slot as usize;
        self.held = None;
        let first = self.loads;
        let count = into.len().div_ceil(slot);
        let len = into.len();
        let ask = |driver: &mut Self, i: usize| {
            driver.await_slot();
            let bytes = (len - i * slot).min(slot) as u32;
            driver.issue(&Command::RemoteLoad {
                from: driver.peers[from.rank as usize].process,
                into: Place::Window((i % 2 * slot) as u32),
                memory: from.memory + (i * slot) as u32,
                what: Addressing::Contiguous(bytes),
            });
        };
        if count > 0 {
            ask(self, 0);
        }
        for (i, piece) in into.chunks_mut(slot).enumerate() {
            if i + 1 < count {
                ask(self, i + 1);
            }
            self.until(Word::LoadsDone, first.wrapping_add(i as u32 + 1));
            self.port
                .charge("reads of the window", self.host.loading(piece.len() as u32));
            self.port.load((i % 2 * slot) as u32, piece);
        }
    }

    /// Puts blocks that lie one after another in this process's SO-DIMM into a peer's, where `what`
    /// says: one RVS, nothing packed by the processor. A list must be written with
    /// [`Driver::list`] before.
    pub fn put_vector(&mut self, to: Remote, memory: u32, what: Addressing) {
        self.await_slot();
        self.issue(&Command::RemoteStore {
            to: self.peers[to.rank as usize].process,
            from: Place::Memory(memory),
            memory: to.memory,
            what,
        });
    }

    /// Gets blocks of a peer's SO-DIMM that lie where `what` says into this process's, one after
    /// another. Blocks until they are here.
    pub fn get_vector(&mut self, from: Remote, memory: u32, what: Addressing) {
        self.await_slot();
        self.issue(&Command::RemoteLoad {
            from: self.peers[from.rank as usize].process,
            into: Place::Memory(memory),
            memory: from.memory,
            what,
        });
        self.until(Word::LoadsDone, self.loads);
    }

    /// Writes a list of offsets into the Write Window, for a command's [`Addressing`]; returns
    /// where it lies. It holds until the next one. `None`: it is too long.
    pub fn list(&mut self, list: &Pattern) -> Option<u32> {
        let bytes = list.list();
        let at = self.plan.slots * self.plan.slot + self.plan.window() / 4;
        if bytes.len() as u32 > self.plan.window() / 4 {
            return None;
        }
        // The command that used the last one must have been executed.
        self.flush();
        self.until(Word::VectorsDone, self.vectors);
        self.port.charge(
            "writes to the window",
            self.host.storing(bytes.len() as u32),
        );
        self.port.store(at, &bytes);
        Some(at)
    }

    /// Stores bytes of ordinary memory in this process's SO-DIMM, where `what` says: VS. At most a
    /// slot. Returns when they are there. Panics if there are more.
    pub fn store(&mut self, bytes: &[u8], memory: u32, what: Addressing) {
        assert!(bytes.len() <= self.plan.slot as usize);
        let window = self.plan.slots * self.plan.slot;
        self.port.charge(
            "writes to the window",
            self.host.storing(bytes.len() as u32),
        );
        self.port.store(window, bytes);
        self.issue(&Command::VectorStore {
            window,
            memory,
            what,
        });
        self.until(Word::VectorsDone, self.vectors);
    }

    /// Loads bytes of this process's SO-DIMM, from where `what` says: VL. At most a slot. Panics if
    /// there are more.
    pub fn load(&mut self, memory: u32, what: Addressing, into: &mut [u8]) {
        assert!(into.len() <= self.plan.slot as usize);
        self.held = None;
        self.issue(&Command::VectorLoad {
            window: 0,
            memory,
            what,
        });
        self.until(Word::VectorsDone, self.vectors);
        self.port
            .charge("reads of the window", self.host.loading(into.len() as u32));
        self.port.load(0, into);
    }

    /// Waits until everything put to a peer lies in its SO-DIMM: an RVL of nothing, which the
    /// network does not let pass it. Blocks until then.
    pub fn fence(&mut self, rank: u32) {
        self.await_slot();
        self.issue(&Command::RemoteLoad {
            from: self.peers[rank as usize].process,
            into: Place::Window(0),
            memory: 0,
            what: Addressing::Contiguous(0),
        });
        self.until(Word::LoadsDone, self.loads);
    }

    /// Waits until a slot is free. Blocks until then.
    fn await_slot(&mut self) {
        while !self.has_slot() {
            self.port.wait(self.host.read);
        }
    }
}
