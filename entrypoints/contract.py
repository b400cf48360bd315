"""The one page that both ends of the wire read: paths, file names, FIFO names and our own variables.

The launcher writes by these names (plan, local run) and the scripts in the container read by them, so neither can
drift from the other. Standard library only; imports nothing of this project.

Source of the SageMaker names: AWS developer guide, "How Amazon SageMaker provides training information".
"""

from __future__ import annotations

BASE_DIR = "/opt/ml"
BASE_DIR_VARIABLE = (
    "SAGEMAKER_BASE_DIR"  # names another place than BASE_DIR; the sagemaker-training toolkit honours it too
)

# Below the base directory.
INPUT_DIR = "input"
CONFIG_DIR = "input/config"
DATA_DIR = "input/data"
MODEL_DIR = "model"
CODE_DIR = "code"
OUTPUT_DIR = "output"
OUTPUT_DATA_DIR = "output/data"
INTERMEDIATE_DIR = "output/intermediate"
FAILURE_FILE = "output/failure"
PACKAGES_DIR = "packages"  # our own: what the script's requirements bring, beside the image's packages
CHECKPOINT_DIR = "checkpoints"  # where CheckpointConfig.LocalPath is not given

# Below CONFIG_DIR.
HYPERPARAMETERS_FILE = "hyperparameters.json"
INPUT_DATA_CONFIG_FILE = "inputdataconfig.json"
RESOURCE_CONFIG_FILE = "resourceconfig.json"

FAILURE_LIMIT = 1024  # characters of FAILURE_FILE that become FailureReason
STOP_SECONDS = 120  # between SIGTERM and SIGKILL
HOMOGENEOUS_GROUP = "homogeneousCluster"  # the instance group's name where the request names none
SHARDED = "ShardedByS3Key"

# The channel in which our code travels. It holds BOOT_FILE and CODE_ARCHIVE side by side.
CODE_CHANNEL = "launcher_code"
BOOT_FILE = "boot.py"
CODE_ARCHIVE = "code.tar.gz"
BUNDLE_DIR = "launcher_bundle"  # the launcher's own modules: a folder of the archive, moved below BASE_DIR by boot.py
BUNDLED_PACKAGE = "entrypoints"  # the package in it; the entry point `entrypoints/train.py` is its script

# Variables of ours. What a request's Environment carries:
#   LAUNCHER_CONNECTOR_<n>   one per S3Connector channel, JSON with the CONNECTOR_* keys below: these channels are no
#                            InputDataConfig entries, so SageMaker's own files know nothing of them
#   LAUNCHER_CHANNEL_GROUPS  JSON {channel: [instance groups]} of the channels that not all of the job's groups get
#   LAUNCHER_ATTRIBUTE_NAMES_<n>  JSON {channel: [attributes]} of the augmented manifests' channels, the attributes in the order
#                            in which they are sent; cut where a variable's value is full, and whole again in <n>'s order
#   LAUNCHER_SHUFFLED_CHANNELS_<n>  JSON [channels]: the Pipes with a ShuffleConfig, cut likewise
CHANNEL_GROUPS_VARIABLE = "LAUNCHER_CHANNEL_GROUPS"
ATTRIBUTE_NAMES_VARIABLE = "LAUNCHER_ATTRIBUTE_NAMES_"
SHUFFLED_CHANNELS_VARIABLE = "LAUNCHER_SHUFFLED_CHANNELS_"
CONNECTOR_VARIABLE = "LAUNCHER_CONNECTOR_"
CONNECTOR_CHANNEL = "channel"
CONNECTOR_S3_URI = "s3_uri"
CONNECTOR_STYLE = "style"  # map | iterable
CONNECTOR_CONTENT_TYPE = "content_type"  # absent where the spec gives none
CONNECTOR_MAX_OBJECTS = "max_objects"  # set by `--local --sample N` only: read the first N objects

FIFO_WAIT_VARIABLE = "LAUNCHER_FIFO_WAIT_SECONDS"  # how long a Pipe's reader waits for a FIFO, and for bytes
READ_WAIT_VARIABLE = "LAUNCHER_READ_WAIT_SECONDS"  # how long a reader of S3 or of a far mount waits without any byte
MAX_SAMPLE_VARIABLE = (
    "LAUNCHER_MAX_SAMPLE_BYTES"  # a sample beyond this is refused; the defaults are in records/sizes.py
)

SAMPLE_VARIABLE = "LAUNCHER_SAMPLE"  # set by `--local --sample N` only: a list may name images that are not there

# What a local run adds, because its hosts share one machine:
MASTER_ADDR_VARIABLE = "LAUNCHER_MASTER_ADDR"  # where hosts[0] does not resolve by name (no namespaces)
MASTER_PORT_VARIABLE = "LAUNCHER_MASTER_PORT"  # a port that is free on this machine
DEFAULT_MASTER_PORT = 7777  # SDK v3's choice


def fifo_name(channel: str, epoch: int) -> str:
    """The name of a Pipe channel's FIFO below DATA_DIR; `epoch` counts from 0."""
    return f"{channel}_{epoch}"


def epochs_name(channel: str) -> str:
    """The name of our file below DATA_DIR that says which epoch of a Pipe channel is which FIFO."""
    return f".{channel}_epochs"
