//! TCP's part of a business card: the addresses at which a process listens, and the order in which
//! another one should try them.
//!
//! ```text
//! u8 version │ u8 addresses │ for each: u8 family (4, 6), u8 prefix, u16 port (little endian), ip
//! ```

use ferry_job::Address;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The version of this format.
const VERSION: u8 = 1;
/// Most addresses on a card; more are left out. A choice: hosts have fewer networks.
pub const ADDRESSES_MAX: usize = 32;

/// An address at which a process listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listening {
    /// The address.
    pub address: Address,
    /// The port.
    pub port: u16,
}

/// The addresses at which others can reach a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BusinessCard(pub Vec<Listening>);

impl BusinessCard {
    /// Encodes the card.
    pub fn encode(&self) -> Vec<u8> {
        let listed = &self.0[..self.0.len().min(ADDRESSES_MAX)];
        let mut out = vec![VERSION, listed.len() as u8];
        for l in listed {
            out.push(if l.address.ip.is_ipv4() { 4 } else { 6 });
            out.push(l.address.prefix);
            out.extend(l.port.to_le_bytes());
            match l.address.ip {
                IpAddr::V4(ip) => out.extend(ip.octets()),
                IpAddr::V6(ip) => out.extend(ip.octets()),
            }
        }
        out
    }

    /// Decodes a card. `None`: it is none.
    pub fn decode(bytes: &[u8]) -> Option<BusinessCard> {
        let [VERSION, count, rest @ ..] = bytes else {
            return None;
        };
        if usize::from(*count) > ADDRESSES_MAX {
            return None;
        }
        let (mut rest, mut card) = (rest, BusinessCard::default());
        for _ in 0..*count {
            let (&[family, prefix, low, high], more) = rest.split_first_chunk::<4>()?;
            let (ip, more) = match family {
                4 => {
                    let (ip, more) = more.split_first_chunk::<4>()?;
                    (IpAddr::V4(Ipv4Addr::from(*ip)), more)
                }
                6 => {
                    let (ip, more) = more.split_first_chunk::<16>()?;
                    (IpAddr::V6(Ipv6Addr::from(*ip)), more)
                }
                _ => return None,
            };
            let port = u16::from_le_bytes([low, high]);
            let limit = if ip.is_ipv4() { 32 } else { 128 };
            if prefix > limit || port == 0 || ip.is_unspecified() || ip.is_multicast() {
                return None;
            }
            card.0.push(Listening {
                address: Address { ip, prefix },
                port,
            });
            rest = more;
        }
        rest.is_empty().then_some(card)
    }

    /// The addresses at which to try the card's process from a host with the addresses `mine`, best
    /// first: those in networks that both are on, longer prefixes first, then the rest. Loopback
    /// addresses only serve the same host.
    pub fn in_order(&self, mine: &[Address], same_host: bool) -> Vec<SocketAddr> {
        let mut found: Vec<(u32, SocketAddr)> = Vec::new();
        for l in &self.0 {
            let ip = l.address.ip;
            if ip.is_loopback() && !same_host && self.0.iter().any(|o| !o.address.ip.is_loopback())
            {
                continue;
            }
            let family_here =
                mine.is_empty() || mine.iter().any(|m| m.ip.is_ipv4() == ip.is_ipv4());
            let shared = mine.iter().filter(|m| m.same_network(ip));
            let score = match shared.map(|m| m.prefix).max() {
                Some(prefix) => 1 + u32::from(128 - prefix.min(128)),
                None if family_here => 1000,
                None => 2000,
            };
            // Of two equally good addresses IPv4 comes first: its headers are shorter.
            let score = 2 * score + u32::from(ip.is_ipv6());
            found.push((score, SocketAddr::new(ip, l.port)));
        }
        found.sort_by_key(|&(score, _)| score);
        found.into_iter().map(|(_, at)| at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_fuzz::fuzz;

    fn address(text: &str) -> Address {
        let (ip, prefix) = text.split_once('/').unwrap();
        Address {
            ip: ip.parse().unwrap(),
            prefix: prefix.parse().unwrap(),
        }
    }

    fn card(all: &[&str]) -> BusinessCard {
        let listening = |(i, a): (usize, &&str)| Listening {
            address: address(a),
            port: 1000 + i as u16,
        };
        BusinessCard(all.iter().enumerate().map(listening).collect())
    }

    #[test]
    fn comes_back_as_it_went() {
        for c in [
            card(&[]),
            card(&["10.0.0.1/8", "fd00::7/64", "127.0.0.1/8"]),
        ] {
            assert_eq!(BusinessCard::decode(&c.encode()), Some(c));
        }
        let many: Vec<String> = (0..50).map(|i| format!("10.0.1.{i}/24")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let read = BusinessCard::decode(&card(&many).encode()).unwrap();
        assert_eq!(read.0.len(), ADDRESSES_MAX);
    }

    #[test]
    fn shared_networks_come_first() {
        let theirs = card(&["127.0.0.1/8", "192.168.7.9/24", "fd00::9/64", "10.1.2.3/16"]);
        let mine = [address("10.1.9.9/16"), address("fd00::1/64")];
        let order = |same| -> Vec<String> {
            let order = theirs.in_order(&mine, same);
            order.iter().map(|a| a.ip().to_string()).collect()
        };
        assert_eq!(order(false), ["fd00::9", "10.1.2.3", "192.168.7.9"]);
        assert_eq!(order(true).len(), 4);
        let alone = card(&["127.0.0.1/8"]);
        assert_eq!(alone.in_order(&mine, false).len(), 1);
    }

    #[test]
    fn networks_end_where_their_prefix_says() {
        assert!(address("10.1.2.3/16").same_network("10.1.9.9".parse().unwrap()));
        assert!(!address("10.1.2.3/24").same_network("10.1.9.9".parse().unwrap()));
        assert!(address("10.1.2.3/0").same_network("11.1.9.9".parse().unwrap()));
        assert!(!address("fd00::1/128").same_network("fd00::2".parse().unwrap()));
        assert!(!address("fd00::1/64").same_network("10.1.2.3".parse().unwrap()));
    }

    #[test]
    fn fuzz_cards() {
        let seeds = [
            card(&["10.0.0.1/8", "fd00::7/64"]).encode(),
            card(&[]).encode(),
        ];
        fuzz("cards", &seeds, |bytes| {
            let read = BusinessCard::decode(bytes);
            if let Some(c) = &read {
                assert_eq!(c.encode(), bytes);
                c.in_order(&[address("10.0.0.9/24")], false);
            }
            read.map(|c| c.0.len())
        });
    }
}
