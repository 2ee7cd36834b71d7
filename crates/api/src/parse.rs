//! Reads `mpi.api`.

use crate::kind::Kind;
use crate::{Function, Parameter, Returns, Significance};

/// An error in the description.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {problem}: {text}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// The message.
    pub problem: &'static str,
    /// The text with the error.
    pub text: String,
}

/// Parses a description. Functions are in the order of its lines.
///
/// # Errors
///
/// The first line that is not a comment, chapter or function, or that repeats the name of a
/// function or parameter.
pub fn parse(text: &str) -> Result<Vec<Function>, ParseError> {
    let mut functions: Vec<Function> = Vec::new();
    let mut chapter = String::new();
    for (at, line) in text.lines().enumerate() {
        let line_number = at + 1;
        let fail = |problem, text: &str| {
            Err(ParseError {
                line: line_number,
                problem,
                text: text.into(),
            })
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            match name.strip_suffix(']') {
                Some(name) if is_name(name) => chapter = name.into(),
                _ => return fail("no chapter", line),
            }
            continue;
        }
        if chapter.is_empty() {
            return fail("a function before the first [chapter]", line);
        }
        let mut function = read(line, &chapter).map_err(|(problem, text)| ParseError {
            line: line_number,
            problem,
            text,
        })?;
        if functions.iter().any(|f| f.name == function.name) {
            return fail("the function stands here a second time", &function.name);
        }
        function.number = functions
            .last()
            .map_or(1, |f| f.number + 1 + u32::from(f.large));
        functions.push(function);
    }
    Ok(functions)
}

type Problem = (&'static str, String);

fn read(line: &str, chapter: &str) -> Result<Function, Problem> {
    let open = line
        .find('(')
        .ok_or(("no parenthesis opens", line.to_string()))?;
    let close = closing(line, open).ok_or(("the parenthesis never closes", line.to_string()))?;
    let (name, large) = match line[..open].split_once('/') {
        Some((name, "c")) => (name, true),
        Some((_, suffix)) => return Err(("the suffix can only be c", suffix.into())),
        None => (&line[..open], false),
    };
    if !is_name(name) {
        return Err(("no name of a function", name.into()));
    }
    let mut function = Function {
        chapter: chapter.into(),
        name: name.into(),
        number: 0,
        large,
        parameters: Vec::new(),
        returns: Returns::Code,
        anytime: false,
        joint: false,
        fast: false,
        deprecated: None,
        todo: false,
    };
    let inside = &line[open + 1..close];
    if !inside.trim().is_empty() {
        for piece in inside.split(',') {
            let parameter = parameter(piece.trim())?;
            if function.parameters.iter().any(|p| p.name == parameter.name) {
                return Err(("the parameter stands here a second time", parameter.name));
            }
            function.parameters.push(parameter);
        }
    }
    flags(&mut function, &line[close + 1..])?;
    let first = function.parameters.first();
    if function.joint && !first.is_some_and(|p| matches!(p.kind, Kind::Object(..))) {
        return Err(("joint, but its first parameter is no object", name.into()));
    }
    for p in &function.parameters {
        if let Some(length) = p.argument.as_ref().filter(|_| !p.kind.is("new text"))
            && !function.parameters.iter().any(|q| {
                q.name == *length && (q.kind.is("len") || q.kind.is("n") || q.kind.is("int"))
            })
        {
            return Err(("no parameter of this name can be a length", length.clone()));
        }
        if p.large_only && !function.large {
            return Err((
                "a parameter of the large-count form, which the function does not have",
                p.name.clone(),
            ));
        }
    }
    Ok(function)
}

fn flags(function: &mut Function, text: &str) -> Result<(), Problem> {
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "->" => {
                let to = words.next().unwrap_or("");
                function.returns = match to {
                    "int" => Returns::Int,
                    "double" => Returns::Double,
                    "MPI_Aint" => Returns::Aint,
                    _ if to.starts_with("MPI_") => Returns::Handle(to.into()),
                    _ => return Err(("no type of a result", to.into())),
                };
            }
            "anytime" => function.anytime = true,
            "joint" => function.joint = true,
            "fast" => function.fast = true,
            "todo" => function.todo = true,
            _ => match word
                .strip_prefix("deprecated(")
                .and_then(|w| w.strip_suffix(')'))
            {
                Some(version) => function.deprecated = Some(version.into()),
                None => return Err(("no flag", word.into())),
            },
        }
    }
    Ok(())
}

