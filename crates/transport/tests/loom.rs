//! Models of shared memory's queues and boards: every order of steps, and every delay of stores
//! that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p ferry-transport --test loom`
//!
//! The code is the transport's own. Only the memory below it is loom's, with a ring of 16 lines.
//! Each line has a marker that loom watches: a write to bytes that the other side may still read is
//! found even if the values happen to be right.
#![cfg(loom)]
#![allow(dead_code)]

#[path = "loom/memory.rs"]
mod memory;

#[path = "../src/shm/announcements.rs"]
mod announcements;
#[path = "../src/shm/cells/mod.rs"]
mod cells;
#[path = "../src/shm/coll/counter_board.rs"]
mod counter_board;
#[path = "../src/shm/fastbox.rs"]
mod fastbox;
#[path = "../src/shm/coll/flat_board.rs"]
mod flat_board;
#[path = "../src/shm/pair/mod.rs"]
mod pair;
#[path = "../src/shm/ring/mod.rs"]
mod ring;
#[path = "../src/shm/streaming_copy.rs"]
mod streaming_copy;
#[path = "../src/shm/coll/unordered_flat_board.rs"]
mod unordered_flat_board;
#[path = "../src/shm/update_slot.rs"]
mod update_slot;

#[path = "loom/announcements.rs"]
mod announcements_model;
#[path = "loom/counter_board.rs"]
mod counter_board_model;
#[path = "loom/flat_board.rs"]
mod flat_board_model;
#[path = "loom/pair.rs"]
mod pair_model;
#[path = "loom/ring.rs"]
mod ring_model;
#[path = "loom/sleep.rs"]
mod sleep_model;
#[path = "loom/update_slot.rs"]
mod update_slot_model;

/// Checks `body` with at most this many preemptions, or LOOM_MAX_PREEMPTIONS.
fn check(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    builder.check(body);
}
