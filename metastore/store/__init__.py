"""The entry point: a store (``store.py``), its views for a request or a user (``views.py``), and how it is opened."""

from metastore.database import migrate
from metastore.store.opening import clean_admins, open_store, prepared, restore, restore_export
from metastore.store.store import Store

__all__ = ["Store", "clean_admins", "migrate", "open_store", "prepared", "restore", "restore_export"]
