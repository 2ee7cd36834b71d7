//! Maps ranks to hosts and programs.

use crate::hosts::{self, Host};
use crate::options::{Options, RANKS_MAX, StdinTarget};
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
        let wrong = |text: String| StartError { text, status: 2 };
        // All named hosts, each once. Programs choose among them.
        let local = Host {
            name: this_host(),
            slots: 1,
            max_slots: None,
        };
        let mut all: Vec<Host> = Vec::new();
        let everywhere = options.hosts.clone().unwrap_or_else(|| {
            let named = options.apps.iter().filter_map(|b| b.hosts.as_ref());
            let mut union: Vec<Host> = Vec::new();
            for host in named.flatten() {
                if !union.iter().any(|h| h.name == host.name) {
                    union.push(host.clone());
                }
            }
            if union.is_empty() {
                union.push(local.clone());
            }
            union
        });
        let mut taken = Vec::new();
        let (mut app_of, mut host_of) = (Vec::new(), Vec::<u32>::new());
        for (number, app) in (0u32..).zip(&options.apps) {
            let list = app.hosts.as_ref().unwrap_or(&everywhere);
            let indices: Vec<usize> = list
                .iter()
                .map(|host| {
                    let known = all.iter().position(|h| h.name == host.name);
                    known.unwrap_or_else(|| {
                        all.push(host.clone());
                        taken.push(0);
                        all.len() - 1
                    })
                })
                .collect();
            let named = options.hosts.is_some() || app.hosts.is_some();
            let slots = || list.iter().fold(0u32, |sum, h| sum.saturating_add(h.slots));
            let count = app.count.unwrap_or_else(|| if named { slots() } else { 1 });
            if count as usize + app_of.len() > RANKS_MAX as usize {
                return Err(wrong(format!("that is more than {RANKS_MAX} ranks")));
            }
            let mut ranks_of: Vec<u32> = indices.iter().map(|&p| taken[p]).collect();
            let mapped = hosts::map(list, count, options.map_by, &mut ranks_of).map_err(wrong)?;
            let mapped = match options.rank_by {
                Some(by) => hosts::number(&mapped, by),
                None => mapped,
            };
            for (&host, ranks) in indices.iter().zip(ranks_of) {
                taken[host] = ranks;
            }
            for index in mapped {
                app_of.push(number);
                host_of.push(indices[index] as u32);
            }
        }
        let ranks = app_of.len();
        if let StdinTarget::Rank(r) = options.stdin
            && r as usize >= ranks
        {
            let last = ranks - 1;
            return Err(wrong(format!(
                "-stdin {r}: the job has {ranks} ranks, 0 to {last}"
            )));
        }
        // Hosts without ranks are left out.
        let mut numbers = vec![None; all.len()];
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        for host in &mut host_of {
            let old = *host as usize;
            *host = *numbers[old].get_or_insert_with(|| {
                names.push(all[old].shown().to_string());
                addresses.push((all[old].name.clone(), all[old].is_here()));
                names.len() as u32 - 1
            });
        }
        let named = options.hosts.is_some() || options.apps.iter().any(|b| b.hosts.is_some());
        let sum = |sum: u32, host: &Host| sum.saturating_add(host.slots);
        let slots = named.then(|| everywhere.iter().fold(0, sum));
        let uses_agents = addresses.iter().any(|(_, local)| !local)
            || addresses.len() > 1
            || named && options.launcher.is_some();
        if !uses_agents {
            names = vec![this_host()];
        }
        let programs = options
            .apps
            .iter()
            .map(|app| Program {
                allow_other_mpi: options.allow_other_mpi,
                ..start::program_of(app, uses_agents)
            })
            .collect();
        Ok(Plan {
            programs,
            app_of,
            hosts: names,
            addresses,
            host_of,
            slots,
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
