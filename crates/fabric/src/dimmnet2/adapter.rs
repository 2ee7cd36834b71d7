//! The driver as the transport `model` wants it: lent the rank's seat for each call.

use super::driver::{self, Driver, Plan, Port, Sent};
use super::figures;
use super::machine::{Mapped, process_of};
use super::packet::Process;
use crate::driver::{Body, Driver as Drives, Expected, Garbled, Limits, Upcall};
use crate::machine::Machine;
use crate::{Client, Rank, Time};

/// The DIMMnet-2 driver of a rank.
pub struct DimmnetDriver {
    machine: Machine,
    /// None before the first call, and during one.
    state: Option<Driver<Absent>>,
    plan: Plan,
    limits: Limits,
    /// The next message answers an announced one: it is a CTS.
    answers: bool,
    buffer: Vec<u8>,
}

/// No port: nobody has lent the rank's seat.
pub struct Absent;

impl DimmnetDriver {
    /// For a rank of `machine`; `None` if its card is another.
    pub fn new(machine: &Machine) -> Option<DimmnetDriver> {
        let f = figures::of(machine)?;
        Some(DimmnetDriver {
            state: None,
            plan: f.plan(machine.processes() as u16),
            limits: Limits {
                // A body is kept whole until the last byte has come: as long as the longest that is sent piece by piece.
                message_max: 64 * 1024,
                eager_max: f.eager.value.0 as usize,
            },
            machine: machine.clone(),
            answers: false,
            buffer: Vec::new(),
        })
    }

    /// The driver's state, made when the rank first uses its card.
    fn state(&mut self, client: &Client) -> Option<Driver<Absent>> {
        if let Some(state) = self.state.take() {
            return Some(state);
        }
        let (machine, me) = (&self.machine, client.me());
        let host = figures::of(machine)?.host(&machine.cpu);
        let places: Vec<Process> = (0..client.ranks())
            .map(|r| process_of(machine, r))
            .collect();
        Some(Driver::unstarted(Absent, host, self.plan, me, &places))
    }

    /// Does something with the card.
    fn with<R>(
        &mut self,
        client: &mut Client,
        then: impl FnOnce(&mut Driver<Mapped<&mut Client>>) -> R,
    ) -> Option<R> {
        let state = self.state(client)?;
        let port = Mapped::new(client, self.plan.window());
        let (mut driver, Absent) = state.exchange(port);
        driver.start();
        let result = then(&mut driver);
        self.state = Some(driver.exchange(Absent).0);
        Some(result)
    }
}

impl Drives for DimmnetDriver {
    fn limits(&self, _peer: Rank) -> Limits {
        self.limits
    }

    fn send(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: Body<'_>) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let answers = self.answers;
        let sent = self.with(c, |driver| {
            if !driver.has_room(to) {
                return Sent::Full;
            }
            let body = match body {
                Body::Bytes(bytes) => bytes,
                fill => {
                    fill.append_to(&mut buffer);
                    &buffer[..]
                }
            };
            driver.send(to, message, answers, head, body)
        });
        self.buffer = buffer;
        let taken = sent == Some(Sent::Taken);
        self.answers &= !taken;
        taken
    }

    fn expects(&mut self, _c: &mut Client, _from: Rank, _what: &Expected<'_>) {
        self.answers = true;
    }

    fn stream(&mut self, c: &mut Client, to: Rank, message: u8, head: &[u8], body: &[u8]) -> usize {
        let taken = self.with(c, |driver| driver.stream(to, message, head, body));
        taken.flatten().unwrap_or(0)
    }

    fn poll(&mut self, c: &mut Client, up: &mut dyn Upcall) -> Result<usize, Garbled> {
        // Events that nobody has taken: the rank has waited, and this is the look that has seen them.
        let looked = !c.begins_look() || c.has_events();
        self.with(c, |driver| {
            if looked {
                driver.has_looked();
            }
            driver.poll(up)
        })
        .unwrap_or(Ok(0))
    }

    fn settled(&mut self, c: &mut Client) -> bool {
        self.with(c, |driver| {
            driver.port_mut().look();
            driver.is_settled()
        })
        .unwrap_or(true)
    }

    fn period(&self) -> Time {
        let period = self.state.as_ref().map(driver::Driver::period);
        period.unwrap_or(Time::ns(100))
    }
}
