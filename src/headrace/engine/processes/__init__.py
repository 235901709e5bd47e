"""Replicas in processes of their own: started by exec, reached over a socket pair, fed through shared memory.

| module | what it holds |
| --- | --- |
| `replica` | `ProcessReplica`: a task in a worker process, with the interface of a task |
| `worker` | the other end: `python -m headrace.engine.processes.worker FD` |
| `wire` | frames over the socket, with file descriptors beside them |
| `shared_blocks` | blocks in anonymous shared memory |
| `logs` | records of `logging` and `warnings`, carried to the parent |
| `remote_errors` | exceptions, carried to the parent |
| `travel` | what can be sent to a worker, and which part of an object cannot |
| `start` | how a worker is started, and how it never outlives its parent |
| `crashes` | what a dead worker's exit status means |
"""
