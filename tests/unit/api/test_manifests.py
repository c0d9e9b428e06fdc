"""Manifests are read strictly, in both versions, and whatever is wrong is one clear line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admittance.api.checks import Foreign
from admittance.api.fields.names import name_error
from admittance.api.fields.problems import LINE_MAX
from admittance.api.kinds import KINDS, kind_named
from admittance.api.queues import ClusterQueue, Cohort
from admittance.api.reading.manifest import ManifestError, accept, decode_object, encode, read
from admittance.api.workload import Job, Workload
from support.examples import examples

V1, V2 = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "manifests"


def an_object(kind: str, spec: Any, *, version: str = V2, name: str = "x", **more: Any) -> Any:
    return {
        "apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec, **more
    }  # fmt: skip


def complaint(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        read(text, "queues.yaml")
    line = str(caught.value)
    assert "\n" not in line
    assert line.isprintable()
    return line


QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: team-a
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: default
      resources:
      - name: cpu
        nominalQuota: 9
"""


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(
            "nominalQuota: 9", "nominalQuota: 1.5.2Gi",
            "queues.yaml: document 1 (ClusterQueue team-a): "
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: '1.5.2Gi' is not a",
            id="a malformed quantity",
        ),
        pytest.param("nominalQuota: 9", "nominalQuota: -1", "must not be negative",
                     id="a negative quota"),
        pytest.param("nominalQuota: 9", "nominalquota: 9", 'did you mean "nominalQuota"?',
                     id="an unknown field with the one that was meant"),
        pytest.param("namespaceSelector: {}", "cohort: all",
                     'spec.cohort: unknown field; this version calls it "cohortName"',
                     id="a field of the older version"),
        pytest.param("kind: ClusterQueue", "kind: ClusterQeue",
                     'did you mean "ClusterQueue"?', id="an unknown kind"),
        pytest.param("kind: ClusterQueue", "kind: MultiKueueConfig", "is not known in",
                     id="a kind that is not supported"),
        pytest.param("v1beta2", "v1beta9", "known: kueue.x-k8s.io/v1beta2, kueue.x-k8s.io/v1beta1",
                     id="an unknown version"),
        pytest.param("kueue.x-k8s.io", "kueue.x-k8s.oi", "is not known; a ClusterQueue is",
                     id="a misspelt group"),
        pytest.param("namespaceSelector: {}", "namespaceSelector: []",
                     "spec.namespaceSelector: must be a mapping, not a list", id="a wrong type"),
        pytest.param("namespaceSelector: {}", "stopPolicy: 3x",
                     "'3x' is not one of None, Hold, HoldAndDrain", id="an unknown word"),
        pytest.param("team-a", "a" * 300, "metadata.name: has 300 characters, at most 253",
                     id="a name of 300 characters"),
        pytest.param("  name: team-a", "  labels: {}", "metadata.name: must be set", id="no name"),
        pytest.param("  name: team-a", "  name: team-a\n  name: team-b",
                     "document 1: line 5, column 3: duplicate key 'name'",
                     id="a key twice"),
        pytest.param("spec:", "spec: [", "queues.yaml: document 1: line ", id="malformed YAML"),
        pytest.param("  namespaceSelector", "\tnamespaceSelector",
                     "document 1: line 6, column 1: not YAML:", id="a tab"),
        pytest.param("team-a", "team-a\n  creationTimestamp: yesterday", "must be a time like",
                     id="no time"),
        pytest.param("team-a", "team-a\n  namespace: ns", "a ClusterQueue has no namespace",
                     id="a namespace of a cluster-wide kind"),
    ],
)  # fmt: skip
def test_an_invalid_manifest_gives_one_clear_line(old: str, new: str, want: str) -> None:
    assert want in complaint(QUEUE.replace(old, new, 1))


def test_all_problems_of_all_documents_are_reported() -> None:
    bad = QUEUE.replace("namespaceSelector", "selector").replace("nominalQuota: 9", "nominal: x")
    with pytest.raises(ManifestError) as caught:
        read(f"---\n{bad}---\n{QUEUE}---\n{bad.replace('team-a', 'team-b')}", "f.yaml")
    error = caught.value
    assert "(and 1 more document is wrong)" in str(error)
    lines = error.lines()
    assert len(lines) == 6
    assert lines[0].startswith("f.yaml: document 1 (ClusterQueue team-a): ")
    assert lines[5].startswith("f.yaml: document 3 (ClusterQueue team-b): ")


