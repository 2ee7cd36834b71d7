//! The hosts of a job: where they are named, and which rank goes where.

mod list;
mod mapping;
mod slurm;

pub use list::{parse_file, parse_list};
pub use mapping::{MapBy, RankBy, map, number};
pub use slurm::allocation;

/// A host and the room it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// A name or address, with "user@" before it if ssh needs that.
    pub name: String,
    /// Ranks that it gets before the next host is filled.
    pub slots: u32,
    /// Most ranks that it can get.
    pub max_slots: Option<u32>,
}

impl Host {
    /// Its name without the user's.
    pub fn shown(&self) -> &str {
        self.name.rsplit('@').next().unwrap_or(&self.name)
    }

    /// Is this the machine that mpiexec runs on?
    pub fn is_here(&self) -> bool {
        let uname = rustix::system::uname();
        let here = uname.nodename().to_string_lossy();
        let name = self.name.as_str();
        let short = |n: &str| n.split('.').next().unwrap_or_default().to_string();
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        ["localhost", "127.0.0.1", "::1", &*here].contains(&name)
            || !is_address
                && short(name) == short(&here)
                && (name.contains('.') != here.contains('.'))
    }
}

/// Longest name of a host in bytes: 253 (RFC 1035), and a user's name before it.
const NAME_MAX_BYTES: usize = 300;

/// Checks a host's name. It becomes an argument of ssh or srun, so it must not be an option, and
/// must not hold what a shell interprets.
fn checked_name(name: &str) -> Result<String, String> {
    let good = |c: char| c.is_alphanumeric() || ".-_:%@".contains(c);
    if name.is_empty()
        || name.len() > NAME_MAX_BYTES
        || name.starts_with('-')
        || !name.chars().all(good)
    {
        return Err(format!("{name:?} is not the name of a host"));
    }
    Ok(name.into())
}

/// Adds a host. If it is there already, it gets more slots.
fn add(hosts: &mut Vec<Host>, new: Host) {
    match hosts.iter_mut().find(|h| h.name == new.name) {
        Some(host) => {
            host.slots = host.slots.saturating_add(new.slots);
            host.max_slots = host
                .max_slots
                .zip(new.max_slots)
                .map(|(a, b)| a.saturating_add(b));
        }
        None => hosts.push(new),
    }
}
