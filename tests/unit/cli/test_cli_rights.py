"""An error about a missing right names the right before the subject."""

from __future__ import annotations

import pytest

from admittance.access.missing_right import missing_right, refusal_of


@pytest.mark.parametrize(
    ("subject", "right"),
    [
        ("admit.api.objects._", "list objects of all namespaces"),
        ("admit.api.objects", "list objects without a namespace"),
        ("admit.api.objects.team-b", "list objects of namespace team-b"),
        ("admit.api.pending", "list pending workloads of all namespaces"),
        ("admit.api.logs.team-b", "read the output of jobs of namespace team-b"),
        ("admit.user.ada.apply", "apply manifests"),
        ("admit.user.ada.delete.team-b", "delete objects of namespace team-b"),
        ("admit.user.ada.held.b.j", "publish held about workloads of namespace b"),
        ("admit.owner.ada.finished.b.j", "publish finished about workloads of namespace b"),
        (
            "$js.api.direct.get.kv_admittance.$kv.admittance.localqueue.team-b.main",
            "read a localqueue of namespace team-b",
        ),
        (
            "$JS.API.DIRECT.GET.KV_admittance.$KV.admittance.flavor.spot",
            "read a flavor of the deployment",
        ),
        ("admit.alive.check.x", "say that it is alive"),
        ("something.else", "do this"),
    ],
)  # fmt: skip
def test_a_missing_right_is_a_sentence(subject: str, right: str) -> None:
    denial = f"this login may not publish to {subject}"
    assert missing_right("user", ["team-a"], denial) == f"role user of team-a may not {right}"
    assert missing_right("", [], denial) == f"this login may not {right}"


def test_a_refusal_is_one_sentence_with_the_right_and_the_way_out() -> None:
    denial = "this login may not publish to admit.api.objects"
    assert refusal_of("owner", ["team-a"], denial) == (
        f"role owner of team-a may not list objects without a namespace ({denial}): "
        "read one by its name, or use another login"
    )
    assert refusal_of("owner", ["team-a"], f"{denial}._").endswith(
        " may not list objects of all namespaces (this login may not publish to "
        "admit.api.objects._): use another login, or have an administrator give it this right"
    )


def test_a_right_of_the_own_role_is_missing_in_a_login_of_another_version() -> None:
    denial = "this login may not publish to admit.api.events._"
    said = refusal_of("admin", [], denial, user="root", has_jwt=True)
    assert said.startswith("role admin may not read events of all namespaces")
    assert said.endswith("when it was made: run `admit auth renew root` of this version")
    assert refusal_of("admin", [], denial).endswith("run `admit auth reload` of this version")
    assert refusal_of("", [], denial).endswith("have an administrator give it this right")
