"""Each request of a pod is charged or listed as not charged: exclusions and transformations
together."""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.api.fields.problems import ManifestError
from admittance.api.pod_requests import ResourceTransformation, transformed, uncharged
from admittance.api.reading.configuration_file import read_configuration
from admittance.api.reading.manifest import accept

GPU, COUNT, CREDITS = "v.test/gpu", "v.test/count", "v.test/credits"
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def replaced(*outputs: tuple[str, str], by: str = "", source: str = GPU) -> ResourceTransformation:
    return ResourceTransformation(source, False, by, outputs)


def test_a_multiplier_that_the_pod_does_not_request_counts_once() -> None:
    transformation = replaced((CREDITS, "5"), by=COUNT)
    assert transformed({GPU: 4}, [transformation]) == {CREDITS: 20}
    assert transformed({GPU: 4, COUNT: 3}, [transformation]) == {CREDITS: 60, COUNT: 3}


@pytest.mark.parametrize(
    ("requests", "exclude", "transformations", "covered", "expected"),
    [
        ({GPU: 4}, (), [replaced((CREDITS, "5"), by=COUNT)], None, {}),
        (
            {GPU: 4, COUNT: 0},
            (),
            [replaced((CREDITS, "5"), by=COUNT)],
            None,
            {GPU: "multiplies it by 0 v.test/count"},
        ),
        ({GPU: 4}, ("v.test/",), [replaced((CREDITS, "5"))], None, {GPU: "PrefixES excludes it"}),
        ({GPU: 4, COUNT: 2}, (COUNT,), [replaced((CREDITS, "5"), by=COUNT)], None, {COUNT: "excl"}),
        ({GPU: 4}, (CREDITS,), [replaced((CREDITS, "5"))], None, {}),
        ({GPU: 4}, (), [replaced()], None, {GPU: "by nothing"}),
        ({GPU: 4}, (), [replaced((CREDITS, "-1"), ("v.test/a", "0"))], None, {GPU: "by nothing"}),
        (
            {GPU: 4, COUNT: 2},
            (),
            [replaced((CREDITS, "1")), replaced((CREDITS, "-2"), source=COUNT)],
            None,
            {GPU: "it counts as v.test/credits: all outputs", COUNT: "by nothing"},
        ),
        ({GPU: 4}, (), [ResourceTransformation(GPU, True, "", ())], None, {}),
        ({GPU: 4, "cpu": 1}, (), [], {"cpu"}, {GPU: "does not cover it"}),
        ({GPU: 4}, (), [replaced((CREDITS, "5"))], {GPU}, {GPU: "credits: the ClusterQueue does"}),
        ({GPU: 4}, (), [replaced((CREDITS, "5"))], {CREDITS}, {}),
        ({GPU: 0}, ("v.test/",), [], set(), {}),
    ],
)
def test_a_request_without_quota_is_named_with_the_reason(
    requests: dict[str, int],
    exclude: tuple[str, ...],
    transformations: list[ResourceTransformation],
    covered: set[str] | None,
    expected: dict[str, str],
) -> None:
    reasons = uncharged(requests, exclude, transformations, covered)
    assert reasons.keys() == expected.keys()
    assert all(part.lower() in reasons[name].lower() for name, part in expected.items())


NAMES = ("cpu", "a/x", "a/y", "b/x", "b/y")
names = st.sampled_from(NAMES)


