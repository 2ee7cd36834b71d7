//! Calls about endpoints and nodes.
#![allow(clippy::missing_safety_doc, reason = "the same for all: see `calls`")]

use super::{on_node, put};
use crate::abi::{self, ENDPOINTS, EndpointAddress, EndpointHandle, HOST_NAME_BYTES};
use crate::error::Error;
use crate::node::{Node, from_pointer, to_pointer};
use ferry_fabric::rapidio::driver::mx::Address;
use std::ffi::{CStr, c_char, c_int, c_void};

/// `mx_open_endpoint`: opens endpoint `number` (0 to 254, or MX_ANY_ENDPOINT) of the only board.
/// Only who gives the same `filter` to `mx_connect` reaches it. Errors: MX_BUSY if it is open,
/// MX_NO_RESOURCES if all are, MX_BOARD_UNKNOWN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_open_endpoint(
    board: u32,
    number: u32,
    filter: u32,
    _params: *const c_void,
    params_count: u32,
    endpoint: *mut EndpointHandle,
) -> c_int {
    on_node("mx_open_endpoint", |node| {
        if board != 0 && board != abi::ANY {
            return Err(Error::BoardUnknown(board));
        }
        if params_count > 0 {
            let text = "params_count is not 0: there are no parameters";
            return Err(Error::BadArgument(text.into()));
        }
        if endpoint.is_null() {
            return Err(Error::BadArgument("endpoint is NULL".into()));
        }
        let handle = node.open(number, filter)?;
        // SAFETY: the program's promise.
        unsafe { put(endpoint, to_pointer(handle), "endpoint") }
    })
}

/// `mx_close_endpoint`: closes an endpoint. Blocks until large messages under way have ended.
/// Afterwards its handle and those of its requests are not valid.
#[unsafe(no_mangle)]
pub extern "C" fn mx_close_endpoint(endpoint: EndpointHandle) -> c_int {
    on_node("mx_close_endpoint", |node| {
        node.close(from_pointer(endpoint))
    })
}

/// `mx_get_endpoint_addr`: the address by which other nodes send to this endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_get_endpoint_addr(
    endpoint: EndpointHandle,
    address: *mut EndpointAddress,
) -> c_int {
    on_node("mx_get_endpoint_addr", |node| {
        let own = node.address(from_pointer(endpoint))?;
        // SAFETY: the program's promise.
        unsafe { put(address, own, "address") }
    })
}

/// `mx_decompose_endpoint_addr`: the board and the endpoint's number that an address stands for.
/// Error: MX_BAD_ADDR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_decompose_endpoint_addr(
    address: EndpointAddress,
    nic_id: *mut u64,
    endpoint: *mut u32,
) -> c_int {
    on_node("mx_decompose_endpoint_addr", |node| {
        let address = address.get(node.size()).ok_or(Error::BadAddress)?;
        // SAFETY: the program's promise.
        unsafe {
            put(nic_id, abi::nic_id(address.rank), "nic_id")?;
            put(endpoint, address.endpoint.into(), "endpoint_id")
        }
    })
}

/// `mx_connect`: finds the address of an endpoint on another node. Blocks until that node has
/// opened it, or for `timeout` ms of virtual time. Errors: MX_BAD_CONNECTION_KEY if the filters
/// differ, MX_TIMEOUT, MX_NIC_NOT_FOUND.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_connect(
    endpoint: EndpointHandle,
    nic_id: u64,
    number: u32,
    filter: u32,
    timeout: u32,
    address: *mut EndpointAddress,
) -> c_int {
    on_node("mx_connect", |node| {
        node.endpoint(from_pointer(endpoint))?;
        let rank = abi::rank_of_nic(nic_id, node.size()).ok_or_else(|| no_nic(node, nic_id))?;
        let known = u8::try_from(number).ok().filter(|n| *n < ENDPOINTS);
        let Some(known) = known else {
            let last = ENDPOINTS - 1;
            let text = format!("endpoint {number}: there are 0 to {last}");
            return Err(Error::BadArgument(text));
        };
        let to = Address {
            rank,
            endpoint: known,
        };
        let asked = node.ask(to, filter)?;
        match node.wait_until(timeout, |node| node.answered(&asked))? {
            Some(true) => {}
            Some(false) => return Err(Error::BadConnectionKey(number, rank)),
            None => {
                node.forget(asked);
                return Err(Error::Timeout(number, rank, timeout));
            }
        }
        // SAFETY: the program's promise.
        unsafe { put(address, EndpointAddress::new(to), "address") }
    })
}

