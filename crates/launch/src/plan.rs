//! Maps ranks to hosts and programs.

use crate::hosts::{self, Host};
use crate::options::{AppContext, Options, RANKS_MAX, StdinTarget};
use crate::protocol::Program;
use crate::start::{self, StartError};

/// Which rank runs which program on which host.
pub struct Plan {
    /// The programs, one for each app context of the command line.
    pub programs: Vec<Program>,
    /// Each rank's program.
    pub app_of: Vec<u32>,
    /// The names of the hosts that have ranks.
    pub hosts: Vec<String>,
    /// For each host: its address for the launcher, and whether it is this machine.
    pub addresses: Vec<(String, bool)>,
    /// Each rank's host.
    pub host_of: Vec<u32>,
    /// Slots of all hosts. `None`: no hosts were named.
    pub slots: Option<u32>,
    /// Ranks are started by agents: there are other hosts, or the user has given a launcher.
    pub uses_agents: bool,
}

impl Plan {
    /// Counts ranks and gives each a host.
    ///
    /// # Errors
    /// Too many ranks, or not enough room on the hosts.
    pub fn make(options: &Options) -> Result<Plan, StartError> {
        let default_hosts = default_hosts(options);
        let mut mapping = Mapping::default();
        for app in &options.apps {
            mapping.add_app(app, options, &default_hosts)?;
        }
        check_stdin(options.stdin, mapping.app_of.len())?;
        let (mut hosts, addresses) = mapping.leave_out_empty_hosts();
        let hosts_named = options.hosts.is_some() || options.apps.iter().any(|a| a.hosts.is_some());
        let uses_agents = addresses.iter().any(|(_, local)| !local)
            || addresses.len() > 1
            || hosts_named && options.launcher.is_some();
        if !uses_agents {
            hosts = vec![this_host()];
        }
        let programs = options.apps.iter().map(|app| Program {
            allow_other_mpi: options.allow_other_mpi,
            ..start::program_of(app, uses_agents)
        });
        Ok(Plan {
            programs: programs.collect(),
            app_of: mapping.app_of,
            hosts,
            addresses,
            host_of: mapping.host_of,
            slots: hosts_named.then(|| slots_of(&default_hosts)),
            uses_agents,
        })
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.app_of.len()
    }

    /// A rank's program as the user wrote it.
    pub fn program_of(&self, rank: usize) -> String {
        let program = &self.programs[self.app_of[rank] as usize];
        program.program.os().to_string_lossy().into_owned()
    }
}

/// The ranks so far, while programs are mapped one after the other.
#[derive(Default)]
struct Mapping {
    /// All hosts that a program may use, each once.
    hosts: Vec<Host>,
    /// Ranks on each host.
    ranks_on: Vec<u32>,
    /// Programs so far.
    apps: u32,
    /// Each rank's program.
    app_of: Vec<u32>,
    /// Each rank's host, by its index in `hosts`.
    host_of: Vec<u32>,
}

impl Mapping {
    /// Gives each rank of a program a host: one of the program's own hosts, or of `default_hosts`.
    fn add_app(
        &mut self,
        app: &AppContext,
        options: &Options,
        default_hosts: &[Host],
    ) -> Result<(), StartError> {
        let list = app.hosts.as_deref().unwrap_or(default_hosts);
        let indices: Vec<usize> = list.iter().map(|host| self.index_of(host)).collect();
        let hosts_named = options.hosts.is_some() || app.hosts.is_some();
        let default_count = || if hosts_named { slots_of(list) } else { 1 };
        let count = app.count.unwrap_or_else(default_count);
        if count as usize + self.app_of.len() > RANKS_MAX as usize {
            return Err(wrong(format!("that is more than {RANKS_MAX} ranks")));
        }
        let mut ranks_on: Vec<u32> = indices.iter().map(|&i| self.ranks_on[i]).collect();
        let mapped = hosts::map(list, count, options.map_by, &mut ranks_on).map_err(wrong)?;
        let mapped = match options.rank_by {
            Some(by) => hosts::number(&mapped, by),
            None => mapped,
        };
        for (&index, ranks) in indices.iter().zip(ranks_on) {
            self.ranks_on[index] = ranks;
        }
        for of_list in mapped {
            self.app_of.push(self.apps);
            self.host_of.push(indices[of_list] as u32);
        }
        self.apps += 1;
        Ok(())
    }

