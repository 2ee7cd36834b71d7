//! A rank's side: its clock, commands, events and waiting.

use super::arena::{Arena, BOX_MAX, Mailbox, state};
use super::record::{self, RECORD_MAX};
use crate::{Rank, Time};
use rustix::thread::{CpuSet, futex, sched_getaffinity, sched_setaffinity, sched_yield};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Turns that a rank looks whether it may go on before it sleeps, where there is a core for each
/// and one to spare.
const SPINS: u32 = 2000;

/// Something that the card has for its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it came.
    pub time: Time,
    /// What it is, in the card's own numbers.
    pub kind: u32,
    /// What it carries.
    pub bytes: Vec<u8>,
}

/// What work of one kind has cost a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How often.
    pub times: u64,
    /// In all.
    pub time: Time,
}

/// How far a rank is with a look at what its card has for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The next one is a new one.
    New,
    /// Likewise, and it may be put off.
    Patient,
    /// It has begun, and is not done.
    Owed,
    /// It is done.
    Done,
}

/// What the driver of a rank's card has in its hands. Not shared between threads: whoever uses it
/// holds the device.
pub struct Client {
    arena: &'static Arena,
    me: Rank,
    mailbox: &'static Mailbox,
    /// Shared with who tells the program the time.
    clock: &'static AtomicU64,
    horizon: Time,
    /// Commands not yet handed over.
    out: Vec<u8>,
    came: VecDeque<Event>,
    taken: Vec<u8>,
    /// Something has come since the rank last looked and saw that there was nothing more.
    unseen: bool,
    /// The rank has said that it waits, and has not gone on since.
    rests: bool,
    /// What `turn` was when it last rested or left.
    seen: u32,
    /// How it stopped.
    rests_as: u32,
    look: Look,
    concurrent: bool,
    left: bool,
    costs: Vec<(&'static str, Cost)>,
    sent: (u64, u64),
    traced: bool,
    spins: u32,
    /// Over how many cores the ranks were spread when this one last looked.
    cores: u32,
}

impl Client {
    /// Rank `me` takes its seat. Its first [`Client::sync`] or wait ends when all ranks have come.
    pub fn join(arena: Arena, me: Rank) -> Client {
        let arena: &'static Arena = Box::leak(Box::new(arena));
        let mailbox = arena.mailbox(me);
        mailbox.state.store(state::RUNNING, Ordering::SeqCst);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Client {
            arena,
            me,
            mailbox,
            clock: Box::leak(Box::new(AtomicU64::new(0))),
            horizon: Time::ZERO,
            out: Vec::new(),
            came: VecDeque::new(),
            taken: Vec::new(),
            unseen: false,
            rests: false,
            seen: 0,
            rests_as: state::WAITING,
            look: Look::New,
            concurrent: false,
            left: false,
            costs: Vec::new(),
            sent: (0, 0),
            traced: arena.header().traced.load(Ordering::Relaxed) != 0,
            spins: if cores > arena.ranks() as usize {
                SPINS
            } else {
                0
            },
            cores: 1,
        }
    }

    /// This rank.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.arena.ranks()
    }

    /// Threads of this rank may call MPI at once: while one waits another may go on.
    pub fn set_concurrent(&mut self) {
        self.mailbox.concurrent.store(1, Ordering::Relaxed);
        self.concurrent = true;
    }

