//! This host's network interfaces, and the choice of the addresses to listen at.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the network's prefix.
    pub prefix: u8,
}

impl Address {
    /// Returns whether `other` is in this address's network.
    pub fn same_network(&self, other: IpAddr) -> bool {
        match (self.ip, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix.min(32)))
                    .unwrap_or(0);
                (a.to_bits() ^ b.to_bits()) & mask == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix.min(128)))
                    .unwrap_or(0);
                (a.to_bits() ^ b.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

/// An address of an interface that is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// The address.
    pub address: Address,
}

/// One item of FERRY_TCP_IF's list.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Selector {
    /// The interface of this name.
    Name(String),
    /// Interfaces whose names begin so (`ib*`).
    Prefix(String),
    /// Interfaces in this network.
    Network(Address),
}

impl Selector {
    fn parse(word: &str) -> Result<Selector, String> {
        if let Some((ip, prefix)) = word.split_once('/') {
            let network = ip
                .parse::<IpAddr>()
                .ok()
                .zip(prefix.parse::<u8>().ok())
                .filter(|(ip, prefix)| *prefix <= if ip.is_ipv4() { 32 } else { 128 });
            return match network {
                Some((ip, prefix)) => Ok(Selector::Network(Address { ip, prefix })),
                None => Err(format!(
                    "{word:?} in FERRY_TCP_IF is no network; write it like 10.1.0.0/16 or fd00::/64"
                )),
            };
        }
        if let Ok(ip) = word.parse::<IpAddr>() {
            let prefix = if ip.is_ipv4() { 32 } else { 128 };
            return Ok(Selector::Network(Address { ip, prefix }));
        }
        Ok(match word.strip_suffix('*') {
            Some(start) => Selector::Prefix(start.into()),
            None => Selector::Name(word.into()),
        })
    }

    fn accepts(&self, interface: &Interface) -> bool {
        match self {
            Selector::Name(name) => *name == interface.name,
            Selector::Prefix(start) => interface.name.starts_with(start),
            Selector::Network(network) => network.same_network(interface.address.ip),
        }
    }
}

/// The addresses to listen at: those that `setting` (FERRY_TCP_IF) selects. Without it, in a job on
/// one host the loopback addresses; otherwise all but the loopback addresses, those of docker's and
/// libvirt's bridges, and link-local ones.
///
/// Errors: none is left. The text names those that there are.
pub fn choose(
    all: &[Interface],
    setting: Option<&str>,
    one_host: bool,
) -> Result<Vec<Address>, String> {
    let selectors = setting
        .map(|list| {
            let words = list.split(',').map(str::trim).filter(|w| !w.is_empty());
            words.map(Selector::parse).collect::<Result<Vec<_>, _>>()
        })
        .transpose()?
        .filter(|words| !words.is_empty());
    let pick = |accepts: &dyn Fn(&Interface) -> bool| -> Vec<Address> {
        let chosen = all.iter().filter(|&i| accepts(i));
        chosen.map(|i| i.address).collect()
    };
    let loopback = |i: &Interface| i.address.ip.is_loopback();
    let found = match &selectors {
        Some(words) => pick(&|i| {
            words.iter().any(|w| w.accepts(i))
                && (!link_local(i.address.ip)
                    || words.iter().any(|w| matches!(w, Selector::Network(_))))
                && !scoped(i.address.ip)
        }),
        None if one_host => pick(&loopback),
        None => {
            let outward = pick(&|i| !loopback(i) && !bridge(&i.name) && !link_local(i.address.ip));
            // A machine without a network: all ranks are on this host, whatever they call it.
            if outward.is_empty() {
                pick(&loopback)
            } else {
                outward
            }
        }
    };
    if !found.is_empty() {
        return Ok(found);
    }
    let there: Vec<String> = all
        .iter()
        .map(|i| format!("{} {}/{}", i.name, i.address.ip, i.address.prefix))
        .collect();
    let there = if there.is_empty() {
        "none is up".into()
    } else {
        there.join(", ")
    };
    Err(match setting.filter(|_| selectors.is_some()) {
        Some(list) => {
            format!("no interface that is up fits FERRY_TCP_IF={list} (there are: {there})")
        }
        None => format!("no interface can be used (there are: {there})"),
    })
}

