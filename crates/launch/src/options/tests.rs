//! Command lines, right and wrong ones.

use std::ffi::OsString;
use std::time::Duration;

use super::table::OPTIONS;
use super::*;
use crate::hosts::{MapBy, RankBy};

fn read(line: &str) -> Result<Action, String> {
    parse(line.split_whitespace().map(OsString::from), |_| None)
}
fn run(line: &str) -> Options {
    match read(line) {
        Ok(Action::Run(options)) => *options,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn one_program() {
    let o = run("-n 4 -l ./a.out -n 5 --help");
    assert_eq!((o.apps.len(), o.apps[0].count, o.label), (1, Some(4), true));
    assert_eq!(o.apps[0].program, "./a.out");
    assert_eq!(o.apps[0].arguments, ["-n", "5", "--help"]);
}

#[test]
fn soft_numbers_of_ranks() {
    let o = run("-n 8 -soft 2:6:2 x : -soft 1,3 -n 2 y");
    let counts: Vec<_> = o.apps.iter().map(|app| app.count).collect();
    assert_eq!(counts, [Some(6), Some(1)]);
    for (line, wanted) in [
        ("-soft 2 x", "without -n"),
        ("-n 2 -soft 0 x", "at least 1 rank"),
        ("-n 2 -soft 3 x", "no number of processes up to 2"),
        ("-n 2 -soft two x", "triplets first:last:stride"),
        ("-n 2 -arch riscv64 x", "-arch is not supported; hosts"),
        ("-n 2 --file f x", "--file is not supported; options"),
    ] {
        let error = read(line).unwrap_err();
        assert!(error.contains(wanted), "{line}: {error}");
    }
}

#[test]
fn several_programs_with_own_and_shared_variables() {
    let o = run("-genv A 1 -np 2 -env B 2 x 7 : --np 3 -env A 9 --wdir /usr y : z");
    assert_eq!(
        o.apps.iter().map(|b| b.count).collect::<Vec<_>>(),
        [Some(2), Some(3), None]
    );
    let set = |i: usize| {
        o.apps[i]
            .set_env
            .iter()
            .map(|(k, v)| format!("{k:?}{v:?}"))
            .collect::<String>()
    };
    assert_eq!(set(0), r#""A""1""B""2""#);
    assert_eq!(set(1), r#""A""1""A""9""#);
    assert_eq!(o.apps[1].wdir.as_deref(), Some("/usr".as_ref()));
    assert_eq!(o.apps[2].program, "z");
}

#[test]
fn programs_of_a_file() {
    let folder = std::env::temp_dir().join(format!("ferry-options-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file = write(
        "two",
        "# two\n-n 2 -env A 1 x 'y z' : w\n\n-n 3 -wdir /usr \\\n v -n\n",
    );
    let o = run(&format!("-l -configfile {file}"));
    let counts: Vec<_> = o.apps.iter().map(|app| app.count).collect();
    assert_eq!(
        (o.label, &counts[..]),
        (true, &[Some(2), None, Some(3)][..])
    );
    assert_eq!(o.apps[0].arguments, ["y z"]);
    assert_eq!(o.apps[0].set_env, [("A".into(), "1".into())]);
    assert_eq!(
        (o.apps[1].program.to_str(), &o.apps[1].set_env[..]),
        (Some("w"), &[][..])
    );
    assert_eq!(o.apps[2].wdir.as_deref(), Some("/usr".as_ref()));
    assert_eq!(o.apps[2].arguments, ["-n"]);
    assert_eq!(run(&format!("--app {file} : u")).apps.len(), 4);

    let (itself, empty) = (folder.join("itself"), write("empty", "#\n"));
    write("itself", &format!("-configfile {}\n", itself.display()));
    let wrong = write("wrong", "a\n-n 0 b\n");
    for (line, wanted) in [
        (format!("-configfile {wrong}"), "wrong, line 2: -n 0"),
        (format!("-configfile {}", itself.display()), "within a file"),
        (format!("-configfile {empty}"), "no program in it"),
        (format!("-configfile {file} u"), "u after -configfile"),
        (
            format!("-n 2 -configfile {file}"),
            "go into the file's lines",
        ),
        ("-configfile /no/such".into(), "/no/such: No such file"),
    ] {
        let error = read(&line).unwrap_err();
        assert!(error.contains(wanted), "{line}: {error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn both_dash_forms_and_equal_signs() {
    let o = run("--timeout=2.5 --bind-to core --stdin all --on-hang report -x K=V=W p");
    assert_eq!(o.timeout, Some(Duration::from_millis(2500)));
    assert_eq!(
        (o.bind, o.stdin, o.on_hang),
        (Binding::Core, StdinTarget::All, OnHang::Report)
    );
    assert_eq!(o.apps[0].set_env, [("K".into(), "V=W".into())]);
    assert_eq!(run("-bind-to none p").bind, Binding::None);
}

#[test]
fn open_mpi_options_that_change_nothing_here() {
    let o = run(
        "--oversubscribe --allow-run-as-root --mca btl self,vader --map-by slot --host localhost:4 \
         -np 2 p",
    );
    assert_eq!(
        (o.apps[0].count, o.apps[0].program.to_str()),
        (Some(2), Some("p"))
    );
}

#[test]
fn hosts_and_how_they_are_filled() {
    let o = run("--hosts a:4,b -ppn 2 --launcher my-ssh --host-timeout 3 -n 3 p : -host c q");
    assert_eq!(o.hosts.unwrap().len(), 2);
    assert_eq!(o.apps[1].hosts.as_ref().unwrap()[0].name, "c");
    assert_eq!((o.map_by, o.host_timeout.as_secs()), (MapBy::PerHost(2), 3));
    assert_eq!(run("--map-by ppr:3:node p").map_by, MapBy::PerHost(3));
    assert_eq!(run("--map-by node:OVERSUBSCRIBE p").map_by, MapBy::Node);
    assert_eq!(run("--rank-by node p").rank_by, Some(RankBy::Node));
}

#[test]
fn environments_can_be_cut() {
    assert_eq!(
        run("-envnone p").apps[0].inherited_env,
        InheritedEnv::Only(vec![])
    );
    let o = run("-genvlist A,B p : -envall q");
    assert_eq!(
        o.apps[0].inherited_env,
        InheritedEnv::Only(vec!["A".into(), "B".into()])
    );
}

#[test]
fn mistakes_are_named() {
    for (line, part) in [
        ("", "no program"),
        ("-n 2", "no program"),
        ("-n 2 x :", "after ':'"),
        ("-n 0 x", "at least 1 rank"),
        ("-n two x", "\"two\""),
        ("-n -3 x", "\"-3\""),
        ("-n 99999999 x", "65536"),
        ("-n", "wants a value"),
        ("-env A", "a name and a value"),
        ("--timeot 3 x", "did you mean --timeout?"),
        ("--timeout never x", "\"never\""),
        ("-zzzzzz x", "-h lists them"),
        ("--bind-to moon x", "say core, hwthread"),
        ("-hosts a:x x", "\"x\""),
        ("-f /no/such/file x", "cannot be read"),
        ("--map-by moon x", "slot, node"),
        ("--rank-by moon x", "slot or node"),
        ("--host-timeout soon x", "or 0 for never"),
        ("-genv =x y z", "not the name"),
        ("--on-hang sometimes x", "end, report or ignore"),
    ] {
        let said = read(line).expect_err(line);
        assert!(
            said.contains(part) && !said.contains('\n'),
            "{line}: {said}"
        );
    }
}

#[test]
fn the_environment_is_asked_and_the_command_line_holds() {
    let env = |name: &str| match name {
        "FERRY_ON_HANG" => Some("ignore".to_string()),
        "MPIEXEC_TIMEOUT" => Some("9".to_string()),
        _ => None,
    };
    let Ok(Action::Run(o)) = parse(["--timeout", "1", "x"].map(OsString::from), env) else {
        panic!()
    };
    assert_eq!(
        (o.on_hang, o.timeout),
        (OnHang::Ignore, Some(Duration::from_secs(1)))
    );
}

#[test]
fn every_name_is_there_once() {
    let mut names: Vec<_> = OPTIONS.iter().flat_map(|o| o.names).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_modelled_machine() {
    let o =
        run("--machine mpc2 --machine-report --machine-compute 2.5 --machine-trace t.json -n 2 x");
    let machine = o.machine.unwrap();
    assert_eq!((machine.name.as_str(), machine.report), ("mpc2", true));
    assert_eq!(machine.compute, Some(2.5));
    assert!(!machine.paced && machine.interfaces.is_empty());
    let o = run("--machine m --machine-paced --machine-interfaces 7,8 -n 2 x");
    let paced = o.machine.unwrap();
    assert!(paced.paced && paced.interfaces == [7, 8]);
    assert_eq!(machine.trace, Some("t.json".into()));
    for (line, said) in [
        ("--machine mpc2 --hosts a,b x", "whole"),
        ("--machine-report x", "--machine"),
        ("--machine m --machine-interfaces 7,x x", "descriptors"),
        ("--machine m --machine-compute often x", "measured"),
        ("--machine m --machine-compute -1 x", "measured"),
    ] {
        let text = read(line).unwrap_err();
        assert!(text.contains(said), "{line}: {text}");
    }
}

#[test]
fn names_of_options_are_unique_and_all_are_in_the_help() {
    let mut names: Vec<&str> = OPTIONS.iter().flat_map(|o| o.names).copied().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let help = help();
    for option in OPTIONS.iter().filter(|o| !o.about.is_empty()) {
        assert!(
            help.contains(&option.names.join(", ")),
            "{:?}",
            option.names
        );
    }
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{help}"
    );
    assert!(
        help.contains("  -n, -np, -c N            N ranks"),
        "{help}"
    );
}

#[test]
fn bindings_by_what_cpus_share() {
    for (name, binding) in [
        ("core", Binding::Core),
        ("hwthread", Binding::HwThread),
        ("l3cache", Binding::L3Cache),
        ("numa", Binding::Numa),
        ("socket", Binding::Socket),
        ("package", Binding::Socket),
    ] {
        assert_eq!(run(&format!("--bind-to {name} p")).bind, binding);
    }
}
