//! Programs, environments, mistakes on the command line, and binding.

use super::*;

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
fn programs_of_a_file() {
    let place = folder("configfile");
    let file = place.join("programs");
    let text = "# two of them\n-n 1 sh -c 'echo $FERRY_RANK of $FERRY_SIZE'\n\
                -n 2 -env A b \\\n sh -c \"echo \\$FERRY_RANK \\$A\"\n";
    fs::write(&file, text).unwrap();
    let output = run(&["-configfile", file.to_str().unwrap()]);
    assert_eq!(sorted(&out(&output)), ["0 of 3", "1 b", "2 b"]);
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn programs_are_looked_for_in_the_folders_of_an_option_first() {
    let place = folder("path");
    fs::create_dir(place.join("bin")).unwrap();
    fs::copy("/bin/echo", place.join("bin/true")).unwrap();
    let folders = format!("/no/such:{}", place.join("bin").display());
    let output = run(&["-path", &folders, "-n", "2", "true", "here"]);
    assert_eq!(out(&output), "here\nhere\n");
    // Relative to the working directory. The next program has folders of its own.
    let place_name = place.to_str().unwrap();
    let output = run(&[
        "-wdir", place_name, "-path", "bin", "true", "there", ":", "true", "x",
    ]);
    assert_eq!(out(&output), "there\n");
    // What they do not have is looked for as always.
    assert_eq!(out(&run(&["-path", &folders, "echo", "x"])), "x\n");
    fs::remove_dir_all(place).unwrap();
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
fn a_limit_on_files_that_is_too_small_is_named() {
    let limited = format!(
        "ulimit -f 100; exec {} -n 2 true",
        mpiexec().get_program().display()
    );
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    let said = err(&output);
    assert!(
        output.status.code().is_some() && said.contains("raise RLIMIT_FSIZE (ulimit -f)"),
        "{}: {said}",
        output.status
    );
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
    assert!(began.elapsed() < time_limit(5.0), "{:?}", began.elapsed());
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
    assert!(
        out(&run(&["-h"])).contains("--bind-to, --binding core|hwthread|l3cache|numa|socket|none")
    );
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
