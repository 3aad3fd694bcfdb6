"""The first program inside a sandbox with network: it opens the port of the proxy.

Started as `python -I -S network_stage.py PAIR PROGRAM ARGUMENT…` in the sandbox's own network
namespace, where nothing but loopback exists; it imports no module of ours. It listens on the port,
sends the listening socket over the socket pair that PAIR is a descriptor of, closes both, and
becomes PROGRAM with the variables that name a proxy. The gateway accepts the connections, so
nothing of us runs next to the command and no socket file is visible to it.

The modules in C are used directly, because `socket` and `signal` double the time that this takes.
"""

import _signal  # type: ignore[import-not-found]  # no types exist
import _socket
import os
import sys

ADDRESS, PORT = "127.0.0.1", 3128
BACKLOG = 128
FAILED = 125  # the exit status of a launcher that could not start its command
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
BYPASS = "localhost,127.0.0.1,::1"


def main() -> None:
    """Open the port, hand it over, and become the command."""
    pair, command = int(sys.argv[1]), sys.argv[2:]
    try:
        _hand_over(pair)
        env = {**os.environ, **_variables()}
        # The interpreter ignores these two; a command must not.
        _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
        _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
        os.execve(command[0], command, env)  # noqa: S606 - what was decided
    except OSError as exc:
        text = f"sandbox: the network could not be set up: {exc.strerror}\n"
        os.write(2, text.encode("utf-8", "surrogateescape"))
    os._exit(FAILED)


def _hand_over(pair: int) -> None:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind((ADDRESS, PORT))
    listener.listen(BACKLOG)
    control = _socket.socket(fileno=pair)
    descriptor = listener.fileno().to_bytes(4, sys.byteorder)
    control.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor)])
    listener.close()
    control.close()


def _variables() -> dict[str, str]:
    url = f"http://{ADDRESS}:{PORT}"
    found = dict.fromkeys(VARIABLES, url) | {"NO_PROXY": BYPASS}
    found |= {name.lower(): value for name, value in found.items()}
    return found | {"NODE_USE_ENV_PROXY": "1"}  # Node.js ignores the others without it


if __name__ == "__main__":
    main()
