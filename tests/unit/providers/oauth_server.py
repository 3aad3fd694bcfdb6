"""An OAuth server made of Authlib's own grants; run as a program, it prints its port.

Authlib checks the requests: PKCE is required, codes and refresh tokens work once, device codes
follow RFC 8628. What is ours is the storage, and two doors for the test: `/approve` grants or
denies a device's code, `/log` tells which grants succeeded.
"""

# Authlib has no types, so its classes are Any to the checker.
# mypy: disable-error-code="import-untyped,misc,no-untyped-call,no-any-return"

import os
import time
from types import SimpleNamespace
from typing import Any

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

import flask
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, TokenMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import (
    DEVICE_CODE_GRANT_TYPE,
    DeviceAuthorizationEndpoint,
    DeviceCodeGrant,
    DeviceCredentialDict,
)
from werkzeug.serving import make_server

USER = SimpleNamespace(id="ann")
LIFE_S = 3600
GRANTS = ("authorization_code", "refresh_token", DEVICE_CODE_GRANT_TYPE)

codes: dict[str, Any] = {}
tokens: dict[str, Any] = {}
devices: dict[str, Any] = {}
answers: dict[str, bool] = {}
log: list[str] = []


class Client(ClientMixin):
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.startswith("http://127.0.0.1:")

    def check_client_secret(self, client_secret: str) -> bool:
        return False

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "none"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in GRANTS


class Code(dict[str, Any], AuthorizationCodeMixin):
    __getattr__ = dict.__getitem__

    def get_redirect_uri(self) -> str:
        return self["redirect_uri"]

    def get_scope(self) -> str:
        return self["scope"]


class Token(dict[str, Any], TokenMixin):
    def check_client(self, client: Client) -> bool:
        return self["client_id"] == client.client_id

    def get_scope(self) -> str:
        return self.get("scope", "")

    def get_expires_in(self) -> int:
        return LIFE_S

    def is_expired(self) -> bool:
        return False

    def is_revoked(self) -> bool:
        return False


class ByCode(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("none",)

    def save_authorization_code(self, code: str, request: Any) -> None:
        asked = request.payload.data
        codes[code] = Code(
            client_id=request.client.client_id,
            redirect_uri=asked["redirect_uri"],
            scope=asked.get("scope", ""),
            code_challenge=asked.get("code_challenge"),
            code_challenge_method=asked.get("code_challenge_method"),
        )

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        found = codes.get(code)
        return found if found and found["client_id"] == client.client_id else None

    def delete_authorization_code(self, authorization_code: Code) -> None:
        for code in [code for code, each in codes.items() if each is authorization_code]:
            del codes[code]

    def authenticate_user(self, authorization_code: Code) -> Any:
        return USER


class ByRefresh(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("none",)
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
        time.sleep(0.05)  # a second request that should not be has time to come
        return tokens.pop(refresh_token, None)

    def authenticate_user(self, refresh_token: Token) -> Any:
        return USER

    def revoke_old_credential(self, refresh_token: Token) -> None:
        """Taken away when it was used."""


class ByDevice(DeviceCodeGrant):
    def query_device_credential(self, device_code: str) -> Any:
        return devices.get(device_code)

    def query_user_grant(self, user_code: str) -> Any:
        return (USER, answers[user_code]) if user_code in answers else None

    def should_slow_down(self, credential: Any) -> bool:
        credential["polls"] = credential.get("polls", 0) + 1
        return credential["polls"] == 1


class Devices(DeviceAuthorizationEndpoint):
    INTERVAL = 2
    EXPIRES_IN = 60

    def get_verification_uri(self) -> str:
        return "https://example.com/device"

    def save_device_credential(self, client_id: str, scope: str, data: Any) -> None:
        credential = DeviceCredentialDict(client_id=client_id, scope=scope, **data)
        devices[data["device_code"]] = credential


def save_token(token: dict[str, Any], request: Any) -> None:
    log.append(request.payload.grant_type)
    tokens[token["refresh_token"]] = Token(client_id=request.client.client_id, **token)


app = flask.Flask(__name__)
app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
app.config["OAUTH2_TOKEN_EXPIRES_IN"] = dict.fromkeys(GRANTS, LIFE_S)
server = AuthorizationServer(app, query_client=Client, save_token=save_token)
server.register_grant(ByCode, [CodeChallenge(required=True)])
server.register_grant(ByRefresh)
server.register_grant(ByDevice)
server.register_endpoint(Devices)


@app.get("/authorize")
def authorize() -> Any:
    return server.create_authorization_response(grant_user=USER)


@app.post("/token")
def token() -> Any:
    return server.create_token_response()


@app.post("/device")
def device() -> Any:
    return server.create_endpoint_response(Devices.ENDPOINT_NAME)


@app.post("/approve")
def approve() -> Any:
    answers[flask.request.form["user_code"]] = flask.request.form["allow"] == "yes"
    return {}


@app.get("/log")
def told() -> Any:
    return log


if __name__ == "__main__":
    listening = make_server("127.0.0.1", 0, app, threaded=True)
    print(listening.server_port, flush=True)
    listening.serve_forever()
