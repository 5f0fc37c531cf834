"""Alembic's entry point: run the revisions on the connection that ``metastore.migrations`` passes."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
