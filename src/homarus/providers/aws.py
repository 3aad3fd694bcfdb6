"""AWS's own library, for what is not worth writing again: who we are, where, and signatures.

boto3 finds the credentials, the region and the address the way every AWS tool does, checks the
request, writes it and signs it. It does not send it: its client blocks a thread for as long as an
answer takes, and cannot be stopped before one begins. The signed request goes out over `http`.
Everything here blocks and belongs into a thread; the library is loaded when first used.
"""

import importlib.util
import logging
from collections.abc import Mapping
from threading import Lock
from typing import Any, NoReturn
from urllib.parse import urlsplit, urlunsplit

from homarus.core.errors import (
    AuthFailed,
    BadRequest,
    HomarusError,
    Unreachable,
    UserError,
)
from homarus.core.message import Json
from homarus.core.value import dataclass
from homarus.providers.failures import Problem, Subject, error_of, unreachable

SERVICE = "bedrock-runtime"
DEFAULT_REGION = "us-east-1"
LEND_S = 10.0
SIGN_IN = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws sso login`"
# What our own client says itself.
_NOT_PASSED_ON = frozenset({"user-agent", "content-length"})


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as it must be sent, to the byte: its signature covers address, headers and body."""

    origin: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def check_installed() -> None:
    """Refuse when the library is not there; it is not loaded for that."""
    if importlib.util.find_spec("boto3") is None:
        raise UserError(
            "Amazon Bedrock needs the package boto3, which is not installed",
            fix="pip install 'homarus[bedrock]'",
        )


class Signer:
    """Writes and signs requests. With a `bearer` key there is no signature, and no credentials.

    `env` completes the process's environment, for what is set in files of ours.
    """

    def __init__(self, base_url: str, env: Mapping[str, str], *, bearer: bool) -> None:
        self._base_url, self._env, self._bearer = base_url, env, bearer
        self._lock = Lock()
        self._client: Any = None

    def sign(self, fields: Mapping[str, Json], subject: Subject) -> Signed:
        """One request to stream an answer; what is wrong with it is told before it is sent."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._connected(subject).converse_stream(**fields)
        except _Sealed as sealed:
            return _signed(sealed.request)
        except (BotoCoreError, ClientError) as exc:
            raise failure(exc, subject) from exc
        except (TypeError, RecursionError) as exc:  # params that are no fields, or too deep
            raise _not_taken(exc, subject) from exc
        raise AssertionError("a sealed request is never sent")

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self, subject: Subject) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    self._client = self._make()
                except ValueError as exc:  # an address or a region that is none
                    raise unreachable(subject, str(exc)) from exc
            return self._client

    def _make(self) -> Any:
        import boto3
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config

        # At DEBUG it logs each request whole, at INFO where it found the credentials.
        logging.getLogger("botocore").setLevel(logging.WARNING)
        core = botocore.session.Session()
        core.set_default_client_config(  # for the services that lend credentials
            Config(connect_timeout=LEND_S, read_timeout=LEND_S, retries={"total_max_attempts": 2})
        )
        session = boto3.Session(botocore_session=core, **_session_options(self._env))
        signing = {"signature_version": UNSIGNED} if self._bearer else {}
        client = session.client(
            SERVICE,
            region_name=session.region_name or DEFAULT_REGION,
            endpoint_url=self._base_url or None,
            config=Config(retries={"total_max_attempts": 1}, **signing),
        )
        client.meta.events.register(f"before-send.{SERVICE}.ConverseStream", _seal)
        return client


class _Sealed(Exception):
    """A request that is ready to be sent, on its way out of the library."""

    def __init__(self, request: Any) -> None:
        super().__init__("ready")
        self.request = request


def _seal(request: Any, **_told: object) -> NoReturn:
    raise _Sealed(request)


def _signed(request: Any) -> Signed:
    parts = urlsplit(request.url)
    headers = {
        name: value.decode("ascii") if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() not in _NOT_PASSED_ON
    }
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    path = urlunsplit(("", "", parts.path, parts.query, ""))
    return Signed(origin, path, headers, bytes(request.body))


def _session_options(env: Mapping[str, str]) -> dict[str, str]:
    """What our environment says outright; the library looks everywhere else by itself."""
    said = {
        "region_name": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
        "profile_name": env.get("AWS_PROFILE"),
    }
    if not said["profile_name"]:
        said |= {
            "aws_access_key_id": env.get("AWS_ACCESS_KEY_ID"),
            "aws_secret_access_key": env.get("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": env.get("AWS_SESSION_TOKEN"),
        }
    return {name: value for name, value in said.items() if value}


def failure(exc: Exception, subject: Subject) -> HomarusError:
    """The error for a request that could not even be signed."""
    from botocore import exceptions as aws

    match exc:
        case aws.ClientError():  # from the service that lends credentials
            return error_of(subject, _problem(exc.response))
        case aws.ParamValidationError():
            return _not_taken(exc, subject)
        case aws.ConnectionError() | aws.HTTPClientError():
            return Unreachable(
                subject.tell(f"the service that lends credentials does not answer: {exc}"),
                fix="check the network, and the profile in ~/.aws/config",
            )
        case aws.EndpointProviderError() | aws.BaseEndpointResolverError() | aws.ValidationError():
            return unreachable(subject, str(exc))
        case _:
            return AuthFailed(subject.tell(f"no AWS credentials: {exc}"), fix=SIGN_IN)


def _not_taken(exc: Exception, subject: Subject) -> BadRequest:
    return BadRequest(
        subject.tell(f"the request is not one that Bedrock takes: {exc}"),
        fix="check the model's params",
    )


def _problem(response: Mapping[str, Any]) -> Problem:
    error = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    # Whatever it answers, it is the credentials that are refused, unless it is busy.
    status = status if status == 429 or status >= 500 else 403
    return Problem(status, str(error.get("Message", "")), str(error.get("Code", "")).lower())
