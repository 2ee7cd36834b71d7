//! Memory to guard, and somebody who is told what is touched.
#![allow(dead_code)]

use ferry_pageguard::{Arena, Guard, Kind, Owner, PAGE_BYTES, enable};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// As in the library: a thread that forks, or waits at a page, may hold the locks of malloc.
#[global_allocator]
pub static OWN: Arena = Arena::new(|| true);

/// Tells the test what was touched.
pub struct Told(Mutex<Sender<usize>>);

impl Owner for Told {
    fn on_touch(&self, _guard: &Guard, address: usize) {
        let _ = self.0.lock().unwrap().send(address);
    }
}

pub fn told() -> (Arc<Told>, Receiver<usize>) {
    let (send, hear) = channel();
    (Arc::new(Told(Mutex::new(send))), hear)
}

pub fn kinds() -> Vec<Kind> {
    [Kind::Move, Kind::Protect]
        .into_iter()
        .filter(|&k| match enable(k) {
            Ok(()) => true,
            Err(e) => {
                println!("{k:?} is left out: {e}");
                false
            }
        })
        .collect()
}

pub fn moves() -> bool {
    kinds().contains(&Kind::Move)
}

/// Memory of the program's.
pub struct Map {
    pub at: usize,
    pub len: usize,
}

impl Map {
    pub fn new(pages: usize) -> Map {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE_BYTES,
                rights,
                flags,
                -1,
                0,
            )
        } as usize;
        let map = Map {
            at,
            len: pages * PAGE_BYTES,
        };
        for i in 0..map.len {
            map.set(i, b'-');
        }
        map
    }
    pub fn set(&self, i: usize, to: u8) {
        // SAFETY: within the map.
        unsafe { ((self.at + i) as *mut u8).write_volatile(to) };
    }
    pub fn byte(&self, i: usize) -> u8 {
        peek(self.at + i)
    }
    pub fn pages(&self) -> Range<usize> {
        self.at..self.at + self.len
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(self.at as *mut _, self.len) };
    }
}

pub fn peek(address: usize) -> u8 {
    // SAFETY: the tests look at mapped memory only.
    unsafe { (address as *const u8).read_volatile() }
}

/// What is to be at an address in the end.
pub fn data(address: usize) -> u8 {
    (address / PAGE_BYTES * 7 + address % 251) as u8
}

/// Data arrive in the shadow.
pub fn land(guard: &Guard, bytes: Range<usize>) {
    for at in bytes {
        // SAFETY: the shadow is as long as the span.
        unsafe { (at.wrapping_add(guard.delta()) as *mut u8).write_volatile(data(at)) };
    }
}
