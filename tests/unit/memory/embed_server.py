"""A server that embeds as OpenAI, Voyage, Google and Ollama do, and misbehaves when told to."""

import hashlib
import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

DIMS = 8


def numbers(text: str, dims: int = DIMS) -> list[float]:
    """A vector that only this text has; not of length 1."""
    digest = hashlib.sha256(text.encode()).digest()
    return [(digest[at % 32] - 100.5) / 50 for at in range(dims)]


@dataclass
class Seen:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What is said instead of the right answer; `raw` is everything on the wire."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    type: str = "application/json"
    raw: bytes | None = None
    hold: bool = False  # until the server ends


@dataclass
class Job:
    lines: list[tuple[str, Any]]  # a name and the body of a request
    kind: str
    looks: int = 0
    called_off: bool = False


class EmbedServer:
    """`with` it; `replies` come first, one each, then right answers."""

    def __init__(self, dims: int = DIMS) -> None:
        self.dims = dims
        self.seen: list[Seen] = []
        self.replies: deque[Reply | None] = deque()
        self.refuse: Callable[[Seen], Reply | None] = lambda _seen: None
        self.files: dict[str, bytes] = {}
        self.jobs: dict[str, Job] = {}
        self.looks_needed = 2
        self.job_status = "completed"
        self.bad_lines: set[str] = set()
        self.over = threading.Event()
        self._count = 0
        self._connections: list[socket.socket] = []
        server = self

        class Talk(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                server._connections.append(self.connection)

            def do_POST(self) -> None:
                server.answer(self)

            do_GET = do_DELETE = do_POST  # noqa: N815 - the library's names

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Talk)
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._http.shutdown()
        self._thread.join()
        for connection in self._connections:
            with suppress(OSError):  # its client left before
                connection.shutdown(socket.SHUT_RDWR)
        self._http.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        return [f"{seen.method} {seen.path}" for seen in self.seen]

    def answer(self, talk: BaseHTTPRequestHandler) -> None:
        size = int(talk.headers.get("Content-Length") or 0)
        headers = {name.lower(): value for name, value in talk.headers.items()}
        seen = Seen(talk.command, talk.path, headers, talk.rfile.read(size))
        self.seen.append(seen)
        reply = self.refuse(seen) or (self.replies.popleft() if self.replies else None)
        reply = reply or self._right(seen)
        if reply.hold:
            self.over.wait(60)
            talk.close_connection = True
            return
        if reply.raw is not None:
            talk.wfile.write(reply.raw)
            talk.close_connection = True
            return
        talk.send_response(reply.status)
        talk.send_header("Content-Type", reply.type)
        talk.send_header("Content-Length", str(len(reply.body)))
        for name, value in reply.headers.items():
            talk.send_header(name, value)
        talk.end_headers()
        talk.wfile.write(reply.body)

    def _right(self, seen: Seen) -> Reply:
        path = seen.path.partition("?")[0]
        for pattern, say in (
            (r"POST .*/embeddings", self._openai),
            (r"POST .*:batchEmbedContents", self._gemini),
            (r"POST .*/api/embed", self._ollama),
            (r"POST .*/files", self._upload),
            (r"GET .*/files/([^/]+)/content", self._content),
            (r"DELETE .*/files/([^/]+)", self._delete),
            (r"POST .*/batches", self._begin),
            (r"POST .*/batches/([^/]+)[/:]cancel", self._cancel),
            (r"GET .*/batches/(file-[^/]+)", self._look),
            (r"POST .*:asyncBatchEmbedContent", self._begin_gemini),
            (r"GET .*/batches/([^/]+)", self._look_gemini),
            (r"DELETE .*/batches/([^/]+)", self._delete),
        ):
            if found := re.fullmatch(pattern, f"{seen.method} {path}"):
                told = say(seen, *found.groups())
                return Reply(body=told if isinstance(told, bytes) else json.dumps(told).encode())
        return Reply(404, b'{"error": {"message": "no such path"}}')

    def _list(self, texts: list[str]) -> dict[str, Any]:
        items = [
            {"object": "embedding", "index": at, "embedding": numbers(text, self.dims)}
            for at, text in enumerate(texts)
        ]
        tokens = sum(map(len, texts))
        items.reverse()  # nobody promises an order
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": items, "model": "m", "usage": usage}

    def _openai(self, seen: Seen) -> Any:
        return self._list(seen.json["input"])

    def _ollama(self, seen: Seen) -> Any:
        texts = seen.json["input"]
        vectors = [numbers(text, self.dims) for text in texts]
        return {"model": "m", "embeddings": vectors, "prompt_eval_count": len(texts)}

    def _gemini(self, seen: Seen) -> Any:
        asked = [one["content"]["parts"][0]["text"] for one in seen.json["requests"]]
        return {"embeddings": [{"values": numbers(text, self.dims)} for text in asked]}

    # Jobs

    def _upload(self, seen: Seen) -> Any:
        mark = seen.headers["content-type"].partition("boundary=")[2]
        parts = seen.body.split(f"--{mark}".encode())
        assert b'name="purpose"' in parts[1] and parts[1].endswith(b"batch\r\n")
        self._count += 1
        name = f"file-{self._count}"
        self.files[name] = parts[2].partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        return {"id": name, "object": "file", "purpose": "batch"}

    def _content(self, _seen: Seen, name: str) -> Any:
        return self.files[name]

    def _delete(self, _seen: Seen, name: str) -> Any:
        self.files.pop(name, None)
        return {"id": name, "deleted": True}

    def _begin(self, seen: Seen) -> Any:
        asked = seen.json
        assert asked["endpoint"] == "/v1/embeddings"
        lines = [json.loads(line) for line in self.files[asked["input_file_id"]].splitlines()]
        for line in lines:
            if asked["completion_window"] == "24h":  # OpenAI's
                assert (line["method"], line["url"]) == ("POST", "/v1/embeddings")
                assert line["body"]["model"]
            else:
                assert asked["request_params"]["model"]
        name = f"file-job-{len(self.jobs)}"
        self.jobs[name] = Job([(line["custom_id"], line["body"]) for line in lines], "file")
        return {"id": name, "object": "batch", "status": "validating"}

    def _look(self, _seen: Seen, name: str) -> Any:
        job = self.jobs[name]
        job.looks += 1
        told = {"id": name, "object": "batch", "input_file_id": "file-1", "errors": None}
        if job.looks < self.looks_needed:
            return {**told, "status": "in_progress", "output_file_id": None}
        good = [line for line in job.lines if line[0] not in self.bad_lines]
        bad = [line for line in job.lines if line[0] in self.bad_lines]
        output = {"status": self.job_status, "output_file_id": None, "error_file_id": None}
        if good and self.job_status != "failed":
            output["output_file_id"] = f"{name}-out"
            self.files[f"{name}-out"] = b"\n".join(
                json.dumps({
                    "custom_id": id_,
                    "response": {"status_code": 200, "body": self._list(body["input"])},
                    "error": None,
                }).encode()
                for id_, body in reversed(good)
            )  # fmt: skip
        if bad:
            output["error_file_id"] = f"{name}-err"
            error = {"custom_id": "0", "response": None, "error": {"message": "no luck"}}
            self.files[f"{name}-err"] = json.dumps(error).encode()
        return {**told, **output}

    def _cancel(self, _seen: Seen, name: str) -> Any:
        self.jobs[name].called_off = True
        return {"id": name, "name": name, "status": "cancelling"}

    def _begin_gemini(self, seen: Seen) -> Any:
        asked = seen.json["batch"]["inputConfig"]["requests"]["requests"]
        lines = [("", one["request"]["content"]["parts"][0]["text"]) for one in asked]
        name = f"job-{len(self.jobs)}"
        self.jobs[name] = Job(lines, "gemini")
        return {"name": f"batches/{name}", "metadata": {"state": "BATCH_STATE_PENDING"}}

    def _look_gemini(self, _seen: Seen, name: str) -> Any:
        job = self.jobs[name]
        job.looks += 1
        told: dict[str, Any] = {"name": f"batches/{name}"}
        if job.looks < self.looks_needed:
            return {**told, "metadata": {"state": "BATCH_STATE_RUNNING"}}
        if self.job_status == "failed":
            error = {"code": 3, "message": "no luck"}
            return {
                **told,
                "done": True,
                "metadata": {"state": "BATCH_STATE_FAILED"},
                "error": error,
            }
        answers = [
            {"error": {"code": 13, "message": "no luck"}}
            if text in self.bad_lines
            else {
                "response": {"embedding": {"values": numbers(text, self.dims)}, "tokenCount": "3"}
            }
            for _, text in job.lines
        ]
        output = {"inlinedEmbedContentResponses": {"inlinedResponses": answers}}
        return {
            **told,
            "done": True,
            "metadata": {"state": "BATCH_STATE_SUCCEEDED", "output": output},
        }
