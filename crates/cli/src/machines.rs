//! `ferry machines`: the modelled machines, with the meaning and source of each figure.

use ferry_fabric::machine;

/// All that come with Ferry, a line each.
pub fn list() -> String {
    let mut text = String::from(
        "Machines for mpiexec --machine NAME (or a file of your own: docs/machines.md):\n",
    );
    let width = machine::built_in().map(|k| k.name.len()).max().unwrap_or(0);
    for known in machine::built_in() {
        if let Ok(m) = machine::read(known.name, known.text) {
            text += &format!("  {:width$}  {}\n", known.name, m.platform.about.about);
        }
    }
    text
}

/// One machine, figure by figure. With `file`: its file instead, to be copied and changed.
///
/// # Errors
/// There is no such machine, or its file is wrong.
pub fn show(name: &str, file: bool) -> Result<String, String> {
    let (called, text) = machine::find(name)?;
    let machine = machine::read(&called, &text).map_err(|e| e.to_string())?;
    Ok(if file {
        text
    } else {
        machine::explain(&machine, &text)
    })
}

/// What a machine's hardware and driver can do without MPI. The rows are those of the papers'
/// tables.
///
/// # Errors
/// Those of [`show`]. Or the system gives no memory.
pub fn measure(name: &str) -> Result<String, String> {
    let (called, text) = machine::find(name)?;
    let machine = machine::read(&called, &text).map_err(|e| e.to_string())?;
    machine.measure().map_err(|e| format!("{name}: {e}"))
}
