"""Tells trackers of experiments what happens in a run: TensorBoard, MLflow and Weights & Biases, as ``[track]`` names them.

`scalars` makes numbers of records. `trackers` is a sink of records, with a process for each tracker (`main`): such a process
can hang, be killed or import for ten seconds, and the run does not notice. Each tracker is a small class that `port` describes.
"""
