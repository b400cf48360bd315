"""The logs of a training on several hosts in which one rank runs out of GPU memory, as torch 2.8 and its torchrun print them.

The other ranks fail because of it: each prints NCCL's error twice, with the frames of C++ below it.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.jobs.lines import Line

RANKS = 8  # of each host
_START = 1_764_158_400_000
_OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU {local} has a total capacity of 39.39 GiB of which"
    " 1.31 GiB is free. Process 21011 has 38.07 GiB memory in use. Of the allocated memory 36.02 GiB is allocated by PyTorch, and"
    " 1.16 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
_SITE = "/opt/conda/lib/python3.12/site-packages"
_NCCL_ERROR = "NCCL error: remote process exited or there was a network error, NCCL version 2.27.3"
_NCCL_FRAMES = (
    "c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f0c1b378eb0 in {site}/torch/lib/libc10.so)",
    "c10d::ProcessGroupNCCL::WorkNCCL::checkAndSetException() + 0x8e (0x7f0bbd03a6fe in {site}/torch/lib/libtorch_cuda.so)",
    "c10d::ProcessGroupNCCL::WorkNCCL::isCompleted() + 0x90 (0x7f0bbd03b6f0 in {site}/torch/lib/libtorch_cuda.so)",
    "c10d::ProcessGroupNCCL::Watchdog::runLoop() + 0x9d8 (0x7f0bbd0418a8 in {site}/torch/lib/libtorch_cuda.so)",
    "c10d::ProcessGroupNCCL::Watchdog::run() + 0xdf (0x7f0bbd0434bf in {site}/torch/lib/libtorch_cuda.so)",
    "<unknown function> + 0xdbbf4 (0x7f0bad0dbbf4 in /opt/conda/bin/../lib/libstdc++.so.6)",
    "<unknown function> + 0x94ac3 (0x7f0c1d094ac3 in /usr/lib/x86_64-linux-gnu/libc.so.6)",
    "clone + 0x44 (0x7f0c1d125a04 in /usr/lib/x86_64-linux-gnu/libc.so.6)",
)


def host_logs(hosts: int, failing: int) -> dict[str, list[Line]]:
    """Return the log of each host, in which the rank `failing` is the first to fail."""
    return {f"algo-{host + 1}": list(_log(host, failing)) for host in range(hosts)}


def _log(host: int, failing: int) -> Iterator[Line]:
    ranks = range(host * RANKS, (host + 1) * RANKS)
    time = _START
    for step in range(100):
        time += 1000
        yield Line(time, f"algo-{host + 1}", f"step={step} loss={1 / (step + 1):.4f}")
    time += 5_000 * (failing not in ranks)
    lines = [*_of_failed(failing)] if failing in ranks else []
    lines += [line for rank in ranks if rank != failing for line in _of_other(rank)]
    lines += _of_torchrun(failing if failing in ranks else ranks[0], host)
    for number, line in enumerate(lines):
        yield Line(time + number, f"algo-{host + 1}", line)


def _of_failed(rank: int) -> Iterator[str]:
    traceback = (
        "Traceback (most recent call last):",
        '  File "/opt/ml/input/data/code/train.py", line 88, in <module>',
        "    main()",
        '  File "/opt/ml/input/data/code/train.py", line 61, in main',
        "    loss.backward()",
        f'  File "{_SITE}/torch/_tensor.py", line 647, in backward',
        "    torch.autograd.backward(",
        _OUT_OF_MEMORY.format(local=rank % RANKS),
    )
    for line in traceback:
        yield f"[rank{rank}]: {line}"
    yield (
        f"[rank{rank}]:[W1126 12:01:41.118360194 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() was not"
        " called before program exit, which can leak resources. (function operator())"
    )


def _of_other(rank: int) -> Iterator[str]:
    watchdog = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with exception: {_NCCL_ERROR}"
    details = (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "Last error:",
        "socketProgress: Connection closed by remote peer ip-10-0-1-7.ec2.internal<43187>",
        "Exception raised from checkForNCCLErrorsInternal at /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2494"
        " (most recent call first):",
        *(f"frame #{number}: {frame.format(site=_SITE)}" for number, frame in enumerate(_NCCL_FRAMES)),
        "",
    )
    yield f"[rank{rank}]: Traceback (most recent call last):"
    yield f'[rank{rank}]:   File "/opt/ml/input/data/code/train.py", line 61, in main'
    yield f"[rank{rank}]: torch.distributed.DistBackendError: {_NCCL_ERROR}"
    yield f"[rank{rank}]:[E1126 12:01:44.200417311 ProcessGroupNCCL.cpp:2068] {watchdog}"
    yield from details
    yield "terminate called after throwing an instance of 'c10::DistBackendError'"
    yield f"  what():  {watchdog}"
    yield from details


def _of_torchrun(root: int, host: int) -> Iterator[str]:
    elastic = "1000 torch/distributed/elastic/multiprocessing/api.py"
    for local in range(RANKS):
        if local != root % RANKS:
            yield f"W1126 12:01:45.334000 {elastic}:906] Sending process {1100 + local} closing signal SIGTERM"
    yield (
        f"E1126 12:01:46.912000 {elastic}:880] failed (exitcode: 1) local_rank: {root % RANKS} (pid: {1100 + root % RANKS})"
        " of binary: /opt/conda/bin/python3.12"
    )
    yield "Traceback (most recent call last):"
    yield '  File "/opt/conda/bin/torchrun", line 7, in <module>'
    for number, function in ((355, "wrapper"), (901, "main"), (892, "run"), (143, "__call__"), (277, "launch_agent")):
        yield f'  File "{_SITE}/torch/distributed/run.py", line {number}, in {function}'
    yield "    raise ChildFailedError("
    yield "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    yield "=" * 60
    yield "train.py FAILED"
    yield "-" * 60
    yield "Failures:"
    yield "  <NO_OTHER_FAILURES>"
    yield "-" * 60
    yield "Root Cause (first observed failure):"
    yield "[0]:"
    yield "  time      : 2025-11-26_12:01:45"
    yield f"  host      : algo-{host + 1}"
    yield f"  rank      : {root} (local_rank: {root % RANKS})"
    yield f"  exitcode  : 1 (pid: {1100 + root % RANKS})"
    yield "  error_file: <N/A>"
    yield "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    yield "=" * 60