def test_the_same_object_twice_is_refused() -> None:
    assert "metadata.name: the same object is in document 1" in complaint(f"{QUEUE}---\n{QUEUE}")


def test_empty_documents_are_skipped_but_counted() -> None:
    documents = read(f"# nothing\n---\n---\n{QUEUE}---\n", "f.yaml")
    assert [document.place for document in documents] == ["document 2"]


def test_a_list_is_unrolled() -> None:
    items = [an_object("ClusterQueue", {}, name="a"), an_object("Cohort", {}, name="b")]
    documents = read(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "f.json")
    assert [document.place for document in documents] == [
        "document 1, item 1",
        "document 1, item 2",
    ]
    assert [document.manifest.kind for document in documents] == ["ClusterQueue", "Cohort"]


def test_a_list_of_a_wrong_kind_names_the_item() -> None:
    items = [an_object("ClusterQueue", {}), an_object("Nonsense", {})]
    line = complaint(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert "document 1, item 2 (Nonsense x)" in line


def test_a_namespaced_object_gets_the_namespace_it_does_not_name() -> None:
    raw = msgspec.json.encode(an_object("LocalQueue", {"clusterQueue": "q"}))
    assert accept(raw, namespace="team-a").manifest.metadata.namespace == "team-a"
    assert accept(raw).manifest.metadata.namespace == ""


def test_a_plain_scalar_gets_the_type_of_its_field() -> None:
    text = """\
    apiVersion: kueue.x-k8s.io/v1beta2
    kind: Workload
    metadata: {name: w, namespace: n, labels: {a: yes, b: 1.10, c: 0777, d: null, e: 1e3, on: off}}
    spec:
      active: on
      queueName: 007
      podSets:
      - count: 3
        template:
          spec:
            containers:
            - name: c
              args: [sleep, 60, true, ~x]
              env: [{name: N, value: 1.10.0}]
              resources: {requests: {cpu: 1.50, memory: 1e3}}
              ports: [{containerPort: 80, name: on}]
    """
    workload = read(text, "f.yaml")[0].manifest
    assert isinstance(workload, Workload)
    assert workload.metadata.labels == {
        "a": "yes", "b": "1.10", "c": "0777", "d": "", "e": "1e3", "on": "off"
    }  # fmt: skip
    assert workload.spec.active is True
    assert workload.spec.queue_name == "007"
    container = workload.spec.pod_sets[0].template.spec.containers[0]
    assert container.args == ("sleep", "60", "true", "~x")
    assert container.env[0].value == "1.10.0"
    assert container.resources.requests == {"cpu": "1.50", "memory": "1e3"}
    assert container.ports == [{"containerPort": 80, "name": "on"}]


@pytest.mark.parametrize("written", ["012", "1_000", "0x10", "3.0", "three", "yes", '"3"'])
def test_a_number_without_quotes_is_accepted(written: str) -> None:
    text = json.dumps(an_object("Workload", {"podSets": [{"count": 0}]}))
    line = complaint("# yaml\n" + text.replace('"count": 0', f'"count": {written}'))
    assert "spec.podSets[0].count: must be a whole number" in line


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        pytest.param("9" * 21, "does not fit 64 bits", id="more digits than any has"),
        pytest.param("-" + "9" * 21, "does not fit 64 bits", id="as many below 0"),
        pytest.param("9" * 19, "does not fit 64 bits", id="just too large"),
        pytest.param("007", "without leading zeros", id="leading zeros"),
        pytest.param("0" * 30 + "7", "without leading zeros", id="many leading zeros"),
    ],
)
def test_a_refused_number_has_a_reason(written: str, reason: str) -> None:
    text = json.dumps(an_object("Workload", {"podSets": [{"count": 0}]}))
    line = complaint("# yaml\n" + text.replace('"count": 0', f'"count": {written}'))
    assert reason in line
    assert len(line) < 300


# Versions and spellings. ----------------------------------------------------------------


def queue_of(spec: Any, version: str = V2) -> ClusterQueue:
    manifest = decode_object(an_object("ClusterQueue", spec, version=version)).manifest
    assert isinstance(manifest, ClusterQueue)
    return manifest


