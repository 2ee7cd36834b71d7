//! Ports on a channel in memory, and on a machine's driver.

use super::*;
use crate::driver::{Body, Driver, Upcall};
use crate::kernel::ModelSegment;
use crate::machine;
use crate::time::Time;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// An interface whose host is the test.
#[derive(Default)]
struct Host {
    sends: VecDeque<Vec<u8>>,
    got: Vec<Vec<u8>>,
    refuses: bool,
}

impl Interface for Host {
    fn read(&mut self, frame: &mut [u8]) -> Option<usize> {
        let next = self.sends.pop_front()?;
        frame[..next.len()].copy_from_slice(&next);
        Some(next.len())
    }
    fn write(&mut self, frame: &[u8]) -> bool {
        self.got.push(frame.to_vec());
        !self.refuses
    }
}

/// Frames that were sent, and where to.
type Sent = Arc<Mutex<Vec<(Rank, Vec<u8>)>>>;

/// A channel that keeps what is sent, with room for `room` frames.
struct Kept {
    room: usize,
    sent: Sent,
    comes: Vec<Vec<u8>>,
}

impl FrameChannel for Kept {
    fn frame_bytes(&self) -> usize {
        1500
    }
    fn send(&mut self, _c: &mut Client, to: Rank, frame: &[u8]) -> bool {
        let mut sent = self.sent.lock().unwrap();
        let fits = sent.len() < self.room;
        if fits {
            sent.push((to, frame.to_vec()));
        }
        fits
    }
    fn poll(&mut self, _c: &mut Client, up: &mut dyn FnMut(Rank, &[u8])) -> Result<(), Malformed> {
        self.comes.drain(..).for_each(|frame| up(0, &frame));
        Ok(())
    }
    fn poll_period(&self) -> Time {
        Time::ZERO
    }
}

fn frame(to: Address, payload: &[u8]) -> Vec<u8> {
    let from = Address::of_port(0);
    [&to.0[..], &from.0, b"\x08\x00", payload].concat()
}

#[test]
fn a_frame_goes_to_its_port_and_others_to_all() {
    let segment = ModelSegment::create(4, 0, b"").unwrap();
    let mut client = Client::join(segment, 1);
    let sent = Sent::default();
    let mut channel = Kept {
        room: 3,
        sent: sent.clone(),
        comes: vec![frame(Address::of_port(1), b"comes")],
    };
    let mut port = Port::new(1, 4);
    let mut host = Host::default();
    let to_three = frame(Address::of_port(3), b"to three");
    let to_all = frame(Address([0xff; 6]), b"to all");
    let unknown = frame(Address::of_port(4), b"behind a port");
    let itself = frame(Address::of_port(1), b"to itself");
    host.sends = [&to_three, &itself, &to_all, &unknown]
        .map(Vec::clone)
        .into();
    host.sends.push_front(vec![1, 2, 3]);
    port.run(&mut client, &mut channel, &mut host).unwrap();
    assert_eq!(host.got, [frame(Address::of_port(1), b"comes")]);
    let taken = std::mem::take(&mut *sent.lock().unwrap());
    assert_eq!(
        taken,
        [(3, to_three), (0, to_all.clone()), (2, to_all.clone())]
    );
    // There was no room for the last copy. The rest follows when there is.
    port.run(&mut client, &mut channel, &mut host).unwrap();
    let taken = std::mem::take(&mut *sent.lock().unwrap());
    assert_eq!(
        taken,
        [(3, to_all), (0, unknown.clone()), (2, unknown.clone())]
    );
    port.run(&mut client, &mut channel, &mut host).unwrap();
    let bytes = 3 * 20 + 3 * 27 + 22;
    assert_eq!(*sent.lock().unwrap(), [(3, unknown)]);
    let carried = PortUse {
        sent: 7,
        sent_bytes: bytes,
        received: 1,
        lost: 0,
    };
    assert_eq!(port.carried(), carried);
}

