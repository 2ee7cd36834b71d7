//! A timeline in the Trace Event Format (JSON), which Perfetto (ui.perfetto.dev) and Chrome read.

use super::Rank;
use crate::time::Time;
use rustc_hash::FxHashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A row of the timeline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Track {
    /// What a rank does.
    Rank(Rank),
    /// What a node's card does.
    Card(u32),
    /// What goes by on a link, by its number.
    Link(u32),
}

impl Track {
    /// Group and row, as the format numbers them (`pid` and `tid`).
    fn numbers(self) -> (u32, u32) {
        match self {
            Track::Rank(n) => (1, n),
            Track::Card(n) => (2, n),
            Track::Link(n) => (3, n),
        }
    }
}

/// A timeline that is being written.
pub struct Trace {
    out: BufWriter<File>,
    named: FxHashSet<Track>,
    links: Vec<String>,
    failed: bool,
}

impl Trace {
    /// Begins the file. `links`: the links' names.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, links: Vec<String>) -> io::Result<Trace> {
        let mut out = BufWriter::new(File::create(path)?);
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        for (pid, name) in [(1, "ranks"), (2, "cards"), (3, "links")] {
            let comma = if pid == 1 { "" } else { "," };
            write!(
                out,
                "{comma}\n{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\
                 \"args\":{{\"name\":\"{name}\"}}}}"
            )?;
        }
        Ok(Trace {
            out,
            named: FxHashSet::default(),
            links,
            failed: false,
        })
    }

    /// Adds a span. After a write has failed (a full disk) nothing more is written.
    pub fn span(&mut self, track: Track, name: &str, began: Time, ended: Time) {
        if !self.failed && self.write(track, name, began, ended).is_err() {
            self.failed = true;
        }
    }

    fn write(&mut self, track: Track, name: &str, began: Time, ended: Time) -> io::Result<()> {
        let (pid, tid) = track.numbers();
        if self.named.insert(track) {
            let label = match track {
                Track::Rank(n) => format!("rank {n}"),
                Track::Card(n) => format!("card of node {n}"),
                Track::Link(n) => match self.links.get(n as usize) {
                    Some(name) => name.clone(),
                    None => format!("link {n}"),
                },
            };
            write!(
                self.out,
                ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{pid},\"tid\":{tid},\
                 \"args\":{{\"name\":\"{}\"}}}}",
                escaped(&label)
            )?;
        }
        // The format counts in microseconds; six digits behind the point make picoseconds.
        let at = |t: Time| format!("{}.{:06}", t.as_ps() / 1_000_000, t.as_ps() % 1_000_000);
        write!(
            self.out,
            ",\n{{\"ph\":\"X\",\"name\":\"{}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{}}}",
            escaped(name),
            at(began),
            at(ended - began)
        )
    }

    /// Ends the file. Returns false if something could not be written.
    pub fn end(mut self) -> bool {
        let ended = write!(self.out, "\n]}}\n").and_then(|()| self.out.flush());
        ended.is_ok() && !self.failed
    }
}

/// The text escaped for a JSON string.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_json() {
        let path = std::env::temp_dir().join(format!("ferry-trace-{}.json", std::process::id()));
        let mut trace = Trace::create(&path, vec!["node 0 → \"switch\"".into()]).unwrap();
        trace.span(Track::Rank(1), "waits", Time::ps(1_500_000), Time::us(3));
        trace.span(Track::Link(0), "a\nb\\", Time::ZERO, Time::ns(1));
        assert!(trace.end());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.contains("\"ts\":1.500000,\"dur\":1.500000"), "{text}");
        assert!(
            text.contains("node 0 → \\\"switch\\\"") && text.contains("\"a b\\\\\""),
            "{text}"
        );
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert!(text.trim_end().ends_with("]}"));
    }
}
