//! The text that `mpiexec -h` prints, from the table of options.

use super::table::{OPTIONS, OptionSpec, Section};

/// How the command is called.
pub const USAGE: &str = "mpiexec [options] [-n N] PROGRAM [ARGUMENT…] \
                         [: [options] [-n N] PROGRAM [ARGUMENT…]]…";
/// What the command does, in one sentence.
pub const ABOUT: &str = "Starts the ranks of an MPI job here or on other hosts, watches them and \
                         ends the job when one fails.";
/// What signals and exit statuses mean.
pub const EXIT_STATUS: &str = "\
    Ctrl-C is passed to all ranks; a second one kills them. Exit status: the highest of the \
    ranks'; 128 + signal if a rank was killed by one; the code given to MPI_Abort; 124 after a \
    timeout, 125 after a hang; 127 if the program is missing, 126 if it cannot be executed or \
    belongs to another MPI, 2 for a wrong command line.";

/// Columns of the whole text.
const COLUMNS: usize = 100;
/// Column at which an option's description begins.
const DESCRIPTION_COLUMN: usize = 27;

/// What `mpiexec -h` prints.
pub fn text() -> String {
    let mut text = format!("usage: {USAGE}\n{ABOUT}\n");
    for section in Section::ALL {
        text += &format!("\n{}", section.title());
        if !section.remark().is_empty() {
            text += &format!(" ({})", section.remark());
        }
        text += "\n";
        let listed = |o: &&OptionSpec| o.section == section && !o.about.is_empty();
        for option in OPTIONS.iter().filter(listed) {
            text += &lines(option);
        }
    }
    text + "\n" + &wrapped(EXIT_STATUS, 0)
}

/// An option with its description.
fn lines(option: &OptionSpec) -> String {
    let mut head = format!("  {}", option.names.join(", "));
    if let Some(value) = option.inline_value {
        head += &format!("[={value}]");
    }
    for value in option.values {
        head += &format!(" {value}");
    }
    let description = wrapped(option.about, DESCRIPTION_COLUMN);
    if head.chars().count() + 1 < DESCRIPTION_COLUMN {
        let first = description.trim_start();
        format!("{head:<DESCRIPTION_COLUMN$}{first}")
    } else {
        format!("{head}\n{description}")
    }
}

/// A text in lines of at most [`COLUMNS`], each indented, and a line feed at the end.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        let length = line.chars().count();
        if length == 0 {
            line.push_str(word);
        } else if indent + length + 1 + word.chars().count() <= COLUMNS {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.into());
        }
    }
    lines
        .iter()
        .map(|line| format!("{:indent$}{line}\n", ""))
        .collect()
}
