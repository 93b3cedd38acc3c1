"""The examples in docstrings of models run and give what they show."""

import doctest
import importlib

import pytest

MODULES = ["backpack", "configuration", "rankers"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_give_what_they_show(name):
    module = importlib.import_module(f"backpack_rank.models.{name}")
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
