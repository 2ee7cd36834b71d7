//! A launcher's statement on its job, for the launchers of other jobs ([`super::peers`]).

use std::collections::BTreeSet;

use crate::hang::Traffic;

/// Longest report of a job, bytes. Longer ones are cut.
const REPORT_MAX_BYTES: usize = 48 << 10;
/// Jobs that a statement names at most. A choice: more than any program connects with.
const KNOWN_MAX: u64 = 4096;
/// Longest contact, bytes: more than those of a host with all addresses that a card has room for.
const CONTACT_MAX_BYTES: u64 = 4096;

/// The state of a job, or of several, all of whose ranks sleep.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sleeping {
    pub traffic: Traffic,
    /// Who waits for whom in each.
    pub report: String,
}

/// A launcher's statement on its job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Statement {
    /// Grows by one with each statement of the job. The newest counts.
    pub number: u64,
    /// See [`super::peers::Peers::family`].
    pub family: u64,
    /// Where its launcher listens. Empty: nowhere.
    pub contact: String,
    /// Jobs with which its ranks are connected.
    pub known: BTreeSet<u64>,
    /// `None`: some rank is awake.
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
    /// Do both say the same, but for the report? The report tells how long ranks sleep.
    pub fn says_the_same_as(&self, other: &Statement) -> bool {
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
