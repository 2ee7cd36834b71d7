//! TIPC's addresses: names of services, ports, and the kernel's form of both (linux/tipc.h).

use std::fmt;

/// A service's name: {type, instance}.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The service's type.
    pub kind: u32,
    /// The instance.
    pub instance: u32,
}

impl Name {
    /// The name of a rank. A job's ranks have instances side by side, jobs lie far apart. If the
    /// instances of two jobs are the same, their ports differ, and those are on the ranks' business
    /// cards.
    pub fn of_rank(kind: u32, job: u64, size: u32, rank: u32) -> Name {
        let bits = u32::BITS - size.saturating_sub(1).leading_zeros();
        // Numbers of jobs may differ in few bits. The last step of splitmix64 mixes them.
        let mut mixed = job ^ (job >> 30);
        mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 27;
        mixed = mixed.wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let first = (mixed as u32).checked_shl(bits).unwrap_or(0);
        Name {
            kind,
            instance: first | rank,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}, {}}}", self.kind, self.instance)
    }
}

/// A socket's own address, which no other socket has while it lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Id {
    /// Its number on its node.
    pub port: u32,
    /// Its node. 0: a node that is in no network.
    pub node: u32,
}

/// As the `tipc` tool shows them: the node in hexadecimal digits.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {:x} port {}", self.node, self.port)
    }
}

/// The port that has published a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Port {
    /// The name.
    pub name: Name,
    /// The port's socket.
    pub id: Id,
}

/// Bytes of a [`Port`] on a business card.
const CARD_BYTES: usize = 16;

impl Port {
    /// Encodes the port for a business card: four numbers, little endian.
    pub fn encode(self) -> [u8; CARD_BYTES] {
        let words = [
            self.name.kind,
            self.name.instance,
            self.id.port,
            self.id.node,
        ];
        let mut out = [0; CARD_BYTES];
        for (at, word) in out.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Decodes a card. `None`: it is none.
    pub fn decode(card: &[u8]) -> Option<Port> {
        let card: &[u8; CARD_BYTES] = card.try_into().ok()?;
        let word = |n: usize| {
            let [a, b, c, d] = [card[n], card[n + 1], card[n + 2], card[n + 3]];
            u32::from_le_bytes([a, b, c, d])
        };
        let name = Name {
            kind: word(0),
            instance: word(4),
        };
        let id = Id {
            port: word(8),
            node: word(12),
        };
        // Lower service types are the system's own, and no socket has number 0.
        (name.kind >= super::KIND_MIN && id.port != 0).then_some(Port { name, id })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TIPC {} at {}", self.name, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_fuzz::fuzz;
    use proptest::prelude::*;

    #[test]
    fn fuzz_ports_on_cards() {
        let port = Port {
            name: Name::of_rank(18888, 99, 7, 3),
            id: Id {
                port: 5,
                node: 0x0100_1001,
            },
        };
        assert_eq!(Port::decode(&port.encode()), Some(port));
        assert_eq!(port.id.to_string(), "node 1001001 port 5");
        let seeds = [port.encode().to_vec()];
        fuzz("ports on cards", &seeds, |bytes| {
            match Port::decode(bytes) {
                Some(port) => {
                    assert_eq!(port.encode(), bytes);
                    true
                }
                None => false,
            }
        });
    }

    proptest! {
        #[test]
        fn no_two_ranks_of_a_job_have_one_name(job: u64, size in 1u32..1 << 20,
            ranks: [prop::sample::Index; 2]) {
            let [a, b] = ranks.map(|r| r.index(size as usize) as u32);
            let name = |rank| Name::of_rank(18888, job, size, rank);
            prop_assert_eq!(name(a) == name(b), a == b);
        }
        #[test]
        fn jobs_that_follow_each_other_are_far_apart(job: u64, size in 1u32..64) {
            let place = |job| Name::of_rank(18888, job, size, 0).instance;
            prop_assert!(place(job).abs_diff(place(job.wrapping_add(1))) >= size);
        }
    }
}
