//! Constants of an ABI, beside those of the standard one.

use super::Abi;
use crate::constants::{Form, GROUPS, Group};
use std::fmt::Write;

/// The constants of an ABI.
#[derive(Clone, Debug)]
pub struct Table {
    values: Vec<(String, String)>,
}

/// A group of ints that are translated: the name of its table in Rust, and the title of its group.
const PAIRS: &[(&str, &str)] = &[
    ("THREADS", "Levels of thread support"),
    ("COMPARISONS", "Results of comparisons"),
    ("SPLITS", "How to split a communicator"),
    ("TOPOLOGIES", "Topologies"),
    ("COMM_KEYS", "Attributes of communicators"),
    ("WIN_KEYS", "Attributes of windows"),
    ("COMBINERS", "How a datatype was made"),
    ("TYPE_CLASSES", "Classes of types"),
    ("ORDERS", "Order of an array"),
    ("DISTRIBUTIONS", "Distribution of an array"),
    ("LOCKS", "Locks of windows"),
    ("FLAVORS", "Flavours of windows"),
    ("MODELS", "Memory models of windows"),
    ("ASSERTIONS", "Assertions about windows"),
    ("MODES", "Modes of files"),
    ("SEEKS", "Positions in files"),
    ("CALLBACK_SAFETY", "When a tool callback may be called"),
    ("SOURCE_ORDERS", "Order of event sources"),
    ("VERBOSITY", "Verbosity of tool variables"),
    ("BINDINGS", "Objects that tool variables are bound to"),
    ("SCOPES", "Scopes of control variables"),
    ("PVAR_CLASSES", "Classes of performance variables"),
];

/// Single constants that the layer uses by name.
const SINGLES: &[(&str, &str)] = &[
    ("MPI_ANY_SOURCE", "i32"),
    ("MPI_ANY_TAG", "i32"),
    ("MPI_PROC_NULL", "i32"),
    ("MPI_ROOT", "i32"),
    ("MPI_UNDEFINED", "i32"),
    ("MPI_ERR_LASTCODE", "i32"),
    ("MPI_BSEND_OVERHEAD", "i32"),
    ("MPI_IN_PLACE", "i64"),
    ("MPI_BUFFER_AUTOMATIC", "i64"),
    ("MPI_STATUS_IGNORE", "i64"),
    ("MPI_UNWEIGHTED", "i64"),
    ("MPI_WEIGHTS_EMPTY", "i64"),
    ("MPI_DISPLACEMENT_CURRENT", "i64"),
];

impl Table {
    /// The table of an ABI.
    pub fn of(abi: Abi) -> Table {
        Table::of_text(abi.text())
    }

    /// The table of a text: a name and a value in each line, `#` before a comment.
    pub(super) fn of_text(text: &str) -> Table {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once(' '));
        Table {
            values: pairs.map(|(n, v)| (n.into(), v.trim().into())).collect(),
        }
    }

    /// The text of a constant: a number or the name of an object.
    pub fn text(&self, name: &str) -> Option<&str> {
        let found = self.values.iter().find(|v| v.0 == name);
        found.map(|v| v.1.as_str())
    }

    /// The value of a constant that is a number.
    pub fn value(&self, name: &str) -> Option<i64> {
        let text = self.text(name)?;
        match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// All names and values.
    pub fn constants(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|v| (v.0.as_str(), v.1.as_str()))
    }
}

/// Does this group hold handles of objects?
pub(super) fn is_handles(group: &Group) -> bool {
    matches!(group.form, Form::Handle(c) if c != "MPI_Offset" && !c.starts_with("MPI_T_"))
}

