//! Calls that send, receive, wait and look.
#![allow(clippy::missing_safety_doc, reason = "the same for all: see `calls`")]

use super::{get, on_node, put};
use crate::abi::{EndpointAddress, EndpointHandle, RequestHandle, Segment, Status};
use crate::error::Error;
use crate::node::{Found, Node, from_pointer, to_pointer};
use ferry_fabric::rapidio::driver::mx::{Match, SendMode};
use std::ffi::{c_int, c_void};

/// The program's list of segments. Without segments the pointer does not matter.
///
/// # Safety
/// `at` is null, or `count` segments lie there for `'a`.
unsafe fn segments<'a>(at: *const Segment, count: u32) -> Result<&'a [Segment], Error> {
    match (at.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::BadSegments("it is NULL")),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, count as usize) }),
    }
}

/// What a receive or probe takes. `bits` must be 0 where `mask` is.
fn wanted(bits: u64, mask: u64) -> Result<Match, Error> {
    if bits & !mask != 0 {
        return Err(Error::BadMatchMask);
    }
    Ok(Match { bits, mask })
}

/// Writes whether something was found to `result`, and then its status.
///
/// # Safety
/// `status` and `result` are null or writable.
unsafe fn put_found(
    found: Option<Found>,
    status: *mut Status,
    result: *mut u32,
) -> Result<bool, Error> {
    // SAFETY: the caller's promise.
    unsafe { put(result, u32::from(found.is_some()), "result") }?;
    let Some(found) = found else {
        return Ok(false);
    };
    let filled = Status {
        code: found.code,
        source: EndpointAddress::new(found.status.peer),
        match_info: found.status.bits,
        message_bytes: found.status.message_bytes as u32,
        transferred_bytes: found.status.bytes as u32,
        context: std::ptr::with_exposed_provenance_mut(found.context),
    };
    // SAFETY: the caller's promise.
    unsafe { put(status, filled, "status") }?;
    Ok(true)
}

/// `mx_isend` and `mx_issend`.
///
/// # Safety
/// As for `mx_isend`: the memory of the segments stays valid until the send is complete.
#[allow(clippy::too_many_arguments, reason = "those of the call")]
unsafe fn send(
    call: &str,
    mode: SendMode,
    endpoint: EndpointHandle,
    list: *const Segment,
    count: u32,
    to: EndpointAddress,
    bits: u64,
    context: *mut c_void,
    request: *mut RequestHandle,
) -> c_int {
    on_node(call, |node| {
        if request.is_null() {
            return Err(Error::BadArgument("request is NULL".into()));
        }
        let context = context.expose_provenance();
        // SAFETY: the program's promise.
        unsafe {
            let list = segments(list, count)?;
            let handle = node.send(mode, from_pointer(endpoint), list, to, bits, context)?;
            put(request, to_pointer(handle), "request")
        }
    })
}

/// `mx_isend`: starts a send of at most 4 GiB in at most 256 segments. It is done when their memory
/// may be used again. Blocks only while the card cannot take another send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_isend(
    endpoint: EndpointHandle,
    list: *const Segment,
    count: u32,
    to: EndpointAddress,
    bits: u64,
    context: *mut c_void,
    request: *mut RequestHandle,
) -> c_int {
    let mode = SendMode::Standard;
    // SAFETY: the program's promise.
    unsafe {
        send(
            "mx_isend", mode, endpoint, list, count, to, bits, context, request,
        )
    }
}

/// `mx_issend`: as `mx_isend`, but it is done only when the receiver has matched the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_issend(
    endpoint: EndpointHandle,
    list: *const Segment,
    count: u32,
    to: EndpointAddress,
    bits: u64,
    context: *mut c_void,
    request: *mut RequestHandle,
) -> c_int {
    let mode = SendMode::Synchronous;
    // SAFETY: the program's promise.
    unsafe {
        send(
            "mx_issend",
            mode,
            endpoint,
            list,
            count,
            to,
            bits,
            context,
            request,
        )
    }
}

/// `mx_irecv`: posts a receive for messages whose match bits agree with `bits` where `mask` has
/// ones. Does not block. Error: MX_BAD_MATCH_MASK if `bits` has ones where `mask` has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_irecv(
    endpoint: EndpointHandle,
    list: *const Segment,
    count: u32,
    bits: u64,
    mask: u64,
    context: *mut c_void,
    request: *mut RequestHandle,
) -> c_int {
    on_node("mx_irecv", |node| {
        if request.is_null() {
            return Err(Error::BadArgument("request is NULL".into()));
        }
        let (wanted, context) = (wanted(bits, mask)?, context.expose_provenance());
        // SAFETY: the program's promise.
        unsafe {
            let list = segments(list, count)?;
            let handle = node.receive(from_pointer(endpoint), list, wanted, context)?;
            put(request, to_pointer(handle), "request")
        }
    })
}

