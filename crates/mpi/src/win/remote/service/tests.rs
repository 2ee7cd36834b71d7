//! What a peer may send to a window, and what it must not: no packet touches memory outside of the
//! window and of what was asked for, blocks, or ends the process.

use super::super::packets::{BYTES, Elements, Request};
use super::super::pending::{AwaitedResponse, Destination};
use crate::device::{Pattern, Sink, Tags};
use crate::process::{self, ThreadLevel, process};
use crate::win::{Flavor, NewWindow};
use crate::{Datatype, Kind};
use ferry_datatype::Basic;
use std::ptr::null_mut;
use std::sync::Arc;

use super::*;

/// Bytes of a window, of the buffer of a get, and of the guard on either side of each.
const ROOM: usize = 192;
const GUARD: usize = 256;
/// What guards are filled with.
const FILL: u8 = 0xa5;

/// Memory between two guards.
struct Guarded(Box<[u8]>);

impl Guarded {
    fn new() -> Guarded {
        Guarded(vec![FILL; ROOM + 2 * GUARD].into())
    }

    fn room(&mut self) -> *mut u8 {
        self.0[GUARD..].as_mut_ptr()
    }

    fn check(&self) {
        let whole = |guard: &[u8]| guard.iter().all(|byte| *byte == FILL);
        assert!(whole(&self.0[..GUARD]) && whole(&self.0[GUARD + ROOM..]));
    }
}

/// A window of this process alone, with two gets under way to itself.
struct Scene<'a> {
    win: Arc<Win>,
    memory: &'a mut Guarded,
    buffer: Guarded,
}

impl Scene<'_> {
    fn new(flavor: Flavor, memory: &mut Guarded) -> Scene<'_> {
        let (base, size) = match flavor {
            Flavor::Create => (memory.room(), ROOM as i64),
            _ => (null_mut(), 0),
        };
        let request = NewWindow {
            comm: &process().world,
            info: None,
            flavor,
            base,
            size,
            disp_unit: 1,
        };
        let win = Win::make(&request).unwrap();
        if flavor == Flavor::Dynamic {
            win.attach(memory.room(), ROOM as i64).unwrap();
        }
        let mut scene = Scene {
            win,
            memory,
            buffer: Guarded::new(),
        };
        for (offset, bytes) in [(0, 8), (8, 24)] {
            scene.expect(offset, bytes);
        }
        scene
    }

    fn expect(&mut self, offset: usize, len: usize) {
        let destination = Destination {
            address: self.buffer.room().wrapping_add(offset),
            count: len as i64,
            datatype: Datatype::basic(Basic::Byte).clone(),
            offset: 0,
            len,
        };
        let target = self.win.targets.known(0).unwrap();
        lock(&target.pending).push_awaited(AwaitedResponse {
            destination,
            operation: None,
            last: true,
        });
    }

    /// The packet comes. Returns what came of it.
    fn feed(&mut self, packet: &[u8]) -> (usize, u64) {
        let context = self.win.comm.context;
        device::device().send_active(0, packet.into());
        for _ in 0..4 {
            device::poll_once(|_| None::<()>);
        }
        self.memory.check();
        self.buffer.check();
        let waits = WAITING.load(Ordering::Relaxed);
        let completed = self.win.own_block().completed.0.load(Ordering::Relaxed);
        let d = &mut *device::device();
        // Data of gets by messages, which nobody has asked for.
        let pattern = Pattern {
            context,
            source: None,
            tag: Tags::ANY,
        };
        while let Some((message, _)) = d.matched_probe(&pattern) {
            let nowhere = Sink::Bytes {
                ptr: null_mut(),
                cap: 0,
            };
            // SAFETY: the sink has no bytes.
            let receive = unsafe { d.receive_matched(message, nowhere) };
            d.detach(receive);
        }
        (waits, completed)
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.win.let_go();
        }
    }
}

fn seeds(base: i64) -> Vec<Vec<u8>> {
    let long = Datatype::basic(Basic::Int64).basic_kind().unwrap().value();
    let column = Datatype::vector(3, 1, 2, Datatype::basic(Basic::Int64)).unwrap();
    let column = column.encode().unwrap();
    let elements = |offset, count, datatype| Elements {
        offset: base + offset,
        count,
        datatype,
    };
    let all = [
        vec![
            Request::Put(elements(0, 8, BYTES), &[1; 8]),
            Request::Flush(1),
        ],
        vec![
            Request::Get(elements(ROOM as i64 - 16, 16, BYTES)),
            Request::Flush(2),
        ],
        vec![
            Request::Type {
                slot: 0,
                last: true,
                bytes: &column,
            },
            Request::Put(elements(8, 1, 1), &[2; 24]),
            Request::Get(elements(8, 2, 1)),
        ],
        vec![
            Request::Accumulate {
                elements: elements(16, 2, long),
                op: 33,
                fetches: true,
                data: &[3; 16],
            },
            Request::CompareAndSwap(elements(32, 1, long), &[4; 16]),
        ],
        vec![
            Request::Lock { exclusive: true },
            Request::LargePut(elements(0, 64, BYTES), 5),
            Request::LargeGet(elements(64, 64, BYTES), 5),
            Request::Unlock(3),
            Request::Lock { exclusive: false },
            Request::Complete,
        ],
    ];
    let head = |kind| {
        let mut packet = Vec::new();
        let (context, rank) = (0, 0);
        Head {
            context,
            rank,
            kind,
        }
        .put(&mut packet);
        packet
    };
    let requests = all.iter().map(|records| {
        let mut packet = head(PacketKind::Requests);
        records.iter().for_each(|record| record.put(&mut packet));
        packet
    });
    let mut responses = head(PacketKind::Responses);
    Response::Data(&[5; 8]).put(&mut responses);
    Response::Data(&[6; 24]).put(&mut responses);
    Response::Acknowledged(1).put(&mut responses);
    Response::Error(Kind::RmaRange, Refused::Large(7), "beyond").put(&mut responses);
    Response::Post.put(&mut responses);
    requests.chain([responses]).collect()
}

#[test]
fn fuzz_a_live_window() {
    process::init(ThreadLevel::Multiple).unwrap();
    for flavor in [Flavor::Create, Flavor::Dynamic] {
        let mut memory = Guarded::new();
        let base = match flavor {
            Flavor::Dynamic => memory.room().expose_provenance() as i64,
            _ => 0,
        };
        let name = format!("packets to a live window, {flavor:?}");
        ferry_fuzz::fuzz(&name, &seeds(base), |bytes| {
            let mut scene = Scene::new(flavor, &mut memory);
            let mut packet = bytes.to_vec();
            if packet.len() >= HEADER_BYTES {
                let context = scene.win.comm.context.0;
                packet[..8].copy_from_slice(&context.to_le_bytes());
                packet[8..12].fill(0);
            }
            scene.feed(&packet)
        });
    }
}
