//! Categories (MPI 5.0 §15.3.9). Each variable and event belongs to one of them.

use super::{Control, EVENTS, Performance, Result, ToolError};

/// A category.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // their descriptions are data
pub enum Category {
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

impl Category {
    /// All categories, by index. The order never changes.
    pub const ALL: [Category; 15] = {
        use Category::*;
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

    /// The category of the counts of the transport with this index in `TRANSPORT_NAMES`.
    pub(super) fn of_transport(index: usize) -> Category {
        [
            Category::TransportSelf,
            Category::TransportShm,
            Category::TransportTcp,
            Category::TransportTipc,
            Category::TransportModel,
        ][index]
    }

    /// The index of the category of that name.
    pub fn index(name: &str) -> Result<usize> {
        let found = Category::ALL.iter().position(|g| g.name() == name);
        found.ok_or(ToolError::InvalidName)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Category::Messages => "messages",
            Category::Transports => "transports",
            Category::TransportSelf => "transport_self",
            Category::TransportShm => "transport_shm",
            Category::TransportTcp => "transport_tcp",
            Category::TransportTipc => "transport_tipc",
            Category::TransportModel => "transport_model",
            Category::Protocols => "protocols",
            Category::Matching => "matching",
            Category::Waiting => "waiting",
            Category::Collectives => "collectives",
            Category::Algorithms => "collective_algorithms",
            Category::CollectiveCounts => "collective_counts",
            Category::Errors => "errors",
            Category::Job => "job",
        }
    }

    /// Its description.
    pub fn description(self) -> &'static str {
        match self {
            Category::Messages => "messages, on their way from one process to another",
            Category::Transports => "messages and bytes, by the transport that carries them",
            Category::TransportSelf => "messages of a process to itself",
            Category::TransportShm => "messages between processes of one node, through its memory",
            Category::TransportTcp => "messages between hosts, by TCP",
            Category::TransportTipc => "messages between nodes, by TIPC",
            Category::TransportModel => "messages on a modelled machine",
            Category::Protocols => "how messages are sent: at once, or announced first",
            Category::Matching => "messages and receives that wait for each other",
            Category::Waiting => "what calls do that have to wait",
            Category::Collectives => "collective communication",
            Category::Algorithms => "which algorithms serve collectives on a communicator",
            Category::CollectiveCounts => "collectives started, by their algorithm",
            Category::Errors => "errors that MPI calls have found",
            Category::Job => "how a process learns of its job",
        }
    }

    fn parent(self) -> Option<Category> {
        match self {
            Category::Transports | Category::Protocols | Category::Matching => {
                Some(Category::Messages)
            }
            Category::TransportSelf
            | Category::TransportShm
            | Category::TransportTcp
            | Category::TransportTipc
            | Category::TransportModel => Some(Category::Transports),
            Category::Algorithms | Category::CollectiveCounts => Some(Category::Collectives),
            _ => None,
        }
    }

    /// Indices of its subcategories.
    pub fn children(self) -> Vec<usize> {
        indices(&Category::ALL, |g| g.parent() == Some(self))
    }

    /// Indices of its control variables.
    pub fn controls(self) -> Vec<usize> {
        indices(Control::all(), |c| c.category == self)
    }

    /// Indices of its performance variables.
    pub fn performances(self) -> Vec<usize> {
        indices(Performance::all(), |p| p.category == self)
    }

    /// Indices of its events.
    pub fn events(self) -> Vec<usize> {
        indices(&EVENTS, |e| e.category == self)
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
        let mut seen = vec![0; Category::ALL.len()];
        for category in Category::ALL {
            let all = [
                category.children(),
                category.controls(),
                category.performances(),
                category.events(),
            ];
            assert!(all.iter().any(|v| !v.is_empty()), "{category:?} is empty");
            category.children().iter().for_each(|&c| seen[c] += 1);
            assert_eq!(
                Category::ALL[Category::index(category.name()).unwrap()],
                category
            );
        }
        for (category, times) in Category::ALL.iter().zip(seen) {
            assert_eq!(
                times,
                i32::from(category.parent().is_some()),
                "{category:?}"
            );
        }
        let sum = |of: fn(Category) -> Vec<usize>| -> usize {
            Category::ALL.iter().map(|&g| of(g).len()).sum()
        };
        assert_eq!(sum(Category::controls), Control::all().len());
        assert_eq!(sum(Category::performances), Performance::all().len());
        assert_eq!(sum(Category::events), EVENTS.len());
    }
}
