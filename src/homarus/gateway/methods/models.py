"""Methods for the models that can be chosen."""

from typing import Literal

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.session_keys import normalize_agent_id
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import Name
from homarus.providers.catalog import ModelInfo
from homarus.providers.resolution import provider_names


class ModelListParams(Params):
    """The level of detail: with `details`, keys and local servers are checked too.

    The other fields are those of clients of protocol 4. Every agent may use the same models; each
    `view` but `all` holds only those that have what they need, a key for example.
    """

    details: bool = False
    agent_id: Name | None = None
    session_key: Name | None = None
    provider: Name | None = None
    include_details: bool = False
    view: Literal["default", "configured", "provider-config", "all"] | None = None


@method("models.list", scope="read", params=ModelListParams)
async def list_(call: MethodCall, params: ModelListParams) -> Json:
    """Every model that is known and allowed here, by provider; with `details`, those usable."""
    config = call.services.loaded.config
    if params.agent_id:
        call.services.agent(normalize_agent_id(params.agent_id))  # raises when there is none
    if params.details:
        from homarus.providers.model_report import report_models

        return {"models": await report_models(call.services.loaded, call.services.paths)}
    if params.include_details or params.view:
        return {"models": await _detailed(call, params)}
    models = call.services.models
    known = [model for name in provider_names(config) for model in models.listed(name)]
    named = [model for model in known if params.provider in (None, model.provider)]
    return {"models": [_row(model) for model in named if _find_allowed(call, model.ref)]}


async def _detailed(call: MethodCall, params: ModelListParams) -> list[Json]:
    """Return the models with what a client of protocol 4 shows of each."""
    from homarus.providers.model_report import report_models

    rows: list[Json] = []
    for row in await report_models(call.services.loaded, call.services.paths):
        model = _find_allowed(call, row["key"])
        is_hidden = params.view != "all" and not row["available"]
        if model and not is_hidden and params.provider in (None, model.provider):
            extra = {"tags": row["tags"], "available": row["available"]}
            rows.append({**_row(model), **extra})
    return rows


@method("models.status", scope="admin", params=NoParams, advertised=False)
async def status(call: MethodCall, _params: NoParams) -> Json:
    """Which model answers when nobody chose one, why, and what stands in its way."""
    from homarus.providers.model_report import report_status

    return await report_status(call.services.loaded, call.services.paths)


def _find_allowed(call: MethodCall, ref: str) -> ModelInfo | None:
    try:
        return call.services.models.check(ref)
    except UserError:
        return None


def _row(model: ModelInfo) -> dict[str, Json]:
    return {
        "id": model.id,
        "name": model.name or model.id,
        "provider": model.provider,
        "contextWindow": model.window,
        "reasoning": model.reasoning,
        "input": ["text", "image"] if model.sees_images else ["text"],
    }
