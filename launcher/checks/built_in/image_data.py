"""Rules on the channels of the three built-in algorithms that read images: files with lists, RecordIO, augmented manifests."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.built_in.channels import is_augmented
from launcher.checks.rule import Mistake, error
from launcher.request.view import Draft, Entry

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
    other = any(is_augmented(entry) or _is_recordio(entry) for entry in channels)
    return not other and (lists or any(entry.content_type in _IMAGE_TYPES for entry in channels))


@error("built-in-image-lists")
def images_need_lists(draft: Draft) -> Iterator[Mistake]:
    """Images as files need further channels with their labels.

    Image classification: train_lst and validation_lst, and all four channels need a content type of images, the lists too;
    object detection: train_annotation and validation_annotation. RecordIO and augmented manifests include the labels.
    Source: developer guide, image-classification ("Set the content type for all four channels to application/x-image"; it
    accepts image/png and image/jpeg as well) and object-detection.
    """
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
            yield entry.path("content_type"), message


@error("built-in-recordio-pipe")
def recordio_pipes_are_replicated(draft: Draft) -> Iterator[Mistake]:
    """Image classification streams RecordIO to every host in full.

    Source: developer guide, image-classification ("When using the RecordIO content type in pipe mode, you must set the
    S3DataDistributionType of the S3DataSource to FullyReplicated").
    """
    for entry in draft.entries if draft.built_in == "image-classification" else ():
        if entry.mode == "Pipe" and _is_recordio(entry) and entry.is_sharded and not is_augmented(entry):
            message = f"must be FullyReplicated for RecordIO in Pipe mode of {draft.built_in}; write FullyReplicated"
            yield entry.path("s3_data_distribution_type"), message


@error("built-in-augmented-manifest")
def augmented_images_are_wrapped(draft: Draft) -> Iterator[Mistake]:
    """The algorithms for images read augmented manifests as RecordIO, the image's attribute before the label's.

    Otherwise they fail with "The Record IO header does not start with the magic number", or read the label as an image.
    Source: developer guide, image-classification, object-detection and semantic-segmentation; aws/amazon-sagemaker-examples
    issue 562.
    """
    for entry in draft.entries if draft.built_in in _READS_IMAGES else ():
        if not is_augmented(entry):
            continue
        if entry.get("RecordWrapperType") != "RecordIO":
            message = f"must be RecordIO, since {draft.built_in} reads augmented manifests as records; write RecordIO"
            yield entry.path("record_wrapper_type"), message
        names = entry.get("AttributeNames") or ("-ref",)
        if not names[0].endswith("-ref") and any(name.endswith("-ref") for name in names):
            yield entry.path("attribute_names"), "must name the image before its label, such as [source-ref, class]"


def _is_recordio(entry: Entry) -> bool:
    return entry.content_type == "application/x-recordio"
