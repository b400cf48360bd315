"""One process that reads a Pipe for all the ranks and DataLoader workers of a host.

A FIFO can have one reader, and a host has many: torchrun's ranks, each with its workers. The first of them that opens a
Pipe channel starts the channel's broker, a process of the standard library alone; all of them connect to it over a Unix
socket. It reads the FIFO, lets the channel's own format say where samples end, and deals them out; whatever is done with
a sample (decoding images, tensors) is done behind it, in the workers. A process that is the only reader of its host reads
the FIFO itself, as it would without all this.

    feeder -> FIFO -> broker -> socket -> worker 0 of rank 0
                             -> socket -> worker 1 of rank 0
                             -> ...

What is promised:

- Sample i of the epoch's stream belongs to the share with i modulo count == index, as `sharding.py` says: every sample
  exactly once, the same share for the same reader however fast anyone is, and as a single reader would have it. Shares
  differ by one sample at most.
- Nothing is dealt before all readers of the host have come, so their shares must be read side by side. If some do not come
  within LAUNCHER_FIFO_WAIT_SECONDS, the others get an error that says how many came; if a rank whose share is missing has ended,
  they get an error that names it within a second. A rank that ended before it ever connected is reported within 5 s if torchrun
  started it: torchrun starts all ranks of a host at once, so a rank without a process is not late. If it was started in another
  way (mp.spawn, mpirun, a script between torchrun and the rank), it cannot be told from one that is late.
- A rank resumed from a state in which its share is finished reports that, and is waited for no longer: it may end before
  the others have come.
- A shuffled share is in blocks that end at the same number for all shares, and that number depends on the stream alone.
- Memory is bounded (`serve.py`); the slowest reader sets the pace of all, and is named on stderr where it takes nothing for long.
- A reader that stops early or dies is dealt nothing more, and nobody waits for it. When all have stopped, the FIFO is closed.
- An error of the data reaches every reader, after the samples before it, as the same error with the same offset.
- As soon as the last byte of an epoch has been read the FIFO is closed and the next one opened, and read ahead; until then
  readers of the old epoch go on taking what is left for them.
- An epoch that was read already is refused at once.
- The broker ends when the processes that asked for it have ended, though workers of theirs may still be there. If all of them
  had finished shares it first waits for the missing ranks (`coordinator.py` lists the states). It ends, too, if the FIFOs' folder
  was deleted: a new one at the same path gets its own broker. On Linux its socket has no file, so nothing is left even when it
  is killed; readers then get an error, not a short epoch.

Modules: `wire.py` what is said over a socket; `reader.py` the readers' end; `epochs.py` who gets what; `serve.py` the process.
"""
