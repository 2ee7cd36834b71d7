//! `ferry machines`: the modelled machines, with the meaning and source of each figure.

use ferry_fabric::dimmnet2;
use ferry_fabric::machine;
use ferry_fabric::put;

/// All that come with Ferry, a line each.
pub fn list() -> String {
    let mut text = String::from(
        "Machines for mpiexec --machine NAME (or a file of your own: docs/machines.md):\n",
    );
    let width = machine::known().map(|k| k.name.len()).max().unwrap_or(0);
    for known in machine::known() {
        if let Ok(m) = machine::read(known.name, known.text) {
            text += &format!("  {:width$}  {}\n", known.name, m.machine.about);
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
/// Those of [`show`]. Or the machine's card has no remote write.
pub fn measure(name: &str) -> Result<String, String> {
    let (called, text) = machine::find(name)?;
    let machine = machine::read(&called, &text).map_err(|e| e.to_string())?;
    if let Some(parts) = dimmnet2::measure::parts(&machine) {
        let Some(s) = dimmnet2::measure::strided(&machine) else {
            return Err(format!("{name} has no card of DIMMnet-2"));
        };
        let (count, bytes, _) = dimmnet2::measure::COLUMN;
        let column = |how: &str| format!("{count} strided blocks of {bytes} bytes: {how}");
        let columns = [
            (column("put by RVS with a stride"), s.put_vector),
            (column("put block by block"), s.put_blocks),
            (column("got by RVL with a stride"), s.get_vector),
            (column("got with what lies between"), s.get_whole),
        ];
        let rows = [
            ("BOTF(IVS) 32 bytes", parts.botf),
            ("VL 128 bytes", parts.load),
            ("library-level eager", parts.driver),
        ];
        let rows = rows.map(|(part, time)| format!("{part},{:.6}\n", time.micros()));
        let columns = columns.map(|(part, time)| format!("{part},{:.6}\n", time.micros()));
        return Ok(format!("part,us\n{}{}", rows.concat(), columns.concat()));
    }
    let [hardware, put] = put::measure(&machine).map_err(|e| format!("{name}: {e}"))?;
    let row = |layer: &str, l: put::Layer| {
        format!("{layer},{:.3},{:.1}\n", l.latency.micros(), l.throughput)
    };
    Ok(format!(
        "layer,one_way_latency_us,throughput_Mbit_s\n{}{}",
        row("hardware", hardware),
        row("PUT", put)
    ))
}
