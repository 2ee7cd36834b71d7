//! Routes by what their links are called, and times of packets that share links.

use super::*;
use crate::kernel::{Client, InvalidCommand, Model, ModelSegment, Observers, Server};
use crate::machine;
use crate::platform::{Count, Figure};
use rustc_hash::FxHashSet;
use std::thread;

/// The network of the machine cluster40, as a tree.
fn tree(leaf: u32, uplinks: u32) -> platform::Network {
    let (file, text) = machine::find("cluster40").unwrap();
    let mut figures = machine::read(&file, &text).unwrap().platform.network;
    figures.topology = Topology::Tree;
    figures.leaf = Some(Figure::of(Count(leaf)));
    figures.uplinks = Some(Figure::of(Count(uplinks)));
    figures
}

#[test]
fn routes_through_a_tree_go_up_and_down_once() {
    // The last leaf switch has two nodes only.
    let (nodes, leaf, uplinks) = (10, 4, 3);
    let network = Network::new(&tree(leaf, uplinks), nodes);
    let names = network.names();
    assert_eq!(names.iter().collect::<FxHashSet<_>>().len(), names.len());
    let mut used = FxHashSet::default();
    for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
        let (route, hops) = network.route(from, to);
        let links = &route[..usize::from(hops)];
        used.extend(links.iter().copied());
        let said: Vec<&str> = links.iter().map(|l| names[*l as usize].as_str()).collect();
        let (near, far) = (from / leaf, to / leaf);
        let mut expected = vec![format!("node {from} to switch {near}")];
        if near != far {
            let way = to % uplinks;
            expected.push(format!("switch {near} up, {way}"));
            expected.push(format!("down to switch {far}, {way}"));
        }
        expected.push(format!("switch {far} to node {to}"));
        assert_eq!(said, expected);
    }
    // Two nodes need two ways down.
    let unused = (0..).zip(&names).filter(|(l, _)| !used.contains(l));
    let unused: Vec<&str> = unused.map(|(_, name)| name.as_str()).collect();
    assert_eq!(unused, ["down to switch 2, 1"]);
}

#[test]
fn without_a_word_on_uplinks_a_leaf_has_one_for_each_node() {
    let mut figures = tree(4, 1);
    figures.uplinks = None;
    let network = Network::new(&figures, 8);
    assert_eq!(network.names().len(), 2 * 8 + 2 * 2 * 4);
    assert_ne!(network.route(0, 4).0[1], network.route(1, 5).0[1]);
}

/// Ranks are nodes. A command (receiver, bytes) is a packet; who gets it is told.
struct Wires(Network);

impl Model for Wires {
    type Event = Packet<u32>;

    fn command(
        &mut self,
        from: Rank,
        _kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<Packet<u32>>,
    ) -> Result<(), InvalidCommand> {
        let &[to, hundreds] = bytes else {
            return Err(InvalidCommand("no packet"));
        };
        let (to, now) = (u32::from(to), kernel.now());
        let what = (from, u64::from(hundreds) * 100);
        self.0.send(kernel, now, (from, to), what, to, |p| p);
        Ok(())
    }

    fn event(&mut self, packet: Packet<u32>, kernel: &mut Kernel<Packet<u32>>) {
        if let Some(to) = self.0.forward(kernel, packet, |p| p) {
            kernel.notify(to, 1, &[]);
        }
    }

    fn observers(&self, _packet: &Packet<u32>) -> Observers {
        Observers::All(Time::ZERO)
    }
}

/// When packets of so many hundred bytes arrive that leave at the same time, by receiver; and what
/// the links were used for.
fn arrivals(
    figures: &platform::Network,
    nodes: u32,
    packets: &[(u32, u32, u8)],
) -> (Vec<Time>, Vec<LinkUse>) {
    let segment = ModelSegment::create(nodes, 0, b"").unwrap();
    let wires = Wires(Network::new(figures, nodes));
    let server = Server::new(segment.clone(), wires, None);
    thread::scope(|s| {
        let running = s.spawn(|| server.run(|_| {}));
        let ranks: Vec<_> = (0..nodes)
            .map(|me| {
                let segment = segment.clone();
                s.spawn(move || {
                    let mut client = Client::join(segment, me);
                    for (_, to, hundreds) in packets.iter().filter(|p| p.0 == me) {
                        client.command(1, &[&[*to as u8, *hundreds]]);
                    }
                    let mut last = Time::ZERO;
                    for _ in packets.iter().filter(|p| p.1 == me) {
                        while client.event().is_none() {
                            client.wait(Time::ZERO);
                        }
                        last = client.now();
                    }
                    client.leave();
                    last
                })
            })
            .collect();
        let times = ranks.into_iter().map(|r| r.join().unwrap()).collect();
        segment.close();
        let ended = running.join().unwrap();
        assert!(ended.invalid.is_none());
        (times, ended.model.0.usage())
    })
}

#[test]
fn packets_that_share_an_uplink_wait_for_each_other() {
    let figures = tree(4, 2);
    let hop = figures.latency.value + figures.switch.as_ref().unwrap().value;
    let header = figures.header.as_ref().unwrap().value.0;
    let takes = |bytes: u64| figures.link.value.time_of(bytes + header);
    let across = |bytes| hop * 3 + takes(bytes) + figures.latency.value;

    // Within a leaf two links, to another one four; cut-through: the packet's own time counts once.
    let (times, used) = arrivals(&figures, 8, &[(0, 1, 10), (2, 7, 20)]);
    assert_eq!(times[1], hop + takes(1000) + figures.latency.value);
    assert_eq!(times[7], across(2000));
    assert_eq!(used.len(), 6);

    // Receivers 4 and 5 are reached by different uplinks, 4 and 6 by the same one.
    let (times, _) = arrivals(&figures, 8, &[(0, 4, 10), (1, 5, 10)]);
    assert_eq!((times[4], times[5]), (across(1000), across(1000)));
    let (times, used) = arrivals(&figures, 8, &[(0, 4, 10), (1, 6, 10)]);
    assert_eq!(times[4], across(1000), "the lower rank goes first");
    assert_eq!(times[6], across(1000) + takes(1000));
    let up = used.iter().find(|l| l.name == "switch 0 up, 0").unwrap();
    assert_eq!((up.packets, up.busy), (2, takes(1000) * 2));

    // Opposite directions do not meet.
    let (times, _) = arrivals(&figures, 8, &[(0, 4, 10), (4, 0, 10)]);
    assert_eq!((times[0], times[4]), (across(1000), across(1000)));

    // Four senders of one leaf to one receiver: its links are what they share.
    let four: Vec<_> = (0..4).map(|from| (from, 4, 10)).collect();
    let (times, _) = arrivals(&figures, 8, &four);
    assert_eq!(times[4], across(1000) + takes(1000) * 3);
}
