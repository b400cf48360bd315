"""Making the directory of a channel, and removing what a provider made, without ever deleting through a mount or a link.

A directory on which something may still be mounted is only ever removed by `rmdir`, which fails there: deleting its content
would delete the user's own files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from launcher.errors import RefusedError
from launcher.local.data.delivery import BindMount, Delivery


def one_by_one(
    provide: Callable[[Delivery], AbstractContextManager[Sequence[BindMount]]],
) -> Callable[..., AbstractContextManager[Sequence[BindMount]]]:
    """Let a provider of one delivery take any number of them, which share nothing."""

    @contextmanager
    def provide_all(*deliveries: Delivery) -> Iterator[Sequence[BindMount]]:
        with ExitStack() as stack:
            yield tuple(bind for delivery in deliveries for bind in stack.enter_context(provide(delivery)))

    return provide_all


@contextmanager
def empty_directory(delivery: Delivery) -> Iterator[Path]:
    """`delivery.directory`, made and empty; removed on leaving if it is empty again by then, else a warning.

    Raises RefusedError where something is there already.
    """
    directory = delivery.directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise occupied(delivery, error) from error
    if any(directory.iterdir()):
        raise occupied(delivery, OSError(0, "it is not empty"))
    try:
        yield directory
    finally:
        try:
            directory.rmdir()
        except OSError as error:
            delivery.on_warning(
                f"{directory} could not be removed ({error.strerror}); look whether it is still mounted"
            )


def occupied(delivery: Delivery, error: OSError) -> RefusedError:
    """The refusal where the channel's place is taken."""
    return RefusedError(
        f"channel {delivery.name!r}: cannot make {delivery.directory} ({error.strerror}); every run needs a directory of its own"
    )


def remove_tree(directory: Path, on_warning: Callable[[str], None]) -> None:
    """Removes a directory of our own files and links, of which the job may have removed some; a warning where it fails.

    Links are removed, not followed. Never for a directory on which something was mounted.
    """
    if not directory.exists():
        return
    try:
        shutil.rmtree(directory)
    except OSError as error:
        on_warning(f"{directory} could not be removed ({error}); remove it by hand")
