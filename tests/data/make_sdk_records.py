"""Makes sdk_records.json: small RecordIO-protobuf files as the SageMaker SDK's own writers make them, with their matrices.

Run by the Python of an environment with `sagemaker<3` and scipy: python tests/data/make_sdk_records.py
"""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sagemaker.amazon.common import write_numpy_to_dense_tensor, write_spmatrix_to_sparse_tensor

random = np.random.default_rng(0)
dense = random.normal(size=(5, 7))
holes = np.where(random.random((6, 40)) < 0.2, random.normal(size=(6, 40)), 0)
holes[2] = 0  # a row of nothing: neither values nor keys
holes[4] = 0
magic = np.frombuffer(b"\x0a\x23\xd7\xce" * 3, "<f4").reshape(1, 3)  # RecordIO's magic word, at every place it can have
whole = random.integers(-(2**31), 2**31, (4, 6))
whole[1] = [0, 1, 127, 128, -1, 300]
few = random.integers(0, 3, 6)

rows: Any
cases = []
for name, rows, labels in (
    ("dense float32", dense.astype("f4"), dense[:, 0].astype("f4")),
    ("dense float64, labels float32", dense, np.arange(5, dtype="f4")),
    ("dense integers", whole, np.array([5, -7, 200, 70_000])),
    ("dense without labels", dense.astype("f4"), None),
    ("the magic word in the data", magic, None),
    ("no columns", np.zeros((3, 0), "f4"), None),
    ("sparse float32", scipy.sparse.csr_matrix(holes.astype("f4")), few),
    ("sparse float64 without labels", scipy.sparse.coo_matrix(holes), None),
    ("sparse integers", scipy.sparse.csr_matrix((holes * 100).astype(int)), few.astype(float)),
):
    sparse = scipy.sparse.issparse(rows)
    stream = io.BytesIO()
    (write_spmatrix_to_sparse_tensor if sparse else write_numpy_to_dense_tensor)(stream, rows, labels)
    matrix = rows.toarray() if sparse else rows
    cases.append(
        {
            "name": name,
            "sparse": bool(sparse),
            "dtype": str(matrix.dtype),
            "rows": matrix.tolist(),
            "labels": None if labels is None else labels.tolist(),
            "file": base64.b64encode(stream.getvalue()).decode(),
        }
    )
Path(__file__).with_name("sdk_records.json").write_text(json.dumps(cases, indent=1) + "\n")