/// The tables of an ABI as Rust text: pairs of its value and the standard ABI's.
pub fn rust_table(abi: Abi) -> String {
    let table = Table::of(abi);
    let mut out = format!("// Made from crates/api/abis for {}.\n\n", abi.soname());
    for (name, title) in PAIRS {
        let group = group(title);
        let invalid = match *name {
            "WIN_KEYS" => Some(("MPI_KEYVAL_INVALID", 0)),
            _ => None,
        };
        let pairs: Vec<String> = group
            .constants
            .iter()
            .copied()
            .chain(invalid)
            .filter_map(|(n, standard)| Some(format!("({}, {standard})", table.value(n)?)))
            .collect();
        let _ = writeln!(
            out,
            "/// {title}.\npub const {name}: &[(i32, i32)] = &[{}];",
            pairs.join(", ")
        );
    }
    errors(&mut out, &table);
    for (name, ty) in SINGLES {
        if let Some(value) = table.value(name) {
            let short = name.trim_start_matches("MPI_");
            let _ = writeln!(out, "/// {name}.\npub const {short}: {ty} = {value};");
        }
    }
    for (name, _) in group("Room that strings need, with the final null").constants {
        let short = name.trim_start_matches("MPI_MAX_");
        if let Some(value) = table.value(name) {
            let _ = writeln!(
                out,
                "/// {name}.\npub const SIZE_OF_{short}: usize = {value};"
            );
        }
    }
    match abi {
        Abi::Mpich => int_handles(&mut out, &table),
        Abi::OpenMpi => {
            objects(&mut out, &table);
            out += &super::fortran::rust_integers();
        }
    }
    out
}

fn group(title: &str) -> &'static Group {
    let found = GROUPS.iter().find(|g| g.title == title);
    found.expect("the title of a group")
}

/// Classes that MPI 4 has added, with those that an ABI without them has for the same mistake.
const OLDER_CLASSES: [(&str, &str); 1] = [("MPI_ERR_ERRHANDLER", "MPI_ERR_ARG")];

/// The error classes: an array by the standard class, and pairs the other way.
fn errors(out: &mut String, table: &Table) {
    let other = table.value("MPI_ERR_OTHER").unwrap_or(0);
    let classes = group("Error classes").constants;
    let tool = group("Error codes of the tool interface").constants;
    let to: Vec<String> = classes
        .iter()
        .map(|(n, _)| {
            let older = OLDER_CLASSES.iter().find(|(new, _)| new == n);
            let older = older.and_then(|(_, old)| table.value(old));
            table.value(n).or(older).unwrap_or(other).to_string()
        })
        .collect();
    let back: Vec<String> = classes
        .iter()
        .chain(tool)
        .filter_map(|(n, standard)| Some(format!("({}, {standard})", table.value(n)?)))
        .collect();
    let tool: Vec<String> = tool
        .iter()
        .map(|(n, _)| {
            let invalid = table.value("MPI_T_ERR_INVALID").unwrap_or(other);
            table.value(n).unwrap_or(invalid).to_string()
        })
        .collect();
    let _ = writeln!(
        out,
        "/// The classes by the standard ABI's.\npub const CLASSES: [i32; {}] = [{}];\n\
         /// The tool interface's codes by the standard ABI's, from 1001 on.\n\
         pub const TOOL_CODES: [i32; {}] = [{}];\n\
         /// Classes and tool codes with those of the standard ABI.\n\
         pub const CLASS_PAIRS: &[(i32, i32)] = &[{}];",
        to.len(),
        to.join(", "),
        tool.len(),
        tool.join(", "),
        back.join(", ")
    );
}

/// The predefined handles of each kind, for handles that are ints.
fn int_handles(out: &mut String, table: &Table) {
    for group in GROUPS.iter().filter(|g| is_handles(g)) {
        let Form::Handle(c) = group.form else {
            continue;
        };
        let name = c.trim_start_matches("MPI_").to_uppercase();
        let pairs: Vec<String> = group
            .constants
            .iter()
            .filter_map(|(n, standard)| {
                Some(format!("({:#x}, {standard:#x})", table.value(n)? as u32))
            })
            .collect();
        let _ = writeln!(
            out,
            "/// {}.\npub const {name}_HANDLES: &[(u32, u64)] = &[{}];",
            group.title,
            pairs.join(", ")
        );
    }
}

