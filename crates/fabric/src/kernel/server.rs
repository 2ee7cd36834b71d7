//! The model's side: the clock, the queue, and who may go on.

use super::arena::{Arena, BOX_MAX, KINDS, state};
use super::manner::{Chooser, Manner};
use super::record;
use super::sight::Sights;
use super::trace::{Trace, Track};
use crate::kernel::client::{Cost, ring};
use crate::{Rank, Time};
use rustix::thread::{futex, sched_yield};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Turns that the model looks whether all ranks have stopped before it sleeps, where there is a
/// core for each and one to spare.
const SPINS: u32 = 4000;

/// A machine's hardware: cards, links, switches.
pub trait Model {
    /// What it sets itself for later.
    type Event;
    /// A command of rank `from` has reached its card, now ([`Kernel::now`]). `kind` and `bytes`
    /// come from another process.
    ///
    /// Errors: they make no sense; the job is then ended.
    fn command(
        &mut self,
        from: Rank,
        kind: u32,
        bytes: &[u8],
        kernel: &mut Kernel<Self::Event>,
    ) -> Result<(), Nonsense>;
    /// What was set for this time is due.
    fn due(&mut self, event: Self::Event, kernel: &mut Kernel<Self::Event>);
    /// The least time from a command of one rank to anything that another rank can see of it, and
    /// from anything that is due to what a rank can see of it that [`Model::sight`] does not
    /// name. The longer, the less often ranks stop for each other; too long, and they miss things.
    fn lookahead(&self) -> Time {
        Time::ZERO
    }
    /// The least time from a command of this kind to anything that its own rank can see of it.
    fn reaction(&self, _kind: u32) -> Time {
        Time::ZERO
    }
    /// Who can see something of an event that is set for later, and how long after it at least:
    /// through whatever follows from it sooner than after [`Model::lookahead`].
    fn sight(&self, _event: &Self::Event) -> Sight {
        Sight::All(Time::ZERO)
    }
    /// The node of a rank, for [`Sight::Node`].
    fn node(&self, rank: Rank) -> u32 {
        rank
    }
    /// Is a command of this kind one that a user would count? Others are stores into memory and the
    /// like.
    fn counts(&self, _kind: u32) -> bool {
        true
    }
    /// What the hardware was used for, for a report: a name and a line of figures each.
    fn used(&self, _whole: Time) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// Who sees something of what is due, and how much later at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// Nobody, before the model's lookahead has gone by.
    Nobody,
    /// This rank.
    Rank(Rank, Time),
    /// The ranks of this node.
    Node(u32, Time),
    /// All ranks.
    All(Time),
}

/// A driver has issued a command that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Nonsense(pub &'static str);

/// How a rank has spent its time.
#[derive(Clone, Debug, Default)]
pub struct RankUse {
    /// Its clock when it stopped last.
    pub clock: Time,
    /// How long it has waited.
    pub waited: Time,
    /// Commands issued.
    pub commands: u64,
    /// Messages that its program has sent, and their bytes; known once it has left.
    pub sent: (u64, u64),
    /// What its work has cost, by cause.
    pub costs: BTreeMap<String, Cost>,
}

/// What came of a job.
#[derive(Debug)]
pub struct Ended<M> {
    /// The hardware.
    pub model: M,
    /// Virtual time at the end.
    pub time: Time,
    /// Commands of all ranks.
    pub commands: u64,
    /// What was done in all: commands, events, ranks going on.
    pub steps: u64,
    /// How often a rank was given the turn, and how often any were.
    pub turns: (u64, u64),
    /// Real time, from when all ranks had come.
    pub real: Duration,
    /// By rank.
    pub ranks: Vec<RankUse>,
    /// A rank issued nonsense, and this is what.
    pub broken: Option<(Rank, Nonsense)>,
}

/// By time, then by rank, then what was under way before commands, then in the order in which it
/// was set. So the order of two things does not depend on when a rank has handed its commands over.
type Place = (Time, Rank, bool, u64);

