"""Every figure of the core and its bar, by the group that measures it."""

from __future__ import annotations

from tests.bench.figures import Bar, reported

__all__ = ["BARS", "GROUPS"]


def _at_least(limit: float) -> Bar:
    return Bar(">=", limit)


def _at_most(limit: float) -> Bar:
    return Bar("<=", limit)


GROUPS: dict[str, dict[str, Bar]] = {
    "round_trips": {
        "round_trips_create": _at_most(1),
        "round_trips_alter": _at_most(1),
        "round_trips_rename": _at_most(1),
        "round_trips_drop": _at_most(1),
        "round_trips_create_by_path": _at_most(1),
        "round_trips_alter_by_path": _at_most(2),
        "round_trips_rename_by_path": _at_most(1),
        "round_trips_drop_by_path": _at_most(1),
        "round_trips_load": _at_most(1),
        "round_trips_load_many_20": _at_most(1),
        "round_trips_transaction_5_tables": _at_most(3),
        "round_trips_rename_schema": reported,
        "round_trips_rename_schema_by_path": reported,
        "round_trips_drop_schema": reported,
        "round_trips_drop_schema_by_path": reported,
        "round_trips_prepare_once": reported,
        "round_trips_connect": reported,
    },
    "same_sql": {
        "write_vs_same_sql": _at_least(0.8),
        "write_vs_same_sql_nosync": _at_least(0.4),
        "write_vs_bare_cas": _at_least(0.6),
        "read_vs_same_sql": _at_least(0.5),
        "create_vs_same_sql": reported,
        "alter_per_s": reported,
        "alter_same_sql_per_s": reported,
        "alter_nosync_per_s": reported,
        "alter_same_sql_nosync_per_s": reported,
        "bare_cas_per_s": reported,
        "load_per_s": reported,
        "load_same_sql_per_s": reported,
        "create_per_s": reported,
        "create_same_sql_per_s": reported,
        "rename_per_s": reported,
        "drop_per_s": reported,
        "alter_server_us": reported,
        "bare_cas_server_us": reported,
        "create_server_us": reported,
        "load_server_us": reported,
    },
    "siblings": {
        "siblings_vs_unguarded": _at_least(0.55),
        "siblings_vs_parent_counter": _at_least(5),
        "siblings_conflicts": _at_most(0),
        "siblings_library_per_s": reported,
        "siblings_per_s": reported,
        "siblings_unguarded_per_s": reported,
        "siblings_parent_counter_per_s": reported,
    },
    "sizes": {
        "rename_schema_100k_vs_10": _at_most(1.5),
        "drop_cascade_100k_vs_10": _at_most(1.5),
        "load_1m_vs_10k": _at_most(1.3),
        "first_page_1m_vs_1k": _at_most(1.5),
        "first_page_names_1m_vs_1k": reported,
        "load_grown_50k_vs_fresh": _at_most(1.5),
        "load_by_id_grown_50k_vs_fresh": _at_most(1.5),
        "rename_schema_100k_ms": reported,
        "drop_cascade_100k_ms": reported,
        "load_1m_us": reported,
        "first_page_1m_ms": reported,
    },
    "bulk": {
        "bulk_vs_copy": _at_least(0.25),
        "bulk_create_per_s": reported,
        "bulk_copy_per_s": reported,
    },
    "rss": {
        "bulk_rss_growth_mb": _at_most(64),
        "bulk_rss_mb": reported,
        "bulk_rss_create_per_s": reported,
    },
    "imports": {
        "import_vs_sqlalchemy": _at_most(1.3),
        "import_ms": reported,
        "import_sqlalchemy_ms": reported,
        "import_heavy_modules": _at_most(0),
    },
    "sqlite": {
        "sqlite_write_vs_same_sql": reported,
        "sqlite_read_vs_same_sql": reported,
        "sqlite_alter_per_s": reported,
        "sqlite_alter_same_sql_per_s": reported,
        "sqlite_load_per_s": reported,
        "sqlite_load_same_sql_per_s": reported,
        "sqlite_bulk_create_per_s": reported,
    },
}

BARS: dict[str, Bar] = {name: bar for group in GROUPS.values() for name, bar in group.items()}
