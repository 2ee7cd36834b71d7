//! mpiexec from outside, with programs that know nothing of MPI.

mod ends;
mod output;
mod programs;
mod time_limit;

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use time_limit::time_limit;

fn mpiexec() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpiexec"));
    command
        .env_remove("FERRY_ON_HANG")
        .env_remove("MPIEXEC_TIMEOUT")
        .stdin(Stdio::null());
    command
}
fn run(arguments: &[&str]) -> Output {
    mpiexec().args(arguments).output().unwrap()
}
/// The ranks run a shell script.
fn shell(ranks: &str, script: &str) -> Output {
    run(&["-n", ranks, "sh", "-c", script])
}
fn start(arguments: &[&str]) -> Child {
    mpiexec()
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}
fn signal(child: &Child, name: &str) {
    assert!(
        Command::new("kill")
            .args(["-s", name, &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
}
/// A word that only the processes of one test have on their command line.
fn mark(test: &str) -> String {
    format!("ferry-test-{test}-{}", std::process::id())
}
/// Processes with this word on their command line.
fn with_mark(mark: &str) -> usize {
    let all = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| fs::read(e.ok()?.path().join("cmdline")).ok());
    all.filter(|line| String::from_utf8_lossy(line).contains(mark))
        .count()
}
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < time_limit(10.0), "never: {what}");
        sleep(Duration::from_millis(5));
    }
}
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(mark(test));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Reads so many lines of a child's output, byte by byte so that nothing more is taken.
fn until_lines(child: &mut Child, lines: usize) -> String {
    let pipe = child.stdout.as_mut().unwrap();
    let (mut text, mut byte) = (Vec::new(), [0]);
    while text.iter().filter(|&&b| b == b'\n').count() < lines {
        assert_eq!(
            pipe.read(&mut byte).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&text)
        );
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}