enum What<E> {
    Command { kind: u32, bytes: Vec<u8> },
    Due(E),
}

struct Entry<E> {
    place: Place,
    what: What<E>,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Running,
    Waiting,
    /// It waits unless something is there at its clock.
    Looking,
    Stopped,
    Left,
}

struct Seat {
    standing: Standing,
    clock: Time,
    period: Time,
    /// Times that it has stopped: tells an old resume from one that holds.
    stops: u64,
    /// It is set to go on.
    resumes: bool,
    /// Events that it has not been given, …
    pending: Vec<u8>,
    /// … of which one at least is to wake it.
    wakes: bool,
    used: RankUse,
}

/// What a model's hardware can do: look at the clock, set events for later, reach the ranks.
pub struct Kernel<E> {
    arena: Arena,
    now: Time,
    queue: BinaryHeap<Reverse<Entry<E>>>,
    /// What the model has just set, not yet in the queue.
    fresh: Vec<Entry<E>>,
    /// Ranks that go on, unless they have done so since they had stopped so many times.
    resumes: BinaryHeap<Reverse<(Time, Rank, u64)>>,
    set: u64,
    seats: Vec<Seat>,
    trace: Option<Trace>,
}

impl<E> Kernel<E> {
    /// Virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.seats.len() as u32
    }

    /// Sets `event` for `time`, not before now; `whose` orders it among others of the same instant,
    /// which otherwise come as they were set.
    pub fn at(&mut self, time: Time, whose: Rank, event: E) {
        let place = self.place(time, whose, false);
        let what = What::Due(event);
        self.fresh.push(Entry { place, what });
    }

    /// Sets `event` for the time after `span`.
    pub fn after(&mut self, span: Time, whose: Rank, event: E) {
        self.at(self.now + span, whose, event);
    }

    fn place(&mut self, time: Time, rank: Rank, command: bool) -> Place {
        self.set += 1;
        (time.max(self.now), rank, command, self.set)
    }

    fn push_resume(&mut self, time: Time, rank: Rank, stops: u64) {
        let time = time.max(self.now);
        self.resumes.push(Reverse((time, rank, stops)));
    }

    /// The card has something for its rank, now: it gets it as an [`Event`](crate::Event), and goes
    /// on if it waited. At most [`RECORD_MAX`](super::RECORD_MAX) bytes; panics if there are
    /// more.
    pub fn tell(&mut self, rank: Rank, kind: u32, parts: &[&[u8]]) {
        self.mention(rank, kind, parts);
        self.seats[rank as usize].wakes = true;
        self.rouse(rank);
    }

    /// The same for something that a rank does not wait for: it gets the event when it looks or
    /// goes on anyway.
    pub fn mention(&mut self, rank: Rank, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        assert!(len <= record::RECORD_MAX, "an event of {len} bytes");
        let pending = &mut self.seats[rank as usize].pending;
        record::put(pending, self.now, kind, parts);
    }

    /// Lets a rank that waits go on, with or without an event: what it waits for may be in the
    /// memory that its card shows.
    pub fn rouse(&mut self, rank: Rank) {
        let now = self.now;
        let seat = &mut self.seats[rank as usize];
        if seat.standing != Standing::Waiting || seat.resumes {
            return;
        }
        seat.resumes = true;
        let time = next_look(seat.clock, now, seat.period);
        let stops = seat.stops;
        self.push_resume(time, rank, stops);
    }

    /// Writes into the memory that the rank's card shows. Panics beyond its end.
    pub fn write(&self, rank: Rank, at: usize, bytes: &[u8]) {
        self.arena.write(rank, at, bytes);
    }

    /// Reads it. Panics beyond its end.
    pub fn read(&self, rank: Rank, at: usize, bytes: &mut [u8]) {
        self.arena.read(rank, at, bytes);
    }

    /// Notes a span of a timeline, if there is to be one.
    pub fn span(&mut self, track: Track, name: &str, began: Time, ended: Time) {
        if let Some(trace) = &mut self.trace {
            trace.span(track, name, began, ended);
        }
    }

    /// Is a timeline written?
    pub fn traced(&self) -> bool {
        self.trace.is_some()
    }
}

