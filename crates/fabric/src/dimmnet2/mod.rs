//! DIMMnet-2: a network interface in a memory slot, and the MPI device driver on it (T. Araki et
//! al., "Design and Implementation of MPI-2 Communication Library on DIMMnet-2").
//!
//! - [`card`] is the card: windows, SO-DIMM, LLCM, commands, rings. It has no clock; a kernel of
//!   virtual time drives it.
//! - [`driver`] is the software: it issues commands and reads what they bring, and is the same
//!   whatever carries them out.

pub mod adapter;
pub mod card;
pub mod command;
pub mod driver;
pub mod figures;
mod heap;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod packet;
pub mod pattern;
pub mod places;
pub mod ring;
