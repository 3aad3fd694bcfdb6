"""The list of escape probes: what each tries, and which answers mean that the sandbox held."""

import shlex
import socket
import struct
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.tools.sandbox.base import SandboxLimits
from homarus.tools.sandbox.probe_program import (
    PREVIOUS,
    Architecture,
    ForkCall,
    Step,
    SystemCall,
    machine_architecture,
    make_program,
)

ProbeGroup: TypeAlias = Literal["files", "kernel", "network", "processes", "limits"]
ProbePart: TypeAlias = Literal["isolation", "memory", "disk"]  # those of one command
PARTS: Final[tuple[ProbePart, ...]] = ("isolation", "memory", "disk")
_MB: Final = 1 << 20
LIMITS: Final = SandboxLimits(
    pids=48,
    memory_bytes=64 * _MB,
    file_bytes=1 * _MB,
    disk_bytes=4 * _MB,
    open_files=256,
)
CONTROL: Final = "control"  # a program that must succeed: it shows that the others can run

_EPERM, _EACCES, _ENOSYS = 1, 13, 38
_MEMORY_CHUNK: Final = 24 * _MB  # below the limit of one process; three exceed it
_FORKS: Final = LIMITS.pids + 32
_FILL: Final = b"x" * (LIMITS.file_bytes - 65536)


@dataclass(frozen=True, slots=True)
class Probe:
    """One escape probe.

    It failed to escape with every exit code but those in `escaped`, or, where `refused` is given,
    only with these or when a signal killed it. `limit` names the limit that it tests.
    """

    description: str
    group: ProbeGroup
    part: ProbePart = "isolation"
    escaped: tuple[int, ...] = (0,)
    refused: tuple[int, ...] = ()
    limit: str = ""
    is_seen_outside: bool = False

    def has_held(self, code: int) -> bool:
        """Return whether an exit code means that the sandbox held."""
        if self.refused:
            return code in self.refused or code > 128
        return code not in self.escaped


_DENIED: Final = (_EPERM, _EACCES, _ENOSYS)
PROBES: Final[Mapping[str, Probe]] = {
    "state-directory": Probe("read a file of the gateway's state directory", "files"),
    "other-workspace": Probe("read a file of another agent's workspace", "files"),
    "outside-write": Probe("write to a file outside", "files", is_seen_outside=True),
    "symlink": Probe("follow a symlink out of the workspace", "files"),
    "hard-link": Probe("link a file outside into the workspace", "files"),
    "proc-root": Probe("read files through /proc/PID/root and cwd", "files"),
    "descriptors": Probe("use a folder or socket that was left open", "files"),
    "read-only": Probe("write to what is mounted read-only", "files"),
    "mount": Probe("mount a file system", "kernel"),
    "ptrace": Probe("trace the gateway's process", "processes"),
    "ptrace-self": Probe("use ptrace at all", "kernel"),
    "signals": Probe("send the gateway a signal", "processes"),
    "processes": Probe("see the gateway's process in /proc", "processes"),
    "proc-writes": Probe("open files of /proc/sys and sysrq for writing", "kernel"),
    "sys-writes": Probe("open files of /sys for writing", "kernel"),
    "cgroup-writes": Probe("open files of cgroups for writing", "kernel"),
    "keyctl": Probe("use keys of the kernel", "kernel"),
    "add-key": Probe("add a key to the kernel", "kernel", refused=_DENIED),
    "keyctl-i386": Probe("use keys by the 32-bit interface", "kernel"),
    "io-uring": Probe("make an io_uring", "kernel", refused=_DENIED),
    "bpf": Probe("load a BPF program", "kernel", refused=_DENIED),
    "userfaultfd": Probe("handle page faults", "kernel"),
    "user-namespace": Probe("make a user namespace", "kernel"),
    "user-namespace-clone": Probe("make a user namespace with clone3", "kernel"),
    "setuid": Probe("become root", "kernel"),
    "no-new-privileges": Probe("gain rights by a setuid program", "kernel"),
    "capabilities": Probe("use capabilities of root", "kernel"),
    "seccomp": Probe("run without a filter of system calls", "kernel"),
    "mknod": Probe("make a device node", "kernel"),
    "devices": Probe("find devices other than null, random and terminals", "kernel"),
    "raw-socket": Probe("open a raw socket", "network"),
    "packet-socket": Probe("open a packet socket", "network"),
    "vsock": Probe("reach the hypervisor by AF_VSOCK", "network"),
    "unix-socket-workspace": Probe("connect to a unix socket in the workspace", "network"),
    "unix-socket-outside": Probe("connect to a unix socket outside", "network"),
    "abstract-socket": Probe("connect to an abstract socket of this machine", "network"),
    "udp-loopback": Probe("send to a UDP port of this machine", "network", is_seen_outside=True),
    "tcp-loopback": Probe("connect to a TCP port of this machine", "network"),
    "dns": Probe("send a DNS query", "network"),
    "dns-ipv6": Probe("send a DNS query by IPv6", "network"),
    "fork-bomb": Probe("start more processes", "limits", limit=f"{LIMITS.pids} processes"),
    "memory-bomb": Probe(
        "use more memory in one process", "limits", "memory", limit="64 MB of memory"
    ),
    "memory-bomb-tree": Probe(
        "use more memory in several processes", "limits", "memory", limit="64 MB of memory"
    ),
    "disk-bomb-file": Probe("write a larger file", "limits", "disk", limit="1 MB for a file"),
    "disk-bomb": Probe("fill the disk with files", "limits", "disk", limit="4 MB of growth"),
}


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """What the probes try to reach, and where. `read_only` are folders inside."""

    outside: str
    workspace: str
    pid: int
    started_ticks: int
    abstract_name: bytes
    udp_port: int
    tcp_port: int
    token: str
    read_only: tuple[str, ...] = ()


