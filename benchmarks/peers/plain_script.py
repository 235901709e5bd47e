"""What one would write for a handful of rows: read, predict, write. SOURCE_FILE MODEL OUT_FILE"""

import pickle
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

FEATURES = ["age", "monthly_spend", "tenure_months", "tickets"]

source, model_file, out_file = sys.argv[1:4]
with open(model_file, "rb") as file:
    model = pickle.load(file)
table = pyarrow.csv.read_csv(source)
matrix = np.column_stack([table[name].to_numpy() for name in FEATURES])
pyarrow.parquet.write_table(table.append_column("score", pa.array(model.predict(matrix))), out_file)
