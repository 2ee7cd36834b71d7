//! The hosts that Slurm has given to this job.

use super::{Host, add, checked_name};

/// Most hosts of an allocation: as many as a job may have ranks. Bounds what a wrong variable can
/// expand to.
const HOSTS_MAX: usize = 65_536;

/// The hosts of the Slurm allocation that this process is in. `None` if it is in none. `variable`
/// looks a name up in the environment.
///
/// # Errors
/// One line that names the variable which cannot be understood.
pub fn allocation(variable: impl Fn(&str) -> Option<String>) -> Option<Result<Vec<Host>, String>> {
    variable("SLURM_JOB_ID")?;
    // The first of these that is set, and its value.
    let first_of = |names: [&'static str; 2]| {
        let mut names = names.into_iter();
        names.find_map(|name| Some((name, variable(name)?)))
    };
    let nodes = first_of(["SLURM_JOB_NODELIST", "SLURM_NODELIST"])?;
    let tasks = first_of(["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"]);
    Some(read(nodes, tasks))
}

/// The hosts that two variables describe. Each comes as its name and its value; `nodes` is a node
/// list, `tasks` a list of counts.
fn read(
    nodes: (&'static str, String),
    tasks: Option<(&'static str, String)>,
) -> Result<Vec<Host>, String> {
    let (name, text) = nodes;
    let names = expand(&text).map_err(|e| format!("{name}={text:?}: {e}"))?;
    let slots = match tasks {
        Some((name, text)) => {
            counts(&text, names.len()).map_err(|e| format!("{name}={text:?}: {e}"))?
        }
        None => vec![1; names.len()],
    };
    let mut hosts = Vec::new();
    for (name, slots) in names
        .into_iter()
        .zip(slots.into_iter().chain(std::iter::repeat(1)))
    {
        let max_slots = None;
        add(
            &mut hosts,
            Host {
                name,
                slots,
                max_slots,
            },
        );
    }
    Ok(hosts)
}

/// Expands a node list: `n[1-3,07],m2` gives n1 n2 n3 n07 m2.
pub(super) fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // An entry ends at a comma outside of brackets.
        let mut inside = false;
        let end = rest.find(|c| {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                _ => {}
            }
            c == ',' && !inside
        });
        let (entry, after) = end.map_or((rest, ""), |at| (&rest[..at], &rest[at + 1..]));
        for name in expand_one(entry)? {
            names.push(checked_name(&name)?);
        }
        if names.len() > HOSTS_MAX {
            return Err("too many hosts".into());
        }
        rest = after;
    }
    if names.is_empty() {
        return Err("no host is named".into());
    }
    Ok(names)
}

/// Expands one entry, which may hold several brackets.
fn expand_one(entry: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = entry.split_once('[') else {
        return Ok(vec![entry.to_string()]);
    };
    let (ranges, after) = rest
        .split_once(']')
        .ok_or_else(|| format!("a ']' is missing in {entry:?}"))?;
    let tails = expand_one(after)?;
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let width = low.len();
        let number = |text: &str| {
            text.parse::<u32>()
                .map_err(|_| format!("{range:?} is no range of numbers"))
        };
        let (from, to) = (number(low)?, number(high)?);
        let wanted = u64::from(to).saturating_sub(u64::from(from)) + 1;
        if to < from || wanted * tails.len() as u64 + names.len() as u64 > HOSTS_MAX as u64 {
            return Err(format!("{range:?} is no range of hosts"));
        }
        for n in from..=to {
            for tail in &tails {
                names.push(format!("{before}{n:0width$}{tail}"));
            }
        }
    }
    Ok(names)
}

/// Expands a list of counts: `2(x3),1` gives 2 2 2 1. At most `hosts` numbers.
pub(super) fn counts(text: &str, hosts: usize) -> Result<Vec<u32>, String> {
    let mut all = Vec::new();
    for entry in text.split(',') {
        let wrong = || format!("{entry:?} is no number of tasks");
        let (count, times) = match entry.split_once("(x") {
            Some((count, times)) => {
                let times = times.strip_suffix(')').ok_or_else(wrong)?;
                (count, times.parse::<usize>().map_err(|_| wrong())?)
            }
            None => (entry, 1),
        };
        let count: u32 = count.parse().map_err(|_| wrong())?;
        let room = hosts.saturating_sub(all.len());
        all.extend(std::iter::repeat_n(count.max(1), times.min(room)));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_lists() {
        assert_eq!(
            expand("n[1-3,07],m2").unwrap(),
            ["n1", "n2", "n3", "n07", "m2"]
        );
        assert_eq!(
            expand("r[1-2]n[08-09]x").unwrap(),
            ["r1n08x", "r1n09x", "r2n08x", "r2n09x"]
        );
        for wrong in ["", "n[1-", "n[3-1]", "n[a]", "n[0-4294967295]"] {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_allocation_is_read() {
        let variable = |name: &str| match name {
            "SLURM_JOB_ID" => Some("12".to_string()),
            "SLURM_JOB_NODELIST" => Some("c[1-3]".into()),
            "SLURM_TASKS_PER_NODE" => Some("4(x2),1".into()),
            _ => None,
        };
        let hosts = allocation(variable).unwrap().unwrap();
        assert_eq!(hosts.iter().map(|h| h.slots).collect::<Vec<_>>(), [4, 4, 1]);
        assert_eq!(hosts[2].name, "c3");
        assert!(allocation(|_| None).is_none());
    }

    #[test]
    fn an_error_names_the_variable_that_was_read() {
        let error = |set: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = set.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| value.to_string())
            };
            allocation(variable).unwrap().unwrap_err()
        };
        let id = ("SLURM_JOB_ID", "12");
        for nodes in ["SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
            let text = error(&[id, (nodes, "n[3-1]")]);
            assert!(text.starts_with(&format!("{nodes}=\"n[3-1]\": ")), "{text}");
            for tasks in ["SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"] {
                let text = error(&[id, (nodes, "n1"), (tasks, "x")]);
                assert!(text.starts_with(&format!("{tasks}=\"x\": ")), "{text}");
            }
        }
    }
}
