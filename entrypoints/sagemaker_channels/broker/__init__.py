"""One process that reads a Pipe for all ranks and DataLoader workers of a host.

A FIFO can have one reader, and a host has many: torchrun's ranks, each with its workers. The first of them that opens a Pipe
channel starts the channel's broker, a process that imports only the standard library; all of them connect to it over a Unix
socket. It reads the FIFO, splits it into samples by the channel's format and assigns them to the readers, which decode images and
make tensors. A process that is the only reader of its host reads the FIFO itself.

    feeder -> FIFO -> broker -> socket -> worker 0 of rank 0
                             -> socket -> worker 1 of rank 0

Guarantees:

- Sample i of the epoch's stream belongs to the shard with i modulo count == index, as in `sharding.py`: every sample exactly
  once, and each reader the same shard as in any other run, however fast the readers are. If the epoch was begun by another number
  of readers, i counts the samples that are left of it (`order/work.py`); the others are dropped here.
- No samples are sent before all readers of the host have connected, so they must read at the same time. If some do not connect
  within LAUNCHER_FIFO_WAIT_SECONDS, the others get an error with their number. If a rank with a missing shard has ended, they get
  an error that names it within a second; within 5 s if it never connected, and only if torchrun started it: torchrun starts all
  ranks of a host together, while a missing rank of mp.spawn, mpirun or a script may be late.
- A rank that resumes from a state in which its shard is finished reports that, and may end before the others connect.
- Blocks of a shuffled epoch end at the same sample number in all shards, and that number depends on the stream alone.
- Memory is bounded (`serve.py`). The slowest reader sets the pace of all, and is named on stderr if it reads nothing for long.
- A reader that stops early or dies gets no more samples, and no other reader waits for it. When all have stopped, the FIFO is
  closed.
- An error in the data reaches every reader after the samples before it, as the same error with the same offset.
- When the last byte of an epoch has been read, its FIFO is closed and the next one opened and read ahead, while readers still take
  the rest of the old epoch. A request for an epoch that was already read is refused immediately.
- The broker ends when the processes that it reads for have ended (`coordinator.py` has one exception), even if their workers still
  run, and when the FIFOs' folder is deleted; a new one at the same path gets its own broker. On Linux its socket has no file, so
  nothing is left even if it is killed; its readers then get an error, not a short epoch.

Formats that decode a record (a tf.train.Example, numbers in protocol buffers) are another format that finds the record, and a
function of that record: the broker sends records, and all workers decode.

Modules: `protocol.py` messages between broker and readers; `reader.py` the readers' end; `epochs.py` which reader gets which
sample; `coordinator.py` the connections; `serve.py` the process.
"""
