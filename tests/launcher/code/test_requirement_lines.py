"""Lines of a requirements.txt that would end a job at its start are found before."""

from __future__ import annotations

from pathlib import Path

import pytest

import launcher
from launcher.rules.examples import laid_over_base


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("numpy", ""),
        ("numpy==1.26.4  # as in the image", ""),
        ("torch>=2,<3; python_version >= '3.10'", ""),
        ("pillow[xmp] ~= 10.0", ""),
        ("git+https://github.com/me/mine.git@main", ""),
        ("mine @ git+ssh://git@github.com/me/mine.git", ""),
        ("mine @ https://example.com/mine-1.0-py3-none-any.whl", ""),
        ("-e git+https://github.com/me/mine.git#egg=mine", ""),
        ("--extra-index-url https://download.pytorch.org/whl/cpu", ""),
        ("-e ./lib", ""),
        ("./lib/mine.whl", ""),
        ("lib/mine.whl", ""),
        ("-r more.txt", ""),
        ("-e .", ""),
        ("-e .[dev]", ""),
        ("./lib[extra] --config-settings x=y", ""),
        ("-e ./lib#egg=mine", ""),
        ("./lib \\", ""),
        ("${WHEELS}/mine.whl", ""),
        ("/wheels/mine.whl", ""),  # of the image
        ("mine @ file:///opt/ml/input/data/wheels/mine.whl", ""),
        ("-fwheels/", ""),
        ("./mac; sys_platform == 'darwin'", ""),
        ("torch==2.13.0+cpu; sys_platform == 'win32'", ""),
        ("-r more.txt\ntorch==2.13.0+cpu", ""),  # which can name an index
        ("numpy\0\n./gone\0", ""),  # UTF-16
        ("./gone[extra]", "2: ./gone is not in the code"),
        ("-r base.txt", "2: base.txt is not in the code"),
        ("-c ../constraints.txt", "2: ../constraints.txt is not in the code"),
        (
            "numpy @ file:///croot/numpy_1/work/dist/numpy-1.26.4.whl",
            "2: /croot/numpy_1/work/dist/numpy-1.26.4.whl is not",
        ),
        ("-e /home/me/lib", "2: /home/me/lib is not in the code; send it, or name the package and its version"),
        ("../mine", "2: ../mine is not in the code"),
        ("torch==2.13.0+cpu\n# by PIP_EXTRA_INDEX_URL", ""),
        ("torch==2.13.0+cpu", "2: PyPI has no build cpu; leave out +cpu, or name its index by --extra-index-url"),
        ("--find-links https://example.com/\ntorch==2.13.0+cu128", ""),
    ],
)
def test_line_that_pip_cannot_install_there_is_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "src" / "lib").mkdir(parents=True)
    for name, text in (
        ("train.py", ""),
        ("more.txt", ""),
        ("lib/mine.whl", ""),
        ("requirements.txt", f"# mine\n{line}\n"),
    ):
        (tmp_path / "src" / name).write_text(text)
    code = "code: {directory: src, entry_point: train.py, requirements: requirements.txt}"
    code += "\nenvironment: {PIP_EXTRA_INDEX_URL: 'https://example.com/'}" * ("PIP_" in line)
    warnings = launcher.plan(launcher.parse_spec(laid_over_base(code), str(tmp_path / "job.yaml")), name="one").warnings
    assert [each.code for each in warnings] == ["requirements-line"] * bool(message)
    assert all(f"requirements.txt:{message}" in each.message for each in warnings)


def test_other_file_is_beside_this_one_and_a_package_below_the_code(tmp_path: Path) -> None:
    (tmp_path / "src" / "docker").mkdir(parents=True)
    for name, text in (
        ("train.py", ""),
        ("lib.whl", ""),
        ("docker/base.txt", ""),
        ("docker/gpu.txt", "-r base.txt\n./lib.whl\n-r lib.whl\n./base.txt\n"),
    ):
        (tmp_path / "src" / name).write_text(text)
    code = "code: {directory: src, entry_point: train.py, requirements: docker/gpu.txt}"
    warnings = launcher.plan(launcher.parse_spec(laid_over_base(code), str(tmp_path / "job.yaml")), name="one").warnings
    assert [each.message.partition(";")[0] for each in warnings] == [
        "docker/gpu.txt:3: lib.whl is not in the code",
        "docker/gpu.txt:4: ./base.txt is not in the code",
    ]
