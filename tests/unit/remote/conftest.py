"""Servers for tests of stores, and variables of the environment."""

from tests.remote.conftest import bucket as bucket_of_s3
from tests.remote.conftest import s3, variables

__all__ = ["bucket_of_s3", "s3", "variables"]
