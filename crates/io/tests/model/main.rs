//! Views and transfers against an array of bytes, with random filetypes.

mod faults;
mod filetypes;
mod transfers;
mod two_phase;
mod views;
