//! The settings of transparent overlap: FERRY_OVERLAP and its kin.

use super::lock::lock;
use super::pending::{close_late, complete_before_fork, complete_pending};
use super::{site, site_report};
use crate::{Comm, Result, device, err, process};
use ferry_job::settings;
use ferry_pageguard::{Kind, enable};
use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8};

/// When collectives overlap with what follows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// Never.
    Off,
    /// At call sites where it pays.
    On,
    /// Never. The order in which the program touches its data is recorded.
    Trace,
    /// Always when it is possible; for tests.
    Always,
    /// At call sites where it pays, on communicators whose info asks for it.
    Comm,
}

const MODES: [(&str, Mode); 5] = [
    ("off", Mode::Off),
    ("on", Mode::On),
    ("trace", Mode::Trace),
    ("always", Mode::Always),
    ("comm", Mode::Comm),
];

/// Minimum number of bytes that a call must move to overlap, if FERRY_OVERLAP_MIN says nothing. A
/// choice.
const OVERLAP_MIN_BYTES: i64 = 64 * 1024;

static MODE: AtomicU8 = AtomicU8::new(0);
/// 0: none; 1: moves; 2: mprotect.
static GUARD: AtomicU8 = AtomicU8::new(0);
/// FERRY_OVERLAP_MIN; 0 if it is not set.
static MIN_BYTES_SETTING: AtomicI64 = AtomicI64::new(0);
/// Why memory cannot be guarded.
static NO_GUARD_REASON: Mutex<Option<String>> = Mutex::new(None);

impl Mode {
    /// The mode that FERRY_OVERLAP asks for.
    ///
    /// Errors: a value that means nothing.
    pub fn from_environment() -> Result<Mode> {
        parse_variable("FERRY_OVERLAP", &MODES, Mode::Off)
    }
}

/// The value of an environment variable that has one of these names as its text.
fn parse_variable<T: Copy>(name: &str, values: &[(&str, T)], otherwise: T) -> Result<T> {
    let value = std::env::var(name).unwrap_or_default();
    match value.trim() {
        "" => Ok(otherwise),
        text => {
            let known = values.iter().find(|(n, _)| *n == text);
            known.map(|k| k.1).ok_or_else(|| {
                let all: Vec<_> = values.iter().map(|(n, _)| *n).collect();
                err!(
                    Other,
                    "{name} is {text:?}; what can be chosen is {}",
                    all.join(", ")
                )
            })
        }
    }
}

/// Returns whether guards may be used. The library must keep its memory apart from the program's
/// heap then. Allocates nothing.
pub fn separates_memory() -> bool {
    // SAFETY: the name ends with 0; the environment is not changed meanwhile, as the standard
    // demands of programs.
    let value = unsafe { libc::getenv(c"FERRY_OVERLAP".as_ptr()) };
    if value.is_null() {
        return false;
    }
    // SAFETY: a string of the environment.
    let value = unsafe { CStr::from_ptr(value) }.to_bytes();
    !matches!(value, b"" | b"off")
}

/// The mode in force.
#[inline]
pub(super) fn mode() -> Mode {
    MODES[MODE.load(Relaxed) as usize].1
}

/// How memory is guarded, if it can be.
pub(super) fn guard_kind() -> Option<Kind> {
    match GUARD.load(Relaxed) {
        1 => Some(Kind::Move),
        2 => Some(Kind::Protect),
        _ => None,
    }
}

/// The number of bytes that a call must move at least.
pub(super) fn min_bytes(mode: Mode) -> i64 {
    match MIN_BYTES_SETTING.load(Relaxed) {
        0 if mode == Mode::Always => ferry_pageguard::PAGE_BYTES as i64,
        0 => OVERLAP_MIN_BYTES,
        set => set,
    }
}

/// Returns whether overlap is wanted on this communicator and can help there.
pub(super) fn is_wanted(comm: &Comm, mode: Mode) -> bool {
    match (comm.coll.overlap(), mode) {
        (Some(false), _) | (None, Mode::Comm) => false,
        (_, Mode::Always | Mode::Trace) => true,
        _ => *comm.coll.overlap_can_help.get_or_init(|| can_help(comm)),
    }
}

/// Maximum number of ranks that share a core where overlap is tried over a network. A choice: more
/// were not measured.
const RANKS_PER_CORE_MAX: usize = 2;

