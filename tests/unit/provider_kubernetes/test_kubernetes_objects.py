"""Names and bodies of objects in the cluster, and the settings of the provider."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admittance.provider_kubernetes.objects import (
    ObjectIdentity,
    digest,
    request_body,
    request_name,
    selector,
    template_body,
    template_name,
)
from admittance.provider_kubernetes.settings import CLASSES, KubeSettings
from admittance.runtime.errors import SetupError

SUBDOMAIN = re.compile(r"\A[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


def asked(**fields: str) -> ObjectIdentity:
    given = {
        "id": "u/capacity/1/1",
        "provisioning_class": "class",
        "installation": "ours",
        "namespace": "prod",
        "workload": "train",
    }
    return ObjectIdentity(**{**given, **fields})


@given(st.text(max_size=300), st.text(max_size=80), st.text(max_size=80))
def test_names_are_valid_in_the_cluster_for_any_workload(
    workload: str, id: str, pod_set: str
) -> None:
    request = request_name(workload, id)
    for name in (request, template_name(request, pod_set)):
        assert len(name) <= 253
        assert SUBDOMAIN.match(name)


def test_names_differ_by_workload_cycle_and_attempt() -> None:
    ids = ("u/c/1/1", "u/c/1/2", "u/c/2/1", "other/c/1/1", "u/c/1/1~1")
    names = {request_name("train", id) for id in ids}

    assert len(names) == len(ids)
    assert all(name.startswith("train-") for name in names)
    assert request_name("train", ids[0]) == request_name("train", ids[0])


def test_templates_of_long_requests_have_different_names() -> None:
    request = request_name("x" * 253, "u/c/1/1")

    assert template_name(request, "a") != template_name(request, "b")


def test_a_request_names_its_templates_and_workload() -> None:
    about = asked()
    template = template_body(about, "main", {"spec": {"containers": []}})
    request = request_body(about, [("main", 3)], {"zone": "a"})

    name = template["metadata"]["name"]
    assert request["spec"]["podSets"] == [{"podTemplateRef": {"name": name}, "count": 3}]
    assert request["spec"]["parameters"] == {"zone": "a"}
    for manifest in (template, request):
        assert manifest["metadata"]["annotations"]["admittance.dev/request"] == "u/capacity/1/1"
        wanted = dict(pair.split("=") for pair in selector("ours", "u/capacity/1/1").split(","))
        assert manifest["metadata"]["labels"] == wanted


def test_an_id_as_a_label_is_short_enough() -> None:
    assert len(digest("u/" + "c" * 253 + "/1/1")) <= 63


def test_defaults_are_two_classes_and_equal_namespaces() -> None:
    settings = KubeSettings.from_env({})

    assert settings.classes == CLASSES
    assert settings.namespace("team-a") == "team-a"
    assert settings.only_namespace is None


def test_namespaces_are_mapped_singly_or_all_others_at_once() -> None:
    settings = KubeSettings.from_env({"ADMIT_KUBE_NAMESPACES": "team-a=prod-a, *=batch"})

    assert [settings.namespace(namespace) for namespace in ("team-a", "team-b")] == [
        "prod-a",
        "batch",
    ]
    assert settings.only_namespace is None
    assert KubeSettings.from_env({"ADMIT_KUBE_NAMESPACES": "*=b"}).only_namespace == "b"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("ADMIT_KUBE_NAMESPACES", "team-a", id="no namespace of the cluster"),
        pytest.param("ADMIT_KUBE_NAMESPACES", "a=B_b", id="no name of a namespace"),
        pytest.param("ADMIT_KUBE_NAMESPACES", "a=b,a=c", id="one of ours is there twice"),
        pytest.param("ADMIT_KUBE_INSTALLATION", "a b", id="no value of a label"),
        pytest.param("ADMIT_KUBE_CLASSES", "check capacity", id="no name of a class"),
        pytest.param("ADMIT_KUBE_AWAY_SECONDS", "soon", id="no number"),
        pytest.param("ADMIT_KUBE_SWEEP_SECONDS", "0", id="no time at all"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(SetupError, match=name):
        KubeSettings.from_env({name: value})
