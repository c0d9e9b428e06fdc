"""Each generated manifest is refused with a field, or `apply` says what the table of effects says,
and the rest of the manifest is stored as it was written."""

from __future__ import annotations

import os
import random

from benchmarks.generated_manifests import expected, random_manifest, read_one

from admittance.api.reading.manifest import decode_object
from admittance.api.reading.objects import encode

MANY = int(os.environ.get("ADMIT_SCHEMA_MANIFESTS", "1500"))


def test_every_field_of_a_generated_manifest_has_the_effect_of_the_table() -> None:
    rng = random.Random(26)
    accepted = warned = refused = 0
    for number in range(MANY):
        manifest = random_manifest(rng, f"g-{number}")
        want, (document, problems) = expected(manifest), read_one(manifest)
        if document is None:
            assert all(problem.message for problem in problems), manifest
            refused += any(problem.field in want.refused for problem in problems)
            continue
        assert not want.refused, manifest
        accepted += 1
        told = {warning.split(" ")[0] for warning in document.warnings}
        for path in want.warned:
            warned += 1
            same = [warning for warning in told if _is_same_field(warning, path)]
            assert same, (path, document.warnings, manifest)
        again = decode_object(encode(document.manifest)).manifest
        assert again == document.manifest, manifest
    assert accepted > MANY // 8
    assert warned > MANY // 20
    assert refused > 0


def _is_same_field(warned: str, path: str) -> bool:
    """Whether a warning about one place of a field also counts for another place: it names the
    first one."""
    return _without_index(warned) == _without_index(path)


def _without_index(path: str) -> str:
    return "".join(part.partition("]")[2] if "]" in part else part for part in path.split("["))
