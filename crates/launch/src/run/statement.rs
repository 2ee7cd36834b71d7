//! What a launcher says of its job to those of other jobs.

use std::collections::BTreeSet;

use crate::hang::Traffic;

/// Longest report of a job, bytes. Longer ones are cut.
const REPORT_MAX_BYTES: usize = 48 << 10;
/// Most jobs that a statement names. A choice: more than any program meets.
const KNOWN_MAX: u64 = 4096;
/// Longest contact, bytes: more than those of a host with all addresses that a card has room for.
const CONTACT_MAX_BYTES: u64 = 4096;

/// Jobs that sleep.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sleeping {
    pub traffic: Traffic,
    /// Who waits for whom in each.
    pub report: String,
}

/// What is said of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Statement {
    /// The newest counts.
    pub number: u64,
    /// The jobs that came of one mpiexec have the same.
    pub family: u64,
    /// Where its launcher listens. Empty: nowhere.
    pub contact: String,
    /// Jobs of which its ranks know processes.
    pub known: BTreeSet<u64>,
    /// `None`: it moves.
    pub sleeping: Option<Sleeping>,
}

impl Sleeping {
    pub fn with(self, other: &Sleeping) -> Sleeping {
        Sleeping {
            traffic: self.traffic.with(other.traffic),
            report: self.report + &other.report,
        }
    }
}

impl Statement {
    /// Do both say the same? How long a job sleeps, and so the report, is no news.
    pub fn is_like(&self, other: &Statement) -> bool {
        let traffic = |s: &Statement| s.sleeping.as_ref().map(|s| s.traffic);
        (&self.contact, &self.known, traffic(self))
            == (&other.contact, &other.known, traffic(other))
    }

    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        let word = |out: &mut Vec<u8>, word: u64| out.extend(word.to_le_bytes());
        word(out, self.number);
        word(out, self.family);
        word(out, self.contact.len() as u64);
        out.extend(self.contact.as_bytes());
        word(out, self.known.len() as u64);
        self.known.iter().for_each(|&job| word(out, job));
        let Some(sleeping) = &self.sleeping else {
            return;
        };
        word(out, sleeping.traffic.sent);
        word(out, sleeping.traffic.received);
        out.push(u8::from(sleeping.traffic.has_finished));
        let mut end = sleeping.report.len().min(REPORT_MAX_BYTES);
        while !sleeping.report.is_char_boundary(end) {
            end -= 1;
        }
        out.extend(&sleeping.report.as_bytes()[..end]);
    }

    /// Reads what [`Statement::put`] has appended, up to the end. `None`: it is none.
    pub fn read(bytes: &[u8]) -> Option<Statement> {
        let mut input = Input(bytes);
        let (number, family) = (input.word()?, input.word()?);
        let len = input.word().filter(|&len| len <= CONTACT_MAX_BYTES)?;
        let contact = input.text(len as usize)?;
        let count = input.word().filter(|&count| count <= KNOWN_MAX)?;
        let known = (0..count).map(|_| input.word()).collect::<Option<_>>()?;
        let sleeping = match input.0 {
            [] => None,
            _ => Some(Sleeping {
                traffic: Traffic {
                    sent: input.word()?,
                    received: input.word()?,
                    has_finished: input.byte()? != 0,
                },
                report: input.text(input.0.len())?,
            }),
        };
        Some(Statement {
            number,
            family,
            contact,
            known,
            sleeping,
        })
    }
}

/// Bytes that are read.
pub(super) struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    pub fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    pub fn text(&mut self, len: usize) -> Option<String> {
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement() -> Statement {
        Statement {
            number: 4,
            family: 9,
            contact: "7:name".into(),
            known: BTreeSet::from([1, 2]),
            sleeping: Some(Sleeping {
                traffic: Traffic {
                    sent: 3,
                    received: 2,
                    has_finished: true,
                },
                report: "who waits\n".into(),
            }),
        }
    }

    fn encoded(statement: &Statement) -> Vec<u8> {
        let mut out = Vec::new();
        statement.put(&mut out);
        out
    }

    #[test]
    fn statements_come_back() {
        for statement in [statement(), Statement::default()] {
            assert_eq!(Statement::read(&encoded(&statement)), Some(statement));
        }
        assert_eq!(Statement::read(b"S"), None);
    }

    #[test]
    fn fuzz_statements() {
        let seeds = [encoded(&statement()), encoded(&Statement::default())];
        ferry_fuzz::fuzz("statements of launchers", &seeds, |bytes| {
            Statement::read(bytes).is_some()
        });
    }
}
