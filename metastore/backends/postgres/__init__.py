"""PostgreSQL, through hand-written statements on psycopg."""
