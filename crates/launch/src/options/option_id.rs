//! What options do: the names by which the table and the parser know it.

/// What an option does.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OptionId {
    Count,
    Soft,
    Wdir,
    Path,
    ConfigFile,
    Env(EnvOption),
    AllowOtherMpi,
    Label,
    Stdin,
    Timeout,
    OnHang,
    Bind,
    BindCore,
    BindNone,
    ReportBindings,
    Hosts(HostsOption),
    Names,
    Universe,
    Machine(MachineOption),
    Verbose,
    Help,
    Version,
    /// Accepted without effect.
    Ignored,
}

/// What an option does with the environment of ranks: of one program, or of all.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum EnvOption {
    Set,
    InheritAll,
    InheritNone,
    InheritList,
    GlobalSet,
    GlobalInheritAll,
    GlobalInheritNone,
    GlobalInheritList,
    Export,
    InitialErrhandler,
    Overlap,
    OverlapReport,
}

/// What an option does with the hosts that ranks run on, and how they are started there.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum HostsOption {
    Host,
    Hosts,
    HostFile,
    PerHost,
    MapBy,
    ByNode,
    BySlot,
    RankBy,
    Launcher,
    LauncherPath,
    HostTimeout,
}

/// What an option does with a modelled machine.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum MachineOption {
    Name,
    Report,
    Paced,
    Interfaces,
    Check,
    Trace,
    Compute,
}