    /// The rank's clock, in picoseconds: for who tells the program the time. Lives as long as the
    /// process.
    pub fn clock(&self) -> &'static AtomicU64 {
        self.clock
    }

    /// The rank's virtual time.
    #[inline]
    pub fn now(&self) -> Time {
        Time::ps(self.clock.load(Ordering::Relaxed))
    }

    /// The rank's processor works for so long, on `cause`.
    #[inline]
    pub fn charge(&mut self, cause: &'static str, cost: Time) {
        self.awake();
        let began = self.now();
        self.clock.store((began + cost).as_ps(), Ordering::Relaxed);
        // Causes are few, and each is one string of the driver's.
        let known = self.costs.iter_mut().find(|(c, _)| std::ptr::eq(*c, cause));
        let entry = match known {
            Some((_, entry)) => entry,
            None => {
                self.costs.push((cause, Cost::default()));
                let last = self.costs.len() - 1;
                &mut self.costs[last].1
            }
        };
        entry.times += 1;
        entry.time += cost;
        if self.traced && cost > Time::ZERO {
            let span = [&cost.as_ps().to_le_bytes()[..], cause.as_bytes()];
            self.post(began, record::SPAN, &span);
        }
    }

    /// What the work has cost so far, by cause.
    pub fn costs(&self) -> &[(&'static str, Cost)] {
        &self.costs
    }

    /// Issues a command, now; returns at once. `kind` and bytes (at most [`RECORD_MAX`], all parts
    /// together) are the card's business; what it needs of the rank's memory is among them.
    /// What the card makes of it is seen after the next [`Client::sync`] or wait. Panics if it
    /// is too long.
    pub fn command(&mut self, kind: u32, parts: &[&[u8]]) {
        debug_assert!(kind < record::OWN_KINDS);
        self.awake();
        let now = self.now();
        self.post(now, kind, parts);
        let reactions = &self.arena.header().reaction;
        let reaction = reactions.get(kind as usize);
        let reaction = reaction.map_or(0, |r| r.load(Ordering::Relaxed));
        self.horizon = self.horizon.min(now + Time::ps(reaction));
    }

    fn post(&mut self, time: Time, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        assert!(len <= RECORD_MAX, "a command of {len} bytes");
        if self.out.len() + record::space(len) > BOX_MAX {
            self.catch_up();
        }
        record::put(&mut self.out, time, kind, parts);
    }

    /// Lets the model do everything up to the rank's clock. Events and the card's memory are then
    /// as they are at this time. Blocks until the other ranks have stopped, too.
    pub fn sync(&mut self) {
        self.awake();
        if self.now() >= self.horizon {
            self.catch_up();
        }
    }

    #[cold]
    fn catch_up(&mut self) {
        let seen = self.stop(state::SYNC, Time::ZERO);
        self.await_turn(seen);
        self.go_on();
    }

    /// Whoever looks next waits if nothing is there ([`Client::rest`]): the look may be put off
    /// until then, and both are one stop.
    pub fn will_rest(&mut self) {
        // Another thread may go on in the middle.
        if !self.concurrent && self.look == Look::New {
            self.look = Look::Patient;
        }
    }

    /// A look begins. False: it is the end of one that was put off, and all is as of the rank's
    /// clock.
    pub fn begins_look(&mut self) -> bool {
        match std::mem::replace(&mut self.look, Look::New) {
            Look::Owed => {
                self.sync();
                false
            }
            Look::Done => false,
            before => {
                self.look = before;
                true
            }
        }
    }

    /// Can the look that has begun be put off? Only if nothing is known to be there.
    pub fn can_put_off(&self) -> bool {
        let known = !self.came.is_empty() || self.mailbox.more.load(Ordering::Relaxed) != 0;
        self.look == Look::Patient && self.now() >= self.horizon && !known
    }

    /// It is put off.
    pub fn put_off(&mut self) {
        self.look = Look::Owed;
    }

    /// The rank has looked; `found`: there was something.
    pub fn has_looked(&mut self, found: bool) {
        self.unseen &= found;
        if self.look == Look::Patient {
            self.look = Look::New;
        }
    }

    /// Has something come that the rank may not have seen yet? A turn that it took to issue
    /// commands may have brought it.
    pub fn has_unseen(&self) -> bool {
        self.unseen
    }

    /// Has a look been put off, and not been made good yet?
    pub fn owes_look(&self) -> bool {
        self.look == Look::Owed
    }

    /// [`Client::sync`], and if nothing is there [`Client::wait`]: in one stop.
    pub fn sync_or_wait(&mut self, period: Time) {
        self.awake();
        if self.now() < self.horizon || self.concurrent {
            self.sync();
            return self.wait(period);
        }
        let seen = self.stop(state::LOOKING, period);
        self.await_turn(seen);
        self.go_on();
    }

    /// The next thing that the card has for this rank, if it came before the last [`Client::sync`]
    /// or wait; first come, first served.
    #[inline]
    pub fn event(&mut self) -> Option<Event> {
        if self.came.is_empty() && self.mailbox.more.load(Ordering::Relaxed) != 0 {
            self.sync();
        }
        self.came.pop_front()
    }

    /// Are there events to be taken?
    pub fn has_events(&self) -> bool {
        !self.came.is_empty()
    }

    /// Waits until the card has something for this rank; not at all if it has. It then is the time
    /// of that, or with a `period` the first time from now in steps of it that is not before
    /// that: a processor that polls sees it at its next look.
    pub fn wait(&mut self, period: Time) {
        if self.rest(period).is_some() {
            // Whoever calls this keeps the client meanwhile: the bell may wake another thread.
            self.sleep_for_turn(self.seen);
        }
        self.awake();
    }

    /// The first half of [`Client::wait`], for threads: from here on the rank waits. `None`: there
    /// is something already, or the rank has gone on. Otherwise sleep until the word is no
    /// longer what is given with it ([`sleep`]), and go on with any call. Of several threads that
    /// sleep so one is woken by what the model has for the rank, and none by a turn that
    /// another thread has asked for: whoever finds something for another raises the word
    /// ([`Client::bell`]). If another thread uses the client meanwhile, the rank does not wait any
    /// more until it calls this again.
    pub fn rest(&mut self, period: Time) -> Option<(&'static AtomicU32, u32)> {
        let mailbox = self.mailbox;
        if !self.rests {
            self.awake();
            if !self.came.is_empty() || mailbox.more.load(Ordering::Relaxed) != 0 {
                return None;
            }
            self.rests_as = match self.look {
                Look::Owed => state::LOOKING,
                _ => state::WAITING,
            };
        }
        if self.concurrent {
            // Looked at first: the model raises it once the rank has stopped.
            let heard = mailbox.bell.load(Ordering::SeqCst);
            self.begin_rest(period);
            return self.still_rests().then_some((&mailbox.bell, heard));
        }
        self.begin_rest(period);
        if self.yields_for_turn(self.seen) {
            self.come_back();
            return None;
        }
        // Said first, so that whoever raises the turn from here on wakes this rank.
        mailbox.asleep.store(1, Ordering::SeqCst);
        if !self.still_rests() {
            self.come_back();
            return None;
        }
        Some((&mailbox.turn, self.seen))
    }

    /// Stops, unless the rank has stopped already.
    fn begin_rest(&mut self, period: Time) {
        if !self.rests {
            self.seen = self.stop(self.rests_as, period);
            self.rests = true;
        }
    }

    /// Has the rank, which rests, not been given the turn yet?
    fn still_rests(&self) -> bool {
        self.mailbox.turn.load(Ordering::SeqCst) == self.seen
    }

    /// The rank goes on after [`Client::rest`], if it has not yet; blocks until it has the turn.
    /// One that has left stays away. Returns whether it has asked for the turn: the model had
    /// nothing for it.
    #[inline]
    pub fn wake(&mut self) -> bool {
        self.rests && self.come_back()
    }

    /// What the threads of a rank that has several sleep on ([`Client::rest`]).
    pub fn bell(&self) -> &'static AtomicU32 {
        &self.mailbox.bell
    }

    /// Has one of the rank's sleeping threads go on, for what is there for it.
    pub fn wake_another(&self) {
        ring(&self.mailbox.bell);
    }

    /// Does the rank wait?
    pub fn rests(&self) -> bool {
        self.rests
    }

    /// The rank takes no part any more; what it has issued is still done. It comes back with the
    /// next call, at the time that it is then.
    pub fn leave(&mut self) {
        self.awake();
        for (cause, cost) in std::mem::take(&mut self.costs) {
            let numbers = [cost.times.to_le_bytes(), cost.time.as_ps().to_le_bytes()];
            let now = self.now();
            self.post(
                now,
                record::COST,
                &[numbers.as_flattened(), cause.as_bytes()],
            );
        }
        let sent = [self.sent.0.to_le_bytes(), self.sent.1.to_le_bytes()];
        let now = self.now();
        self.post(now, record::SENT, &[sent.as_flattened()]);
        self.seen = self.stop(state::LEFT, Time::ZERO);
        self.left = true;
    }

    /// Messages and bytes that the rank's program has sent so far: for the report.
    pub fn note_sent(&mut self, messages: u64, bytes: u64) {
        self.sent = (messages, bytes);
    }

    /// Has it left?
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Reads what the card shows at `at`, as of the last [`Client::sync`] or wait. Panics beyond
    /// the end.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        self.arena.read(self.me, at, bytes);
    }

    /// Where what the card shows begins, and how many bytes it is. Mapped as long as the process
    /// lives.
    pub fn shown(&self) -> (*mut u8, usize) {
        (self.arena.shown(self.me), self.arena.memory())
    }

    /// Reads a word there. Panics beyond the end.
    #[inline]
    pub fn word(&self, at: usize) -> u32 {
        u32::from_le(self.arena.word(self.me, at))
    }

    /// Writes there: for memory that only the rank writes and the card only reads on a command that
    /// says so. Panics beyond the end.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.awake();
        self.arena.write(self.me, at, bytes);
    }

    /// Hands the turn to the model. Returns what `turn` was.
    fn stop(&mut self, how: u32, period: Time) -> u32 {
        let mailbox = self.mailbox;
        self.arena.put_commands(self.me, &self.out);
        self.out.clear();
        mailbox
            .clock
            .store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
        mailbox.period.store(period.as_ps(), Ordering::Relaxed);
        let seen = mailbox.turn.load(Ordering::SeqCst);
        // Counted first: a rank that is seen to have stopped will not count itself out of a later
        // round.
        let header = self.arena.header();
        let last = header.running.fetch_sub(1, Ordering::SeqCst) == 1;
        mailbox.state.store(how, Ordering::SeqCst);
        if last || header.gone.load(Ordering::SeqCst) != 0 {
            self.arena.ring();
        }
        seen
    }

    /// Hands the core over, as often as that pays, until `turn` is no longer `seen`. False: it
    /// still is.
    fn yields_for_turn(&self, seen: u32) -> bool {
        // With several threads somebody else may have more use for the core than the other ranks.
        let yields = match self.concurrent {
            true => 0,
            false => self.arena.header().yields.load(Ordering::Relaxed),
        };
        (0..yields).any(|_| {
            sched_yield();
            self.mailbox.turn.load(Ordering::SeqCst) != seen
        })
    }

    /// Goes to the core on which this rank is to be, if the ranks are spread over so many of them.
    /// A program that has been bound otherwise stays where it is.
    #[cold]
    fn move_over(&mut self, cores: u32) {
        let only = |cpu: Option<usize>| {
            let mut set = CpuSet::new();
            set.set(cpu.filter(|c| *c < CpuSet::MAX_CPU)?);
            Some(set)
        };
        let was = only(self.arena.cpu_of(self.me, self.cores));
        let wanted = only(self.arena.cpu_of(self.me, cores));
        self.cores = cores;
        if self.concurrent || wanted == was || sched_getaffinity(None).ok() != was {
            return;
        }
        if let Some(wanted) = wanted {
            // Refused: it works where it is.
            let _ = sched_setaffinity(None, &wanted);
        }
    }

    fn await_turn(&self, seen: u32) {
        if self.yields_for_turn(seen) {
            return;
        }
        for _ in 0..self.spins {
            if self.mailbox.turn.load(Ordering::Acquire) != seen {
                return;
            }
            std::hint::spin_loop();
        }
        self.sleep_for_turn(seen);
    }

    /// Sleeps until `turn` is no longer `seen`.
    fn sleep_for_turn(&self, seen: u32) {
        self.mailbox.asleep.store(1, Ordering::SeqCst);
        sleep(&self.mailbox.turn, seen);
    }

    /// The rank has the turn: takes what came.
    fn go_on(&mut self) {
        let mailbox = self.mailbox;
        mailbox.asleep.store(0, Ordering::Relaxed);
        let cores = self.arena.header().cores.load(Ordering::Relaxed);
        if cores != self.cores && cores > 0 {
            self.move_over(cores);
        }
        let found = mailbox.found.load(Ordering::Relaxed) != 0;
        self.look = match self.look {
            Look::Owed if found => Look::Done,
            _ => Look::New,
        };
        let clock = mailbox.clock.load(Ordering::Relaxed);
        // The program may have asked for the time meanwhile, in another thread.
        self.clock.fetch_max(clock, Ordering::Relaxed);
        self.horizon = Time::ps(mailbox.horizon.load(Ordering::Relaxed));
        let mut taken = std::mem::take(&mut self.taken);
        self.arena.take_events(self.me, &mut taken);
        self.unseen |= !taken.is_empty();
        let mut bytes = &taken[..];
        while let Some(r) = record::take(&mut bytes) {
            self.came.push_back(Event {
                time: r.time,
                kind: r.kind,
                bytes: r.bytes.to_vec(),
            });
        }
        self.taken = taken;
    }

    /// Makes sure that the rank has the turn: takes it if the model has given it, asks for it
    /// otherwise. Blocks until then.
    #[inline]
    fn awake(&mut self) {
        if self.rests || self.left {
            self.come_back();
        }
    }

    /// Returns whether it had to ask for the turn.
    #[cold]
    fn come_back(&mut self) -> bool {
        let mailbox = self.mailbox;
        let from = if self.left {
            state::LEFT
        } else {
            self.rests_as
        };
        let order = Ordering::SeqCst;
        let asks = mailbox
            .state
            .compare_exchange(from, state::REJOINS, order, order)
            .is_ok();
        if asks {
            self.arena.header().rejoins.fetch_add(1, order);
            self.arena.ring();
        }
        // That the state says so is not enough: `turn` is raised after it, and who stopped again
        // before that would take it for the next turn's.
        self.sleep_for_turn(self.seen);
        (self.rests, self.left) = (false, false);
        self.go_on();
        asks
    }
}

