//! Messages of PMI-1 and PMI-2.
//!
//! PMI-1: a line of `key=value` words. PMI-2: six digits of length, then `key=value;` pairs. A
//! semicolon within a value is doubled.

use crate::spawn_order::SpawnOrder;

/// Longest message that is accepted. Bounds the memory that a wrong length can ask for.
pub(super) const MESSAGE_MAX_BYTES: usize = 1 << 20;

/// The pairs of a message, in order. The first is `cmd`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message(Vec<(String, String)>);

impl Message {
    /// The value of a key.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(k, _)| k == key);
        found.map(|(_, v)| v.as_str())
    }
    /// The value of a key, as a number.
    pub(super) fn number(&self, key: &str) -> Option<i64> {
        self.value(key)?.trim().parse().ok()
    }
    /// The command.
    pub(super) fn command(&self) -> &str {
        self.value("cmd").unwrap_or("?")
    }
}

/// Parses a line of PMI-1 without its end. Words without `=` are skipped: error texts have spaces.
pub(super) fn parse_line(line: &[u8]) -> Option<Message> {
    let text = std::str::from_utf8(line).ok()?;
    let pairs: Vec<(String, String)> = text
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    (pairs.first()?.0 == "cmd").then_some(Message(pairs))
}

/// The key by which processes that were started find the port of who has started them.
pub(super) const PARENT_KEY: &str = "ferry-parent";

/// The request to start processes: a block of lines for each program. `None`: a text has a line
/// end, or a program has a file of hosts, which PMI-1 cannot say.
pub(super) fn spawn_request(order: &SpawnOrder) -> Option<String> {
    let word = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).ok()?;
        (!text.contains('\n')).then_some(text)
    };
    let programs = order.programs.len();
    let mut request = String::new();
    for (number, program) in (1..).zip(&order.programs) {
        if !program.host_file.is_empty() {
            return None;
        }
        let mut words: Vec<String> = Vec::new();
        // PMI-1 has no variables.
        if !program.variables.is_empty() {
            words.push("/usr/bin/env".into());
            for variable in &program.variables {
                words.push(word(variable)?);
            }
        }
        words.push(word(&program.command)?);
        for argument in &program.arguments {
            words.push(word(argument)?);
        }
        let mut infos = Vec::new();
        for (key, value) in [
            ("wdir", &program.wdir),
            ("hosts", &program.hosts),
            ("path", &program.path),
        ] {
            if !value.is_empty() {
                infos.push((key, word(value)?));
            }
        }
        let mut line = |text: String| {
            request += &text;
            request.push('\n');
        };
        line("mcmd=spawn".into());
        line(format!("nprocs={}", program.count));
        line(format!("execname={}", words[0]));
        line(format!("totspawns={programs}"));
        line(format!("spawnssofar={number}"));
        for (at, argument) in words.iter().enumerate().skip(1) {
            line(format!("arg{at}={argument}"));
        }
        line(format!("argcnt={}", words.len() - 1));
        line("preput_num=1".into());
        line(format!("preput_key_0={PARENT_KEY}"));
        line(format!("preput_val_0={}", order.port));
        line(format!("info_num={}", infos.len()));
        for (at, (key, value)) in infos.iter().enumerate() {
            line(format!("info_key_{at}={key}"));
            line(format!("info_val_{at}={value}"));
        }
        line("endcmd".into());
    }
    Some(request)
}

/// Parses the length of a PMI-2 message: six characters.
pub(super) fn parse_length(head: [u8; 6]) -> Option<usize> {
    let text = std::str::from_utf8(&head).ok()?;
    let len: usize = text.trim_matches([' ', '\0']).parse().ok()?;
    (len <= MESSAGE_MAX_BYTES).then_some(len)
}

/// Parses the body of a PMI-2 message.
pub(super) fn parse_body(body: &[u8]) -> Option<Message> {
    let text = std::str::from_utf8(body).ok()?.trim_end_matches('\0');
    let mut pairs = Vec::new();
    let mut rest = text;
    while !rest.trim().is_empty() {
        let (key, after) = rest.split_once('=')?;
        let mut value = String::new();
        let mut chars = after.char_indices().peekable();
        let mut end = after.len();
        while let Some((at, c)) = chars.next() {
            if c != ';' {
                value.push(c);
            } else if chars.peek().is_some_and(|&(_, next)| next == ';') {
                value.push(';');
                chars.next();
            } else {
                end = at + 1;
                break;
            }
        }
        pairs.push((key.trim().to_string(), value));
        rest = &after[end..];
    }
    (pairs.first()?.0 == "cmd").then_some(Message(pairs))
}

