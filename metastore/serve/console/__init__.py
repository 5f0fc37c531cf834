"""The console: web pages of a store, below ``/console/``. They change nothing, and hold no logic of the store.

* ``app``: the routes, the sign-in form, security headers; each page runs in a thread of the console's own.
* ``session``: the cookie that a sign-in sets, and how it is checked.
* ``asked``: one request: its user, the store as this user sees it, the moment that the page shows.
* ``place``, ``contents``, ``details``, ``rights``, ``times``, ``feed``, ``search``, ``contention``, ``health``: pages.
* ``hub``, ``live``: the changes of this moment, sent to open pages.
* ``snapshots``: the content of an Iceberg table's metadata file.
* ``words``, ``render``: texts for people, and templates.
"""

from __future__ import annotations

from metastore.serve.console.app import Console

__all__ = ["Console"]
