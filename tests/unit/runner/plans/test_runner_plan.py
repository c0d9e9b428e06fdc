"""The processes of an admission."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.shapes import PodSetToRun
from admittance.folders import (
    SUBMITTED_FROM,
    FolderSight,
    MachineFacts,
    SubmittedFrom,
    written_folder,
)
from admittance.job_rules.limits import JobLimits
from admittance.job_rules.rules import CannotRun, JobRules
from admittance.runner.jobs.pod_process import program_of
from admittance.runner.plans.docker_plan import plan_docker
from admittance.runner.plans.local_plan import plan_local
from admittance.runner.plans.pod_limits import PodLimits
from admittance.runner.plans.run_plan import WarnPlan, containers_at_once, with_limits


def admitted(*containers: dict[str, Any], count: int = 2, **spec: Any) -> Admitted:
    template = {"spec": {"containers": list(containers), **spec}}
    annotations = spec.pop("annotations", None)
    if annotations:
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"containers": list(containers), **spec},
        }
    return Admitted(
        namespace="team",
        name="train",
        uid="u-1",
        revision=10,
        pod_sets=(
            PodSetToRun(
                name="main",
                count=count,
                flavors={"cpu": "spot", "memory": "on-demand"},
                template=msgspec.Raw(msgspec.json.encode(template)),
            ),
        ),
    )


SLEEP = {"name": "c", "image": "busybox", "command": ["/bin/sleep"], "args": ["1"]}


def test_command_and_args_are_one_program() -> None:
    plan = plan_local(admitted(SLEEP), given={"PATH": "/bin"})
    (only,) = plan.sets
    assert [each.argv for each in only.main] == [("/bin/sleep", "1")]
    assert (only.parallel, only.completions, plan.grace) == (2, 2, 30)
    assert only.env == {
        "ADMITTANCE_WORKLOAD": "train",
        "ADMITTANCE_NAMESPACE": "team",
        "ADMITTANCE_POD_SET": "main",
        "ADMITTANCE_FLAVORS": "cpu=spot,memory=on-demand",
        "ADMITTANCE_RESTART_COUNT": "0",
    }


@pytest.mark.parametrize(
    ("count", "completions", "want"),
    [
        pytest.param(2, "5", (2, 5), id="more completions than pods run one after the other"),
        pytest.param(3, "1", (1, 1), id="no more pods at once than successes are wanted"),
        pytest.param(3, "", (3, 3), id="without the annotation every pod runs once"),
    ],
)
def test_completions(count: int, completions: str, want: tuple[int, int]) -> None:
    fact = admitted(SLEEP, count=count, annotations={"admittance.dev/completions": completions})
    (only,) = plan_local(fact, given={}).sets
    assert (only.parallel, only.completions) == want


def test_the_grace_is_that_of_the_template() -> None:
    assert plan_local(admitted(SLEEP, terminationGracePeriodSeconds=3), given={}).grace == 3


def test_a_grace_without_end_is_cut() -> None:
    """A grace is cut to seven days: the shim's clock, a float, cannot add every number."""
    template = b'{"spec":{"containers":[{"name":"c","command":["true"]}],'
    template += b'"terminationGracePeriodSeconds":1' + b"0" * 400 + b"}}"
    pods = PodSetToRun(name="main", count=1, template=msgspec.Raw(template))
    plan = plan_local(msgspec.structs.replace(admitted(SLEEP), pod_sets=(pods,)), given={})
    assert plan.grace == 7 * 86_400


def test_containers_without_a_command_are_left_out_beside_one_that_has_it() -> None:
    (only,) = plan_local(admitted({"name": "proxy", "image": "x"}, SLEEP), given={}).sets
    assert [each.name for each in only.main] == ["c"]


def test_a_pod_counts_once_for_each_container_that_runs_at_once() -> None:
    first = [{**SLEEP, "name": "first"}]
    pods = admitted(SLEEP, {**SLEEP, "name": "d"}, {"name": "e", "image": "x"}, count=4,
                    initContainers=first)  # fmt: skip
    local = plan_local(pods, given={})
    docker = plan_docker(pods, given={}, docker="docker", mark="m")
    assert (containers_at_once(local), containers_at_once(docker)) == (8, 12)
    assert with_limits(local, JobLimits(pods=8, processes=0)).sets == local.sets
    with pytest.raises(CannotRun, match="4 pods with 8 containers at once"):
        with_limits(local, JobLimits(pods=7))


