"""Real servers for tests: PostgreSQL, pgbouncer, and a proxy that counts and cuts."""
