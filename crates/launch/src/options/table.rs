//! The table of options: their names, and how many values each takes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// One option of the command line.
pub(super) struct OptionSpec {
    /// What it does.
    pub(super) id: OptionId,
    /// Arguments that follow it: 0, 1 or 2.
    pub(super) values: usize,
    /// Its names, without dashes. One dash or two mean the same.
    pub(super) names: &'static [&'static str],
}

/// Shorthand for a row of [`OPTIONS`].
const fn option(id: OptionId, values: usize, names: &'static [&'static str]) -> OptionSpec {
    OptionSpec { id, values, names }
}

/// Every option. The names are those of Hydra (MPICH, Intel MPI) and of Open MPI.
pub(super) const OPTIONS: &[OptionSpec] = &[
    option(OptionId::Count, 1, &["n", "np", "c"]),
    option(OptionId::Env, 2, &["env"]),
    option(OptionId::Genv, 2, &["genv"]),
    option(OptionId::Export, 1, &["x"]),
    option(OptionId::EnvAll, 0, &["envall"]),
    option(OptionId::EnvNone, 0, &["envnone"]),
    option(OptionId::EnvList, 1, &["envlist"]),
    option(OptionId::GenvAll, 0, &["genvall"]),
    option(OptionId::GenvNone, 0, &["genvnone"]),
    option(OptionId::GenvList, 1, &["genvlist"]),
    option(OptionId::Wdir, 1, &["wdir", "wd", "cwd"]),
    option(
        OptionId::Label,
        0,
        &["l", "prepend-rank", "tag-output", "line-label"],
    ),
    option(OptionId::Stdin, 1, &["s", "stdin"]),
    option(OptionId::Timeout, 1, &["timeout"]),
    option(OptionId::Bind, 1, &["bind-to", "binding"]),
    option(OptionId::BindCore, 0, &["bind-to-core"]),
    option(OptionId::BindNone, 0, &["bind-to-none"]),
    option(
        OptionId::ReportBindings,
        0,
        &["report-bindings", "print-bindings"],
    ),
    option(OptionId::OnHang, 1, &["on-hang"]),
    option(OptionId::Overlap, 0, &["overlap"]),
    option(OptionId::OverlapReport, 0, &["overlap-report"]),
    option(OptionId::Host, 1, &["host", "H"]),
    option(OptionId::Hosts, 1, &["hosts"]),
    option(OptionId::HostFile, 1, &["f", "hostfile", "machinefile"]),
    option(OptionId::PerHost, 1, &["ppn", "perhost", "npernode", "N"]),
    option(OptionId::MapBy, 1, &["map-by"]),
    option(OptionId::ByNode, 0, &["bynode"]),
    option(OptionId::BySlot, 0, &["byslot"]),
    option(
        OptionId::Launcher,
        1,
        &["launcher", "rmk-launcher", "bootstrap", "launcher-exec"],
    ),
    option(OptionId::LauncherPath, 1, &["launcher-path"]),
    option(OptionId::HostTimeout, 1, &["host-timeout"]),
    option(OptionId::Machine, 1, &["machine"]),
    option(OptionId::MachineReport, 0, &["machine-report"]),
    option(OptionId::MachineTrace, 1, &["machine-trace"]),
    option(OptionId::MachineCompute, 1, &["machine-compute"]),
    option(OptionId::Verbose, 0, &["v", "verbose"]),
    option(OptionId::Help, 0, &["h", "help", "?"]),
    option(OptionId::Version, 0, &["V", "version", "info"]),
    // Accepted for the sake of other launchers' scripts; they change nothing.
    option(
        OptionId::Ignored,
        0,
        &[
            "oversubscribe",
            "allow-run-as-root",
            "use-hwthread-cpus",
            "nolocal",
            "q",
            "quiet",
            "overload-allowed",
        ],
    ),
    option(OptionId::RankBy, 1, &["rank-by"]),
    option(OptionId::Ignored, 1, &["prefix"]),
    option(OptionId::Ignored, 2, &["mca", "gmca", "prtemca", "pmixmca"]),
];

/// What an option does. The names of the variants are those of the options.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OptionId {
    Count,
    Env,
    Genv,
    Export,
    EnvAll,
    EnvNone,
    EnvList,
    GenvAll,
    GenvNone,
    GenvList,
    Wdir,
    Label,
    Stdin,
    Timeout,
    Bind,
    BindCore,
    BindNone,
    ReportBindings,
    OnHang,
    Overlap,
    OverlapReport,
    Host,
    Hosts,
    HostFile,
    PerHost,
    MapBy,
    ByNode,
    BySlot,
    Launcher,
    LauncherPath,
    HostTimeout,
    Machine,
    MachineReport,
    MachineTrace,
    MachineCompute,
    Verbose,
    Help,
    Version,
    /// Accepted without effect.
    Ignored,
    RankBy,
}

/// An option's name without its dashes: "-np" and "--np" give "np". `None` if it is no option.
pub(super) fn option_name(argument: &OsStr) -> Option<String> {
    let text = argument.as_bytes().strip_prefix(b"-")?;
    let text = text.strip_prefix(b"-").unwrap_or(text);
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

/// Splits "timeout=5" into "timeout" and "5".
pub(super) fn split_inline_value(name: &str) -> (&str, Option<&str>) {
    name.split_once('=')
        .map_or((name, None), |(name, value)| (name, Some(value)))
}

/// A name is suggested for a misspelt one if at most this many letters differ. With three, most
/// short names are near each other.
const SUGGESTION_EDITS_MAX: usize = 2;

/// The error for an option that is not in the table, with the nearest name that is.
pub(super) fn unknown(argument: &OsStr, name: &str) -> String {
    let nearest = OPTIONS
        .iter()
        .flat_map(|option| option.names)
        .map(|known| (edit_distance(name, known), *known))
        .min();
    let dashes = |known: &str| {
        if known.len() > 4 && known.contains('-') || known == "timeout" {
            "--"
        } else {
            "-"
        }
    };
    match nearest {
        Some((edits, known)) if edits <= SUGGESTION_EDITS_MAX && edits < name.len() => {
            format!(
                "unknown option {}; did you mean {}{known}?",
                argument.to_string_lossy(),
                dashes(known)
            )
        }
        _ => format!(
            "unknown option {}; mpiexec -h lists them all",
            argument.to_string_lossy()
        ),
    }
}

/// Levenshtein distance: the least number of letters to insert, delete or change.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let up = row[j + 1];
            row[j + 1] = (corner + usize::from(x != *y)).min(up + 1).min(row[j] + 1);
            corner = up;
        }
    }
    row[b.len()]
}