def test_an_old_cluster_queue_is_read_as_a_new_one() -> None:
    old = {
        "cohort": "all",
        "admissionChecks": ["c"],
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
    }
    accepted = decode_object(an_object("ClusterQueue", old, version=V1))
    queue = accepted.manifest
    assert isinstance(queue, ClusterQueue)
    assert queue.api_version == V2
    assert queue.spec.cohort_name == "all"
    assert queue.spec.admission_checks == ("c",)
    assert queue.spec.flavor_fungibility.when_can_borrow == "MayStopSearch"
    assert queue.spec.flavor_fungibility.when_can_preempt == "MayStopSearch"
    assert len(accepted.warnings) == 2


def test_old_fields_are_unknown_in_the_new_version() -> None:
    with pytest.raises(ManifestError, match="'Borrow' is not one of"):
        accept(an_object("ClusterQueue", {"flavorFungibility": {"whenCanBorrow": "Borrow"}}))


@pytest.mark.parametrize("version", ["kueue.x-k8s.io/v1alpha1", V1])
def test_an_old_cohort_names_its_parent(version: str) -> None:
    cohort = decode_object(an_object("Cohort", {"parent": "root"}, version=version)).manifest
    assert isinstance(cohort, Cohort)
    assert cohort.spec.parent_name == "root"


@pytest.mark.parametrize(
    ("source", "group", "kind"),
    [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ],
)
def test_an_old_workload_names_its_priority_class(source: str, group: str, kind: str) -> None:
    spec = {"podSets": [{}], "priorityClassName": "high", "priorityClassSource": source}
    workload = decode_object(an_object("Workload", spec, version=V1)).manifest
    assert isinstance(workload, Workload)
    ref = workload.spec.priority_class_ref
    assert ref is not None
    assert (ref.group, ref.kind, ref.name) == (group, kind, "high")


def test_a_retry_delay_in_minutes_is_a_warning_then_an_unknown_field() -> None:
    spec = {"controllerName": "c", "retryDelayMinutes": 15}
    accepted = accept(an_object("AdmissionCheck", spec, version=V1))
    assert accepted.warnings == (
        "spec.retryDelayMinutes is deprecated and has no effect: a delay comes from the check's "
        "verdict or from spec.retry",
    )
    assert b"retry" not in encode(accepted.manifest)
    with pytest.raises(ManifestError, match=r"spec\.retryDelayMinutes: unknown field"):
        accept(an_object("AdmissionCheck", spec))


@pytest.mark.parametrize(
    ("given_mode", "mode"),
    [("TryPreferredFlavors", "UpgradeOnly"), ("RetainFirstAdmission", "NoMigration"),
     (None, "UpgradeOnly")],
)  # fmt: skip
def test_kueues_policy_is_read_as_the_proposals(given_mode: str | None, mode: str) -> None:
    queue = queue_of({"concurrentAdmissionPolicy": {"migration": {"mode": given_mode}}})
    assert queue.spec.concurrent_admission is not None
    assert queue.spec.concurrent_admission.migration_constraints.mode == mode


def test_the_last_acceptable_flavor_is_the_least() -> None:
    migration = {"constraints": {"lastAcceptableFlavorName": "spot"}}
    queue = queue_of({"concurrentAdmissionPolicy": {"migration": migration}})
    assert queue.spec.concurrent_admission is not None
    assert queue.spec.concurrent_admission.migration_constraints.min_flavor == "spot"


def _with_flavor(**more: Any) -> Any:
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}], **more}
    return [{"coveredResources": ["cpu"], "flavors": [flavor]}]


