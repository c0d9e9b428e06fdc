"""The table of roles: each role has the least subjects that it needs."""

import re
from functools import cache

import pytest
from tools.pages.roles import PAGE, page

from admittance.access.parts import ANSWERS
from admittance.access.permissions import answer_for, covers
from admittance.access.role import Account
from admittance.access.roles import ROLES, permissions_of, problems
from admittance.access.server_config import ASKED_OUTSIDE, INWARDS, OUTWARDS
from admittance.access.users import User
from admittance.events import subjects
from admittance.events.names import token
from admittance.runtime.bus.outside_reads import objects_subject
from admittance.runtime.bus.streams import all_streams
from support.nats.system_subjects import endpoints, overlaps, sample_user, samples

KEY = "U" + "A" * 55
USERS = {name: sample_user(name, KEY) for name in ROLES}
SUBJECTS = samples(list(USERS.values()))
ANSWERING = ("runner", "provider", "telemetry")
"""The roles of OUT that answer requests."""
OUTSIDE = [name for name, role in ROLES.items() if role.account is Account.OUT]


@cache
def allowed(role: str, *, subscribe: bool = False) -> set[str]:
    permissions = permissions_of(USERS[role])
    return {
        subject
        for subject in SUBJECTS
        if answer_for(permissions, subject, subscribe=subscribe).allowed
    }


def test_page_of_roles_shows_the_table() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.pages.roles"


@pytest.mark.parametrize("role", OUTSIDE)
def test_no_role_outside_has_the_rights_of_services(role: str) -> None:
    published = allowed(role)
    forbidden = re.compile(
        r"\$KV\.admittance\.|\$KV\.admittance_claims\._alive\.|admit\.lease\.|admit\.timer\."
        r"|admit\.object\.|admit\.deadletter\.|admit\.checkpoint\.|admit\.check\.requested\."
        r"|admit\.check\.withdrawn\.|admit\.provisioning\.(requested|cancelled)\."
        r"|admit\.api\.(user|owner)\.|admit\.api\.(apply|delete)\b"
        rf"|admit\.workload\.({'|'.join(sorted(subjects.FENCED | subjects.OUTPUTS))})\."
        r"|\$JS\.API\.(STREAM\.MSG\.|STREAM\.(?!INFO)|CONSUMER\.(?!LIST|INFO|MSG\.NEXT)|DIRECT\.GET"
        r"\.\w+$)|_INBOX|_R_|\$SYS"
    )
    streams = ("ADMITTANCE", "ADMITTANCE_CHECKPOINTS", "KV_admittance_providers")
    whole = {f"$JS.API.DIRECT.GET.{stream}" for stream in streams}
    answers = {subject for subject in published if subject.startswith(("_INBOX.", "_R_."))}
    assert not answers or role in ANSWERING
    assert {subject for subject in published if forbidden.match(subject)} - answers == (
        whole if role in ("viewer", "admin") else set()
    )


@pytest.mark.parametrize("role", OUTSIDE)
def test_what_a_role_outside_publishes_crosses_the_border(role: str) -> None:
    stays = ("admit.api.logs.", "admit.api.provider.", *(answer.pattern for answer in ANSWERS))
    for rule in permissions_of(USERS[role]).publish:
        answered_outside = rule.pattern.startswith(stays)
        crossing = [inward for inward in INWARDS if covers(inward.subject, rule.pattern)]
        assert len(crossing) == (0 if answered_outside else 1), rule.pattern


@pytest.mark.parametrize("role", OUTSIDE)
def test_what_a_role_outside_receives_crosses_the_border_or_is_its_own(role: str) -> None:
    own = ("_INBOX.", "$SRV.", "admit.api.health", "admit.api.logs.")
    for rule in permissions_of(USERS[role]).subscribe:
        crossing = [
            outward
            for outward in (*OUTWARDS, *ASKED_OUTSIDE)
            if covers(outward.subject, rule.pattern)
        ]
        assert crossing or rule.pattern.startswith(own), rule.pattern


def test_border_lists_no_subject_that_no_role_uses() -> None:
    published = {rule.pattern for name in OUTSIDE for rule in permissions_of(USERS[name]).publish}
    subscribed = {
        rule.pattern for name in OUTSIDE for rule in permissions_of(USERS[name]).subscribe
    }
    assert [
        inward for inward in INWARDS if not any(overlaps(inward.subject, p) for p in published)
    ] == []
    assert [
        outward for outward in OUTWARDS if not any(overlaps(outward.subject, p) for p in subscribed)
    ] == []


def test_each_endpoint_is_answered_by_one_role_of_its_account() -> None:
    # Two accounts answer for health and for the status of capacity: services and programs.
    for endpoint in endpoints():
        if endpoint.endswith("provider.cpu"):
            continue  # no user of the test provides this class
        answering = [name for name in ROLES if endpoint in allowed(name, subscribe=True)]
        if not endpoint.startswith(("admit.api.health", "admit.api.provider.")):
            assert len(answering) == 1, f"{endpoint}: {answering}"
        assert answering, endpoint


def test_each_fact_is_published_by_some_role() -> None:
    published = set().union(*(allowed(name) for name in ROLES))
    facts = [f"admit.workload.{key}.team-a.w" for key in subjects.WORKLOAD_FACTS]
    people = {"held", "renewed"}
    assert {fact for fact in facts if fact not in published} == {
        f"admit.workload.{key}.team-a.w" for key in people
    }


