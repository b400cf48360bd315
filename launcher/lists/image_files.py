"""The images below a folder or an S3 prefix, by relative path, in the order in which a channel yields them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launcher.console import counted
from launcher.errors import InputError, did_you_mean_path
from launcher.lists.files import is_s3, named
from launcher.s3.uri import parse_s3_uri

if TYPE_CHECKING:
    from launcher.aws.account import Account

ENDINGS = (".jpeg", ".jpg", ".png")  # im2rec's; the built-in image classification reads no others


class Found(NamedTuple):
    """The images and other files below a folder or a prefix."""

    paths: list[str]  # of the images
    skipped: Counter[str]  # other files by ending; "hidden" for those below a name that begins with a dot


def find_images(place: str, endings: Collection[str], account: Callable[[], Account]) -> Found:
    """Return the images of a folder or prefix, which may be named without its final slash.

    Raises:
        InputError: There is no such folder, or no image in it.
        AwsError: AWS refuses the listing.
    """
    paths, skipped = [], Counter[str]()
    for path in _keys(place, account) if is_s3(place) else _files(place):
        ending = ending_of(path)
        if path.startswith(".") or "/." in path:
            skipped["hidden"] += 1
        elif ending in endings:
            paths.append(path)
        else:
            skipped[ending or "no ending"] += 1
    if not paths:
        others = f", only {described(skipped)}" if skipped else ""
        remedy = ", or pass --ending to `launch lst make`" if skipped else ""
        raise InputError(
            f"{place}: no images below it{others}; name the folder that holds the classes' folders{remedy}"
        )
    return Found(paths, skipped)


def ending_of(path: str) -> str:
    """Return `.jpg`, in lower case; empty for a name without a dot."""
    name = path[path.rfind("/") + 1 :]
    dot = name.rfind(".")
    return name[dot:].lower() if dot > 0 else ""


def described(skipped: Counter[str]) -> str:
    """Return `12 other files (.txt 10, hidden 2)`."""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in skipped.most_common(5))
    return f"{counted(skipped.total(), 'other file')} ({kinds})"


def _files(folder: str) -> Iterator[str]:
    from sagemaker_channels.readers.mounted import walk  # imports all readers, which `launch --help` need not wait for

    if not Path(folder).is_dir():
        raise InputError(f"{folder}: there is no such folder{did_you_mean_path(folder, Path.is_dir)}")
    try:
        yield from map(os.fsdecode, walk(os.fsencode(os.path.realpath(folder))))
    except OSError as error:
        raise InputError(f"{error.filename!r}: cannot be read: {error.strerror}") from None


def _keys(uri: str, account: Callable[[], Account]) -> Iterator[str]:
    bucket, prefix = parse_s3_uri(uri)
    prefix = f"{prefix.rstrip('/')}/" if prefix else ""
    with named(uri):
        for page in account().pages("s3", "list_objects_v2", Bucket=bucket, Prefix=prefix):
            for each in page.get("Contents", ()):
                if not each["Key"].endswith("/"):  # the console's markers of empty folders
                    yield each["Key"][len(prefix) :]
