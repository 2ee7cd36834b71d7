//! MPI's driver: the transport's messages on the MX level, as MPICH's `mx` network module has it.
//!
//! Each message of the transport is a small MX message to endpoint 0, for which receives are always
//! posted. The body of a large message is an MX message of its own, between the memory of both
//! programs. MPI's RTS and CTS are its rendezvous: before the CTS goes, the receiver opens a
//! dedicated queue, and the CTS carries the mailbox. While no queue is free the CTS goes without
//! one, and MX sends the mailbox later.

use super::control::{User, UserMemory};
use super::ethernet::SecondUser;
use super::levels;
use super::lower::LowerLevel;
use super::mx::{Address, Endpoint, Grant, Match, Mx, Request, SendMode};
use super::remote::Remote;
use crate::driver::{Body, Driver, Expected, Interface, Limits, Malformed, Upcall, deliver_stream};
use crate::kernel::{Client, Rank};
use crate::platform::{Cpu, Platform};
use crate::rapidio::figures::Figures;
use crate::remote_memory::RemoteMemory;
use crate::time::Time;
use rustc_hash::FxHashMap;
use staging::Staging;
use std::collections::VecDeque;

/// Match bits of the transport's messages.
const MESSAGE_BITS: u64 = 1;

/// Bytes that a message has room for besides the transport's largest: packet head, grant, and the
/// head of the body that a CTS asks for.
const PACKET_HEAD_MAX_BYTES: usize = 512;

/// Most bytes of the head of a body that goes through a dedicated queue.
const BODY_HEAD_MAX_BYTES: usize = 255;

/// First byte of a packet: a message of the transport. Its number follows.
const PLAIN: u8 = 0;
/// As [`PLAIN`], a CTS. The number of a receive follows, and what it is for.
const WITH_RECEIVE: u8 = 1;
/// As [`WITH_RECEIVE`]. A grant follows the number.
const WITH_GRANT: u8 = 2;

/// Receives that are posted for the transport's messages. A message that finds one of them is not
/// copied as an unexpected one.
const RECEIVES: usize = 64;

/// A receive that is posted for a message of the transport.
struct Posted {
    request: Request,
    memory: Box<[u8]>,
}

/// The body of a large message, as a CTS asks for it.
struct LargeBody {
    message: u8,
    head: Vec<u8>,
    bytes: usize,
}

impl LargeBody {
    fn is(&self, message: u8, head: &[u8]) -> bool {
        self.message == message && self.head == head
    }
}

/// A body that is being received.
struct Incoming {
    from: Rank,
    body: LargeBody,
    request: Request,
    /// Takes the bytes if they do not belong into one run.
    scattered: Option<Staging>,
}

/// A body that was asked for.
struct Outgoing {
    to: Rank,
    body: LargeBody,
    /// The receiver's number for it.
    receive: u32,
    /// The send, once it has begun.
    request: Option<Request>,
    /// Bytes that the transport knows to be sent.
    reported: usize,
    /// Address of the first byte behind these.
    next: usize,
    /// The bytes that have come in parts, if they do not lie in one run.
    packed: Option<Staging>,
}

/// MPI's driver.
pub struct RapidioDriver {
    mx: Mx<LowerLevel>,
    endpoint: Endpoint,
    cpu: Cpu,
    eager_max: usize,
    /// The receives that are posted for the transport's messages, oldest first.
    posted: VecDeque<Posted>,
    /// Memory for more of them.
    free: Vec<Box<[u8]>>,
    /// By peer: the next message asks it for this body, to be stored at the address.
    next_cts: FxHashMap<Rank, (LargeBody, Option<usize>)>,
    incoming: Vec<Incoming>,
    /// In the order in which they were asked for. Two to a peer can have the same head: the
    /// receiver may have all of one, and ask for the next, before this side has noticed that the
    /// first is done.
    outgoing: Vec<Outgoing>,
    /// What went wrong in a call that returns no error.
    error: Option<Malformed>,
    /// The control level's user for frames.
    frames: User,
    /// A network interface whose frames go beside MPI's messages.
    second_user: Option<SecondUser>,
    remote: Remote,
}

