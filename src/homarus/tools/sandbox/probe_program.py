"""Small static programs that make given system calls, for the escape probes.

What a sandbox holds against is measured inside it, where there may be no Python and no C library:
a container may have only busybox. So the probes bring programs of their own, an ELF file of some
hundred bytes each. A program makes its calls in order and exits with the number of the first error
(the errno), or with 0 when all of them succeeded.
"""

import platform
import struct
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

Architecture: TypeAlias = Literal["x86_64", "aarch64"]
PREVIOUS: Final = "previous"  # the result of the call before, such as a descriptor
# A number, data (its address is passed), or the result of the call before.
Argument: TypeAlias = int | bytes | Literal["previous"]

_CALL_NUMBERS: Final[dict[str, tuple[int, int]]] = {  # on x86_64, on aarch64
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone3": (435, 435),
    "connect": (42, 203),
    "ftruncate": (77, 46),
    "getpid": (39, 172),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "linkat": (265, 37),
    "mkdirat": (258, 34),
    "mknodat": (259, 33),
    "mmap": (9, 222),
    "mount": (165, 40),
    "nanosleep": (35, 101),
    "openat": (257, 56),
    "ptrace": (101, 117),
    "sendto": (44, 206),
    "setuid": (105, 146),
    "socket": (41, 198),
    "umount2": (166, 39),
    "unlinkat": (263, 35),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "write": (1, 64),
}
_EXIT: Final = (60, 93)
_FORK: Final = (57, 220)  # aarch64 has only clone, which is given SIGCHLD
_SIGCHLD: Final = 17
_BASE: Final = 0x400000
_ALIGNMENT: Final = 0x10000
_HEADERS_BYTES: Final = 64 + 56


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call by its name, with its arguments. `is_i386` makes it by the 32-bit interface."""

    name: str
    args: tuple[Argument, ...] = ()
    is_i386: bool = False
    number: int = -1  # where it is not the one of the name


@dataclass(frozen=True, slots=True)
class ForkCall:
    """Start `count` processes, one after the other, each of which makes `calls` and exits."""

    count: int
    calls: tuple[SystemCall, ...]


Step: TypeAlias = SystemCall | ForkCall


def machine_architecture() -> Architecture | None:
    """Return the architecture of this machine, None for one that there are no programs for."""
    name = platform.machine().lower()
    if name in {"x86_64", "amd64"}:
        return "x86_64"
    return "aarch64" if name in {"aarch64", "arm64"} else None


def make_program(steps: Sequence[Step], architecture: Architecture) -> bytes:
    """Return an executable file that carries out the steps."""
    assembler: _Assembler = _X86() if architecture == "x86_64" else _Arm()
    # The code has a fixed length, so the addresses of the data are known after a first pass.
    code, _ = _assemble(assembler, steps, 0)
    code, data = _assemble(assembler, steps, _BASE + _HEADERS_BYTES + len(code))
    size = _HEADERS_BYTES + len(code) + len(data)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack(
        "<HHIQQQIHHHHHH",
        2,  # an executable at fixed addresses
        assembler.machine,
        1,
        _BASE + _HEADERS_BYTES,
        64,
        0,
        0,
        64,
        56,
        1,
        0,
        0,
        0,
    )
    # One segment, readable and executable: no call of a probe writes to its memory.
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, _ALIGNMENT)
    return header + segment + code + data


def _assemble(
    assembler: "_Assembler", steps: Sequence[Step], data_address: int
) -> tuple[bytes, bytes]:
    """Return the code and the data that it refers to."""
    code, data = bytearray(), bytearray()

    def place(argument: Argument) -> int | None:
        if isinstance(argument, str):
            return None
        if isinstance(argument, int):
            return argument
        address = data_address + len(data)
        data.extend(argument + bytes(-len(argument) % 8 or 8))
        return address

    def emit(call: SystemCall) -> bytes:
        number = _CALL_NUMBERS[call.name][assembler.column] if call.number < 0 else call.number
        return assembler.call(number, [place(each) for each in call.args], is_i386=call.is_i386)

    for step in steps:
        if isinstance(step, SystemCall):
            code += emit(step)
            continue
        child = b"".join(map(emit, step.calls)) + assembler.exit()
        code += assembler.fork(child) * step.count
    return bytes(code + assembler.exit()), bytes(data)


class _X86:
    """Encodes instructions of x86_64; the result of the last call is in r12."""

    machine, column = 62, 0
    _LOAD: Final = (b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8", b"\x49\xb9")
    _MOVE: Final = (
        b"\x4c\x89\xe7",
        b"\x4c\x89\xe6",
        b"\x4c\x89\xe2",
        b"\x4d\x89\xe2",
        b"\x4d\x89\xe0",
        b"\x4d\x89\xe1",
    )
    _LOAD_I386: Final = (b"\xbb", b"\xb9", b"\xba", b"\xbe", b"\xbf")
    # Exit with the negated result when it is an error; else store the result.
    _CHECK: Final = (
        b"\x48\x85\xc0" + b"\x79\x0c" + b"\x48\xf7\xd8" + b"\x89\xc7" + b"\xb8\x3c\0\0\0"
        b"\x0f\x05" + b"\x49\x89\xc4"
    )

    def call(self, number: int, args: Sequence[int | None], *, is_i386: bool) -> bytes:
        code = bytearray()
        if is_i386:
            for load, value in zip(self._LOAD_I386, args, strict=False):
                code += load + struct.pack("<I", (value or 0) & 0xFFFFFFFF)
            extend_sign = b"\x48\x63\xc0"
            return bytes(code + b"\xb8" + struct.pack("<I", number) + b"\xcd\x80" + extend_sign) + (
                self._CHECK
            )
        for index, value in enumerate(args):
            if value is None:
                code += self._MOVE[index]
            else:
                code += self._LOAD[index] + struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)
        return bytes(code + b"\xb8" + struct.pack("<I", number) + b"\x0f\x05") + self._CHECK

    def fork(self, child: bytes) -> bytes:
        fork = b"\xb8" + struct.pack("<I", _FORK[0]) + b"\x0f\x05" + self._CHECK
        # jnz over the child's code; the result is still in rax
        return fork + b"\x48\x85\xc0" + b"\x0f\x85" + struct.pack("<i", len(child)) + child

    def exit(self) -> bytes:
        return b"\x31\xff" + b"\xb8" + struct.pack("<I", _EXIT[0]) + b"\x0f\x05"


class _Arm:
    """Encodes instructions of aarch64; the result of the last call is in x19."""

    machine, column = 183, 1
    _SVC: Final = 0xD4000001

    def _load(self, register: int, value: int) -> list[int]:
        value &= 0xFFFFFFFFFFFFFFFF
        parts = [value >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
        high = [0xF2800000 | n << 21 | parts[n] << 5 | register for n in (1, 2, 3)]
        return [0xD2800000 | parts[0] << 5 | register, *high]

    def _pack(self, words: Sequence[int]) -> bytes:
        return struct.pack(f"<{len(words)}I", *words)

    def _check(self) -> list[int]:
        """Exit with the negated result when bit 63 of it is set; else store the result."""
        skip = 0xB6F80000 | 4 << 5
        return [skip, 0xCB0003E0, 0xD2800000 | _EXIT[1] << 5 | 8, self._SVC, 0xAA0003F3]

    def call(self, number: int, args: Sequence[int | None], *, is_i386: bool) -> bytes:
        if is_i386:
            raise ValueError("aarch64 has no such interface")
        words: list[int] = []
        for register, value in enumerate(args):
            if value is None:
                words.append(0xAA1303E0 | register)
            else:
                words += self._load(register, value)
        return self._pack([*words, *self._load(8, number), self._SVC, *self._check()])

    def fork(self, child: bytes) -> bytes:
        fork = self.call(_FORK[1], [_SIGCHLD, 0, 0, 0, 0], is_i386=False)
        branch = 0xB5000000 | (len(child) // 4 + 1) << 5  # cbnz x0, over the child's code
        return fork + self._pack([branch]) + child

    def exit(self) -> bytes:
        return self._pack([0xD2800000, 0xD2800000 | _EXIT[1] << 5 | 8, self._SVC])


_Assembler: TypeAlias = _X86 | _Arm
