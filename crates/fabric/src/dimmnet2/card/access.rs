//! How a rank's processor reaches its card: commands, one event, and the memory that the card maps.
//!
//! The mapped memory is the Prefetch Window, then LLCM: a word of 32 bits for each counter, then
//! one for each sender's Next Write Addr.

use super::LlcmWord;
use super::packet::Process;
use crate::dimmnet2::figures::Figures;
use crate::kernel::Rank;
use crate::platform::Platform;

/// A command: stores into the Write Window. Place, bytes.
pub const STORE: u32 = 1;
/// A command: words for the User Registers.
pub const COMMAND: u32 = 2;
/// A command: a store of Next Read Addr into LLCM. Sender, address.
pub const SET_READ_ADDR: u32 = 3;
/// The event that says that something in LLCM has changed.
pub const LLCM_CHANGED: u32 = 1;

/// Words of LLCM that belong to no ring.
const COUNTERS: [LlcmWord; 5] = [
    LlcmWord::VectorsDone,
    LlcmWord::SendsDone,
    LlcmWord::LoadsDone,
    LlcmWord::Errors,
    LlcmWord::LastError,
];

/// Offset of a word of LLCM in the mapped memory, behind a Prefetch Window of `window` bytes.
pub fn word_at(word: LlcmWord, window: u32) -> usize {
    let index = match word {
        LlcmWord::Nwa(sender) => COUNTERS.len() + sender as usize,
        counter => COUNTERS.iter().position(|w| *w == counter).unwrap_or(0),
    };
    window as usize + index * 4
}

/// The process of a rank.
pub fn process_of(platform: &Platform, rank: Rank) -> Process {
    Process {
        node: platform.node_of(rank) as u16,
        port: (rank % platform.processes()) as u16,
    }
}

/// Bytes of window and LLCM that the card maps for each of `ranks` ranks.
pub fn llcm_end(platform: &Platform, f: &Figures, ranks: u32) -> u64 {
    let senders = ranks.next_multiple_of(platform.processes());
    word_at(LlcmWord::Nwa(senders), f.window_bytes()) as u64
}
