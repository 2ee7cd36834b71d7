//! Standard input, output and error.

use super::*;

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
    let script = "i=0; while [ $i -lt 200 ]; do printf 'aaaa'; printf $FERRY_RANK; printf \
        'bbbb\\n'; i=$((i+1)); done";
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
    assert!(began.elapsed() < time_limit(2.0));
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
