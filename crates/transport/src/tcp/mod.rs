//! TCP as a medium for connections: addresses to listen at, connecting, and the options of its
//! sockets.
//! How connections are established and carry messages is in [`crate::connected`].

mod business_card;
pub(crate) mod socket;

use crate::connected::{ConnTransport, ConnectStart, Medium, PeerAddress, SocketOps};
use crate::{ProcId, TransportError, ZeroCopy};
pub use business_card::{BusinessCard, Listening};
use ferry_job::{Address, Directory, RankInfo, interfaces, settings};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;

/// The transport's name in FERRY_TRANSPORTS and in reports.
pub const NAME: &str = "tcp";

/// FERRY_TCP_ZCOPY: whether large messages go by zero copy. Unset: where that is faster.
static ZERO_COPY: OnceLock<ZeroCopy> = OnceLock::new();

/// How long a host may be silent, and a process be tried in vain, without FERRY_TCP_TIMEOUT. A
/// choice: longer than a switch takes to come back, shorter than a user waits.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The user's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// FERRY_TCP_IF: the interfaces to listen at.
    pub interfaces: Option<String>,
    /// FERRY_TCP_TIMEOUT: how long a host may be silent.
    pub timeout: Duration,
}

impl Settings {
    /// Reads them from the environment.
    ///
    /// Errors: a value that makes no sense.
    pub fn from_environment() -> Result<Settings, TransportError> {
        let set = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let zero_copy = if settings::TCP_ZCOPY.is("1") {
            ZeroCopy::Always
        } else if settings::TCP_ZCOPY.is("0") {
            ZeroCopy::Never
        } else {
            ZeroCopy::IfFaster
        };
        let _ = ZERO_COPY.set(zero_copy);
        let congestion = set("FERRY_TCP_CONGESTION");
        if let Err(cause) = socket::choose_congestion(congestion.as_deref().map(str::trim)) {
            return Err(TransportError::Setting {
                name: "FERRY_TCP_CONGESTION",
                value: format!("{} ({cause})", congestion.unwrap_or_default()),
                expected: "system, or one of those in \
                     /proc/sys/net/ipv4/tcp_allowed_congestion_control",
            });
        }
        Ok(Settings {
            interfaces: set("FERRY_TCP_IF"),
            timeout: settings::TCP_TIMEOUT.seconds().unwrap_or(TIMEOUT),
        })
    }
}

/// TCP as a medium for connections.
pub struct Tcp {
    addresses: Vec<Address>,
    listeners: Vec<OwnedFd>,
    card: BusinessCard,
    timeout: Duration,
    /// It listens at loopback addresses alone, because all ranks are on this host.
    only_here: bool,
}

impl Tcp {
    /// Listens at this host's chosen addresses.
    ///
    /// Errors: no address to listen at, or the system refuses.
    pub fn listen(rank_info: &RankInfo, settings: &Settings) -> Result<Tcp, TransportError> {
        socket::choose_window();
        let one_host = rank_info.nodes.len() <= 1;
        let all = interfaces::all().map_err(|cause| TransportError::Refused {
            attempted: "listing this host's interfaces".into(),
            cause,
            advice: "TCP needs them; on one host FERRY_TRANSPORTS=shm does without",
        })?;
        let addresses = interfaces::choose(&all, settings.interfaces.as_deref(), one_host)
            .map_err(TransportError::NoAddress)?;
        let mut listeners = Vec::new();
        let mut card = BusinessCard::default();
        let mut failed = Vec::new();
        for &address in addresses.iter().take(business_card::ADDRESSES_MAX) {
            match socket::listener(address.ip) {
                Ok((socket, port)) => {
                    listeners.push(socket);
                    card.0.push(Listening { address, port });
                }
                Err(e) => failed.push(format!("{}: {e}", address.ip)),
            }
        }
        if listeners.is_empty() {
            return Err(TransportError::NoAddress(format!(
                "none of this host's addresses can be listened at ({})",
                failed.join(", ")
            )));
        }
        Ok(Tcp {
            addresses,
            listeners,
            card,
            timeout: settings.timeout,
            only_here: one_host && settings.interfaces.is_none(),
        })
    }