    /// The index of a host, which is added if it is new.
    fn index_of(&mut self, host: &Host) -> usize {
        let known = self.hosts.iter().position(|h| h.name == host.name);
        known.unwrap_or_else(|| {
            self.hosts.push(host.clone());
            self.ranks_on.push(0);
            self.hosts.len() - 1
        })
    }

    /// Numbers the hosts that have ranks, in the order of their first ranks. Returns their names;
    /// and for each its address, and whether it is this machine.
    fn leave_out_empty_hosts(&mut self) -> (Vec<String>, Vec<(String, bool)>) {
        let mut numbers = vec![None; self.hosts.len()];
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        for host in &mut self.host_of {
            let index = *host as usize;
            *host = *numbers[index].get_or_insert_with(|| {
                let host = &self.hosts[index];
                names.push(host.shown().to_string());
                addresses.push((host.name.clone(), host.is_here()));
                names.len() as u32 - 1
            });
        }
        (names, addresses)
    }
}

/// The hosts of programs that have none of their own: those of the whole job, otherwise all that
/// programs name, otherwise this machine.
fn default_hosts(options: &Options) -> Vec<Host> {
    if let Some(hosts) = &options.hosts {
        return hosts.clone();
    }
    let mut union: Vec<Host> = Vec::new();
    for host in options
        .apps
        .iter()
        .filter_map(|a| a.hosts.as_ref())
        .flatten()
    {
        if !union.iter().any(|h| h.name == host.name) {
            union.push(host.clone());
        }
    }
    if union.is_empty() {
        union.push(Host {
            name: this_host(),
            slots: 1,
            max_slots: None,
        });
    }
    union
}

/// Slots of all these hosts.
fn slots_of(hosts: &[Host]) -> u32 {
    hosts.iter().fold(0, |sum, h| sum.saturating_add(h.slots))
}

/// Is the rank that gets standard input there?
fn check_stdin(target: StdinTarget, ranks: usize) -> Result<(), StartError> {
    match target {
        StdinTarget::Rank(r) if r as usize >= ranks => {
            let last = ranks - 1;
            Err(wrong(format!(
                "-stdin {r}: the job has {ranks} ranks, 0 to {last}"
            )))
        }
        _ => Ok(()),
    }
}

/// A mistake in the command line.
fn wrong(text: String) -> StartError {
    StartError { text, status: 2 }
}

/// This machine's name.
fn this_host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Action, parse};
    use std::ffi::OsString;

    fn plan(line: &str) -> Result<Plan, StartError> {
        match parse(line.split_whitespace().map(OsString::from), |_| None) {
            Ok(Action::Run(options)) => Plan::make(&options),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn without_hosts_all_is_here() {
        let p = plan("-n 3 x : y").unwrap();
        assert!(!p.uses_agents && p.host_of == [0; 4] && p.app_of == [0, 0, 0, 1]);
        assert!(!plan("-host localhost:4 x").unwrap().uses_agents);
        assert_eq!(plan("-host localhost:4 x").unwrap().ranks(), 4);
    }

    #[test]
    fn programs_go_on_where_others_end_or_to_hosts_of_their_own() {
        let p = plan("--hosts a:2,b:2 -n 1 x : -n 3 y").unwrap();
        assert_eq!(
            (p.host_of, p.hosts.join(" ")),
            (vec![0, 0, 1, 1], "a b".into())
        );
        let p = plan("-n 2 -host b:2 x : -n 1 -host a y").unwrap();
        assert_eq!(
            (p.host_of, p.hosts.join(" ")),
            (vec![0, 0, 1], "b a".into())
        );
        assert!(plan("-host localhost --launcher l x").unwrap().uses_agents);
        let p = plan("--hosts a:2,b:2 x").unwrap();
        assert_eq!(p.ranks(), 4);
    }

    #[test]
    fn mistakes_are_named() {
        let said = |line| plan(line).err().unwrap().text;
        assert!(said("-stdin 4 -n 2 x").contains("0 to 1"));
        assert!(said("-n 65536 x : y").contains("65536"));
    }
}
