//! Links and switches, the same for all cards: packets go hop by hop and queue where a link is
//! busy.
//!
//! Links are full duplex. Switching is cut-through: a packet's head goes on while its tail is still
//! on the previous link. Switches have unlimited buffers. Packets leave a queue in the order in
//! which they came.

use crate::kernel::{Kernel, Rank, Track};
use crate::platform::{self, Topology};
use crate::time::{Rate, Time};

/// A packet in flight. `T` is what its sender wants to know when it has arrived.
#[derive(Clone, Debug)]
pub struct Packet<T> {
    from: u32,
    to: u32,
    bytes: u64,
    hop: u8,
    owner: Rank,
    /// What it carries.
    pub payload: T,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// When it is free for the next packet.
    free: Time,
    /// How long it has been busy.
    busy: Time,
    bytes: u64,
    packets: u64,
}

/// How much a link was used.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// The link's name.
    pub name: String,
    /// Bytes carried, headers included.
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// How long it was busy.
    pub busy: Time,
}

/// All links of a machine.
pub struct Network {
    topology: Topology,
    rate: Rate,
    /// A link's delay.
    latency: Time,
    /// A switch's delay.
    switch_latency: Time,
    /// Bytes that each packet has besides.
    header_bytes: u64,
    packet_max: u64,
    nodes: u32,
    /// Nodes on a leaf switch.
    leaf_nodes: u32,
    /// Links from a leaf switch up.
    uplinks: u32,
    links: Vec<Link>,
}

impl Network {
    /// The links that join `nodes` nodes.
    pub fn new(figures: &platform::Network, nodes: u32) -> Network {
        let leaf = figures.leaf.as_ref().map_or(1, |l| l.value.0.max(1));
        let mut network = Network {
            topology: figures.topology,
            rate: figures.link.value,
            latency: figures.latency.value,
            switch_latency: figures.switch.as_ref().map_or(Time::ZERO, |s| s.value),
            header_bytes: figures.header.as_ref().map_or(0, |h| h.value.0),
            packet_max: figures.packet.value.0,
            nodes,
            leaf_nodes: leaf,
            uplinks: figures.uplinks.as_ref().map_or(leaf, |u| u.value.0),
            links: Vec::new(),
        };
        network.links = vec![Link::default(); network.count()];
        network
    }

    fn leaves(&self) -> u32 {
        self.nodes.div_ceil(self.leaf_nodes)
    }

    fn count(&self) -> usize {
        let n = self.nodes as usize;
        match self.topology {
            Topology::Direct => n * n,
            Topology::Switch => 2 * n,
            Topology::Tree => 2 * n + 2 * (self.leaves() * self.uplinks) as usize,
        }
    }

    /// The links from one node to another, in order.
    fn route(&self, from: u32, to: u32) -> ([u32; 4], u8) {
        let n = self.nodes;
        match self.topology {
            Topology::Direct => ([from * n + to, 0, 0, 0], 1),
            Topology::Switch => ([from, n + to, 0, 0], 2),
            Topology::Tree if from / self.leaf_nodes == to / self.leaf_nodes => {
                ([from, n + to, 0, 0], 2)
            }
            Topology::Tree => {
                // The receiver fixes the uplink, so packets between two nodes stay in order.
                let uplink = to % self.uplinks;
                let up = 2 * n + from / self.leaf_nodes * self.uplinks + uplink;
                let down = 2 * n + (self.leaves() + to / self.leaf_nodes) * self.uplinks + uplink;
                ([from, up, down, n + to], 4)
            }
        }
    }

    /// The longest packet without its header, bytes.
    pub fn packet_max(&self) -> u64 {
        self.packet_max
    }

    /// The least time from one node to another.
    pub fn latency(&self) -> Time {
        self.latency
    }

    /// The links' names, by number.
    pub fn names(&self) -> Vec<String> {
        (0..self.count() as u32).map(|n| self.name(n)).collect()
    }

    fn name(&self, link: u32) -> String {
        let n = self.nodes;
        if self.topology == Topology::Direct {
            return format!("node {} to node {}", link / n, link % n);
        }
        let leaf = |l: u32| {
            if self.topology == Topology::Tree {
                format!("switch {}", l / self.leaf_nodes)
            } else {
                "switch".into()
            }
        };
        match link {
            l if l < n => format!("node {l} to {}", leaf(l)),
            l if l < 2 * n => format!("{} to node {}", leaf(l - n), l - n),
            l => {
                let l = l - 2 * n;
                let (switch, uplink) = (l / self.uplinks, l % self.uplinks);
                match switch.checked_sub(self.leaves()) {
                    None => format!("switch {switch} up, {uplink}"),
                    Some(switch) => format!("down to switch {switch}, {uplink}"),
                }
            }
        }
    }

    /// Puts a packet of `bytes` bytes onto its first link, at `time` or when the link is free.
    /// `wrap` makes an event of the packet. `owner` orders it among events of the same instant.
    /// Returns when the packet's tail has left the sender.
    pub fn send<E, T: Clone>(
        &mut self,
        kernel: &mut Kernel<E>,
        time: Time,
        (from, to): (u32, u32),
        (owner, bytes): (Rank, u64),
        payload: T,
        wrap: impl Fn(Packet<T>) -> E,
    ) -> Time {
        let packet = Packet {
            from,
            to,
            bytes: bytes + self.header_bytes,
            hop: 0,
            owner,
            payload,
        };
        self.enter_link(kernel, time, packet, wrap)
    }

    /// A packet's event is due: the packet goes on to its next link. If it has arrived, returns its
    /// payload.
    pub fn forward<E, T: Clone>(
        &mut self,
        kernel: &mut Kernel<E>,
        packet: Packet<T>,
        wrap: impl Fn(Packet<T>) -> E,
    ) -> Option<T> {
        let (_, hops) = self.route(packet.from, packet.to);
        if packet.hop >= hops {
            return Some(packet.payload);
        }
        let now = kernel.now();
        self.enter_link(kernel, now, packet, wrap);
        None
    }

    fn enter_link<E, T>(
        &mut self,
        kernel: &mut Kernel<E>,
        time: Time,
        mut packet: Packet<T>,
        wrap: impl Fn(Packet<T>) -> E,
    ) -> Time {
        let (route, hops) = self.route(packet.from, packet.to);
        let number = route[usize::from(packet.hop)];
        let duration = self.rate.time_of(packet.bytes);
        let link = &mut self.links[number as usize];
        let began = time.max(link.free);
        link.free = began + duration;
        link.busy += duration;
        link.bytes += packet.bytes;
        link.packets += 1;
        let left = link.free;
        if kernel.is_traced() {
            let name = format!("node {} to {}, {} B", packet.from, packet.to, packet.bytes);
            kernel.span(Track::Link(number), &name, began, left);
        }
        packet.hop += 1;
        // The next event is the head's at the next link, or the tail's at the receiver's card.
        let next = match packet.hop == hops {
            false => began + self.latency + self.switch_latency,
            true => left + self.latency,
        };
        let owner = packet.owner;
        kernel.schedule_at(next, owner, wrap(packet));
        left
    }

    /// How much the links were used. Those that were not are left out.
    pub fn usage(&self) -> Vec<LinkUse> {
        let used = (0..).zip(&self.links).filter(|(_, l)| l.packets > 0);
        used.map(|(number, l)| LinkUse {
            name: self.name(number),
            bytes: l.bytes,
            packets: l.packets,
            busy: l.busy,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
