"""The requirements of each of SageMaker's built-in algorithms, for the rules in this folder.

Source: AWS developer guide (2023): common-info-all-im-models (channels, modes, instances), model-checkpoints (which keep
checkpoints), and each algorithm's own pages (hyperparameters marked as required, content types, distribution).
"""

from __future__ import annotations

from typing import NamedTuple

from launcher.request.view import Draft

_PROTOBUF_OR_CSV = ("application/x-recordio-protobuf", "text/csv")


class BuiltIn(NamedTuple):
    """One algorithm, named like the repository of its image."""

    needs: tuple[str, ...] = ("train",)
    """Channels that it requires."""
    takes: tuple[str, ...] = ()
    """Optional channels; others may be refused."""
    hyperparameters: tuple[str, ...] = ()
    """Hyperparameters that it requires."""
    replicated: tuple[str, ...] = ()
    """Channels that must be FullyReplicated."""
    sharded: tuple[str, ...] = ()
    """Channels that must be ShardedByS3Key."""
    content_types: tuple[str, ...] = ()
    """The MIME types that it reads; empty if it ignores them."""
    file_only: bool = False
    """Whether it reads File mode only."""
    gpu_only: bool = False
    cpu_only: bool = False
    one_instance: bool = False
    keeps_checkpoints: bool = False
    unlabelled: bool = False
    """Whether its CSV has no column of labels, which the content type has to state: label_size=0."""

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that it is known to read."""
        return (*self.needs, *self.takes)


BUILT_INS: dict[str, BuiltIn] = {
    "blazingtext": BuiltIn(takes=("validation",), hyperparameters=("mode",)),
    "factorization-machines": BuiltIn(
        takes=("test",),
        hyperparameters=("feature_dim", "num_factors", "predictor_type"),
        content_types=("application/x-recordio-protobuf",),
    ),
    "forecasting-deepar": BuiltIn(
        takes=("test",), hyperparameters=("context_length", "epochs", "prediction_length", "time_freq"), file_only=True
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
_NONE = BuiltIn(needs=())


def facts(draft: Draft) -> BuiltIn:
    """Return the requirements of the built-in algorithm that runs; those of a script or another image are empty."""
    return BUILT_INS.get(draft.built_in or "", _NONE)
