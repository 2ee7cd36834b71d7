//! TCP sockets: made, connected, and with the options that suit messages.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, getsockname, listen,
    socket_with, sockopt,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

/// Most connections that the system keeps for a listener until this process accepts them. A choice;
/// the system lowers it to its own limit (/proc/sys/net/core/somaxconn).
const BACKLOG: i32 = 1024;

/// Connections with a shorter round trip are near. A choice: the round trips of one site are
/// shorter, those over long lines are longer.
const NEAR_MAX_RTT: Duration = Duration::from_millis(10);
/// The congestion control of near connections where the system's own is BBR. Every process may use
/// it. Measured (docs/measured/tcp.md): 1.6 GB/s by BBR, 8.4 by Reno.
const NEAR_CONTROL: &str = "reno";

/// Which congestion control connections use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// The system's own.
    System,
    /// [`NEAR_CONTROL`] for near connections. For others the system's own, which has this name.
    Near(String),
    /// The one of this name.
    Named(String),
}

/// This process's congestion control, once decided.
static CONGESTION: OnceLock<Congestion> = OnceLock::new();

/// Decides which congestion control this process's connections use. `setting`: the value of
/// FERRY_TCP_CONGESTION. The first decision holds.
///
/// Errors: the system has none of this name, or refuses it.
pub fn choose_congestion(setting: Option<&str>) -> std::io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let chosen = match setting {
        Some("system") => Congestion::System,
        Some(name) => {
            let trial = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            sockopt::set_tcp_congestion(&trial, name)?;
            Congestion::Named(name.into())
        }
        None => socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .and_then(sockopt::tcp_congestion)
            .ok()
            .filter(|own| own.starts_with("bbr"))
            .map_or(Congestion::System, Congestion::Near),
    };
    let _ = CONGESTION.set(chosen);
    Ok(())
}

/// Receive buffer of close connections, bytes. The system doubles it: 14 packets of 64 KiB. One
/// call sends 16 before it looks for acknowledgements (`process_backlog` in the kernel's
/// tcp_sendmsg_locked), and then finds those of a whole window at once. Measured
/// (docs/measured/tcp.md).
const WINDOW_BYTES: usize = 448 * 1024;
/// Connections with a shorter round trip are close. Within it, the doubled window is more than
/// networks carry: 5 GB/s.
const CLOSE_MAX_RTT: Duration = Duration::from_micros(200);

/// Whether close connections get [`WINDOW_BYTES`], once decided.
static WINDOW_IS_LIMITED: OnceLock<bool> = OnceLock::new();

/// Decides whether close connections get [`WINDOW_BYTES`]. The system would choose larger windows
/// by itself, which only mean more acknowledgements. The first decision holds.
pub fn choose_window() {
    // A smaller buffer than asked for would be worse than the system's own choice, and there is no
    // way back to that. So it is tried on another socket.
    let granted = || {
        let flags = SocketFlags::CLOEXEC;
        socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).is_ok_and(|trial| {
            sockopt::set_socket_recv_buffer_size(&trial, WINDOW_BYTES).is_ok()
                && sockopt::socket_recv_buffer_size(&trial).is_ok_and(|n| n >= 2 * WINDOW_BYTES)
        })
    };
    let _ = WINDOW_IS_LIMITED.set(granted());
}

/// Gives an open connection that is close the window [`WINDOW_BYTES`].
pub fn limit_window_if_close(socket: &OwnedFd) {
    if WINDOW_IS_LIMITED.get() == Some(&true)
        && info(socket).is_some_and(|i| Duration::from_micros(i.tcpi_rtt.into()) < CLOSE_MAX_RTT)
    {
        // If it is refused, the connection works all the same.
        let _ = sockopt::set_socket_recv_buffer_size(socket, WINDOW_BYTES);
    }
}

/// A new socket with this process's congestion control.
fn stream(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // BBR measures how much a connection carries, and sends no faster than that. Of messages that
    // come in bursts it measures too little. It must be replaced before the connection is made: it
    // paces a socket, and a paced socket stays so. A system that refuses keeps its own, which is
    // slower and no fault.
    let _ = match CONGESTION.get() {
        None | Some(Congestion::System) => Ok(()),
        Some(Congestion::Near(_)) => sockopt::set_tcp_congestion(&socket, NEAR_CONTROL),
        Some(Congestion::Named(name)) => sockopt::set_tcp_congestion(&socket, name),
    };
    Ok(socket)
}