@given(
    requests=st.dictionaries(names, st.integers(0, 5)),
    exclude=st.lists(st.sampled_from(("a/", "b/x", "c")), max_size=2),
    transformations=st.lists(
        st.builds(
            ResourceTransformation,
            names,
            st.booleans(),
            st.one_of(st.just(""), names),
            st.dictionaries(names, st.sampled_from(("-1", "0", "500m", "2")), max_size=2).map(
                lambda outputs: tuple(outputs.items())
            ),
        ),
        max_size=3,
        unique_by=lambda transformation: transformation.input,
    ),
    covered=st.one_of(st.none(), st.sets(names)),
)
def test_every_request_is_charged_or_named(
    requests: dict[str, int],
    exclude: list[str],
    transformations: list[ResourceTransformation],
    covered: set[str] | None,
) -> None:
    kept = {name: each for name, each in requests.items() if not name.startswith(tuple(exclude))}
    by_input = {transformation.input: transformation for transformation in transformations}
    direct = dict.fromkeys(NAMES, Fraction(0))
    generated = dict.fromkeys(NAMES, Fraction(0))
    feeds: dict[str, set[str]] = {name: set() for name in NAMES}
    for name, amount in kept.items():
        transformation = by_input.get(name)
        if transformation is None or transformation.retains:
            direct[name] += amount
            feeds[name].add(name)
        if transformation is not None:
            times = Fraction(amount, 1000 if name == "cpu" else 1)
            if transformation.multiply_by in kept:
                unit = 1000 if transformation.multiply_by == "cpu" else 1
                times *= Fraction(kept[transformation.multiply_by], unit)
            for output, each in transformation.outputs:
                value = Fraction(1, 2) if each == "500m" else Fraction(each)
                generated[output] += times * value
                if times * value > 0:
                    feeds[name].add(output)
    total = {
        name: int(direct[name]) + max(0, ceil(generated[name] * (1000 if name == "cpu" else 1)))
        for name in NAMES
    }
    assert {n: c for n, c in transformed(kept, transformations).items() if c} == {
        n: c for n, c in total.items() if c
    }
    for name, amount in requests.items():
        charged = name in kept and any(
            total[resource] and (covered is None or resource in covered) for resource in feeds[name]
        )
        named = name in uncharged(requests, exclude, transformations, covered)
        assert named == (amount > 0 and not charged), name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("excludeResourcePrefixes: [c]", "excludeResourcePrefixes[0] excludes cpu: no quota"),
        (
            "excludeResourcePrefixes: [a/]\n  transformations: [{input: a/x, outputs: {b/y: 1}}]",
            "transformations[0] has no effect: resources.excludeResourcePrefixes excludes its",
        ),
        (
            "excludeResourcePrefixes: [a/n]\n"
            "  transformations: [{input: a/x, multiplyBy: a/n, outputs: {b/y: 1}}]",
            "transformations[0].multiplyBy has no effect",
        ),
        (
            "excludeResourcePrefixes: [b/]\n  transformations: [{input: a/x, outputs: {b/y: 1}}]",
            "transformations[0].outputs[b/y] is charged",
        ),
        (
            "transformations: [{input: a/x, strategy: Replace}]",
            "transformations[0] has no output of more than 0: no quota is charged for a/x",
        ),
        (
            "transformations: [{input: a/x, strategy: Replace, outputs: {b/y: 0}}]",
            "transformations[0] has no output of more than 0: no quota is charged for a/x",
        ),
        (
            "transformations: [{input: a/x}]",
            "transformations[0] has no output of more than 0: it has no effect",
        ),
    ],
)
def test_settings_that_leave_requests_without_quota_are_named_at_start(
    text: str, said: str
) -> None:
    [warning] = read_configuration(f"{HEAD}resources:\n  {text}\n", "").warnings
    assert warning.startswith(f"resources.{said}")


def test_an_empty_prefix_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"excludeResourcePrefixes\[0\]: must be set"):
        read_configuration(f"{HEAD}resources: {{excludeResourcePrefixes: ['']}}", "")


@pytest.mark.parametrize(
    ("whole", "said"),
    [
        (
            {"requests": {"cpu": "2", "v.test/gpu": "1"}},
            "v.test/gpu]: is not a resource of",
        ),
        ({"limits": {"ephemeral-storage": "1Gi"}}, "ephemeral-storage]: is not a resource of"),
        ({"requests": {"cpu": "1"}}, "cpu]: must be at least 2, which its containers request"),
        ({"limits": {"memory": "1Gi"}}, "memory]: must be at least 3Gi, which its containers"),
        ({"requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}, "limits": {"memory": "3Gi"}}, ""),
    ],
)
def test_resources_of_a_whole_pod_hide_no_request_of_its_containers(
    whole: dict[str, dict[str, str]], said: str
) -> None:
    containers = [
        {"name": "a", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}},
        {"name": "b", "resources": {"limits": {"cpu": "500m", "memory": "2Gi"}}},
    ]
    template = {"spec": {"containers": containers, "resources": whole}}
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    manifest = {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"queueName": "q", "podSets": pod_sets},
    }  # fmt: skip
    if not said:
        accept(json.dumps(manifest).encode())
        return
    with pytest.raises(ManifestError) as error:
        accept(json.dumps(manifest).encode())
    assert f"template.spec.resources[{said}" in str(error.value)