/// `mx_cancel`: cancels a receive that nothing has matched. `result`: 1 if it is cancelled, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_cancel(
    endpoint: EndpointHandle,
    request: *mut RequestHandle,
    result: *mut u32,
) -> c_int {
    on_node("mx_cancel", |node| {
        // SAFETY: the program's promise.
        unsafe {
            let handle = from_pointer(get(request, "request")?);
            let cancelled = node.cancel(from_pointer(endpoint), handle)?;
            put(result, u32::from(cancelled), "result")
        }
    })
}

/// `mx_forget`: gives a request up: it goes on, and its end is not reported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_forget(endpoint: EndpointHandle, request: *mut RequestHandle) -> c_int {
    on_node("mx_forget", |node| {
        // SAFETY: the program's promise.
        let handle = from_pointer(unsafe { get(request, "request") }?);
        node.forget_request(from_pointer(endpoint), handle)
    })
}

/// `mx_test` and `mx_wait`: waits for a request for `timeout` ms of virtual time.
///
/// # Safety
/// `request` is null or readable, `status` and `result` are null or writable.
unsafe fn wait(
    call: &str,
    endpoint: EndpointHandle,
    request: *mut RequestHandle,
    timeout: u32,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on_node(call, |node| {
        // SAFETY: the program's promise.
        unsafe {
            let handle = from_pointer(get(request, "request")?);
            let found = node.wait(from_pointer(endpoint), handle, timeout)?;
            put_found(found, status, result).map(drop)
        }
    })
}

/// `mx_test`: ends a request if it is done. `result`: 1 if it is, else 0. Does not block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_test(
    endpoint: EndpointHandle,
    request: *mut RequestHandle,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    // SAFETY: the program's promise.
    unsafe { wait("mx_test", endpoint, request, 0, status, result) }
}

/// `mx_wait`: ends a request. Blocks until it is done, or for `timeout` ms of virtual time.
/// `result`: 1 if it is done, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_wait(
    endpoint: EndpointHandle,
    request: *mut RequestHandle,
    timeout: u32,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    // SAFETY: the program's promise.
    unsafe { wait("mx_wait", endpoint, request, timeout, status, result) }
}

/// What a call waits for on an endpoint: [`Node::wait_any`] or [`Node::probe`].
type WaitFor = fn(&mut Node, u64, Match, u32) -> Result<Option<Found>, Error>;

/// Waits for something that matches, for `timeout` ms of virtual time. `call` is the name for
/// errors.
///
/// # Safety
/// `status` and `result` are null or writable.
unsafe fn wait_matching(
    call: &str,
    wait_for: WaitFor,
    endpoint: EndpointHandle,
    timeout: u32,
    (bits, mask): (u64, u64),
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    on_node(call, |node| {
        let found = wait_for(node, from_pointer(endpoint), wanted(bits, mask)?, timeout)?;
        // SAFETY: the program's promise.
        unsafe { put_found(found, status, result) }.map(drop)
    })
}

/// `mx_test_any`: as `mx_test`, for any request of the endpoint whose match bits agree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_test_any(
    endpoint: EndpointHandle,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    let wanted = (bits, mask);
    // SAFETY: the program's promise.
    unsafe {
        wait_matching(
            "mx_test_any",
            Node::wait_any,
            endpoint,
            0,
            wanted,
            status,
            result,
        )
    }
}

/// `mx_wait_any`: as `mx_wait`, for any request of the endpoint whose match bits agree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_wait_any(
    endpoint: EndpointHandle,
    timeout: u32,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    let wanted = (bits, mask);
    // SAFETY: the program's promise.
    unsafe {
        wait_matching(
            "mx_wait_any",
            Node::wait_any,
            endpoint,
            timeout,
            wanted,
            status,
            result,
        )
    }
}

/// `mx_iprobe`: finds a message that matches and that no receive has taken. `result`: 1 if there is
/// one, else 0. Does not block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_iprobe(
    endpoint: EndpointHandle,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    let wanted = (bits, mask);
    // SAFETY: the program's promise.
    unsafe {
        wait_matching(
            "mx_iprobe",
            Node::probe,
            endpoint,
            0,
            wanted,
            status,
            result,
        )
    }
}

/// `mx_probe`: as `mx_iprobe`, but blocks until there is one, or for `timeout` ms of virtual time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_probe(
    endpoint: EndpointHandle,
    timeout: u32,
    bits: u64,
    mask: u64,
    status: *mut Status,
    result: *mut u32,
) -> c_int {
    let wanted = (bits, mask);
    // SAFETY: the program's promise.
    unsafe {
        wait_matching(
            "mx_probe",
            Node::probe,
            endpoint,
            timeout,
            wanted,
            status,
            result,
        )
    }
}

/// `mx_context`: the pointer that the program gave to a send or receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_context(
    request: *mut RequestHandle,
    context: *mut *mut c_void,
) -> c_int {
    on_node("mx_context", |node| {
        // SAFETY: the program's promise.
        unsafe {
            let found = node.context(from_pointer(get(request, "request")?))?;
            let pointer = std::ptr::with_exposed_provenance_mut(found);
            put(context, pointer, "context")
        }
    })
}
