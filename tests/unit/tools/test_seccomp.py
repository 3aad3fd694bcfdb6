"""The seccomp filter refuses what it should, on both kinds of machine."""

import errno
import struct

import pytest

from homarus.tools.sandbox.seccomp import DENIED, has_filter, make_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x50000 | errno.EPERM, 0x50000 | 38
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "x86_64": {
        "read": 0,
        "ioctl": 16,
        "socket": 41,
        "socketpair": 53,
        "clone": 56,
        "personality": 135,
        "unshare": 272,
        "clone3": 435,
        "fchmod": 91,
        "fchmodat": 268,
        "mknodat": 259,
        "openat": 257,
        "openat2": 437,
        "fchmodat2": 452,
    },
    "aarch64": {
        "read": 63,
        "ioctl": 29,
        "socket": 198,
        "socketpair": 199,
        "clone": 220,
        "personality": 92,
        "unshare": 97,
        "clone3": 435,
        "fchmod": 52,
        "fchmodat": 53,
        "mknodat": 33,
        "openat": 56,
        "openat2": 437,
        "fchmodat2": 452,
    },
}
both = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


def run_filter(program: bytes, arch: int, number: int, *args: int) -> int:
    """Interpret a BPF program as the kernel does."""
    words = [*args, *[0] * (6 - len(args))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *words)
    steps = list(struct.iter_unpack("<HBBI", program))
    place = value = 0
    while True:
        code, jump, miss, constant = steps[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                value &= constant
            case 0x06:
                return int(constant)
            case 0x15:
                place += jump if value == constant else miss
            case 0x35:
                place += jump if value >= constant else miss
            case 0x45:
                place += jump if value & constant else miss
            case _:
                raise AssertionError(hex(code))


def judge(machine: str, name: str, *args: int) -> int:
    return run_filter(make_filter(machine), ARCH[machine], NUMBERS[machine][name], *args)


@both
def test_filter_refuses_every_listed_call(machine: str) -> None:
    program = make_filter(machine)
    column = list(ARCH).index(machine)
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            assert run_filter(program, ARCH[machine], number) == EPERM


@both
def test_filter_kills_programs_of_other_machines(machine: str) -> None:
    program = make_filter(machine)
    others = [0x40000003, *(value for name, value in ARCH.items() if name != machine)]
    assert {run_filter(program, arch, 0) for arch in others} == {KILL}
    if machine == "x86_64":
        assert run_filter(program, ARCH[machine], 0x40000000) == KILL


@both
@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("read", (0, 0, 0), ALLOW),
        ("clone", (0x11,), ALLOW),
        ("clone", (0x003D0F00,), ALLOW),  # a thread
        ("clone", (0x10000011,), EPERM),
        ("clone", (0x00020011,), EPERM),
        ("clone3", (), ENOSYS),
        ("unshare", (0x400,), ALLOW),
        ("unshare", (0x10000000,), EPERM),
        ("unshare", (0x80,), EPERM),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), EPERM),
        ("ioctl", (0, 0xFFFFFFFF_00005412), EPERM),  # the kernel reads 32 bits
        ("ioctl", (0, 0x541C), EPERM),
        ("personality", (0,), ALLOW),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0x0040000,), EPERM),
        ("socket", (2, 1, 0), ALLOW),
        ("socket", (10, 0x80802, 17), ALLOW),  # with CLOEXEC and NONBLOCK
        ("socket", (2, 3, 1), EPERM),
        ("socket", (2, 10, 0), EPERM),
        ("socket", (2, 1, 132), EPERM),
        ("socket", (16, 3, 0), ALLOW),
        ("socket", (16, 3, 9), EPERM),
        ("socket", (1, 1, 0), EPERM),
        ("socket", (17, 3, 0), EPERM),
        ("socket", (38, 5, 0), EPERM),
        ("socket", (40, 1, 0), EPERM),
        ("socketpair", (1, 1, 0), ALLOW),
        ("socketpair", (1, 0x80005, 0), ALLOW),
        ("socketpair", (1, 2, 0), EPERM),
        ("socketpair", (30, 1, 0), EPERM),
        ("fchmod", (3, 0o1777), ALLOW),
        ("fchmod", (3, 0o4755), EPERM),
        ("fchmodat", (3, 0, 0o2755), EPERM),
        ("fchmodat", (3, 0o4755, 0o755), ALLOW),
        ("fchmodat2", (3, 0, 0o4755), EPERM),
        ("mknodat", (3, 0, 0o104755), EPERM),
        ("openat", (3, 0, 0o101, 0o755), ALLOW),
        ("openat", (3, 0, 0o101, 0o4755), EPERM),
        ("openat", (3, 0, 0o20200001, 0o4755), EPERM),  # O_TMPFILE
        ("openat", (3, 0, 0, 0o4755), ALLOW),  # makes no file: there is no mode
        ("openat2", (), ENOSYS),
    ],
)
def test_filter_judges_calls_by_their_arguments(
    machine: str, name: str, args: tuple[int, ...], result: int
) -> None:
    assert judge(machine, name, *args) == result


def test_filter_exists_for_two_kinds_of_machine() -> None:
    assert [has_filter(each) for each in ("x86_64", "aarch64", "riscv64")] == [True, True, False]
