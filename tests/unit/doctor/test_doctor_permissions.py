"""`admit doctor` shows the permissions that a service lacks, with the line to add."""

from __future__ import annotations

import pytest

from admittance.doctor.permissions import login_findings, permission_findings
from admittance.events.requests.services import HealthReply


def shown(service: str, denied: str, user: str = "") -> str:
    reply = HealthReply(service=service, instance="one", ready=True, denied=(denied,), user=user)
    (only,) = permission_findings([reply])
    assert only.what == f"permissions of {service}"
    return f"{only.found}: {only.todo}"


@pytest.mark.parametrize(
    ("service", "denied", "line"),
    [
        pytest.param(
            "scheduler",
            "publish $js.api.stream.info.admittance",
            'add "$JS.API.STREAM.INFO.ADMITTANCE" to `publish: { allow: [ … ] }`',
            id="subject in the case of the role",
        ),
        pytest.param(
            "workload-controller",
            "publish $kv.admittance.workload.team-a.w",
            'add "$KV.admittance.>" to',
            id="pattern that covers the subject",
        ),
        pytest.param(
            "provider-pool",
            "publish admit.provisioning.accepted.pool.team-a.w",
            "which its role built-in-provider needs to",
            id="providers have one role",
        ),
        pytest.param(
            "scheduler", "publish foreign", "is none of the subjects of its role", id="a bug"
        ),
    ],
)
def test_finding_names_role_subject_and_line(service: str, denied: str, line: str) -> None:
    assert line in shown(service, denied)


def test_finding_uses_the_name_of_the_user() -> None:
    assert '"_INBOX.s-2.>"' in shown("scheduler", "subscribe _inbox.s-2.abc.*", user="s-2")


def test_services_with_all_permissions_have_no_finding() -> None:
    assert permission_findings([HealthReply(service="scheduler", ready=True)]) == []


def test_with_jwts_the_finding_names_the_renewal() -> None:
    denied = "publish $js.api.stream.info.admittance"
    reply = HealthReply(service="scheduler", instance="1", ready=True, denied=(denied,), user="s 2")
    (only,) = permission_findings([reply], with_jwts=True)
    assert only.todo.startswith("let `admit auth renew 's 2' -o FILE` write its credentials file")


@pytest.mark.parametrize(
    ("role", "denials", "said"),
    [
        pytest.param("admin", ["publish admit.api.runners"], "may not ask", id="own right"),
        pytest.param("admin", ["publish admit.workload.held.a.b"], "", id="right of others"),
        pytest.param("viewer", ["publish $js.api.stream.delete.x"], "", id="not in the role"),
        pytest.param("", ["publish admit.api.runners"], "", id="unknown role"),
        pytest.param("admin", [], "", id="nothing refused"),
    ],
)
def test_a_login_that_lacks_a_right_of_its_role_is_found(
    role: str, denials: list[str], said: str
) -> None:
    findings = login_findings(role, (), "root", denials, has_jwt=True)
    assert [finding.what for finding in findings] == (["login of this command"] if said else [])
    for finding in findings:
        assert said in finding.found
        assert "`admit auth renew root`" in finding.todo