impl RapidioDriver {
    /// The driver of rank `me`.
    pub fn new(platform: &Platform, f: &Figures, me: Rank) -> RapidioDriver {
        let eager_max = f.small.value.0 as usize;
        let mut mx = levels::mx_level(platform, f, me, eager_max + PACKET_HEAD_MAX_BYTES);
        let frames = mx.control().register_user();
        let remote = Remote::new(platform, f, mx.control().register_user());
        RapidioDriver {
            endpoint: mx.open_first(),
            cpu: platform.cpu.clone(),
            eager_max,
            posted: VecDeque::new(),
            free: (0..RECEIVES)
                .map(|_| vec![0; mx.eager_max()].into())
                .collect(),
            mx,
            next_cts: FxHashMap::default(),
            incoming: Vec::new(),
            outgoing: Vec::new(),
            error: None,
            frames,
            second_user: None,
            remote,
        }
    }

    fn charge_copy(&self, c: &mut Client, bytes: usize) {
        let cost = self.cpu.copy.value.time_of(bytes as u64);
        c.charge("MPI: copying", cost);
    }

    /// The peer's address. All ranks open the same endpoint.
    fn address(&self, rank: Rank) -> Address {
        Address {
            rank,
            endpoint: self.endpoint.number(),
        }
    }

    /// Sends a message of the transport.
    fn send_packet(&mut self, c: &mut Client, to: Rank, packet: &[u8]) {
        debug_assert!(packet.len() <= self.mx.eager_max());
        let (to, memory) = (self.address(to), UserMemory::of(packet));
        // SAFETY: it is no longer than the longest eager message, so it is copied at once.
        let sent = unsafe {
            let mode = SendMode::Standard;
            self.mx
                .isend(c, self.endpoint, to, MESSAGE_BITS, memory, mode)
        };
        let status = self.mx.test(sent);
        debug_assert!(status.is_some(), "an eager send is done at once");
    }

    /// Posts the receive for a body. Appends its number, its grant, and what it is for to the
    /// packet that carries the CTS.
    fn start_receive(
        &mut self,
        c: &mut Client,
        from: Rank,
        (body, address): (LargeBody, Option<usize>),
        packet: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let bytes = body.bytes;
        let mut scattered = None;
        let memory = match address {
            Some(address) => UserMemory { address, bytes },
            None => scattered.insert(Staging::zeroed(bytes)).receive_memory(),
        };
        let address = self.address(from);
        // SAFETY: `before_cts` says that the memory is valid until the body has come, or it is
        // `scattered`, which lives as long as the request.
        let received = unsafe { self.mx.receive_granted(c, self.endpoint, address, memory) };
        let (request, grant) = received?;
        packet[0] = match grant {
            Some(_) => WITH_GRANT,
            None => WITH_RECEIVE,
        };
        packet.extend(self.mx.number(request).to_le_bytes());
        packet.extend(grant.iter().flat_map(Grant::encode));
        packet.extend((bytes as u64).to_le_bytes());
        packet.extend([body.message, body.head.len() as u8]);
        packet.extend(&body.head);
        self.incoming.push(Incoming {
            from,
            body,
            request,
            scattered,
        });
        Ok(())
    }

    /// Adds a part of a body that does not lie in one run. Sends the body when all parts are there.
    fn pack(&mut self, c: &mut Client, at: usize, part: Body<'_>) -> Result<(), Malformed> {
        self.charge_copy(c, part.len());
        let outgoing = &mut self.outgoing[at];
        let (to, bytes) = (outgoing.to, outgoing.body.bytes);
        let packed = match &mut outgoing.packed {
            Some(packed) => packed,
            none => none.insert(Staging::with_capacity(bytes).ok_or(Malformed(
                to,
                "asks for more bytes than this rank can allocate",
            ))?),
        };
        if part.len() > bytes - packed.len() {
            return Err(Malformed(to, "asks for fewer bytes than the body has"));
        }
        packed.append(part);
        if packed.len() < bytes {
            return Ok(());
        }
        let memory = packed.send_memory();
        self.start_send(c, at, memory)
    }

    /// Starts to send a body that was asked for.
    fn start_send(
        &mut self,
        c: &mut Client,
        at: usize,
        memory: UserMemory,
    ) -> Result<(), Malformed> {
        let (to, receive) = (self.outgoing[at].to, self.outgoing[at].receive);
        let to = self.address(to);
        // SAFETY: `stream` says that the memory is valid until all of it is taken, or it is
        // `packed`, which nothing is added to any more and which lives as long as the request.
        let sent = unsafe { self.mx.send_granted(c, self.endpoint, to, receive, memory) };
        self.outgoing[at].request = Some(sent?);
        Ok(())
    }

    /// Keeps the first error of a call that returns none.
    fn keep_error(&mut self, result: Result<(), Malformed>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }

    /// Posts receives for messages of the transport.
    fn post_receives(&mut self, c: &mut Client) -> Result<(), Malformed> {
        while let Some(mut memory) = self.free.pop() {
            let buffer = UserMemory {
                address: memory.as_mut_ptr().expose_provenance(),
                bytes: memory.len(),
            };
            let wanted = Match {
                bits: MESSAGE_BITS,
                mask: u64::MAX,
            };
            // SAFETY: `memory` is kept in `posted` until the receive has ended, and is not looked
            // at before.
            let request = unsafe { self.mx.irecv(c, self.endpoint, wanted, buffer)? };
            self.posted.push_back(Posted { request, memory });
        }
        Ok(())
    }

    /// Takes the messages of the transport that are there. Returns how many.
    fn take_packets(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Malformed> {
        let mut count = 0;
        loop {
            self.post_receives(c)?;
            let first = self.posted.front();
            let Some(status) = first.and_then(|p| self.mx.test(p.request)) else {
                return Ok(count);
            };
            let Some(posted) = self.posted.pop_front() else {
                return Ok(count);
            };
            count += 1;
            // A CTS is progress of a message that has been charged.
            if posted.memory.first() == Some(&PLAIN) {
                c.charge("MPI: receiving", self.cpu.receive.value);
            }
            let from = status.peer.rank;
            let taken = self.on_packet(from, &posted.memory[..status.bytes], up);
            self.free.push(posted.memory);
            taken.map_err(|what| Malformed(from, what))?;
        }
    }

    /// A message of the transport has come. The error says what is wrong with it.
    fn on_packet(
        &mut self,
        from: Rank,
        packet: &[u8],
        up: &mut dyn Upcall,
    ) -> Result<(), &'static str> {
        let parsed = Packet::parse(packet);
        let packet = parsed.ok_or("a message without the driver's head")?;
        if let Some(asked) = packet.asked {
            if let Some(grant) = asked.grant {
                self.mx.accept_grant(from, grant);
            }
            self.outgoing.push(Outgoing {
                to: from,
                body: asked.body,
                receive: asked.receive,
                request: None,
                reported: 0,
                next: 0,
                packed: None,
            });
        }
        up.on_message(from, packet.message, packet.bytes);
        Ok(())
    }

    /// Tells the transport of the bodies that have come. Returns how many.
    fn take_bodies(&mut self, c: &mut Client, up: &mut dyn Upcall) -> usize {
        let mut count = 0;
        let mut at = 0;
        while at < self.incoming.len() {
            if self.mx.test(self.incoming[at].request).is_none() {
                at += 1;
                continue;
            }
            let Incoming {
                from,
                body,
                scattered,
                ..
            } = self.incoming.remove(at);
            count += 1;
            match scattered {
                Some(staging) => {
                    let bytes = staging.as_slice();
                    self.charge_copy(c, bytes.len());
                    deliver_stream(up, from, body.message, &body.head, bytes);
                }
                None => up.stream_placed(from, body.message, &body.head, body.bytes),
            }
        }
        count
    }

    /// Forgets bodies that were sent from `packed`. The transport has known them as sent before.
    fn drop_packed(&mut self) {
        let mx = &mut self.mx;
        self.outgoing
            .retain(|o| !(o.packed.is_some() && o.request.is_some_and(|r| mx.test(r).is_some())));
    }
}

/// What a CTS asks for.
struct Asked {
    receive: u32,
    grant: Option<Grant>,
    body: LargeBody,
}

/// A packet, read.
struct Packet<'a> {
    message: u8,
    asked: Option<Asked>,
    bytes: &'a [u8],
}

impl Packet<'_> {
    /// Reads a packet. `None`: it is not one.
    fn parse(packet: &[u8]) -> Option<Packet<'_>> {
        let (&[kind, message], rest) = packet.split_first_chunk()?;
        if kind == PLAIN {
            return Some(Packet {
                message,
                asked: None,
                bytes: rest,
            });
        }
        let (receive, mut rest) = rest.split_first_chunk()?;
        let mut grant = None;
        if kind == WITH_GRANT {
            let (read, after) = Grant::parse(rest)?;
            (grant, rest) = (Some(read), after);
        } else if kind != WITH_RECEIVE {
            return None;
        }
        let receive = u32::from_le_bytes(*receive);
        let (bytes, rest) = rest.split_first_chunk()?;
        let (&[body, head_bytes], rest) = rest.split_first_chunk()?;
        let (head, rest) = rest.split_at_checked(head_bytes.into())?;
        let bytes = usize::try_from(u64::from_le_bytes(*bytes)).ok()?;
        if bytes == 0 || grant.is_some_and(|g| g.receive != receive) {
            return None;
        }
        let asked = Asked {
            receive,
            grant,
            body: LargeBody {
                message: body,
                head: head.to_vec(),
                bytes,
            },
        };
        Some(Packet {
            message,
            asked: Some(asked),
            bytes: rest,
        })
    }
}

