"""What holds for every test: both event loops, no blocking call on a loop, a printed seed, nothing
of the operator's surroundings.

Each asynchronous test runs twice, on asyncio's own loop and on uvloop. blockbuster stays active
for the whole run, so a blocking call inside any loop is an error and not a slow test.
"""

import asyncio
import gc
import secrets
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest
import uvloop
from blockbuster import BlockBuster, BlockBusterFunction, blockbuster_ctx

from tests.support.mooncake.lab import require_wheel
from tests.support.surroundings import hermetic, no_child_hangs, watch_children

# No deadline: a shared machine's pauses say nothing about the code. The blob repeats a failure.
hypothesis.settings.register_profile("weightctl", deadline=None, print_blob=True)

# Calls of this project's trade that blockbuster does not watch by itself.
ALSO_BLOCKING = (
    "fcntl.flock",
    "fcntl.lockf",
    "os.copy_file_range",
    "os.fdatasync",
    "os.fsync",
    "os.ftruncate",
    "os.open",
    "os.posix_fallocate",
    "os.pread",
    "os.preadv",
    "os.pwrite",
    "os.pwritev",
    "sqlite3.connect",
)

# Opening a path blocks; wrapping a descriptor, as asyncio does for a child's pipes, does not.
BLOCKING_BY_PATH = ("builtins.open", "io.open")

# Where a blocking call on the loop is not the loop's own work; each happens once in a process.
ALLOWED_IN = (
    # The first import of a module reads its files; which test is first depends on the selection.
    ("<frozen importlib._bootstrap>", "_find_and_load"),
    # The first pydantic model asks the installed distributions for plugins.
    ("pydantic/plugin/_loader.py", "get_plugins"),
    # A traceback is printed with its source lines.
    ("linecache.py", "updatecache"),
    ("<frozen linecache>", "updatecache"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Leave the operator's surroundings before any test is read, and fix the property seed.

    The seed is fixed before hypothesis reads it, so that every run can be repeated.
    """
    home = tempfile.TemporaryDirectory(prefix="weightctl-home-")
    config.add_cleanup(home.cleanup)
    hermetic(Path(home.name))
    watch_children()
    hypothesis.settings.load_profile(config.getoption("--hypothesis-profile") or "weightctl")
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what the tests are made of out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    """Show the seed of the property tests and how to repeat them."""
    return f"property seed: repeat with --hypothesis-seed={config.option.hypothesis_seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say why a test of a real Mooncake cannot run here, before a Master is started for it."""
    if item.get_closest_marker("mooncake"):
        require_wheel()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let no child of a test keep it waiting for ever."""
    with no_child_hangs():
        return (yield)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every asynchronous test once on each loop that users run.

    Beside a real Mooncake on one: what they wait for is the Master, and the imitation runs on both;
    on one also what takes long and shows nothing of the loop.
    """
    if item.get_closest_marker("mooncake") or item.get_closest_marker("one_loop"):
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Turn a blocking call on an event loop into an error, for the whole run."""
    with blockbuster_ctx() as detector:
        for name in ALSO_BLOCKING:
            detector.functions[name] = BlockBusterFunction(None, name)
        for name in BLOCKING_BY_PATH:
            detector.functions[name] = BlockBusterFunction(
                None, name, can_block_predicate=lambda file, *_, **__: isinstance(file, int)
            )
        detector.activate()
        for function in detector.functions.values():
            for filename, caller in ALLOWED_IN:
                function.can_block_in(filename, caller)
        yield detector
