//! Random filetypes, each with the offsets of its data bytes as they follow from its construction.

use ferry_datatype::{Basic, Datatype, Order};
use proptest::prelude::*;
use std::sync::Arc;

/// A filetype, and where its data bytes are.
#[derive(Clone, Debug)]
pub struct Filetype {
    pub datatype: Arc<Datatype>,
    /// Offset of each data byte, in packed order.
    pub bytes: Vec<u64>,
    pub extent: u64,
}

impl Filetype {
    /// Offset of a data byte of a view.
    pub fn offset_of(&self, displacement: u64, position: u64) -> u64 {
        let n = self.bytes.len() as u64;
        displacement + position / n * self.extent + self.bytes[(position % n) as usize]
    }

    fn repeated(&self, count: u64, stride: u64) -> Vec<u64> {
        let copies = (0..count).flat_map(|i| self.bytes.iter().map(move |at| at + i * stride));
        copies.collect()
    }
}

/// Blocks of bytes with gaps between them.
fn blocks() -> impl Strategy<Value = Filetype> {
    prop::collection::vec((0u64..9, 1u64..9), 1..12).prop_map(|list| {
        let (mut bytes, mut lens, mut places, mut at) = (vec![], vec![], vec![], 0);
        for (gap, len) in list {
            at += gap;
            places.push(at as i64);
            lens.push(len as i64);
            bytes.extend(at..at + len);
            at += len;
        }
        let byte = Datatype::basic(Basic::Byte);
        let datatype = Datatype::hindexed(&lens, &places, byte).unwrap();
        let extent = at - bytes[0];
        Filetype {
            datatype,
            bytes,
            extent,
        }
    })
}

/// A part of an array of two dimensions.
fn subarray() -> impl Strategy<Value = Filetype> {
    (1u64..7, 1u64..9, 1u64..5).prop_flat_map(|(rows, columns, element)| {
        let part = |n: u64| (1..=n).prop_flat_map(move |sub| (Just(sub), 0..=n - sub));
        (part(rows), part(columns)).prop_map(move |((sub_rows, row), (sub_columns, column))| {
            let byte = Datatype::basic(Basic::Byte);
            let one = Datatype::contiguous(element as i64, byte).unwrap();
            let sizes = [rows as i64, columns as i64];
            let subsizes = [sub_rows as i64, sub_columns as i64];
            let starts = [row as i64, column as i64];
            let datatype = Datatype::subarray(&sizes, &subsizes, &starts, Order::C, &one).unwrap();
            let rows_of_part = row..row + sub_rows;
            let bytes = rows_of_part.flat_map(|r| {
                let start = (r * columns + column) * element;
                start..start + sub_columns * element
            });
            Filetype {
                datatype,
                bytes: bytes.collect(),
                extent: rows * columns * element,
            }
        })
    })
}

/// The same with another extent. It leaves room for the data if `room`.
fn resized(old: Filetype, more: u64, room: bool) -> Filetype {
    let span = old.bytes.last().unwrap() + 1 - old.bytes[0];
    let extent = match room {
        true => span + more,
        false => (span / 2).max(1) + more,
    };
    Filetype {
        datatype: Datatype::resized(0, extent as i64, &old.datatype).unwrap(),
        bytes: old.bytes,
        extent,
    }
}

/// A vector of blocks of a filetype.
fn vector(old: Filetype, count: u64, gap: u64) -> Filetype {
    let span = old.bytes.last().unwrap() + 1 - old.bytes[0];
    let stride = span + gap;
    let datatype = Datatype::hvector(count as i64, 1, stride as i64, &old.datatype).unwrap();
    let extent = (count - 1) * stride + old.extent;
    Filetype {
        bytes: old.repeated(count, stride),
        datatype,
        extent,
    }
}

/// Filetypes whose offsets rise from filetype to filetype.
pub fn rising() -> impl Strategy<Value = Filetype> {
    let plain = prop_oneof![blocks(), subarray()];
    let nested = (plain, 1u64..5, 0u64..9).prop_map(|(old, count, gap)| match count {
        1 => old,
        _ => vector(old, count, gap),
    });
    let nested = (nested, 1u64..4, 0u64..30).prop_map(|(old, count, gap)| match count {
        1 => old,
        _ => vector(old, count, gap),
    });
    let room = |old: Filetype| {
        let span = old.bytes.last().unwrap() + 1 - old.bytes[0];
        match old.extent < span {
            true => resized(old, 0, true),
            false => old,
        }
    };
    (nested, prop::option::of(0u64..20)).prop_map(move |(old, more)| match more {
        Some(more) => resized(old, more, true),
        None => room(old),
    })
}

/// Filetypes that may lie over each other. Their own offsets rise.
pub fn any() -> impl Strategy<Value = Filetype> {
    let close = (blocks(), 0u64..20).prop_map(|(old, more)| resized(old, more, false));
    prop_oneof![rising(), close]
}
