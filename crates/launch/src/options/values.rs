//! The values of single options. Each is checked; the error names the option.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::model::{Binding, OnHang, StdinTarget};
use crate::hosts::{self, Host, MapBy, RankBy};
use ferry_job::InitialErrhandler;

/// Most ranks of a job.
pub const RANKS_MAX: u32 = 65_536;
/// How long a host may be silent unless the user says otherwise. Agents send a heartbeat at least
/// every second, so ten of them in a row must be lost.
pub(super) const HOST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// --machine-compute: how many times as long as on this host computation takes.
pub(super) fn compute_factor(option: &str, text: &str) -> Result<f64, String> {
    match text {
        "zero" => return Ok(0.0),
        "measured" => return Ok(1.0),
        _ => {}
    }
    let factor = text.parse::<f64>().ok();
    factor
        .filter(|f| f.is_finite() && *f >= 0.0)
        .ok_or_else(|| {
            format!(
                "{option} {text}: it can be zero, measured, or how many times as long as here \
             computation takes"
            )
        })
}

/// --machine-interfaces: numbers of descriptors.
pub(super) fn descriptors(option: &str, text: &str) -> Result<Vec<i32>, String> {
    let numbers: Result<Vec<i32>, _> = text.split(',').map(str::parse).collect();
    numbers
        .ok()
        .filter(|numbers| numbers.iter().all(|n| *n >= 0))
        .ok_or_else(|| format!("{option} {text}: numbers of descriptors, one a rank"))
}

/// Variables that name a host file, in order of precedence. Schedulers and operators set them.
const HOST_FILES: [&str; 5] = [
    "FERRY_HOSTFILE",
    "HYDRA_HOST_FILE",
    "I_MPI_HYDRA_HOST_FILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
];

/// The hosts that a variable or a scheduler's allocation names. For command lines that name none.
pub(super) fn hosts_from_environment(
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<Option<Vec<Host>>, String> {
    for name in HOST_FILES {
        if let Some(path) = variable(name).filter(|p| !p.is_empty()) {
            return host_file(name, Path::new(&path)).map(Some);
        }
    }
    hosts::allocation(variable).transpose()
}

/// --hosts and --host.
pub fn host_list(option: &str, text: &str) -> Result<Vec<Host>, String> {
    hosts::parse_list(text).map_err(|e| format!("{option} {text}: {e}"))
}

/// Reads a host file.
pub fn host_file(option: &str, path: &Path) -> Result<Vec<Host>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("{option} {shown}: it cannot be read: {e}"))?;
    hosts::parse_file(&text).map_err(|e| format!("{option} {shown}: {e}"))
}

/// --map-by: `slot`, `node` or `ppr:2:node`, with Open MPI's modifiers after a colon. Everything
/// smaller than a node fills slots.
pub(super) fn map_by(option: &str, text: &str) -> Result<MapBy, String> {
    let mut words = text.split(':');
    let (first, second, third) = (words.next(), words.next(), words.next());
    match (first, second, third) {
        (Some("ppr"), Some(n), Some("node")) => Ok(MapBy::PerHost(count(option, OsStr::new(n))?)),
        (Some("node"), ..) => Ok(MapBy::Node),
        (
            Some(
                "" | "slot" | "core" | "hwthread" | "socket" | "package" | "numa" | "l1cache"
                | "l2cache" | "l3cache",
            ),
            ..,
        ) => Ok(MapBy::Slot),
        _ => Err(format!("{option} {text:?}: say slot, node or ppr:N:node")),
    }
}

/// --rank-by: `slot` or `node`, with modifiers after a colon.
pub(super) fn rank_by(option: &str, text: &str) -> Result<RankBy, String> {
    match text.split(':').next() {
        Some("node") => Ok(RankBy::Node),
        Some("slot" | "fill" | "core") => Ok(RankBy::Slot),
        _ => Err(format!("{option} {text:?}: say slot or node")),
    }
}

/// --host-timeout.
pub(super) fn host_timeout(option: &str, text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(Duration::ZERO),
        Ok(s) if (0.1..1e6).contains(&s) => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!(
            "{option} {text:?}: not a number of seconds from 0.1 on, or 0 for never"
        )),
    }
}

