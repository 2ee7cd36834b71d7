//! mpiexec from outside, with programs that know nothing of MPI.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

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
        assert!(began.elapsed() < patience(10.0), "never: {what}");
        sleep(Duration::from_millis(5));
    }
}
/// A limit of time for a machine that has nothing else to do; longer on a busy one.
fn patience(limit: f64) -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load
        .split(' ')
        .next()
        .and_then(|l| l.parse().ok())
        .unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    Duration::from_secs_f64(limit * (1.0 + load / cores as f64))
}
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(mark(test));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn every_rank_knows_its_number() {
    let output = run(&[
        "-n",
        "3",
        "sh",
        "-c",
        "echo $FERRY_RANK/$FERRY_SIZE $PMI_RANK",
    ]);
    assert_eq!(sorted(&out(&output)), ["0/3 0", "1/3 1", "2/3 2"]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        err(&output)
    );
}

#[test]
fn program_blocks_have_their_own_options() {
    let output = run(&[
        "-genv",
        "A",
        "all",
        "-n",
        "1",
        "-env",
        "B",
        "first",
        "sh",
        "-c",
        "echo $FERRY_RANK $A $B",
        ":",
        "-np",
        "2",
        "-wdir",
        "/",
        "sh",
        "-c",
        "echo $FERRY_RANK $A $B $(pwd)",
    ]);
    assert_eq!(sorted(&out(&output)), ["0 all first", "1 all /", "2 all /"]);
}

#[test]
fn environments() {
    let output = mpiexec()
        .args(["-envnone", "/usr/bin/env"])
        .env("SEEN", "1")
        .output()
        .unwrap();
    assert!(!out(&output).contains("SEEN") && out(&output).contains("FERRY_RANK=0"));
    let output = mpiexec()
        .args(["-genvlist", "SEEN,OTHER", "/usr/bin/env"])
        .env("SEEN", "1")
        .output()
        .unwrap();
    assert!(out(&output).contains("SEEN=1") && !out(&output).contains("HOME="));
    let output = run(&["-x", "NEW=a=b", "/usr/bin/env"]);
    assert!(out(&output).contains("NEW=a=b\n") && out(&output).contains("PATH="));
}

#[test]
fn labels() {
    let output = run(&["-l", "-n", "2", "sh", "-c", "printf 'a\\nb'; echo oops >&2"]);
    assert_eq!(
        sorted(&out(&output).replace("b[", "b\n[")),
        ["[0] a", "[0] b", "[1] a", "[1] b"]
    );
    assert_eq!(sorted(&err(&output)), ["[0] oops", "[1] oops"]);
}

#[test]
fn lines_are_never_mixed() {
    // Each line comes in three writes; 4 ranks at once.
    let script = "i=0; while [ $i -lt 200 ]; do printf 'aaaa'; printf $FERRY_RANK; printf 'bbbb\\n'; i=$((i+1)); done";
    let output = shell("4", script);
    let text = out(&output);
    assert_eq!(text.lines().count(), 800);
    for line in text.lines() {
        assert!(
            line.len() == 9 && line.starts_with("aaaa") && line.ends_with("bbbb"),
            "{line}"
        );
    }
}

#[test]
fn much_output_arrives_whole_and_in_order() {
    let output = shell("2", "seq -f \"$FERRY_RANK %.0f\" 1 200000");
    let text = out(&output);
    for rank in ["0", "1"] {
        let mut next = 1;
        for line in text.lines().filter_map(|l| l.strip_prefix(rank)) {
            assert_eq!(line.trim().parse::<u32>().unwrap(), next);
            next += 1;
        }
        assert_eq!(next, 200_001, "rank {rank}");
    }
}

#[test]
fn a_last_line_without_end_is_kept() {
    assert_eq!(out(&shell("1", "printf 'no end'")), "no end");
    let text = out(&shell("2", "printf $FERRY_RANK"));
    assert_eq!(sorted(&text), ["0", "1"]);
}

