"""The pictures job by hand: a pool of threads decodes, another thread runs the model. SOURCE MODEL OUT THREADS"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from threading import Thread

import numpy as np
import onnxruntime
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

BATCH = 8
BATCHES_AHEAD = 4
"""So many may wait for the model: enough to keep it busy, few enough to keep memory small."""


def decoded(file: Path) -> np.ndarray:
    """Return a picture as the model wants it."""
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))


def main() -> None:
    """Name every picture."""
    source, model, out = (Path(a) for a in sys.argv[1:4])
    files = sorted(source.glob("*.jpg"))
    batches = [files[first : first + BATCH] for first in range(0, len(files), BATCH)]
    waiting: Queue = Queue(BATCHES_AHEAD)
    answers = []

    def answer() -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(sys.argv[4])
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        for _ in batches:
            pictures = [future.result() for future in waiting.get()]
            answers.append(session.run(["label", "score"], {"pixels": np.stack(pictures)}))

    with ThreadPoolExecutor(os.cpu_count()) as decoders:
        thread = Thread(target=answer)
        thread.start()
        for batch in batches:
            waiting.put([decoders.submit(decoded, file) for file in batch])
        thread.join()

    labels, scores = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    out.mkdir(parents=True, exist_ok=True)
    table = pa.table({"path": [str(file) for file in files], "label": labels, "score": scores})
    pyarrow.parquet.write_table(table, out / "part.parquet")


main()
