//! Which rank is on which node, and the nodes' names.

use super::encoding::{hex, unhex};
use super::kvs::Kvs;
use crate::error::JobError;
use crate::job_context::host_name;
use std::collections::HashMap;
use std::hash::Hash;

/// Most nodes whose names are asked for. Each is a question to the launcher, and names only serve
/// messages.
const NAMED_NODES_MAX: usize = 512;

/// Each rank's node. Nodes are numbered from 0 in order of their lowest ranks.
pub(super) fn nodes(kvs: &mut dyn Kvs) -> Result<Vec<u32>, JobError> {
    let size = kvs.size() as usize;
    match kvs.nodes()? {
        Some(numbers) if numbers.len() == size => Ok(numbered(numbers)),
        _ => {
            // The launcher does not know, so host names tell. The boot id tells hosts of the same
            // name apart.
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
            let name = format!("{} {}", host_name(), boot.unwrap_or_default().trim());
            let me = kvs.rank();
            kvs.put(
                &format!("ferry-node-{me}"),
                &hex(&name.as_bytes()[..name.len().min(200)]),
            )?;
            kvs.fence()?;
            let names = (0..size as u32)
                .map(|rank| {
                    Ok(kvs
                        .get(rank, &format!("ferry-node-{rank}"))?
                        .unwrap_or_default())
                })
                .collect::<Result<Vec<String>, JobError>>()?;
            Ok(numbered(names))
        }
    }
}

/// Numbers each rank's node from 0, in the order in which they come first.
fn numbered<T: Eq + Hash>(node_of: Vec<T>) -> Vec<u32> {
    let mut known = HashMap::new();
    let numbers = node_of.into_iter().map(|node| {
        let next = known.len() as u32;
        *known.entry(node).or_insert(next)
    });
    numbers.collect()
}

/// The nodes' names, as their lowest ranks have put them.
pub(super) fn host_names(kvs: &mut dyn Kvs, node_of: &[u32]) -> Result<Vec<String>, JobError> {
    let mut leaders = Vec::new();
    for (rank, &node) in (0u32..).zip(node_of) {
        if node as usize == leaders.len() {
            leaders.push(rank);
        }
    }
    let ask = leaders.len() <= NAMED_NODES_MAX;
    let name = |(number, &leader): (usize, &u32)| {
        let named = if ask {
            kvs.get(leader, &format!("ferry-host-{leader}"))?
        } else {
            None
        };
        let named = named.and_then(|text| String::from_utf8(unhex(&text)?).ok());
        Ok(named.unwrap_or_else(|| format!("node {number}")))
    };
    leaders.iter().enumerate().map(name).collect()
}
