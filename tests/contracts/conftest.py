"""The contract of stores lives in the package; what it asserts is told as tests tell it."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("rerail.testing.store_contract")  # before anything imports it: readable failures
