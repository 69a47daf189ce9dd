"""Another user's Spark application: small jobs until a file appears, with their sums. ``other.py FILE``"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
jobs = 0
while not Path(sys.argv[1]).exists():
    pairs = spark.sparkContext.parallelize(range(1000), 4).map(lambda n: (n % 7, n)).reduceByKey(lambda a, b: a + b)
    assert sum(value for _, value in pairs.collect()) == 999 * 500
    jobs += 1
    print("job", jobs, flush=True)
    time.sleep(1.5)  # two cores are shared with the run
spark.stop()
