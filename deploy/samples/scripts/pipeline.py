"""The stages of a pipeline, which share a folder: ``pipeline.py prep|train|eval``.

``prep`` splits the points of points.csv into folds, element N of ``train`` fits a line to all folds
but the fold N, and ``eval`` writes the mean error of the lines on the folds that they did not see.
"""

import json
import os
import sys
from pathlib import Path

FOLDS = 3


def fold(number):
    return json.loads(Path(f"fold-{number}.json").read_text())


def prep():
    lines = Path("points.csv").read_text().splitlines()
    points = [[float(word) for word in line.split(",")] for line in lines]
    for number in range(FOLDS):
        Path(f"fold-{number}.json").write_text(json.dumps(points[number::FOLDS]))
    print(f"{len(points)} points in {FOLDS} folds")


def train():
    left_out = int(os.environ["ADMITTANCE_ARRAY_INDEX"])
    points = [point for number in range(FOLDS) if number != left_out for point in fold(number)]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points)
    slope /= sum((x - mean_x) ** 2 for x, _ in points)
    line = [slope, mean_y - slope * mean_x]
    Path(f"line-{left_out}.json").write_text(json.dumps(line))
    print(f"without fold {left_out}: slope {line[0]:.3f}, offset {line[1]:.3f}")


def evaluate():
    errors = []
    for number in range(FOLDS):
        slope, offset = json.loads(Path(f"line-{number}.json").read_text())
        errors += [abs(slope * x + offset - y) for x, y in fold(number)]
    report = {"points": len(errors), "meanError": round(sum(errors) / len(errors), 4)}
    Path("report.json").write_text(json.dumps(report) + "\n")
    print(report)


{"prep": prep, "train": train, "eval": evaluate}[sys.argv[1]]()
