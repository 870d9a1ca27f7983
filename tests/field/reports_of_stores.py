"""Field reports of stores and caches of tensors."""

from tests.field.report import (
    CLI_RUN,
    CLOCK_STEPS,
    CONDITIONS_AND_SHARES,
    DAMAGE,
    DFS_TIER,
    DURABLE_DAMAGE,
    ENUMERATION,
    FILE_TIERS,
    FORGOTTEN_TIERS,
    FORMER_TIER_CLI,
    HISTORIES,
    IMPORT_LAYOUT,
    KILLED,
    LEASE_AFTER_COPY,
    LEASES,
    LOCK,
    LOOP_CONTROLLER,
    LOOP_FAULTS,
    LOOP_OPERATIONS,
    LOOP_REAL_TIERS,
    MOONCAKE_FAKE,
    NOF_CRASH,
    NOF_DAMAGE,
    NOF_DEVICE,
    NOF_ENGINES,
    NOF_PATHS,
    NOF_TIER,
    ONE_EXIT,
    ORPHANS,
    PLANNER,
    PLANTED,
    PROCESSES_KILLED,
    PROGRESS,
    RESTART,
    RUNTIME_LIMITS,
    RUNTIME_QUEUE,
    RUNTIME_TRUST,
    STOPPED,
    TIER_MARKERS,
    TIER_RAM,
    TIERS_AS_REPORTED,
    WEIGHTSTORE_LOAD,
    WEIGHTSTORE_PUT,
    WEIGHTSTORE_TIERS,
    WORKERS,
    WORKERS_HUNG,
    Report,
    at,
    by_every_tier,
)