/// Encodes a PMI-2 message.
pub(super) fn encode_body(pairs: &[(&str, &str)]) -> Vec<u8> {
    let text: String = pairs
        .iter()
        .map(|(key, value)| format!("{key}={};", value.replace(';', ";;")))
        .collect();
    format!("{:6}{text}", text.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_asked_for() {
        let program = |command: &str| crate::SpawnProgram {
            command: command.into(),
            arguments: vec![b"two words".into()],
            count: 3,
            wdir: b"/tmp".into(),
            ..Default::default()
        };
        let mut order = SpawnOrder {
            port: "ferry2:AAAA".into(),
            programs: vec![program("./a"), program("./b")],
        };
        order.programs[1].variables = vec![b"A=1".into()];
        let request = spawn_request(&order).unwrap();
        let blocks: Vec<&str> = request.split_inclusive("endcmd\n").collect();
        assert_eq!(
            blocks[0],
            "mcmd=spawn\nnprocs=3\nexecname=./a\ntotspawns=2\nspawnssofar=1\narg1=two words\n\
             argcnt=1\npreput_num=1\npreput_key_0=ferry-parent\npreput_val_0=ferry2:AAAA\n\
             info_num=1\ninfo_key_0=wdir\ninfo_val_0=/tmp\nendcmd\n"
        );
        let second = "execname=/usr/bin/env\ntotspawns=2\nspawnssofar=2\narg1=A=1\narg2=./b\n";
        assert!(blocks[1].contains(second) && blocks.len() == 2, "{request}");
        order.programs[0].arguments = vec![b"two\nlines".into()];
        assert_eq!(spawn_request(&order), None);
    }

    #[test]
    fn both_forms_are_read() {
        let m = parse_line(b"cmd=get_result rc=0 msg=success value=(vector,(0,1,4))").unwrap();
        assert_eq!((m.command(), m.number("rc")), ("get_result", Some(0)));
        assert_eq!(m.value("value"), Some("(vector,(0,1,4))"));
        let m = parse_body(b"cmd=x;a=1;;2;b=;rc=0;").unwrap();
        assert_eq!(
            (m.value("a"), m.value("b"), m.number("rc")),
            (Some("1;2"), Some(""), Some(0))
        );
        assert_eq!(
            encode_body(&[("cmd", "y"), ("a", "1;2")]),
            b"    13cmd=y;a=1;;2;"
        );
        assert_eq!(parse_length(*b"    13"), Some(13));
        assert_eq!(parse_length(*b"abcdef"), None);
        assert!(parse_line(b"hello").is_none() && parse_body(b"hello").is_none());
    }

    #[test]
    fn fuzz_pmi_messages() {
        let seeds = [
            b"cmd=get_result rc=0 msg=success value=(vector,(0,1,4))".to_vec(),
            b"cmd=fullinit-response;rank=1;size=4;a=1;;2;rc=0;".to_vec(),
            b"    13".to_vec(),
        ];
        ferry_fuzz::fuzz("PMI messages", &seeds, |bytes| {
            let line = parse_line(bytes);
            let pairs = parse_body(bytes);
            if let Some(message) = &pairs {
                assert_eq!(message.0[0].0, "cmd");
                let own: Vec<(&str, &str)> = message
                    .0
                    .iter()
                    .map(|(k, v)| (k.as_str(), v.as_str()))
                    .collect();
                let again = encode_body(&own);
                // A key that holds a semicolon cannot be written again.
                if own.iter().all(|(k, _)| !k.contains(';')) {
                    let last_open = own.iter().any(|(_, v)| v.ends_with(';'));
                    assert!(last_open || parse_body(&again[6..]).as_ref() == Some(message));
                }
            }
            let len = bytes
                .first_chunk::<6>()
                .and_then(|head| parse_length(*head));
            (line.is_some(), pairs.map(|m| m.0.len()), len.is_some())
        });
    }
}
