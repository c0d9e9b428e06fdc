"""An invalid MachinePool is refused with a line that names the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.cli.support import files
from admittance.client.errors import BadInput

MACHINE = "{name: a, count: 1, resources: {cpu: 4}}"


HEAD = "apiVersion: admittance.dev/v1\nkind: MachinePool\n"


def a_pool(
    *machines: str, spec: str = "", metadata: str = "{name: rack}", of: str = "rack.example.com"
) -> str:
    spec = f"provisioningClassName: {of}, machines: [{', '.join(machines)}]{spec}"
    return f"{HEAD}metadata: {metadata}\nspec: {{{spec}}}\n"


def refused(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "pool.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        files.documents([str(path)], "default")
    return tuple(
        line.removeprefix(f"{path}: document 1 (MachinePool rack): ") for line in caught.value.lines
    )


INVALID_CASES: dict[str, tuple[str, str]] = {
    "fewer machines than none": (
        a_pool("{name: a, count: -1, resources: {cpu: 4}}"),
        "spec.machines[0].count must be 0 to 100000, not -1",
    ),
    "too many machines": (
        a_pool("{name: a, count: 1000000000000, resources: {cpu: 4}}"),
        "spec.machines[0].count must be 0 to 100000, not 1000000000000",
    ),
    "a resource that is no quantity": (
        a_pool("{name: a, resources: {cpu: lots}}"),
        "spec.machines[0].resources[cpu]: 'lots' is not a quantity",
    ),
    "a time to boot that is no number": (
        a_pool("{name: a, bootSeconds: .nan, resources: {cpu: 4}}"),
        "spec.machines[0].bootSeconds",
    ),
    "a field that there is not": (
        a_pool("{name: a, number: 3, resources: {cpu: 4}}"),
        "spec.machines[0]: Object contains unknown field `number`",
    ),
    "a kind twice": (a_pool(MACHINE, MACHINE), "spec.machines[1].name: duplicate name 'a'"),
    "of a class that no ProvisioningRequestConfig can name": (
        a_pool(MACHINE, of="Rack 7"),
        "spec.provisioningClassName: 'Rack 7' is not a name: lower case letters, digits, '-'",
    ),
    "two machines of the same name": (
        a_pool("{name: 'a,b', resources: {cpu: 4}}"),
        "spec.machines[0].name: 'a,b' is not a name",
    ),
    "machines without a name": (
        a_pool("{name: '', resources: {cpu: 4}}"),
        "spec.machines[0].name: '' is not a name",
    ),
    "a bad label key": (
        a_pool(MACHINE, "{name: b, resources: {cpu: 4}, labels: {a/b/c: x}}"),
        "spec.machines[1].labels: 'a/b/c' has no DNS name before the '/'",
    ),
    "a bad label value": (
        a_pool("{name: a, resources: {cpu: 4}, labels: {zone: row 7!}}"),
        "spec.machines[0].labels: the value of 'zone': 'row 7!' is not a label value",
    ),
    "a resource that no pod can ask for": (
        a_pool("{name: a, resources: {a gpu: 4}}"),
        "spec.machines[0].resources: 'a gpu' is not a label key",
    ),
    "kept for less than no time": (
        a_pool(MACHINE, spec=", bookingSeconds: -1"),
        "spec.bookingSeconds must not be negative",
    ),
    "no spec": (f"{HEAD}metadata: {{name: rack}}\n", "spec: Expected `object`, got `null`"),
    "a namespace": (
        a_pool(MACHINE, metadata="{name: rack, namespace: team}"),
        "metadata.namespace: a MachinePool has no namespace",
    ),
}


@pytest.mark.parametrize("case", INVALID_CASES)
def test_an_invalid_machine_pool_is_refused(case: str, tmp_path: Path) -> None:
    text, want = INVALID_CASES[case]
    (line,) = refused(tmp_path, text)
    assert line.startswith(want)


def test_a_file_with_an_invalid_machine_pool_is_refused_as_a_whole(tmp_path: Path) -> None:
    flavor = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: spot}\n"
    text = f"{a_pool('{name: a}')}---\n{flavor}"
    assert refused(tmp_path, text) == (
        "spec.machines[0]: Object missing required field `resources`",
    )


def test_a_configuration_among_manifests_has_an_error_with_its_reader(tmp_path: Path) -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    [line] = refused(tmp_path, text)
    assert "a Configuration is not applied: services read it with --config FILE" in line


def test_a_machine_pool_and_other_foreign_objects_are_accepted(tmp_path: Path) -> None:
    other = "apiVersion: example.com/v1\nkind: MachinePool\nmetadata: {name: x, namespace: team}\n"
    path = tmp_path / "pool.yaml"
    path.write_text(f"{a_pool(MACHINE)}---\n{other}")
    assert len(files.documents([str(path)], "default")) == 2
