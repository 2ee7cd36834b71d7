//! The options that the wrappers answer themselves; all others go to the compiler.

use clap::{Arg, ArgAction, Command};

/// What an option asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Query {
    /// The whole command, not run.
    CommandLine,
    /// Words for compiling, with the compiler.
    CompileInfo,
    /// Words for linking, with the compiler.
    LinkInfo,
    /// Words for compiling, alone.
    CompileFlags,
    /// Words for linking, alone.
    LinkFlags,
    /// Folders with headers.
    IncludeFolders,
    /// Folders with libraries.
    LibraryFolders,
    /// Names of libraries.
    Libraries,
    /// The compiler.
    Compiler,
    /// Ferry's version.
    Version,
    /// Use another compiler.
    SetCompiler,
}

/// One option of the wrappers.
pub struct WrapperOption {
    /// What it asks for.
    pub query: Query,
    /// Its names, without dashes; one dash or two may stand before each.
    pub names: &'static [&'static str],
    /// What stands behind "=", if it takes a value.
    pub value: Option<&'static str>,
    /// One line for the manual.
    pub about: &'static str,
}

const fn question(
    query: Query,
    names: &'static [&'static str],
    about: &'static str,
) -> WrapperOption {
    WrapperOption {
        query,
        names,
        value: None,
        about,
    }
}

/// All of them.
pub const OPTIONS: &[WrapperOption] = &[
    question(
        Query::CommandLine,
        &["show", "showme", "echo"],
        "Print the compiler's command line and do not run it",
    ),
    question(
        Query::CompileFlags,
        &["showme:compile"],
        "Print the flags that compiling needs",
    ),
    question(
        Query::LinkFlags,
        &["showme:link"],
        "Print the flags that linking needs",
    ),
    question(
        Query::IncludeFolders,
        &["showme:incdirs"],
        "Print the folder of mpi.h",
    ),
    question(
        Query::LibraryFolders,
        &["showme:libdirs"],
        "Print the folder of the library",
    ),
    question(
        Query::Libraries,
        &["showme:libs"],
        "Print the name of the library",
    ),
    question(
        Query::Compiler,
        &["showme:command"],
        "Print the compiler's name",
    ),
    question(Query::Version, &["showme:version"], "Print Ferry's version"),
    question(
        Query::CompileInfo,
        &["compile_info", "compile-info"],
        "Print the command line of a compilation and do not run it",
    ),
    question(
        Query::LinkInfo,
        &["link_info", "link-info"],
        "Print the command line of linking and do not run it",
    ),
    WrapperOption {
        query: Query::SetCompiler,
        names: &["cc", "cxx", "fc", "f90", "f77"],
        value: Some("COMPILER"),
        about: "Use this compiler; the environment's FERRY_CC, FERRY_CXX and FERRY_FC do so, too",
    },
];

/// The option that an argument without its dashes is, with its value.
pub fn find(text: &str) -> Option<(Query, &str)> {
    OPTIONS.iter().find_map(|option| {
        let (name, value) = match option.value {
            Some(_) => text.split_once('=')?,
            None => (text, ""),
        };
        option
            .names
            .contains(&name)
            .then_some((option.query, value))
    })
}

/// The words that may follow "-showme:".
pub fn showme_words() -> Vec<&'static str> {
    let names = OPTIONS.iter().flat_map(|option| option.names);
    names.filter_map(|n| n.strip_prefix("showme:")).collect()
}

/// The wrapper as clap describes it, for manual pages and completions.
pub fn command() -> Command {
    let options = OPTIONS.iter().map(|option| {
        let (name, others) = (option.names[0], &option.names[1..]);
        let mut about = option.about.to_string();
        if !others.is_empty() {
            about += &format!(". Other names: --{}", others.join(", --"));
        }
        let arg = Arg::new(name).long(name).help(about);
        match option.value {
            Some(value) => arg.value_name(value).require_equals(true),
            None => arg.action(ArgAction::SetTrue),
        }
    });
    let rest = Arg::new("ARGUMENT")
        .num_args(0..)
        .value_hint(clap::ValueHint::FilePath)
        .help("Options, sources and objects for the compiler");
    Command::new("mpicc")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Compile and link MPI programs in C, C++ and Fortran")
        .long_about(
            "Runs the C compiler (cc) with Ferry's header and library; under the names mpicxx and \
             mpic++ the C++ compiler (c++), under mpifort, mpif90 and mpif77 the Fortran compiler \
             (gfortran). What it does not know goes to the compiler as it is. Options may have one \
             dash or two.",
        )
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(options)
        .arg(rest)
        .after_help(
            "The compiler is named by FERRY_CC, FERRY_CXX or FERRY_FC, or by the variables of \
             other MPIs: MPICH_CC, OMPI_CC, I_MPI_CC and their kin that end in CXX and FC. Module \
             files are compiled once for each Fortran compiler, and kept in \
             $XDG_CACHE_HOME/ferry-mpi or ~/.cache/ferry-mpi.",
        )
}
