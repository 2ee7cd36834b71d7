//! Running a machine's model, and what is said of it at the end.

use crate::dimmnet2::adapter::DimmnetDriver;
use crate::dimmnet2::machine::Cards;
use crate::driver::Driver;
use crate::kernel::{Cost, RankUse, Trace};
use crate::machine::{Machine, Nic};
use crate::put::{Card, PutDriver};
use crate::{Arena, Model, Rank, Server, Time};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// The driver of rank `me`'s card.
pub fn open(machine: &Machine, me: Rank) -> Option<Box<dyn Driver>> {
    match &machine.nic {
        Nic::Put(_) => PutDriver::new(machine, me).map(|d| Box::new(d) as Box<dyn Driver>),
        Nic::Dimmnet2(_) => DimmnetDriver::new(machine).map(|d| Box::new(d) as Box<dyn Driver>),
    }
}

/// What came of a job on a machine.
#[derive(Debug)]
pub struct Outcome {
    /// For `--machine-report`.
    pub report: Report,
    /// Why the job could not go on, if it could not.
    pub broken: Option<String>,
}

/// How a job on a machine went.
#[derive(Clone, Debug)]
pub struct Report {
    /// The machine.
    pub name: String,
    /// Virtual time at the end.
    pub time: Time,
    /// Hardware commands of all ranks.
    pub commands: u64,
    /// Commands, events and ranks going on.
    pub steps: u64,
    /// How often ranks were given the turn to go on, and in how many rounds: what the simulation's
    /// speed depends on.
    pub turns: (u64, u64),
    /// Real time, from when all ranks had come.
    pub real: Duration,
    /// How each rank spent its time.
    pub ranks: Vec<RankUse>,
    /// What cards and links were used for.
    pub used: Vec<(String, String)>,
}

/// Runs the hardware of `machine` for the ranks that come to `arena`, until it is closed. `stuck`
/// is called when nobody can go on. With `trace` a timeline is written there.
///
/// Errors: the timeline cannot be written.
pub fn serve(
    machine: &Machine,
    arena: Arena,
    trace: Option<&Path>,
    stuck: impl FnMut(Time),
) -> Result<Outcome, String> {
    let ranks = arena.ranks();
    match &machine.nic {
        Nic::Put(_) => {
            let card = Card::new(machine, ranks).ok_or("its card is another")?;
            let links = card.links();
            run(machine, arena, card, links, trace, stuck)
        }
        Nic::Dimmnet2(_) => {
            let mut cards = Cards::new(machine, ranks).ok_or("its card is another")?;
            cards.share(machine, &arena);
            let links = cards.links();
            run(machine, arena, cards, links, trace, stuck)
        }
    }
}

/// The same for one kind of hardware; `links` are called so.
fn run<M: Model>(
    machine: &Machine,
    arena: Arena,
    model: M,
    links: Vec<String>,
    trace: Option<&Path>,
    stuck: impl FnMut(Time),
) -> Result<Outcome, String> {
    let trace = match trace {
        Some(path) => {
            arena.trace();
            let made = Trace::create(path, links);
            Some(made.map_err(|e| format!("{} cannot be written: {e}", path.display()))?)
        }
        None => None,
    };
    let ended = Server::new(arena, model, trace).run(stuck);
    let broken = ended
        .broken
        .map(|(rank, what)| format!("rank {rank} gave its card {what}"));
    Ok(Outcome {
        report: Report {
            name: machine.machine.name.clone(),
            time: ended.time,
            commands: ended.commands,
            steps: ended.steps,
            turns: ended.turns,
            real: ended.real,
            used: ended.model.used(ended.time),
            ranks: ended.ranks,
        },
        broken,
    })
}

/// More ranks, cards and links than this are not listed one by one.
const LISTED: usize = 16;

impl Report {
    /// As a table for people.
    pub fn table(&self) -> String {
        let mut out = format!(
            "machine {}: {} of virtual time, {} hardware commands; ranks went on {} times, in {} rounds\n\
             {:.3} s of real time from when all ranks had come: {:.0} commands a second\n",
            self.name,
            short(self.time),
            self.commands,
            self.turns.0,
            self.turns.1,
            self.real.as_secs_f64(),
            self.commands as f64 / self.real.as_secs_f64().max(1e-9),
        );
        let _ = writeln!(
            out,
            "\n{:>8}  {:>12}  {:>12}  {:>12}  {:>10}  {:>10}  {:>12}",
            "rank", "clock", "works", "waits", "messages", "bytes", "commands"
        );
        for (rank, r) in self.ranks.iter().enumerate().take(LISTED) {
            let worked: Time = r.costs.values().fold(Time::ZERO, |sum, c| sum + c.time);
            let _ = writeln!(
                out,
                "{rank:>8}  {:>12}  {:>12}  {:>12}  {:>10}  {:>10}  {:>12}",
                short(r.clock),
                short(worked),
                short(r.waited),
                r.sent.0,
                r.sent.1,
                r.commands
            );
        }
        if self.ranks.len() > LISTED {
            let _ = writeln!(out, "{:>8}  and {} more", "", self.ranks.len() - LISTED);
        }
        let (messages, bytes) = self
            .ranks
            .iter()
            .fold((0, 0), |sum, r| (sum.0 + r.sent.0, sum.1 + r.sent.1));
        let _ = writeln!(
            out,
            "{:>8}  {:>12}  {:>12}  {:>12}  {messages:>10}  {bytes:>10}  {:>12}",
            "all", "", "", "", self.commands
        );
        let mut causes: BTreeMap<&str, Cost> = BTreeMap::new();
        for (cause, cost) in self.ranks.iter().flat_map(|r| &r.costs) {
            let sum = causes.entry(cause).or_default();
            sum.times += cost.times;
            sum.time += cost.time;
        }
        if !causes.is_empty() {
            let _ = writeln!(
                out,
                "\n{:32}  {:>10}  {:>12}",
                "processors' work, all ranks", "times", "time"
            );
        }
        let mut causes: Vec<_> = causes.into_iter().collect();
        causes.sort_by_key(|(name, c)| (std::cmp::Reverse(c.time), *name));
        for (cause, cost) in causes {
            let _ = writeln!(
                out,
                "{cause:32}  {:>10}  {:>12}",
                cost.times,
                short(cost.time)
            );
        }
        if !self.used.is_empty() {
            let _ = writeln!(out, "\nhardware");
        }
        for (name, line) in self.used.iter().take(4 * LISTED) {
            let _ = writeln!(out, "{name:32}  {line}");
        }
        if self.used.len() > 4 * LISTED {
            let _ = writeln!(out, "and {} more", self.used.len() - 4 * LISTED);
        }
        out
    }
}

/// With four figures at least.
fn short(time: Time) -> String {
    let ps = time.as_ps() as f64;
    match time.as_ps() {
        1_000_000_000_000.. => format!("{:.3} s", ps * 1e-12),
        1_000_000_000.. => format!("{:.3} ms", ps * 1e-9),
        _ => format!("{:.3} us", ps * 1e-6),
    }
}