    /// Listens at these addresses, too.
    fn listen_at(&mut self, addresses: &[Address]) {
        for &address in addresses {
            if self.card.0.len() < business_card::ADDRESSES_MAX
                && let Ok((socket, port)) = socket::listener(address.ip)
            {
                self.listeners.push(socket);
                self.card.0.push(Listening { address, port });
                self.addresses.push(address);
            }
        }
    }

    /// Opens a transport of TCP alone. Under a foreign launcher, blocks until all ranks have opened
    /// theirs.
    ///
    /// Errors: no address to listen at, or the system or the launcher refuses.
    pub fn open(
        rank_info: &RankInfo,
        directory: Box<dyn Directory>,
        settings: &Settings,
        encrypt: bool,
    ) -> Result<ConnTransport, TransportError> {
        let tcp = Tcp::listen(rank_info, settings)?;
        let media: Vec<Box<dyn Medium>> = vec![Box::new(tcp)];
        ConnTransport::open(rank_info, directory, media, settings.timeout, encrypt)
    }
}

impl Medium for Tcp {
    fn name(&self) -> &'static str {
        NAME
    }
    fn serves_other_jobs(&self) -> bool {
        true
    }
    fn card(&self) -> Vec<u8> {
        self.card.encode()
    }
    fn listeners(&self) -> &[OwnedFd] {
        &self.listeners
    }
    fn listen_outside(&mut self) -> Result<(), TransportError> {
        if std::mem::take(&mut self.only_here) {
            let all = interfaces::all().unwrap_or_default();
            // Without a network, this host is all that there is.
            let outward = interfaces::choose(&all, None, false).unwrap_or_default();
            let new: Vec<Address> = outward
                .into_iter()
                .filter(|address| !self.addresses.contains(address))
                .collect();
            self.listen_at(&new);
        }
        Ok(())
    }
    fn accept(&self, listener: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
        socket::accept(listener, self.timeout)
    }
    fn addresses(&self, card: &[u8], same_host: bool) -> Result<Vec<PeerAddress>, &'static str> {
        let card = BusinessCard::decode(card).ok_or("makes no sense")?;
        let order = card.in_order(&self.addresses, same_host);
        Ok(order.into_iter().map(PeerAddress::Ip).collect())
    }
    fn connect(
        &mut self,
        _process: ProcId,
        at: &PeerAddress,
        _hello: &[u8],
    ) -> Result<ConnectStart, String> {
        let PeerAddress::Ip(to) = *at else {
            return Err("it is no address of TCP".into());
        };
        let socket = socket::start_connect(to, self.timeout).map_err(|e| e.to_string())?;
        Ok(ConnectStart::Connecting(socket))
    }
    fn connected(&self, socket: &OwnedFd) -> Option<Result<(), Errno>> {
        socket::connected(socket)
    }
    fn peer_address(&self, socket: &OwnedFd) -> Option<String> {
        socket::peer(socket).map(|at| at.to_string())
    }
    fn local_address(&self) -> String {
        let from: Vec<String> = self.addresses.iter().map(|a| a.ip.to_string()).collect();
        format!("This host uses {} (FERRY_TCP_IF chooses)", from.join(", "))
    }
    fn socket_ops(&self) -> &'static dyn SocketOps {
        &TcpOps
    }
}

/// Operations on the socket of an open TCP connection.
pub(crate) struct TcpOps;

impl SocketOps for TcpOps {
    fn stream_max(&self) -> usize {
        crate::connected::STREAM_MAX_BYTES
    }
    fn zero_copy(&self) -> ZeroCopy {
        ZERO_COPY.get().copied().unwrap_or(ZeroCopy::IfFaster)
    }
    fn opened(&self, socket: &OwnedFd) {
        socket::restore_congestion_if_far(socket);
        socket::limit_window_if_close(socket);
    }
    fn unacknowledged(&self, socket: &OwnedFd) -> usize {
        socket::unacknowledged(socket)
    }
    fn set_receive_low_water(&self, socket: &OwnedFd, bytes: usize) {
        socket::set_receive_low_water(socket, bytes);
    }
    fn is_empty(&self, socket: &OwnedFd) -> bool {
        socket::is_empty(socket)
    }
    fn unanswered(&self, socket: &OwnedFd) -> Option<(bool, Duration)> {
        socket::unanswered(socket)
    }
}
