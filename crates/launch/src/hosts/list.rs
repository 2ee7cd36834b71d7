//! Lists of hosts on the command line and in files, in MPICH's and in Open MPI's forms.

use super::{Host, add, checked_name};

/// Most slots of a host: as many as a job may have ranks.
const SLOTS_MAX: u32 = 65_536;

/// Reads `a,b:4,[::1]:2`. A host without a number gets one slot each time it is named.
pub fn parse_list(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for entry in text.split([',', ' ']).filter(|e| !e.is_empty()) {
        let (name, slots) = name_and_slots(entry)?;
        let (slots, max_slots) = (slots.unwrap_or(1), None);
        add(
            &mut hosts,
            Host {
                name,
                slots,
                max_slots,
            },
        );
    }
    if hosts.is_empty() {
        return Err("no host is named".into());
    }
    Ok(hosts)
}

/// Reads a host file, with one host on each line: `host`, `host:4` or `host slots=4 max_slots=8`.
/// `#` begins a comment. `user=NAME` is for ssh. Other words of MPICH and Intel MPI (`binding=`,
/// `ifname=`) are ignored.
///
/// # Errors
/// One line that names the line and what is wrong with it.
pub fn parse_file(text: &str) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        // "slots = 4" means the same as "slots=4".
        let line = line.replace(" =", "=").replace("= ", "=");
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let host = parse_line(first, words).map_err(|e| format!("line {number}: {e}"))?;
        add(&mut hosts, host);
    }
    if hosts.is_empty() {
        return Err("no host is named".into());
    }
    Ok(hosts)
}

fn parse_line<'a>(first: &str, words: impl Iterator<Item = &'a str>) -> Result<Host, String> {
    let (mut name, mut slots) = name_and_slots(first)?;
    let mut max_slots = None;
    let number = |key: &str, value: &str| match value.parse::<u32>() {
        Ok(n) if (1..=SLOTS_MAX).contains(&n) => Ok(Some(n)),
        _ => Err(format!("{key}={value}: not a number of ranks")),
    };
    for word in words {
        match word.split_once('=') {
            Some((key @ ("slots" | "cpu" | "count" | "cpus"), value)) => {
                slots = number(key, value)?;
            }
            Some((key @ ("max_slots" | "max-slots" | "slots_max" | "slots-max"), value)) => {
                max_slots = number(key, value)?;
            }
            Some(("user" | "username" | "user_name" | "user-name", user)) => {
                name = checked_name(&format!("{user}@{name}"))?;
            }
            Some(("binding" | "ifname" | "port", _)) => {}
            _ => {
                return Err(format!(
                    "{word:?} is not known; say HOST, HOST:4 or HOST slots=4 max_slots=8"
                ));
            }
        }
    }
    let slots = slots.or(max_slots).unwrap_or(1);
    if max_slots.is_some_and(|most| most < slots) {
        return Err(format!("{name} has more slots than max_slots"));
    }
    Ok(Host {
        name,
        slots,
        max_slots,
    })
}

/// Reads `host`, `host:4`, `[address]:4`, or an IPv6 address without a number.
fn name_and_slots(entry: &str) -> Result<(String, Option<u32>), String> {
    let (name, slots) = if let Some(rest) = entry.strip_prefix('[') {
        let (name, after) = rest
            .split_once(']')
            .ok_or_else(|| format!("{entry:?}: a ']' is missing"))?;
        match after.strip_prefix(':') {
            Some(slots) => (name, Some(slots)),
            None if after.is_empty() => (name, None),
            None => return Err(format!("{entry:?} is not HOST:SLOTS")),
        }
    } else if entry.parse::<std::net::Ipv6Addr>().is_ok() {
        (entry, None)
    } else {
        match entry.split_once(':') {
            Some((name, slots)) => (name, Some(slots)),
            None => (entry, None),
        }
    };
    let slots = slots
        .map(|text| match text.parse::<u32>() {
            Ok(n) if (1..=SLOTS_MAX).contains(&n) => Ok(n),
            _ => Err(format!("{entry:?}: {text:?} is not a number of ranks")),
        })
        .transpose()?;
    Ok((checked_name(name)?, slots))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(hosts: &[Host]) -> String {
        let one = |h: &Host| match h.max_slots {
            Some(most) => format!("{}:{}/{most}", h.name, h.slots),
            None => format!("{}:{}", h.name, h.slots),
        };
        hosts.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lists() {
        assert_eq!(shown(&parse_list("a:4,b:2").unwrap()), "a:4 b:2");
        assert_eq!(shown(&parse_list("a,a,b").unwrap()), "a:2 b:1");
        assert_eq!(
            shown(&parse_list("[fe80::1]:3,::1").unwrap()),
            "fe80::1:3 ::1:1"
        );
        for wrong in [
            "",
            "a:0",
            "a:x",
            "-oProxyCommand=x",
            "a;b",
            "[::1",
            "a:99999999",
        ] {
            assert!(parse_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files_of_both_kinds() {
        let text = "# the cluster\nalpha:4   # fast\n\nbeta slots=2 max_slots=4\ngamma slots = 3\n\
                    delta\nuser@eps max-slots=2\nzeta:1 user=ann binding=rr\nalpha\n";
        assert_eq!(
            shown(&parse_file(text).unwrap()),
            "alpha:5 beta:2/4 gamma:3 delta:1 user@eps:2/2 ann@zeta:1"
        );
        let wrong = parse_file("a\nb slots=x\n").unwrap_err();
        assert!(
            wrong.contains("line 2") && wrong.contains("slots=x"),
            "{wrong}"
        );
        assert!(parse_file("a bogus\n").unwrap_err().contains("line 1"));
        assert!(parse_file("# nothing\n").is_err());
        assert!(parse_file("a slots=4 max_slots=2").is_err());
    }

    #[test]
    fn fuzz_hosts() {
        let seeds = [
            b"a:4\nb slots=2 max_slots=4 # c\n[::1]:3\nu@h slots = 2".to_vec(),
            b"n[1-3,07-09],m2".to_vec(),
            b"2(x3),1".to_vec(),
        ];
        ferry_fuzz::fuzz("hosts", &seeds, |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let read = [parse_file(&text), parse_list(&text)];
            for host in read.iter().flatten().flatten() {
                assert!(!host.name.starts_with('-') && host.slots > 0);
            }
            let slurm = crate::hosts::slurm::expand(&text).map_or(0, |n| n.len() % 7);
            let counts = crate::hosts::slurm::counts(&text, 100).is_ok();
            (read[0].is_ok(), read[1].is_ok(), slurm, counts)
        });
    }
}
