"""`admit doctor` names exactly the entries that services cannot read."""

import pytest

from admittance.doctor.set_aside import judge_claim, judge_of_providers
from admittance.events.reader import BROKEN
from admittance.runtime.bus.bucket import Entry


def test_the_folder_of_a_runner_can_be_read() -> None:
    judge_claim(Entry("_runner.2716a3bf031c", b'{"root":"/data/runner"}', 1))


@pytest.mark.parametrize("key", ["team.train.5", "team.train.5-1"])
def test_a_claim_of_a_job_or_of_its_part_can_be_read(key: str) -> None:
    judge_claim(Entry(key, b'{"runner":"r"}', 1))


@pytest.mark.parametrize("key", ["_docker.installation", "_kubernetes.installation"])
def test_the_installation_of_a_provider_can_be_read(key: str) -> None:
    judge_of_providers(Entry(key, b"0f3a5c", 1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("_runner.2716a3bf031c", b"junk"),
        ("nonsense", b"junk"),
        ("default.train.x", b'{"runner":"r"}'),
        ("default.train.5-x", b'{"runner":"r"}'),
        ("default.train.5-1", b"junk"),
        ("default.train.5-1", b"{}"),
    ],
)
def test_unreadable_claims_are_named(key: str, value: bytes) -> None:
    with pytest.raises(BROKEN):
        judge_claim(Entry(key, value, 1))


@pytest.mark.parametrize("key", ["_docker.installation", "_pool.x", "a.b"])
def test_unreadable_entries_of_providers_are_named(key: str) -> None:
    with pytest.raises(BROKEN):
        judge_of_providers(Entry(key, b"\xffjunk", 1))
