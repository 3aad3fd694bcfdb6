"""The HTTP API: models, embeddings, tools and runs for programs that speak OpenAI's protocol.

Each endpoint is off until the config enables it. `api_routes` says which paths there are and which
module serves them; a module, and pydantic's models in it, are imported with the first request.
"""
