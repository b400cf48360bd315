"""Rules on the channels, hyperparameters, metrics and machines of AWS's built-in algorithms. The image shows which one runs.

algorithms.yaml is the table of their requirements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from launcher.request.image_uris import built_in_algorithm
from launcher.request.view import Draft, Entry
from launcher.rules.job.network import is_of_marketplace
from launcher.rules.rule import Mistake, error, warning
from launcher.tables import read_table

_HOUR = 3600  # seconds


class BuiltIn(NamedTuple):
    """One algorithm, named like the repository of its image."""

    needs: Sequence[str] = ("train",)  # channels that it requires
    takes: Sequence[str] = ()  # optional channels; others may be refused
    hyperparameters: Sequence[str] = ()  # hyperparameters that it requires
    replicated: Sequence[str] = ()  # channels that must be FullyReplicated
    sharded: Sequence[str] = ()  # channels that must be ShardedByS3Key
    content_types: Sequence[str] = ()  # the MIME types that it reads; empty if it ignores them
    file_only: bool = False  # whether it reads File mode only
    gpu_only: bool = False
    cpu_only: bool = False
    one_instance: bool = False
    keeps_checkpoints: bool = False
    unlabelled: bool = False  # whether its CSV has no column of labels; the content type then needs label_size=0

    @property
    def channels(self) -> Sequence[str]:
        return (*self.needs, *self.takes)


_NONE = BuiltIn(needs=())


@cache
def built_ins() -> dict[str, BuiltIn]:
    return {name: BuiltIn(**known) for name, known in read_table(__file__, "algorithms").items()}


def facts(draft: Draft) -> BuiltIn:
    """Return the requirements of the built-in algorithm that runs; those of a script or another image are empty."""
    return _NONE if draft.built_in is None else built_ins().get(draft.built_in, _NONE)


@warning("built-in-channel-missing")
def channels_that_it_needs(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm needs channels of certain names, `train` always among them."""
    for name in facts(draft).needs:
        annotates = name.removesuffix("_annotation")
        images = draft.entry(annotates) if annotates != name else None
        if draft.entry(name) is None and not (images and images.is_augmented):
            other = _meant_as(name, draft)
            remedy = f"add it, or rename {other.name} if you mean that" if other else "add a channel of this name"
            yield ("channels", name), f"is missing, and {draft.built_in} needs it; {remedy}"


def _meant_as(name: str, draft: Draft) -> Entry | None:
    """Return a channel that the algorithm does not know and whose name begins like the missing one's."""
    names = facts(draft).channels
    return next((entry for entry in draft.entries if entry.name not in names and entry.name.startswith(name[:5])), None)