/// --overlap. Without a mode: where it pays.
pub(super) fn overlap(given: &str, mode: Option<&str>) -> Result<String, String> {
    match mode.unwrap_or("on") {
        mode @ ("on" | "off" | "trace" | "always" | "comm") => Ok(mode.to_owned()),
        _ => Err(format!(
            "{given} is not --overlap, or --overlap=MODE with on, trace, always, comm or off"
        )),
    }
}

/// -n and its kin.
pub(super) fn count(option: &str, value: &OsStr) -> Result<u32, String> {
    let text = value.to_string_lossy();
    match text.parse::<u32>() {
        Ok(0) => Err(format!("{option} 0: a job has at least 1 rank")),
        Ok(n) if n <= RANKS_MAX => Ok(n),
        Ok(_) => Err(format!("{option} {text}: more than {RANKS_MAX} ranks")),
        Err(_) => Err(format!(
            "{option} {text:?}: not a number of ranks (1, 2, …)"
        )),
    }
}

/// -soft, with the value of -n: the number of ranks to start.
pub(super) fn soft_count(soft: &str, max: Option<u32>) -> Result<u32, String> {
    let Some(max) = max else {
        return Err(format!(
            "-soft {soft} without -n N, the most ranks to start"
        ));
    };
    match ferry_job::soft_count(soft, max) {
        Ok(0) => Err(format!("-soft {soft}: a job has at least 1 rank")),
        Ok(count) => Ok(count),
        Err(e) => Err(format!("-soft {soft:?}: {e}")),
    }
}

/// --timeout.
pub(super) fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s < 1e9 => Ok(Duration::from_secs_f64(s)),
        _ => Err(format!(
            "{option} {text:?}: not a number of seconds above 0"
        )),
    }
}

/// --on-hang.
pub(super) fn on_hang(option: &str, text: &str) -> Result<OnHang, String> {
    match text {
        "end" | "abort" | "kill" => Ok(OnHang::End),
        "report" => Ok(OnHang::Report),
        "ignore" => Ok(OnHang::Ignore),
        _ => Err(format!("{option} {text:?}: say end, report or ignore")),
    }
}

impl OnHang {
    /// As [`on_hang`] reads it.
    pub fn word(self) -> &'static str {
        match self {
            OnHang::End => "end",
            OnHang::Report => "report",
            OnHang::Ignore => "ignore",
        }
    }
}

/// --bind-to.
pub(super) fn binding(option: &str, text: &str) -> Result<Binding, String> {
    match text.split(':').next().unwrap_or_default() {
        "core" | "cpu" | "user" => Ok(Binding::Core),
        "hwthread" => Ok(Binding::HwThread),
        "l3cache" | "l3" => Ok(Binding::L3Cache),
        "numa" => Ok(Binding::Numa),
        "socket" | "package" => Ok(Binding::Socket),
        "none" => Ok(Binding::None),
        "share" => Ok(Binding::Share),
        _ => Err(format!(
            "{option} {text:?}: say core, hwthread, l3cache, numa, socket or none"
        )),
    }
}

/// -initial-errhandler: the name of a predefined handler (MPI 5.0 §11.8.4).
pub(super) fn initial_errhandler(option: &str, text: &str) -> Result<InitialErrhandler, String> {
    InitialErrhandler::from_name(text)
        .ok_or_else(|| format!("{option} {text:?}: say {}", InitialErrhandler::names()))
}

/// -stdin.
pub(super) fn stdin_target(option: &str, value: &OsStr) -> Result<StdinTarget, String> {
    let text = value.to_string_lossy();
    match &*text {
        "all" => Ok(StdinTarget::All),
        "none" => Ok(StdinTarget::None),
        _ => text
            .parse()
            .map(StdinTarget::Rank)
            .map_err(|_| format!("{option} {text:?}: say all, none or a rank")),
    }
}

/// A variable's name.
pub(super) fn env_name(option: &str, name: OsString) -> Result<OsString, String> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(format!("{option} {name:?}: not the name of a variable"));
    }
    Ok(name)
}

/// Names with commas between them.
pub(super) fn list(value: &OsStr) -> Vec<OsString> {
    value
        .as_bytes()
        .split(|&b| b == b',')
        .filter(|n| !n.is_empty())
        .map(|n| OsStr::from_bytes(n).into())
        .collect()
}
