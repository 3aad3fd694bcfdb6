"""A minimal HTTP client for services."""
