//! Categories (MPI 5.0 §15.3.9). Each variable and event belongs to one of them.

use super::{Control, EVENTS, Performance, Result, ToolError};

/// A category.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // their descriptions are data
pub enum Group {
    Messages,
    Transports,
    TransportSelf,
    TransportShm,
    TransportTcp,
    Protocols,
    Matching,
    Waiting,
    Collectives,
    Algorithms,
    CollectiveCounts,
    Errors,
    Job,
    TransportTipc,
    TransportModel,
}

impl Group {
    /// All categories, by index. The order never changes.
    pub const ALL: [Group; 15] = {
        use Group::*;
        [
            Messages,
            Transports,
            TransportSelf,
            TransportShm,
            TransportTcp,
            Protocols,
            Matching,
            Waiting,
            Collectives,
            Algorithms,
            CollectiveCounts,
            Errors,
            Job,
            TransportTipc,
            TransportModel,
        ]
    };

    /// The category of a transport's counts.
    pub(super) fn of_way(way: usize) -> Group {
        [
            Group::TransportSelf,
            Group::TransportShm,
            Group::TransportTcp,
            Group::TransportTipc,
            Group::TransportModel,
        ][way]
    }

    /// The index of the category of that name.
    pub fn index(name: &str) -> Result<usize> {
        let found = Group::ALL.iter().position(|g| g.name() == name);
        found.ok_or(ToolError::InvalidName)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Group::Messages => "messages",
            Group::Transports => "transports",
            Group::TransportSelf => "transport_self",
            Group::TransportShm => "transport_shm",
            Group::TransportTcp => "transport_tcp",
            Group::TransportTipc => "transport_tipc",
            Group::TransportModel => "transport_model",
            Group::Protocols => "protocols",
            Group::Matching => "matching",
            Group::Waiting => "waiting",
            Group::Collectives => "collectives",
            Group::Algorithms => "collective_algorithms",
            Group::CollectiveCounts => "collective_counts",
            Group::Errors => "errors",
            Group::Job => "job",
        }
    }

    /// Its description.
    pub fn description(self) -> &'static str {
        match self {
            Group::Messages => "messages, on their way from one process to another",
            Group::Transports => "messages and bytes, by the transport that carries them",
            Group::TransportSelf => "messages of a process to itself",
            Group::TransportShm => "messages between processes of one node, through its memory",
            Group::TransportTcp => "messages between hosts, by TCP",
            Group::TransportTipc => "messages between nodes, by TIPC",
            Group::TransportModel => "messages on a modelled machine",
            Group::Protocols => "how messages are sent: at once, or announced first",
            Group::Matching => "messages and receives that wait for each other",
            Group::Waiting => "what calls do that have to wait",
            Group::Collectives => "collective communication",
            Group::Algorithms => "which algorithms serve collectives on a communicator",
            Group::CollectiveCounts => "collectives started, by their algorithm",
            Group::Errors => "errors that MPI calls have found",
            Group::Job => "how a process learns of its job",
        }
    }

    fn parent(self) -> Option<Group> {
        match self {
            Group::Transports | Group::Protocols | Group::Matching => Some(Group::Messages),
            Group::TransportSelf
            | Group::TransportShm
            | Group::TransportTcp
            | Group::TransportTipc
            | Group::TransportModel => Some(Group::Transports),
            Group::Algorithms | Group::CollectiveCounts => Some(Group::Collectives),
            _ => None,
        }
    }

    /// Indices of its subcategories.
    pub fn children(self) -> Vec<usize> {
        indices(&Group::ALL, |g| g.parent() == Some(self))
    }

    /// Indices of its control variables.
    pub fn controls(self) -> Vec<usize> {
        indices(Control::all(), |c| c.group == self)
    }

    /// Indices of its performance variables.
    pub fn performances(self) -> Vec<usize> {
        indices(Performance::all(), |p| p.group == self)
    }

    /// Indices of its events.
    pub fn events(self) -> Vec<usize> {
        indices(&EVENTS, |e| e.group == self)
    }
}

fn indices<T>(all: &[T], of: impl Fn(&T) -> bool) -> Vec<usize> {
    (0..all.len()).filter(|&i| of(&all[i])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_category_holds_something_and_is_reached_once() {
        let mut seen = vec![0; Group::ALL.len()];
        for group in Group::ALL {
            let all = [
                group.children(),
                group.controls(),
                group.performances(),
                group.events(),
            ];
            assert!(all.iter().any(|v| !v.is_empty()), "{group:?} is empty");
            group.children().iter().for_each(|&c| seen[c] += 1);
            assert_eq!(Group::ALL[Group::index(group.name()).unwrap()], group);
        }
        for (group, times) in Group::ALL.iter().zip(seen) {
            assert_eq!(times, i32::from(group.parent().is_some()), "{group:?}");
        }
        let sum = |of: fn(Group) -> Vec<usize>| -> usize {
            Group::ALL.iter().map(|&g| of(g).len()).sum()
        };
        assert_eq!(sum(Group::controls), Control::all().len());
        assert_eq!(sum(Group::performances), Performance::all().len());
        assert_eq!(sum(Group::events), EVENTS.len());
    }
}
