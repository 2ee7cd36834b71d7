//! TAP devices: network interfaces of the host whose frames a program carries.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ferry_fabric::ethernet::Address;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The device that makes TAP devices.
pub const TUN_DEVICE: &str = "/dev/net/tun";
/// The interface's name in its namespace.
pub const INTERFACE: &str = "eth0";

/// How an interface is set up.
pub struct Setup {
    /// Its Ethernet address.
    pub hardware: Address,
    /// Its IP address.
    pub ip: Ipv4Addr,
    /// The network's mask.
    pub mask: Ipv4Addr,
    /// Longest IP packet, bytes.
    pub mtu: u32,
}

/// Makes an interface in this thread's network namespace, and sets it up. It goes with its device
/// file.
///
/// # Errors
/// What was tried, and the system's answer.
pub fn create(setup: &Setup) -> Result<File, String> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(TUN_DEVICE, flags, Mode::empty()).map_err(|e| {
        format!(
            "{TUN_DEVICE} cannot be opened: {e}; the kernel's module `tun` makes it (modprobe \
             tun), and a container must be given it (--device {TUN_DEVICE})"
        )
    })?;
    let refused = |what: &str| {
        let what = what.to_owned();
        move |e: io::Error| format!("{what} of the TAP device was refused: {e}")
    };
    let kind = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    let mut request = Request::new(INTERFACE);
    request.0.ifr_ifru.ifru_flags = kind;
    request
        .call(file.as_fd(), libc::TUNSETIFF)
        .map_err(refused("making"))?;
    let sockets = socket().map_err(|e| format!("no socket: {e}"))?;
    let fd = sockets.as_fd();
    let set = |request: &mut Request, number| request.call(fd, number);
    let mut request = Request::new(INTERFACE);
    request.0.ifr_ifru.ifru_hwaddr = hardware(setup.hardware);
    set(&mut request, libc::SIOCSIFHWADDR).map_err(refused("the Ethernet address"))?;
    request.0.ifr_ifru.ifru_mtu = setup.mtu as libc::c_int;
    set(&mut request, libc::SIOCSIFMTU).map_err(refused("the MTU"))?;
    request.0.ifr_ifru.ifru_addr = ip(setup.ip);
    set(&mut request, libc::SIOCSIFADDR).map_err(refused("the IP address"))?;
    request.0.ifr_ifru.ifru_netmask = ip(setup.mask);
    set(&mut request, libc::SIOCSIFNETMASK).map_err(refused("the network mask"))?;
    bring_up(INTERFACE).map_err(refused("bringing up"))?;
    Ok(file.into())
}

/// Brings an interface of this thread's network namespace up.
///
/// # Errors
/// The system refuses it.
pub fn bring_up(name: &str) -> io::Result<()> {
    let sockets = socket()?;
    let mut request = Request::new(name);
    request.call(sockets.as_fd(), libc::SIOCGIFFLAGS)?;
    // SAFETY: the kernel has just written the flags.
    let flags = unsafe { request.0.ifr_ifru.ifru_flags };
    request.0.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
    request.call(sockets.as_fd(), libc::SIOCSIFFLAGS)
}

/// A socket on which interfaces are set up.
fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    Ok(socket)
}

/// A request about an interface (netdevice(7)).
struct Request(libc::ifreq);

impl Request {
    fn new(name: &str) -> Request {
        // SAFETY: all zeroes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let bytes = name.bytes().take(libc::IFNAMSIZ - 1);
        for (place, byte) in request.ifr_name.iter_mut().zip(bytes) {
            *place = byte as libc::c_char;
        }
        Request(request)
    }

    fn call(&mut self, fd: BorrowedFd<'_>, number: libc::Ioctl) -> io::Result<()> {
        // SAFETY: each of the calls used here takes an ifreq, and it lives.
        match unsafe { libc::ioctl(fd.as_raw_fd(), number, &raw mut self.0) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn hardware(address: Address) -> libc::sockaddr {
    let mut data = [0; 14];
    for (place, byte) in data.iter_mut().zip(address.0) {
        *place = byte as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::ARPHRD_ETHER,
        sa_data: data,
    }
}

fn ip(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    // After the port, which is zero.
    for (place, byte) in data[2..].iter_mut().zip(address.octets()) {
        *place = byte as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}
