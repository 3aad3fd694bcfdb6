"""HTTP to services, without what a general client brings along."""
