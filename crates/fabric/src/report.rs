//! Running a job's hardware, and the report at its end (`--machine-report`).

use crate::kernel::{Cost, Model, ModelSegment, RankUsage, Server, Trace};
use crate::platform::Platform;
use crate::time::Time;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// A job whose hardware is to be run.
pub struct Job<'a> {
    /// The machine without its card.
    pub platform: &'a Platform,
    /// The memory that the ranks will join.
    pub segment: ModelSegment,
    /// Where to write a timeline, if one is wanted.
    pub trace: Option<&'a Path>,
    /// Bad programming of a card ends the job (`--machine-check`). Only a RapidIO controller has
    /// such a checker.
    pub check: bool,
    /// Called when no rank can go on.
    pub on_deadlock: &'a mut dyn FnMut(Time),
}

/// How a job on a machine ended.
#[derive(Debug)]
pub struct Outcome {
    /// For `--machine-report`.
    pub report: Report,
    /// Why the job could not go on, if it could not.
    pub failure: Option<String>,
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
    /// Commands, events and resumed ranks.
    pub steps: u64,
    /// How often ranks were given the turn, and in how many rounds. The simulation's speed depends
    /// on it.
    pub turns: (u64, u64),
    /// Real time from when all ranks had joined.
    pub real: Duration,
    /// How each rank spent its time.
    pub ranks: Vec<RankUsage>,
    /// How much cards and links were used: name and figures.
    pub usage: Vec<(String, String)>,
}

impl Job<'_> {
    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.segment.ranks()
    }

    /// Runs `model` until the job is closed. `links` are the names of its links, for the timeline.
    ///
    /// # Errors
    /// The timeline cannot be written.
    pub fn run<M: Model>(self, model: M, links: Vec<String>) -> Result<Outcome, String> {
        let trace = match self.trace {
            Some(path) => {
                self.segment.enable_trace();
                let made = Trace::create(path, links);
                Some(made.map_err(|e| format!("{} cannot be written: {e}", path.display()))?)
            }
            None => None,
        };
        let completed = Server::new(self.segment, model, trace).run(self.on_deadlock);
        let failure = completed
            .invalid
            .map(|(rank, what)| format!("rank {rank} gave its card {what}"))
            .or(completed.failure);
        Ok(Outcome {
            report: Report {
                name: self.platform.about.name.clone(),
                time: completed.time,
                commands: completed.commands,
                steps: completed.steps,
                turns: completed.turns,
                real: completed.real,
                usage: completed.model.usage(completed.time),
                ranks: completed.ranks,
            },
            failure,
        })
    }
}

/// Most ranks that are listed one by one; of cards and links four times as many.
const LISTED_MAX: usize = 16;

impl Report {
    /// As a table for people.
    pub fn table(&self) -> String {
        let mut out = format!(
            "machine {}: {} of virtual time, {} hardware commands; ranks went on {} times, \
             in {} rounds\n\
             {:.3} s of real time from when all ranks had come: {:.0} commands a second\n",
            self.name,
            short(self.time),
            self.commands,
            self.turns.0,
            self.turns.1,
            self.real.as_secs_f64(),
            self.commands as f64 / self.real.as_secs_f64().max(1e-9),
        );
        self.write_ranks(&mut out);
        self.write_causes(&mut out);
        self.write_usage(&mut out);
        out
    }

    /// A line for each rank, and one for all.
    fn write_ranks(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "\n{:>8}  {:>12}  {:>12}  {:>12}  {:>10}  {:>10}  {:>12}",
            "rank", "clock", "works", "waits", "messages", "bytes", "commands"
        );
        for (rank, r) in self.ranks.iter().enumerate().take(LISTED_MAX) {
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
        if self.ranks.len() > LISTED_MAX {
            let _ = writeln!(out, "{:>8}  and {} more", "", self.ranks.len() - LISTED_MAX);
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
    }

    /// What the processors of all ranks worked on, the longest first.
    fn write_causes(&self, out: &mut String) {
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
    }

    /// How much cards and links were used.
    fn write_usage(&self, out: &mut String) {
        if !self.usage.is_empty() {
            let _ = writeln!(out, "\nhardware");
        }
        for (name, line) in self.usage.iter().take(4 * LISTED_MAX) {
            let _ = writeln!(out, "{name:32}  {line}");
        }
        if self.usage.len() > 4 * LISTED_MAX {
            let _ = writeln!(out, "and {} more", self.usage.len() - 4 * LISTED_MAX);
        }
    }
}

/// The time with at least four digits, in the unit that suits it.
fn short(time: Time) -> String {
    let ps = time.as_ps() as f64;
    match time.as_ps() {
        1_000_000_000_000.. => format!("{:.3} s", ps * 1e-12),
        1_000_000_000.. => format!("{:.3} ms", ps * 1e-9),
        _ => format!("{:.3} us", ps * 1e-6),
    }
}
