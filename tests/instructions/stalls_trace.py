"""For gdb: steps through a program from one SIGTRAP to the next and writes each memory access.

A line of the file $STALLS_TRACE is: instruction, function, `L`, `S` or `LS` for load, store or
both, address, bytes. Registers and operands are x86-64's, in AT&T syntax.
"""

import os
import re

import gdb

STEPS_MAX = 20000
OPERAND = re.compile(r"(-?0x[0-9a-f]+|-?\d+)?\((%\w+)?(?:,(%\w+))?(?:,(\d))?\)")
WIDE = ("movups", "movaps", "movdqu", "movdqa", "movupd", "movapd")


def width(name, operands):
    """Bytes that an instruction reads or writes in memory, by its name and registers."""
    if "ymm" in operands:
        return 32
    if "xmm" in operands and not name.startswith(WIDE):
        return {"movd": 4, "movss": 4}.get(name, 8)
    if "xmm" in operands:
        return 16
    if name.startswith(("movzb", "movsb")):
        return 1
    if name.startswith(("movzw", "movsw")):
        return 2
    if name == "movslq":
        return 4
    registers = re.findall(r"%(\w+)", re.sub(r"\([^)]*\)", "", operands))
    for register in registers:
        if re.fullmatch(r"r\d+d|e\w\w", register):
            return 4
        if re.fullmatch(r"r\d+b|[abcd][lh]|sil|dil|bpl|spl", register):
            return 1
        if re.fullmatch(r"r\d+w|[abcd]x|[sd]i|[bs]p", register):
            return 2
        if re.fullmatch(r"r\w+", register):
            return 8
    return {"b": 1, "w": 2, "l": 4, "q": 8}.get(name[-1], 8)


def access(frame, text):
    """What the instruction `text` does with memory: kind, address, bytes. None: nothing."""
    name, _, rest = text.partition(" ")
    operands = rest.split("#")[0].strip()
    if name in ("push", "call"):
        return "S", int(frame.read_register("rsp")) - 8, 8
    if name in ("pop", "ret"):
        return "L", int(frame.read_register("rsp")), 8
    found = OPERAND.search(operands)
    if not found or name.startswith(("lea", "nop", "prefetch")):
        return None
    if found[2] == "%rip":
        address = int(text.split("# ")[1].split()[0], 16)
    else:
        address = int(found[1] or "0", 0)
        if found[2]:
            address += int(frame.read_register(found[2][1:]))
        if found[3]:
            address += int(frame.read_register(found[3][1:])) * int(found[4] or 1)
        address &= (1 << 64) - 1
    stores = operands.endswith(")")
    if not stores or name.startswith(("cmp", "test")):
        kind = "L"
    else:
        kind = "S" if name.startswith(("mov", "set")) else "LS"
    return kind, address, width(name, operands)


def stopped_by_trap():
    """Is the last stop a SIGTRAP of the program's own? Then gdb says so in `$_siginfo`."""
    return int(gdb.parse_and_eval("$_siginfo.si_code")) <= 0


def trace(out):
    gdb.execute("set pagination off")
    gdb.execute("run", to_string=True)
    architecture = gdb.selected_frame().architecture()
    for _ in range(STEPS_MAX):
        frame = gdb.selected_frame()
        text = architecture.disassemble(frame.pc())[0]["asm"]
        found = access(frame, text)
        fields = (found[0], f"{found[1]:x}", str(found[2])) if found else ("", "0", "0")
        out.write("\t".join((text, frame.name() or "", *fields)) + "\n")
        gdb.execute("stepi", to_string=True)
        if "syscall" in text and stopped_by_trap():
            return
    out.write("TOO LONG\n")


with open(os.environ["STALLS_TRACE"], "w", encoding="utf-8") as file:
    trace(file)
gdb.execute("kill")
