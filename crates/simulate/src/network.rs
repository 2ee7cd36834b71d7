//! Networks of switches: which links a message crosses. Every link carries one message at a time in
//! each direction, and messages wait for it in the order in which they come.

use crate::Error;

/// Seconds that a message's head takes over a link and the switch behind it. An estimate: current
/// switches take 0.1 to 0.3 µs a hop.
pub const LINK_LATENCY_S: f64 = 0.2e-6;

/// Nodes on a leaf switch of a fat tree.
const LEAF_NODES: u32 = 32;
/// Leaf switches of a pod.
const POD_LEAVES: u32 = 16;

/// A network. Nodes have numbers from 0; each is joined to one switch by one link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    nodes: u32,
    shape: Shape,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Shape {
    FatTree(FatTree),
    Dragonfly(Dragonfly),
}

/// Leaf switches, pods of leaves, and a core. The link of a node, of a leaf to its pod and of a pod
/// to the core is chosen by the destination (D-mod-k), so that messages to one node share a way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FatTree {
    leaves: u32,
    pods: u32,
    /// Links from a leaf up, in each direction.
    leaf_up: u32,
    /// Links from a pod up.
    pod_up: u32,
}

/// Groups of `routers` routers, each with `nodes` nodes; the routers of a group are joined each to
/// each, and groups by one link at least. Messages take the shortest way.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Dragonfly {
    nodes: u32,
    routers: u32,
    groups: u32,
    /// Links between two groups, in each direction.
    between: u32,
}

impl Network {
    /// A fat tree of three levels for at least `nodes` nodes: 32 nodes a leaf, 16 leaves a pod.
    /// `taper` nodes share each link from a leaf up; above it nothing is tapered.
    ///
    /// Errors: Zero.
    pub fn fat_tree(nodes: u32, taper: u32) -> Result<Network, Error> {
        not_zero("the number of nodes", nodes)?;
        not_zero("the taper", taper)?;
        let leaf_up = (LEAF_NODES / taper).max(1);
        let leaves = nodes.div_ceil(LEAF_NODES);
        let tree = FatTree {
            leaves,
            pods: leaves.div_ceil(POD_LEAVES),
            leaf_up,
            pod_up: leaf_up * POD_LEAVES,
        };
        Ok(Network {
            nodes: leaves * LEAF_NODES,
            shape: Shape::FatTree(tree),
        })
    }

    /// A balanced dragonfly (Kim et al. 2008: a router has p nodes, 2p - 1 routers of its group and
    /// p links to other groups) for at least `nodes` nodes, with as few nodes a router as do.
    ///
    /// Errors: Zero.
    pub fn dragonfly(nodes: u32) -> Result<Network, Error> {
        not_zero("the number of nodes", nodes)?;
        let full = |p: u32| 2 * p * p * (2 * p * p + 1);
        let p = (2..=64).find(|&p| full(p) >= nodes).unwrap_or(64);
        let group_nodes = 2 * p * p;
        let groups = nodes.div_ceil(group_nodes);
        let between = match groups {
            1 => 1,
            _ => (group_nodes / (groups - 1)).max(1),
        };
        let shape = Dragonfly {
            nodes: p,
            routers: 2 * p,
            groups,
            between,
        };
        Ok(Network {
            nodes: groups * group_nodes,
            shape: Shape::Dragonfly(shape),
        })
    }

    /// Nodes that it has room for.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The network's parts, in a line.
    pub fn describe(&self) -> String {
        match &self.shape {
            Shape::FatTree(t) => format!(
                "fat tree: {LEAF_NODES} nodes and {} links up a leaf, {POD_LEAVES} leaves a pod, \
                 {} leaves, {} pods",
                t.leaf_up, t.leaves, t.pods
            ),
            Shape::Dragonfly(d) => format!(
                "dragonfly: {} nodes a router, {} routers a group, {} groups, {} links between two",
                d.nodes, d.routers, d.groups, d.between
            ),
        }
    }

    /// Number of links, one for each direction.
    pub(crate) fn links(&self) -> usize {
        let ends = 2 * self.nodes as usize;
        ends + match &self.shape {
            Shape::FatTree(t) => {
                2 * (t.leaves as usize * t.leaf_up as usize + t.pods as usize * t.pod_up as usize)
            }
            Shape::Dragonfly(d) => {
                let groups = d.groups as usize;
                let routers = d.routers as usize;
                groups * routers * routers + groups * groups * d.between as usize
            }
        }
    }

    /// Puts the links from one node to another into `way`, which is emptied. Links `2 * n` and
    /// `2 * n + 1` join node n, out and in.
    pub(crate) fn route(&self, from: u32, to: u32, way: &mut Vec<u32>) {
        way.clear();
        way.push(2 * from);
        match &self.shape {
            Shape::FatTree(t) => t.route(2 * self.nodes, from, to, way),
            Shape::Dragonfly(d) => d.route(2 * self.nodes, from, to, way),
        }
        way.push(2 * to + 1);
    }
}