def test_a_pod_set_without_pods_runs_nothing() -> None:
    assert plan_local(admitted(SLEEP, count=0), given={}).sets == ()


JOB_CASES: dict[str, tuple[Admitted, str]] = {
    "an image alone needs an engine": (admitted({"name": "c", "image": "x"}), "--executor docker"),
    "an init container without a command is not passed over": (
        admitted(SLEEP, initContainers=[{"name": "i", "image": "x"}]),
        "containers: i",
    ),
    "a sidecar never ends": (
        admitted(SLEEP, initContainers=[{**SLEEP, "restartPolicy": "Always"}]),
        "sidecar",
    ),
    "a secret exists only in a cluster": (
        admitted({**SLEEP, "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"key": "k"}}}]}),
        "env K",
    ),
    "a template that is none": (admitted(SLEEP, containers=3), "template"),
}


@pytest.mark.parametrize("case", JOB_CASES)
def test_a_job_that_can_never_run_has_a_reason(case: str) -> None:
    fact, says = JOB_CASES[case]
    with pytest.raises(CannotRun, match=says):
        plan_local(fact, given={})


def test_a_container_is_marked_and_gets_its_environment_by_name() -> None:
    container = {**SLEEP, "env": [{"name": "GREETING", "value": "$(ADMITTANCE_POD)"}]}
    plan = plan_docker(admitted(container), given={}, docker="/usr/bin/docker", mark="r.k")
    (process,) = plan.sets[0].main
    argv = process.argv
    assert argv[:3] == ("/usr/bin/docker", "run", "--rm")
    assert "admittance.run=r.k" in argv
    assert argv[argv.index("GREETING") - 1] == "--env"
    assert argv[-4:] == ("--entrypoint", "/bin/sleep", "busybox", "1")
    assert process.env == (("GREETING", "$(ADMITTANCE_POD)"),)
    assert plan.cleanup[0][-2:] == ("/usr/bin/docker", "r.k")


@pytest.mark.parametrize(
    ("limit", "want"), [(0, []), (77, ["--pids-limit", "77"])], ids=["no limit", "a limit"]
)
def test_the_limit_of_processes_holds_in_each_container(limit: int, want: list[str]) -> None:
    fact = admitted({"name": "c", "image": "hello"})
    rules = JobRules(limits=JobLimits(processes=limit))
    argv = plan_docker(fact, given={}, docker="docker", mark="m", rules=rules).sets[0].main[0].argv
    at = argv.index("--pids-limit") if want else 0
    assert list(argv[at : at + len(want)]) == want


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({}, []),
        ({"requests": {"memory": "64Mi", "cpu": "500m"}},
         ["--memory", "67108864", "--memory-swap", "67108864", "--cpu-shares", "512"]),
        ({"requests": {"memory": "1Mi"}, "limits": {"memory": "2Mi", "cpu": "1500m"}},
         ["--memory", "6291456", "--memory-swap", "6291456", "--cpus", "1.5",
          "--cpu-shares", "1536"]),
    ],
    ids=["nothing", "requests", "limits"],
)  # fmt: skip
@pytest.mark.parametrize("cgroup", ["", "none"])
def test_an_engine_limits_each_container(
    resources: dict[str, Any], want: list[str], cgroup: str
) -> None:
    fact = admitted({"name": "c", "image": "hello", "resources": resources})
    rules = JobRules(limits=JobLimits(processes=0, cgroup=cgroup))
    plan = plan_docker(fact, given={}, docker="docker", mark="m", rules=rules)
    (process,) = plan.sets[0].main
    options = process.argv[process.argv.index("no-new-privileges") + 1 : process.own_words]
    limits = [] if cgroup else want
    assert list(options[: len(limits)]) == limits
    assert ("--memory" in options) == ("--memory" in limits)


GIBI = 1 << 30


