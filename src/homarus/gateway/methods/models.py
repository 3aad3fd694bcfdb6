"""Methods for the models that can be chosen."""

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.providers.catalog import ModelInfo, known_models
from homarus.providers.resolution import provider_names


class ModelListParams(Params):
    """The level of detail: with `details`, keys and local servers are checked too."""

    details: bool = False


@method("models.list", scope="read", params=ModelListParams)
async def list_(call: MethodCall, params: ModelListParams) -> Json:
    """Every model that is known and allowed here, by provider; with `details`, those usable."""
    config = call.services.loaded.config
    if params.details:
        from homarus.providers.model_report import report_models

        return {"models": await report_models(call.services.loaded, call.services.paths)}
    known = [model for name in provider_names(config) for model in known_models(config, name)]
    return {"models": [_row(model) for model in known if _is_allowed(call, model)]}


@method("models.status", scope="admin", params=NoParams, advertised=False)
async def status(call: MethodCall, _params: NoParams) -> Json:
    """Which model answers when nobody chose one, why, and what stands in its way."""
    from homarus.providers.model_report import report_status

    return await report_status(call.services.loaded, call.services.paths)


def _is_allowed(call: MethodCall, model: ModelInfo) -> bool:
    try:
        call.services.models.check(model.ref)
    except UserError:
        return False
    return True


def _row(model: ModelInfo) -> dict[str, Json]:
    return {
        "id": model.id,
        "name": model.name or model.id,
        "provider": model.provider,
        "contextWindow": model.window,
        "reasoning": model.reasoning,
        "input": ["text", "image"] if model.sees_images else ["text"],
    }
