//! The names of ports.

use super::super::base64::{from_base64, to_base64};
use super::super::{foreign, host_number};
use crate::process::process;
use crate::{Result, err};

/// What every name of a port begins with: program and version.
const PREFIX: &str = "ferry2:";
/// What a port's name holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PortName {
    /// The port's random number.
    pub(super) id: u64,
    /// The ticket.
    pub(super) key: [u8; 32],
    /// The number of its host.
    pub(super) host: u64,
    /// Its job.
    pub(super) job: u64,
    /// The business card of its process.
    pub(super) card: Vec<u8>,
}

impl PortName {
    /// The name as text: letters, digits and a few signs.
    pub(super) fn encode(&self) -> String {
        let mut bytes = self.id.to_le_bytes().to_vec();
        bytes.extend(self.key);
        bytes.extend(self.host.to_le_bytes());
        bytes.extend(self.job.to_le_bytes());
        bytes.extend(&self.card);
        format!("{PREFIX}{}", to_base64(&bytes))
    }

    /// What a name holds.
    ///
    /// Errors: Port if it is no name of a port.
    pub(super) fn parse(name: &str) -> Result<PortName> {
        let wrong = || {
            err!(
                Port,
                "{name:?} is no name that MPI_Open_port of Ferry has given"
            )
        };
        let bytes = name.trim().strip_prefix(PREFIX).and_then(from_base64);
        let bytes = bytes.ok_or_else(wrong)?;
        let (id, rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
        let (key, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (host, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
        let (job, card) = rest.split_first_chunk().ok_or_else(wrong)?;
        Ok(PortName {
            id: u64::from_le_bytes(*id),
            key: *key,
            host: u64::from_le_bytes(*host),
            job: u64::from_le_bytes(*job),
            card: card.to_vec(),
        })
    }

    /// Does the port belong to a process of this job, or of a job that this process knows?
    pub(super) fn is_known(&self) -> bool {
        let own = process().rank_info.job;
        own != 0 && self.job == own || foreign::knows_job(self.job)
    }

    /// Is its process on this host?
    pub(super) fn is_here(&self) -> bool {
        self.host == host_number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ports_come_back() {
        for len in [0, 1, 2, 3, 300] {
            let name = PortName {
                id: 0x1234_5678_9abc_def0,
                key: std::array::from_fn(|i| i as u8),
                host: 77,
                job: 78,
                card: (0..len).map(|i| (i * 7) as u8).collect(),
            };
            let text = name.encode();
            assert!(text.bytes().all(|b| b.is_ascii_graphic()));
            assert_eq!(PortName::parse(&text).unwrap(), name);
        }
        for wrong in ["", "ferry2:", "ferry2:AAAA", "tcp://here", "ferry2:$$$$"] {
            assert!(PortName::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fuzz_names_of_ports() {
        let good = PortName {
            id: 1,
            key: [2; 32],
            host: 3,
            job: 4,
            card: vec![4; 20],
        };
        let seeds = [good.encode().into_bytes()];
        ferry_fuzz::fuzz("names of ports", &seeds, |bytes| {
            PortName::parse(&String::from_utf8_lossy(bytes)).is_ok()
        });
    }
}
