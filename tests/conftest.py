"""Strict types and ranks everywhere; slow tests only with --slow."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["JAXRECALL_CACHE"] = ""  # tests compile what they test, and leave the user's cache alone

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