REPORTS: dict[int, Report] = {
    1: Report(
        kind="asking keeps everything alive, so attempts to free room free nothing, unnoticed",
        right="asking protects nothing; attempts that free nothing are called stuck",
        tests=(
            *at(PROGRESS, "test_attempts_that_free_nothing_are_called_stuck_and_slow_down"),
            *by_every_tier("test_asking_changes_nothing"),
            *at(MOONCAKE_FAKE, "TestFakeMemory::test_asking_changes_nothing"),
        ),
    ),
    3: Report(
        kind="deadlines on a wall clock that is set; room is made where that cannot help",
        right="deadlines follow the time that passes and are mapped at a restart; settle first",
        tests=(
            *at(
                CLOCK_STEPS,
                "test_a_step_of_the_clock_is_followed_slowly_and_never_backwards",
                "test_a_lease_lives_as_long_as_it_was_given_whatever_the_clock_is_set_to",
                "test_a_restart_maps_stored_deadlines_to_the_clock_as_it_is_then",
            ),
            *at(
                LOOP_FAULTS,
                "test_evidence_ages_by_the_monotonic_clock_and_wall_jumps_change_nothing",
                "test_an_hour_of_clock_jump_in_the_middle_changes_no_result",
            ),
            *at(
                RUNTIME_TRUST,
                "test_a_new_epoch_settles_after_two_consistent_looks_far_enough_apart",
            ),
            *at(LOOP_OPERATIONS, "test_a_full_tier_is_said_by_the_plan_before_anything_moves"),
        ),
    ),
    4: Report(
        kind="a store that was taken over has forgotten everything, and is taken for empty",
        right="another epoch is no loss of everything: nothing is destroyed until it settles",
        tests=(
            *at(
                LOOP_FAULTS,
                "test_after_an_epoch_change_nothing_is_destroyed_until_it_has_settled",
                "test_an_epoch_change_is_noticed_across_a_restart",
                "test_a_mass_change_of_verdicts_settles_before_anything_is_destroyed",
            ),
            *at(HISTORIES, "test_no_scenario_breaks_a_rule"),
        ),
    ),
    5: Report(
        kind="who is stopped, not dead, keeps its connections, and everybody waits for ever",
        right="every wait for somebody else has a deadline; tried with SIGSTOP",
        tests=(
            *at(
                STOPPED,
                "test_an_operation_goes_on_after_a_stop_longer_than_every_deadline",
                "test_a_verb_does_not_wait_for_a_stopped_controller_beyond_its_timeout",
            ),
            *at(WORKERS_HUNG, "test_a_stopped_worker_is_an_unknown_outcome_and_is_replaced"),
            *at(
                DFS_TIER, "test_a_stopped_worker_is_unknown_for_its_batch_and_the_rest_is_not_tried"
            ),
            *at(
                NOF_TIER,
                "test_an_index_worker_that_stops_is_unknown_within_the_deadline_and_replaced",
            ),
            *at(LOOP_FAULTS, "test_a_hanging_tier_costs_its_deadline_once_and_holds_nobody_else"),
            *at(LOCK, "test_stopped_holder_still_holds"),
        ),
    ),
    7: Report(
        kind="an answer leaves items out, which then wait for a time-out",
        right="the answered items are the asked ones; what is not answered is unknown",
        tests=(
            *at(
                ONE_EXIT,
                "test_the_answers_are_those_of_the_asked_items",
                "test_a_place_at_a_tier_is_given_back_however_a_batch_ends",
            ),
            *at(
                LOOP_FAULTS,
                "test_an_unanswering_cold_tier_is_never_taken_for_empty",
                "test_lost_partial_and_refused_answers_are_observed_again",
            ),
            *at(WEIGHTSTORE_PUT, "test_item_without_an_answer_is_not_done"),
            *by_every_tier("test_a_large_batch_is_answered_in_its_order"),
        ),
    ),
    8: Report(
        kind="one doubled key fails its whole batch",
        right="each item has its own outcome; doing it again changes nothing",
        tests=(
            *at(TIERS_AS_REPORTED, "test_a_doubled_item_costs_the_others_of_its_batch_nothing"),
            *by_every_tier("test_each_item_of_a_batch_has_its_own_outcome"),
            *by_every_tier("test_storing_again_is_a_no_op_that_names_the_replica"),
        ),
    ),
    9: Report(
        kind="a batch fails as a whole, and what it had written is not told",
        right="what was done is told although the batch failed, or is seen by the next look",
        tests=(
            *at(
                TIERS_AS_REPORTED,
                "test_a_batch_of_which_one_item_cannot_be_done_tells_what_was_done",
            ),
            *by_every_tier("test_a_cancelled_batch_keeps_what_was_done"),
            *at(LOOP_FAULTS, "test_lost_partial_and_refused_answers_are_observed_again"),
            *at(WEIGHTSTORE_PUT, "test_resumed_import_moves_only_what_is_missing"),
        ),
    ),
    10: Report(
        kind="a doubled end of a write counts twice, and the replica is held for ever",
        right="doing it again is no second claim; a claim ends with who made it",
        tests=(
            *at(
                TIERS_AS_REPORTED, "test_a_replica_that_is_open_twice_is_held_until_both_are_closed"
            ),
            *at(LEASES, "test_acquire_retry_renew_and_release_twice"),
            *by_every_tier("test_storing_again_is_a_no_op_that_names_the_replica"),
            *by_every_tier("test_an_open_replica_is_busy_until_it_is_closed"),
        ),
        why_not="there are no counters of references: readers hold a kernel lock or a named lease",
    ),
    11: Report(
        kind="a path that forgets to say that it has ended keeps a slot for ever",
        right="one exit gives every slot back, however the work ended",
        tests=(
            *at(ONE_EXIT, "test_a_place_at_a_tier_is_given_back_however_a_batch_ends"),
            *at(RUNTIME_LIMITS, "test_a_cancelled_wait_and_a_cancelled_job_give_their_places_back"),
            *at(RUNTIME_QUEUE, "test_a_cancelled_pass_leaves_its_key_due"),
            *at(WORKERS, "test_callers_that_come_go_and_kill_at_random_leave_every_worker_free"),
            *by_every_tier("test_a_call_cancelled_at_any_await_holds_nothing"),
        ),
    ),
    12: Report(
        kind="work that is never acknowledged is only a flood of lines in a log",
        right="what expired is a number and a condition",
        tests=(
            *at(ONE_EXIT, "test_work_that_is_never_acknowledged_is_a_number_and_a_condition"),
            *at(LOOP_CONTROLLER, "test_expired_leases_are_erased_without_being_asked"),
            *at(LOOP_OPERATIONS, "test_an_abandoned_import_is_aborted_and_cleaned"),
        ),
    ),
    14: Report(
        kind="nothing is bounded until somebody sets it, so a disk runs full",
        right="bounded by what there is, out of the box",
        tests=(
            *at(CONDITIONS_AND_SHARES, "test_everything_is_bounded_when_nobody_sets_anything"),
            *at(TIER_RAM, "test_the_machine_bounds_it_whatever_its_kernel_says"),
            *at(FILE_TIERS, "test_a_full_disk_is_no_capacity_and_frees_what_it_took"),
            *by_every_tier("test_what_does_not_fit_is_refused_with_the_numbers"),
            *by_every_tier("test_concurrent_stores_never_pass_the_limit"),
            *at(RESTART, "test_log_stays_short_and_folding_changes_nothing"),
        ),
    ),
    15: Report(
        kind="who restarts quickly is refused as a stranger, and its medium counts as lost",
        right="identity lies on the medium and not in the process",
        tests=(
            *by_every_tier("test_replicas_and_epoch_outlive_a_restart")[1:],
            *at(
                TIER_MARKERS,
                "test_a_new_root_is_marked_and_keeps_its_epoch",
                "test_the_epoch_of_what_forgets_names_the_boot",
            ),
            *at(CLI_RUN, "test_an_operation_goes_on_after_the_controller_was_killed"),
            *at(NOF_ENGINES, "test_a_killed_process_amid_stores_loses_nothing_acknowledged"),
        ),
    ),
    16: Report(
        kind="a short absence is taken for removal, and replicas are forgotten",
        right="away is unknown and never empty; what comes back counts again",
        tests=(
            *by_every_tier("test_a_medium_that_went_away_is_unknown_and_never_empty")[1:],
            *at(
                LOOP_REAL_TIERS, "test_a_folder_taken_away_under_the_loop_is_unknown_and_comes_back"
            ),
            *at(TIER_MARKERS, "test_an_empty_root_where_a_medium_is_remembered_is_away"),
            *at(NOF_PATHS, "test_a_lost_connection_is_unknown_at_once_and_passes"),
        ),
    ),
    17: Report(
        kind="restored metadata points at room that has been given out again: wrong bytes are read",
        right="room that an unproven writer may use is never given out; bytes are checked",
        tests=(
            *at(
                NOF_ENGINES,
                "test_a_writer_that_was_given_up_and_comes_late_is_avoided",
                "test_a_writer_that_began_keeps_its_blocks_from_a_new_index_until_it_ends",
            ),
            *at(
                NOF_DEVICE,
                "test_blocks_that_a_living_writer_has_locked_are_not_free_until_it_ends",
                "test_instances_are_never_reused_across_restarts_and_lost_stores",
            ),
            *at(NOF_CRASH, "test_power_loss_at_any_write_loses_nothing_acknowledged"),
            *at(NOF_DAMAGE, "test_a_frame_lost_in_both_copies_is_damage_and_never_the_end"),
            *at(NOF_TIER, "test_a_replica_with_other_content_is_a_conflict_and_never_handed_out"),
        ),
    ),
    18: Report(
        kind="connections and buffers of what was unmounted are kept",
        right="mounted and unmounted a thousand times, nothing is kept",
        tests=(
            *at(TIERS_AS_REPORTED, "test_many_mounts_leave_no_descriptor_process_or_memory"),
            *by_every_tier("test_many_starts_leave_nothing"),
            *at(NOF_ENGINES, "test_a_thousand_openings_leave_no_descriptor"),
            *at(WORKERS, "test_lost_workers_and_closed_pools_leak_no_descriptor"),
        ),
        why_not="ten to a hundred mounts in each run; `make mounts` does a thousand of each tier",
    ),
    19: Report(
        kind="what cannot be handled is skipped, and the whole is called done",
        right="what is unknown or cannot be asked is not done",
        tests=(
            *at(
                FORGOTTEN_TIERS,
                "test_a_deletion_waits_for_a_tier_that_was_used_and_is_not_configured",
            ),
            *at(FORMER_TIER_CLI, "test_a_deletion_without_a_former_tier_is_not_done_and_says_why"),
            *at(LOOP_OPERATIONS, "test_delete_sweeps_quarantined_partial_and_unknown_leftovers"),
            *at(LOOP_FAULTS, "test_an_unanswering_cold_tier_is_never_taken_for_empty"),
            *at(PLANTED, "test_a_planted_fault_is_found"),
        ),
    ),
    20: Report(
        kind="a killed writer leaves a key that nobody can write any more",
        right="a crash between any two steps converges",
        tests=(
            *by_every_tier("test_a_killed_writer_is_cleaned_up_by_the_next_start"),
            *by_every_tier("test_a_writer_that_is_killed_meanwhile_blocks_nothing"),
            *at(WEIGHTSTORE_TIERS, "test_import_killed_at_any_point_is_resumed_whole"),
            *at(KILLED, "test_killed_before_or_after_any_statement"),
            *at(PROCESSES_KILLED, "test_nothing_is_lost_and_everything_mends_after_a_kill"),
            *at(ENUMERATION, "test_a_death_or_a_wrong_view_at_any_place_breaks_no_rule"),
        ),
    ),
    21: Report(
        kind="one refusal, and the chance is gone until somebody asks again",
        right="what is wanted is tried again by itself, in a bounded queue",
        tests=(
            *at(ONE_EXIT, "test_what_was_refused_is_tried_again_without_being_asked"),
            *at(LOOP_CONTROLLER, "test_a_lost_wake_up_is_made_up_for_by_the_resync"),
            *at(
                RUNTIME_QUEUE, "test_a_full_queue_refuses_resync_and_gives_its_places_to_fresh_work"
            ),
        ),
    ),
    22: Report(
        kind="one path of reading does not look at the lease after the copy",
        right="the lease is looked at after the last byte, on every path",
        tests=(
            *at(LEASE_AFTER_COPY, "test_a_lease_that_died_during_the_last_read_fails_the_load"),
            *at(WEIGHTSTORE_LOAD, "test_refused_renewal_is_raised_between_transfers"),
            *at(STOPPED, "test_a_load_whose_lease_died_during_a_stop_gives_nothing_out"),
        ),
    ),
    23: Report(
        kind="two places that should say the same disagree, and stale entries pile up",
        right="the difference is told; what is removed is removed with proof",
        tests=(
            *at(PLANNER, "test_a_group_that_is_not_what_the_manifest_promises_is_degraded"),
            *at(
                LOOP_OPERATIONS,
                "test_drift_of_an_idle_revision_is_published_and_heals",
                "test_delete_sweeps_quarantined_partial_and_unknown_leftovers",
            ),
            *at(DAMAGE, "test_lost_group_never_looks_like_one_without_members"),
            *at(DURABLE_DAMAGE, "test_another_copy_in_its_place_refutes_the_verdict"),
            *at(ORPHANS, "test_a_group_without_an_owner_is_told_and_an_owned_one_is_not"),
        ),
    ),
    24: Report(
        kind="one object for a few tokens: tens of millions of entries, out of memory",
        right="few, large objects by layout; a report warns beyond a budget",
        tests=(
            *at(FORGOTTEN_TIERS, "test_a_plan_warns_of_more_members_than_the_budget"),
            *at(
                IMPORT_LAYOUT,
                "test_fifty_thousand_tensors_are_laid_out",
                "test_small_tensors_share_an_object_and_a_large_one_is_cut_into_rows",
            ),
            *at(LOOP_FAULTS, "test_fifty_thousand_members_in_one_group_converge_in_bounded_passes"),
        ),
    ),
    25: Report(
        kind="a look pins, the read that would unpin never comes; counters are clamped at zero",
        right="leases with an owner and an end; nothing is counted that can be clamped",
        tests=(
            *by_every_tier("test_asking_changes_nothing"),
            *at(WEIGHTSTORE_LOAD, "test_load_cancelled_at_any_await_leaves_no_lease_and_no_file"),
            *at(
                LEASES,
                "test_a_lease_is_live_until_the_millisecond_before_it_expires",
                "test_release_of_an_unknown_lease_succeeds_and_gives_an_otherwise_empty_lease",
            ),
            *at(STOPPED, "test_a_reader_that_is_killed_in_a_load_leaves_neither_lease_nor_file"),
            *at(
                TIERS_AS_REPORTED, "test_a_replica_that_is_open_twice_is_held_until_both_are_closed"
            ),
        ),
    ),
}