def make_programs(
    part: ProbePart, facts: ProbeFacts, architecture: Architecture | None = None
) -> dict[str, bytes]:
    """Return the programs of a part by their names."""
    kind = architecture or machine_architecture() or "x86_64"
    steps = {
        "isolation": _isolation_steps,
        "memory": _memory_steps,
        "disk": _disk_steps,
    }[part](facts)
    steps |= {CONTROL: [SystemCall("getpid")]}
    if part == "isolation":
        has_i386 = kind == "x86_64"  # elsewhere there is no second interface to go round the filter
        by_i386 = SystemCall("keyctl", (0, -3, 1), is_i386=True, number=288)
        steps["keyctl-i386"] = [by_i386 if has_i386 else SystemCall("keyctl", (0, -3, 1))]
    return {name: make_program(each, kind) for name, each in steps.items()}


def _isolation_steps(facts: ProbeFacts) -> dict[str, list[Step]]:
    call, here = SystemCall, -100  # AT_FDCWD
    secret = f"{facts.outside}/state/secret\0".encode()
    nap = struct.pack("<qq", 1, 0)
    clone_args = struct.pack("<11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    steps: dict[str, list[Step]] = {
        "hard-link": [call("linkat", (here, secret, here, b"hard\0", 0))],
        "mount": [
            call("mount", (b"none\0", b"p/m\0", b"tmpfs\0", 0, 0)),
            call("umount2", (b"p/m\0", 2)),
        ],
        "ptrace": [call("ptrace", (0x4206, facts.pid, 0, 0))],  # PTRACE_SEIZE stops nothing
        "ptrace-self": [call("ptrace", (0, 0, 0, 0))],
        "signals": [call("kill", (facts.pid, 0))],
        "keyctl": [call("keyctl", (0, -3, 1))],
        "add-key": [call("add_key", (b"user\0", b"homarus-probe\0", b"x", 1, -1))],
        "io-uring": [call("io_uring_setup", (1, 0))],
        "bpf": [call("bpf", (5, 0, 0))],
        "userfaultfd": [call("userfaultfd", (1,))],
        "user-namespace": [call("unshare", (0x10000000,))],
        "user-namespace-clone": [call("clone3", (clone_args, 88))],
        "setuid": [call("setuid", (0,))],
        "mknod": [
            call("mknodat", (here, b"p/device\0", 0o20600, 0x101)),
            call("unlinkat", (here, b"p/device\0", 0)),
        ],
        "raw-socket": [call("socket", (socket.AF_INET, 3, 1))],
        "packet-socket": [call("socket", (17, 3, 0x300))],
        "vsock": [call("socket", (40, 1, 0))],
        "fork-bomb": [ForkCall(_FORKS, (call("nanosleep", (nap, 0)),))],
    }
    for index, target in enumerate(facts.read_only):
        path = f"{target}/.homarus-probe-{facts.token}\0".encode()
        remove = call("unlinkat", (here, path, 0x200))
        steps[f"read-only-{index}"] = [call("mkdirat", (here, path, 0o700)), remove]
    return steps | _network_steps(facts)