@pytest.mark.parametrize(
    ("spec", "version", "field"),
    [
        pytest.param({"cohort": "a", "cohortName": "a"}, V1, "spec.cohort", id="cohort"),
        pytest.param({"admissionChecks": ["a"], "admissionchecks": ["b"]}, V2,
                     "spec.admissionchecks", id="both tags of the queue-wide list"),
        pytest.param({"resourceGroups": _with_flavor(admissionChecks=["a"], admissionchecks=["a"])},
                     V2, "spec.resourceGroups[0].flavors[0].admissionchecks",
                     id="both tags of a flavor's list"),
        pytest.param({"admissionChecks": ["a"],
                      "admissionChecksStrategy": {"admissionChecks": [{"name": "b"}]}},
                     V2, "spec.admissionChecksStrategy", id="a list and a strategy"),
        pytest.param({"resourceGroups": _with_flavor(admissionchecks=["a"]),
                      "admissionChecksStrategy": {"admissionChecks": [{"name": "b"}]}},
                     V2, "spec.admissionChecksStrategy", id="a flavor's list and a strategy"),
        pytest.param({"concurrentAdmission": {"migrationConstraints": {"mode": "NoMigration"}},
                      "concurrentAdmissionPolicy": {"migration": {}}},
                     V2, "spec.concurrentAdmissionPolicy", id="both spellings of the policy"),
    ],
)  # fmt: skip
def test_two_forms_in_one_object_are_refused(spec: Any, version: str, field: str) -> None:
    with pytest.raises(ManifestError) as caught:
        accept(an_object("ClusterQueue", spec, version=version))
    assert ("Forbidden", field) in {
        (problem.code, problem.field) for problem in caught.value.problems
    }


def test_a_problem_names_the_field_as_written() -> None:
    with pytest.raises(ManifestError, match=r"spec\.cohort: 'Not A Name' is not a name"):
        accept(an_object("ClusterQueue", {"cohort": "Not A Name"}, version=V1))


# Foreign objects, and what is said back. ------------------------------------------------


def test_an_object_of_a_foreign_group_is_kept_as_it_is() -> None:
    text = """\
    apiVersion: example.com/v1
    kind: Budget
    metadata: {name: weekly, strange: true}
    spec: {limit: 7, query: "sum(x)", on: yes, list: [1, 2.5, null]}
    extra: [anything]
    """
    foreign = read(text, "f.yaml")[0].manifest
    assert isinstance(foreign, Foreign)
    assert foreign.token == "budget.example.com"
    assert foreign.parameters == {
        "limit": 7,
        "query": "sum(x)",
        "on": "yes",
        "list": [1, 2.5, None],
    }
    assert decode_object(encode(foreign)).manifest == foreign


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_samples_are_encoded_and_read_back_equal(path: Path) -> None:
    if path.name == "minimal-cq.yaml":
        # Kueue's own sample names a flavor that its queue does not have, and Kueue refuses it, too.
        assert "is not a flavor of this queue" in complaint(path.read_text())
        return
    for document in read(path.read_text(), path.name):
        again = decode_object(document.raw)
        assert again.manifest == document.manifest
        assert list(json.loads(document.raw))[:2] == ["apiVersion", "kind"]


def test_bytes_and_values_give_the_same_manifest() -> None:
    spec = {"podSets": [{"count": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}]}
    value = an_object("Workload", spec)
    assert decode_object(msgspec.json.encode(value)) == decode_object(value)


def test_kinds_are_found_by_all_their_names() -> None:
    for word in ("wl", "workloads", "Workload", "cq", "clusterqueues", "lq", "ac", "ns"):
        assert kind_named(word) is not None, word
    assert kind_named("nonsense") is None
    assert len({kind.token for kind in KINDS.values()}) == len(KINDS)


# Size and malice. -----------------------------------------------------------------------


def test_many_problems_are_cut_short() -> None:
    crowd = {f"nominalQuote{i}": 1 for i in range(100_000)}
    with pytest.raises(ManifestError) as caught:
        accept(an_object("ClusterQueue", crowd))
    assert len(caught.value.problems) == 50
    assert str(caught.value).endswith("; and 45 more")


def test_a_long_name_of_an_unknown_field_is_cut_short() -> None:
    with pytest.raises(ManifestError) as caught:
        read(json.dumps({"kind": "Cohort", "apiVersion": V2, "x" * 100_000: 1}), "f")
    assert len(str(caught.value)) <= LINE_MAX


def test_a_manifest_of_five_megabytes_is_read() -> None:
    comment = "# a line that says nothing but is long\n" * 120_000
    many = "".join(f"---\n{QUEUE.replace('team-a', f'team-{i}')}" for i in range(2_000))
    assert len(comment + many) > 5_000_000
    assert len(read(comment + many, "f.yaml")) == 2_000


def test_a_text_that_is_too_large_is_one_line() -> None:
    assert "a manifest may have" in complaint("# " + "x" * 9_000_000)


