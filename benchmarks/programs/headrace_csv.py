"""The bulk CSV job with Headrace's Python API. SOURCE MODEL OUT"""

import sys

import headrace as hr
from headrace.handlers.sklearn import SklearnModelHandler

FEATURES = ["age", "monthly_spend", "tenure_months", "tickets"]


def main() -> None:
    """Score every file."""
    source, model_file, out = sys.argv[1:4]
    model = SklearnModelHandler(model_file, proba_column=1)
    customers = hr.read_csv(f"{source}/*.csv")
    scored = customers.run_inference(model, inputs=FEATURES, output="score")
    scored.write_parquet(out).run()


main()
