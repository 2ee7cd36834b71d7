//! Writes statements of Fortran and C in lines that are not too long.

/// Longest line of free form that this text has. The language allows 132.
const FREE_FORM_COLUMNS: usize = 96;

/// A statement of free form, with continuation lines where it is long. `indent` is in blanks.
/// Broken behind commas alone.
pub fn statement(indent: usize, text: &str) -> String {
    break_at_commas(indent, text, FREE_FORM_COLUMNS, " &")
}

/// A statement of C, broken behind commas where it is long.
pub fn c_statement(indent: usize, text: &str) -> String {
    const COLUMNS: usize = 98;
    break_at_commas(indent, text, COLUMNS, "")
}

/// Breaks a statement behind commas into lines of at most `columns`. Each but the last ends with
/// `mark`.
fn break_at_commas(indent: usize, text: &str, columns: usize, mark: &str) -> String {
    let mut out = " ".repeat(indent);
    let mut column = indent;
    let pieces: Vec<&str> = text.split_inclusive(", ").collect();
    for (at, piece) in pieces.iter().enumerate() {
        let room = if at + 1 < pieces.len() { mark.len() } else { 0 };
        if at > 0 && column + piece.trim_end().len() + room > columns {
            out.truncate(out.trim_end().len());
            out += mark;
            out.push('\n');
            out += &" ".repeat(indent + 4);
            column = indent + 4;
        }
        out += piece;
        column += piece.len();
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_statements_are_broken_behind_commas() {
        let names: Vec<String> = (0..30).map(|n| format!("argument{n}")).collect();
        let text = statement(4, &format!("subroutine x({})", names.join(", ")));
        assert!(text.lines().count() > 3);
        assert!(text.lines().all(|l| l.len() <= FREE_FORM_COLUMNS));
        let (last, others) = text
            .lines()
            .collect::<Vec<_>>()
            .split_last()
            .map(|(l, o)| (*l, o.to_vec()))
            .unwrap();
        assert!(
            others
                .iter()
                .all(|l| l.ends_with(", &") || l.ends_with(" &"))
        );
        assert!(last.ends_with(')'));
        assert_eq!(statement(2, "use mpi"), "  use mpi\n");
    }
}
