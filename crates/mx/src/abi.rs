//! Types and numbers of `ferry_mx.h`.

use ferry_fabric::Rank;
use ferry_fabric::ethernet::Address as HardwareAddress;
use ferry_fabric::rapidio::driver::mx::Address;
use std::ffi::{c_char, c_int, c_void};

/// `mx_return_t` of a call that did what it should.
pub const SUCCESS: c_int = 0;
/// `MX_ANY_NIC` and `MX_ANY_ENDPOINT`.
pub const ANY: u32 = u32::MAX;
/// `MX_INFINITE`.
pub const INFINITE: u32 = u32::MAX;
/// Endpoints that a program can open. The number above is the library's own.
pub const ENDPOINTS: u8 = 255;
/// Bytes of a host's name, the final zero included.
pub const HOST_NAME_BYTES: usize = 80;

/// `mx_endpoint_t`: a number that is no address.
pub type EndpointHandle = *mut c_void;
/// `mx_request_t`: likewise.
pub type RequestHandle = *mut c_void;
/// `mx_error_handler_t`.
pub type ErrorHandler = unsafe extern "C" fn(*mut c_char, c_int) -> c_int;

/// `mx_endpoint_addr_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct EndpointAddress {
    stuff: [u64; 2],
}

/// Marks the second word of an [`EndpointAddress`].
const ADDRESS_MARK: u64 = u64::from_be_bytes(*b"\0\0mxaddr");

/// `mx_segment_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Segment {
    /// `segment_ptr`
    pub address: *mut c_void,
    /// `segment_length`
    pub bytes: u32,
}

/// `mx_status_t`.
#[repr(C)]
pub struct Status {
    /// `code`
    pub code: StatusCode,
    /// `source`
    pub source: EndpointAddress,
    /// `match_info`
    pub match_info: u64,
    /// `msg_length`
    pub message_bytes: u32,
    /// `xfer_length`
    pub transferred_bytes: u32,
    /// `context`
    pub context: *mut c_void,
}

/// `mx_status_code_t`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StatusCode {
    /// All bytes were transferred.
    Success = 0,
    /// The message is there, and no receive has taken it.
    Pending = 1,
    /// The message is longer than the receive's memory.
    Truncated = 2,
}

impl EndpointAddress {
    /// The address in the program's form.
    pub fn new(address: Address) -> EndpointAddress {
        let second = ADDRESS_MARK | u64::from(address.endpoint) << 56;
        EndpointAddress {
            stuff: [nic_id(address.rank), second],
        }
    }

    /// The endpoint's address. `None`: no such endpoint is in a job of `size` nodes.
    pub fn get(self, size: u32) -> Option<Address> {
        let [nic, second] = self.stuff;
        let endpoint = (second >> 56) as u8;
        let marked = second & (u64::MAX >> 8) == ADDRESS_MARK && endpoint < ENDPOINTS;
        let rank = rank_of_nic(nic, size).filter(|_| marked)?;
        Some(Address { rank, endpoint })
    }
}

/// The id of a node's board: its Ethernet address.
pub fn nic_id(rank: Rank) -> u64 {
    let bytes = HardwareAddress::of_port(rank).0;
    bytes.iter().fold(0, |id, byte| id << 8 | u64::from(*byte))
}

/// The node of a board. `None`: there is none in a job of `size` nodes.
pub fn rank_of_nic(nic: u64, size: u32) -> Option<Rank> {
    let rank = (nic & 0xffff) as Rank;
    (rank < size && nic_id(rank) == nic).then_some(rank)
}