def _network_steps(facts: ProbeFacts) -> dict[str, list[Step]]:
    call, dgram, stream = SystemCall, 2, 1
    host = struct.pack("<H", 1) + b"host.sock\0"
    abstract = struct.pack("<H", 1) + facts.abstract_name
    query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x05probe\x07invalid\0\0\x01\0\x01"
    # Addresses that are reserved for documentation: no server gets the query.
    server = struct.pack("<H", 2) + struct.pack(">H", 53) + bytes((192, 0, 2, 53)) + bytes(8)
    address6 = socket.inet_pton(socket.AF_INET6, "2001:db8::53")
    server6 = struct.pack("<H", 10) + struct.pack(">HI", 53, 0) + address6 + bytes(4)

    def loopback(port: int) -> bytes:
        return struct.pack("<H", 2) + struct.pack(">H", port) + b"\x7f\0\0\x01" + bytes(8)

    def connect(family: int, address: bytes) -> list[Step]:
        return [
            call("socket", (family, stream, 0)),
            call("connect", (PREVIOUS, address, len(address))),
        ]

    def send(family: int, address: bytes, data: bytes) -> list[Step]:
        return [
            call("socket", (family, dgram, 0)),
            call("sendto", (PREVIOUS, data, len(data), 0x4000, address, len(address))),
        ]

    return {
        "unix-socket": connect(1, host),
        "abstract-socket": connect(1, abstract),
        "udp-loopback": send(2, loopback(facts.udp_port), b"probe"),
        "tcp-loopback": connect(2, loopback(facts.tcp_port)),
        "dns": send(2, server, query),
        "dns-ipv6": send(10, server6, query),
    }


def _memory_steps(_facts: ProbeFacts) -> dict[str, list[Step]]:
    nap = struct.pack("<qq", 1, 0)
    # MAP_PRIVATE, MAP_ANONYMOUS, MAP_POPULATE: the memory is used at once
    return {
        "memory-bomb": [SystemCall("mmap", (0, 2 * LIMITS.memory_bytes, 3, 0x8022, -1, 0))],
        "chunk": [
            SystemCall("mmap", (0, _MEMORY_CHUNK, 3, 0x8022, -1, 0)),
            SystemCall("nanosleep", (nap, 0)),
        ],
    }


def _disk_steps(_facts: ProbeFacts) -> dict[str, list[Step]]:
    create = SystemCall("openat", (-100, b"big\0", 0o101, 0o600))
    return {
        "disk-bomb-file": [create, SystemCall("ftruncate", (PREVIOUS, 2 * LIMITS.file_bytes))],
        "fill": [SystemCall("write", (1, _FILL, len(_FILL)))],
        "nap": [SystemCall("nanosleep", (struct.pack("<qq", 0, 100_000_000), 0))],
    }


