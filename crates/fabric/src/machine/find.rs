//! Finding a machine's file: one that comes with Ferry, or the user's own.

use super::registry::built_in;
use std::path::Path;

/// The file of a machine, as its name for messages and its text.
///
/// `name` is a path if it has a `/` or ends in `.toml`. Otherwise it is a machine that comes with
/// Ferry.
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
    match built_in().find(|m| m.name == name) {
        Some(machine) => Ok((format!("{name}.toml"), machine.text.into())),
        None => {
            let names: Vec<&str> = built_in().map(|m| m.name).collect();
            Err(format!(
                "there is no machine \"{name}\"; there are {} (see: ferry machines), and files of \
                 your own: --machine ./{name}.toml",
                names.join(", ")
            ))
        }
    }
}
