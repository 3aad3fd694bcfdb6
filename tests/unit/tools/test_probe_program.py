"""Programs that make system calls: they run, and exit with the error."""

import errno
import os
import struct
import subprocess
from pathlib import Path

import pytest

from homarus.tools.sandbox.probe_list import PARTS, PROBES, ProbeFacts, make_programs
from homarus.tools.sandbox.probe_program import (
    PREVIOUS,
    Architecture,
    ForkCall,
    Step,
    SystemCall,
    machine_architecture,
    make_program,
)

ARCHITECTURE = machine_architecture()
FACTS = ProbeFacts("/outside", "/w", 1234, 99, b"\0name", 1, 2, "token", ("/usr",))
needs_architecture = pytest.mark.skipif(ARCHITECTURE is None, reason="no programs for this machine")


def run(folder: Path, *steps: Step) -> int:
    assert ARCHITECTURE is not None
    file = folder / "program"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
    with os.fdopen(fd, "wb") as opened:
        opened.write(make_program(steps, ARCHITECTURE))
    return subprocess.run([file], cwd=folder, timeout=20, check=False).returncode


@needs_architecture
def test_program_whose_calls_succeed_exits_with_zero(tmp_path: Path) -> None:
    assert run(tmp_path, SystemCall("getpid"), SystemCall("getpid")) == 0


@needs_architecture
def test_program_exits_with_the_error_of_the_first_failed_call(tmp_path: Path) -> None:
    missing = SystemCall("openat", (-100, b"missing\0", 0))
    made = SystemCall("openat", (-100, b"made\0", os.O_CREAT | os.O_WRONLY, 0o600))
    assert run(tmp_path, missing, made) == errno.ENOENT
    assert not (tmp_path / "made").exists()


@needs_architecture
def test_program_passes_the_result_of_the_call_before(tmp_path: Path) -> None:
    made = SystemCall("openat", (-100, b"made\0", os.O_CREAT | os.O_WRONLY, 0o600))
    assert run(tmp_path, made, SystemCall("ftruncate", (PREVIOUS, 4321))) == 0
    assert (tmp_path / "made").stat().st_size == 4321


@needs_architecture
def test_program_forks_children_that_make_calls_of_their_own(tmp_path: Path) -> None:
    nap = SystemCall("nanosleep", (struct.pack("<qq", 0, 1000), 0))
    children = ForkCall(3, (SystemCall("write", (1, b"x", 1)), nap))
    file = tmp_path / "program"
    assert run(tmp_path, children) == 0
    done = subprocess.run([file], capture_output=True, timeout=20, check=False)
    assert done.stdout == b"xxx"


def test_programs_of_both_architectures_are_elf_files_for_them() -> None:
    machines: dict[Architecture, int] = {"x86_64": 62, "aarch64": 183}
    for architecture, machine in machines.items():
        for part in PARTS:
            for data in make_programs(part, FACTS, architecture).values():
                assert data[:5] == b"\x7fELF\x02"
                assert struct.unpack_from("<H", data, 18)[0] == machine


def test_program_for_aarch64_has_the_documented_instructions() -> None:
    data = make_program([SystemCall("setuid", (0,))], "aarch64")
    words = struct.unpack_from("<17I", data, 120)
    assert words[0] == 0xD2800000  # mov x0, #0
    assert words[4] == 0xD2800000 | 146 << 5 | 8  # mov x8, #146
    assert words[8] == 0xD4000001  # svc #0
    assert words[9] == 0xB6F80080  # tbz x0, #63, four instructions on
    assert words[10:14] == (0xCB0003E0, 0xD2800BA8, 0xD4000001, 0xAA0003F3)
    assert words[14:] == (0xD2800000, 0xD2800BA8, 0xD4000001)


def test_every_probe_with_a_part_has_a_description_and_a_group() -> None:
    for name, probe in PROBES.items():
        assert probe.description, name
        assert (probe.group == "limits") == bool(probe.limit), name