@pytest.mark.parametrize(
    ("containers", "more", "want"),
    [
        ([{}], {}, PodLimits()),
        ([{"requests": {"memory": "1Gi", "cpu": 2}}], {}, PodLimits(memory=GIBI, share=2000)),
        ([{"requests": {"memory": "1Gi"}, "limits": {"memory": "3Gi"}}], {},
         PodLimits(memory=3 * GIBI)),
        ([{"limits": {"memory": "1Gi", "cpu": "1"}}, {"requests": {"memory": "1Gi"}}], {},
         PodLimits(memory=2 * GIBI, share=1000)),
        ([{"limits": {"memory": "1Gi", "cpu": "1"}}, {"limits": {"cpu": "500m"}}], {},
         PodLimits(cpu=1500, share=1500)),
        ([{"requests": {"memory": "1Gi"}}],
         {"initContainers": [{"name": "i", "command": ["x"],
                              "resources": {"requests": {"memory": "4Gi"}}}]},
         PodLimits(memory=4 * GIBI)),
        ([{"requests": {"memory": "1Gi"}}], {"initContainers": [{"name": "i", "command": ["x"]}]},
         PodLimits()),
        ([{}, {}], {"resources": {"limits": {"memory": "2Gi", "cpu": "2"}}},
         PodLimits(memory=2 * GIBI, cpu=2000, share=2000)),
        ([{"requests": {"memory": "1Gi"}}], {"overhead": {"memory": "1Gi"}},
         PodLimits(memory=2 * GIBI)),
    ],
    ids=["nothing", "a request", "a limit", "both", "one without a limit", "a larger init",
         "an init without a limit", "the whole pod", "overhead"],
)  # fmt: skip
def test_a_pod_may_use_what_its_containers_may_or_request(
    containers: list[dict[str, Any]], more: dict[str, Any], want: PodLimits
) -> None:
    pods = [{**SLEEP, "name": f"c{n}", "resources": each} for n, each in enumerate(containers)]
    (only,) = plan_local(admitted(*pods, **more), given={}).sets
    assert only.limits == want
    (limited,) = with_limits(plan_local(admitted(*pods, **more), given={}), JobLimits()).sets
    assert limited.limits.processes == JobLimits().processes


def test_an_image_alone_is_enough_for_an_engine() -> None:
    fact = admitted({"name": "c", "image": "hello"})
    plan = plan_docker(fact, given={}, docker="docker", mark="m")
    assert plan.sets[0].main[0].argv[-1] == "hello"


@pytest.mark.parametrize("image", ["--privileged", "-v/:/host", "$(IMAGE)", "a b"])
def test_an_option_of_the_engine_is_not_an_image(image: str) -> None:
    with pytest.raises(CannotRun, match="is not the name of an image"):
        plan_docker(admitted({"name": "c", "image": image}), given={}, docker="docker", mark="m")


@pytest.mark.parametrize(
    "name",
    [
        *("DOCKER_HOST", "LD_PRELOAD", "https_proxy", "PATH"),
        # podman would take mounts from such a file, and a shell would run such a function.
        *("CONTAINERS_CONF", "CONTAINER_HOST", "REGISTRY_AUTH_FILE", "BASH_FUNC_echo%%", "PS4"),
    ],
)
def test_a_variable_of_a_container_does_not_reach_the_client(name: str) -> None:
    container = {"name": "c", "image": "hello", "env": [{"name": name, "value": "x"}]}
    plan = plan_docker(admitted(container), given={}, docker="docker", mark="m")
    (process,) = plan.sets[0].main
    assert process.env == ()
    own = {"ADMITTANCE_POD": "main-0", "ADMITTANCE_ATTEMPT": "0"}
    assert f"{name}=x" in program_of(msgspec.to_builtins(process), {}, own, {}, [])[1]


@pytest.mark.parametrize("engine", [False, True], ids=["local", "docker"])
def test_a_reference_means_the_variable_that_the_container_declares(engine: bool) -> None:
    """Names such as PATH never reach the environment of the engine's client, which has its own."""
    declared = [
        {"name": "A", "value": "a"},
        {"name": "PATH", "value": "/$(A):$(ADMITTANCE_POD)"},
        {"name": "LATER", "value": "$(PATH)"},
    ]
    container = {**SLEEP, "args": ["$(PATH)", "$(LATER)", "$(DOCKER_HOST)"], "env": declared}
    given = {"PATH": "/of/the/runner", "DOCKER_HOST": "tcp://engine"}
    if engine:
        plan = plan_docker(admitted(container), given=given, docker="docker", mark="m")
    else:
        plan = plan_local(admitted(container), given={"PATH": "/of/the/runner"})
    (process,) = plan.sets[0].main
    own = {"ADMITTANCE_POD": "main-0", "ADMITTANCE_ATTEMPT": "0"}
    env, words = program_of(msgspec.to_builtins(process), plan.given, own, {}, [])
    assert words[-3:] == ["/a:main-0", "/a:main-0", "$(DOCKER_HOST)"]
    assert env["LATER"] == "/a:main-0"
    if engine:
        assert "PATH=/a:main-0" in words
        assert env["PATH"] == "/of/the/runner", "the client's own"