/// Returns whether messages can advance while the ranks compute: there is a core without a rank, or
/// a network. On one node without a free core, a rank computes only while another one waits.
fn can_help(comm: &Comm) -> bool {
    let rank_info = &process::process().rank_info;
    let (cores, ranks) = (rank_info.cores as usize, rank_info.local_ranks.len());
    if cores > ranks || cores * RANKS_PER_CORE_MAX < ranks {
        return cores > ranks;
    }
    let mut d = device::device();
    let all = comm.remote_group().size();
    let same = (0..all).all(|r| d.capabilities(comm.peer(r)).same_node);
    d.drop_within_call();
    !same
}

/// Starts overlap, if FERRY_OVERLAP asks for it. Called before MPI is used in this process.
///
/// Errors: a setting that means nothing, or a guard that was asked for and is not available.
pub fn start() -> Result<()> {
    match Mode::from_environment()? {
        Mode::Off => Ok(()),
        mode => prepare(mode),
    }
}

/// Overlap was started late, or it cannot be.
static LATE_START_DECIDED: AtomicBool = AtomicBool::new(false);
static LATE_START_LOCK: Mutex<()> = Mutex::new(());

/// Starts overlap for a communicator whose info asks for it, unless the environment sets
/// FERRY_OVERLAP. Returns the mode that is in force then. To be called at the beginning of a call,
/// without the device.
#[cold]
pub(super) fn start_late() -> Mode {
    if LATE_START_DECIDED.load(Acquire) {
        return mode();
    }
    let _guard = lock(&LATE_START_LOCK);
    let is_set = || std::env::var("FERRY_OVERLAP").is_ok_and(|v| !v.trim().is_empty());
    if mode() == Mode::Off && !LATE_START_DECIDED.load(Relaxed) && !is_set() {
        try_late();
    }
    LATE_START_DECIDED.store(true, Release);
    mode()
}

fn try_late() {
    let rank_info = &process::process().rank_info;
    if !ferry_pageguard::use_arena()
        || !device::enable_progress_thread(rank_info.local_ranks.len() as u32)
    {
        return;
    }
    let begun = device::start_progress_thread().map_err(|e| e.to_string());
    let begun = begun.and_then(|()| prepare(Mode::Comm).map_err(|e| e.text().to_owned()));
    if let Err(why) = begun {
        *lock(&NO_GUARD_REASON) = Some(why);
    }
}

fn prepare(mode: Mode) -> Result<()> {
    let requested = parse_variable(
        "FERRY_OVERLAP_GUARD",
        &[
            ("auto", None),
            ("move", Some(Kind::Move)),
            ("mprotect", Some(Kind::Protect)),
            ("off", None),
        ],
        None,
    )?;
    let off = std::env::var("FERRY_OVERLAP_GUARD").is_ok_and(|v| v.trim() == "off");
    if let Some(bytes) = settings::OVERLAP_MIN.whole() {
        MIN_BYTES_SETTING.store(bytes as i64, Relaxed);
    }
    let kind = requested.unwrap_or(Kind::Move);
    let number = match (off, enable(kind)) {
        (true, _) => 0,
        (_, Ok(())) => 1 + u8::from(kind == Kind::Protect),
        (_, Err(e)) if requested.is_some() => {
            return Err(err!(
                Other,
                "FERRY_OVERLAP_GUARD asks for guards that cannot be had: {e}"
            ));
        }
        (_, Err(e)) => {
            *lock(&NO_GUARD_REASON) = Some(e.to_string());
            0
        }
    };
    GUARD.store(number, Relaxed);
    ferry_pageguard::set_before_fork(complete_before_fork)
        .map_err(|e| err!(Other, "overlap cannot be prepared: {e}"))?;
    if mode != Mode::Trace {
        site_report::read_orders(process::process().me)?;
    }
    let at = MODES.iter().position(|m| m.1 == mode).unwrap_or(0);
    MODE.store(at as u8, Relaxed);
    let mut d = device::device();
    d.disable_zero_copy();
    d.drop_within_call();
    Ok(())
}

/// Ends overlap and its watching thread, after the last use of MPI. `print` gets the lines of the
/// report, if one was asked for.
///
/// Errors: the trace cannot be written.
pub fn stop(print: &mut dyn FnMut(&str)) -> Result<()> {
    let mode = mode();
    if mode == Mode::Off {
        return Ok(());
    }
    let _ = complete_pending();
    close_late(true);
    LATE_START_DECIDED.store(false, Release);
    MODE.store(0, Relaxed);
    GUARD.store(0, Relaxed);
    ferry_pageguard::stop();
    if settings::OVERLAP_REPORT.is("1") {
        let without = lock(&NO_GUARD_REASON).clone();
        for line in site_report::lines(without.as_deref()) {
            print(&line);
        }
    }
    let result = if mode == Mode::Trace {
        site_report::write_orders(process::process().me)
    } else {
        Ok(())
    };
    site::clear();
    result
}
