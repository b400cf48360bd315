"""What a user's folder, and a prefix in S3, hold for a job: a training script, its requirements, and the data of channels."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from launcher.account.storage import as_folder
from launcher.advice.facts import Inventory, Use
from launcher.advice.prediction import predict
from launcher.advice.ways import WAYS
from launcher.aws.session import Account
from launcher.errors import InputError, has_folder, no_folder
from launcher.s3.uri import S3Location, parse_s3_uri
from launcher.survey.channels import Channel, objects_of
from launcher.survey.inventory import format_of_name, take_inventory
from sagemaker_channels import contract

_MOST_FOLDERS = 20_000  # that are looked at
_MOST_OBJECTS = 10_000  # of a channel
_MOST_SCRIPTS = 200  # that are read
_EPOCHS = 10  # by which File and FastFile are compared
_LEFT_OUT = {"__pycache__", "node_modules", "site-packages", "venv"}
_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "eval"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_OBJECTS = re.compile(  # by kind
    r".*\.(?:(?P<image>jpe?g|png|gif|bmp|webp|tiff?)|(?P<array>npy|npz)|(?P<audio>wav|flac))(?:\.gz)?", re.I
)
_BESIDE_IMAGES = ("masks", "labels", "annotations")  # folders whose files, of any kind, belong to images
_DESCRIPTION = re.compile(r"data(set)?\.ya?ml", re.I)  # of YOLO: its paths lead to all folders beside it
_NAME = "[A-Za-z0-9][A-Za-z0-9_-]*"
_READ = re.compile(  # a channel, by its variable, our library, or its folder or FIFO
    r"SM_CHANNEL_([A-Za-z0-9][A-Za-z0-9_]*)(?!\w)"
    rf"""|(?:Channel(?:Map)?Dataset|open_channel)\(\s*["']({_NAME})["']"""
    rf"|{contract.BASE_DIR}/{contract.DATA_DIR}/({_NAME}?)(?:_\d*)?(?![\w-])"
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.M)  # of a script
_OF_CODE = ("code", contract.CODE_CHANNEL)  # channels of SDK v3 and of ours
_NO_SCRIPT = re.compile(r"(test_.*|.*_test|setup|conftest|__init__)\.py")
Files = Mapping[PurePosixPath, list[str]]  # by folder
Places = dict[PurePosixPath, str | None]  # with the split that a place is named for


class Folder(NamedTuple):
    """What was found; all paths are relative to the folder."""

    script: PurePosixPath | None  # the training script
    code: PurePosixPath  # the folder to send
    requirements: PurePosixPath | None
    lists: list[PurePosixPath]  # .lst files
    channels: dict[str, PurePosixPath]
    left_over: list[PurePosixPath]  # files of data beside the channels
    outside: list[PurePosixPath]  # links out of the folder
    reads: list[str]  # channels; this and what follows as far as the script's text shows
    uses_gpu: bool
    needs_torchrun: bool


def look_at_folder(root: Path) -> Folder:
    """Look for the script, its requirements, lists and data; each folder once, also of links to it. Raises InputError."""
    if not has_folder(root):
        raise no_folder(root)
    top, links = root.resolve(), list[PurePosixPath]()
    seen, files = {top}, dict[PurePosixPath, list[str]]()
    for folder, names, found in islice(os.walk(root, followlinks=True), _MOST_FOLDERS):
        here, below = Path(folder), PurePosixPath(Path(folder).relative_to(root))
        folders = [each for each in sorted(names) if each[0] != "." and each not in _LEFT_OUT]
        for each in (*folders, *(each for each in found if not _kind(each))):
            if (here / each).is_symlink() and not (here / each).resolve().is_relative_to(top):
                links.append(below / each)
        names.clear()
        for each in folders:
            place = (here / each).resolve()
            if place not in seen and not (place / "pyvenv.cfg").exists():
                names.append(each)
                seen.add(place)
        files[below] = sorted(each for each in found if each[0] != ".")
    script = _script(root, files)
    code = script.parent if script else PurePosixPath()
    while "__init__.py" in files[code] and code.parent != code:
        code = code.parent
    above = [each for each in (code, *code.parents) if "requirements.txt" in files[each]]
    code = above[0] if above and script else code
    lists = [folder / each for folder, found in files.items() for each in found if each.endswith(".lst")]
    requirements = code / "requirements.txt" if above and script else None
    text = _program(root / script) if script else ""
    found = [(variable.lower() or name or folder) for variable, name, folder in _READ.findall(text)]
    reads = {each.lower(): each for each in found if each not in _OF_CODE}
    channels = _channels(files, text, reads)
    needs_torchrun = "init_process_group(" in text and "SM_HOSTS" not in text  # of which scripts make RANK themselves
    named = [*reads.values()]
    return Folder(script, code, requirements, lists, *channels, links, named, "cuda" in text, needs_torchrun)


def _program(script: Path) -> str:
    """Return a script's text without its comments; nothing of what cannot be read, such as a link to nothing."""
    try:
        return _COMMENT.sub("", script.read_text("utf-8", "replace")) if script.is_file() else ""
    except OSError:
        return ""


def _script(root: Path, files: Files) -> PurePosixPath | None:
    """Return train.py, the nearest to the top, else one with `train` in its name, else main.py, else the only script.

    Of several others, return the only one that reads a channel and is a program of its own.
    """
    found = [
        folder / each
        for folder, names in files.items()
        for each in names
        if each.endswith(".py") and not _NO_SCRIPT.fullmatch(each) and "tests" not in folder.parts
    ]

    def rank(path: PurePosixPath) -> int:
        return 0 if path.name == "train.py" else 1 if "train" in path.stem else 2 if path.stem in ("main", "run") else 3

    first = min(found, key=lambda path: (rank(path), len(path.parts), path), default=None)
    if first is None or rank(first) < 3 or len(found) == 1:
        return first
    texts = ((each, _program(root / each)) for each in found[:_MOST_SCRIPTS])
    reading = [each for each, text in texts if "__main__" in text and _READ.search(text)]
    return reading[0] if len(reading) == 1 else None


def _channels(
    files: Files, script: str, reads: Mapping[str, str]
) -> tuple[dict[str, PurePosixPath], list[PurePosixPath]]:
    """Return the places of the channels by name, and the files of data in none.

    A channel has the name by which the script reads it, if that is the place's own, or the only one. Else the split's usual name is
    the channel's, unless the script's text has only the folder's own name.
    """
    data = {folder: _data_in(folder, names) for folder, names in files.items()}
    with_code = {above for folder, names in files.items() if any(map(_is_python, names)) for above in _up(folder)}
    whole = {folder for folder, names in files.items() if any(map(_DESCRIPTION.fullmatch, names))} - with_code
    places = _places(data, with_code, whole)
    beside = [folder for folder in data if folder not in with_code and not places.keys() & {*_up(folder)}]
    left_over = [folder / each for folder in beside for each in data[folder] if folder / each not in places]
    if len(places) == 1:
        [place] = places
        usual = "train" if len(reads) != 1 else next(iter(reads.values()))
        return {reads.get(place.stem.lower(), usual): place}, left_over
    texts, order = {*re.findall(r"""["']([\w-]+)["']""", script)}, [*_SPLITS.values(), None]
    channels: dict[str, PurePosixPath] = {}
    for place, split in sorted(places.items(), key=lambda each: order.index(each[1])):
        own = _word(place.name)
        name = own if split and split not in texts and own in texts else split or reads.get(place.stem.lower())
        channels[name if name and name not in channels else _channel_name(place)] = place
    return channels, left_over


def _channel_name(place: PurePosixPath) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", "-".join(place.parts)).strip("-")[:60] or "data"


def _places(
    data: Mapping[PurePosixPath, dict[str, str]], with_code: set[PurePosixPath], whole: set[PurePosixPath]
) -> Places:
    """Return the folders and files that are channels, each with its split or None.

    The folders `whole` are channels, and folders and files named like a split. Other folders are one as a whole, such as those of
    classes, unless they have Python files, splits, or only folders of different kinds, such as images and masks: then what is in
    them is looked at.
    """
    kinds, inside = defaultdict[PurePosixPath, set[str]](set), defaultdict[PurePosixPath, set[PurePosixPath]](set)
    divided, places = {*with_code}, Places()
    for folder, own in data.items():
        for each in _up(folder) if own else ():
            kinds[each].update(own.values())
            inside[each.parent].add(each)
            divided.update(each.parents if each.name.lower() in _SPLITS else ())
        if of_splits := _files_of_splits(own, with_code=folder in with_code):
            divided.update(_up(folder))
            if not any(each[1:] for each in of_splits.values()):
                places |= {folder / each[0]: split for split, each in of_splits.items()}
    for folder in sorted(kinds):  # a folder before those in it
        split = None if folder in with_code else _SPLITS.get(folder.name.lower())
        is_mixed = not data[folder] and not set.intersection(*(kinds[each] for each in inside[folder] - {folder}))
        if not places.keys() & {*folder.parents} and (split or folder in whole or not (folder in divided or is_mixed)):
            places[folder] = split
    return places


def _data_in(folder: PurePosixPath, names: Iterable[str]) -> dict[str, str]:
    """Return the files of data of a folder, each with its kind: that of masks or labels by a folder's name, else by the ending."""
    beside = next((part.lower() for part in folder.parts if part.lower() in _BESIDE_IMAGES), None)
    kinds = {each: beside or _kind(each) for each in names}
    return {each: kind for each, kind in kinds.items() if kind and not _is_python(each)}


def _kind(name: str) -> str | None:
    found = _OBJECTS.fullmatch(name)
    return found.lastgroup if found else format_of_name(re.sub(r"\.gz$", "", name, flags=re.I))


def _up(folder: PurePosixPath) -> tuple[PurePosixPath, ...]:
    return (folder, *folder.parents)


def _word(name: str) -> str:
    """Return the word that a name begins with: train for train.csv and train-00000-of-00002.parquet."""
    return re.split(r"[^A-Za-z]", name)[0]


def _files_of_splits(kinds: Mapping[str, str], *, with_code: bool = False) -> dict[str, list[str]]:
    """Return tables and shards by the split that they are named for, if there are several splits.

    Beside code, train alone suffices, and only whole names count.
    """
    found: dict[str, list[str]] = {}
    for each, kind in kinds.items():
        split = _SPLITS.get((each.partition(".")[0] if with_code else _word(each)).lower())
        if split and kind not in ("image", "audio", *_BESIDE_IMAGES):
            found.setdefault(split, []).append(each)
    return found if len(found) > 1 or (with_code and "train" in found) else {}


def _is_python(name: str) -> bool:
    return name.endswith(".py")


def prefixes_in(uri: str, account: Account) -> tuple[dict[str, str], list[str]]:
    """Return the URIs of the channels below a prefix, and of its other folders.

    Channels are the folders that are named like a split, or all if one has masks or labels, also below folders that are alone, as
    `images/` may be above `train/` and `val/`; else the prefix itself, as with a data.yaml, which describes all folders beside it.

    Raises InputError if it has files of several splits: the key of a file as a prefix begins other keys, too, and FastFile has
    none. Raises RefusedError if it is no URI, or AWS refuses to list it.
    """
    bucket, key = parse_s3_uri(uri)
    key = as_folder(key)
    below, data, inside = [key], dict[str, str](), dict[str, str]()
    while len(below) == 1 and not data and not {*map(str.lower, inside)} & {*_SPLITS, *_BESIDE_IMAGES}:
        [here] = below
        page = account.call("s3", "list_objects_v2", Bucket=bucket, Prefix=here, Delimiter="/")
        below = [each["Prefix"] for each in page.get("CommonPrefixes", ())]
        inside = {PurePosixPath(each).name: f"s3://{bucket}/{each}" for each in below}
        names = [PurePosixPath(each["Key"]).name for each in page.get("Contents", ())]
        data = _data_in(PurePosixPath(), names)
        if any(map(_DESCRIPTION.fullmatch, names)):
            return {"train": f"s3://{bucket}/{here}"}, []
    splits = {_SPLITS.get(name.lower()): uri for name, uri in reversed(inside.items())}
    named = {name: splits[name] for name in _SPLITS.values() if name in splits}
    if not named and any(name.lower() in _BESIDE_IMAGES for name in inside):
        named = {_channel_name(PurePosixPath(name)): uri for name, uri in inside.items()}
    if not named and (files := _files_of_splits(data)):
        raise InputError(
            f"s3://{bucket}/{here}: has files of {', '.join(files)}; move the files of each into a folder named for it"
        )
    if not named:
        return {"train": f"s3://{bucket}/{key}"}, []
    return named, [each for each in inside.values() if each not in named.values()]


def inventory_of(place: Path | str, account: Account) -> Inventory:
    """Return what a folder, a file or a prefix holds, of its first 10,000 objects. Raises RefusedError."""
    folder = place if isinstance(place, Path) else None
    file = folder.name if folder and folder.is_file() else ""
    folder = folder.parent if folder and file else folder
    channel = Channel("data", S3Location("folder", "") if folder else parse_s3_uri(str(place)), folder=folder)
    with objects_of(channel, account, None) as (objects, below):
        below = below._replace(key=file or below.key)
        return take_inventory(objects, below, "S3", named=[file] if file else None, most=_MOST_OBJECTS)


def mode_of(inventory: Inventory) -> str:
    """Return the faster of File and FastFile, by the estimates of `launch advise`."""
    ways = {name: WAYS[name] for name in ("File", "FastFile")}
    return next(each.way for each in predict(inventory, Use(epochs=_EPOCHS), ways=ways) if not each.shards)