#[test]
fn what_the_host_does_not_take_is_counted() {
    let segment = ModelSegment::create(2, 0, b"").unwrap();
    let mut client = Client::join(segment, 0);
    let mut channel = Kept {
        room: 0,
        sent: Arc::default(),
        comes: vec![vec![0; 60]; 5],
    };
    let mut port = Port::new(0, 2);
    let mut host = Host {
        refuses: true,
        ..Host::default()
    };
    port.run(&mut client, &mut channel, &mut host).unwrap();
    assert_eq!((port.carried().received, port.carried().lost), (5, 5));
}

/// The messages of a driver as a channel.
struct Messages(Box<dyn Driver>);

struct Frames<'a>(&'a mut dyn FnMut(Rank, &[u8]));

impl Upcall for Frames<'_> {
    fn on_message(&mut self, from: Rank, _message: u8, bytes: &[u8]) {
        (self.0)(from, bytes);
    }
    fn stream_buffer(&mut self, _: Rank, _: u8, _: &[u8], _: usize) -> Option<&mut [u8]> {
        None
    }
    fn stream_placed(&mut self, _: Rank, _: u8, _: &[u8], _: usize) {}
    fn stream_part(&mut self, _: Rank, _: u8, _: &[u8], _: &[u8]) {}
}

impl FrameChannel for Messages {
    fn frame_bytes(&self) -> usize {
        self.0.limits(0).eager_max
    }
    fn send(&mut self, c: &mut Client, to: Rank, frame: &[u8]) -> bool {
        self.0.send(c, to, 1, b"", Body::Bytes(frame))
    }
    fn poll(&mut self, c: &mut Client, up: &mut dyn FnMut(Rank, &[u8])) -> Result<(), Malformed> {
        self.0.poll(c, &mut Frames(up)).map(drop)
    }
    fn poll_period(&self) -> Time {
        self.0.poll_period()
    }
}

/// Three ports on a whole modelled machine: each sends frames to all, and gets those of the others
/// in their order.
#[test]
fn ports_on_a_machine_are_one_ethernet() {
    const PORTS: u32 = 3;
    const FRAMES: u32 = 200;
    let (file, text) = machine::find("loggp").unwrap();
    let machine = machine::read(&file, &text).unwrap();
    let segment = ModelSegment::create(PORTS, machine.mapped_bytes(), &machine.encode()).unwrap();
    std::thread::scope(|s| {
        let model =
            s.spawn(|| machine.run(segment.clone(), machine::RunOptions::default(), |_| {}));
        let ports = [0, 1, 2].map(|me| {
            let (segment, machine) = (segment.clone(), &machine);
            s.spawn(move || {
                let mut client = Client::join(segment, me);
                let mut channel = Messages(machine.driver(me));
                let mut port = Port::new(me, PORTS);
                let mut host = Host::default();
                for n in 0..FRAMES {
                    let payload = [&[me as u8][..], &n.to_le_bytes(), &[7; 900]].concat();
                    host.sends.push_back(frame(Address([0xff; 6]), &payload));
                }
                loop {
                    port.run(&mut client, &mut channel, &mut host).unwrap();
                    if host.got.len() == ((PORTS - 1) * FRAMES) as usize {
                        break;
                    }
                    client.wait(channel.poll_period());
                }
                for from in (0..PORTS).filter(|&from| from != me) {
                    let numbers = host.got.iter().filter(|f| f[14] == from as u8);
                    let numbers =
                        numbers.map(|f| u32::from_le_bytes(*f[15..].first_chunk().unwrap()));
                    assert!(numbers.eq(0..FRAMES), "from {from} to {me}");
                }
                while port.outgoing.is_some() {
                    client.wait(channel.poll_period());
                    port.run(&mut client, &mut channel, &mut host).unwrap();
                }
                client.leave();
            })
        });
        for port in ports {
            port.join().unwrap();
        }
        segment.close();
        model.join().unwrap().unwrap();
    });
}