def test_only_the_workload_controller_creates_streams_and_writes_workloads() -> None:
    for stream in all_streams():
        create = f"$JS.API.STREAM.CREATE.{stream.name}"
        assert [name for name in ROLES if create in allowed(name)] == ["workload-controller"]
    key = "$KV.admittance.workload.team-a.x"
    # A restore puts back what was stored while the snapshot of a bucket was taken.
    assert [name for name in ROLES if key in allowed(name)] == ["workload-controller", "backup"]


def test_the_provisioning_check_may_search_the_log_for_requests_of_deleted_records() -> None:
    permissions = permissions_of(USERS["provisioning-check"])
    assert answer_for(permissions, "$JS.API.DIRECT.GET.ADMITTANCE", subscribe=False).allowed


def test_a_backup_may_confirm_the_parts_of_every_stream() -> None:
    for stream in all_streams():
        # nats-server asks on $JS.SNAPSHOT.ACK.<stream>.<id>.<bytes>.<number>.
        confirms = f"$JS.SNAPSHOT.ACK.{stream.name}.x.131072.1"
        assert [name for name in ROLES if confirms in allowed(name)] == ["backup"]


def test_no_role_may_read_the_answers_to_another_user() -> None:
    for name in ROLES:
        own = f"_INBOX.{USERS[name].token}."
        subscribed = {
            subject for subject in allowed(name, subscribe=True) if subject.startswith("_INBOX")
        }
        assert subscribed == {f"{own}a.b"}


def test_each_user_acts_in_its_own_name_only() -> None:
    for name in OUTSIDE:
        starts = (subjects.USER_FACTS, subjects.OWNER_FACTS)
        acts = {subject for subject in allowed(name) if subject.startswith(starts)}
        assert all(subject.split(".")[2] == USERS[name].token for subject in acts)


def test_wider_pattern_that_the_server_accepts_carries_nothing_more() -> None:
    for name in OUTSIDE:
        for rule in permissions_of(USERS[name]).subscribe:
            if rule.pattern.endswith(".*") and not rule.pattern.startswith("$SRV"):
                wider = f"{rule.pattern[:-1]}>"
                longer = [
                    subject
                    for subject in SUBJECTS
                    if covers(wider, subject)
                    and not covers(rule.pattern, subject)
                    and any(covers(crossing.subject, subject) for crossing in OUTWARDS)
                ]
                assert not longer, rule.pattern


def test_names_with_wildcards_are_escaped() -> None:
    for name in ("*", ">", "a.b", "a b", "$JS"):
        user = User(name=name, role="user", key=KEY, namespaces=(name,))
        acts = {rule.pattern for rule in permissions_of(user).publish if "held" in rule.pattern}
        assert acts == {f"admit.user.{token(name)}.held.{token(name)}.*"}
        assert not set("*> $") & set(token(name))


@pytest.mark.parametrize(
    ("user", "sentence"),
    [
        (User(name="", role="viewer", key=KEY), "the user's name is empty"),
        (User(name="a", role="vewer", key=KEY), 'did you mean "viewer"?'),
        (User(name="a", role="user", key=KEY), "the role user needs --namespace"),
        (User(name="a", role="check", key=KEY), "the role check needs --controller"),
        (User(name="a", role="provider", key=KEY), "the role provider needs --class"),
        (
            User(name="a", role="viewer", key=KEY, namespaces=("x",)),
            "the role viewer takes no --namespace",
        ),
        (User(name="a\n", role="viewer", key=KEY), "must have printable characters"),
        (User(name="a" * 300, role="viewer", key=KEY), "at most 253"),
        *(
            (User(name=name, role="viewer", key=KEY), f"the user's name {name!r} may not have")
            for name in ("*", ">", "a.*", "../../x", "..", ".ssh", "a/b", "a\\b", "$HOME", "a;b")
        ),
        (User(name="Ada Lovelace", role="viewer", key=KEY), "may not have a space"),
        (User(name="-f", role="viewer", key=KEY), "may not have a '-' at its beginning"),
        *(
            (User(name="a", role="user", key=KEY, namespaces=("ok", space)), "--namespace: ")
            for space in ("*", ">", "../../x", "a.b", "A", "_", "", "a b", "a\n")
        ),
        (User(name="a", role="viewer", key="x"), "is not the public key of a user"),
    ],
)
def test_user_that_cannot_be_added_says_why(user: User, sentence: str) -> None:
    assert sentence in "; ".join(problems(user))


@pytest.mark.parametrize("name", ["ada", "Ada.Lovelace", "ada@example.com", "svc_1", "ä.b-c"])
def test_names_of_people_and_machines_are_names_of_users(name: str) -> None:
    assert problems(User(name=name, role="user", key=KEY, namespaces=("team-a",))) == []


def test_a_user_that_an_earlier_version_added_stays() -> None:
    old = User(name="team/ada", role="user", key=KEY, namespaces=("a.b",))
    assert problems(old, is_stored=True) == []


def test_user_with_what_its_role_needs_can_be_added() -> None:
    for user in USERS.values():
        assert problems(user) == []


@pytest.mark.parametrize("namespaces", [(), ("team-a",), ("team-a", "team-b")])
def test_a_runner_of_all_namespaces_may_start_with_job_namespace(
    namespaces: tuple[str, ...],
) -> None:
    permissions = permissions_of(User(name="host", role="runner", key=KEY))
    lists = [objects_subject(namespace) for namespace in namespaces or (None,)]
    for subject in (*lists, subjects.runner_consumer("host", namespaces)):
        assert answer_for(permissions, subject, subscribe=False).allowed, subject
