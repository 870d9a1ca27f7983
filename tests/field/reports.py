"""What users of neighbouring systems have reported, as kinds of faults, and the tests of each.

The numbers are those of the list that this table was made from; it leaves some out.  A row names
the kind in our own words, what is right instead, and the tests that fail when it is not; or it says
why the kind cannot occur here.  `tests/tidy/test_field_reports.py` holds every row against the
tests that are collected.
"""

from dataclasses import dataclass

NUMBERS = (
    *(1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 27, 28, 29),
    *(30, 31, 32, 33, 34, 35, 37, 39, 40, 41, 42, 44, 46, 47, 48, 49, 50, 52, 53),
)
"""Every report."""

FIELD = "tests/field"
LOOP, CONTROLLER = (
    "tests/integration/test_loop_faults.py",
    "tests/integration/test_loop_controller.py",
)
OPERATIONS, REAL = (
    "tests/integration/test_loop_operations.py",
    "tests/integration/test_loop_real_tiers.py",
)
LOAD, PUT = (
    "tests/integration/test_weightstore_load.py",
    "tests/integration/test_weightstore_put.py",
)
QUEUE, LIMITS = "tests/unit/test_runtime_queue.py", "tests/unit/test_runtime_limits.py"
CORE, STORE = "tests/unit/core_store", "tests/integration/store"
TRUST, WORKERS = "tests/unit/test_runtime_trust.py", "tests/unit/test_workers.py"
HUNG, MARKERS = "tests/unit/test_workers_hung.py", "tests/unit/test_tier_markers.py"
PROCESSES = "tests/faults/processes"
NOF_DEVICE, NOF_ENGINES = "tests/unit/test_nof_device.py", "tests/unit/test_nof_engines.py"
SIM = "tests/sim"
CONTRACTS = (
    "tests/contract/test_memory.py::TestMemory",
    "tests/contract/test_local_disk.py::TestLocalDisk",
    "tests/contract/test_dfs.py::TestDfs",
    "tests/contract/test_nof.py::TestNof",
)


