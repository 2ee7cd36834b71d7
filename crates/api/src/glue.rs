//! The signatures of hand-written glue.

use crate::{Function, Returns, functions};

/// The chapters, in the order of the description.
pub fn chapters() -> Vec<&'static str> {
    let mut all: Vec<&str> = functions().iter().map(|f| f.chapter.as_str()).collect();
    all.dedup();
    all
}

/// The glue signatures of a chapter, or of the function of that name. `None` if there is neither.
pub fn signatures(what: &str) -> Option<String> {
    let what = what.strip_prefix("MPI_").unwrap_or(what);
    let mut out = String::new();
    for f in functions()
        .iter()
        .filter(|f| f.chapter == what || f.name.eq_ignore_ascii_case(what))
    {
        if f.chapter == "convert" {
            continue;
        }
        out += &signature(f);
        out += if f.todo { ";   // todo\n" } else { ";\n" };
    }
    (!out.is_empty()).then_some(out)
}

/// The glue signature of one function.
pub fn signature(f: &Function) -> String {
    let given = f.parameters.iter().filter(|p| p.name != "...");
    let mut parameters: Vec<String> = given
        .clone()
        .map(|p| format!("{}: {}", rust_name(&p.name), p.kind.glue()))
        .collect();
    if f.joint {
        let types: Vec<String> = given.skip(1).map(|p| p.kind.glue()).collect();
        parameters.truncate(1);
        parameters.push(match &types[..] {
            [only] => format!("argument: Result<{only}>"),
            _ => format!("arguments: Result<({})>", types.join(", ")),
        });
    }
    let returns = match f.returns {
        Returns::Code => "Result<()>",
        Returns::Int => "i32",
        Returns::Double => "f64",
        Returns::Aint => "i64",
        Returns::Handle(_) => "Handle",
    };
    format!(
        "pub fn {}({}) -> {returns}",
        f.name.to_lowercase(),
        parameters.join(", ")
    )
}

/// A parameter's name in Rust.
pub fn rust_name(name: &str) -> &str {
    name
}
