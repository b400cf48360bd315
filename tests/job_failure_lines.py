"""The last lines of failed jobs, as Linux, torch and Python print them, each with the expected cause."""

from __future__ import annotations

# (code, the last lines, what the cause must name), under `AlgorithmError: , exit code: 1`
LINES: list[tuple[str, str, str]] = [
    (
        "out-of-memory-gpu",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 21.98 GiB",
        "GPU",
    ),
    (
        "out-of-memory-gpu",
        "xgboost.core.XGBoostError: Memory allocation error on worker 0: std::bad_alloc: out_of_memory: CUDA error at",
        "GPU",
    ),
    (
        "out-of-shared-memory",
        "RuntimeError: DataLoader worker (pid 256) is killed by signal: Bus error. It is possible that dataloader's workers are out"
        " of shared memory. Please try to raise your shared memory limit.",
        "/dev/shm",
    ),
    *(
        ("out-of-shared-memory", f"RuntimeError: unable to {what} </torch_16_335_1>{why}", "/dev/shm")
        for what, why in (
            ("allocate shared memory(shm) for file", ": No space left on device (28)"),
            ("write to file", ": No space left on device (28)"),
            ("open shared memory object", " in read-write mode: Too many open files (24)"),
        )
    ),
    ("no-space", "OSError: [Errno 28] No space left on device: '/opt/ml/model/model.pt'", "disk"),
    ("out-of-memory", "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", "memory"),
    ("allocation-failed", "numpy: MemoryError\nMemoryError", "refused"),
    (
        "allocation-failed",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array",
        "refused",
    ),
    ("allocation-failed", "OSError: [Errno 12] Cannot allocate memory", "refused"),
    (
        "allocation-failed",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:83] DefaultCPUAllocator: can't allocate memory",
        "refused",
    ),
    (
        "access-denied",
        "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied",
        "GetObject",
    ),
    (
        "access-denied",
        "An error occurred (AccessDeniedException): User: arn:aws:sts::1:assumed-role/trainer/SageMaker is not authorized to"
        " perform: secretsmanager:GetSecretValue on resource: arn:aws:secretsmanager:us-east-1:1:secret:token because no policy",
        "secretsmanager:GetSecretValue on arn:aws:secretsmanager:us-east-1:1:secret:token",
    ),
    ("image-architecture", "/usr/bin/python3: exec format error", "processor"),
    ("requirements", "ERROR: No matching distribution found for torchh==9", "torchh==9"),
    ("missing-module", "ModuleNotFoundError: No module named 'webdataset'", "webdataset"),
    (
        "missing-module",
        "ImportError: s3torchconnector is not installed, and reading in S3 needs it: pip",
        "s3torchconnector",
    ),
    (
        "not-by-torchrun",
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set",
        "RANK",
    ),
    ("not-by-torchrun", "KeyError: 'LOCAL_RANK'", "LOCAL_RANK"),
    ("import-failed", "ImportError: cannot import name 'triu' from 'scipy.linalg'", "triu"),
    (
        "damaged-sample",
        "sagemaker_channels.errors.CorruptError: channel 'a': byte 9: this line is not JSON",
        "channel 'a'",
    ),
    (
        "damaged-sample",
        "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f>",
        "an object",
    ),
    ("relative-import", "ImportError: attempted relative import with no known parent package", "package"),
    (
        "script-failed",
        'Traceback (most recent call last):\n  File "/opt/ml/code/train.py", line 1, in <module>\n    from utils import net\n'
        "ImportError: cannot import name 'net' from 'utils' (/opt/ml/code/utils.py)",
        "'net' from 'utils'",
    ),
    (
        "unguarded-script",
        "        An attempt has been made to start a new process before the\n        current process has finished its"
        " bootstrapping phase.\nConnectionResetError: [Errno 104] Connection reset by peer",
        "import the script",
    ),
    *(
        (
            "unguarded-script",
            "Traceback (most recent call last):\nRuntimeError: \n        An attempt has been made to start"
            f" a new process before the\nTraceback (most recent call last):\n{shown}",
            "import the script",
        )
        for shown in (  # by spawned workers of a DataLoader, those of a fork server, and an executor
            "RuntimeError: DataLoader worker (pid 64) exited unexpectedly with exit code 1. Details are lost due to\n"
            "RuntimeError: DataLoader worker (pid(s) 64) exited unexpectedly",
            "_queue.Empty\nRuntimeError: DataLoader worker (pid(s) 64) exited unexpectedly",
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly",
        )
    ),
    (
        "entry-point-missing",
        "python3: can't open file '/opt/ml/code/trian.py': [Errno 2] No such file or directory",
        "trian.py",
    ),
    ("wrong-arguments", "train.py: error: unrecognized arguments: --lerning-rate 0.1", "--lerning-rate"),
    ("wrong-arguments", "train.py: error: argument -e/--epochs: expected one argument", "--epochs: expected one"),
    ("wrong-arguments", "Try 'train.py --help' for help.\n\nError: No such option '--lr'.", ": No such option '--lr'"),
    ("wrong-arguments", "╭─ Error ──╮\n│ No such option: --lr      │\n╰──────────╯", ": No such option: --lr"),
    ("wrong-arguments", "│ Invalid value for '--lr': 'x' is not a valid float. │", "'--lr': 'x' is not a valid float."),
    ("wrong-arguments", "Error: Got unexpected extra arguments (True 5)", "arguments (True 5)"),
    ("wrong-arguments", "│ Got unexpected extra argument(s) (True)    │", "argument(s) (True)"),
    ("wrong-arguments", "│ Option '--amp' does not take a value.      │", "'--amp' does not take a value"),
    ("wrong-arguments", "╭─ Unrecognized options ──────╮\n│ Unrecognized options: --lr, 3 │", "options: --lr, 3"),
    ("wrong-arguments", "│ Error parsing --lr: could not convert string to float: 'x' │", "parsing --lr: could not"),
    ("wrong-arguments", "╭─ Required options ──╮\n│ Missing from train.py: │\n│     --lr FLOAT  │", "from train.py"),
    ("wrong-arguments", "error: Parser key \"lr\":\n  Expected a <class 'float'>. Got value: x", 'Parser key "lr"'),
    ("wrong-arguments", "FATAL Flags parsing error: Unknown command line flag 'lr'.", "command line flag 'lr'"),
    ("wrong-arguments", "ERROR: Could not consume arg: --lr", "consume arg: --lr"),
    (
        "wrong-arguments",
        "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--lr', '0.1']",
        "HfArgumentParser: ['--lr', '0.1']",
    ),
    ("wrong-arguments", "Could not override 'lr'.\nTo append to your config use +lr=0.1", "override 'lr'"),
    (
        "data-missing",
        "FileNotFoundError: [Errno 2] No such file or directory: '/opt/ml/input/data/training/cats.csv'",
        "/opt/ml/input/data/training/cats.csv",
    ),
    (
        "file-missing",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/cats.csv'",
        "/home/me/cats.csv",
    ),
    (
        "permission-denied",
        "PermissionError: [Errno 13] Permission denied: '/opt/ml/input/data/train/x'",
        "/opt/ml/input/data/train/x",
    ),
    (
        "permission-denied",
        "OSError: [Errno 30] Read-only file system: '/opt/ml/input/data/efs/x'",
        "/opt/ml/input/data/efs/x",
    ),
    (
        "collective-timeout",
        "[rank0]:[E321 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580,"
        " OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.",
        "rank",
    ),
    (
        "nccl",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled system error",
        "hosts",
    ),
    ("nccl", "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.1.7]:43187", "hosts"),
    (
        "no-gpu-driver",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
        "GPU",
    ),
    ("gpu-fault", "RuntimeError: CUDA error: device-side assert triggered", "GPU"),
    (
        "no-network",
        "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /bert (Caused by NameResolutionError",
        "network",
    ),
    (
        "out-of-memory-gpu",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n\nOOM when allocating tensor with"
        " shape[64,112] and type float on /job:localhost/replica:0/task:0/device:GPU:0",
        "GPU",
    ),
    (
        "out-of-memory-gpu",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.",
        "GPU",
    ),
    (
        "gated-model",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: 1)\n\nThe above exception was the direct cause of"
        " the following exception:\n\nTraceback (most recent call last):\nOSError: You are trying to access a gated repo.\n"
        "Make sure to have access to it at https://huggingface.co/meta-llama/Llama-2-7b-hf.",
        "Hugging Face",
    ),
    (
        "gated-model",  # by what it was raised from
        "huggingface_hub.errors.GatedRepoError: 403 Client Error.\n\nThe above exception was the direct cause of the following"
        " exception:\n\nTraceback (most recent call last):\nRuntimeError: cannot load the model",
        "Hugging Face",
    ),
    (
        "file-cut-off",
        "Traceback (most recent call last):\nRuntimeError: PytorchStreamReader failed reading zip archive: failed finding central"
        " directory",
        "checkpoint",
    ),
    ("file-cut-off", "Traceback (most recent call last):\nEOFError: Ran out of input", "checkpoint"),
    ("file-cut-off", "_pickle.UnpicklingError: pickle data was truncated", "checkpoint"),
    (
        "file-cut-off",
        "RuntimeError: unexpected EOF, expected 67108864 more bytes. The file might be corrupted.",
        "checkpoint",
    ),
    (
        "file-cut-off",
        "Traceback (most recent call last):\nsafetensors_rust.SafetensorError: Error while deserializing header: incomplete"
        " metadata, file not fully covered",
        "checkpoint",
    ),
    (
        "file-cut-off",  # an empty file
        'Traceback (most recent call last):\n  File "/lib/torch/_weights_only_unpickler.py", line 327, in load\n'
        "    raise EOFError\nEOFError",
        "checkpoint",
    ),
    ("missing-module", "/opt/conda/bin/python3.11: No module named train", "module train"),
    ("missing-module", "python: No module named train", "module train"),
    ("container-start", "[FATAL tini (7)] exec train failed: No such file or directory", "executed: train"),
    (
        "efa-locked-memory",  # although it is a warning, and an exception follows
        "algo-1:48:60 [0] register_mr_buffers:465 NCCL WARN NET/OFI Unable to register memory (type = 1) for device 0. RC: 12,"
        " Error: Cannot allocate memory\nTraceback (most recent call last):\ntorch.distributed.DistBackendError: NCCL error in:"
        " ProcessGroupNCCL.cpp:1970, unhandled system error",
        "ulimit -l",
    ),
    ("out-of-memory", "  traceback : Signal 9 (SIGKILL) received by PID 58", "memory"),
    (
        "out-of-memory",  # the echo on other ranks follows
        "  traceback : Signal 9 (SIGKILL) received by PID 58\n[rank1]: torch.distributed.DistBackendError: NCCL error: peer gone",
        "memory",
    ),
    (
        "out-of-memory",  # torchrun's own finding goes before an exception that was logged and outlived
        "KeyError: 'cached'\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026\n  host      : algo-1\n"
        "  exitcode  : -9 (pid: 58)",
        "memory",
    ),
    (
        "script-failed",  # and where a rank ended by itself, its exception counts
        "ValueError: bad label 7\n  exitcode  : -9 (pid: 59)\nRoot Cause (first observed failure):\n"
        "[0]:\n  exitcode  : 1 (pid: 58)",
        "ValueError: bad label 7",
    ),
    (
        "aborted-at-exit",
        "done\nterminate called without an active exception\n[0]:\n  exitcode  : -6 (pid: 17)\n  traceback : Signal 6 (SIGABRT)",
        "may have done all its work",
    ),
    (
        "crashed",
        "Root Cause (first observed failure):\n[0]:\n  exitcode  : -11 (pid: 58)\n  traceback : Signal 11 (SIGSEGV) received",
        "native library",
    ),
    ("out-of-memory", "/opt/ml/run.sh: line 5:    33 Killed                  python train.py", "memory"),
    (
        "nccl",
        "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key"
        " '0', but store->get('0') got error: Connection reset by peer",
        "the hosts",
    ),
    ("nccl", "algo-1:48:60 [0] NCCL WARN Call to connect returned Connection timed out", "perhaps the hosts"),
    # The last exception of the script, whatever other lines contain.
    (
        "script-failed",
        "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: bad label 7",
        "1: ValueError: bad",
    ),
    ("script-failed", "WARNING: CUDA out of memory, halving the batch size\nKeyError: 'labels'", "KeyError: 'labels'"),
    ("script-failed", "CUDA out of memory, halving the batch size\nKeyError: 'labels'", "KeyError: 'labels'"),
    (
        "script-failed",
        "Temporary failure in name resolution, trying again\nepoch 2\nIndexError: list index out of range",
        "IndexError: list index out of range",
    ),
    ("script-failed", "will send SIGKILL to workers that hang\nAssertionError", "AssertionError"),
    ("script-failed", "SIGKILL is caught\nAssertionError: shapes differ", "AssertionError: shapes differ"),
    (
        "script-failed",  # aws/deep-learning-containers#3964
        "algo-1:48:60 [0] get_platform_type:110 NCCL WARN NET/OFI Error opening file:"
        " /sys/devices/virtual/dmi/id/product_name\nValueError: bad label 7",
        "ValueError: bad label 7",
    ),
    (
        "script-failed",
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\nValueError: bad label 7\n'
        "E1204 05:26:26.878000 17 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0\n"
        "Traceback (most recent call last):\n    raise ChildFailedError(\ntorch.distributed.elastic.multiprocessing.errors."
        "ChildFailedError: \n============\ntrain.py FAILED\nRoot Cause (first observed failure):\n  exitcode  : 1 (pid: 55)",
        "exit code 1: ValueError: bad label 7",
    ),
    (
        "script-failed",
        "KeyError: 'cached'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent"
        " call last):\nzipfile.BadZipFile: File is not a zip file",
        "zipfile.BadZipFile: File is not a zip file",
    ),
    (
        "no-network",
        "Traceback (most recent call last):\nsocket.gaierror: [Errno -3] Temporary failure in name resolution",
        "network",
    ),
    (
        "script-failed",
        "Traceback (most recent call last):\nValueError: batch size must be positive",
        "ValueError: batch size",
    ),
]