def by_every_tier(name: str) -> tuple[str, ...]:
    """A case of the contract suite, on each tier that ships."""
    return tuple(f"{contract}::{name}" for contract in CONTRACTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One row: tests (ids without parameters), or why the kind cannot occur, or both."""

    kind: str
    right: str
    tests: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    """Tests of a run of its own; the default run does not select them."""
    why_not: str = ""
    """Why the kind, or what is left of it, cannot occur here."""


REPORTS: dict[int, Report] = {
    1: Report(
        kind="asking keeps everything alive, so attempts to free room free nothing, unnoticed",
        right="asking protects nothing; attempts that free nothing are called stuck",
        tests=(
            f"{FIELD}/test_progress.py::test_attempts_that_free_nothing_are_called_stuck_and_slow_down",
            *by_every_tier("test_asking_changes_nothing"),
        ),
        apart=(
            "tests/contract/test_mooncake_fake.py::TestFakeMemory::test_asking_changes_nothing",
        ),
    ),
    3: Report(
        kind="deadlines on a wall clock that is set; room is made where that cannot help",
        right="deadlines follow the time that passes and are mapped at a restart; settle first",
        tests=(
            f"{FIELD}/test_clock_steps.py::test_a_step_of_the_clock_is_followed_slowly_and_never_backwards",
            f"{FIELD}/test_clock_steps.py::test_a_lease_lives_as_long_as_it_was_given_whatever_the_clock_is_set_to",
            f"{FIELD}/test_clock_steps.py::test_a_restart_maps_stored_deadlines_to_the_clock_as_it_is_then",
            f"{LOOP}::test_evidence_ages_by_the_monotonic_clock_and_wall_jumps_change_nothing",
            f"{LOOP}::test_an_hour_of_clock_jump_in_the_middle_changes_no_result",
            f"{TRUST}::test_a_new_epoch_settles_after_two_consistent_looks_far_enough_apart",
            f"{OPERATIONS}::test_a_full_tier_is_said_by_the_plan_before_anything_moves",
        ),
    ),
    4: Report(
        kind="a store that was taken over has forgotten everything, and is taken for empty",
        right="another epoch is no loss of everything: nothing is destroyed until it settles",
        tests=(
            f"{LOOP}::test_after_an_epoch_change_nothing_is_destroyed_until_it_has_settled",
            f"{LOOP}::test_an_epoch_change_is_noticed_across_a_restart",
            f"{LOOP}::test_a_mass_change_of_verdicts_settles_before_anything_is_destroyed",
            f"{SIM}/test_histories.py::test_no_scenario_breaks_a_rule",
        ),
    ),
    5: Report(
        kind="who is stopped, not dead, keeps its connections, and everybody waits for ever",
        right="every wait for somebody else has a deadline; tried with SIGSTOP",
        tests=(
            f"{PROCESSES}/test_stopped.py::test_an_operation_goes_on_after_a_stop_longer_than_every_deadline",
            f"{PROCESSES}/test_stopped.py::test_a_verb_does_not_wait_for_a_stopped_controller_beyond_its_timeout",
            f"{HUNG}::test_a_stopped_worker_is_an_unknown_outcome_and_is_replaced",
            "tests/unit/test_dfs_tier.py::test_a_stopped_worker_is_unknown_for_its_batch_and_the_rest_is_not_tried",
            "tests/unit/test_nof_tier.py::test_an_index_worker_that_stops_is_unknown_within_the_deadline_and_replaced",
            f"{LOOP}::test_a_hanging_tier_costs_its_deadline_once_and_holds_nobody_else",
            f"{STORE}/test_lock.py::test_stopped_holder_still_holds",
        ),
    ),
    7: Report(
        kind="an answer leaves items out, which then wait for a time-out",
        right="the answered items are the asked ones; what is not answered is unknown",
        tests=(
            f"{FIELD}/test_one_exit.py::test_the_answers_are_those_of_the_asked_items",
            f"{FIELD}/test_one_exit.py::test_a_place_at_a_tier_is_given_back_however_a_batch_ends",
            f"{LOOP}::test_an_unanswering_cold_tier_is_never_taken_for_empty",
            f"{LOOP}::test_lost_partial_and_refused_answers_are_observed_again",
            f"{PUT}::test_item_without_an_answer_is_not_done",
            *by_every_tier("test_a_large_batch_is_answered_in_its_order"),
        ),
    ),
    8: Report(
        kind="one doubled key fails its whole batch",
        right="each item has its own outcome; doing it again changes nothing",
        tests=(
            f"{FIELD}/test_tiers_as_reported.py::test_a_doubled_item_costs_the_others_of_its_batch_nothing",
            *by_every_tier("test_each_item_of_a_batch_has_its_own_outcome"),
            *by_every_tier("test_storing_again_is_a_no_op_that_names_the_replica"),
        ),
    ),
    9: Report(
        kind="a batch fails as a whole, and what it had written is not told",
        right="what was done is told although the batch failed, or is seen by the next look",
        tests=(
            f"{FIELD}/test_tiers_as_reported.py::test_a_batch_of_which_one_item_cannot_be_done_tells_what_was_done",
            *by_every_tier("test_a_cancelled_batch_keeps_what_was_done"),
            f"{LOOP}::test_lost_partial_and_refused_answers_are_observed_again",
            f"{PUT}::test_resumed_import_moves_only_what_is_missing",
        ),
    ),
    10: Report(
        kind="a doubled end of a write counts twice, and the replica is held for ever",
        right="doing it again is no second claim; a claim ends with who made it",
        tests=(
            f"{FIELD}/test_tiers_as_reported.py::test_a_replica_that_is_open_twice_is_held_until_both_are_closed",
            f"{CORE}/test_leases.py::test_acquire_retry_renew_and_release_twice",
            *by_every_tier("test_storing_again_is_a_no_op_that_names_the_replica"),
            *by_every_tier("test_an_open_replica_is_busy_until_it_is_closed"),
        ),
        why_not="there are no counters of references: readers hold a kernel lock or a named lease",
    ),
    11: Report(
        kind="a path that forgets to say that it has ended keeps a slot for ever",
        right="one exit gives every slot back, however the work ended",
        tests=(
            f"{FIELD}/test_one_exit.py::test_a_place_at_a_tier_is_given_back_however_a_batch_ends",
            f"{LIMITS}::test_a_cancelled_wait_and_a_cancelled_job_give_their_places_back",
            f"{QUEUE}::test_a_cancelled_pass_leaves_its_key_due",
            f"{WORKERS}::test_callers_that_come_go_and_kill_at_random_leave_every_worker_free",
            *by_every_tier("test_a_call_cancelled_at_any_await_holds_nothing"),
        ),
    ),
    12: Report(
        kind="work that is never acknowledged is only a flood of lines in a log",
        right="what expired is a number and a condition",
        tests=(
            f"{FIELD}/test_one_exit.py::test_work_that_is_never_acknowledged_is_a_number_and_a_condition",
            f"{CONTROLLER}::test_expired_leases_are_erased_without_being_asked",
            f"{OPERATIONS}::test_an_abandoned_import_is_aborted_and_cleaned",
        ),
    ),
    14: Report(
        kind="nothing is bounded until somebody sets it, so a disk runs full",
        right="bounded by what there is, out of the box",
        tests=(
            f"{FIELD}/test_conditions_and_shares.py::test_everything_is_bounded_when_nobody_sets_anything",
            "tests/unit/test_tier_ram.py::test_the_machine_bounds_it_whatever_its_kernel_says",
            "tests/integration/test_file_tiers.py::test_a_full_disk_is_no_capacity_and_frees_what_it_took",
            *by_every_tier("test_what_does_not_fit_is_refused_with_the_numbers"),
            *by_every_tier("test_concurrent_stores_never_pass_the_limit"),
            "tests/unit/store/test_restart.py::test_log_stays_short_and_folding_changes_nothing",
        ),
    ),
    15: Report(
        kind="who restarts quickly is refused as a stranger, and its medium counts as lost",
        right="identity lies on the medium and not in the process",
        tests=(
            *by_every_tier("test_replicas_and_epoch_outlive_a_restart")[1:],
            f"{MARKERS}::test_a_new_root_is_marked_and_keeps_its_epoch",
            f"{MARKERS}::test_the_epoch_of_what_forgets_names_the_boot",
            "tests/integration/test_cli_run.py::test_an_operation_goes_on_after_the_controller_was_killed",
            f"{NOF_ENGINES}::test_a_killed_process_amid_stores_loses_nothing_acknowledged",
        ),
    ),
    16: Report(
        kind="a short absence is taken for removal, and replicas are forgotten",
        right="away is unknown and never empty; what comes back counts again",
        tests=(
            *by_every_tier("test_a_medium_that_went_away_is_unknown_and_never_empty")[1:],
            f"{REAL}::test_a_folder_taken_away_under_the_loop_is_unknown_and_comes_back",
            f"{MARKERS}::test_an_empty_root_where_a_medium_is_remembered_is_away",
            "tests/unit/test_nof_paths.py::test_a_lost_connection_is_unknown_at_once_and_passes",
        ),
    ),
    17: Report(
        kind="restored metadata points at room that has been given out again: wrong bytes are read",
        right="room that an unproven writer may use is never given out; bytes are checked",
        tests=(
            f"{NOF_ENGINES}::test_a_writer_that_was_given_up_and_comes_late_is_avoided",
            f"{NOF_ENGINES}::test_a_writer_that_began_keeps_its_blocks_from_a_new_index_until_it_ends",
            f"{NOF_DEVICE}::test_blocks_that_a_living_writer_has_locked_are_not_free_until_it_ends",
            f"{NOF_DEVICE}::test_instances_are_never_reused_across_restarts_and_lost_stores",
            "tests/unit/test_nof_crash.py::test_power_loss_at_any_write_loses_nothing_acknowledged",
            "tests/unit/test_nof_damage.py::test_a_frame_lost_in_both_copies_is_damage_and_never_the_end",
            "tests/unit/test_nof_tier.py::test_a_replica_with_other_content_is_a_conflict_and_never_handed_out",
        ),
    ),
    18: Report(
        kind="connections and buffers of what was unmounted are kept",
        right="mounted and unmounted a thousand times, nothing is kept",
        tests=(
            f"{FIELD}/test_tiers_as_reported.py::test_many_mounts_leave_no_descriptor_process_or_memory",
            *by_every_tier("test_many_starts_leave_nothing"),
            f"{NOF_ENGINES}::test_a_thousand_openings_leave_no_descriptor",
            f"{WORKERS}::test_lost_workers_and_closed_pools_leak_no_descriptor",
        ),
        why_not="ten to a hundred mounts in each run; `make mounts` does a thousand of each tier",
    ),
    19: Report(
        kind="what cannot be handled is skipped, and the whole is called done",
        right="what is unknown or cannot be asked is not done",
        tests=(
            f"{FIELD}/test_forgotten_tiers.py::test_a_deletion_waits_for_a_tier_that_was_used_and_is_not_configured",
            f"{FIELD}/test_former_tier_cli.py::test_a_deletion_without_a_former_tier_is_not_done_and_says_why",
            f"{OPERATIONS}::test_delete_sweeps_quarantined_partial_and_unknown_leftovers",
            f"{LOOP}::test_an_unanswering_cold_tier_is_never_taken_for_empty",
            f"{SIM}/test_planted.py::test_a_planted_fault_is_found",
        ),
    ),
    20: Report(
        kind="a killed writer leaves a key that nobody can write any more",
        right="a crash between any two steps converges",
        tests=(
            *by_every_tier("test_a_killed_writer_is_cleaned_up_by_the_next_start"),
            *by_every_tier("test_a_writer_that_is_killed_meanwhile_blocks_nothing"),
            "tests/integration/test_weightstore_tiers.py::test_import_killed_at_any_point_is_resumed_whole",
            f"{STORE}/test_killed.py::test_killed_before_or_after_any_statement",
            f"{PROCESSES}/test_killed.py::test_nothing_is_lost_and_everything_mends_after_a_kill",
            f"{SIM}/test_enumeration.py::test_an_incident_at_any_place_breaks_no_rule",
        ),
    ),
    21: Report(
        kind="one refusal, and the chance is gone until somebody asks again",
        right="what is wanted is tried again by itself, in a bounded queue",
        tests=(
            f"{FIELD}/test_one_exit.py::test_what_was_refused_is_tried_again_without_being_asked",
            f"{CONTROLLER}::test_a_lost_wake_up_is_made_up_for_by_the_resync",
            f"{QUEUE}::test_a_full_queue_refuses_resync_and_gives_its_places_to_fresh_work",
        ),
    ),
    22: Report(
        kind="one path of reading does not look at the lease after the copy",
        right="the lease is looked at after the last byte, on every path",
        tests=(
            f"{FIELD}/test_lease_after_copy.py::test_a_lease_that_died_during_the_last_read_fails_the_load",
            f"{LOAD}::test_refused_renewal_is_raised_between_transfers",
            f"{PROCESSES}/test_stopped.py::test_a_load_whose_lease_died_during_a_stop_gives_nothing_out",
        ),
    ),
    23: Report(
        kind="two places that should say the same disagree, and stale entries pile up",
        right="the difference is told; what is removed is removed with proof",
        tests=(
            "tests/unit/test_planner.py::test_a_group_that_is_not_what_the_manifest_promises_is_degraded",
            f"{OPERATIONS}::test_drift_of_an_idle_revision_is_published_and_heals",
            f"{OPERATIONS}::test_delete_sweeps_quarantined_partial_and_unknown_leftovers",
            f"{STORE}/test_damage.py::test_lost_group_never_looks_like_one_without_members",
            "tests/integration/test_durable_damage.py::test_another_copy_in_its_place_refutes_the_verdict",
            f"{FIELD}/test_orphans.py::test_a_group_without_an_owner_is_told_and_an_owned_one_is_not",
        ),
    ),
    24: Report(
        kind="one object for a few tokens: tens of millions of entries, out of memory",
        right="few, large objects by layout; a report warns beyond a budget",
        tests=(
            f"{FIELD}/test_forgotten_tiers.py::test_a_plan_warns_of_more_members_than_the_budget",
            "tests/unit/test_import_layout.py::test_fifty_thousand_tensors_are_laid_out",
            "tests/unit/test_import_layout.py::test_small_tensors_share_an_object_and_a_large_one_is_cut_into_rows",
            f"{LOOP}::test_fifty_thousand_members_in_one_group_converge_in_bounded_passes",
        ),
    ),
    25: Report(
        kind="a look pins, the read that would unpin never comes; counters are clamped at zero",
        right="leases with an owner and an end; nothing is counted that can be clamped",
        tests=(
            *by_every_tier("test_asking_changes_nothing"),
            f"{LOAD}::test_load_cancelled_at_any_await_leaves_no_lease_and_no_file",
            f"{CORE}/test_leases.py::test_a_lease_is_live_until_the_millisecond_before_it_expires",
            f"{CORE}/test_leases.py::test_release_of_an_unknown_lease_succeeds_and_gives_an_otherwise_empty_lease",
            f"{PROCESSES}/test_stopped.py::test_a_reader_that_is_killed_in_a_load_leaves_neither_lease_nor_file",
            f"{FIELD}/test_tiers_as_reported.py::test_a_replica_that_is_open_twice_is_held_until_both_are_closed",
        ),
    ),
    27: Report(
        kind="acknowledgements wait for traffic; memory is let go before the copy below is proven",
        right="what is due is done without traffic; only a copy read back justifies a drop",
        tests=(
            f"{CONTROLLER}::test_a_lost_wake_up_is_made_up_for_by_the_resync",
            f"{CONTROLLER}::test_expired_leases_are_erased_without_being_asked",
            f"{OPERATIONS}::test_evict_copies_verifies_and_then_drops_and_keeps_the_evidence",
            f"{LOOP}::test_evidence_of_another_instance_does_not_justify_a_drop",
            f"{REAL}::test_a_bit_flipped_on_the_disk_is_found_before_memory_is_dropped",
            f"{SIM}/test_planted.py::test_a_planted_fault_is_found",
        ),
    ),
    28: Report(
        kind="nothing runs, everything waits, health is fine; what was aborted is never reclaimed",
        right="a deadline for progress and a stuck condition; hung passes make it not ready",
        tests=(
            f"{FIELD}/test_watchers.py::test_passes_that_never_end_are_told_and_when_all_do_it_is_not_ready",
            f"{FIELD}/test_progress.py::test_attempts_that_free_nothing_are_called_stuck_and_slow_down",
            f"{FIELD}/test_one_exit.py::test_work_that_is_never_acknowledged_is_a_number_and_a_condition",
            f"{LOAD}::test_load_cancelled_at_any_await_leaves_no_lease_and_no_file",
            *by_every_tier("test_a_cancelled_store_leaves_nothing_and_can_be_repeated"),
            "tests/integration/test_loop_cancelled.py::test_a_pass_cut_off_anywhere_converges_afterwards",
        ),
    ),
    29: Report(
        kind="at shutdown work is handed to somebody who has left already, and all wait for ever",
        right="no order of steps at shutdown loses anything or leaves anybody waiting",
        tests=(
            f"{FIELD}/test_shutdown_schedules.py::test_no_order_of_steps_loses_a_key_or_leaves_anybody_waiting",
            f"{QUEUE}::test_a_cancelled_claimer_takes_no_key_with_it",
            f"{CONTROLLER}::test_a_pass_that_does_not_end_is_cut_off_at_the_drain_deadline",
        ),
    ),
    30: Report(
        kind="a priority queue gives out the wrong element, because it changes while it is read",
        right="one writer at a time; the queue does what a table of keys does",
        tests=(
            "tests/property/test_workqueue_model.py::TestQueueModel::runTest",
            f"{FIELD}/test_shutdown_schedules.py::test_no_order_of_steps_loses_a_key_or_leaves_anybody_waiting",
        ),
    ),
    31: Report(
        kind="a priority of any number as a label: hundreds of thousands of series",
        right="labels have fixed sets of words, lanes are few",
        tests=(
            "tests/unit/test_telemetry.py::test_the_number_of_series_does_not_depend_on_what_happens",
            "tests/unit/test_telemetry.py::test_a_metric_with_too_many_series_is_refused",
        ),
    ),
    32: Report(
        kind="names of queues, clusters or paths as labels: memory runs out",
        right="no name of anything is a label; what was not declared counts as other",
        tests=(
            "tests/unit/test_telemetry.py::test_all_series_exist_with_zero_and_an_unknown_label_counts_as_other",
            "tests/unit/test_telemetry.py::test_the_number_of_series_does_not_depend_on_what_happens",
            f"{CONTROLLER}::test_every_series_exists_with_zero_from_the_start",
        ),
    ),
    33: Report(
        kind="adding pays for a rate limit, and a delayed add rings after an immediate one",
        right="an immediate add takes the place of the delayed one; doubles cost nothing",
        tests=(
            f"{QUEUE}::test_the_earlier_of_two_delays_wins_and_an_immediate_add_supersedes_both",
            f"{QUEUE}::test_a_key_added_while_it_is_worked_on_gets_exactly_one_more_pass",
            "tests/property/test_workqueue_model.py::TestQueueModel::runTest",
        ),
    ),
    34: Report(
        kind="after a restart everything old comes first, or all at a limited rate: dead for long",
        right="the first round is of low priority and whole; fresh changes overtake it",
        tests=(
            f"{FIELD}/test_watchers.py::test_after_a_restart_fresh_work_overtakes_fifty_thousand_unfinished_records",
            f"{QUEUE}::test_fresh_work_overtakes_a_resync_of_many_keys_without_starving_it",
        ),
    ),
    35: Report(
        kind="it acts on a view that does not have its own last write",
        right="its own writes are read; a view of the past repeats nothing and destroys nothing",
        tests=(
            f"{SIM}/test_enumeration.py::test_an_incident_at_any_place_breaks_no_rule",
            f"{LOOP}::test_a_stale_fence_abandons_the_pass_without_a_further_write",
            f"{TRUST}::test_our_own_primitives_are_no_surprise",
            *by_every_tier("test_a_late_drop_does_not_remove_a_newer_replica"),
        ),
        why_not="the record is the writer's own memory, published once it is durable; no cache",
    ),
    37: Report(
        kind="conflicts are retried through a rate limit, and memory grows",
        right="a conflict is one cheap reading of the record; nothing grows",
        tests=(
            f"{FIELD}/test_one_exit.py::test_conflicts_without_end_cost_reads_and_no_memory",
            f"{QUEUE}::test_the_heap_of_delays_stays_bounded_when_delays_are_superseded",
        ),
    ),
    39: Report(
        kind="back-off is reset by the wrong event, or never",
        right="success or a new wish ends it, nothing else; what flaps is neither",
        tests=(
            f"{QUEUE}::test_backoff_resets_on_success_or_a_new_generation_and_on_nothing_else",
            f"{FIELD}/test_progress.py::test_a_new_wish_is_worked_on_at_once_whatever_the_last_one_ran_into",
            f"{FIELD}/test_progress.py::test_a_tier_that_flaps_costs_a_pass_and_a_write_a_minute",
        ),
    ),
    40: Report(
        kind="what can never succeed is tried many times a second, for months",
        right="parked with a condition, one probe in a long interval",
        tests=(
            f"{FIELD}/test_progress.py::test_a_refusal_for_good_is_probed_once_in_a_long_interval",
            f"{FIELD}/test_progress.py::test_a_tier_that_flaps_costs_a_pass_and_a_write_a_minute",
            f"{FIELD}/test_progress.py::test_attempts_that_free_nothing_are_called_stuck_and_slow_down",
        ),
    ),
    41: Report(
        kind="a retry uses what the first attempt was made for; all retry at the same moment",
        right="each attempt plans anew from a fresh look; retries are spread",
        tests=(
            f"{FIELD}/test_progress.py::test_revisions_that_fail_together_do_not_come_back_together",
            f"{QUEUE}::test_backoff_stays_within_its_bounds",
            f"{LOOP}::test_a_stale_fence_abandons_the_pass_without_a_further_write",
            f"{LOOP}::test_evidence_of_another_instance_does_not_justify_a_drop",
        ),
    ),
    42: Report(
        kind="a watcher dies or hangs in silence, and the process looks healthy",
        right="a dead or blind watcher is not ready; the age of the picture is a number",
        tests=(
            f"{FIELD}/test_watchers.py::test_a_watcher_that_hangs_in_its_first_round_is_not_ready_and_its_picture_is_old",
            f"{FIELD}/test_watchers.py::test_every_watcher_that_hangs_is_named",
            f"{CONTROLLER}::test_a_dead_service_is_restarted_and_meanwhile_not_ready",
            f"{CONTROLLER}::test_a_service_that_keeps_failing_ends_the_loop_loudly",
            f"{CONTROLLER}::test_a_lost_wake_up_is_made_up_for_by_the_resync",
        ),
    ),
    44: Report(
        kind="what has lost its owner stays and raises alarms for ever",
        right="what is nobody's is swept with proof, and told where there is none",
        tests=(
            f"{FIELD}/test_orphans.py::test_a_group_without_an_owner_is_told_and_an_owned_one_is_not",
            f"{FIELD}/test_orphans.py::test_a_restored_state_tells_what_it_does_not_own",
            f"{OPERATIONS}::test_delete_sweeps_quarantined_partial_and_unknown_leftovers",
            f"{OPERATIONS}::test_an_abandoned_import_is_aborted_and_cleaned",
            f"{FIELD}/test_former_tier_cli.py::test_a_deletion_without_a_former_tier_is_not_done_and_says_why",
            f"{HUNG}::test_the_process_ends_although_a_worker_hangs_and_takes_it_along",
        ),
    ),
    46: Report(
        kind="the last healthy copy goes: two decide at once, or a copy in the making counts",
        right="the last-copy rule is judged when it acts, for the whole batch, on copies read back",
        tests=(
            f"{LOOP}::test_evidence_of_another_instance_does_not_justify_a_drop",
            f"{SIM}/test_histories.py::test_no_history_breaks_a_rule",
            f"{SIM}/test_planted.py::test_a_planted_fault_is_found",
            "tests/unit/test_planner.py::test_published",
            f"{CORE}/test_operations.py::test_a_start_runs_and_a_second_one_depends_on_its_target",
            f"{QUEUE}::test_the_runner_never_works_on_one_key_twice_at_a_time",
        ),
    ),
    47: Report(
        kind="slots of ghosts, an overloaded source, a storm of rebuilding, no way to pause",
        right="slots end with their work; both ends are charged; it can be paused, also by hours",
        tests=(
            f"{FIELD}/test_one_exit.py::test_a_place_at_a_tier_is_given_back_however_a_batch_ends",
            f"{FIELD}/test_one_exit.py::test_a_pause_holds_every_operation_where_it_is_and_its_end_lets_it_go_on",
            f"{LIMITS}::test_both_ends_of_a_transfer_are_charged",
            f"{LIMITS}::test_no_more_batches_than_slots_at_either_end",
            "tests/unit/test_planner.py::test_no_bytes_move_outside_the_window",
            "tests/integration/test_cli_run.py::test_a_new_policy_is_used_without_a_restart",
        ),
        why_not="slots are memory of the process: a restart knows of none that it does not see",
    ),
    48: Report(
        kind="work is stranded, done twice, or lost with the rest of its batch at one error",
        right="claimed by comparing and setting, keys are checked, an error ends its item only",
        tests=(
            f"{CONTROLLER}::test_one_poisoned_revision_does_not_stop_the_others",
            f"{CORE}/test_imports.py::test_of_two_prepared_commits_exactly_one_is_published",
            "tests/unit/core_contract/test_golden_vectors.py::test_invalid_identity_vector",
            "tests/contract/test_memory.py::TestMemory::test_whatever_a_source_raises_is_an_outcome_of_its_item_alone",
            f"{STORE}/test_killed.py::test_killed_at_random_in_a_storm_again_and_again",
            f"{LOOP}::test_a_restart_in_the_middle_of_each_operation_goes_on",
        ),
    ),
    49: Report(
        kind="two leaders act, because the loss of the lease is noticed late",
        right="who does not lead writes nothing: a lock of the kernel, a term on every write",
        tests=(
            f"{STORE}/test_lock.py::test_second_process_is_refused_with_the_holder_s_pid",
            f"{STORE}/test_lock.py::test_replaced_lock_file_does_not_let_two_in",
            f"{PROCESSES}/test_stopped.py::test_who_was_stopped_while_its_lock_was_taken_away_changes_nothing",
            *by_every_tier("test_an_older_term_of_a_holder_is_fenced_and_changes_nothing"),
            *by_every_tier("test_a_term_that_ends_while_it_stores_publishes_nothing"),
            f"{SIM}/test_histories.py::test_no_scenario_breaks_a_rule",
        ),
        why_not="leadership is no lease with an end that could be missed: the lock ends with its"
        " process",
    ),
    50: Report(
        kind="machines disagree on the time, and a lease ends early for one of them",
        right="one process judges leases, by the time that it has seen pass",
        tests=(
            f"{FIELD}/test_clock_steps.py::test_a_lease_lives_as_long_as_it_was_given_whatever_the_clock_is_set_to",
            f"{FIELD}/test_clock_steps.py::test_durations_know_nothing_of_the_wall",
            f"{LOOP}::test_a_wait_of_known_end_is_read_again_within_a_minute_when_the_wall_jumps_back",
        ),
        why_not="no time of another machine is compared: the holder of the state grants, renews"
        " and ends every lease",
    ),
    52: Report(
        kind="background work gets nothing for hours: one slot, no share, and health is fine",
        right="every class has a share, with one slot too; no progress is told by health",
        tests=(
            f"{FIELD}/test_conditions_and_shares.py::test_every_class_moves_under_the_load_of_any_other",
            f"{FIELD}/test_conditions_and_shares.py::test_every_class_has_a_share",
            f"{FIELD}/test_conditions_and_shares.py::test_no_progress_is_health_and_not_only_a_line_in_a_log",
            f"{FIELD}/test_conditions_and_shares.py::test_readers_and_the_loop_share_a_limited_bandwidth_piece_by_piece",
            f"{LIMITS}::test_every_class_gets_its_share_under_the_load_of_another",
        ),
        why_not="loads and imports take no slots, so they take none from the loop; they pay for"
        " bandwidth in turn with it",
    ),
    53: Report(
        kind="ready is said of a wish that nobody has looked at",
        right="every condition names the generation that was looked at",
        tests=(
            f"{FIELD}/test_conditions_and_shares.py::test_every_condition_names_the_generation_that_was_looked_at",
            f"{FIELD}/test_conditions_and_shares.py::test_what_was_said_of_an_older_generation_is_told_to_be_old",
            f"{FIELD}/test_conditions_and_shares.py::test_a_revision_is_converged_only_by_a_look_at_its_present_record",
        ),
    ),
}
