"""Extension points: hooks and backends of other packages."""
