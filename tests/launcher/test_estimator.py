"""The channels of a spec for the SDK's trainers: which are chosen, refused and warned about.

No SDK is needed, since objects are made only when asked for. If a test needs an installed one, it is installed in name only:
metadata on the path, without code. `test_estimator_sdk.py` trains with real ones.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import launcher
from launcher.errors import RefusedError, SpecError
from launcher.estimator import EstimatorInputs, estimator_inputs
from launcher.rules.examples import laid_over_base

ROOT = Path(launcher.__file__).parents[1]
CONNECTOR = "images: {source: S3Connector, s3_uri: s3://bucket/i/}"


def write(folder: Path, overlay: str) -> Path:
    file = folder / "job.yaml"
    file.write_text(laid_over_base(overlay))
    return file


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes a distribution installed, in name only."""

    def _install(name: str, version: str) -> None:
        folder = tmp_path / "site-packages"
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(folder)

    return _install


def test_entries_need_no_sdk(tmp_path: Path) -> None:
    file = write(tmp_path, "channels: {a: {s3_uri: s3://bucket/a/, input_mode: Pipe}}\n")
    assert list(estimator_inputs(file).entries) == launcher.plan(file).request["InputDataConfig"]


def test_missing_sdk_names_the_extra(tmp_path: Path) -> None:
    with pytest.raises(
        ImportError, match=r"^sagemaker is not installed.*pip install 'sagemaker-launch\[sdk\]'$"
    ) as caught:
        estimator_inputs(write(tmp_path, "")).channels()
    assert caught.value.name == "sagemaker"


@pytest.mark.parametrize(("version", "major"), [("2.257.7", 2), ("3.27.0", 3)])
def test_installed_major_version_is_found(install: Any, tmp_path: Path, version: str, major: int) -> None:
    install("sagemaker", version)
    made = estimator_inputs(write(tmp_path, ""))
    assert (made.version, made.sdk.major) == (version, major)


@pytest.mark.parametrize("version", ["4.0.0", "1.72.1"])
def test_other_major_version_is_refused(install: Any, tmp_path: Path, version: str) -> None:
    install("sagemaker", version)
    with pytest.raises(RefusedError, match=rf"^sagemaker {version} is installed, but .* 2 and 3: pip install"):
        estimator_inputs(write(tmp_path, "")).channels()


AUGMENTED = (
    "train: {s3_uri: s3://bkt/m, s3_data_type: AugmentedManifestFile, attribute_names: [source-ref, class],"
    " input_mode: Pipe, record_wrapper_type: RecordIO}"
)


@pytest.fixture
def version_3(install: Any) -> None:
    install("sagemaker", "3.27.0")


@pytest.mark.usefixtures("version_3")
def test_entries_equal_the_requests_without_the_code(tmp_path: Path) -> None:
    code = "code: {directory: nowhere, entry_point: train.py}\nenvironment: {A: b}\n"
    file = write(tmp_path, f"{code}channels: {{b: s3://bucket/b/, {CONNECTOR}, a: s3://bucket/a/}}\n")
    with pytest.warns(UserWarning, match="1 channel.* that the script itself reads .* pass the trainer environment="):
        made = estimator_inputs(file)
    entries = made.entries
    assert [entry["ChannelName"] for entry in entries] == ["b", "a"]
    assert entries[0]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://bucket/b/"
    assert {name: json.loads(text) for name, text in made.environment.items()} == {
        "LAUNCHER_CONNECTOR_0": {"channel": "images", "s3_uri": "s3://bucket/i/", "style": "iterable"}
    }


@pytest.mark.usefixtures("version_3")
def test_attribute_names_are_in_the_environment(tmp_path: Path) -> None:
    file = write(
        tmp_path, f"code: {{directory: nowhere, entry_point: train.py}}\nchannels: {{{AUGMENTED}, a: s3://bkt/a/}}\n"
    )
    with pytest.warns(
        UserWarning, match="names of an augmented manifest's attributes, .* pass the trainer environment="
    ):
        made = estimator_inputs(file)
    assert made.environment == {"LAUNCHER_ATTRIBUTE_NAMES_0": '{"train": ["source-ref", "class"]}'}


@pytest.mark.usefixtures("version_3")
def test_spec_and_its_path_give_equal_inputs(tmp_path: Path) -> None:
    file = write(tmp_path, "")
    assert estimator_inputs(file) == estimator_inputs(str(file)) == estimator_inputs(launcher.load(str(file)))


@pytest.mark.usefixtures("version_3")
def test_wrong_spec_raises_spec_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"channels\.a\.input_mode.*aws-enum"):
        estimator_inputs(write(tmp_path, "channels: {a: {s3_uri: s3://bucket/a/, input_mode: Fastfile}}\n"))


@pytest.mark.usefixtures("version_3")
def test_unknown_channel_name_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, f"channels: {{train: s3://bucket/a/, {CONNECTOR}}}\n")
    with pytest.warns(UserWarning, match="environment="):
        made = estimator_inputs(file)
    for name, hint in (("trian", "; did you mean train?"), ("images", "")):
        with pytest.raises(KeyError, match=re.escape(f"'{name}' is not a channel that SageMaker delivers{hint}")):
            made.channels(name)


def warned(tmp_path: Path, overlay: str) -> tuple[EstimatorInputs, list[str]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = estimator_inputs(write(tmp_path, overlay))
    assert all(each.filename == __file__ for each in found)  # the caller's line, not ours
    return made, [str(each.message) for each in found]


def prefixes(count: int) -> str:
    return "channels: {" + ", ".join(f"c{number}: s3://bucket/{number}/" for number in range(count)) + "}\n"


@pytest.mark.usefixtures("version_3")
@pytest.mark.parametrize(
    ("overlay", "expected_warning"),
    [
        (
            "training_input_mode: FastFile\nchannels: {a: {s3_uri: s3://bucket/a/, input_mode: null}, b: s3://bucket/b/}\n",
            "a: no input mode of its own; pass the trainer training_input_mode='FastFile'",
        ),
        (
            "channels: {a: {s3_uri: s3://bucket/a/, s3_data_distribution_type: ShardedByS3Key}}\n",
            r".*job\.yaml:\d+:\d+: channels\.a\.\S+: .*\[channel-sharded-over-one\]",
        ),
    ],
)
def test_settings_for_the_trainer_are_a_warning(tmp_path: Path, overlay: str, expected_warning: str) -> None:
    _, found = warned(tmp_path, overlay)
    assert len(found) == 1
    assert re.fullmatch(expected_warning, found[0]), found[0]


@pytest.mark.usefixtures("version_3")
@pytest.mark.parametrize(
    "overlay",
    ["", prefixes(20), "training_input_mode: FastFile\n", "channels: {a: {s3_uri: s3://bkt/a/, input_mode: null}}\n"],
)
def test_complete_inputs_give_no_warning(tmp_path: Path, overlay: str) -> None:
    assert warned(tmp_path, overlay)[1] == []


def test_only_the_estimator_imports_the_sdk() -> None:
    importing = re.compile(
        r"""^\s*(import|from) sagemaker\b|import_module\(["']sagemaker|["']sagemaker\.(?!amazonaws)""", re.MULTILINE
    )
    files = [*(ROOT / "launcher").rglob("*.py"), *(ROOT / "entrypoints").rglob("*.py")]
    found = [str(file.relative_to(ROOT)) for file in files if importing.search(file.read_text(encoding="utf-8"))]
    assert found == ["launcher/estimator.py"]
