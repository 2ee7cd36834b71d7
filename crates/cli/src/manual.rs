//! Manual pages and shell completions of the commands, made from their descriptions by clap.

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::install::Content;

const MAN_FOLDER: &str = "share/man/man1";

/// Pages of other names, and the page that each is a link to.
const LINKED_PAGES: [(&str, &str); 2] = [("mpicxx.1", "mpicc.1"), ("mpic++.1", "mpicc.1")];

/// A file to install.
pub struct Page {
    /// Its place below the prefix.
    pub place: String,
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
fn commands() -> [Command; 2] {
    [
        crate::Ferry::command().disable_help_subcommand(true),
        ferry_cli::wrapper::options::command(),
    ]
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
        place: format!("{MAN_FOLDER}/{name}"),
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
        place: format!("{MAN_FOLDER}/{}", page.get_filename()),
        text: Text::Own(corrected(&text)),
    });
    for subcommand in command.get_subcommands() {
        manual(subcommand, pages);
    }
}

/// A page of clap_mangen with its empty date in quotes, so that the version does not take its
/// place, and with a usual heading for what stands after the options.
fn corrected(page: &str) -> String {
    let page = page.replacen(" 1  \"", " 1 \"\" \"", 1);
    page.replace("\n.SH EXTRA\n", "\n.SH NOTES\n")
}

fn completions(command: &Command, pages: &mut Vec<Page>) {
    let name = command.get_name();
    let places = [
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
    for (shell, place) in places {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), name, &mut text);
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if shell == Shell::Zsh {
            // A colon ends an option's name there, unless it is quoted.
            text = text.replace("'--showme:", r"'--showme\:");
        }
        pages.push(Page {
            place,
            text: Text::Own(text),
        });
    }
}
