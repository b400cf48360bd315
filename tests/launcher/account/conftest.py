from __future__ import annotations

import pytest

from launcher.account import listing
from patience import PATIENCE


@pytest.fixture(autouse=True)
def patient_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need more seconds for a listing than a user waits."""
    monkeypatch.setattr(listing, "MAX_SECONDS", PATIENCE)