/// Returns whether an interface leads only to containers and virtual machines of this host.
fn bridge(name: &str) -> bool {
    name.starts_with("docker") || name.starts_with("virbr")
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(_) => scoped(ip),
    }
}

/// Returns whether an address means nothing without the name of an interface, which differs from
/// host to host.
fn scoped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The addresses of all interfaces that are up.
pub fn all() -> std::io::Result<Vec<Interface>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: getifaddrs writes one pointer, to a list that freeifaddrs below takes back.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is not freed before the loop's end.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: address and mask are null or socket addresses of their family's length.
        let pair = unsafe { (ip_of(entry.ifa_addr), ip_of(entry.ifa_netmask)) };
        let (Some(ip), mask) = pair else { continue };
        let prefix = match mask {
            Some(IpAddr::V4(m)) => m.to_bits().leading_ones(),
            Some(IpAddr::V6(m)) => m.to_bits().leading_ones(),
            None if ip.is_ipv4() => 32,
            None => 128,
        };
        // SAFETY: each entry has a name that ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        found.push(Interface {
            name: name.to_string_lossy().into_owned(),
            address: Address {
                ip,
                prefix: prefix as u8,
            },
        });
    }
    // SAFETY: the list made above, freed once.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// The address in a socket address.
///
/// # Safety
/// `at` is null or points to a socket address as long as its family's are.
unsafe fn ip_of(at: *const libc::sockaddr) -> Option<IpAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match i32::from((*at).sa_family) {
            libc::AF_INET => {
                let v4 = &*at.cast::<libc::sockaddr_in>();
                Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
            }
            libc::AF_INET6 => {
                let v6 = &*at.cast::<libc::sockaddr_in6>();
                Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        let one = |name: &str, ip: &str, prefix| Interface {
            name: name.into(),
            address: Address {
                ip: ip.parse().unwrap(),
                prefix,
            },
        };
        vec![
            one("lo", "127.0.0.1", 8),
            one("lo", "::1", 128),
            one("eth0", "10.1.0.5", 16),
            one("eth0", "fe80::5", 64),
            one("eth1", "fd00::5", 64),
            one("eth1", "169.254.3.4", 16),
            one("docker0", "172.17.0.1", 16),
            one("virbr0", "192.168.122.1", 24),
        ]
    }

    fn chosen(setting: Option<&str>, one_host: bool) -> Vec<String> {
        let all = choose(&host(), setting, one_host).unwrap();
        all.iter().map(|a| a.ip.to_string()).collect()
    }

    #[test]
    fn outward_by_default_and_loopback_on_one_host() {
        assert_eq!(chosen(None, false), ["10.1.0.5", "fd00::5"]);
        assert_eq!(chosen(None, true), ["127.0.0.1", "::1"]);
        assert_eq!(chosen(Some(""), false), ["10.1.0.5", "fd00::5"]);
        let lonely = &host()[..2];
        assert_eq!(choose(lonely, None, false).unwrap().len(), 2);
    }

    #[test]
    fn names_and_networks_choose() {
        assert_eq!(chosen(Some("docker0"), false), ["172.17.0.1"]);
        assert_eq!(chosen(Some("eth*"), false), ["10.1.0.5", "fd00::5"]);
        assert_eq!(
            chosen(Some("fd00::/16, lo"), false),
            ["127.0.0.1", "::1", "fd00::5"]
        );
        assert_eq!(chosen(Some("169.254.0.0/16"), false), ["169.254.3.4"]);
        assert_eq!(chosen(Some("10.1.0.5"), true), ["10.1.0.5"]);
    }

    #[test]
    fn nothing_to_choose_is_said() {
        let none = choose(&host(), Some("ib0"), false).unwrap_err();
        assert!(
            none.contains("FERRY_TCP_IF=ib0 ") && none.contains("eth0 10.1.0.5/16"),
            "{none}"
        );
        assert!(
            choose(&host(), Some("10.0.0.0/40"), false)
                .unwrap_err()
                .contains("no network")
        );
        assert!(choose(&[], None, false).unwrap_err().contains("none is up"));
    }

    #[test]
    fn this_host_has_a_loopback() {
        let all = all().unwrap();
        assert!(all.iter().any(|i| i.address.ip.is_loopback()), "{all:?}");
    }
}