/// Raises a bell and wakes one of those who sleep on it.
pub(super) fn ring(bell: &AtomicU32) {
    bell.fetch_add(1, Ordering::SeqCst);
    let _ = futex::wake(bell, futex::Flags::empty(), 1);
}

/// Sleeps until `word` is no longer `seen`.
pub fn sleep(word: &AtomicU32, seen: u32) {
    while word.load(Ordering::SeqCst) == seen {
        let _ = futex::wait(word, futex::Flags::empty(), seen, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn wake(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }

    fn give_turn(mailbox: &Mailbox) {
        mailbox.turn.fetch_add(1, Ordering::SeqCst);
        wake(&mailbox.turn);
    }

    fn await_state(mailbox: &Mailbox, wanted: u32) {
        while mailbox.state.load(Ordering::SeqCst) != wanted {
            std::thread::yield_now();
        }
    }

    /// The turn is there when `turn` says so: not when the state does, and not because somebody was
    /// woken.
    #[test]
    fn who_comes_back_waits_for_the_turn_itself() {
        let arena = Arena::create(1, 0, b"").unwrap();
        let mut client = Client::join(arena, 0);
        let mailbox = client.mailbox;
        client.leave();
        let back = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                client.awake();
                back.store(true, Ordering::SeqCst);
            });
            await_state(mailbox, state::REJOINS);
            mailbox.state.store(state::RUNNING, Ordering::SeqCst);
            for _ in 0..2000 {
                ring(&mailbox.bell);
                wake(&mailbox.turn);
                std::thread::yield_now();
                assert!(!back.load(Ordering::SeqCst), "before its turn");
            }
            give_turn(mailbox);
        });
        assert!(back.into_inner());
    }

    /// A rank that rests and whose bell is rung by another of its threads is counted out once for
    /// each turn.
    #[test]
    fn a_bell_between_rest_and_turn_is_no_turn() {
        let arena = Arena::create(1, 0, b"").unwrap();
        let mut client = Client::join(arena.clone(), 0);
        let (mailbox, header) = (client.mailbox, arena.header());
        client.set_concurrent();
        let (word, heard) = client.rest(Time::ZERO).expect("nothing is there");
        ring(&mailbox.bell);
        sleep(word, heard);
        std::thread::scope(|s| {
            s.spawn(|| {
                client.wake();
                client.catch_up();
            });
            for stopped in [state::REJOINS, state::SYNC] {
                await_state(mailbox, stopped);
                assert_eq!(header.running.load(Ordering::SeqCst), 0);
                header.running.store(1, Ordering::SeqCst);
                mailbox.state.store(state::RUNNING, Ordering::SeqCst);
                give_turn(mailbox);
            }
        });
    }
}