/// The first of the times `from`, `from + period`, … that is not before `now`.
fn next_look(from: Time, now: Time, period: Time) -> Time {
    if now <= from {
        return from;
    }
    match period.as_ps() {
        0 => now,
        p => from + period * (now - from).as_ps().div_ceil(p),
    }
}

/// A job on a model.
pub struct Server<M: Model> {
    model: M,
    kernel: Kernel<M::Event>,
    /// Ranks that have the turn, and when they got it, in the order of these times …
    running: Vec<(Rank, Time)>,
    /// … and until when nothing changes for each.
    horizons: Vec<Time>,
    /// Ranks that are to go on soon, but not yet.
    later: Vec<Reverse<(Time, Rank, u64)>>,
    sights: Sights,
    lookahead: Time,
    /// When a rank went on last.
    latest: Time,
    reactions: [Time; KINDS],
    commands: u64,
    steps: u64,
    turns: (u64, u64),
    spins: u32,
    chooser: Chooser,
    /// When the stretch began for which the manner of handing over was chosen.
    stretch: Instant,
    /// It has been said that nobody can go on.
    told: bool,
    broken: Option<(Rank, Nonsense)>,
}

impl<M: Model> Server<M> {
    /// For the ranks that will come to `arena`.
    pub fn new(arena: Arena, model: M, trace: Option<Trace>) -> Server<M> {
        let ranks = arena.ranks();
        let mut reactions = [Time::ZERO; KINDS];
        for (kind, reaction) in (0..).zip(&mut reactions) {
            *reaction = model.reaction(kind);
            let told = &arena.header().reaction[kind as usize];
            told.store(reaction.as_ps(), Ordering::Relaxed);
        }
        let seat = |_| Seat {
            standing: Standing::Running,
            clock: Time::ZERO,
            period: Time::ZERO,
            stops: 0,
            resumes: false,
            pending: Vec::new(),
            wakes: false,
            used: RankUse::default(),
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cpus = arena.cpus();
        Server {
            sights: Sights::new((0..ranks).map(|r| model.node(r)).collect()),
            lookahead: model.lookahead().max(Time::ps(1)),
            latest: Time::ZERO,
            reactions,
            model,
            kernel: Kernel {
                now: Time::ZERO,
                queue: BinaryHeap::new(),
                fresh: Vec::new(),
                resumes: BinaryHeap::new(),
                set: 0,
                seats: (0..ranks).map(seat).collect(),
                trace,
                arena,
            },
            running: (0..ranks).map(|r| (r, Time::ZERO)).collect(),
            horizons: Vec::new(),
            later: Vec::new(),
            commands: 0,
            steps: 0,
            turns: (0, 0),
            spins: if cores > ranks as usize { SPINS } else { 0 },
            chooser: Chooser::new(ranks, cpus),
            stretch: Instant::now(),
            told: false,
            broken: None,
        }
    }

    /// Runs the job until it is closed ([`Arena::close`]). `stuck` is called, once until something
    /// moves again, when every rank waits and nothing is under way.
    pub fn run(mut self, mut stuck: impl FnMut(Time)) -> Ended<M> {
        let mut began = None;
        loop {
            self.await_stops();
            began.get_or_insert_with(Instant::now);
            self.collect();
            if self.broken.is_some() {
                break;
            }
            self.advance();
            if self.broken.is_some() {
                break;
            }
            if !self.running.is_empty() {
                continue;
            }
            // Nobody goes on by what is under way: there is nothing. What is looked at now and
            // changes later rings.
            let seen = self.kernel.arena.header().bell.load(Ordering::SeqCst);
            if self.is_closing() {
                break;
            }
            if self.is_stuck() && !self.told {
                self.told = true;
                stuck(self.kernel.now);
            }
            self.sleep(seen);
        }
        let time = self.kernel.now.max(self.latest);
        let ranks = std::mem::take(&mut self.kernel.seats);
        if let Some(trace) = self.kernel.trace.take() {
            trace.end();
        }
        Ended {
            model: self.model,
            time,
            commands: self.commands,
            steps: self.steps,
            turns: self.turns,
            real: began.map_or(Duration::ZERO, |b| b.elapsed()),
            ranks: ranks
                .into_iter()
                .map(|s| RankUse {
                    clock: s.clock,
                    ..s.used
                })
                .collect(),
            broken: self.broken,
        }
    }

    fn is_closing(&self) -> bool {
        self.kernel.arena.header().closing.load(Ordering::SeqCst) != 0
    }

    /// Every rank waits or has ended, at least one waits, and none can go on by itself. One that
    /// has left, and lives, can come back.
    fn is_stuck(&self) -> bool {
        let arena = &self.kernel.arena;
        let mut waiting = false;
        for (rank, seat) in (0..).zip(&self.kernel.seats) {
            let mailbox = arena.mailbox(rank);
            if mailbox.gone.load(Ordering::SeqCst) != 0 {
                continue;
            }
            let concurrent = mailbox.concurrent.load(Ordering::Relaxed) != 0;
            if concurrent || seat.standing == Standing::Left {
                return false;
            }
            waiting = true;
        }
        waiting
    }

    /// Blocks until every rank that has the turn has stopped or ended.
    fn await_stops(&mut self) {
        let arena = self.kernel.arena.clone();
        let header = arena.header();
        let stopped = |&(rank, _): &(Rank, Time)| {
            let mailbox = arena.mailbox(rank);
            let state = mailbox.state.load(Ordering::SeqCst);
            (state != state::RUNNING && state != state::ABSENT)
                || mailbox.gone.load(Ordering::SeqCst) != 0
        };
        for _ in 0..self.chooser.manner().model_yields {
            if header.running.load(Ordering::SeqCst) == 0 {
                break;
            }
            sched_yield();
        }
        let mut spins = self.spins;
        while spins > 0 && header.running.load(Ordering::SeqCst) != 0 {
            spins -= 1;
            std::hint::spin_loop();
        }
        loop {
            if self.running.iter().all(stopped) {
                return;
            }
            let seen = header.bell.load(Ordering::SeqCst);
            header.asleep.store(1, Ordering::SeqCst);
            if self.running.iter().all(stopped) {
                break;
            }
            if header.running.load(Ordering::SeqCst) == 0 {
                // All have counted themselves out; the last of them will not ring again.
                sched_yield();
                continue;
            }
            let _ = futex::wait(&header.bell, futex::Flags::empty(), seen, None);
        }
        header.asleep.store(0, Ordering::SeqCst);
    }

    /// Sleeps until somebody comes, ends or closes.
    fn sleep(&mut self, seen: u32) {
        let header = self.kernel.arena.header();
        header.asleep.store(1, Ordering::SeqCst);
        if header.rejoins.load(Ordering::SeqCst) == 0 && !self.is_closing() {
            let header = self.kernel.arena.header();
            let _ = futex::wait(&header.bell, futex::Flags::empty(), seen, None);
        }
        self.kernel.arena.header().asleep.store(0, Ordering::SeqCst);
    }

    /// Takes what the ranks that have stopped leave, in the order of their numbers.
    fn collect(&mut self) {
        let mut running = std::mem::take(&mut self.running);
        running.sort_unstable();
        let mut bytes = Vec::new();
        for (rank, _) in running {
            self.collect_from(rank, &mut bytes);
        }
        let header = self.kernel.arena.header();
        if header.rejoins.swap(0, Ordering::SeqCst) != 0 {
            for rank in 0..self.kernel.ranks() {
                let mailbox = self.kernel.arena.mailbox(rank);
                if mailbox.state.load(Ordering::SeqCst) == state::REJOINS {
                    let seat = &mut self.kernel.seats[rank as usize];
                    seat.stops += 1;
                    seat.standing = Standing::Stopped;
                    let (time, stops) = (seat.clock, seat.stops);
                    self.kernel.push_resume(time, rank, stops);
                    self.told = false;
                }
            }
        }
    }

    fn collect_from(&mut self, rank: Rank, bytes: &mut Vec<u8>) {
        let arena = self.kernel.arena.clone();
        let mailbox = arena.mailbox(rank);
        let how = mailbox.state.load(Ordering::SeqCst);
        let began = self.kernel.seats[rank as usize].clock;
        if how == state::RUNNING || how == state::ABSENT {
            // It has ended in the middle of something.
            self.kernel.seats[rank as usize].standing = Standing::Left;
            return;
        }
        let clock = Time::ps(mailbox.clock.load(Ordering::Relaxed)).max(began);
        arena.take_commands(rank, bytes);
        let mut rest = &bytes[..];
        while let Some(r) = record::take(&mut rest) {
            let time = r.time.clamp(began, clock);
            match r.kind {
                record::COST => self.note_cost(rank, r.bytes),
                record::SENT => {
                    if let ([messages, bytes], []) = r.bytes.as_chunks::<8>() {
                        let sent = (u64::from_le_bytes(*messages), u64::from_le_bytes(*bytes));
                        self.kernel.seats[rank as usize].used.sent = sent;
                    }
                }
                record::SPAN => {
                    if let Some((span, name)) = r.bytes.split_first_chunk() {
                        let end = time + Time::ps(u64::from_le_bytes(*span));
                        let name = String::from_utf8_lossy(name);
                        self.kernel.span(Track::Rank(rank), &name, time, end);
                    }
                }
                kind => {
                    let counts = u64::from(self.model.counts(kind));
                    self.commands += counts;
                    self.kernel.seats[rank as usize].used.commands += counts;
                    let bytes = r.bytes.to_vec();
                    let place = self.kernel.place(time, rank, true);
                    let what = What::Command { kind, bytes };
                    let reaction = self.reactions.get(kind as usize);
                    let sight = Sight::Rank(rank, reaction.copied().unwrap_or(Time::ZERO));
                    self.sights.note(place.0, sight);
                    self.kernel.queue.push(Reverse(Entry { place, what }));
                }
            }
        }
        if !rest.is_empty() {
            self.broken = Some((rank, Nonsense("its list of commands cannot be read")));
        }
        let period = Time::ps(mailbox.period.load(Ordering::Relaxed));
        let seat = &mut self.kernel.seats[rank as usize];
        (seat.clock, seat.period) = (clock, period);
        seat.stops += 1;
        seat.resumes = false;
        let stops = seat.stops;
        seat.standing = match how {
            state::WAITING if !seat.wakes => Standing::Waiting,
            state::WAITING => {
                seat.resumes = true;
                Standing::Waiting
            }
            state::SYNC => Standing::Stopped,
            state::LOOKING => Standing::Looking,
            // It has left, or wants to come back and is seen to below.
            _ => Standing::Left,
        };
        if seat.resumes || matches!(seat.standing, Standing::Stopped | Standing::Looking) {
            self.kernel.push_resume(clock, rank, stops);
        }
    }

    fn note_cost(&mut self, rank: Rank, bytes: &[u8]) {
        let Some((times, rest)) = bytes.split_first_chunk() else {
            return;
        };
        let Some((time, cause)) = rest.split_first_chunk() else {
            return;
        };
        let cause = String::from_utf8_lossy(cause).into_owned();
        let used = &mut self.kernel.seats[rank as usize].used;
        let cost = used.costs.entry(cause).or_default();
        cost.times = cost.times.saturating_add(u64::from_le_bytes(*times));
        cost.time += Time::ps(u64::from_le_bytes(*time));
    }

    /// Does what is due, in order, until a rank goes on or nothing is left.
    fn advance(&mut self) {
        while self.running.is_empty() {
            let hardware = self.kernel.queue.peek().map(|e| e.0.place);
            let resume = self.kernel.resumes.peek().map(|e| e.0.0);
            // At one instant the hardware goes before the programs.
            match (hardware, resume) {
                (None, None) => return,
                (Some(h), r) if r.is_none_or(|r| h.0 <= r) => {
                    let Some(Reverse(entry)) = self.kernel.queue.pop() else {
                        return;
                    };
                    if let Err(nonsense) = self.step(entry) {
                        self.broken = Some((h.1, nonsense));
                        return;
                    }
                }
                _ => self.take_resume(),
            }
        }
        self.take_others();
        self.resume();
    }

    /// Does what is due for the hardware.
    fn step(&mut self, entry: Entry<M::Event>) -> Result<(), Nonsense> {
        let (time, rank, ..) = entry.place;
        self.pass(time);
        match entry.what {
            What::Command { kind, bytes } => {
                self.model.command(rank, kind, &bytes, &mut self.kernel)?
            }
            What::Due(event) => self.model.due(event, &mut self.kernel),
        }
        let Kernel { fresh, queue, .. } = &mut self.kernel;
        for entry in fresh.drain(..) {
            if let What::Due(event) = &entry.what {
                self.sights.note(entry.place.0, self.model.sight(event));
            }
            queue.push(Reverse(entry));
        }
        Ok(())
    }

    /// The next rank goes on, if that still holds.
    fn take_resume(&mut self) {
        if let Some(Reverse((time, rank, stops))) = self.kernel.resumes.pop()
            && self.holds(rank, stops)
            && !self.waits(rank)
        {
            self.pass(time);
            self.running.push((rank, time));
        }
    }

    /// With the first rank all those go on that are to go on before it can reach them, and before
    /// anything that is under way does.
    fn take_others(&mut self) {
        let now = self.kernel.now;
        let end = now + self.lookahead;
        let mut later = std::mem::take(&mut self.later);
        while let Some(&Reverse((time, rank, stops))) = self.kernel.resumes.peek()
            && time < end
        {
            self.kernel.resumes.pop();
            if !self.holds(rank, stops) || self.running.iter().any(|r| r.0 == rank) {
                continue;
            }
            if time < self.sights.first(rank, now) {
                if !self.waits(rank) {
                    self.steps += 1;
                    self.running.push((rank, time));
                }
            } else {
                later.push(Reverse((time, rank, stops)));
            }
        }
        self.kernel.resumes.extend(later.drain(..));
        self.later = later;
    }

    /// Until when nothing changes for each rank that has the turn: neither by what is under way nor
    /// by what the others may do from now on.
    fn horizons(&mut self) {
        let hardware = self.kernel.queue.peek().map_or(Time::MAX, |e| e.0.place.0);
        let waiting = self.kernel.resumes.peek().map_or(Time::MAX, |e| e.0.0);
        let first = self.running.first().map_or(Time::MAX, |r| r.1);
        let second = self.running.get(1).map_or(Time::MAX, |r| r.1);
        self.horizons.clear();
        for (place, &(rank, _)) in self.running.iter().enumerate() {
            let others = if place == 0 { second } else { first };
            let reached = hardware.min(waiting).min(others) + self.lookahead;
            let seen = self.sights.first(rank, self.kernel.now);
            self.horizons.push(seen.min(reached));
        }
    }

    /// A rank that looks, and for which nothing is there, waits from now on.
    fn waits(&mut self, rank: Rank) -> bool {
        let seat = &mut self.kernel.seats[rank as usize];
        let waits = seat.standing == Standing::Looking && seat.pending.is_empty();
        if waits {
            seat.standing = Standing::Waiting;
        }
        waits
    }

    fn pass(&mut self, time: Time) {
        self.steps += 1;
        self.kernel.now = time;
    }

    fn holds(&self, rank: Rank, stops: u64) -> bool {
        let seat = &self.kernel.seats[rank as usize];
        let gone = self.kernel.arena.mailbox(rank).gone.load(Ordering::Relaxed) != 0;
        seat.stops == stops && !gone && seat.standing != Standing::Left
    }

    /// Gives the turn to those in `running`.
    fn resume(&mut self) {
        self.told = false;
        self.turns.0 += self.running.len() as u64;
        self.turns.1 += 1;
        self.horizons();
        let arena = self.kernel.arena.clone();
        let header = arena.header();
        if self.chooser.round(self.running.len() as u64) {
            let began = std::mem::replace(&mut self.stretch, Instant::now());
            let Manner { yields, cores, .. } = self.chooser.ends(self.stretch - began);
            header.yields.store(yields, Ordering::Relaxed);
            header.cores.store(cores, Ordering::Relaxed);
        }
        let now = self.kernel.now;
        header.now.store(now.as_ps(), Ordering::Relaxed);
        header.commands.store(self.commands, Ordering::Relaxed);
        header
            .running
            .store(self.running.len() as u32, Ordering::SeqCst);
        for (&(rank, now), &horizon) in self.running.iter().zip(&self.horizons) {
            let seat = &mut self.kernel.seats[rank as usize];
            let began = seat.clock;
            self.latest = self.latest.max(now);
            if seat.standing == Standing::Waiting {
                seat.used.waited += now - began;
            }
            let waited = seat.standing == Standing::Waiting && now > began;
            let found = seat.standing == Standing::Looking;
            seat.clock = now.max(began);
            seat.standing = Standing::Running;
            (seat.resumes, seat.wakes) = (false, false);
            seat.stops += 1;
            let mailbox = arena.mailbox(rank);
            let more = deliver(&arena, rank, &mut seat.pending);
            mailbox.more.store(u32::from(more), Ordering::Relaxed);
            mailbox.found.store(u32::from(found), Ordering::Relaxed);
            mailbox.clock.store(seat.clock.as_ps(), Ordering::Relaxed);
            let horizon = if more { Time::ZERO } else { horizon };
            mailbox.horizon.store(horizon.as_ps(), Ordering::Relaxed);
            if waited {
                self.kernel.span(Track::Rank(rank), "waits", began, now);
            }
            // A rank that wants to come back by itself, and has been given the turn just now, is
            // content.
            let stood = mailbox.state.swap(state::RUNNING, Ordering::SeqCst);
            mailbox.turn.fetch_add(1, Ordering::SeqCst);
            if mailbox.asleep.load(Ordering::SeqCst) != 0 {
                let _ = futex::wake(&mailbox.turn, futex::Flags::empty(), i32::MAX as u32);
            }
            // Nobody has asked for this turn: one of the rank's threads has to take it.
            if stood == state::WAITING && mailbox.concurrent.load(Ordering::Relaxed) != 0 {
                ring(&mailbox.bell);
            }
        }
    }
}

/// Puts as many of a rank's events as there is room for into its mailbox. Are there more?
fn deliver(arena: &Arena, rank: Rank, pending: &mut Vec<u8>) -> bool {
    if pending.is_empty() {
        return false;
    }
    let mut fits = pending.len();
    if fits > BOX_MAX {
        let mut rest = &pending[..];
        loop {
            let before = rest.len();
            if record::take(&mut rest).is_none() || pending.len() - rest.len() > BOX_MAX {
                fits = pending.len() - before;
                break;
            }
        }
    }
    arena.put_events(rank, &pending[..fits]);
    pending.drain(..fits);
    !pending.is_empty()
}

#[cfg(test)]
mod tests;
