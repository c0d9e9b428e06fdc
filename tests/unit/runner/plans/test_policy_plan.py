"""The part of a job's policy that a shim gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.api.pods import PodTemplate
from admittance.job_rules.rules import CannotRun
from admittance.runner.plans.policy_plan import (
    FailureRulePlan,
    PolicyPlan,
    SuccessRulePlan,
    policy_plan,
)


def template(policy: str = "", **spec: Any) -> PodTemplate:
    notes = {"admittance.dev/job-policy": policy} if policy else {}
    return msgspec.convert({"metadata": {"annotations": notes}, "spec": spec}, PodTemplate)


def test_a_template_without_policies_has_none() -> None:
    assert policy_plan("main", template(restartPolicy="Never"), 1) is None


POLICIES_CASES: dict[str, tuple[PodTemplate, PolicyPlan]] = {
    "restarts without a policy have Kubernetes' limit": (
        template(restartPolicy="OnFailure"),
        PolicyPlan(backoff_limit=6, restart=True, delays=(10.0, 300.0)),
    ),
    "the deadline of a pod alone": (
        template(activeDeadlineSeconds=5),
        PolicyPlan(backoff_limit=0, pod_deadline=5.0),
    ),
    "a limit": (
        template('{"backoffLimit": 2, "workQueue": true}'),
        PolicyPlan(backoff_limit=2, work_queue=True),
    ),
    "limits of indexes": (
        template('{"backoffLimitPerIndex": 1, "maxFailedIndexes": 2}'),
        PolicyPlan(per_index=1, max_failed=2),
    ),
    "rules about conditions match no pod": (
        template(
            '{"backoffLimit": 1, "podFailurePolicy": {"rules": ['
            '{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},'
            '{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}]}}'
        ),
        PolicyPlan(
            backoff_limit=1,
            failure_rules=(FailureRulePlan(action="FailJob", values=(1,), inside=False),),
        ),
    ),
    "all of the indexes must succeed unless a count says otherwise": (
        template(
            '{"successPolicy": {"rules": [{"succeededIndexes": "0-1,3"}, {"succeededCount": 2}]}}'
        ),
        PolicyPlan(
            backoff_limit=6,
            success_rules=(
                SuccessRulePlan(count=3, indexes=((0, 1), (3, 3))),
                SuccessRulePlan(count=2),
            ),
        ),
    ),
}


@pytest.mark.parametrize("case", POLICIES_CASES)
def test_policies_of_a_template(case: str) -> None:
    given, want = POLICIES_CASES[case]
    assert policy_plan("main", given, 5) == want


@pytest.mark.parametrize(
    "policy", ["{", '{"limit": 1}', '{"successPolicy": {"rules": [{"succeededIndexes": "x"}]}}']
)
def test_a_policy_that_cannot_be_read_prevents_the_run(policy: str) -> None:
    with pytest.raises(CannotRun, match="pod set main: "):
        policy_plan("main", template(policy), 5)