@warning("built-in-channel-unknown")
def channels_that_it_knows(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm knows its channels, and may fail on others: "Extraneous channel found"."""
    known = facts(draft)
    renamed = [_meant_as(name, draft) for name in known.needs if draft.entry(name) is None]
    for entry in draft.entries if known.needs else ():
        if entry.name and entry.name not in known.channels and entry not in renamed:
            names = ", ".join(known.channels)
            yield entry.whole, f"is not a channel that {draft.built_in} is known to read: {names}; rename or delete it"


@error("built-in-input-mode")
def modes_that_it_reads(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms read files only, and LDA reads CSV only from files."""
    for entry in draft.entries:
        csv_of_lda = draft.built_in == "lda" and entry.content_type == "text/csv"
        if entry.mode == "Pipe" and (facts(draft).file_only or csv_of_lda):
            what = "reads CSV only" if csv_of_lda else "reads only"
            yield entry.path("InputMode"), f"is Pipe, but {draft.built_in} {what} in File mode; write File"


@warning("built-in-fast-file")
def fast_file_that_it_may_not_read(draft: Draft) -> Iterator[Mistake]:
    """Built-in algorithms that check the mode may not know FastFile."""
    for entry in draft.entries if facts(draft).file_only or draft.built_in == "xgboost" else ():
        if entry.mode == "FastFile":
            message = f"is FastFile, which {draft.built_in} is not documented to support; write File to be safe"
            yield entry.path("InputMode"), message


@error("built-in-distribution")
def distribution_that_it_needs(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms need certain channels replicated to every host, or sharded over the hosts."""
    for wanted, names in (("FullyReplicated", facts(draft).replicated), ("ShardedByS3Key", facts(draft).sharded)):
        for entry in filter(None, map(draft.entry, names)):
            if not entry.is_file_system and entry.is_sharded != (wanted == "ShardedByS3Key"):
                message = f"must be {wanted} in channel {entry.name} of {draft.built_in}; write {wanted}"
                yield entry.path("S3DataDistributionType"), message


@error("built-in-content-type")
def content_type_is_a_mime_type(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm recognises data by its MIME type: text/csv, not csv."""
    names = {"csv": "text/csv", "json": "application/json", "jsonlines": "application/jsonlines"}
    for entry in draft.entries if facts(draft).needs else ():
        short = entry.content_type
        if short and "/" not in short and draft.built_in not in ("xgboost", "forecasting-deepar"):
            better = names.get(short, "text/csv or application/x-recordio-protobuf")
            message = f"{short!r} is not a MIME type, which {draft.built_in} needs; write {better}"
            yield entry.path("ContentType"), message


@warning("built-in-csv-not-said")
def csv_has_a_content_type(draft: Draft) -> Iterator[Mistake]:
    """Without a content type a built-in algorithm reads CSV as something else, most as RecordIO-protobuf, XGBoost as LibSVM."""
    for entry in draft.entries if "text/csv" in facts(draft).content_types else ():
        uri = entry.get("S3Uri") or ""
        if not entry.content_type and uri.lower().endswith(".csv"):
            yield entry.path("ContentType"), f"is missing, and {uri!r} is not read as CSV without it; write text/csv"


@warning("built-in-label-size")
def csv_without_labels(draft: Draft) -> Iterator[Mistake]:
    """Unsupervised algorithms treat the first column of CSV as a label unless the content type has label_size=0."""
    entry = draft.entry("train") if facts(draft).unlabelled else None
    if entry and entry.content_type == "text/csv" and "label_size" not in entry.get("ContentType"):
        message = f"makes {draft.built_in} treat the first column as a label; write text/csv;label_size=0"
        yield entry.path("ContentType"), message


_IMAGE_TYPES = ("application/x-image", "image/png", "image/jpeg")
# The channels with the labels of images in files: one for train, one for validation.
_LISTS = {
    "image-classification": ("train_lst", "validation_lst"),
    "object-detection": ("train_annotation", "validation_annotation"),
}
_READS_IMAGES = ("image-classification", "object-detection", "semantic-segmentation")


def _images_as_files(draft: Draft) -> bool:
    """Return whether the images are files with separate labels, not RecordIO or an augmented manifest."""
    channels = [entry for entry in map(draft.entry, ("train", "validation")) if entry is not None]
    lists = any(draft.entry(name) is not None for name in _LISTS.get(draft.built_in or "", ()))
    other = any(entry.is_augmented or _is_recordio(entry) for entry in channels)
    return not other and (lists or any(entry.content_type in _IMAGE_TYPES for entry in channels))


@error("built-in-image-lists")
def images_need_lists(draft: Draft) -> Iterator[Mistake]:
    """Images as files need further channels with their labels."""
    lists = _LISTS.get(draft.built_in or "")
    if lists is None or not _images_as_files(draft):
        return
    for name in lists:
        if draft.entry(name) is None:
            yield ("channels", name), f"is missing, and {draft.built_in} needs it to read images as files; add it"
    if draft.built_in != "image-classification":
        return
    for entry in filter(None, map(draft.entry, ("train", "validation", *lists))):
        if entry.content_type not in _IMAGE_TYPES:
            what = f"is {entry.content_type!r}" if entry.content_type else "is missing"
            message = f"{what}, but {draft.built_in} recognises images by it; write application/x-image"
            yield entry.path("ContentType"), message


@error("built-in-recordio-pipe")
def recordio_pipes_are_replicated(draft: Draft) -> Iterator[Mistake]:
    """Image classification streams RecordIO to every host in full."""
    for entry in draft.entries if draft.built_in == "image-classification" else ():
        if entry.mode == "Pipe" and _is_recordio(entry) and entry.is_sharded and not entry.is_augmented:
            message = f"must be FullyReplicated for RecordIO in Pipe mode of {draft.built_in}; write FullyReplicated"
            yield entry.path("S3DataDistributionType"), message


@error("built-in-augmented-manifest")
def augmented_images_are_wrapped(draft: Draft) -> Iterator[Mistake]:
    """The algorithms for images read augmented manifests as RecordIO, the image's attribute before the label's."""
    for entry in draft.entries if draft.built_in in _READS_IMAGES else ():
        if not entry.is_augmented:
            continue
        if entry.get("RecordWrapperType") != "RecordIO":
            message = f"must be RecordIO, since {draft.built_in} reads augmented manifests as records; write RecordIO"
            yield entry.path("RecordWrapperType"), message
        names = entry.get("AttributeNames") or ("-ref",)
        if not names[0].endswith("-ref") and any(name.endswith("-ref") for name in names):
            yield entry.path("AttributeNames"), "must name the image before its label, such as [source-ref, class]"


def _is_recordio(entry: Entry) -> bool:
    return entry.content_type == "application/x-recordio"


@warning("built-in-hyperparameter-missing")
def hyperparameters_that_it_needs(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm fails without the hyperparameters that its page marks as required."""
    several = draft.built_in == "xgboost" and str(draft.get("HyperParameters.objective")).startswith("multi:")
    needed = (*facts(draft).hyperparameters, *(["num_class"] if several else []))
    for name in needed:
        if draft.get(f"HyperParameters.{name}") is None:
            yield ("HyperParameters", name), f"is missing, and {draft.built_in} requires it; add it"


@warning("built-in-hyperparameter-quotes")
def hyperparameters_are_plain(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm reads hyperparameters as they are; JSON's quotes, which script mode sends, would be part of them."""
    if facts(draft).needs:
        for name, value in (draft.get("HyperParameters") or {}).items():
            if len(value) >= 2 and value[0] == value[-1] == '"':
                message = f"has quotes inside, which {draft.built_in} does not remove; delete them"
                yield ("HyperParameters", name), message


@warning("built-in-metrics")
def metrics_are_its_own(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm has its own metrics, which a job cannot redefine."""
    algorithm = built_in_algorithm(draft.image)
    if algorithm and draft.get("AlgorithmSpecification.MetricDefinitions"):
        message = f"are refused for {algorithm}, which has its own; delete them"
        yield ("AlgorithmSpecification", "MetricDefinitions"), message


@error("built-in-instance-type")
def machines_that_it_runs_on(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms train on GPUs only, LDA on a CPU only."""
    known = facts(draft)
    for path, found in draft.instance_types:
        if known.gpu_only and found.has_gpu is False:
            what = f"{found.name} has no GPU, and {draft.built_in} trains on GPUs only"
            yield path, f"{what}; write one such as ml.g5.xlarge"
        elif known.cpu_only and found.is_accelerated:
            what = f"{found.name} is not for {draft.built_in}, which trains on CPUs only"
            yield path, f"{what}; write one such as ml.m5.xlarge"


@error("built-in-one-instance")
def instances_that_it_takes(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms train on one instance only: LDA, Object2Vec, semantic segmentation and seq2seq."""
    count = draft.instance_count or 0
    if facts(draft).one_instance and count > 1:
        yield ("ResourceConfig", "InstanceCount"), f"is {count}, but {draft.built_in} trains on one instance; write 1"


@error("built-in-spot-wait")
def spot_wait_within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm that keeps no checkpoints may wait for spot capacity, and run, for an hour at most."""
    known, wait = facts(draft), draft.get("StoppingCondition.MaxWaitTimeInSeconds") or 0
    if known.needs and not known.keeps_checkpoints and draft.is_spot and wait > _HOUR:
        what = f"is {wait}, but AWS allows {_HOUR} on spot for {draft.built_in}, which keeps no checkpoints"
        yield ("StoppingCondition", "MaxWaitTimeInSeconds"), f"{what}; write {_HOUR}"


@warning("marketplace-spot-wait")
def marketplace_wait_within_an_hour(draft: Draft) -> Iterator[Mistake]:
    """An algorithm of AWS Marketplace may wait for spot capacity for an hour at most, unless it keeps checkpoints."""
    wait = draft.get("StoppingCondition.MaxWaitTimeInSeconds") or 0
    if is_of_marketplace(draft) and draft.is_spot and wait > _HOUR:
        what = f"is {wait}, but AWS allows algorithms of AWS Marketplace without checkpoints {_HOUR}"
        yield ("StoppingCondition", "MaxWaitTimeInSeconds"), f"{what}; write {_HOUR} if it keeps none"
