"""Causes of failures that show in the lines of a training script: errors of Python, torch and the network.

Sources as in `causes`; a pattern without one is the library's own text.
"""

from __future__ import annotations

from launcher.jobs.failures.causes import Row, of_aws

_CODE = "/opt/ml/(code|input/data/code)"
_DATA, _CHANNEL = "/opt/ml/input/data/", r"[\w.-]*\w"

SCRIPT_CAUSES: dict[str, Row] = {
    "out-of-memory-gpu": Row(
        # TensorFlow's ResourceExhaustedError, JAX's XlaRuntimeError: neither need be on a GPU
        r"ResourceExhaustedError|OOM when allocating tensor|RESOURCE_EXHAUSTED:.{0,80}(memory|allocat)",
        "the memory of the GPU, or of another device of the model, was full",
        "use a smaller batch size, mixed precision or an instance type with more memory per GPU than {instance_type}; another"
        " process may hold the GPU's memory (XLA_PYTHON_CLIENT_PREALLOCATE=false)",
    ),
    "requirements": Row(
        # sagemaker-training-toolkit: errors.InstallRequirementsError
        r"No matching distribution found for (?P<package>\S+)"
        r"|Could not find a version that satisfies the requirement (?P<package2>\S+)|InstallRequirementsError",
        "the requirements could not be installed ({package})",
        "check names and versions against the image's Python; a VPC without internet access, or network isolation, cannot"
        " reach PyPI: install the packages in the image",
    ),
    "missing-module": Row(
        r"ModuleNotFoundError: No module named '(?P<module>[^']+)'|^\S*python[\d.]*: No module named '?(?P<module2>[\w.]+)"
        r"|ImportModuleError",
        "neither the image nor the code has a module {module}",
        "add its package to code.requirements, put your own module into code.directory, or use an image that has it",
    ),
    "gated-model": Row(
        # huggingface_hub.errors
        r"GatedRepoError|gated repo|is not a local folder and is not a valid model identifier|RepositoryNotFoundError"
        r"|401 Client Error.{0,120}huggingface\.co",
        "Hugging Face refuses the model to the job: it is gated or private, or does not exist",
        "request access on the model's page, set HF_TOKEN in environment, or read the model from a channel",
    ),
    "import-failed": Row(
        r"^(?P<object>ImportError: .{1,200})",
        "a module could not be imported: {object}",
        "versions in the image and in code.requirements are incompatible; pin those of the image",
    ),
    "entry-point-missing": Row(
        rf"can't open file '(?P<path>[^']+)'|No such file or directory: '(?P<path2>{_CODE}/[^']+)'",
        "{path} is not in the uploaded code",
        "check code.entry_point against code.directory; `launch job.yaml --dry-run` shows what is uploaded",
    ),
    "wrong-arguments": Row(
        # argparse
        r"error: (?P<object>unrecognized arguments: .{1,200}|the following arguments are required: .{1,200}"
        r"|argument \S+: invalid .{1,200})",
        "the script does not accept its hyperparameters: {object}",
        "make hyperparameters match the script's arguments; each becomes --name value, as code.argument_style says",
    ),
    "pipe-stalled": Row(
        # examples#1316
        r"pipe channel timed out",
        "a Pipe channel was not read to its end, or its data could not be streamed",
        "open the next epoch's FIFO only after closing the last, check the manifest and record format, or use FastFile",
    ),
    "pipe-as-folder": Row(
        rf"(FileNotFoundError|cannot access).{{0,120}}?(?P<path>{_DATA}(?P<channel>{_CHANNEL}))"
        rf"|NotADirectoryError.{{0,80}}?(?P<path2>{_DATA}(?P<channel2>{_CHANNEL}?))_\d+\b",
        "the channel {channel} is a Pipe: it has no folder {path}",
        "read {path}_0 as one stream, in the next epoch {path}_1 and so on, as entrypoints.open_channel does; or set the channel's"
        " input_mode: FastFile",
        input_mode="Pipe",
    ),
    "data-missing": Row(
        r"FileNotFoundError: .{0,80}'(?P<path>/opt/ml/input/data/[^']+)'",
        "{path} did not exist",
        "check the channel's name and the keys below its s3_uri; a Pipe channel has no folder, and ShardedByS3Key gives a host"
        " only a shard",
    ),
    "permission-denied": Row(
        r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>[^']+)'|Read-only file system: '(?P<path2>[^']+)'",
        "the script may not write to {path}",
        "write to /opt/ml/model, /opt/ml/output/data, /opt/ml/checkpoints or /tmp; for EFS and FSx set file_system_access_mode: rw"
        " and check the owner of the directory",
    ),
    "file-missing": Row(
        r"FileNotFoundError: .{0,80}'(?P<path>[^']+)'",
        "{path} did not exist",
        "send it with code.directory or in a channel; paths of this machine do not exist in the job",
    ),
    "collective-timeout": Row(
        # hiyouga/LlamaFactory#7396, pytorch#118369
        r"Watchdog caught collective operation timeout|collective operation timeout",
        "a rank waited for the others too long: one of them was slower, had another number of batches, or had died",
        "look for the first host that failed or stopped writing; give all ranks equally many batches; raise the timeout of"
        " init_process_group if one rank has long work to do",
    ),
    "no-gpu-driver": Row(
        r"Found no NVIDIA driver|no kernel image is available for execution|CUDA driver version is insufficient"
        r"|Torch not compiled with CUDA enabled|No CUDA GPUs are available",
        "the code needs a GPU that {instance_type} does not have, or the image was built for another GPU",
        "use a GPU instance type, and a GPU image with a CUDA version that supports it",
    ),
    "gpu-fault": Row(
        r"uncorrectable ECC|CUDA error: (an illegal memory access|unspecified launch failure|device-side assert|hardware)"
        r"|fell off the bus|Xid \d+",
        "the GPU reported a fault",
        "device-side assert is usually an index out of range (CUDA_LAUNCH_BLOCKING=1 shows where); others may be the hardware:"
        " run the job again, or let retry_strategy do so",
    ),
    "nccl": Row(
        r"NCCL (error|WARN|communicator)|Dist(Backend|Network|Store)Error"
        r"|nccl(System|Internal|Remote|UnhandledCuda)Error|RendezvousTimeoutError|RendezvousConnectionError"
        r"|client socket has (timed out|failed)|Connection closed by peer|Timed out waiting \d+ms for",
        "{peers} could not communicate, or one of them had died",
        "{open}, and set NCCL_DEBUG=INFO in environment",
    ),
    "no-network": Row(
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable|Max retries exceeded with url"
        r"|Could not connect to the endpoint URL|Connect timeout on endpoint URL",
        "the script could not reach a network address",
        "enable_network_isolation and a VPC without NAT or endpoints prevent that; read data from a channel, and install packages"
        " in the image",
    ),
    "crashed": Row(
        # sdk#134: `AlgorithmError: Exit Code: 139`
        r"exit code:? 139\b|Segmentation fault|SIGSEGV|exit code:? 13[24]\b|exitcode *: *-(11|4)\b"
        r"|SIGABRT|SIGILL|Illegal instruction",
        "a native library crashed (exit code 139 is a segmentation fault, 134 an abort, 132 an unsupported processor instruction)",
        "set PYTHONFAULTHANDLER=1 in environment to see where; check that compiled packages match the image and the processor",
    ),
    "terminated": Row(
        r"exit code:? 143\b|SignalException: .{0,40}got signal: 15",
        "the training received SIGTERM",
        "check whether the job was stopped, a spot instance reclaimed, or another host failed before",
    ),
    "internal-error": of_aws(
        # sdk#70
        r"InternalServerError|We encountered an internal error",
        "AWS had an internal failure",
        "run it again (`launch rerun`), or let retry_strategy do so; if it fails again, contact AWS support with the job's ARN",
    ),
}