/// The predefined objects, for handles that are addresses, and a table of them by the standard
/// ABI's handles.
fn objects(out: &mut String, table: &Table) {
    let constants = GROUPS.iter().filter(|g| is_handles(g));
    let all: Vec<(&str, i64)> = constants
        .flat_map(|g| g.constants)
        .filter_map(|(n, standard)| Some((table.text(n)?, *standard)))
        .collect();
    for (object, standard) in &all {
        let _ = writeln!(
            out,
            "/// A predefined object.\n#[unsafe(no_mangle)]\npub static {object}: Object = \
             Object::new({standard:#x});"
        );
    }
    let last = all.iter().map(|o| o.1).max().unwrap_or(0);
    let mut entries = vec!["Address::NONE".to_string(); last as usize + 1];
    for (object, standard) in &all {
        entries[*standard as usize] = format!("Address::of(&{object})");
    }
    let _ = writeln!(
        out,
        "/// The objects by the standard ABI's handles.\npub static OBJECTS: [Address; {}] = [{}];",
        entries.len(),
        entries.join(", ")
    );
}

/// A C program that compares the table with the ABI's `mpi.h`. It prints what differs, and fails
/// if anything does.
pub fn probe(abi: Abi) -> String {
    let table = Table::of(abi);
    let mut out = String::from(
        "#include <mpi.h>\n#include <stdio.h>\n#include <stddef.h>\n\nstatic int wrong;\n\n\
         static void check(const char *name, long long is, long long expected)\n{\n    \
         if (is != expected) {\n        printf(\"%s is %lld, not %lld\\n\", name, is, expected);\n\
         \x20       wrong = 1;\n    }\n}\n\nint main(void)\n{\n",
    );
    for (name, text) in table.constants() {
        let value = table.value(name);
        let _ = match value {
            Some(value) if text.starts_with("0x") => writeln!(
                out,
                "    check(\"{name}\", (long long) {name}, (int) {value:#x}u);"
            ),
            Some(value) => writeln!(out, "    check(\"{name}\", (long long) {name}, {value}LL);"),
            None => writeln!(
                out,
                "#ifdef {name}\n    check(\"{name}\", (long long) {name}, (long long) \
                 &{text});\n#endif"
            ),
        };
    }
    let sizes: &[(&str, usize)] = match abi {
        Abi::Mpich => &[
            ("sizeof(MPI_Comm)", 4),
            ("sizeof(MPI_Status)", 20),
            ("offsetof(MPI_Status, MPI_SOURCE)", 8),
            ("offsetof(MPI_Status, MPI_TAG)", 12),
            ("offsetof(MPI_Status, MPI_ERROR)", 16),
        ],
        Abi::OpenMpi => &[
            ("sizeof(MPI_Comm)", 8),
            ("sizeof(MPI_Status)", 24),
            ("offsetof(MPI_Status, MPI_SOURCE)", 0),
            ("offsetof(MPI_Status, MPI_TAG)", 4),
            ("offsetof(MPI_Status, MPI_ERROR)", 8),
        ],
    };
    let common = [
        ("sizeof(MPI_Aint)", 8),
        ("sizeof(MPI_Count)", 8),
        ("sizeof(MPI_Offset)", 8),
        ("sizeof(MPI_Fint)", 4),
        ("sizeof(MPI_File)", 8),
    ];
    for (what, size) in sizes.iter().chain(&common) {
        let _ = writeln!(out, "    check(\"{what}\", (long long) {what}, {size});");
    }
    out += "    return wrong;\n}\n";
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_of_the_standard_abi() {
        for abi in [Abi::Mpich, Abi::OpenMpi] {
            for (name, _) in Table::of(abi).constants() {
                assert!(crate::constants::value(name).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn tables_hold_what_every_program_uses() {
        let mpich = Table::of(Abi::Mpich);
        assert_eq!(mpich.value("MPI_COMM_WORLD"), Some(0x4400_0000));
        let openmpi = Table::of(Abi::OpenMpi);
        assert_eq!(openmpi.text("MPI_INT"), Some("ompi_mpi_int"));
        for (name, title) in PAIRS {
            assert!(!group(title).constants.is_empty(), "{name}");
        }
        assert!(rust_table(Abi::Mpich).contains("pub const COMM_HANDLES"));
        assert!(probe(Abi::OpenMpi).contains("sizeof(MPI_Status), 24"));
    }
}