impl Driver for RapidioDriver {
    fn limits(&self, _peer: Rank) -> Limits {
        Limits {
            message_max: self.eager_max,
            eager_max: self.eager_max,
        }
    }

    fn send(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: Body<'_>) -> bool {
        let packed = self
            .outgoing
            .iter()
            .position(|o| o.to == to && o.request.is_none() && o.body.is(message, head));
        if let Some(at) = packed {
            let result = self.pack(c, at, body);
            self.keep_error(result);
            return true;
        }
        if !self.mx.can_send() {
            return false;
        }
        let mut packet = vec![PLAIN, message];
        let cts = self.next_cts.remove(&to);
        if cts.is_none() {
            c.charge("MPI: sending", self.cpu.send.value);
        }
        if let Some(cts) = cts {
            let started = self.start_receive(c, to, cts, &mut packet);
            self.keep_error(started);
        }
        packet.extend_from_slice(head);
        body.append_to(&mut packet);
        self.send_packet(c, to, &packet);
        true
    }

    fn before_cts(&mut self, _c: &mut Client, from: Rank, what: &Expected<'_>) {
        let body = LargeBody {
            message: what.message,
            head: what.head.to_vec(),
            bytes: what.len,
        };
        if body.bytes > 0 && body.head.len() <= BODY_HEAD_MAX_BYTES {
            self.next_cts.insert(from, (body, what.address));
        }
    }

    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize {
        let address = body.as_ptr().addr();
        let is = |o: &Outgoing| o.to == to && o.packed.is_none() && o.body.is(message, head);
        // One that has begun, or the first that has not.
        let begun = |o: &Outgoing| is(o) && o.request.is_some() && o.next == address;
        let mut outgoing = self.outgoing.iter();
        let found = outgoing.position(begun).or_else(|| {
            let mut outgoing = self.outgoing.iter();
            outgoing.position(|o| is(o) && o.request.is_none())
        });
        let Some(at) = found else { return 0 };
        if self.outgoing[at].request.is_none() {
            let started = self.start_send(c, at, UserMemory::of(body));
            self.keep_error(started);
        }
        let Some(request) = self.outgoing[at].request else {
            return 0;
        };
        let sent = self.mx.bytes_sent(request);
        let taken = sent - self.outgoing[at].reported;
        self.outgoing[at].reported = sent;
        self.outgoing[at].next = address + taken;
        if self.mx.test(request).is_some() {
            self.outgoing.remove(at);
        }
        taken
    }

    fn streams_side_by_side(&self) -> bool {
        true
    }

    fn forget_peer(&mut self, c: &mut Client, peer: Rank) {
        self.mx.forget_peer(c, peer);
        self.next_cts.remove(&peer);
        self.incoming.retain(|body| body.from != peer);
        self.outgoing.retain(|body| body.to != peer);
        self.remote.forget(peer);
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Malformed> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.posted.is_empty() {
            self.mx.control().map_window(c);
            self.take_packets(c, up)?;
        }
        if c.begin_poll() {
            c.charge("lower level: polling", self.mx.poll_period());
            // An interface may have a frame, which the model does not know of.
            let known = self.mx.has_event() || self.second_user.is_some();
            if c.can_defer_poll() && !known {
                c.defer_poll();
                return Ok(0);
            }
            c.sync();
        }
        self.mx.progress(c)?;
        if let Some(user) = &mut self.second_user {
            user.run(c, self.mx.control())?;
        }
        let notified = self.remote.take_notifications(self.mx.control());
        let moved = self.take_packets(c, up)? + self.take_bodies(c, up) + notified;
        self.drop_packed();
        Ok(moved)
    }

    fn set_interface(&mut self, ports: u32, interface: Box<dyn Interface + Send>) {
        let control = self.mx.control();
        self.second_user = Some(SecondUser::new(self.frames, control, ports, interface));
    }

    fn settle(&mut self, _c: &mut Client) -> bool {
        self.mx.is_settled()
    }

    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        Some(self)
    }

    fn poll_period(&self) -> Time {
        self.mx.poll_period()
    }
}

mod remote_memory;
mod staging;
#[cfg(test)]
mod tests;
