"""What a row of the field reports is made of."""

from dataclasses import dataclass

MEMORY = "tests/contract/test_memory.py"
MOONCAKE_FAKE = "tests/contract/test_mooncake_fake.py"
PROCESSES_KILLED = "tests/faults/processes/test_killed.py"
STOPPED = "tests/faults/processes/test_stopped.py"
CLOCK_STEPS = "tests/field/test_clock_steps.py"
CONDITIONS_AND_SHARES = "tests/field/test_conditions_and_shares.py"
FORGOTTEN_TIERS = "tests/field/test_forgotten_tiers.py"
FORMER_TIER_CLI = "tests/field/test_former_tier_cli.py"
LEASE_AFTER_COPY = "tests/field/test_lease_after_copy.py"
ONE_EXIT = "tests/field/test_one_exit.py"
ORPHANS = "tests/field/test_orphans.py"
PROGRESS = "tests/field/test_progress.py"
SHUTDOWN_SCHEDULES = "tests/field/test_shutdown_schedules.py"
TIERS_AS_REPORTED = "tests/field/test_tiers_as_reported.py"
WATCHERS = "tests/field/test_watchers.py"
DAMAGE = "tests/integration/store/test_damage.py"
KILLED = "tests/integration/store/test_killed.py"
LOCK = "tests/integration/store/test_lock.py"
CLI_RUN = "tests/integration/test_cli_run.py"
DURABLE_DAMAGE = "tests/integration/test_durable_damage.py"
FILE_TIERS = "tests/integration/test_file_tiers.py"
LOOP_CANCELLED = "tests/integration/test_loop_cancelled.py"
LOOP_CONTROLLER = "tests/integration/test_loop_controller.py"
LOOP_FAULTS = "tests/integration/test_loop_faults.py"
LOOP_OPERATIONS = "tests/integration/test_loop_operations.py"
LOOP_REAL_TIERS = "tests/integration/test_loop_real_tiers.py"
WEIGHTSTORE_LOAD = "tests/integration/test_weightstore_load.py"
WEIGHTSTORE_PUT = "tests/integration/test_weightstore_put.py"
WEIGHTSTORE_TIERS = "tests/integration/test_weightstore_tiers.py"
WORKQUEUE_MODEL = "tests/property/test_workqueue_model.py"
ENUMERATION = "tests/sim/test_enumeration.py"
HISTORIES = "tests/sim/test_histories.py"
PLANTED = "tests/sim/test_planted.py"
GOLDEN_VECTORS = "tests/unit/core_contract/test_golden_vectors.py"
IMPORTS = "tests/unit/core_store/test_imports.py"
LEASES = "tests/unit/core_store/test_leases.py"
OPERATIONS = "tests/unit/core_store/test_operations.py"
RESTART = "tests/unit/store/test_restart.py"
DFS_TIER = "tests/unit/test_dfs_tier.py"
IMPORT_LAYOUT = "tests/unit/test_import_layout.py"
NOF_CRASH = "tests/unit/test_nof_crash.py"
NOF_DAMAGE = "tests/unit/test_nof_damage.py"
NOF_DEVICE = "tests/unit/test_nof_device.py"
NOF_ENGINES = "tests/unit/test_nof_engines.py"
NOF_PATHS = "tests/unit/test_nof_paths.py"
NOF_TIER = "tests/unit/test_nof_tier.py"
PLANNER = "tests/unit/test_planner.py"
RUNTIME_LIMITS = "tests/unit/test_runtime_limits.py"
RUNTIME_QUEUE = "tests/unit/test_runtime_queue.py"
RUNTIME_TRUST = "tests/unit/test_runtime_trust.py"
TELEMETRY = "tests/unit/test_telemetry.py"
TIER_MARKERS = "tests/unit/test_tier_markers.py"
TIER_RAM = "tests/unit/test_tier_ram.py"
WORKERS = "tests/unit/test_workers.py"
WORKERS_HUNG = "tests/unit/test_workers_hung.py"

CONTRACTS = (
    "tests/contract/test_memory.py::TestMemory",
    "tests/contract/test_local_disk.py::TestLocalDisk",
    "tests/contract/test_dfs.py::TestDfs",
    "tests/contract/test_nof.py::TestNof",
)


def by_every_tier(name: str) -> tuple[str, ...]:
    """A case of the contract suite, on each tier that ships."""
    return tuple(f"{contract}::{name}" for contract in CONTRACTS)


def at(path: str, *names: str) -> tuple[str, ...]:
    """Tests of one file."""
    return tuple(f"{path}::{name}" for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One row: tests (ids without parameters), or why the kind cannot occur, or both."""

    kind: str
    right: str
    tests: tuple[str, ...] = ()
    why_not: str = ""
    """Why the kind, or what is left of it, cannot occur here."""
