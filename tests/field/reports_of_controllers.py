"""Field reports of inference engines, controllers, queues and storage managers."""

from tests.field.report import (
    CLI_RUN,
    CLOCK_STEPS,
    CONDITIONS_AND_SHARES,
    ENUMERATION,
    FORMER_TIER_CLI,
    GOLDEN_VECTORS,
    HISTORIES,
    IMPORTS,
    KILLED,
    LOCK,
    LOOP_CANCELLED,
    LOOP_CONTROLLER,
    LOOP_FAULTS,
    LOOP_OPERATIONS,
    LOOP_REAL_TIERS,
    MEMORY,
    ONE_EXIT,
    OPERATIONS,
    ORPHANS,
    PLANNER,
    PLANTED,
    PROGRESS,
    RUNTIME_LIMITS,
    RUNTIME_QUEUE,
    RUNTIME_TRUST,
    SHUTDOWN_SCHEDULES,
    STOPPED,
    TELEMETRY,
    WATCHERS,
    WEIGHTSTORE_LOAD,
    WORKERS_HUNG,
    WORKQUEUE_MODEL,
    Report,
    at,
    by_every_tier,
)

REPORTS: dict[int, Report] = {
    27: Report(
        kind="acknowledgements wait for traffic; memory is let go before the copy below is proven",
        right="what is due is done without traffic; only a copy read back justifies a drop",
        tests=(
            *at(
                LOOP_CONTROLLER,
                "test_a_lost_wake_up_is_made_up_for_by_the_resync",
                "test_expired_leases_are_erased_without_being_asked",
            ),
            *at(
                LOOP_OPERATIONS, "test_evict_copies_verifies_and_then_drops_and_keeps_the_evidence"
            ),
            *at(LOOP_FAULTS, "test_evidence_of_another_instance_does_not_justify_a_drop"),
            *at(
                LOOP_REAL_TIERS, "test_a_bit_flipped_on_the_disk_is_found_before_memory_is_dropped"
            ),
            *at(PLANTED, "test_a_planted_fault_is_found"),
        ),
    ),
    28: Report(
        kind="nothing runs, everything waits, health is fine; what was aborted is never reclaimed",
        right="a deadline for progress and a stuck condition; hung passes make it not ready",
        tests=(
            *at(WATCHERS, "test_passes_that_never_end_are_told_and_when_all_do_it_is_not_ready"),
            *at(PROGRESS, "test_attempts_that_free_nothing_are_called_stuck_and_slow_down"),
            *at(ONE_EXIT, "test_work_that_is_never_acknowledged_is_a_number_and_a_condition"),
            *at(WEIGHTSTORE_LOAD, "test_load_cancelled_at_any_await_leaves_no_lease_and_no_file"),
            *by_every_tier("test_a_cancelled_store_leaves_nothing_and_can_be_repeated"),
            *at(LOOP_CANCELLED, "test_a_pass_cut_off_anywhere_converges_afterwards"),
        ),
    ),
    29: Report(
        kind="at shutdown work is handed to somebody who has left already, and all wait for ever",
        right="no order of steps at shutdown loses anything or leaves anybody waiting",
        tests=(
            *at(SHUTDOWN_SCHEDULES, "test_no_order_of_steps_loses_a_key_or_leaves_anybody_waiting"),
            *at(RUNTIME_QUEUE, "test_a_cancelled_claimer_takes_no_key_with_it"),
            *at(LOOP_CONTROLLER, "test_a_pass_that_does_not_end_is_cut_off_at_the_drain_deadline"),
        ),
    ),
    30: Report(
        kind="a priority queue gives out the wrong element, because it changes while it is read",
        right="one writer at a time; the queue does what a table of keys does",
        tests=(
            *at(WORKQUEUE_MODEL, "TestQueueModel::runTest"),
            *at(SHUTDOWN_SCHEDULES, "test_no_order_of_steps_loses_a_key_or_leaves_anybody_waiting"),
        ),
    ),
    31: Report(
        kind="a priority of any number as a label: hundreds of thousands of series",
        right="labels have fixed sets of words, lanes are few",
        tests=(
            *at(
                TELEMETRY,
                "test_the_number_of_series_does_not_depend_on_what_happens",
                "test_a_metric_with_too_many_series_is_refused",
            ),
        ),
    ),
    32: Report(
        kind="names of queues, clusters or paths as labels: memory runs out",
        right="no name of anything is a label; what was not declared counts as other",
        tests=(
            *at(
                TELEMETRY,
                "test_all_series_exist_with_zero_and_an_unknown_label_counts_as_other",
                "test_the_number_of_series_does_not_depend_on_what_happens",
            ),
            *at(LOOP_CONTROLLER, "test_every_series_exists_with_zero_from_the_start"),
        ),
    ),
    33: Report(
        kind="adding pays for a rate limit, and a delayed add rings after an immediate one",
        right="an immediate add takes the place of the delayed one; doubles cost nothing",
        tests=(
            *at(
                RUNTIME_QUEUE,
                "test_the_earlier_of_two_delays_wins_and_an_immediate_add_supersedes_both",
                "test_a_key_added_while_it_is_worked_on_gets_exactly_one_more_pass",
            ),
            *at(WORKQUEUE_MODEL, "TestQueueModel::runTest"),
        ),
    ),
    34: Report(
        kind="after a restart everything old comes first, or all at a limited rate: dead for long",
        right="the first round is of low priority and whole; fresh changes overtake it",
        tests=(
            *at(
                WATCHERS,
                "test_after_a_restart_fresh_work_overtakes_fifty_thousand_unfinished_records",
            ),
            *at(
                RUNTIME_QUEUE, "test_fresh_work_overtakes_a_resync_of_many_keys_without_starving_it"
            ),
        ),
    ),
    35: Report(
        kind="it acts on a view that does not have its own last write",
        right="its own writes are read; a view of the past repeats nothing and destroys nothing",
        tests=(
            *at(ENUMERATION, "test_a_death_or_a_wrong_view_at_any_place_breaks_no_rule"),
            *at(LOOP_FAULTS, "test_a_stale_fence_abandons_the_pass_without_a_further_write"),
            *at(RUNTIME_TRUST, "test_our_own_primitives_are_no_surprise"),
            *by_every_tier("test_a_late_drop_does_not_remove_a_newer_replica"),
        ),
        why_not="the record is the writer's own memory, published once it is durable; no cache",
    ),
    37: Report(
        kind="conflicts are retried through a rate limit, and memory grows",
        right="a conflict is one cheap reading of the record; nothing grows",
        tests=(
            *at(ONE_EXIT, "test_conflicts_without_end_cost_reads_and_no_memory"),
            *at(RUNTIME_QUEUE, "test_the_heap_of_delays_stays_bounded_when_delays_are_superseded"),
        ),
    ),
    39: Report(
        kind="back-off is reset by the wrong event, or never",
        right="success or a new wish ends it, nothing else; what flaps is neither",
        tests=(
            *at(
                RUNTIME_QUEUE,
                "test_backoff_resets_on_success_or_a_new_generation_and_on_nothing_else",
            ),
            *at(
                PROGRESS,
                "test_a_new_wish_is_worked_on_at_once_whatever_the_last_one_ran_into",
                "test_a_tier_that_flaps_costs_a_pass_and_a_write_a_minute",
            ),
        ),
    ),
    40: Report(
        kind="what can never succeed is tried many times a second, for months",
        right="parked with a condition, one probe in a long interval",
        tests=(
            *at(
                PROGRESS,
                "test_a_refusal_for_good_is_probed_once_in_a_long_interval",
                "test_a_tier_that_flaps_costs_a_pass_and_a_write_a_minute",
                "test_attempts_that_free_nothing_are_called_stuck_and_slow_down",
            ),
        ),
    ),
    41: Report(
        kind="a retry uses what the first attempt was made for; all retry at the same moment",
        right="each attempt plans anew from a fresh look; retries are spread",
        tests=(
            *at(PROGRESS, "test_revisions_that_fail_together_do_not_come_back_together"),
            *at(RUNTIME_QUEUE, "test_backoff_stays_within_its_bounds"),
            *at(
                LOOP_FAULTS,
                "test_a_stale_fence_abandons_the_pass_without_a_further_write",
                "test_evidence_of_another_instance_does_not_justify_a_drop",
            ),
        ),
    ),
    42: Report(
        kind="a watcher dies or hangs in silence, and the process looks healthy",
        right="a dead or blind watcher is not ready; the age of the picture is a number",
        tests=(
            *at(
                WATCHERS,
                "test_a_watcher_that_hangs_in_its_first_round_is_not_ready_and_its_picture_is_old",
                "test_every_watcher_that_hangs_is_named",
            ),
            *at(
                LOOP_CONTROLLER,
                "test_a_dead_service_is_restarted_and_meanwhile_not_ready",
                "test_a_service_that_keeps_failing_ends_the_loop_loudly",
                "test_a_lost_wake_up_is_made_up_for_by_the_resync",
            ),
        ),
    ),
    44: Report(
        kind="what has lost its owner stays and raises alarms for ever",
        right="what is nobody's is swept with proof, and told where there is none",
        tests=(
            *at(
                ORPHANS,
                "test_a_group_without_an_owner_is_told_and_an_owned_one_is_not",
                "test_a_restored_state_tells_what_it_does_not_own",
            ),
            *at(
                LOOP_OPERATIONS,
                "test_delete_sweeps_quarantined_partial_and_unknown_leftovers",
                "test_an_abandoned_import_is_aborted_and_cleaned",
            ),
            *at(FORMER_TIER_CLI, "test_a_deletion_without_a_former_tier_is_not_done_and_says_why"),
            *at(WORKERS_HUNG, "test_the_process_ends_although_a_worker_hangs_and_takes_it_along"),
        ),
    ),
    46: Report(
        kind="the last healthy copy goes: two decide at once, or a copy in the making counts",
        right="the last-copy rule is judged when it acts, for the whole batch, on copies read back",
        tests=(
            *at(LOOP_FAULTS, "test_evidence_of_another_instance_does_not_justify_a_drop"),
            *at(HISTORIES, "test_no_history_breaks_a_rule"),
            *at(PLANTED, "test_a_planted_fault_is_found"),
            *at(PLANNER, "test_published"),
            *at(OPERATIONS, "test_a_start_runs_and_a_second_one_depends_on_its_target"),
            *at(RUNTIME_QUEUE, "test_the_runner_never_works_on_one_key_twice_at_a_time"),
        ),
    ),
    47: Report(
        kind="slots of ghosts, an overloaded source, a storm of rebuilding, no way to pause",
        right="slots end with their work; both ends are charged; it can be paused, also by hours",
        tests=(
            *at(
                ONE_EXIT,
                "test_a_place_at_a_tier_is_given_back_however_a_batch_ends",
                "test_a_pause_holds_every_operation_where_it_is_and_its_end_lets_it_go_on",
            ),
            *at(
                RUNTIME_LIMITS,
                "test_both_ends_of_a_transfer_are_charged",
                "test_no_more_batches_than_slots_at_either_end",
            ),
            *at(PLANNER, "test_no_bytes_move_outside_the_window"),
            *at(CLI_RUN, "test_a_new_policy_is_used_without_a_restart"),
        ),
        why_not="slots are memory of the process: a restart knows of none that it does not see",
    ),
    48: Report(
        kind="work is stranded, done twice, or lost with the rest of its batch at one error",
        right="claimed by comparing and setting, keys are checked, an error ends its item only",
        tests=(
            *at(LOOP_CONTROLLER, "test_one_poisoned_revision_does_not_stop_the_others"),
            *at(IMPORTS, "test_of_two_prepared_commits_exactly_one_is_published"),
            *at(GOLDEN_VECTORS, "test_invalid_identity_vector"),
            *at(
                MEMORY, "TestMemory::test_whatever_a_source_raises_is_an_outcome_of_its_item_alone"
            ),
            *at(KILLED, "test_killed_at_random_in_a_storm_again_and_again"),
            *at(LOOP_FAULTS, "test_a_restart_in_the_middle_of_each_operation_goes_on"),
        ),
    ),
    49: Report(
        kind="two leaders act, because the loss of the lease is noticed late",
        right="who does not lead writes nothing: a lock of the kernel, a term on every write",
        tests=(
            *at(
                LOCK,
                "test_second_process_is_refused_with_the_holder_s_pid",
                "test_replaced_lock_file_does_not_let_two_in",
            ),
            *at(STOPPED, "test_who_was_stopped_while_its_lock_was_taken_away_changes_nothing"),
            *by_every_tier("test_an_older_term_of_a_holder_is_fenced_and_changes_nothing"),
            *by_every_tier("test_a_term_that_ends_while_it_stores_publishes_nothing"),
            *at(HISTORIES, "test_no_scenario_breaks_a_rule"),
        ),
        why_not="leadership is no lease with an end that could be missed: the lock ends with its"
        " process",
    ),
    50: Report(
        kind="machines disagree on the time, and a lease ends early for one of them",
        right="one process judges leases, by the time that it has seen pass",
        tests=(
            *at(
                CLOCK_STEPS,
                "test_a_lease_lives_as_long_as_it_was_given_whatever_the_clock_is_set_to",
                "test_durations_know_nothing_of_the_wall",
            ),
            *at(
                LOOP_FAULTS,
                "test_a_wait_of_known_end_is_read_again_within_a_minute_when_the_wall_jumps_back",
            ),
        ),
        why_not="no time of another machine is compared: the holder of the state grants, renews"
        " and ends every lease",
    ),
    52: Report(
        kind="background work gets nothing for hours: one slot, no share, and health is fine",
        right="every class has a share, with one slot too; no progress is told by health",
        tests=(
            *at(
                CONDITIONS_AND_SHARES,
                "test_every_class_moves_under_the_load_of_any_other",
                "test_every_class_has_a_share",
                "test_no_progress_is_health_and_not_only_a_line_in_a_log",
                "test_readers_and_the_loop_share_a_limited_bandwidth_piece_by_piece",
            ),
            *at(RUNTIME_LIMITS, "test_every_class_gets_its_share_under_the_load_of_another"),
        ),
        why_not="loads and imports take no slots, so they take none from the loop; they pay for"
        " bandwidth in turn with it",
    ),
    53: Report(
        kind="ready is said of a wish that nobody has looked at",
        right="every condition names the generation that was looked at",
        tests=(
            *at(
                CONDITIONS_AND_SHARES,
                "test_every_condition_names_the_generation_that_was_looked_at",
                "test_what_was_said_of_an_older_generation_is_told_to_be_old",
                "test_a_revision_is_converged_only_by_a_look_at_its_present_record",
            ),
        ),
    ),
}
