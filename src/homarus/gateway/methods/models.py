"""The models that can be chosen."""

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.gateway.method import Call, NoParams, method
from homarus.providers.catalog import Model, known_models
from homarus.providers.connect import provider_names


@method("models.list", scope="read", params=NoParams)
async def list_(call: Call, _params: NoParams) -> Json:
    """Every model that is known and allowed here, by provider."""
    config = call.host.loaded.config
    known = [model for name in provider_names(config) for model in known_models(config, name)]
    return {"models": [_row(model) for model in known if _is_allowed(call, model)]}


def _is_allowed(call: Call, model: Model) -> bool:
    try:
        call.host.models.check(model.ref)
    except UserError:
        return False
    return True


def _row(model: Model) -> dict[str, Json]:
    return {
        "id": model.id,
        "name": model.name or model.id,
        "provider": model.provider,
        "contextWindow": model.window,
        "reasoning": model.reasoning,
        "input": ["text", "image"] if model.sees_images else ["text"],
    }
