"""The seccomp filter of sandboxed commands: a BPF program for x86_64 and aarch64. Pure.

Most of what is refused here a process without capabilities cannot do anyway; the filter keeps the
code of the kernel behind it out of reach. What is refused fails with EPERM; clone3, whose flags a
filter cannot read, with ENOSYS, so that libraries use clone. A program of another architecture is
killed: its numbers mean other calls.

A file with the set-user-id bit is refused as well. Inside it has no effect, but it stays in a
folder of this machine, where it belongs to the gateway's user: other users who start it there would
have the rights of that user. openat2, whose mode a filter cannot read, fails with ENOSYS.
"""

import errno
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

# Instructions of classic BPF, and offsets in `struct seccomp_data` (little endian).
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN, _AND = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x06,
    0x54,
)
_NUMBER, _ARCH, _ARGS = 0, 4, 16

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_EPERM: Final = 0x00050000 | errno.EPERM
_ENOSYS: Final = 0x00050000 | 38

_AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT: Final = 0x40000000

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _DGRAM, _SEQPACKET, _TYPE_BITS = 1, 2, 5, 0xF
_PROTOCOLS: Final = (0, 1, 6, 17, 58)  # any, ICMP, TCP, UDP, ICMPv6
_NETLINK_ROUTE: Final = 0
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME is for unshare only: in
# clone its bit is a part of the signal number.
_NAMESPACES: Final = 0x7E020000
_NEWTIME: Final = 0x80
_TERMINAL_REQUESTS: Final = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX put text into a terminal
_PERSONALITIES: Final = (0, 0xFFFFFFFF)  # Linux, and the question which one it is

SET_ID_BITS: Final = 0o6000  # S_ISUID, S_ISGID
CREATE_FLAGS: Final = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE: else open has no mode

# The number of each refused call: on x86_64, on aarch64 (None where it does not exist).
DENIED: Final[dict[str, tuple[int, int | None]]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "get_kernel_syms": (177, None),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "_sysctl": (156, None),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "fanotify_init": (300, 262),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "memfd_secret": (447, 447),
}

# The number of each call that is judged by its arguments.
_JUDGED: Final[dict[str, tuple[int, int | None]]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "ioctl": (16, 29),
    "personality": (135, 92),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "creat": (85, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
}

# Which argument is the mode of a file; before that of OPENED, its flags.
MODED: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2} | {
    "creat": 1,
    "mknod": 1,
    "mknodat": 2,
}
OPENED: Final = {"open": 2, "openat": 3}

_Instruction = tuple[int, int, int, int]  # code, steps if true, steps if false, value


def has_filter(machine: str) -> bool:
    """Return whether there is a filter for this kind of machine, as `platform.machine` names it."""
    return machine in _AUDIT_ARCH


@cache
def make_filter(machine: str) -> bytes:
    """Return the program as `bwrap --seccomp` reads it."""
    column = 0 if machine == "x86_64" else 1
    program = list(_check_machine(machine))
    for numbers in DENIED.values():
        if (number := numbers[column]) is not None:
            program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    for name, judge in _judges().items():
        # The number is in the accumulator until a block loads an argument, and a block that
        # matched always returns.
        if (number := _JUDGED[name][column]) is not None:
            program += [(_JUMP_EQUAL, 0, len(judge), number), *judge]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(
        struct.pack("<HBBI", code, jump, miss, value) for code, jump, miss, value in program
    )


def _check_machine(machine: str) -> Iterator[_Instruction]:
    yield from [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        yield from [(_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]


def _judges() -> dict[str, list[_Instruction]]:
    """Return the instructions that judge a call, each ending with a return on every way."""
    return {
        "clone": _deny_bits(0, _NAMESPACES),
        "clone3": [(_RETURN, 0, 0, _ENOSYS)],
        "unshare": _deny_bits(0, _NAMESPACES | _NEWTIME),
        "ioctl": _deny_values(1, _TERMINAL_REQUESTS),
        "personality": _allow_values(0, _PERSONALITIES),
        "socket": _judge_socket(),
        "socketpair": [
            *_require(0, (_AF_UNIX,)),
            # A datagram socket of a pair could still send to any path; these two cannot.
            *_require(1, (_STREAM, _SEQPACKET), bits=_TYPE_BITS),
            (_RETURN, 0, 0, _ALLOW),
        ],
        **{name: _deny_bits(index, SET_ID_BITS) for name, index in MODED.items()},
        **{name: _judge_open(index) for name, index in OPENED.items()},
        "openat2": [(_RETURN, 0, 0, _ENOSYS)],
    }


def _judge_open(mode: int) -> list[_Instruction]:
    """Refuse the bits in the mode of a new file; without a new file, the mode is any number."""
    judge = _deny_bits(mode, SET_ID_BITS)
    creates = (_JUMP_BITS, 0, len(judge), CREATE_FLAGS)
    return [_load(mode - 1), creates, *judge, (_RETURN, 0, 0, _ALLOW)]


def _judge_socket() -> list[_Instruction]:
    """Allow TCP, UDP and ICMP sockets, and netlink about routes; no raw or unix socket."""
    internet = [
        *_require(0, (_AF_INET, _AF_INET6)),
        *_require(1, (_STREAM, _DGRAM), bits=_TYPE_BITS),
        *_require(2, _PROTOCOLS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    netlink = [*_require(2, (_NETLINK_ROUTE,)), (_RETURN, 0, 0, _ALLOW)]
    return [_load(0), (_JUMP_EQUAL, 0, len(netlink), _AF_NETLINK), *netlink, *internet]


def _load(index: int) -> _Instruction:
    """Load the lower half of an argument: all of these are 32 bits wide in the kernel."""
    return (_LOAD, 0, 0, _ARGS + 8 * index)


def _deny_bits(index: int, bits: int) -> list[_Instruction]:
    returns = [(_RETURN, 0, 0, _EPERM), (_RETURN, 0, 0, _ALLOW)]
    return [_load(index), (_JUMP_BITS, 0, 1, bits), *returns]


def _deny_values(index: int, values: Iterable[int]) -> list[_Instruction]:
    denials = [
        each for value in values for each in ((_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _EPERM))
    ]
    return [_load(index), *denials, (_RETURN, 0, 0, _ALLOW)]


def _allow_values(index: int, values: tuple[int, ...]) -> list[_Instruction]:
    return [*_require(index, values), (_RETURN, 0, 0, _ALLOW)]


def _require(index: int, values: tuple[int, ...], bits: int | None = None) -> list[_Instruction]:
    """Continue when the argument (of which `bits` count) is one of the values, else EPERM."""
    mask = [] if bits is None else [(_AND, 0, 0, bits)]
    count = len(values)
    checks = [(_JUMP_EQUAL, count - number, 0, value) for number, value in enumerate(values)]
    return [_load(index), *mask, *checks, (_RETURN, 0, 0, _EPERM)]
