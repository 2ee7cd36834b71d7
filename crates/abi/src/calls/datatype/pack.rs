//! Packing and unpacking, in the native and the external32 representation (MPI 5.0 §5.2).

use crate::prelude::*;

/// The packed size of `count` elements, bytes.
fn packed(count: i64, size: i64) -> Result<i64> {
    match count.checked_mul(size.max(0)) {
        Some(bytes) => Ok(bytes),
        None => Err(err!(
            Count,
            "{count} elements of {size} bytes are more than 63 bits count"
        )),
    }
}

/// Checks that a pack buffer of `size` bytes has `needed` bytes from `position` on. Returns their
/// address.
fn from_position(
    buffer: (&str, *const u8),
    size: (&str, i64),
    position: i64,
    needed: i64,
) -> Result<*const u8> {
    let ((buffer_name, at), (size_name, size)) = (buffer, size);
    if position < 0 || position > size {
        return Err(err!(
            Arg,
            "position is {position}, but must be from 0 to {size_name}, {size}"
        ));
    }
    if needed > size - position {
        return Err(err!(
            Arg,
            "{size_name} is {size} and position {position}, but {needed} bytes are needed from \
             there on"
        ));
    }
    if at.is_null() && needed > 0 {
        return Err(err!(Buffer, "{buffer_name} is null"));
    }
    Ok(at.wrapping_add(position as usize))
}

/// Packs `needed` bytes into a pack buffer from `position` on, by `pack`.
///
/// # Safety
/// The buffer has `outsize` writable bytes.
unsafe fn pack_by(
    needed: i64,
    outbuf: *mut u8,
    outsize: i64,
    position: InOutCount,
    pack: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let size = ("outsize", outsize);
    let at = from_position(("outbuf", outbuf), size, position.value(), needed)?;
    if needed > 0 {
        // SAFETY: these bytes are in the buffer.
        pack(unsafe { std::slice::from_raw_parts_mut(at.cast_mut(), needed as usize) })?;
    }
    position.set(position.value() + needed, "position")
}

/// Unpacks `needed` bytes of a pack buffer from `position` on, by `unpack`.
///
/// # Safety
/// The buffer has `insize` readable bytes.
unsafe fn unpack_by(
    needed: i64,
    inbuf: *const u8,
    insize: i64,
    position: InOutCount,
    unpack: impl FnOnce(&[u8]) -> Result<()>,
) -> Result<()> {
    let size = ("insize", insize);
    let at = from_position(("inbuf", inbuf), size, position.value(), needed)?;
    if needed > 0 {
        // SAFETY: these bytes are in the buffer.
        unpack(unsafe { std::slice::from_raw_parts(at, needed as usize) })?;
    }
    position.set(position.value() + needed, "position")
}

pub fn pack(
    inbuf: *const u8,
    incount: i64,
    datatype: DatatypeRef,
    outbuf: *mut u8,
    outsize: i64,
    position: InOutCount,
    _comm: CommRef,
) -> Result<()> {
    let needed = packed(incount, datatype.size())?;
    // SAFETY: the program promises buffers with these elements and bytes, which do not overlap.
    unsafe {
        pack_by(needed, outbuf, outsize, position, |out| {
            datatype.pack(inbuf, incount, 0, out);
            Ok(())
        })
    }
}

pub fn unpack(
    inbuf: *const u8,
    insize: i64,
    position: InOutCount,
    outbuf: *mut u8,
    outcount: i64,
    datatype: DatatypeRef,
    _comm: CommRef,
) -> Result<()> {
    let needed = packed(outcount, datatype.size())?;
    // SAFETY: as in `pack`.
    unsafe {
        unpack_by(needed, inbuf, insize, position, |data| {
            datatype.unpack(outbuf, outcount, 0, data);
            Ok(())
        })
    }
}

pub fn pack_size(
    incount: i64,
    datatype: DatatypeRef,
    _comm: CommRef,
    size: OutCount,
) -> Result<()> {
    size.set(packed(incount, datatype.size())?);
    Ok(())
}

/// Checks that `datarep` is "external32", the only portable representation.
fn external(datarep: &CStr) -> Result<()> {
    match datarep.to_bytes() {
        b"external32" => Ok(()),
        _ => Err(err!(
            Arg,
            "datarep is {datarep:?}, but must be \"external32\""
        )),
    }
}

fn external_size(count: i64, datatype: &Datatype) -> Result<i64> {
    match datatype.external_size() {
        Some(size) => packed(count, size),
        None => Err(err!(
            Type,
            "the datatype's size in external32 does not fit into 63 bits"
        )),
    }
}

pub fn pack_external(
    datarep: &CStr,
    inbuf: *const u8,
    incount: i64,
    datatype: DatatypeRef,
    outbuf: *mut u8,
    outsize: i64,
    position: InOutCount,
) -> Result<()> {
    external(datarep)?;
    let needed = external_size(incount, datatype)?;
    // SAFETY: as in `pack`.
    unsafe {
        pack_by(needed, outbuf, outsize, position, |out| {
            datatype.pack_external(inbuf, incount, out)?;
            Ok(())
        })
    }
}

pub fn unpack_external(
    datarep: &CStr,
    inbuf: *const u8,
    insize: i64,
    position: InOutCount,
    outbuf: *mut u8,
    outcount: i64,
    datatype: DatatypeRef,
) -> Result<()> {
    external(datarep)?;
    let needed = external_size(outcount, datatype)?;
    // SAFETY: as in `pack`.
    unsafe {
        unpack_by(needed, inbuf, insize, position, |data| {
            datatype.unpack_external(outbuf, outcount, data)?;
            Ok(())
        })
    }
}

pub fn pack_external_size(
    datarep: &CStr,
    incount: i64,
    datatype: DatatypeRef,
    size: Out<i64>,
) -> Result<()> {
    external(datarep)?;
    size.set(external_size(incount, datatype)?);
    Ok(())
}