#[test]
fn one_rank_reads_standard_input() {
    let reads = |options: &[&str]| {
        let mut command = mpiexec();
        command
            .args(options)
            .args(["-n", "3", "sh", "-c", "echo $FERRY_RANK $(cat)"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"words").unwrap();
        out(&child.wait_with_output().unwrap())
    };
    assert_eq!(sorted(&reads(&[])), ["0 words", "1", "2"]);
    assert_eq!(sorted(&reads(&["-stdin", "2"])), ["0", "1", "2 words"]);
    assert_eq!(
        sorted(&reads(&["-s", "all"])),
        ["0 words", "1 words", "2 words"]
    );
    assert_eq!(sorted(&reads(&["-stdin", "none"])), ["0", "1", "2"]);
}

#[test]
fn a_file_as_standard_input_for_all() {
    let place = folder("stdin");
    let text = "0123456789\n".repeat(30_000);
    fs::write(place.join("in"), &text).unwrap();
    let output = mpiexec()
        .args(["-stdin", "all", "-n", "2", "wc", "-c"])
        .stdin(fs::File::open(place.join("in")).unwrap())
        .output()
        .unwrap();
    assert_eq!(sorted(&out(&output)), ["330000", "330000"]);
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn what_a_rank_does_not_read_is_left() {
    let output = Command::new("sh")
        .args([
            "-c",
            "printf 'one\\ntwo\\n' | { \"$0\" -n 2 true; cat; }",
            env!("CARGO_BIN_EXE_mpiexec"),
        ])
        .output()
        .unwrap();
    assert_eq!(out(&output), "one\ntwo\n");
}

#[test]
fn exit_statuses() {
    let status = |script: &str| shell("3", script).status.code();
    assert_eq!(status("true"), Some(0));
    assert_eq!(status("exit $FERRY_RANK"), Some(2));
    assert_eq!(
        status("test $FERRY_RANK != 1 || kill -SEGV $$; sleep 0.1"),
        Some(128 + 11)
    );
}

#[test]
fn a_killed_rank_ends_the_job() {
    let mark = mark("killed");
    let began = Instant::now();
    let output = shell(
        "4",
        &format!("test $FERRY_RANK = 2 && kill -KILL $$; sleep 60 # {mark}"),
    );
    assert!(began.elapsed() < patience(1.0), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(137));
    let said = err(&output);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(
        said.contains("rank 2 (sh, pid ")
            && said.contains(host.trim())
            && said.contains("signal 9 (Killed)"),
        "{said}"
    );
    assert_eq!(with_mark(&mark), 0);
}

#[test]
fn a_rank_deaf_to_sigterm_is_killed() {
    let mark = mark("deaf");
    let began = Instant::now();
    let output = shell(
        "2",
        &format!(
            "test $FERRY_RANK = 1 && {{ sleep 0.2; kill -ABRT $$; }}; trap '' TERM; while :; do sleep 1; done # {mark}"
        ),
    );
    assert!(began.elapsed() < patience(1.3), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(134));
    assert_eq!(with_mark(&mark), 0);
}

#[test]
fn nothing_of_a_rank_is_left_running() {
    // A child in the background, and one in a session of its own.
    let mark = mark("orphans");
    let script =
        format!("sh -c 'sleep 60; : {mark}' & setsid sh -c 'sleep 60; : {mark}' & sleep 0.1");
    let output = shell("2", &script);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(with_mark(&mark), 0);
}

#[test]
fn ranks_and_their_children_die_with_mpiexec() {
    let mark = mark("orphaned");
    let script = format!("sh -c 'sleep 60; : {mark}'; : {mark}");
    let mut child = start(&["-n", "3", "sh", "-c", &script]);
    // mpiexec and its parent-death watcher have the word on their command lines too.
    until("3 ranks with a child each", || with_mark(&mark) >= 8);
    child.kill().unwrap();
    child.wait().unwrap();
    until("all have ended", || with_mark(&mark) == 0);
}

#[test]
fn nothing_is_left_whenever_mpiexec_is_killed() {
    for round in 0..40 {
        let mark = mark(&format!("killed-early-{round}"));
        let script = format!("sh -c 'sleep 60; : {mark}'; : {mark}");
        let mut child = start(&["-n", "3", "sh", "-c", &script]);
        // The moment is the test's input: between the first process and the last one.
        sleep(Duration::from_micros(1500 + 500 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        until("all have ended", || with_mark(&mark) == 0);
    }
}

#[test]
fn an_interrupt_is_passed_on_and_a_second_one_kills() {
    let mut child = start(&[
        "-n",
        "2",
        "sh",
        "-c",
        "trap 'echo caught; exit 0' INT; echo up; while :; do sleep 0.05; done",
    ]);
    until_lines(&mut child, 2);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(out(&output), "caught\ncaught\n");
    assert_eq!(output.status.code(), Some(130));

    let mut child = start(&[
        "-n",
        "2",
        "sh",
        "-c",
        "trap '' INT; echo up; while :; do sleep 0.05; done",
    ]);
    until_lines(&mut child, 2);
    signal(&child, "INT");
    sleep(Duration::from_millis(100));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the ranks have not ended"
    );
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn other_signals_are_passed_on() {
    let script = "trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo up; while :; do sleep 0.02; done";
    let mut child = start(&["-n", "2", "sh", "-c", script]);
    until_lines(&mut child, 2);
    signal(&child, "USR1");
    until_lines(&mut child, 2);
    signal(&child, "USR2");
    let output = child.wait_with_output().unwrap();
    assert_eq!(out(&output), "usr2\nusr2\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_job_stops_and_goes_on() {
    let mut child = start(&["-n", "1", "sh", "-c", "echo $$; sleep 2; echo end"]);
    let pid = until_lines(&mut child, 1);
    let state = |pid: &str| -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(") ").next()?.chars().next()
    };
    signal(&child, "TSTP");
    until("both are stopped", || {
        state(pid.trim()) == Some('T') && state(&child.id().to_string()) == Some('T')
    });
    signal(&child, "CONT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (out(&output).as_str(), output.status.code()),
        ("end\n", Some(0))
    );
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

#[test]
fn mistakes_get_one_clear_line() {
    let place = folder("mistakes");
    fs::write(place.join("plain"), "x").unwrap();
    fs::write(place.join("lost"), "#!/no/such/interpreter\n").unwrap();
    Command::new("chmod")
        .arg("+x")
        .arg(place.join("lost"))
        .status()
        .unwrap();
    let (plain, lost) = (place.join("plain"), place.join("lost"));
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["-n", "2", "no-such-program"],
            127,
            "no-such-program is not in PATH",
        ),
        (&["-n", "2", "./no/such"], 127, "./no/such does not exist"),
        (&["-n", "2", plain.to_str().unwrap()], 126, "not executable"),
        (&["-n", "2", lost.to_str().unwrap()], 126, "interpreter"),
        (&["-n", "2", "/"], 126, "directory"),
        (&["-n", "0", "true"], 2, "at least 1 rank"),
        (&["-n", "x", "true"], 2, "\"x\""),
        (&["--labl", "true"], 2, "unknown option --labl"),
        (&["--timout", "1", "true"], 2, "did you mean --timeout?"),
        (&[], 2, "no program given"),
        (
            &["-wdir", "/no/such", "true"],
            127,
            "/no/such does not exist",
        ),
    ];
    for (arguments, status, part) in cases {
        let output = run(arguments);
        let said = err(&output);
        assert_eq!(output.status.code(), Some(*status), "{arguments:?}: {said}");
        assert!(
            said.contains(part) && said.lines().count() == 1 && said.starts_with("mpiexec: "),
            "{arguments:?}: {said}"
        );
    }
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn a_script_without_a_first_line_runs_as_in_a_shell() {
    let place = folder("script");
    fs::write(place.join("script"), "echo from $1\n").unwrap();
    Command::new("chmod")
        .arg("+x")
        .arg(place.join("script"))
        .status()
        .unwrap();
    let output = run(&["-wdir", place.to_str().unwrap(), "./script", "here"]);
    assert_eq!(out(&output), "from here\n");
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn too_few_descriptors_are_named() {
    let limited = |limit: &str, ranks: &str| {
        Command::new("sh")
            .args([
                "-c",
                &format!("ulimit {limit} && exec \"$0\" -n {ranks} sh -c 'ulimit -n'"),
                env!("CARGO_BIN_EXE_mpiexec"),
            ])
            .output()
            .unwrap()
    };
    let output = limited("-n 40", "8");
    assert!(
        err(&output).contains("RLIMIT_NOFILE allows 40"),
        "{}",
        err(&output)
    );
    assert_eq!(output.status.code(), Some(1));
    // The soft limit alone is raised, and the ranks do not notice.
    let output = limited("-S -n 40", "8");
    assert_eq!(sorted(&out(&output)), ["40"; 8]);
}

#[test]
fn a_timeout_ends_the_job() {
    let began = Instant::now();
    let output = run(&["--timeout", "0.3", "-n", "2", "sleep", "60"]);
    assert!(began.elapsed() < patience(1.3));
    assert_eq!(output.status.code(), Some(124));
    assert!(
        err(&output).contains("0.3 s") && err(&output).contains("MPI_Init"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_quit_asks_who_waits_for_whom() {
    let mut child = start(&[
        "--on-hang",
        "report",
        "-n",
        "2",
        "sh",
        "-c",
        "echo up; sleep 0.5",
    ]);
    until_lines(&mut child, 2);
    signal(&child, "QUIT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        err(&output).contains("no rank has called MPI_Init"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_reader_that_goes_away_ends_the_job() {
    let mut child = start(&["-n", "2", "sh", "-c", "while :; do echo line; done"]);
    until_lines(&mut child, 1);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("standard output has gone"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_full_disk_is_reported_and_the_job_goes_on() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = mpiexec()
        .args([
            "-n",
            "1",
            "sh",
            "-c",
            "echo x; sleep 0.1; echo still here >&2",
        ])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    let said = err(&output);
    assert!(
        said.contains("standard output cannot be written") && said.contains("still here"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_slow_reader_holds_the_ranks_and_not_the_signals() {
    let mut child = start(&[
        "-n",
        "2",
        "sh",
        "-c",
        "yes 0123456789012345678901234567890123456789",
    ]);
    sleep(Duration::from_millis(300));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let resident = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB");
    assert!(resident.parse::<u64>().unwrap() < 40_000, "{resident} KiB");
    let began = Instant::now();
    signal(&child, "TERM");
    sleep(Duration::from_millis(100));
    signal(&child, "TERM");
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(began.elapsed() < patience(2.0));
}

#[test]
fn waiting_costs_no_processor_time() {
    let mut child = start(&["-n", "2", "sleep", "1.2"]);
    sleep(Duration::from_millis(200));
    let ticks = |pid: u32| -> u64 {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let after = stat.rsplit(") ").next().unwrap();
        after
            .split(' ')
            .skip(11)
            .take(2)
            .map(|t| t.parse::<u64>().unwrap())
            .sum()
    };
    let before = ticks(child.id());
    sleep(Duration::from_millis(800));
    assert!(ticks(child.id()) - before <= 1, "at most 10 ms in 0.8 s");
    child.wait().unwrap();
}

#[test]
fn ranks_that_fit_are_bound() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let allowed = |options: &[&str], ranks: usize| -> Vec<String> {
        let ranks = ranks.to_string();
        let mut all = options.to_vec();
        all.extend([
            "-n",
            &ranks,
            "grep",
            "Cpus_allowed_list",
            "/proc/self/status",
        ]);
        out(&run(&all))
            .lines()
            .map(|l| l.split_whitespace().nth(1).unwrap().to_string())
            .collect()
    };
    if cores >= 2 {
        let bound = allowed(&[], cores);
        let mut different = bound.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), cores, "{bound:?}");
        let free = allowed(&["--bind-to", "none"], 2);
        assert_eq!(free[0], free[1]);
    }
    let more = allowed(&[], cores + 1);
    assert!(more.iter().all(|m| *m == more[0]), "{more:?}");
    let one_each = allowed(&["-bind-to", "core"], 2);
    assert!(
        one_each.iter().all(|c| c.parse::<usize>().is_ok()),
        "{one_each:?}"
    );
}

#[test]
fn two_hundred_ranks_start_quickly() {
    let began = Instant::now();
    let output = run(&["-n", "200", "true"]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(began.elapsed() < patience(5.0), "{:?}", began.elapsed());
}

#[test]
fn a_job_within_a_job() {
    let output = run(&[
        "-n",
        "2",
        env!("CARGO_BIN_EXE_mpiexec"),
        "-n",
        "2",
        "sh",
        "-c",
        "echo $FERRY_RANK",
    ]);
    assert_eq!(sorted(&out(&output)), ["0", "0", "1", "1"]);
}

#[test]
fn help_and_version() {
    assert!(out(&run(&["-h"])).contains("--bind-to core|none"));
    assert!(out(&run(&["--version"])).contains("Ferry MPI"));
}

#[test]
fn a_variable_that_does_not_exist_is_named_with_the_nearest_one() {
    let misspelt = mpiexec()
        .env("FERRY_TRANPORTS", "tcp")
        .args(["-n", "1", "true"])
        .output()
        .unwrap();
    assert!(misspelt.status.success(), "the job runs all the same");
    let said = err(&misspelt);
    assert_eq!(
        said.trim_end(),
        "mpiexec: there is no setting FERRY_TRANPORTS; did you mean FERRY_TRANSPORTS?"
    );
    let right = mpiexec()
        .env("FERRY_YIELDS", "3")
        .args(["-n", "1", "true"])
        .output()
        .unwrap();
    assert_eq!(err(&right), "");
}
