"""A server without the SDK, which misbehaves as its first argument says: `python raw.py MODE`.

Its tool `act` does what the mode says; DESCRIPTION and EXTRA in the environment change its list.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "ok"
ABILITIES: dict[str, Any] = {"tools": {"listChanged": True}}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    found: dict[str, Any] = json.loads(line)
    return found


def tools() -> list[dict[str, Any]]:
    about = os.environ.get("DESCRIPTION", "Act.")
    if (file := os.environ.get("DESCRIPTION_FILE")) and Path(file).exists():
        about = Path(file).read_text(encoding="utf-8")
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": about}}}
    act: dict[str, Any] = {"name": "act", "description": about, "inputSchema": schema}
    if MODE == "schema":
        act["outputSchema"] = {"type": "object", "required": ["n"]}
    names = [name for name in os.environ.get("EXTRA", "").split(",") if name]
    plain = {"type": "object", "properties": {}}
    return [act, *({"name": each, "description": each, "inputSchema": plain} for each in names)]


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def flood() -> None:
    while True:
        send({"method": "notifications/message", "params": {"level": "info", "data": "x" * 200}})


def never_end_line() -> None:
    while True:
        sys.stdout.write("x" * 65_536)


def ask_client() -> dict[str, Any]:
    """Return what the client answers to requests of a server."""
    answers = {}
    for number, method in enumerate(("sampling/createMessage", "elicitation/create", "roots/list")):
        params: dict[str, Any] = {"messages": [], "maxTokens": 1} if number == 0 else {}
        if number == 1:
            params = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        send({"id": f"s{number}", "method": method, "params": params})
        while (found := read()).get("id") != f"s{number}":
            pass
        answers[method] = found.get("error", {}).get("code", found.get("result"))
    return text(json.dumps(answers))


def act(args: dict[str, Any], number: int) -> dict[str, Any] | None:
    """Return the result of the call, None for no answer."""
    match MODE:
        case "hang":
            return None
        case "flood":
            flood()
        case "giant":
            never_end_line()
        case "exit":
            sys.stderr.write("the disk is full\n")
            sys.stderr.flush()
            os._exit(3)
        case "huge":
            return text("y" * 5_000_000)
        case "schema":
            return {**text("ok"), "structuredContent": {"m": 1}}
        case "protocol":
            return {"content": "not a list"}
        case "requests":
            return ask_client()
        case "child":
            child = subprocess.Popen(["sleep", "600"])
            return text(json.dumps([os.getpid(), child.pid]))
        case "change":
            send({"method": "notifications/tools/list_changed"})
    return text(f"{args.get('text', '')} {number}".strip())


def main() -> None:
    calls = 0
    if MODE == "garbage":
        print("Welcome to my server!", flush=True)
        time.sleep(3600)
    if MODE == "babble":
        while True:
            print("Welcome to my server!", flush=True)
    if MODE == "broken":
        sys.exit("no configuration file")
    while True:
        request = read()
        method, number = request.get("method"), request.get("id")
        if MODE == "deaf" or number is None or method is None:
            continue
        if method == "initialize":
            if MODE == "noise":
                print("Listening …", flush=True)
            info = {"name": "raw", "version": "1"}
            version = request["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": ABILITIES, "serverInfo": info}
            send({"id": number, "result": result})
        elif method == "tools/list":
            send({"id": number, "result": {"tools": tools()}})
        elif method == "tools/call":
            calls += 1
            found = act(request["params"].get("arguments") or {}, calls)
            if found is not None:
                send({"id": number, "result": found})
        else:
            send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
