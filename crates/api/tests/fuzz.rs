//! The description of the functions, when it is written wrongly.

use ferry_api::{DESCRIPTION, parse::parse};
use ferry_fuzz::fuzz;

#[test]
fn fuzz_description() {
    let lines: Vec<Vec<u8>> = DESCRIPTION
        .lines()
        .filter(|l| l.contains('(') && !l.starts_with('#'))
        .map(|l| format!("[x]\n{l}\n").into_bytes())
        .collect();
    fuzz("mpi.api", &lines, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match parse(&text) {
            Ok(functions) => {
                for f in &functions {
                    // What the generators ask of every function.
                    assert!(!f.name.is_empty() && !f.chapter.is_empty() && f.number > 0);
                    assert!(f.forms().count() == 1 + usize::from(f.large));
                }
                (functions.len(), String::new())
            }
            Err(e) => {
                assert!(e.line >= 1 && e.line <= text.lines().count().max(1));
                (usize::MAX, e.problem.to_string())
            }
        }
    });
}