fn not_zero(what: &'static str, n: u32) -> Result<(), Error> {
    if n == 0 {
        Err(Error::Zero(what))
    } else {
        Ok(())
    }
}

impl FatTree {
    fn route(&self, first: u32, from: u32, to: u32, way: &mut Vec<u32>) {
        let (leaf, to_leaf) = (from / LEAF_NODES, to / LEAF_NODES);
        if leaf == to_leaf {
            return;
        }
        let up = to % self.leaf_up;
        let leaf_link = |leaf: u32, down: u32| first + 2 * (leaf * self.leaf_up + up) + down;
        let (pod, to_pod) = (leaf / POD_LEAVES, to_leaf / POD_LEAVES);
        way.push(leaf_link(leaf, 0));
        if pod != to_pod {
            let first = first + 2 * self.leaves * self.leaf_up;
            let up = to % self.pod_up;
            let pod_link = |pod: u32, down: u32| first + 2 * (pod * self.pod_up + up) + down;
            way.push(pod_link(pod, 0));
            way.push(pod_link(to_pod, 1));
        }
        way.push(leaf_link(to_leaf, 1));
    }
}

impl Dragonfly {
    fn route(&self, first: u32, from: u32, to: u32, way: &mut Vec<u32>) {
        let (router, to_router) = (from / self.nodes, to / self.nodes);
        let (group, to_group) = (router / self.routers, to_router / self.routers);
        let inside = |a: u32, b: u32| first + a * self.routers + b % self.routers;
        if group == to_group {
            if router != to_router {
                way.push(inside(router, to_router));
            }
            return;
        }
        // The links between two groups are spread over the routers, and chosen by the destination.
        let which = to % self.between;
        let exit = group * self.routers + self.gate(group, to_group, which);
        let entry = to_group * self.routers + self.gate(to_group, group, which);
        if router != exit {
            way.push(inside(router, exit));
        }
        let global = first + self.groups * self.routers * self.routers;
        way.push(global + (group * self.groups + to_group) * self.between + which);
        if entry != to_router {
            way.push(inside(entry, to_router));
        }
    }

    /// The router of `group`, by its number in the group, with link `which` to `other`.
    fn gate(&self, group: u32, other: u32, which: u32) -> u32 {
        let distance = (other + self.groups - group) % self.groups - 1;
        (distance * self.between + which) % self.routers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn networks(nodes: u32) -> [Network; 3] {
        [
            Network::fat_tree(nodes, 1).unwrap(),
            Network::fat_tree(nodes, 4).unwrap(),
            Network::dragonfly(nodes).unwrap(),
        ]
    }

    proptest! {
        #[test]
        fn ways_use_links_that_exist_none_twice(
            nodes in 1u32..70_000, from in 0u32..70_000, to in 0u32..70_000,
        ) {
            for network in networks(nodes) {
                let (from, to) = (from % nodes, to % nodes);
                prop_assert!(network.nodes() >= nodes);
                let mut way = Vec::new();
                network.route(from, to, &mut way);
                prop_assert!(way.iter().all(|&l| (l as usize) < network.links()));
                let mut links = way.clone();
                links.sort_unstable();
                links.dedup();
                prop_assert_eq!(links.len(), way.len());
                prop_assert!(way.len() <= 6, "{:?}", way);
            }
        }
    }

    #[test]
    fn two_directions_and_two_destinations_share_nothing_in_a_full_tree() {
        let tree = Network::fat_tree(1024, 1).unwrap();
        let way = |from, to| {
            let mut way = Vec::new();
            tree.route(from, to, &mut way);
            way
        };
        assert_eq!(way(0, 1).len(), 2);
        assert_eq!(way(0, 40).len(), 4);
        assert_eq!(way(0, 1000).len(), 6);
        let used: Vec<u32> = way(0, 40);
        assert!(way(40, 0).iter().all(|l| !used.contains(l)));
        assert!(way(1, 41).iter().all(|l| !used.contains(l)));
    }

    #[test]
    fn a_tapered_leaf_has_fewer_links_up() {
        let tree = Network::fat_tree(64, 8).unwrap();
        let mut ups = std::collections::BTreeSet::new();
        let mut way = Vec::new();
        for node in 0..32 {
            tree.route(node, 32 + node, &mut way);
            ups.insert(way[1]);
        }
        assert_eq!(ups.len(), 4);
    }

    #[test]
    fn no_network_without_nodes() {
        assert_eq!(
            Network::fat_tree(0, 1),
            Err(Error::Zero("the number of nodes"))
        );
        assert_eq!(Network::fat_tree(8, 0), Err(Error::Zero("the taper")));
        assert_eq!(
            Network::dragonfly(0),
            Err(Error::Zero("the number of nodes"))
        );
    }
}
