//! How jobs end: exit statuses, signals, time limits.

use super::*;

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
    assert!(began.elapsed() < time_limit(1.0), "{:?}", began.elapsed());
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
            "test $FERRY_RANK = 1 && {{ sleep 0.2; kill -ABRT $$; }}; trap '' TERM; while :; do \
             sleep 1; done # {mark}"
        ),
    );
    assert!(began.elapsed() < time_limit(1.3), "{:?}", began.elapsed());
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
    let script = "trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo up; while :; do sleep \
        0.02; done";
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

#[test]
fn a_timeout_ends_the_job() {
    let began = Instant::now();
    let output = run(&["--timeout", "0.3", "-n", "2", "sleep", "60"]);
    assert!(began.elapsed() < time_limit(1.3));
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