fn no_nic(node: &Node, nic_id: u64) -> Error {
    Error::NicNotFound(format!(
        "no node has the board {nic_id:#x}; the job has {}, mx_hostname_to_nic_id(\"node0\") finds \
         the first",
        node.size()
    ))
}

/// `mx_board_number_to_nic_id`: the id of a board of this node. Only board 0 exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_board_number_to_nic_id(board: u32, nic_id: *mut u64) -> c_int {
    on_node("mx_board_number_to_nic_id", |node| {
        if board != 0 {
            return Err(Error::BoardUnknown(board));
        }
        // SAFETY: the program's promise.
        unsafe { put(nic_id, abi::nic_id(node.me()), "nic_id") }
    })
}

/// `mx_nic_id_to_board_number`: the number of a board of this node by its id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_nic_id_to_board_number(nic_id: u64, board: *mut u32) -> c_int {
    on_node("mx_nic_id_to_board_number", |node| {
        if nic_id != abi::nic_id(node.me()) {
            let text = format!("board {nic_id:#x} is not in this node");
            return Err(Error::NicNotFound(text));
        }
        // SAFETY: the program's promise.
        unsafe { put(board, 0, "board_number") }
    })
}

/// `mx_hostname_to_nic_id`: the id of the board of a node by its name, `node0`, `node1` and so on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_hostname_to_nic_id(hostname: *const c_char, nic_id: *mut u64) -> c_int {
    on_node("mx_hostname_to_nic_id", |node| {
        if hostname.is_null() {
            return Err(Error::BadArgument("hostname is NULL".into()));
        }
        // SAFETY: the program's promise.
        let name = unsafe { CStr::from_ptr(hostname) }.to_string_lossy();
        let rank = name.strip_prefix("node").and_then(|n| n.parse().ok());
        let Some(rank) = rank.filter(|rank| *rank < node.size()) else {
            let last = node.size() - 1;
            return Err(Error::NicNotFound(format!(
                "no node is called {name}; they are node0 to node{last}"
            )));
        };
        // SAFETY: the program's promise.
        unsafe { put(nic_id, abi::nic_id(rank), "nic_id") }
    })
}

/// `mx_nic_id_to_hostname`: the name of the node that has a board. `hostname` has room for
/// MX_MAX_HOSTNAME_LEN characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_nic_id_to_hostname(nic_id: u64, hostname: *mut c_char) -> c_int {
    on_node("mx_nic_id_to_hostname", |node| {
        let rank = abi::rank_of_nic(nic_id, node.size()).ok_or_else(|| no_nic(node, nic_id))?;
        if hostname.is_null() {
            return Err(Error::BadArgument("hostname is NULL".into()));
        }
        let name = format!("node{rank}\0");
        debug_assert!(name.len() <= HOST_NAME_BYTES);
        // SAFETY: there is room for MX_MAX_HOSTNAME_LEN characters, by the program's promise.
        unsafe { hostname.copy_from(name.as_ptr().cast(), name.len()) };
        Ok(())
    })
}

/// `mx_get_info`: the value of a key: number of boards, their ids ending with 0, or number of
/// endpoints. Errors: MX_BAD_INFO_KEY; MX_BAD_INFO_VAL if it is longer than `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mx_get_info(
    _endpoint: EndpointHandle,
    key: c_int,
    _in_value: *const c_void,
    _in_bytes: u32,
    out: *mut c_void,
    room: u32,
) -> c_int {
    on_node("mx_get_info", |node| {
        let bytes = match key {
            1 => 1u32.to_ne_bytes().to_vec(),
            2 => [abi::nic_id(node.me()), 0].map(u64::to_ne_bytes).concat(),
            3 => u32::from(ENDPOINTS).to_ne_bytes().to_vec(),
            key => return Err(Error::BadInfoKey(key)),
        };
        if out.is_null() || (room as usize) < bytes.len() {
            return Err(Error::BadInfoValue(bytes.len(), room as usize));
        }
        // SAFETY: there is room, by the program's promise.
        unsafe { out.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
        Ok(())
    })
}
