"""Rules on the channels of AWS's built-in algorithms: names, modes, content types. The image shows which one runs."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.checks.built_in.facts import facts
from launcher.checks.rule import Mistake, error, warning
from launcher.request.view import Draft, Entry


def is_augmented(entry: Entry | None) -> bool:
    """Return whether a channel is an augmented manifest, which includes the labels."""
    return entry is not None and entry.get("S3DataType") == "AugmentedManifestFile"


@warning("built-in-channel-missing")
def channels_that_it_needs(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm needs channels of certain names, `train` always among them.

    Image classification and object detection need `validation` too, seq2seq `validation` and `vocab`, and semantic
    segmentation `validation`, `train_annotation` and `validation_annotation`, unless the annotations are in an augmented
    manifest.
    Source: developer guide, cdf-training ("For all Amazon SageMaker algorithms, the ChannelName in InputDataConfig must be
    set to train"), common-info-all-im-models, image-classification, semantic-segmentation, seq-2-seq. It is a warning, since
    AWS's own examples and tests create jobs without some of them.
    """
    for name in facts(draft).needs:
        annotates = name.removesuffix("_annotation")
        if draft.entry(name) is None and not (annotates != name and is_augmented(draft.entry(annotates))):
            other = _meant_as(name, draft)
            remedy = f"add it, or rename {other.name} if you mean that" if other else "add a channel of this name"
            yield ("channels", name), f"is missing, and {draft.built_in} needs it; {remedy}"


def _meant_as(name: str, draft: Draft) -> Entry | None:
    """Return a channel that the algorithm does not know and whose name begins like the missing one's."""
    names = facts(draft).channels
    return next((entry for entry in draft.entries if entry.name not in names and entry.name.startswith(name[:5])), None)


@warning("built-in-channel-unknown")
def channels_that_it_knows(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm knows its channels, and may fail on others: "Extraneous channel found".

    Source: developer guide, common-info-all-im-models; aws/sagemaker-xgboost-container, channel_validation.py. It is a
    warning, since the table of known channels can be older than the algorithm.
    """
    known = facts(draft)
    renamed = [_meant_as(name, draft) for name in known.needs if draft.entry(name) is None]
    for entry in draft.entries if known.needs else ():
        if entry.name and entry.name not in known.channels and entry not in renamed:
            names = ", ".join(known.channels)
            yield entry.whole, f"is not a channel that {draft.built_in} is known to read: {names}; rename or delete it"


@error("built-in-input-mode")
def modes_that_it_reads(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms read files only, and LDA reads CSV only from files.

    Source: developer guide, common-info-all-im-models (DeepAR, IP Insights, Object2Vec, seq2seq: File), ip-insights, lda.
    """
    for entry in draft.entries:
        csv_of_lda = draft.built_in == "lda" and entry.content_type == "text/csv"
        if entry.mode == "Pipe" and (facts(draft).file_only or csv_of_lda):
            what = "reads CSV only" if csv_of_lda else "reads only"
            yield entry.path("input_mode"), f"is Pipe, but {draft.built_in} {what} in File mode; write File"


@warning("built-in-fast-file")
def fast_file_that_it_may_not_read(draft: Draft) -> Iterator[Mistake]:
    """Built-in algorithms that check the mode may not know FastFile.

    The guide states that a program that reads files can read them through FastFile; yet it lists only File for some
    algorithms, and XGBoost checks the mode and accepts File and Pipe.
    Source: developer guide, common-info-all-im-models; aws/sagemaker-xgboost-container, algorithm_mode/channel_validation.py.
    """
    for entry in draft.entries if facts(draft).file_only or draft.built_in == "xgboost" else ():
        if entry.mode == "FastFile":
            message = f"is FastFile, which {draft.built_in} is not documented to support; write File to be safe"
            yield entry.path("input_mode"), message


@error("built-in-distribution")
def distribution_that_it_needs(draft: Draft) -> Iterator[Mistake]:
    """Some built-in algorithms need certain channels replicated to every host, or sharded over the hosts.

    Random Cut Forest: `train` sharded, `test` replicated. Linear learner: `validation` replicated. NTM: all but `train`
    replicated.
    Source: developer guide, randomcutforest, linear-learner, ntm.
    """
    for wanted, names in (("FullyReplicated", facts(draft).replicated), ("ShardedByS3Key", facts(draft).sharded)):
        for entry in filter(None, map(draft.entry, names)):
            if not entry.is_file_system and entry.is_sharded != (wanted == "ShardedByS3Key"):
                message = f"must be {wanted} in channel {entry.name} of {draft.built_in}; write {wanted}"
                yield entry.path("s3_data_distribution_type"), message


@error("built-in-content-type")
def content_type_is_a_mime_type(draft: Draft) -> Iterator[Mistake]:
    """A built-in algorithm recognises data by its MIME type: text/csv, not csv.

    It fails with "No iterator has been registered for ContentType". XGBoost accepts short names too, DeepAR only short ones.
    Source: aws/sagemaker-python-sdk issue 819; developer guide, cdf-training.
    """
    names = {"csv": "text/csv", "json": "application/json", "jsonlines": "application/jsonlines"}
    for entry in draft.entries if facts(draft).needs else ():
        short = entry.content_type
        if short and "/" not in short and draft.built_in not in ("xgboost", "forecasting-deepar"):
            better = names.get(short, "text/csv or application/x-recordio-protobuf")
            message = f"{short!r} is not a MIME type, which {draft.built_in} needs; write {better}"
            yield entry.path("content_type"), message


@warning("built-in-csv-not-said")
def csv_has_a_content_type(draft: Draft) -> Iterator[Mistake]:
    """Without a content type a built-in algorithm reads CSV as something else, most as RecordIO-protobuf, XGBoost as LibSVM.

    Source: developer guide, cdf-training and xgboost ("text/libsvm (default)").
    """
    for entry in draft.entries if "text/csv" in facts(draft).content_types else ():
        uri = entry.get("S3Uri") or ""
        if not entry.content_type and uri.lower().endswith(".csv"):
            yield entry.path("content_type"), f"is missing, and {uri!r} is not read as CSV without it; write text/csv"


@warning("built-in-label-size")
def csv_without_labels(draft: Draft) -> Iterator[Mistake]:
    """Unsupervised algorithms treat the first column of CSV as a label unless the content type has label_size=0.

    Source: developer guide, cdf-training ("To run unsupervised learning algorithms that don't have a target, specify the
    number of label columns in the content type ... content_type=text/csv;label_size=0").
    """
    entry = draft.entry("train") if facts(draft).unlabelled else None
    if entry and entry.content_type == "text/csv" and "label_size" not in entry.get("ContentType"):
        message = f"makes {draft.built_in} treat the first column as a label; write text/csv;label_size=0"
        yield entry.path("content_type"), message
