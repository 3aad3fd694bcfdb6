"""`/v1/models`: the agents, as the models that clients choose from."""

from typing import Literal

from homarus.gateway.http_api.agent_models import get_agent, model_names
from homarus.gateway.http_api.endpoint import ApiCall, ApiResponse, api_endpoint


class ModelObject(ApiResponse):
    """A model that a request may name: an agent with its own settings."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["openclaw"] = "openclaw"


class ModelList(ApiResponse):
    """The models that a request may name."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


@api_endpoint("GET", "/v1/models", scope="read", response=ModelList)
async def list_models(call: ApiCall, _body: None) -> ModelList:
    """List the agents as models: `openclaw` is the default one, `openclaw:ID` the one named."""
    names = model_names(call.services.loaded.config)
    return ModelList(data=[_describe(call, name) for name, _ in names])


@api_endpoint("GET", "/v1/models/{model}", scope="read", response=ModelObject, errors=(404,))
async def get_model(call: ApiCall, _body: None) -> ModelObject:
    """Return one model, if its agent exists."""
    name = call.path_params["model"]
    get_agent(call.services.loaded.config, name)
    return _describe(call, name.strip().lower())


def _describe(call: ApiCall, name: str) -> ModelObject:
    return ModelObject(id=name, created=call.gateway.started_ms // 1000)
