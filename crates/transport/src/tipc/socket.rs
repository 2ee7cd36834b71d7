//! Sockets of AF_TIPC: what the crates for system calls do not know of them.

use super::address::{Id, Name};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, listen, socket_with};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

/// AF_TIPC (linux/socket.h).
const FAMILY: u16 = 30;
/// Connections that the system keeps before this process looks.
const BACKLOG: i32 = 1024;
/// Service types of the topology server {1, 1} (linux/tipc.h).
const TOPOLOGY: u32 = 1;
const SERVICE_ADDRESS: u8 = 2;
const SOCKET_ADDRESS: u8 = 3;
const CLUSTER_SCOPE: i8 = 2;
const SOL_TIPC: i32 = 271;
const NODELAY: i32 = 138;

/// `struct sockaddr_tipc`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Raw {
    family: u16,
    kind: u8,
    scope: i8,
    /// {type, instance, domain} of a service, {port, node} of a socket.
    words: [u32; 3],
}

const LEN: libc::socklen_t = size_of::<Raw>() as libc::socklen_t;

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

/// No delay for small messages.
fn prepare(socket: &OwnedFd) {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is one int, which lives through the call. Kernels before 5.5 do
    // not know the option and do not delay: that it is refused there is no fault.
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

/// Listens, then publishes `name` in the cluster: whoever sees it finds a listener.
pub fn listener(name: Name) -> rustix::io::Result<(OwnedFd, Id)> {
    let socket = stream()?;
    listen(&socket, BACKLOG)?;
    let raw = Raw::service(name);
    // SAFETY: the address lives through the call and has this length.
    done(unsafe { libc::bind(socket.as_raw_fd(), raw.pointer(), LEN) })?;
    let id = own(&socket)?;
    Ok((socket, id))
}

/// A system call that tells an address.
type Tell = unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32;

fn told(socket: &OwnedFd, by: Tell) -> rustix::io::Result<Id> {
    let (mut raw, mut len) = (Raw::default(), LEN);
    // SAFETY: the system writes at most `len` bytes, which `raw` has.
    done(unsafe { by(socket.as_raw_fd(), (&raw mut raw).cast(), &raw mut len) })?;
    if raw.family != FAMILY || raw.kind != SOCKET_ADDRESS {
        return Err(Errno::AFNOSUPPORT);
    }
    let [port, node, _] = raw.words;
    Ok(Id { port, node })
}

/// A socket's own address.
pub fn own(socket: &OwnedFd) -> rustix::io::Result<Id> {
    told(socket, libc::getsockname)
}

/// Who is at the other end.
pub fn peer(socket: &OwnedFd) -> rustix::io::Result<Id> {
    told(socket, libc::getpeername)
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
            // Of callers that have gone before they were accepted nothing needs to be said.
            Err(Errno::INTR | Errno::CONNABORTED | Errno::CONNRESET | Errno::PROTO) => continue,
            Err(e) => Err(e),
        };
    }
}

/// Begins a connection with its first message: the answer to that completes it.
pub fn caller(to: Id, first: &[u8]) -> rustix::io::Result<OwnedFd> {
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
            LEN,
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
    done(unsafe { libc::connect(socket.as_raw_fd(), raw.pointer(), LEN) })?;
    Ok(socket)
}
