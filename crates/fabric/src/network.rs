//! Links and switches: packets go hop by hop, and wait where a link is busy.
//!
//! Links are full duplex. A packet's head goes on while its tail is still on the link before
//! (cut-through). Switches have room for what waits; what waits goes in the order in which it came.

use crate::kernel::Track;
use crate::machine::{Network as Figures, Topology};
use crate::{Kernel, Rank, Rate, Time};

/// A packet on its way; `T` is what its owner wants to know when it is there.
#[derive(Clone, Debug)]
pub struct Packet<T> {
    from: u32,
    to: u32,
    bytes: u64,
    hop: u8,
    owner: Rank,
    /// What it carries.
    pub cargo: T,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    free: Time,
    busy: Time,
    bytes: u64,
    packets: u64,
}

/// How much a link was used.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// What it is called.
    pub name: String,
    /// Bytes that went by, headers included.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// How long it was busy.
    pub busy: Time,
}

/// All links of a machine.
pub struct Network {
    topology: Topology,
    rate: Rate,
    latency: Time,
    switch: Time,
    header: u64,
    /// The longest packet, bytes.
    pub packet: u64,
    nodes: u32,
    leaf: u32,
    uplinks: u32,
    links: Vec<Link>,
}

impl Network {
    /// For `nodes` nodes.
    pub fn new(figures: &Figures, nodes: u32) -> Network {
        let leaf = figures.leaf.as_ref().map_or(1, |l| l.value.0.max(1));
        let mut network = Network {
            topology: figures.topology,
            rate: figures.link.value,
            latency: figures.latency.value,
            switch: figures.switch.as_ref().map_or(Time::ZERO, |s| s.value),
            header: figures.header.as_ref().map_or(0, |h| h.value.0),
            packet: figures.packet.value.0,
            nodes,
            leaf,
            uplinks: figures.uplinks.as_ref().map_or(leaf, |u| u.value.0),
            links: Vec::new(),
        };
        network.links = vec![Link::default(); network.count()];
        network
    }

    fn leaves(&self) -> u32 {
        self.nodes.div_ceil(self.leaf)
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
            Topology::Tree if from / self.leaf == to / self.leaf => ([from, n + to, 0, 0], 2),
            Topology::Tree => {
                // Fixed by the receiver: packets between two nodes stay in order.
                let way = to % self.uplinks;
                let up = 2 * n + from / self.leaf * self.uplinks + way;
                let down = 2 * n + (self.leaves() + to / self.leaf) * self.uplinks + way;
                ([from, up, down, n + to], 4)
            }
        }
    }

    /// The least time from one node to another.
    pub fn latency(&self) -> Time {
        self.latency
    }

    /// What links are called, by number.
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
                format!("switch {}", l / self.leaf)
            } else {
                "switch".into()
            }
        };
        match link {
            l if l < n => format!("node {l} to {}", leaf(l)),
            l if l < 2 * n => format!("{} to node {}", leaf(l - n), l - n),
            l => {
                let l = l - 2 * n;
                let (switch, way) = (l / self.uplinks, l % self.uplinks);
                match switch.checked_sub(self.leaves()) {
                    None => format!("switch {switch} up, {way}"),
                    Some(switch) => format!("down to switch {switch}, {way}"),
                }
            }
        }
    }

    /// Puts a packet of `bytes` bytes onto its first link, at `time` or when that is free. `wrap`
    /// makes the kernel's event of it; `owner` orders it among others of the same instant.
    /// Returns when its tail has left.
    pub fn send<E, T: Clone>(
        &mut self,
        kernel: &mut Kernel<E>,
        time: Time,
        (from, to): (u32, u32),
        (owner, bytes): (Rank, u64),
        cargo: T,
        wrap: impl Fn(Packet<T>) -> E,
    ) -> Time {
        let packet = Packet {
            from,
            to,
            bytes: bytes + self.header,
            hop: 0,
            owner,
            cargo,
        };
        self.pass(kernel, time, packet, wrap)
    }

    /// What was set for now has come: the packet goes on, or is there, and then is returned.
    pub fn due<E, T: Clone>(
        &mut self,
        kernel: &mut Kernel<E>,
        packet: Packet<T>,
        wrap: impl Fn(Packet<T>) -> E,
    ) -> Option<T> {
        let (_, hops) = self.route(packet.from, packet.to);
        if packet.hop >= hops {
            return Some(packet.cargo);
        }
        let now = kernel.now();
        self.pass(kernel, now, packet, wrap);
        None
    }

    fn pass<E, T>(
        &mut self,
        kernel: &mut Kernel<E>,
        time: Time,
        mut packet: Packet<T>,
        wrap: impl Fn(Packet<T>) -> E,
    ) -> Time {
        let (route, hops) = self.route(packet.from, packet.to);
        let number = route[usize::from(packet.hop)];
        let takes = self.rate.time_of(packet.bytes);
        let link = &mut self.links[number as usize];
        let began = time.max(link.free);
        link.free = began + takes;
        link.busy += takes;
        link.bytes += packet.bytes;
        link.packets += 1;
        let left = link.free;
        if kernel.traced() {
            let name = format!("node {} to {}, {} B", packet.from, packet.to, packet.bytes);
            kernel.span(Track::Link(number), &name, began, left);
        }
        packet.hop += 1;
        // The head is at the next link, or the tail at the receiver's card.
        let next = match packet.hop == hops {
            false => began + self.latency + self.switch,
            true => left + self.latency,
        };
        let owner = packet.owner;
        kernel.at(next, owner, wrap(packet));
        left
    }

    /// What the links were used for; those that were not are left out.
    pub fn used(&self) -> Vec<LinkUse> {
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
