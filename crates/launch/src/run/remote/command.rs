//! The command that starts an agent on a host.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::options::Options;
use crate::protocol;

/// Path of mpiexec on the other hosts.
pub(super) fn agent_path(options: &Options) -> PathBuf {
    if let Some(path) = &options.launcher_path {
        return path.clone();
    }
    if let Some(prefix) = std::env::var_os("FERRY_PREFIX").filter(|p| !p.is_empty()) {
        return Path::new(&prefix).join("bin/mpiexec");
    }
    std::env::current_exe().unwrap_or_else(|_| "mpiexec".into())
}

/// The command that starts the agent of a host.
pub(super) fn command(
    launcher: Option<&str>,
    host: &str,
    local: bool,
    agent: &Path,
) -> Result<Vec<OsString>, String> {
    let agent = [
        agent.as_os_str().to_owned(),
        OsString::from(protocol::AGENT_OPTION),
    ];
    let slurm = std::env::var_os("SLURM_JOB_ID").is_some();
    let launcher = match launcher {
        None | Some("fork") if local => return Ok(agent.to_vec()),
        None if slurm => "srun",
        None | Some("auto") => "ssh",
        Some("slurm") => "srun",
        Some(text) => text,
    };
    let words = split(launcher)?;
    let Some(first) = words.first() else {
        return Err("--launcher names no command".into());
    };
    let name = Path::new(first).file_name().unwrap_or_default().to_owned();
    let mut all: Vec<OsString> = words.iter().map(OsString::from).collect();
    if words.iter().any(|w| w.contains("{host}")) {
        all = words
            .iter()
            .map(|w| w.replace("{host}", host).into())
            .collect();
        all.extend(agent);
    } else if name == "srun" {
        let own = [
            "-N1",
            "-n1",
            "--overlap",
            "--mpi=none",
            "--unbuffered",
            "--cpu-bind=none",
        ];
        all.extend(own.map(OsString::from));
        all.extend([OsString::from("-w"), host.into()]);
        all.extend(agent);
    } else if name == "ssh" || name == "rsh" {
        if name == "ssh" {
            let own = ["-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"];
            all.extend(own.map(OsString::from));
        }
        all.push(host.into());
        // ssh and rsh pass this to a login shell.
        all.extend(agent.iter().map(|word| quoted(word)));
    } else {
        all.push(host.into());
        all.extend(agent);
    }
    Ok(all)
}

/// A word, quoted if a shell would change it.
fn quoted(word: &OsStr) -> OsString {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._-+=:@%".contains(b);
    if word.as_bytes().iter().all(plain) {
        return word.to_owned();
    }
    let mut out = vec![b'\''];
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            other => out.push(other),
        }
    }
    out.push(b'\'');
    OsString::from_vec(out)
}

/// Splits a command into words. Quotes group words as in a shell.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    match quote {
        Some(q) => Err(format!("--launcher {text:?}: a {q} is missing")),
        None => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(launcher: Option<&str>, host: &str, local: bool) -> String {
        let words = command(launcher, host, local, Path::new("/opt/my mpi/mpiexec")).unwrap();
        let shown: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
        shown.join("|")
    }

    #[test]
    fn agents_are_started_as_the_user_says() {
        assert_eq!(
            words(None, "a", false),
            "ssh|-x|-T|-o|BatchMode=yes|-o|ConnectTimeout=20|a|'/opt/my mpi/mpiexec'|--ferry-agent"
        );
        assert_eq!(words(None, "a", true), "/opt/my mpi/mpiexec|--ferry-agent");
        assert_eq!(
            words(Some("ip netns exec"), "a", true),
            "ip|netns|exec|a|/opt/my mpi/mpiexec|--ferry-agent"
        );
        assert_eq!(
            words(Some("kubectl exec -i 'pod {host}' --"), "a", false),
            "kubectl|exec|-i|pod a|--|/opt/my mpi/mpiexec|--ferry-agent"
        );
        assert!(words(Some("slurm"), "n1", false).starts_with("srun|-N1|-n1|--overlap|"));
        assert!(command(Some("'x"), "a", false, Path::new("m")).is_err());
        assert!(command(Some(" "), "a", false, Path::new("m")).is_err());
    }
}
