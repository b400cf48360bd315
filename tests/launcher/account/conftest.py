from __future__ import annotations

import pytest

from launcher.account import stored_objects
from patience import PATIENCE


@pytest.fixture(autouse=True)
def patient_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need more seconds for a listing than a user waits."""
    monkeypatch.setattr(stored_objects, "MAX_SECONDS", PATIENCE)