_START: Final = """\
W=$PWD
run() { "$W/p/$1" >/dev/null 2>&1; echo "probe:$1:$?"; }
can_write() { [ -e "$1" ] && ( : >> "$1" ) 2>/dev/null; }
can_read() { [ -n "$1" ] && ( read -r line < "$1"; [ -n "$line" ] ) 2>/dev/null; }
report() { if [ -n "$2" ]; then echo "probe:$1:0:$2"; else echo "probe:$1:1:${3:-refused}"; fi; }
run control
"""
_FILES: Final = """\
seen=; can_read "$OUT/state/secret" && seen="read $OUT/state/secret"
report state-directory "$seen" "not found"
seen=; can_read "$OUT/other-workspace/MEMORY.md" && seen="read another workspace"
report other-workspace "$seen" "not found"
( printf changed > "$OUT/state/secret" ) 2>/dev/null
seen=; can_read "$W/link" && seen="the symlink was followed"
report symlink "$seen" "leads nowhere"
seen=
for root in /proc/1 /proc/self /proc/$GATEWAY; do
    can_read "$root/root$OUT/state/secret" && seen="$root/root"
    can_read "$root/cwd/../../outside/state/secret" && seen="$root/cwd"
done
report proc-root "$seen" "not found"
seen=
for each in /proc/self/fd/*; do
    case ${each##*/} in 0|1|2|\\*) continue ;; esac
    if [ -d "$each" ] || [ -S "$each" ]; then seen="descriptor ${each##*/} is open"; fi
done
report descriptors "$seen" "none is open"
run hard-link
code=30
for each in "$W"/p/read-only-*; do
    [ -e "$each" ] || continue
    "$each" >/dev/null 2>&1; last=$?
    [ $last = 0 ] && code=0
done
echo "probe:read-only:$code"
"""
_PROCESSES: Final = """\
is_ours=1; seen=
if [ -r /proc/$GATEWAY/stat ]; then
    read -r line < /proc/$GATEWAY/stat
    case $line in *" $STARTED "*) seen="process $GATEWAY is visible" ;; *) is_ours=0 ;; esac
fi
report processes "$seen" "not visible"
for each in ptrace signals; do
    if [ $is_ours = 1 ]; then run $each; else echo "probe:$each:3"; fi
done
"""
_KERNEL: Final = """\
seen=
for each in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe \\
    /proc/sys/vm/drop_caches /proc/sys/fs/suid_dumpable; do
    can_write $each && seen=$each
done
report proc-writes "$seen"
seen=
for each in /sys/kernel/uevent_helper /sys/kernel/mm/transparent_hugepage/enabled \\
    /sys/power/state /sys/module/kernel/parameters/panic; do
    can_write $each && seen=$each
done
report sys-writes "$seen"
seen=
for each in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/*/cgroup.procs \\
    /sys/fs/cgroup/*/release_agent; do
    can_write "$each" && seen=$each
done
report cgroup-writes "$seen"
seen= nnp= seccomp=
while read -r key value _; do
    case $key in
    CapInh:|CapPrm:|CapEff:|CapAmb:)
        case $value in *[!0]*) seen="$seen$key $value " ;; esac; caps=1 ;;
    NoNewPrivs:) nnp=$value ;;
    Seccomp:) seccomp=$value ;;
    esac
done < /proc/self/status
[ -n "$caps" ] || seen="unknown"
report capabilities "$seen" "none"
seen=; [ "$nnp" = 1 ] || seen="NoNewPrivs is ${nnp:-unknown}"
report no-new-privileges "$seen" "NoNewPrivs is 1"
seen=; [ "$seccomp" = 2 ] || seen="Seccomp is ${seccomp:-unknown}"
report seccomp "$seen" "Seccomp is 2"
seen=
for each in /dev/*; do
    case ${each#/dev/} in
    null|zero|full|random|urandom|tty|console|ptmx|pts|shm|mqueue|fd|stdin|stdout|stderr|core) ;;
    \\*) seen="/dev cannot be read" ;;
    *) seen=$each ;;
    esac
done
report devices "$seen" "only null, random and terminals"
"""
_RUNS: Final = (
    "mount ptrace-self keyctl add-key keyctl-i386 io-uring bpf userfaultfd user-namespace "
    "user-namespace-clone setuid mknod raw-socket packet-socket vsock abstract-socket "
    "udp-loopback tcp-loopback dns dns-ipv6"
)
_SOCKETS: Final = """\
"$W/p/unix-socket" >/dev/null 2>&1; echo "probe:unix-socket-workspace:$?"
( cd "$OUT" 2>/dev/null && "$W/p/unix-socket" ) >/dev/null 2>&1
echo "probe:unix-socket-outside:$?"
echo probe:fork-bomb-started:0
run fork-bomb
"""
_MEMORY: Final = """\
echo probe:memory-bomb-started:0
run memory-bomb
echo probe:memory-bomb-tree-started:0
pids=
for each in 1 2 3 4; do "$W/p/chunk" & pids="$pids $!"; done
code=0
for each in $pids; do wait $each || code=$?; done
echo "probe:memory-bomb-tree:$code"
"""
# What is written before the growth is measured for the first time may not count, so that there is a
# second set of files.
_DISK: Final = """\
echo probe:disk-bomb-file-started:0
run disk-bomb-file
echo probe:disk-bomb-started:0
code=0
for turn in 1 2; do
    for each in 1 2 3 4 5 6 7 8; do
        [ $code = 0 ] && { "$W/p/fill" > "$W/bomb-$turn-$each" || code=28; }
    done
    for each in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do [ $code = 0 ] && "$W/p/nap"; done
done
echo "probe:disk-bomb:$code"
"""


def make_script(part: ProbePart, facts: ProbeFacts) -> str:
    """Return the text of the command that runs the probes of a part and prints their codes."""
    if part == "memory":
        return _START + _MEMORY
    if part == "disk":
        return _START + _DISK
    names = (
        f"OUT={shlex.quote(facts.outside)}\nGATEWAY={facts.pid}\nSTARTED={facts.started_ticks}\n"
    )
    runs = f"for each in {_RUNS}; do run $each; done\n"
    return names + _START + _FILES + _PROCESSES + _KERNEL + runs + _SOCKETS
