//! Sockets of AF_TIPC, whose addresses and options the crate for system calls does not know.

use super::address::{Id, Name};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, listen, socket_with};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

/// AF_TIPC (linux/socket.h).
const FAMILY: u16 = 30;
/// Most connections that the system keeps for a listener until this process accepts them. A choice.
const BACKLOG: i32 = 1024;
/// Service type and instance of the topology server (TIPC_TOP_SRV, linux/tipc.h).
const TOPOLOGY: u32 = 1;
/// An address that is a service's name (TIPC_SERVICE_ADDR, linux/tipc.h).
const SERVICE_ADDRESS: u8 = 2;
/// An address that is one socket's (TIPC_SOCKET_ADDR, linux/tipc.h).
const SOCKET_ADDRESS: u8 = 3;
/// A name that is published in the whole cluster (TIPC_CLUSTER_SCOPE, linux/tipc.h).
const CLUSTER_SCOPE: i8 = 2;
/// The level of TIPC's socket options (linux/socket.h).
const SOL_TIPC: i32 = 271;
/// The option that turns off the delay of small messages (TIPC_NODELAY, linux/tipc.h).
const NODELAY: i32 = 138;

/// `struct sockaddr_tipc` (linux/tipc.h).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Raw {
    family: u16,
    kind: u8,
    scope: i8,
    /// {type, instance, domain} of a service, {port, node} of a socket.
    words: [u32; 3],
}

/// Bytes of an address.
const ADDRESS_BYTES: libc::socklen_t = size_of::<Raw>() as libc::socklen_t;

impl Raw {
    fn service(name: Name) -> Raw {
        Raw {
            family: FAMILY,
            kind: SERVICE_ADDRESS,
            scope: CLUSTER_SCOPE,
            words: [name.kind, name.instance, 0],
        }
    }
    fn socket(id: Id) -> Raw {
        Raw {
            family: FAMILY,
            kind: SOCKET_ADDRESS,
            scope: 0,
            words: [id.port, id.node, 0],
        }
    }
    /// As the kernel's calls take it.
    fn pointer(&self) -> *const libc::sockaddr {
        std::ptr::from_ref(self).cast()
    }
}

/// The result of a system call that returns -1 for an error.
fn done(result: i32) -> rustix::io::Result<()> {
    if result < 0 {
        return Err(last_error());
    }
    Ok(())
}

fn last_error() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}

fn new(kind: SocketType, flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::from_raw(FAMILY), kind, flags, None)
}

fn stream() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = new(SocketType::STREAM, flags)?;
    prepare(&socket);
    Ok(socket)
}

/// Turns off the delay of small messages.
fn prepare(socket: &OwnedFd) {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is one int, which lives through the call. Kernels before 5.5
    // refuse the option and do not delay, so the result is ignored.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_TIPC,
            NODELAY,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Listens, then publishes `name` in the cluster: who sees the name finds a listener.
pub fn listener(name: Name) -> rustix::io::Result<(OwnedFd, Id)> {
    let socket = stream()?;
    listen(&socket, BACKLOG)?;
    let raw = Raw::service(name);
    // SAFETY: the address lives through the call and has this length.
    done(unsafe { libc::bind(socket.as_raw_fd(), raw.pointer(), ADDRESS_BYTES) })?;
    let id = own(&socket)?;
    Ok((socket, id))
}

/// A system call that returns an address.
type AddressCall = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

/// The address that `call` returns for a socket.
fn address_of(socket: &OwnedFd, call: AddressCall) -> rustix::io::Result<Id> {
    let (mut raw, mut len) = (Raw::default(), ADDRESS_BYTES);
    // SAFETY: the system writes at most `len` bytes, which `raw` has.
    done(unsafe { call(socket.as_raw_fd(), (&raw mut raw).cast(), &raw mut len) })?;
    if raw.family != FAMILY || raw.kind != SOCKET_ADDRESS {
        return Err(Errno::AFNOSUPPORT);
    }
    let [port, node, _] = raw.words;
    Ok(Id { port, node })
}

/// A socket's own address.
pub fn own(socket: &OwnedFd) -> rustix::io::Result<Id> {
    address_of(socket, libc::getsockname)
}

/// The address at the other end.
pub fn peer(socket: &OwnedFd) -> rustix::io::Result<Id> {
    address_of(socket, libc::getpeername)
}

/// The next connection that has come, if there is one.
pub fn accept(listener: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    loop {
        return match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => {
                prepare(&socket);
                Ok(Some(socket))
            }
            Err(Errno::AGAIN) => Ok(None),
            // Peers that have gone before they were accepted need no report.
            Err(Errno::INTR | Errno::CONNABORTED | Errno::CONNRESET | Errno::PROTO) => continue,
            Err(e) => Err(e),
        };
    }
}

/// Begins a connection with its first message. The answer to that completes it.
pub fn start_connect(to: Id, first: &[u8]) -> rustix::io::Result<OwnedFd> {
    let socket = stream()?;
    let raw = Raw::socket(to);
    // SAFETY: message and address live through the call and have these lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            first.as_ptr().cast(),
            first.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            raw.pointer(),
            ADDRESS_BYTES,
        )
    };
    match usize::try_from(sent) {
        Ok(n) if n == first.len() => Ok(socket),
        Ok(_) => Err(Errno::AGAIN),
        Err(_) => Err(last_error()),
    }
}

/// A connection to this node's topology server. Blocks until the kernel has answered.
pub fn topology() -> rustix::io::Result<OwnedFd> {
    let socket = new(SocketType::SEQPACKET, SocketFlags::CLOEXEC)?;
    let raw = Raw {
        scope: 0,
        ..Raw::service(Name {
            kind: TOPOLOGY,
            instance: TOPOLOGY,
        })
    };
    // SAFETY: the address lives through the call and has this length.
    done(unsafe { libc::connect(socket.as_raw_fd(), raw.pointer(), ADDRESS_BYTES) })?;
    Ok(socket)
}
