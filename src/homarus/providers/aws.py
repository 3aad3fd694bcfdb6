"""Find AWS credentials and sign requests with AWS's own library.

boto3 finds the credentials, the region and the address like every AWS tool, validates the request,
serialises it and signs it. It does not send it: its client blocks a thread for as long as an answer
takes and cannot be cancelled before the first byte. The signed request is sent by
`ProviderEndpoint`. All functions here block and must run in a thread; the library is imported at
first use.
"""

import importlib.util
import logging
from collections.abc import Mapping
from functools import cache
from threading import Lock
from typing import Any, NoReturn
from urllib.parse import urlsplit, urlunsplit

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    HomarusError,
    UnreachableError,
    UserError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.installation import extra_command
from homarus.core.message import Json
from homarus.providers.provider_errors import (
    ErrorContext,
    VendorError,
    error_from_vendor,
    unreachable_error,
)

SERVICE = "bedrock-runtime"
DEFAULT_REGION = "us-east-1"
LEND_S = 10.0
SIGN_IN = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws sso login`"
# Headers that our own HTTP client sets.
_NOT_PASSED_ON = frozenset({"user-agent", "content-length"})


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request to be sent unchanged: the signature covers address, headers and body."""

    origin: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def check_installed() -> None:
    """Raise UserError when the library is not installed, without importing it."""
    if importlib.util.find_spec("boto3") is None:
        raise UserError(
            "Amazon Bedrock needs the package boto3, which is not installed",
            fix=extra_command("bedrock"),
        )


class Signer:
    """Serialises and signs requests. A `bearer` key needs neither signature nor credentials.

    `env` overrides the process's environment, for values from our config files.
    """

    def __init__(self, base_url: str, env: Mapping[str, str], *, bearer: bool) -> None:
        self._base_url, self._env, self._bearer = base_url, env, bearer
        self._lock = Lock()
        self._client: Any = None

    def sign(self, fields: Mapping[str, Json], subject: ErrorContext) -> SignedRequest:
        """Return one signed streaming request. Raises an error for invalid params."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self._connected(subject).converse_stream(**fields)
        except _RequestReady as sealed:
            return _signed(sealed.request)
        except (BotoCoreError, ClientError) as exc:
            raise to_provider_error(exc, subject) from exc
        except (TypeError, RecursionError) as exc:  # params that are no fields, or too deep
            raise _not_taken(exc, subject) from exc
        raise AssertionError("a sealed request is never sent")

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self, subject: ErrorContext) -> Any:
        with self._lock:
            if self._client is None:
                try:
                    self._client = self._make()
                except ValueError as exc:  # an invalid address or region
                    raise unreachable_error(subject, str(exc)) from exc
            return self._client

    def _make(self) -> Any:
        import boto3
        import botocore.session
        from botocore import UNSIGNED
        from botocore.config import Config

        # At DEBUG it logs complete requests, at INFO the source of the credentials.
        logging.getLogger("botocore").setLevel(logging.WARNING)
        core = botocore.session.Session()
        core.register_component("data_loader", _data_loader(core.get_config_variable("data_path")))
        core.set_default_client_config(  # for the services that issue credentials
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


@cache
def _data_loader(search_path: str | None) -> Any:
    """Return the reader of the service descriptions, which keeps what it has read."""
    from botocore.loaders import create_loader

    return create_loader(search_path)


class _RequestReady(Exception):
    """Carries the finished request out of the library instead of sending it."""

    def __init__(self, request: Any) -> None:
        super().__init__("ready")
        self.request = request


def _seal(request: Any, **_told: object) -> NoReturn:
    raise _RequestReady(request)


def _signed(request: Any) -> SignedRequest:
    parts = urlsplit(request.url)
    headers = {
        name: value.decode("ascii") if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() not in _NOT_PASSED_ON
    }
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    path = urlunsplit(("", "", parts.path, parts.query, ""))
    return SignedRequest(origin, path, headers, bytes(request.body))


def _session_options(env: Mapping[str, str]) -> dict[str, str]:
    """Return what our environment sets explicitly; the library searches the other places."""
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


def to_provider_error(exc: Exception, subject: ErrorContext) -> HomarusError:
    """Return the error for a request that could not be signed."""
    from botocore import exceptions as aws

    match exc:
        case aws.ClientError():  # raised by the service that issues credentials
            return error_from_vendor(subject, _problem(exc.response))
        case aws.ParamValidationError():
            return _not_taken(exc, subject)
        case aws.ConnectionError() | aws.HTTPClientError():
            return UnreachableError(
                subject.describe(f"the service that lends credentials does not answer: {exc}"),
                fix="check the network, and the profile in ~/.aws/config",
            )
        case aws.EndpointProviderError() | aws.BaseEndpointResolverError() | aws.ValidationError():
            return unreachable_error(subject, str(exc))
        case _:
            return AuthError(subject.describe(f"no AWS credentials: {exc}"), fix=SIGN_IN)


def _not_taken(exc: Exception, subject: ErrorContext) -> BadRequestError:
    return BadRequestError(
        subject.describe(f"the request is not one that Bedrock takes: {exc}"),
        fix="check the model's params",
    )


def _problem(response: Mapping[str, Any]) -> VendorError:
    error = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    # Any answer of that service but an overload means that the credentials are refused.
    status = status if status == 429 or status >= 500 else 403
    return VendorError(status, str(error.get("Message", "")), str(error.get("Code", "")).lower())
