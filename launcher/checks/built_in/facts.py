"""What each of SageMaker's built-in algorithms wants: the facts that `built_in`'s rules need.

Source: AWS developer guide (2023): common-info-all-im-models (channels, modes, instances), model-checkpoints (which keep
checkpoints), and each algorithm's own pages (hyperparameters marked as required, content types, distribution).
"""

from __future__ import annotations

from typing import NamedTuple

from launcher.request.view import Draft

_PROTOBUF_OR_CSV = ("application/x-recordio-protobuf", "text/csv")


class BuiltIn(NamedTuple):
    """One algorithm. Its names are those of its images' repositories."""

    needs: tuple[str, ...] = ("train",)
    """Channels without which it fails."""
    takes: tuple[str, ...] = ()
    """Channels that it reads besides; any other is refused."""
    hyperparameters: tuple[str, ...] = ()
    """Hyperparameters without which it fails."""
    replicated: tuple[str, ...] = ()
    """Channels of which every host must have all."""
    sharded: tuple[str, ...] = ()
    """Channels of which every host must have its share."""
    content_types: tuple[str, ...] = ()
    """What data it reads; empty where it does not look."""
    file_only: bool = False
    """Whether it cannot read a stream."""
    gpu_only: bool = False
    cpu_only: bool = False
    one_instance: bool = False
    keeps_checkpoints: bool = False
    unlabelled: bool = False
    """Whether its CSV has no column of labels, which has to be said: label_size=0."""


BUILT_INS: dict[str, BuiltIn] = {
    "blazingtext": BuiltIn(takes=("validation",), hyperparameters=("mode",)),
    "factorization-machines": BuiltIn(
        takes=("test",),
        hyperparameters=("feature_dim", "num_factors", "predictor_type"),
        content_types=("application/x-recordio-protobuf",),
    ),
    "forecasting-deepar": BuiltIn(
        takes=("test",),
        hyperparameters=("context_length", "epochs", "prediction_length", "time_freq"),
        file_only=True,
    ),
    "image-classification": BuiltIn(
        needs=("train", "validation"),
        takes=("train_lst", "validation_lst", "model"),
        hyperparameters=("num_classes", "num_training_samples"),
        gpu_only=True,
        keeps_checkpoints=True,
    ),
    "ipinsights": BuiltIn(
        takes=("validation",),
        hyperparameters=("num_entity_vectors", "vector_dim"),
        content_types=("text/csv",),
        file_only=True,
    ),
    "kmeans": BuiltIn(
        takes=("test",), hyperparameters=("feature_dim", "k"), content_types=_PROTOBUF_OR_CSV, unlabelled=True
    ),
    "knn": BuiltIn(
        takes=("test",),
        hyperparameters=("feature_dim", "k", "predictor_type", "sample_size"),
        content_types=_PROTOBUF_OR_CSV,
    ),
    "lda": BuiltIn(
        takes=("test",),
        hyperparameters=("feature_dim", "mini_batch_size", "num_topics"),
        content_types=_PROTOBUF_OR_CSV,
        cpu_only=True,
        one_instance=True,
        unlabelled=True,
    ),
    "linear-learner": BuiltIn(
        takes=("validation", "test"),
        hyperparameters=("predictor_type",),
        replicated=("validation",),
        content_types=_PROTOBUF_OR_CSV,
    ),
    "ntm": BuiltIn(
        takes=("validation", "test", "auxiliary"),
        hyperparameters=("feature_dim", "num_topics"),
        replicated=("validation", "test", "auxiliary"),
        unlabelled=True,
    ),
    "object-detection": BuiltIn(
        needs=("train", "validation"),
        takes=("train_annotation", "validation_annotation", "model"),
        hyperparameters=("num_classes", "num_training_samples"),
        gpu_only=True,
        keeps_checkpoints=True,
    ),
    "object2vec": BuiltIn(
        takes=("validation", "test", "auxiliary"),
        hyperparameters=("enc0_max_seq_len", "enc0_vocab_size"),
        file_only=True,
        one_instance=True,
    ),
    "pca": BuiltIn(
        takes=("test",),
        hyperparameters=("feature_dim", "mini_batch_size", "num_components"),
        content_types=_PROTOBUF_OR_CSV,
        unlabelled=True,
    ),
    "randomcutforest": BuiltIn(
        takes=("test",),
        hyperparameters=("feature_dim",),
        replicated=("test",),
        sharded=("train",),
        content_types=_PROTOBUF_OR_CSV,
        unlabelled=True,
    ),
    "semantic-segmentation": BuiltIn(
        needs=("train", "validation", "train_annotation", "validation_annotation"),
        takes=("label_map", "model"),
        hyperparameters=("num_classes", "num_training_samples"),
        gpu_only=True,
        one_instance=True,
        keeps_checkpoints=True,
    ),
    "seq2seq": BuiltIn(needs=("train", "validation", "vocab"), file_only=True, gpu_only=True, one_instance=True),
    "xgboost": BuiltIn(
        takes=("validation", "code"),
        hyperparameters=("num_round",),
        content_types=("text/csv", "text/libsvm", "application/x-parquet", "application/x-recordio-protobuf"),
        keeps_checkpoints=True,
    ),
}


def facts(draft: Draft) -> BuiltIn | None:
    """What is known of the built-in algorithm that runs, if one does."""
    return BUILT_INS.get(draft.built_in or "")
