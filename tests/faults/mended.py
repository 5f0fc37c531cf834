"""Each defect that the reviews found, by its subject, and the tests that fail without its mend.

An entry is ``file::test`` or ``file::Class::test``, as pytest names it. Where a mend is one of the planted faults of
``in_defects.py``, the fault shows that the tests find it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["MENDED"]

_C = "tests/contract/test_"

CORRECTNESS: Final[Mapping[str, tuple[str, ...]]] = {
    "an entity of a refused transaction, or of another database, is not trusted": (
        f"{_C}trust_contract.py::TestRefused::test_the_other_clients_change_stays",
        f"{_C}trust_contract.py::TestRefused::test_an_expected_version_is_judged_by_the_database",
        f"{_C}trust_contract.py::TestRefused::test_what_is_below_such_a_path_is_read_again",
        f"{_C}trust_contract.py::TestAnotherDatabase::test_is_refused_before_anything_is_written",
        "tests/checker/test_originals.py::test_1_an_entity_of_a_refused_transaction",
        "tests/checker/test_originals.py::test_1_an_entity_of_another_database",
    ),
    "a caught error is a read of its transaction, and an owned row is known by its id": (
        f"{_C}validation_contract.py::TestCaught::test_it_is_not_so_any_more",
        f"{_C}validation_contract.py::TestValidation::test_what_was_read_has_changed",
        "tests/checker/test_originals.py::test_2_a_caught_not_empty",
        "tests/checker/test_originals.py::test_2_a_caught_restore_of_nothing",
        "tests/interleaving/test_callers.py::test_two_writes_in_a_row",
    ),
    "what is written down about an operation is durable": (
        "tests/concurrency/test_crash.py::test_what_was_answered_is_there_after_a_crash",
        "tests/concurrency/test_crash.py::test_a_renewed_lease",
    ),
    "a bulk replacement guards the container that it replaces": (
        f"{_C}own_guards_contract.py::test_a_container_guards_itself",
        f"{_C}own_guards_contract.py::test_a_freeze_waits_for_a_bulk_replace",
    ),
    "a restore by path takes the newest": (
        "tests/concurrency/test_restores.py::test_the_newest",
        f"{_C}one_instant_contract.py::TestRestore::test_the_newest_at_the_commit",
    ),
    "a claim that writes nothing keeps its tombstone": (
        f"{_C}claims_contract.py::TestClaims::test_one_that_writes_nothing_keeps_it",
        f"{_C}claims_contract.py::TestClaims::test_one_that_only_checks_keeps_it",
        f"{_C}claims_contract.py::TestForbid::test_a_late_original",
    ),
    "a database clock that was set back, or was ahead, blocks nobody": (
        f"{_C}clocks_contract.py::TestMarks::test_the_others_turn_is_no_longer_than_it_may_be",
        f"{_C}clocks_contract.py::TestMarks::test_a_dead_owner_s_mark_is_cleared",
        f"{_C}clocks_contract.py::TestForgotten::test_ids_are_accepted_again",
        "tests/checker/test_originals.py::test_7_a_store_that_refuses_new_ids",
    ),
    "errors of purge and create_many rest on one instant": (
        f"{_C}one_instant_contract.py::TestPurge::test_what_the_path_led_to_was_never_full",
        f"{_C}one_instant_contract.py::TestCreateMany::test_a_name_that_was_never_taken",
    ),
    "a repeat knows who created what it returns": (
        f"{_C}exactly_once_contract.py::TestRepeats::test_when_it_is_purged",
        f"{_C}models_contract.py::test_a_repeat_knows_who_made_each_version",
    ),
    "a backup that was put back is noticed": (
        "tests/migration/test_put_back.py::test_what_was_lost_is_told_at_once",
        "tests/migration/test_put_back.py::test_what_was_lost_is_told_when_others_have_its_numbers",
        "tests/migration/test_put_back.py::test_a_replica_that_is_behind_is_no_backup",
    ),
    "idle time-outs, array_nulls, encodings and sequences with a cache": (
        "tests/bad_input/test_sessions.py::test_a_transaction_that_reads_everything_may_be_idle",
        "tests/bad_input/test_sessions.py::test_odd_settings_of_a_database",
        "tests/bad_input/test_sessions.py::test_other_encodings",
        "tests/bad_input/test_sessions.py::test_a_sequence_that_draws_several_numbers_at_once",
    ),
    "a retention below the life of an intent applies nothing twice": (
        f"{_C}short_retention_contract.py::test_an_intent_that_others_applied",
        f"{_C}short_retention_contract.py::test_a_lost_answer",
        f"{_C}short_retention_contract.py::test_a_transaction",
    ),
}

SECURITY: Final[Mapping[str, tuple[str, ...]]] = {
    "a reader writes nothing when it opens, and what it may not know differs from nothing": (
        "tests/migration/test_roles.py::test_roles_with_different_rights_keep_the_epoch",
        "tests/migration/test_roles.py::test_the_reader_reads",
        "tests/migration/test_roles.py::test_a_number_that_was_unknown_is_completed",
        "tests/migration/test_roles.py::test_a_reader_of_a_copy_writes_nothing_and_refuses_old_positions",
    ),
    "a first row that is longer than the sample": (
        "tests/crawl/test_text_files.py::test_a_first_row_longer_than_the_sample",
        "tests/crawl/test_text_files.py::test_a_header_longer_than_the_sample",
        "tests/crawl/test_text_files.py::test_a_row_longer_than_any_sample",
    ),
    "settings of a session and of a pooler, and options of a URL": (
        "tests/bad_input/test_sessions.py::test_odd_settings_behind_a_pooler",
        "tests/bad_input/test_sessions.py::test_settings_that_another_client_of_a_pooler_left",
        "tests/bad_input/test_sessions.py::test_options_of_a_url",
        "tests/bad_input/test_urls.py::test_bad_urls",
    ),
    "no part of a URL's secret is shown": (
        "tests/bad_input/test_urls.py::test_no_part_of_a_password_is_shown",
        "tests/bad_input/test_urls.py::test_a_url_is_shown_without_its_secrets",
    ),
    "one bad row is named, can be skipped, is refused by an import and survived by verify": (
        "tests/bad_input/test_damaged_rows.py::test_a_damaged_document",
        "tests/bad_input/test_damaged_rows.py::test_a_time_beyond_the_calendar",
        "tests/bad_input/test_damaged_rows.py::test_a_damaged_step",
        "tests/bad_input/test_damaged_rows.py::test_no_import_plants_them",
    ),
    "a circle of parents ends a read": ("tests/bad_input/test_damaged_rows.py::test_a_circle_of_parents",),
    "a failing export leaves the good file, and files are for their owner": (
        "tests/bad_input/test_damaged_rows.py::test_a_failing_export_leaves_the_good_file",
        "tests/bad_input/test_damaged_rows.py::test_files_are_for_their_owner",
    ),
    "sizes have limits, and a large transaction ends with its deadline": (
        "tests/bad_input/test_values.py::test_principals",
        "tests/bad_input/test_odd_values.py::test_sizes_have_limits",
        "tests/concurrency/test_large_transactions.py::test_four_times_as_much_takes_about_four_times_as_long",
        "tests/concurrency/test_large_transactions.py::test_a_deadline_ends_a_large_transaction_while_it_is_sent",
    ),
    "links that lead out of the lake, and files that unpack to much": (
        "tests/crawl/test_discover.py::test_links_out_of_the_lake_are_not_followed",
        "tests/crawl/test_text_files.py::test_a_bomb_is_a_failure",
        "tests/crawl/test_text_files.py::test_an_xz_dictionary_has_a_limit",
        "tests/crawl/test_more_formats.py::test_an_orc_footer_that_unpacks_to_much",
    ),
    "odd values, read-only files and roles without rights are refused in words": (
        "tests/bad_input/test_odd_values.py::test_odd_values_are_refused_in_our_words",
        "tests/bad_input/test_odd_values.py::test_a_subclass_of_str_is_its_characters",
        "tests/bad_input/test_numbers.py::test_no_positive_integer",
        "tests/bad_input/test_every_method.py::TestOddValues::test_in_a_file",
        "tests/bad_input/test_files.py::test_a_file_that_may_not_be_written",
        "tests/migration/test_roles.py::test_a_role_that_may_not_use_the_schema",
        "tests/cli/test_cli.py::test_json_holds_nothing_that_a_terminal_obeys",
    ),
    "dependencies have a tested lower bound and a lock; what is borrowed of libraries is known": (
        "tests/packaging/test_setup.py::test_each_declared_package_has_a_lower_bound_and_a_locked_version",
        "tests/packaging/test_setup.py::test_make_installs_what_is_locked",
        "tests/packaging/test_borrowed.py::test_what_is_overridden_is_known_here",
        "tests/packaging/test_borrowed.py::test_psycopg_connects_through_our_generator",
    ),
}

USERS: Final[Mapping[str, tuple[str, ...]]] = {
    "declared kinds: alter checks types, fields can be optional, unknown kinds are shown": (
        f"{_C}declared_kinds_contract.py::test_alter_checks_what_a_change_leaves_in_a_field",
        f"{_C}declared_kinds_contract.py::test_optional_fields",
        "tests/cli/test_kinds.py::test_ls_shows_what_is_of_a_kind_that_is_not_registered",
        "tests/cli/test_kinds.py::test_show_and_history_of_a_kind_that_is_not_registered",
    ),
    "a denied permission is not a passing failure, and each role has what it needs and no more": (
        "tests/bad_input/test_sessions.py::test_a_commit_is_denied_at_once",
        "tests/retry/test_classify.py::test_sqlstates",
        "tests/migration/test_roles.py::test_the_writer_needs_each_of_its_rights",
        "tests/migration/test_roles.py::test_no_role_has_more",
    ),
    "continuous integration checks before it tests": (
        "tests/packaging/test_setup.py::test_continuous_integration_checks_and_tests",
    ),
    "a clone named metastore, SQLite's warning, files that a crawl left out, names that are not text": (
        "tests/packaging/test_packages.py::test_an_editable_install_is_found_beside_a_clone_called_metastore",
        "tests/unit/test_sqlite_version.py::test_readers_are_not_warned_and_writers_once",
        "tests/spark/test_files.py::test_files_that_are_not_part_of_a_table_are_left_out_of_its_view",
        "tests/cli/test_cli.py::test_a_name_that_is_not_utf8_is_shown_by_its_bytes",
    ),
    "names may begin and end with a blank": (
        "tests/bad_input/test_names.py::test_names_may_begin_and_end_with_a_blank",
        "tests/cli/test_cli.py::test_a_name_that_ends_with_a_blank_is_shown_quoted",
        "tests/crawl/test_commit.py::test_folders_and_files_with_a_blank_at_an_end_are_registered",
        "tests/loadtest/test_scenarios.py::test_a_trace_of_names_with_blanks_is_replayed",
    ),
}

MENDED: Final[Mapping[str, tuple[str, ...]]] = {**CORRECTNESS, **SECURITY, **USERS}
