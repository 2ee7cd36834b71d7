//! The constants of the standard ABI, with the names that C knows them by.

#![allow(dead_code)]

include!(concat!(env!("OUT_DIR"), "/constants.rs"));
