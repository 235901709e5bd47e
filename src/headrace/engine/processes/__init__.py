"""Replicas in processes of their own: started by exec, reached over a socket pair, fed through shared memory.

| module | what it holds |
| --- | --- |
| `replica` | `ProcessReplica`: a task in a worker process, with the interface of a task |
| `supervised` | `SupervisedReplica`: the same, started again when the process dies, until the rows to blame are found |
| `suspects` | which call is to blame for deaths, and is not made again |
| `undelivered` | what of a block is still to come when its worker is gone |
| `crew` | how many workers a stage may have, fewer once memory ran out |
| `mark`, `patience` | which call a worker is in, for its parent to see, and for how long it may be |
| `terms` | what a step asks of its worker's parent |
| `worker` | the other end: `python -m headrace.engine.processes.worker FD` |
| `wire` | frames over the socket, with file descriptors beside them |
| `shared_blocks` | blocks in anonymous shared memory |
| `logs` | records of `logging` and `warnings`, carried to the parent |
| `remote_errors` | exceptions, carried to the parent |
| `travel` | what can be sent to a worker, and which part of an object cannot |
| `start` | how a worker is started, and how it never outlives its parent |
| `crashes`, `memory_killer` | what a dead worker's exit status means; whether the kernel killed for want of memory |
"""
