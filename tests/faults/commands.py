"""mpiexec asked for what it cannot do: nonsense, and programs of another MPI."""

import pathlib
import subprocess
import tempfile


def commands(cases):
    one_line = r"\A[^\n]+\n?\Z"
    cases.case(
        "a missing program",
        cases.mpiexec("-n", 2, "no-such-program-here"),
        status="bad",
        words=["no-such-program-here", one_line],
        within=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "not-executable"
        text.write_text("hello\n")
        cases.case(
            "a program that is none",
            cases.mpiexec("-n", 2, text),
            status="bad",
            words=["not-executable", one_line],
            within=2,
        )
    cases.job(
        "an algorithm that is none",
        1,
        "fine",
        environment={"FERRY_COLL_BCAST": "magic"},
        status="bad",
        words=['FERRY_COLL_BCAST is "magic"; what can be chosen is auto, messages, '],
        within=2,
    )
    cases.job("no ranks", 0, "fine", status="bad", words=[r"\b0\b", one_line], within=2)
    cases.job("negative ranks", "-3", "fine", status="bad", words=["-3"], within=2)
    cases.job("ranks that are no number", "two", "fine", status="bad", words=["two"], within=2)
    cases.case(
        "an unknown option",
        cases.mpiexec("--sail-fast", "-n", 2, cases.die, "fine"),
        status="bad",
        words=["--sail-fast"],
        within=2,
    )
    cases.case(
        "no program at all", cases.mpiexec("-n", 2), status="bad", words=["program"], within=2
    )
    cases.case(
        "two programs",
        cases.mpiexec("-n", 1, cases.die, "fine", ":", "-n", 2, cases.die, "fine"),
        status=0,
        quiet=True,
        within=5,
    )


def other_mpi(cases):
    with tempfile.TemporaryDirectory(prefix="ferry-other-mpi-") as scratch:
        other_mpi_in(cases, pathlib.Path(scratch))


def other_mpi_in(cases, folder):
    """With a library and a program that look like another MPI's."""
    (folder / "lib.c").write_text("int MPI_Init(int *c, char ***v) { return c == 0 && v == 0; }")
    (folder / "main.c").write_text(
        "#include <unistd.h>\nint MPI_Init(int *, char ***);\nint main(int argc, char **argv) {"
        " MPI_Init(&argc, &argv); return argc > 1 && sleep(1); }"
    )
    shared = ["-shared", "-fPIC", "-Wl,-soname,libmpi.so.20", "lib.c", "-o", "libmpi.so.20"]
    linked = ["main.c", "libmpi.so.20", "-Wl,-rpath,$ORIGIN", "-o", "foreign"]
    for arguments in (shared, linked):
        subprocess.run(["cc", *arguments], cwd=folder, check=True)
    program = folder / "foreign"
    refused = [r"foreign is linked with libmpi\.so\.20", "mpicc", "--allow-other-mpi"]
    noted = ["none of the 2 ranks called MPI_Init", r"libmpi\.so\.20"]
    start = cases.mpiexec
    cases.case("another MPI's program", start("-n", 2, program), status=126, words=refused)
    # The first program must not have started, either.
    blocks = start("-n", 1, "echo", "here", ":", "-n", 1, program)
    cases.case(
        "another MPI's program in a block", blocks, status=126, words=refused, without=["^here"]
    )
    allowed = start("--allow-other-mpi", "-n", 2, program)
    cases.case("another MPI's program, allowed", allowed, status=0, words=noted)
    alone = start("--allow-other-mpi", "-n", 1, program)
    cases.case("another MPI's program, one rank", alone, status=0, without=["MPI_Init"])
    behind_env = start("-n", 2, "env", program)
    cases.case("another MPI's program behind env", behind_env, status=0, words=noted)
    behind_shell = start("-n", 2, "sh", "-c", f"{program} 1; true")
    cases.case("another MPI's program behind a shell", behind_shell, status=0, words=noted)
    for command in (["hostname"], ["sh", "-c", "sleep 0.6"]):
        quiet = start("-n", 2, *command)
        cases.case(f"{command[0]} is no MPI program", quiet, status=0, without=["MPI_Init"])
