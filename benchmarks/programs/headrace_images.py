"""The pictures job with Headrace: decode, model, Parquet. SOURCE MODEL OUT THREADS"""

import sys

import headrace as hr
from headrace.handlers.onnx import OnnxModelHandler


def main() -> None:
    """Name every picture."""
    source, model, out, threads = sys.argv[1:5]
    pictures = hr.read_images(source, mode="RGB", size=(224, 224))
    handler = OnnxModelHandler(model, threads=int(threads))
    answers = {"label": "label", "score": "score"}
    scored = pictures.run_inference(handler, inputs="image", output=answers, model_id_column=None)
    scored.drop("image").write_parquet(out).run()


main()
