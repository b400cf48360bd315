"""The names that the launcher and the container share: paths, files, FIFOs and our own variables.

The launcher writes by these names (plan, local run), and the scripts in the container read by them.
Imports nothing of this project.

Source of the SageMaker names: AWS developer guide, "How Amazon SageMaker provides training information".
"""

from __future__ import annotations

BASE_DIR = "/opt/ml"
BASE_DIR_VARIABLE = "SAGEMAKER_BASE_DIR"  # another base directory; the sagemaker-training toolkit reads it, too

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
PACKAGES_DIR = "packages"  # our own: the packages of the script's requirements, besides the image's
CHECKPOINT_DIR = "checkpoints"  # unless CheckpointConfig.LocalPath is given
HOSTFILE = "hostfile"  # our own: `algo-1 slots=8` for each host, as mpirun and deepspeed read it
WARM_POOL_DIR = "sagemaker/warmpoolcache"  # kept for a warm pool's next job (developer guide, train-warm-pools)
WARM_POOL_VARIABLE = "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"  # its path, if the job has a warm pool

# Below CONFIG_DIR.
HYPERPARAMETERS_FILE = "hyperparameters.json"
INPUT_DATA_CONFIG_FILE = "inputdataconfig.json"
RESOURCE_CONFIG_FILE = "resourceconfig.json"

FAILURE_LIMIT = 1024  # characters of FAILURE_FILE that become FailureReason
STOP_SECONDS = 120  # between SIGTERM and SIGKILL
HOMOGENEOUS_GROUP = "homogeneousCluster"  # the instance group's name if the request names none
SHARDED = "ShardedByS3Key"
DIRECTORY_BUCKET = "--x-s3"  # ends the names of S3 Express's directory buckets, which do not list in the order of keys

# The channel of our code. It holds BOOT_FILE and CODE_ARCHIVE.
CODE_CHANNEL = "launcher_code"
BOOT_FILE = "boot.py"
CODE_ARCHIVE = "code.tar.gz"
BUNDLE_DIR = "launcher_bundle"  # what the launcher adds: a folder of the archive, moved below BASE_DIR by boot.py
SCRIPTS_DIR = "entrypoints"  # in it, the bundled scripts: the entry point `entrypoints/train.py` is one of them
BOOT_ARGUMENTS_VARIABLE = "LAUNCHER_BOOT_ARGUMENTS"  # JSON of BOOT_FILE's arguments, if the toolkit starts it
LIBRARY = "sagemaker_channels"  # beside them, this package
# Bundled scripts that are sent only if they are the entry point, and the folder of the package that is sent with them.
TOOLS = ("entrypoints/measure.py", "entrypoints/reshard.py")
TOOLS_DIR = "tools"

# Our variables in a request's Environment:
#   LAUNCHER_CONNECTOR_<n>   one per S3Connector channel, JSON with the CONNECTOR_* keys below: these channels are no
#                            InputDataConfig entries, so SageMaker's own files do not have them
#   LAUNCHER_CHANNEL_GROUPS  JSON {channel: [instance groups]} of the channels that not all of the job's groups get
#   LAUNCHER_ATTRIBUTE_NAMES_<n>  JSON {channel: [attributes]} of the augmented manifests' channels, the attributes in the order
#                            in which they are sent; cut where a variable's value is full, and whole again in <n>'s order
#   LAUNCHER_SHUFFLED_CHANNELS_<n>  JSON [channels]: the Pipes with a ShuffleConfig or from a directory bucket, cut likewise
#   LAUNCHER_BUCKET_OWNERS_<n>  JSON {bucket: account} of the spec's bucket_owners, cut likewise
CHANNEL_GROUPS_VARIABLE = "LAUNCHER_CHANNEL_GROUPS"
ATTRIBUTE_NAMES_VARIABLE = "LAUNCHER_ATTRIBUTE_NAMES_"
SHUFFLED_CHANNELS_VARIABLE = "LAUNCHER_SHUFFLED_CHANNELS_"
BUCKET_OWNERS_VARIABLE = "LAUNCHER_BUCKET_OWNERS_"
CONNECTOR_VARIABLE = "LAUNCHER_CONNECTOR_"
CONNECTOR_CHANNEL = "channel"
CONNECTOR_S3_URI = "s3_uri"
CONNECTOR_READER = "reader"  # name in sources/readers.py; S3Connector if it is absent
CONNECTOR_STYLE = "style"  # map | iterable
CONNECTOR_CONTENT_TYPE = "content_type"  # absent if the spec has none
CONNECTOR_MAX_OBJECTS = "max_objects"  # set by `--local --sample N` only: read N of the objects, evenly spaced

# A setting's value that names a secret, which the container reads: ${secretsmanager:ID}, ${secretsmanager:ID#KEY}, ${ssm:NAME}.
SECRET_REFERENCE = r"\$\{(?:secretsmanager:[^{}$\s#]+(?:#[^{}$\s]+)?|ssm:[^{}$\s#]+)\}"
# Set by local runs only: JSON {reference: value}, which the entry point does not get.
SECRETS_VARIABLE = "LAUNCHER_SECRETS"

FIFO_WAIT_VARIABLE = "LAUNCHER_FIFO_WAIT_SECONDS"  # how long a Pipe's reader waits for a FIFO, and for bytes
READ_WAIT_VARIABLE = "LAUNCHER_READ_WAIT_SECONDS"  # how long a reader of S3 or of a remote mount waits without any byte
COMPARE_VARIABLE = "LAUNCHER_COMPARE_OBJECTS"  # `all`: compare every object of S3 that is read whole with its listing
MAX_SAMPLE_VARIABLE = "LAUNCHER_MAX_SAMPLE_BYTES"  # A larger sample is refused; formats/window.py has the defaults.
WAITS_VARIABLE = "LAUNCHER_WAITS"  # 0 records nothing of how long training loops wait (waits.py)
SAMPLE_VARIABLE = "LAUNCHER_SAMPLE"  # set by `--local --sample N` only: a list may name images that are missing
HOSTFILE_VARIABLE = "LAUNCHER_HOSTFILE"  # set for a `command`: the path of HOSTFILE

# A local run adds these, because its hosts share one machine:
MASTER_ADDR_VARIABLE = "LAUNCHER_MASTER_ADDR"  # set if the name of hosts[0] does not resolve (no namespaces)
MASTER_PORT_VARIABLE = "LAUNCHER_MASTER_PORT"  # a port that is free on this machine
DEFAULT_MASTER_PORT = 7777  # SDK v3's choice


def fifo_name(channel: str, epoch: int) -> str:
    """Return the name of a Pipe channel's FIFO below DATA_DIR; `epoch` counts from 0."""
    return f"{channel}_{epoch}"


def epochs_name(channel: str) -> str:
    """Return the name of our file below DATA_DIR that maps a Pipe channel's epochs to its FIFOs."""
    return f".{channel}_epochs"
