"""Strict types and ranks everywhere; slow tests only with --slow; what one test compiled is there for the others."""

import os
import shutil
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAXRECALL_CACHE"] = ""  # leaves the user's cache alone

import jax
import pytest
from helpers import hold_to_annotations

from jaxrecall.reference.realization import Realization

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

for record in (Realization,):
    hold_to_annotations(record)

SHARED = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    """One folder of compiled programs for this process and all that it starts."""
    if hasattr(config, "workerinput"):  # started by the process that made it
        return
    config.stash[SHARED] = folder = tempfile.mkdtemp(prefix="jaxrecall-tests-")
    for name, value in (("jax_compilation_cache_dir", folder), ("jax_persistent_cache_min_compile_time_secs", 0.3)):
        os.environ[name.upper()] = str(value)
        jax.config.update(name, value)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash.get(SHARED, ""), ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