/// Gives an open connection that is not near the system's own congestion control back.
pub fn restore_congestion_if_far(socket: &OwnedFd) {
    if let Some(Congestion::Near(own)) = CONGESTION.get()
        && info(socket).is_some_and(|i| Duration::from_micros(i.tcpi_rtt.into()) >= NEAR_MAX_RTT)
    {
        // If it is refused, the connection works all the same.
        let _ = sockopt::set_tcp_congestion(socket, own);
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    }
}

/// Listens at `ip`, at a port of the system's choice. Returns the socket and the port.
pub fn listener(ip: IpAddr) -> rustix::io::Result<(OwnedFd, u16)> {
    let socket = stream(family(ip))?;
    if ip.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &SocketAddr::new(ip, 0))?;
    listen(&socket, BACKLOG)?;
    let at = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, at.port()))
}

/// The next connection that has come, if there is one.
pub fn accept(listener: &OwnedFd, timeout: Duration) -> rustix::io::Result<Option<OwnedFd>> {
    loop {
        return match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => {
                prepare(&socket, timeout)?;
                Ok(Some(socket))
            }
            Err(Errno::AGAIN) => Ok(None),
            // Connections that have ended before they were accepted need no report.
            Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => continue,
            Err(e) => Err(e),
        };
    }
}

/// The address at the other end, as long as there is one.
pub fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    let peer = rustix::net::getpeername(socket).ok().flatten()?;
    SocketAddr::try_from(peer).ok()
}

/// Begins to connect. The socket can be written to when that has succeeded or failed.
pub fn start_connect(to: SocketAddr, timeout: Duration) -> rustix::io::Result<OwnedFd> {
    let socket = stream(family(to.ip()))?;
    prepare(&socket, timeout)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(e) => Err(e),
    }
}

/// How a connect has ended. `None`: it has not yet.
pub fn connected(socket: &OwnedFd) -> Option<Result<(), Errno>> {
    if let Ok(Err(e)) | Err(e) = sockopt::socket_error(socket) {
        return Some(Err(e));
    }
    match rustix::net::getpeername(socket) {
        Ok(Some(_)) => Some(Ok(())),
        Ok(None) | Err(Errno::NOTCONN) => None,
        Err(e) => Some(Err(e)),
    }
}

/// Turns off the delay of small segments. Turns on keep-alive probes, by which a silent host is
/// noticed while nothing is under way to it.
fn prepare(socket: &OwnedFd, timeout: Duration) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    // The first probe after a third of the time-out, three of them within the next half of it.
    let second = Duration::from_secs(1);
    sockopt::set_tcp_keepidle(socket, (timeout / 3).max(second))?;
    sockopt::set_tcp_keepintvl(socket, (timeout / 6).max(second))?;
    sockopt::set_tcp_keepcnt(socket, 3)
}

/// An option of a socket (getsockopt(2)), written over `value`: what the system does not write
/// stays as it is. `None`: the system refuses.
///
/// # Safety
/// `T` holds numbers only, so that any bytes are valid for it.
#[inline]
unsafe fn option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> Option<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the system writes at most `len` bytes into `value`.
    let got = unsafe {
        let (value, len) = (&raw mut value, &raw mut len);
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, value.cast(), len)
    };
    (got == 0).then_some(value)
}

/// The system's figures of a connection (TCP_INFO, tcp(7)).
fn info(socket: &OwnedFd) -> Option<libc::tcp_info> {
    // SAFETY: all fields are numbers.
    unsafe {
        let nothing = std::mem::zeroed();
        option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, nothing)
    }
}

/// Whether the peer's system owes an answer, and how long ago it was last heard.
pub fn unanswered(socket: &OwnedFd) -> Option<(bool, Duration)> {
    let info = info(socket)?;
    let owes = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
    let heard = info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv);
    Some((owes, Duration::from_millis(heard.into())))
}

