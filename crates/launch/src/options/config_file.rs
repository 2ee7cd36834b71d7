//! A file of programs, a line each, as between two colons of the command line (MPI 5.0 §11.5).
//!
//! The standard has comments and continued lines. Quotes and backslashes are as in a shell, which
//! does not replace variables here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// A line that names a program.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// Its number, from 1; of a continued one, the first.
    pub number: usize,
    /// Options, program and arguments.
    pub arguments: Vec<OsString>,
}

/// Reads the file.
///
/// Errors: it cannot be read, a quote is not closed, or there is no program.
pub(super) fn lines(option: &str, file: &Path) -> Result<Vec<Line>, String> {
    let text = std::fs::read(file).map_err(|e| format!("{option} {}: {e}", file.display()))?;
    let lines = split(&text).map_err(|e| format!("{}, {e}", file.display()))?;
    if lines.is_empty() {
        return Err(format!("{option} {}: no program in it", file.display()));
    }
    Ok(lines)
}

/// The lines that are neither empty nor comments, in words.
fn split(text: &[u8]) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let mut rest = text.iter().copied().peekable();
    let mut next_number = 1;
    while rest.peek().is_some() {
        let number = next_number;
        let (mut arguments, mut word) = (Vec::new(), None::<Vec<u8>>);
        let mut quote = None;
        loop {
            let byte = rest.next();
            if byte == Some(b'\n') {
                next_number += 1;
            }
            match (byte, quote) {
                (None, Some(_)) => return Err(format!("line {number}: a quote is not closed")),
                (None | Some(b'\n'), None) => break,
                (Some(b), Some(open)) if b == open => quote = None,
                (Some(b'\\'), None | Some(b'"')) => match rest.next() {
                    Some(b'\n') => next_number += 1,
                    Some(b) => {
                        let word = word.get_or_insert_default();
                        if quote.is_some() && !b"\"\\$`".contains(&b) {
                            word.push(b'\\');
                        }
                        word.push(b);
                    }
                    None => {}
                },
                (Some(b), Some(_)) => word.get_or_insert_default().push(b),
                (Some(b @ (b'"' | b'\'')), None) => {
                    word.get_or_insert_default();
                    quote = Some(b);
                }
                (Some(b'#'), None) if arguments.is_empty() && word.is_none() => {
                    while rest.next_if(|&b| b != b'\n').is_some() {}
                }
                (Some(b), None) if b.is_ascii_whitespace() => arguments.extend(word.take()),
                (Some(b), None) => word.get_or_insert_default().push(b),
            }
        }
        arguments.extend(word);
        if !arguments.is_empty() {
            let arguments = arguments.into_iter().map(OsString::from_vec).collect();
            lines.push(Line { number, arguments });
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(usize, Vec<String>)> {
        let lines = split(text.as_bytes()).unwrap();
        let text = |word: OsString| word.into_string().unwrap();
        let words = |line: Line| line.arguments.into_iter().map(text).collect();
        lines.into_iter().map(|l| (l.number, words(l))).collect()
    }

    fn line(number: usize, words: &[&str]) -> (usize, Vec<String>) {
        (number, words.iter().map(|&w| w.into()).collect())
    }

    #[test]
    fn comments_and_continued_lines() {
        let file = "# first\n\n-n 1 ./a x \\\n  y\n  # -n 9 ./c\n-n 2\t./b #z \\\n\\\n\n./d";
        let wanted = [
            line(3, &["-n", "1", "./a", "x", "y"]),
            line(6, &["-n", "2", "./b", "#z"]),
            line(9, &["./d"]),
        ];
        assert_eq!(words(file), wanted);
        assert_eq!(words("# none\n \n"), []);
    }

    #[test]
    fn quotes_hold_words_together() {
        let file = "a 'b \"c' \"d 'e\" f\\ g '' \"x\\\"y\\n\"\n'two\nlines' z\n";
        let wanted = [
            line(1, &["a", "b \"c", "d 'e", "f g", "", "x\"y\\n"]),
            line(2, &["two\nlines", "z"]),
        ];
        assert_eq!(words(file), wanted);
        let open = split(b"a\nb 'c\n");
        assert_eq!(open, Err("line 2: a quote is not closed".into()));
    }
}
