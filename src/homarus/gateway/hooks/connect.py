"""Connect webhooks with the gateway's services; called with the first request to a hook."""

from homarus.gateway.hooks.dispatcher import HookServices
from homarus.gateway.hooks.endpoint import HookEndpoint
from homarus.gateway.server import Gateway


def make_hook_endpoint(gateway: Gateway) -> HookEndpoint:
    """Return the endpoint of a gateway whose services have started; it counts for the gateway."""
    services = gateway.services
    endpoint = HookEndpoint(
        HookServices(
            store=services.store,
            notices=services.notices,
            clock=services.clock,
            get_config=lambda: services.loaded.config,
            resolve_key=services.control.resolve_key,
            check_model=lambda name: services.models.check_typed(name),
            start_turn=services.start_turn,
            request_heartbeat=services.request_heartbeat,
        ),
        gateway.authenticator.origin_policy,
        services.paths,
    )
    gateway.hook_counters = endpoint.counters
    return endpoint
