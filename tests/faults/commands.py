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
        here = cases.mpiexec("-n", 2, ".")
        cases.case(
            "the folder itself", here, status=126, words=[r"\. is a directory", one_line], within=2
        )
        elf = pathlib.Path(folder) / "foreign-machine"
        elf.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(200))
        empty = pathlib.Path(folder) / "empty"
        empty.write_bytes(b"")
        for file, told in ((elf, "it is a program for AArch64"), (empty, "the file is empty")):
            file.chmod(0o755)
            cases.case(
                f"a program that cannot be executed: {file.name}",
                cases.mpiexec("-n", 2, file),
                status=126,
                words=[told],
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
    settings(cases)
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


# Settings with values that they cannot have, and what is said.
SETTINGS = (
    ("FERRY_YIELDS", "many", "a whole number, from 0 to 4294967294"),
    ("FERRY_TIME_SLICE", "1ms", "a whole number of microseconds, from 0 to "),
    ("FERRY_SHM_READ_MIN", "64K", "a whole number of bytes, from 0 to "),
    ("FERRY_TCP_TIMEOUT", "0", "seconds, from 1 to 86400"),
    ("FERRY_TCP_ZCOPY", "yes", "0 or 1"),
    ("FERRY_TIPC_TYPE", "63", "a whole number, from 64 to 4294967295"),
    ("FERRY_CONNECT_TIMEOUT", "soon", "seconds, from 0 to "),
    ("FERRY_OVERLAP_MIN", "0", "a whole number of bytes, from 1 to "),
    ("FERRY_BACKTRACE", "off", "0 or 1"),
    ("FERRY_PROGRESS", "threads", "calls or thread"),
)


def settings(cases):
    """Variables with values that make no sense: told once, by mpiexec or in MPI_Init."""
    for name, value, allowed in SETTINGS:
        told = rf'\Ampiexec: {name} is "{value}"; it should be {allowed}[^\n]*\n?\Z'
        cases.case(
            f"{name} that makes no sense",
            cases.mpiexec("-n", 2, cases.die, "fine", environment={name: value}),
            status=2,
            words=[told],
            within=2,
        )
    option = cases.mpiexec("-x", "FERRY_YIELDS=many", "-n", 2, cases.die, "fine")
    cases.case("-x FERRY_YIELDS that makes no sense", option, status=2, words=["YIELDS is"])
    for name, value in (("FERRY_YIELDS", "many"), ("FERRY_TRANSPORTS", "sea")):
        by_rank = cases.mpiexec("-n", 3, "env", f"{name}={value}", cases.die, "fine")
        once = rf'(?s)\A(?!.*{name} is.*{name} is).*rank [0-2] of 3: MPI_Init.*{name} is "{value}"'
        cases.case(
            f"{name} that ranks find to make no sense", by_rank, status=16, words=[once], within=3
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