def test_an_object_that_is_too_large_for_the_bus_is_one_line() -> None:
    labels = {"description": "x" * 950_000}
    raw = msgspec.json.encode({**an_object("WorkloadPriorityClass", None), **labels})
    with pytest.raises(ManifestError, match="an object may have 900,000"):
        decode_object(raw)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n"
            for i in range(9)), id="a bomb of aliases"),
        pytest.param('a: &a "' + "x" * 1_000_000 + '"\nb: [' + "*a," * 1_000 + "]",
                     id="a gigabyte by aliases of one long text"),
        pytest.param("[" * 100_000, id="nested lists"),
        pytest.param('{"a":' * 100_000, id="nested JSON"),
        pytest.param('{"a":' * 500 + "1" + "}" * 500, id="valid nested JSON"),
        pytest.param("a: &a [*a]", id="an alias of itself"),
        pytest.param("!!python/object/apply:os.system [ls]", id="a tag"),
        pytest.param("? {a: b}\n: c", id="a key that is not a string"),
        pytest.param("<<: 3", id="a merge of a number"),
        pytest.param("\x00", id="a null byte"),
        pytest.param('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "\\ud800"}}',
                     id="half a character"),
        pytest.param('{"apiVersion": "example.com/v1", "kind": "A", "metadata": {"name": "x"},'
                     '"spec": "\\ud800"}', id="half a character in a foreign object"),
        pytest.param("- a\n- b", id="a list"),
        pytest.param("just words", id="a scalar"),
    ],
)  # fmt: skip
def test_malicious_yaml_gives_one_line(text: str) -> None:
    complaint(text)


def test_bytes_that_are_not_utf8_are_one_line() -> None:
    with pytest.raises(ManifestError, match=r"f\.yaml: the text is not UTF-8: byte 3"):
        read(b"a: \xff", "f.yaml")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_only_manifest_errors(data: bytes) -> None:
    with contextlib.suppress(ManifestError):
        read(data, "f")
    with contextlib.suppress(ManifestError):
        accept(data)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["1Gi", "Never", "cpu", "default", "x", "2026-01-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "name", "spec", "metadata", "labels", "resourceGroups", "flavors", "resources",
            "coveredResources", "nominalQuota", "podSets", "template", "containers", "requests",
            "cohort", "cohortName", "admissionchecks", "admissionChecksStrategy", "admissionChecks",
            "concurrentAdmissionPolicy", "concurrentAdmission", "migration", "constraints", "mode",
            "explicitVariants", "flavorFungibility", "priorityClassName", "priorityClassSource",
            "parameters", "retry", "baseDelay", "factor", "retryDelayMinutes", "nodeTaints", "key",
            "tolerations", "annotations", "namespaceSelector", "matchExpressions", "affinity",
            "nodeAffinity", "status", "preemption", "items", "fairSharing", "weight", "value",
        ]), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=examples(300))
@given(
    st.sampled_from([*KINDS, "List", "Budget"]),
    st.sampled_from([V1, V2, "batch/v1", "v1", "example.com/v1", "kueue.x-k8s.io/v1alpha1"]),
    st.dictionaries(st.sampled_from(["spec", "metadata", "items", "status"]), _VALUES, max_size=3),
)
def test_arbitrary_objects_raise_only_manifest_errors(
    kind: str, version: str, rest: dict[str, Any]
) -> None:
    value = {"apiVersion": version, "kind": kind, **rest}
    with contextlib.suppress(ManifestError):
        accept(value)
    with contextlib.suppress(ManifestError):
        for document in read(json.dumps(value), "f"):
            assert decode_object(document.raw).manifest is not None


def test_a_job_without_a_queue_names_the_missing_label() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
           "spec": {"template": {}}}  # fmt: skip
    assert isinstance(decode_object(job).manifest, Job)
    with pytest.raises(ManifestError, match=r"labels\[kueue.x-k8s.io/queue-name\]: must be set"):
        accept(job)


@pytest.mark.parametrize(
    ("written", "meant"),
    [("Reservation", "reservation"), ("ON_demand", "on-demand"), ("-Spot", "spot"), ("!", "")],
)
def test_an_invalid_name_is_refused_with_a_suggestion(written: str, meant: str) -> None:
    complaint = name_error(written)
    assert complaint
    assert complaint.endswith(f"; did you mean {meant}?" if meant else "letter or digit")
