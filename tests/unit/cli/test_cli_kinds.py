"""Names, keys and completion of kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from admittance.cli.objects.delete import targets_of
from admittance.cli.up.options import Options
from admittance.cli.up.up import started_by
from admittance.client import kinds
from admittance.client.errors import BadInput
from admittance.runtime.process.service import WithUp
from admittance.services import SERVICES
from admittance.telemetry import variables


@pytest.mark.parametrize(
    ("typed", "want"),
    [
        pytest.param("workloads", kinds.WORKLOAD, id="the plural"),
        pytest.param("workload", kinds.WORKLOAD, id="the singular"),
        pytest.param("wl", kinds.WORKLOAD, id="the short name"),
        pytest.param("ClusterQueue", kinds.CLUSTER_QUEUE, id="the manifest's spelling"),
        pytest.param("cq", kinds.CLUSTER_QUEUE, id="another short name"),
        pytest.param("clusterqueues.kueue.x-k8s.io", kinds.CLUSTER_QUEUE, id="with its group"),
        pytest.param("rf", kinds.FLAVOR, id="a flavor"),
        pytest.param("ns", kinds.NAMESPACE, id="a kind without a group"),
    ],
)
def test_a_kind_is_found_by_every_name_it_has(typed: str, want: kinds.ObjectKind) -> None:
    assert kinds.kind_named(typed) is want


def test_an_unknown_kind_is_refused_with_all_kinds() -> None:
    with pytest.raises(BadInput, match=r'no kind "pods"; there are workloads \(wl\), .*'):
        kinds.kind_named("pods")


def test_the_kind_job_is_refused_with_the_kind_workloads() -> None:
    with pytest.raises(BadInput, match="becomes a workload"):
        kinds.kind_named("jobs")


def test_a_foreign_kind_is_named_with_its_group_in_singular_or_plural() -> None:
    kind = kinds.kind_named("Budgets.example.com")
    assert kind.is_foreign
    assert kind.patterns(None) == ("budgets_example_com.>", "budget_example_com.>")
    assert "budget_example_com.gold" in kind.keys("default", "gold")
    assert "budget_example_com.default.gold" in kind.keys("default", "gold")


def test_keys_equal_the_keys_in_the_bucket() -> None:
    assert kinds.WORKLOAD.keys("team.a", "train.7") == ("workload.team_a.train_7",)
    assert kinds.WORKLOAD.patterns("team.a") == ("workload.team_a.*",)
    assert kinds.WORKLOAD.patterns(None) == ("workload.>",)
    assert kinds.FLAVOR.keys("ignored", "spot") == ("flavor.spot",)
    assert kinds.FLAVOR.patterns("ignored") == ("flavor.>",)


@pytest.mark.parametrize(
    ("words", "want"),
    [
        pytest.param(("wl", "train"), (kinds.WORKLOAD, "train"), id="in two words"),
        pytest.param(("wl/train", None), (kinds.WORKLOAD, "train"), id="in one"),
        pytest.param(("wl", None), (kinds.WORKLOAD, None), id="the kind alone"),
    ],
)
def test_kind_and_name_come(
    words: tuple[str, str | None], want: tuple[kinds.ObjectKind, str | None]
) -> None:
    assert kinds.target(*words) == want


@pytest.mark.parametrize(
    ("words", "why"),
    [
        pytest.param(("wl/", None), "lacks a name", id="nothing behind the slash"),
        pytest.param(("wl/a", "b"), "one word too many", id="two names"),
        pytest.param(("cq", "a"), "workloads only", id="a kind other than workload"),
        pytest.param(("wl", None), "name of the workload is missing", id="no name"),
        pytest.param(("hello", None), "type: workload hello", id="a name without its kind"),
    ],
)
def test_arguments_that_name_no_workload_are_refused(
    words: tuple[str, str | None], why: str
) -> None:
    with pytest.raises(BadInput, match=why):
        kinds.workload_target(*words)


RECEIVERS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@pytest.fixture(autouse=True)
def no_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RECEIVERS, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)


def names_started(*, runner: bool = True) -> list[str]:
    return [service.name for service in started_by(Options(data_dir=Path(), runner=runner))]


def test_services_that_need_more_than_a_bus_do_not_start_with_up() -> None:
    started = names_started()
    assert started == [
        service.name
        for service in SERVICES.values()
        if service.with_up in (WithUp.ALWAYS, WithUp.ON_DEMAND)
    ]
    assert not {"provider-aws", "provider-kubernetes", "provider-docker"} & set(started)
    assert {"telemetry", "runner"} - set(started) == {"telemetry"}
    assert "runner" not in names_started(runner=False)


@pytest.mark.parametrize("name", RECEIVERS)
def test_up_exports_traces_if_a_receiver_is_set(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "http://collector:4318")
    assert names_started()[-3:] == ["telemetry", "forecast", "runner"]
    monkeypatch.setattr(variables, "find_spec", lambda _: None)
    assert "telemetry" not in names_started()
    assert "pip install 'admittance[otel]'" in capsys.readouterr().err


def test_up_exports_no_traces_if_a_variable_disables_the_export(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(RECEIVERS[0], "http://collector:4318")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert "telemetry" not in names_started()


def test_up_refuses_a_receiver_that_is_not_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RECEIVERS[0], "collector:4318")
    with pytest.raises(BadInput, match="is not a URL such as"):
        started_by(Options(data_dir=Path()))


def test_delete_takes_several_objects_also_of_several_kinds() -> None:
    runner = (kinds.RUNNER, "gpu")
    assert targets_of("runner", ["gpu"]) == [runner]
    assert targets_of("machines/gpu", ["workload/w"]) == [runner, (kinds.WORKLOAD, "w")]
    for typed in ("runner", "runner/"):
        with pytest.raises(BadInput):
            targets_of(typed, [])
