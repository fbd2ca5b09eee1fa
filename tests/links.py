"""Symbolic links, where the system makes them."""

from __future__ import annotations

from pathlib import Path

import pytest


def link(path: Path, target: Path | str) -> None:
    """Make a link, or skip the test."""
    try:
        path.symlink_to(target)
    except OSError as error:
        pytest.skip(f"this system makes no links: {error}")
