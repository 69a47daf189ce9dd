#!/bin/sh
# Spark's discovery script for GPUs: their UUIDs, as CUDA_VISIBLE_DEVICES takes them, in Spark's JSON.
uuids=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | sed 's/^ */"/; s/ *$/"/' | paste -sd, -)
echo "{\"name\": \"gpu\", \"addresses\": [$uuids]}"