/// Bytes handed to the system that the peer's system has not acknowledged.
pub fn unacknowledged(socket: &OwnedFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ (SIOCOUTQ, tcp(7)) writes one int.
    let got = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if got == 0 { bytes.max(0) as usize } else { 0 }
}

/// Returns whether there is certainly nothing to read: what has come and not been read takes no
/// memory (SO_MEMINFO, SK_MEMINFO_RMEM_ALLOC; Linux 4.12). False where the system has no such
/// option.
///
/// Unlike all other ways to ask, this one does not take the socket's lock. What arrives while the
/// lock is held must be processed by its holder.
#[inline]
pub fn is_empty(socket: &OwnedFd) -> bool {
    // SAFETY: a number; the first of the system's.
    let bytes = unsafe { option::<libc::c_uint>(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, 1) };
    bytes == Some(0)
}

/// Sets the low-water mark: the socket is reported as readable only when this many bytes have come
/// (SO_RCVLOWAT, socket(7)). A process that computes is then interrupted less often. The system
/// widens the receive window as far as needed. It reports the socket earlier if its memory or the
/// window is exhausted.
pub fn set_receive_low_water(socket: &OwnedFd, bytes: usize) {
    if bytes > WINDOW_BYTES / 2 {
        // A buffer whose size was set holds half of it back, and is not widened. So its size is
        // left to the system again (SO_BUF_LOCK; before Linux 5.16 fewer bytes collect).
        set(socket, libc::SO_BUF_LOCK, 0);
    }
    let least = libc::c_int::try_from(bytes.max(1)).unwrap_or(libc::c_int::MAX);
    // If it is refused, the process is woken more often.
    set(socket, libc::SO_RCVLOWAT, least);
}

/// Sets an option of a socket that takes one int.
fn set(socket: &OwnedFd, option: libc::c_int, value: libc::c_int) {
    // SAFETY: the system reads one int, which lives on.
    unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SO_RCVLOWAT.
    fn least(socket: &OwnedFd) -> libc::c_int {
        // SAFETY: a number.
        unsafe { option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 0) }.unwrap()
    }

    #[test]
    fn connects_accepts_and_counts() {
        choose_congestion(None).unwrap();
        assert!(choose_congestion(Some("none-such")).is_err());
        let limit = Duration::from_secs(5);
        let ip: IpAddr = "127.0.0.1".parse().unwrap();
        let (listening, port) = listener(ip).unwrap();
        assert!(accept(&listening, limit).unwrap().is_none());
        let client = start_connect(SocketAddr::new(ip, port), limit).unwrap();
        // On the loopback the connection stands when connect returns.
        assert_eq!(connected(&client), Some(Ok(())));
        let server = accept(&listening, limit).unwrap().unwrap();
        assert_eq!(unacknowledged(&server), 0);
        assert!(is_empty(&server));
        rustix::net::send(&client, &[1], rustix::net::SendFlags::empty()).unwrap();
        assert!(!is_empty(&server));
        let flags = rustix::net::RecvFlags::empty();
        rustix::net::recv(&server, &mut [0; 2], flags).unwrap();
        assert!(is_empty(&server));
        assert!(!unanswered(&server).unwrap().0);
        choose_window();
        limit_window_if_close(&server);
        let buffer = sockopt::socket_recv_buffer_size(&server).unwrap();
        if WINDOW_IS_LIMITED.get() == Some(&true) {
            assert_eq!(buffer, 2 * WINDOW_BYTES);
        }
        for most in [1 << 20, 1] {
            set_receive_low_water(&server, most);
            assert_eq!(least(&server), most as libc::c_int);
        }
        for end in [&client, &server] {
            let before = sockopt::tcp_congestion(end).unwrap();
            assert!(!before.starts_with("bbr"), "another one was chosen");
            // The loopback is near: nothing changes.
            restore_congestion_if_far(end);
            assert_eq!(sockopt::tcp_congestion(end).unwrap(), before);
        }
        drop(listening);
        let refused = start_connect(SocketAddr::new(ip, port), limit);
        let refused = match refused {
            Ok(socket) => connected(&socket).unwrap().unwrap_err(),
            Err(e) => e,
        };
        assert_eq!(refused, Errno::CONNREFUSED);
    }
}
