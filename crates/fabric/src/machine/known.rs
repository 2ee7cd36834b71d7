//! The machines that come with Ferry, and finding others.

use std::path::Path;

/// A machine file that is built in.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What `--machine` calls it.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! machines {
    ($($name:literal),* $(,)?) => {
        /// All of them, by name.
        const KNOWN: &[Known] = &[$(Known {
            name: $name,
            text: include_str!(concat!("../../../../machines/", $name, ".toml")),
        }),*];
    };
}

machines![
    "cluster40",
    "dimmnet2",
    "dimmnet2-planned",
    "loggp",
    "mpc1",
    "mpc2",
    "mpc3"
];

/// The machines that come with Ferry.
pub fn known() -> impl Iterator<Item = Known> {
    KNOWN.iter().copied()
}

/// The file of a machine: the user's own if `name` is a path (it has a `/` or ends in `.toml`),
/// otherwise one that comes with Ferry. Returns what to call it, and its text.
///
/// # Errors
/// There is no such machine, or the file cannot be read.
pub fn find(name: &str) -> Result<(String, String), String> {
    if name.contains('/') || name.ends_with(".toml") {
        return match std::fs::read_to_string(Path::new(name)) {
            Ok(text) => Ok((name.into(), text)),
            Err(e) => Err(format!("the machine file {name} cannot be read: {e}")),
        };
    }
    match KNOWN.iter().find(|m| m.name == name) {
        Some(machine) => Ok((format!("{name}.toml"), machine.text.into())),
        None => {
            let names: Vec<&str> = KNOWN.iter().map(|m| m.name).collect();
            Err(format!(
                "there is no machine \"{name}\"; there are {} (see: ferry machines), and files of your own: --machine ./{name}.toml",
                names.join(", ")
            ))
        }
    }
}
