"""pyarrow, imported when a Parquet file is read or written."""

from __future__ import annotations

from typing import Any


def pyarrow() -> tuple[Any, Any]:
    """Return the package and its Parquet part. Raises ImportError, with what to install, if it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error.name} is not installed, and Parquet needs it: pip install 'sagemaker-launch[formats]', or pyarrow",
            name=error.name,
        ) from error
    return pyarrow, pyarrow.parquet
