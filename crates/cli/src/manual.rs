//! Manual pages and shell completions of the commands, made from their descriptions by clap.

use clap::{Arg, ArgAction, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use ferry_launch::manual::{ABOUT, EXIT_STATUS, OPTIONS, USAGE};

use crate::install::Content;

const MAN_FOLDER: &str = "share/man/man1";

/// Pages of other names, and the page that each is a link to.
const LINKED_PAGES: [(&str, &str); 6] = [
    ("mpirun.1", "mpiexec.1"),
    ("mpicxx.1", "mpicc.1"),
    ("mpic++.1", "mpicc.1"),
    ("mpifort.1", "mpicc.1"),
    ("mpif90.1", "mpicc.1"),
    ("mpif77.1", "mpicc.1"),
];

/// A file to install.
pub struct Page {
    /// Its path below the prefix.
    pub path: String,
    text: Text,
}

enum Text {
    Own(String),
    /// A link to a page in the same folder.
    SameAs(&'static str),
}

impl Page {
    /// What the file is made from.
    pub fn content(&self) -> Content<'_> {
        match &self.text {
            Text::Own(text) => Content::Text(text),
            Text::SameAs(page) => Content::Link(page),
        }
    }
}

/// The commands that are described.
fn commands() -> [Command; 3] {
    [
        crate::Ferry::command().disable_help_subcommand(true),
        mpiexec(),
        ferry_cli::wrapper::options::command(),
    ]
}

/// mpiexec as clap describes it: its own parser knows blocks of programs and options of several
/// letters after one dash, which clap does not. Both take the options from one table.
fn mpiexec() -> Command {
    let listed = OPTIONS.iter().filter(|option| !option.about.is_empty());
    let options = listed.map(|option| {
        let bare = option.names.iter().map(|name| name.trim_start_matches('-'));
        let (short, long): (Vec<&str>, Vec<&str>) = bare.partition(|name| name.len() == 1);
        let others = short.iter().skip(1).map(|name| format!("-{name}"));
        let others: Vec<String> = others
            .chain(long.iter().skip(1).map(|name| format!("--{name}")))
            .collect();
        let mut about = option.about.to_string();
        if !others.is_empty() {
            about += &format!(". Other names: {}", others.join(", "));
        }
        let mut arg = Arg::new(option.names[0])
            .help(about)
            .help_heading(option.section.title());
        if let Some(name) = short.first().and_then(|name| name.chars().next()) {
            arg = arg.short(name);
        }
        if let Some(name) = long.first() {
            arg = arg.long(*name);
        }
        match (option.values, option.inline_value) {
            ([], None) => arg.action(ArgAction::SetTrue),
            ([], Some(name)) => arg.value_name(name).num_args(0..=1).require_equals(true),
            (names, _) => arg.value_names(names).action(ArgAction::Append),
        }
    });
    let program = Arg::new("PROGRAM")
        .num_args(0..)
        .trailing_var_arg(true)
        .value_hint(ValueHint::CommandWithArguments)
        .help("The program and its arguments; after a ':' the next ones");
    Command::new("mpiexec")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Start the ranks of an MPI job")
        .long_about(format!("{ABOUT} Options may have one dash or two."))
        .override_usage(USAGE)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(options)
        .arg(program)
        .after_help(EXIT_STATUS)
}

/// All manual pages and completions.
pub fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    for mut command in commands() {
        completions(&command, &mut pages);
        command.build();
        manual(&command, &mut pages);
    }
    pages.extend(LINKED_PAGES.map(|(name, of)| Page {
        path: format!("{MAN_FOLDER}/{name}"),
        text: Text::SameAs(of),
    }));
    pages
}

/// The page of a command, and one for each of its subcommands.
fn manual(command: &Command, pages: &mut Vec<Page>) {
    let page = Man::new(command.clone())
        .source(concat!("Ferry MPI ", env!("CARGO_PKG_VERSION")))
        .manual("Ferry MPI");
    let mut text = Vec::new();
    page.render(&mut text)
        .expect("writing to memory does not fail");
    let text = String::from_utf8_lossy(&text);
    pages.push(Page {
        path: format!("{MAN_FOLDER}/{}", page.get_filename()),
        text: Text::Own(corrected(&text)),
    });
    for subcommand in command.get_subcommands() {
        manual(subcommand, pages);
    }
}

/// A page of clap_mangen with its empty date in quotes, so that the version does not take its
/// place, in ASCII, and with a usual heading for what stands after the options.
fn corrected(page: &str) -> String {
    let page = page.replacen(" 1  \"", " 1 \"\" \"", 1);
    let page = page.replace('…', r"\&...");
    page.replace("\n.SH EXTRA\n", "\n.SH NOTES\n")
}

fn completions(command: &Command, pages: &mut Vec<Page>) {
    let name = command.get_name();
    let folders = [
        (
            Shell::Bash,
            format!("share/bash-completion/completions/{name}"),
        ),
        (Shell::Zsh, format!("share/zsh/site-functions/_{name}")),
        (
            Shell::Fish,
            format!("share/fish/vendor_completions.d/{name}.fish"),
        ),
    ];
    for (shell, path) in folders {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), name, &mut text);
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if shell == Shell::Zsh {
            // A colon ends an option's name there, unless it is quoted.
            text = text.replace("'--showme:", r"'--showme\:");
        }
        pages.push(Page {
            path,
            text: Text::Own(text),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_whole() {
        for command in commands() {
            command.debug_assert();
        }
        let text = |name: &str| {
            let pages = pages();
            let page = pages.iter().find(|p| p.path.ends_with(name)).unwrap();
            match &page.text {
                Text::Own(text) => text.clone(),
                Text::SameAs(other) => (*other).into(),
            }
        };
        assert!(text("man1/mpiexec.1").contains("hostfile"));
        assert!(text("man1/mpiexec.1").is_ascii());
        assert!(text("man1/ferry-doctor.1").contains("coverage"));
        assert_eq!(text("man1/mpirun.1"), "mpiexec.1");
        assert!(text("site-functions/_mpicc").contains(r"--showme\:compile"));
    }
}
