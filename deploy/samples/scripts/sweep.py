#!/usr/bin/env python3
# A sweep: element N takes line N of rates.txt as learning rate, and writes results/N.json.
# ADMIT -q research --name sweep --array 0-39%10 --cpu 250m --memory 64Mi --time 10m
import json
import os
from pathlib import Path

STEPS = 10

index = int(os.environ["ADMITTANCE_ARRAY_INDEX"])
rate = float(Path("rates.txt").read_text().splitlines()[index])
points = [(x / 10, 3 * x / 10 - 1) for x in range(-10, 11)]
slope = offset = 0.0
for _ in range(STEPS):
    errors = [(x, slope * x + offset - y) for x, y in points]
    slope -= rate * sum(error * x for x, error in errors) / len(points)
    offset -= rate * sum(error for _, error in errors) / len(points)
loss = sum(error**2 for _, error in errors) / len(points)

results = Path("results")
results.mkdir(exist_ok=True)
(results / f"{index}.json").write_text(json.dumps({"loss": loss, "rate": rate}) + "\n")
print(f"rate {rate}: loss {loss:.6f}")
