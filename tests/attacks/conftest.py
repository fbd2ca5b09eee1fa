"""Lets the tests here import the modules beside them as `tests.attacks.*`, wherever pytest runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