def test_processes_and_containers_find_the_checkpoint_folder_of_the_workload() -> None:
    fact = msgspec.structs.replace(admitted(SLEEP), restarts=2)
    local = plan_local(fact, given={}, checkpoint="/c/team/train/u-1")
    docker = plan_docker(fact, given={}, docker="docker", mark="m", checkpoint="/c/team/train/u-1")
    seen = [plan.sets[0].env["ADMITTANCE_CHECKPOINT_DIR"] for plan in (local, docker)]
    assert seen == ["/c/team/train/u-1", "/admittance/checkpoint"]
    assert {plan.checkpoint for plan in (local, docker)} == {"/c/team/train/u-1"}
    assert {plan.sets[0].env["ADMITTANCE_RESTART_COUNT"] for plan in (local, docker)} == {"2"}
    mount = "type=bind,source=/c/team/train/u-1,target=/admittance/checkpoint"
    [words] = [each.argv for each in docker.sets[0].main]
    assert words[words.index("--mount") + 1] == mount
    assert words.index(mount) < docker.sets[0].main[0].own_words
    with pytest.raises(CannotRun, match="cannot be mounted"):
        plan_docker(fact, given={}, docker="docker", mark="m", checkpoint="/a,b/c")


@pytest.mark.parametrize("executor", ["local", "docker"])
def test_a_folder_of_the_submission_that_the_runner_does_not_see_is_one_reason(
    executor: str,
) -> None:
    folder = SubmittedFrom(path="/home/ada/x", machine=MachineFacts(host="laptop", boot_id="b"))
    container = {**SLEEP, "workingDir": "/home/ada/x"}
    fact = admitted(container, annotations={SUBMITTED_FROM: written_folder(folder)})
    with pytest.raises(CannotRun, match=r"the folder /home/ada/x of the machine laptop"):
        if executor == "local":
            plan_local(fact, given={}, sight=FolderSight(machine=MachineFacts(host="node")))
        else:
            plan_docker(fact, given={}, docker="docker", mark="m")


@pytest.mark.parametrize(
    ("shared", "inode"), [((), 0), (("/home",), 7)], ids=("the same machine", "a shared folder")
)
def test_a_folder_on_another_machine_is_compared_by_its_number(
    shared: tuple[str, ...], inode: int
) -> None:
    here = MachineFacts(host="a", boot_id="b", mount_namespace="m")
    folder = SubmittedFrom(path="/home/x", machine=here, inode=7, owner=8, uid=9, umask=0o27)
    notes = {SUBMITTED_FROM: written_folder(folder)}
    there = MachineFacts(host="z", boot_id="z", mount_namespace="m")
    sight = FolderSight(machine=there if shared else here, shared=shared)
    containers = ({**SLEEP, "workingDir": "/home/x"}, {**SLEEP, "name": "other"})
    fact = admitted(*containers, annotations=notes)
    (pods,) = plan_local(fact, given={}, sight=sight, uid=9).sets
    places = [(each.cwd, each.inode, each.owner, each.umask) for each in pods.main]
    assert places == [("/home/x", inode, 8 if inode else 0, 0o27), ("", 0, 0, None)]


def test_a_warning_travels_with_the_pod_set() -> None:
    notes = {"admittance.dev/warning-signal": "USR1@120"}
    (pods,) = plan_local(admitted(SLEEP, annotations=notes), given={}).sets
    assert pods.warn == WarnPlan(signal=10, before=120)
    with pytest.raises(CannotRun, match=r"warning-signal must be SIGNAL@SECONDS"):
        plan_local(admitted(SLEEP, annotations=dict.fromkeys(notes, "x")), given={})
