"""Trains a small model, and resumes from its last epoch wherever it runs next.

Needs Python alone. The job saves each epoch in ADMITTANCE_CHECKPOINT_DIR, which is the same folder
in each run of the workload: after a preemption, or on another machine.

    admit submit -q gpus --gpu 1 -- python3 train.py [EPOCHS [SECONDS]]
"""

import json
import math
import os
import random
import sys
import time
from pathlib import Path

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.2
RATE = 0.1

folder = Path(os.environ.get("ADMITTANCE_CHECKPOINT_DIR", "."))
saved = folder / "model.json"
machine = os.environ.get("ADMITTANCE_HOSTS", "this machine")
devices = os.environ.get("ADMITTANCE_DEVICES", "")


def samples(count=500):
    """Points of two classes, the same in each run."""
    chance = random.Random(1)
    for _ in range(count):
        label = chance.randint(0, 1)
        yield (chance.gauss(label * 2 - 1, 1), chance.gauss(1 - label * 2, 1)), label


def train(weights, points):
    """One epoch of logistic regression; returns the mean loss."""
    loss = 0.0
    for (x, y), label in points:
        guess = 1 / (1 + math.exp(-(weights[0] * x + weights[1] * y + weights[2])))
        loss -= math.log(max(1e-12, guess if label else 1 - guess))
        for number, value in enumerate((x, y, 1.0)):
            weights[number] += RATE * (label - guess) * value
    return loss / len(points)


points = list(samples())
model = {"epoch": 0, "weights": [0.0, 0.0, 0.0]}
if saved.exists():
    model = json.loads(saved.read_text())
print(f"epoch {model['epoch']}: on {machine}, GPU {devices or 'none'}", flush=True)
while model["epoch"] < EPOCHS:
    loss = train(model["weights"], points)
    model["epoch"] += 1
    # A new file takes the place of the old one at once: a job may be killed at any time.
    part = folder / "model.part"
    part.write_text(json.dumps(model))
    part.replace(saved)
    if model["epoch"] % 10 == 0:
        print(f"epoch {model['epoch']}: loss {loss:.4f}", flush=True)
    time.sleep(SECONDS)
print(f"trained {EPOCHS} epochs: {[round(weight, 3) for weight in model['weights']]}", flush=True)
