"""Selectors, affinities, taints: docs/spec/scheduling.md#5.2."""

from __future__ import annotations

import pytest

from admittance.api.meta import LabelSelector, LabelSelectorRequirement, Taint, Toleration
from admittance.api.pods import (
    NodeFieldRequirement,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from admittance.quota.labels import (
    affinity_matches,
    matches_node,
    missing_labels,
    preference,
    selects,
    untolerated,
)


def needs(key: str, operator: str, *values: str) -> LabelSelector:
    requirement = LabelSelectorRequirement(key=key, operator=operator, values=values)
    return LabelSelector(match_expressions=(requirement,))


@pytest.mark.parametrize(
    ("selector", "labels", "want"),
    [
        pytest.param(None, {"a": "b"}, False, id="no selector selects nothing"),
        pytest.param(LabelSelector(), {}, True, id="an empty one selects everything"),
        pytest.param(LabelSelector(match_labels={"a": "b"}), {"a": "b", "c": ""}, True, id="equal"),
        pytest.param(LabelSelector(match_labels={"a": "b"}), {"a": "c"}, False, id="not equal"),
        pytest.param(needs("a", "In", "b", "c"), {"a": "c"}, True, id="among the values"),
        pytest.param(needs("a", "In", "b"), {}, False, id="In wants the label"),
        pytest.param(needs("a", "NotIn", "b"), {}, True, id="NotIn does without the label"),
        pytest.param(needs("a", "NotIn", "b"), {"a": "b"}, False, id="NotIn rules a value out"),
        pytest.param(needs("a", "Exists"), {"a": ""}, True, id="an empty value exists"),
        pytest.param(needs("a", "DoesNotExist"), {"a": ""}, False, id="and so is not absent"),
        pytest.param(
            needs("a", "Sometimes"), {"a": ""}, False, id="an unknown operator does not match"
        ),
    ],
)
def test_selects(selector: LabelSelector | None, labels: dict[str, str], want: bool) -> None:
    assert selects(selector, labels) is want


def taint(effect: str = "NoSchedule") -> Taint:
    return Taint(key="spot", value="true", effect=effect)


@pytest.mark.parametrize(
    ("tolerations", "tolerated"),
    [
        pytest.param((), False, id="nothing tolerates it"),
        pytest.param((Toleration(operator="Exists"),), True, id="no key tolerates every key"),
        pytest.param((Toleration(key="spot", operator="Exists"),), True, id="any value"),
        pytest.param((Toleration(key="spot", value="true"),), True, id="the value, by default"),
        pytest.param((Toleration(key="spot", value="false"),), False, id="another value"),
        pytest.param((Toleration(value="true"),), False, id="no key needs Exists"),
        pytest.param(
            (Toleration(key="spot", operator="Exists", effect="NoExecute"),), False,
            id="another effect",
        ),
    ],
)  # fmt: skip
def test_tolerations(tolerations: tuple[Toleration, ...], tolerated: bool) -> None:
    assert (untolerated((taint(),), tolerations) is None) is tolerated
    assert (untolerated((taint(),), (), tolerations) is None) is tolerated


def test_a_taint_that_only_prefers_excludes_no_pod() -> None:
    assert untolerated((taint("PreferNoSchedule"),), ()) is None


def term(*expressions: tuple[str, str, str], name: str = "") -> NodeSelectorTerm:
    """A term with these expressions, and that a machine has that name."""
    fields = (NodeFieldRequirement(key="metadata.name", operator="In", values=(name,)),)
    return NodeSelectorTerm(
        match_expressions=tuple(
            NodeSelectorRequirement(key=key, operator=operator, values=(value,) if value else ())
            for key, operator, value in expressions
        ),
        match_fields=fields if name else (),
    )


@pytest.mark.parametrize(
    ("selector", "terms", "want"),
    [
        pytest.param({"zone": "x"}, (), True, id="27 a key that the flavor does not know"),
        pytest.param({"type": "two"}, (), False, id="a key that it knows"),
        pytest.param({}, (term(("type", "In", "one")),), True, id="an affinity that holds"),
        pytest.param({}, (term(("type", "In", "two")),), False, id="one that does not"),
        pytest.param(
            {}, (term(("type", "In", "two")), term(("zone", "Exists", ""))), True,
            id="28 a term on foreign keys alone matches, and so does the affinity",
        ),
        pytest.param(
            {"type": "two"}, (term(("zone", "Exists", "")),), False,
            id="28 but the node selector remains",
        ),
        pytest.param(
            {}, (term(("type", "In", "one"), ("zone", "In", "x")),), True,
            id="foreign keys of a term are dropped",
        ),
        pytest.param(
            {}, (term(("size", "In", "9")), term(("size", "In", "8"))), True, id="one of two terms"
        ),
        pytest.param({}, (term(("size", "Gt", "4")),), True, id="greater than"),
        pytest.param({}, (term(("size", "Lt", "4")),), False, id="less than"),
        pytest.param({}, (term(("size", "Gt", "8")),), False, id="greater than, equal"),
        pytest.param({}, (term(("size", "Lt", "8")),), False, id="less than, equal"),
        pytest.param({}, (term(("type", "Gt", "4")),), False, id="greater than, of no number"),
    ],
)  # fmt: skip
def test_matches_node(
    selector: dict[str, str], terms: tuple[NodeSelectorTerm, ...], want: bool
) -> None:
    assert matches_node({"type": "one", "size": "8"}, selector, terms) is want


def test_case_27_a_flavor_without_labels_matches_any_selector() -> None:
    assert matches_node({}, {"type": "two"}, (term(("type", "In", "two")),))


# Machines. ----------------------------------------------------------------------------------


ZONE_A = ("zone", "In", "a")
HAS_DISK = ("disk", "Exists", "")
MACHINE = {"zone": "a", "cores": "8"}


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        pytest.param(None, True, id="nothing is required"),
        pytest.param((), False, id="no terms"),
        pytest.param((term(),), False, id="an empty term"),
        pytest.param((term(ZONE_A),), True, id="one expression"),
        pytest.param((term(HAS_DISK),), False, id="a label that the machine lacks"),
        pytest.param((term(ZONE_A, HAS_DISK),), False, id="all expressions of a term"),
        pytest.param((term(HAS_DISK), term(ZONE_A)), True, id="one of the terms"),
        pytest.param((term(name="gpu-1"),), True, id="its name"),
        pytest.param((term(name="gpu-2"),), False, id="the name of another"),
        pytest.param((term(ZONE_A, name="gpu-1"),), True, id="its name and a label"),
        pytest.param((term(ZONE_A, name="gpu-2"),), False, id="a label of another"),
        pytest.param((term(HAS_DISK, name="gpu-1"),), False, id="its name without the label"),
        pytest.param((term(("cores", "Gt", "7")),), True, id="more than"),
        pytest.param((term(("cores", "Gt", "8")),), False, id="not more than"),
        pytest.param((term(("cores", "Lt", "9")),), True, id="less than"),
        pytest.param((term(("cores", "Lt", "8")),), False, id="not less than"),
        pytest.param((term(("cores", "Gt", "")),), False, id="more than nothing"),
        pytest.param((term(("zone", "Gt", "1")),), False, id="no number"),
        pytest.param((term(("disk", "Lt", "1")),), False, id="a number that is not there"),
        pytest.param((term(("zone", "NotIn", "b")),), True, id="another value"),
        pytest.param((term(("zone", "NotIn", "a")),), False, id="a value ruled out"),
    ],
)
def test_a_machine_matches_a_required_affinity(
    terms: tuple[NodeSelectorTerm, ...] | None, matches: bool
) -> None:
    assert affinity_matches("gpu-1", MACHINE, terms) is matches


def test_the_weights_of_preferred_terms_add_up() -> None:
    preferred = [
        PreferredSchedulingTerm(weight=weight, preference=preference)
        for weight, preference in ((3, term(ZONE_A)), (5, term(HAS_DISK)), (7, term(name="gpu-1")))
    ]
    assert preference("gpu-1", MACHINE, preferred) == 10
    assert preference("gpu-2", MACHINE, preferred) == 3
    assert preference("gpu-2", {}, preferred) == 0


def test_the_labels_that_a_machine_lacks_are_those_with_another_value_too() -> None:
    selector = [("zone", "a"), ("zone", "b"), ("disk", "ssd")]
    assert missing_labels(MACHINE, selector) == (("zone", "b"), ("disk", "ssd"))
    assert missing_labels(MACHINE, []) == ()