fn parameter(text: &str) -> Result<Parameter, Problem> {
    if text == "..." {
        return Ok(Parameter {
            name: "...".into(),
            kind: Kind::Variadic,
            argument: None,
            significance: Significance::Always,
            large_only: false,
        });
    }
    let (name, kind) = text
        .split_once(':')
        .ok_or(("no colon between name and kind", text.to_string()))?;
    let (name, mut kind) = (name.trim(), kind.trim());
    if !is_name(name) {
        return Err(("no name of a parameter", name.into()));
    }
    let large_only = kind.starts_with('+');
    kind = kind.trim_start_matches('+');
    let mut significance = Significance::Always;
    if let Some((rest, when)) = kind.split_once('@') {
        kind = rest;
        significance = match when {
            "root" => Significance::Root,
            "leaf" => Significance::Leaf,
            "any" => Significance::Any,
            _ => return Err(("no place where a parameter is significant", when.into())),
        };
    }
    let mut argument = None;
    if let Some((rest, inner)) = kind.split_once('(') {
        let inner = inner
            .strip_suffix(')')
            .ok_or(("the parenthesis never closes", kind.to_string()))?;
        argument = Some(inner.to_string());
        kind = rest;
    }
    let parsed = Kind::parse(kind).ok_or(("no kind of parameter", kind.to_string()))?;
    Ok(Parameter {
        name: name.into(),
        kind: parsed,
        argument,
        significance,
        large_only,
    })
}

/// The parenthesis that closes the one at `open`.
fn closing(line: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in line.bytes().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_function_with_everything() {
        let f = parse(
            "[coll]\n# why\n\nGather/c(sendbuf: sbuf?@leaf, n: n@root, type: ctype@any, \
             root: root, comm: comm) deprecated(9.1) anytime fast todo",
        )
        .unwrap();
        assert_eq!(f.len(), 1);
        let f = &f[0];
        assert_eq!(
            (f.chapter.as_str(), f.name.as_str(), f.large, f.number),
            ("coll", "Gather", true, 1)
        );
        assert!(f.todo && f.anytime && f.fast && f.deprecated.as_deref() == Some("9.1"));
        assert_eq!(f.parameters[0].significance, Significance::Leaf);
        assert!(f.parameters[0].kind.may_be_in_place());
        assert_eq!(f.parameters[1].significance, Significance::Root);
    }

    #[test]
    fn a_large_count_form_takes_a_number_of_its_own() {
        let f = parse("[a]\nA/c()\nB()\nC()").unwrap();
        assert_eq!(f.iter().map(|f| f.number).collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        assert_eq!(
            problem("A()"),
            "line 1: a function before the first [chapter]: A()"
        );
        assert_eq!(
            problem("[a]\nA(x: nonsense)"),
            "line 2: no kind of parameter: nonsense"
        );
        assert_eq!(
            problem("[a]\nA(x int)"),
            "line 2: no colon between name and kind: x int"
        );
        assert_eq!(
            problem("[a]\nA(x: int"),
            "line 2: the parenthesis never closes: A(x: int"
        );
        assert_eq!(
            problem("[a]\n\nA(x: int, x: int)"),
            "line 3: the parameter stands here a second time: x"
        );
        assert_eq!(
            problem("[a]\nA()\nA()"),
            "line 3: the function stands here a second time: A"
        );
        assert_eq!(problem("[a]\nA() soon"), "line 2: no flag: soon");
        assert_eq!(
            problem("[a]\nA(x: ints(k))"),
            "line 2: no parameter of this name can be a length: k"
        );
        assert_eq!(
            problem("[a]\nA(x: n@moon)"),
            "line 2: no place where a parameter is significant: moon"
        );
        assert_eq!(
            problem("[a]\nA(x: +n)"),
            "line 2: a parameter of the large-count form, which the function does not have: x"
        );
        assert_eq!(
            problem("[a]\nA() -> float"),
            "line 2: no type of a result: float"
        );
        assert_eq!(problem("[a]\nA/d()"), "line 2: the suffix can only be c: d");
        assert_eq!(problem("[a"), "line 1: no chapter: [a");
    }
}
