"""Variables and volumes of containers: their plans, and which files of the machine they reach."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admittance.events.facts import Admitted
from admittance.events.shapes import PodSetToRun
from admittance.job_rules.options import RuleTexts, check_env_files, rules_of
from admittance.job_rules.rules import NO_RULES, CannotRun, JobRules, UnixUser
from admittance.runner.host.docker_executor import DockerExecutor
from admittance.runner.host.live_rules import LiveRules
from admittance.runner.host.local_executor import LocalExecutor
from admittance.runner.jobs.pod_volumes import make_volumes
from admittance.runner.plans.docker_plan import plan_docker
from admittance.runner.plans.inputs.host_inputs import MachineInputs, NoInputs
from admittance.runner.plans.inputs.volumes import FilePlan, VolumePlan
from admittance.runner.plans.local_plan import plan_local
from admittance.runner.plans.run_plan import ContainerPlan, PodSetPlan
from admittance.runtime.errors import SetupError
from support.needs import needs_root


class FewInputs(NoInputs):
    """One Secret, one ConfigMap and one folder."""

    def host_path(self, path: str, kind: str) -> str:
        if path != "/srv/data":
            return super().host_path(path, kind)
        return path

    def keys(self, kind: str, name: str) -> Mapping[str, str] | None:
        known = {"Secret": {"token": "/k/token", "HTTPS_PROXY": "/k/p"}, "ConfigMap": {"a": "/k/a"}}
        return known[kind] if name == "one" else None

    def value(self, path: str) -> str:
        return f"$(A) of {path}"


def admitted(container: dict[str, Any], *volumes: dict[str, Any], **more: Any) -> Admitted:
    main = {"name": "c", "image": "busybox", "command": ["/bin/true"], **container}
    template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {"containers": [main], "volumes": list(volumes), **more},
    }
    pods = PodSetToRun(
        name="main",
        count=1,
        labels={"added": "by a check", "app": "other"},
        template=msgspec.Raw(msgspec.json.encode(template)),
    )
    return Admitted(namespace="team", name="train", uid="u", revision=10, pod_sets=(pods,))


def local(fact: Admitted) -> PodSetPlan:
    return plan_local(fact, given={}, inputs=FewInputs()).sets[0]


def docker(fact: Admitted) -> ContainerPlan:
    plan = plan_docker(fact, given={}, docker="docker", mark="m", inputs=FewInputs())
    return plan.sets[0].main[0]


def source(**of: Any) -> dict[str, Any]:
    return {"env": [{"name": "V", "valueFrom": of}]}


@pytest.mark.parametrize(
    ("container", "want"),
    [
        (source(fieldRef={"fieldPath": "metadata.name"}), "$(ADMITTANCE_POD)"),
        (source(fieldRef={"fieldPath": "metadata.labels['app']"}), "train"),
        (source(fieldRef={"fieldPath": "metadata.labels['added']"}), "by a check"),
        (source(fieldRef={"fieldPath": "metadata.annotations['none']"}), ""),
        (source(fieldRef={"fieldPath": "metadata.labels['job-name']"}), "$(ADMITTANCE_WORKLOAD)"),
        (source(secretKeyRef={"name": "one", "key": "token"}), "$$(A) of /k/token"),
        (source(configMapKeyRef={"name": "one", "key": "a"}), "$$(A) of /k/a"),
        (
            {
                **source(resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
                "resources": {"limits": {"memory": "1500Ki"}},
            },
            "2",
        ),
        (
            {
                **source(resourceFieldRef={"resource": "requests.cpu"}),
                "resources": {"requests": {"cpu": "1500m"}},
            },
            "2",
        ),
    ],
)
def test_a_variable_has_the_value_of_its_source(container: dict[str, Any], want: str) -> None:
    assert local(admitted(container)).main[0].env == (("V", want),)


def test_an_optional_key_that_does_not_exist_sets_no_variable() -> None:
    wanted = source(secretKeyRef={"name": "one", "key": "x", "optional": True})
    wanted["envFrom"] = [{"configMapRef": {"name": "two", "optional": True}}]
    assert local(admitted(wanted)).main[0].env == ()


def test_variables_of_the_container_come_after_those_of_whole_objects() -> None:
    every = [{"configMapRef": {"name": "one"}, "prefix": "P_"}]
    container = {"envFrom": every, "env": [{"name": "P_a", "value": "mine"}]}
    plan = local(admitted(container)).main[0]
    assert plan.env == (("P_a", "$$(A) of /k/a"), ("P_a", "mine"))


MOUNT = {"name": "data", "mountPath": "/data"}


@pytest.mark.parametrize(
    ("container", "volume", "says"),
    [
        (source(secretKeyRef={"name": "two", "key": "k"}), {}, "env V: there is no Secret two"),
        (
            source(fieldRef={"fieldPath": "status.podIP"}),
            {},
            "the field status.podIP, which exists",
        ),
        (source(resourceFieldRef={"resource": "limits.cpu"}), {}, "container c has no limits.cpu"),
        (source(fileKeyRef={"volumeName": "v", "path": "p", "key": "k"}), {}, "a file of a volume"),
        ({"envFrom": [{"secretRef": {"name": "two"}}]}, {}, "there is no Secret two"),
        ({}, {"hostPath": {"path": "/etc"}}, "the runner allows no hostPath /etc"),
        ({}, {"secret": {"secretName": "two"}}, "volume data: there is no Secret two"),
        (
            {},
            {"secret": {"secretName": "one", "items": [{"key": "x", "path": "x"}]}},
            "no key x of the Secret one",
        ),
        ({}, {"persistentVolumeClaim": {"claimName": "c"}}, "persistentVolumeClaim exists only"),
        ({}, {"nfs": {}}, "volume data: a nfs exists only in a cluster"),
    ],
)
def test_a_field_that_only_a_cluster_supports_prevents_the_run(
    container: dict[str, Any], volume: dict[str, Any], says: str
) -> None:
    mounts = {"volumeMounts": [MOUNT]} if volume else {}
    fact = admitted({**container, **mounts}, *([{"name": "data", **volume}] if volume else []))
    for plan in (local, docker):
        with pytest.raises(CannotRun) as caught:
            plan(fact)
        assert says in str(caught.value)


def test_a_volume_that_no_container_mounts_is_not_made() -> None:
    assert local(admitted({}, {"name": "v", "persistentVolumeClaim": {}})).volumes == ()


@pytest.mark.parametrize(
    ("volume", "plan"),
    [
        ({"emptyDir": {}}, VolumePlan(name="data", variable="ADMITTANCE_VOLUME_DATA")),
        ({}, VolumePlan(name="data", variable="ADMITTANCE_VOLUME_DATA")),
        (
            {"emptyDir": {"sizeLimit": "1.5Ki"}},
            VolumePlan(
                name="data", variable="ADMITTANCE_VOLUME_DATA", limit=1536, limit_text="1.5Ki"
            ),
        ),
        (
            {"hostPath": {"path": "/srv/data"}},
            VolumePlan(name="data", variable="ADMITTANCE_VOLUME_DATA", host="/srv/data"),
        ),
        (
            {
                "secret": {
                    "secretName": "one",
                    "items": [{"key": "token", "path": "d/t", "mode": "0400"}],
                }
            },
            VolumePlan(
                name="data",
                variable="ADMITTANCE_VOLUME_DATA",
                files=(FilePlan(path="d/t", source="/k/token", mode=0o400),),
            ),
        ),
        (
            {"configMap": {"name": "one"}},
            VolumePlan(
                name="data",
                variable="ADMITTANCE_VOLUME_DATA",
                files=(FilePlan(path="a", source="/k/a"),),
            ),
        ),
    ],
)
def test_the_volumes_of_a_pod(volume: dict[str, Any], plan: VolumePlan) -> None:
    fact = admitted({"volumeMounts": [MOUNT]}, {"name": "data", **volume})
    assert local(fact).volumes == (plan,)


@pytest.mark.parametrize(
    ("folder", "want"),
    [
        ("/data", "$(ADMITTANCE_VOLUME_DATA)"),
        ("/data/in/side", "$(ADMITTANCE_VOLUME_DATA)/in/side"),
        ("/data/$(A)", "$(ADMITTANCE_VOLUME_DATA)/$$(A)"),
        ("/database", ""),
        ("/data/../etc", ""),
        ("", ""),
    ],
)
def test_a_local_process_may_start_in_a_volume(folder: str, want: str) -> None:
    fact = admitted({"workingDir": folder, "volumeMounts": [MOUNT]}, {"name": "data"})
    assert local(fact).main[0].inner_cwd == want


def test_the_variable_of_a_volume_names_the_part_that_the_container_mounts() -> None:
    mount = {**MOUNT, "subPath": "part/one"}
    plan = local(admitted({"volumeMounts": [mount]}, {"name": "data"}))
    assert plan.volumes[0].folders == ("part/one",)
    name = "ADMITTANCE_VOLUME_DATA"
    assert plan.main[0].env == ((name, f"$({name})/part/one"),)


@pytest.mark.parametrize(
    ("volume", "mount", "want"),
    [
        ({"emptyDir": {}}, {}, "source=$(ADMITTANCE_VOLUME_DATA),target=/data"),
        (
            {"hostPath": {"path": "/srv/data"}},
            {"readOnly": True},
            "source=$(ADMITTANCE_VOLUME_DATA),target=/data,readonly",
        ),
        (
            {"configMap": {"name": "one"}},
            {"subPath": "a", "mountPath": "/etc/$(A)"},
            "source=$(ADMITTANCE_VOLUME_DATA)/a,target=/etc/$$(A),readonly",
        ),
    ],
)
def test_a_container_of_the_engine_mounts_its_volumes(
    volume: dict[str, Any], mount: dict[str, Any], want: str
) -> None:
    plan = docker(admitted({"volumeMounts": [{**MOUNT, **mount}]}, {"name": "data", **volume}))
    at = plan.argv.index("--mount")
    assert plan.argv[at + 1] == f"type=bind,{want}"
    # No variable of the container can change what is mounted.
    assert at + 1 < plan.own_words <= plan.argv.index("busybox")


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        ({"subPath": "a"}, "mounts a subPath only of a ConfigMap"),
        ({"mountPath": "/a,readonly=false"}, "has a comma, a quote or a line break"),
        ({"subPathExpr": "$(A)"}, "does not follow a subPathExpr"),
    ],
)
def test_a_container_mounts_nothing_that_another_one_could_exchange(
    mount: dict[str, Any], says: str
) -> None:
    with pytest.raises(CannotRun, match=says):
        docker(admitted({"volumeMounts": [{**MOUNT, **mount}]}, {"name": "data"}))


def test_a_secret_never_appears_in_the_command_line_of_the_client() -> None:
    plan = docker(admitted(source(secretKeyRef={"name": "one", "key": "token"})))
    assert plan.env == (("V", "$$(A) of /k/token"),)
    assert "/k/token" not in " ".join(plan.argv)
    with pytest.raises(CannotRun, match="HTTPS_PROXY, which the container engine's client"):
        docker(admitted({"envFrom": [{"secretRef": {"name": "one"}}]}))


# Files of the machine. ------------------------------------------------------------------


@pytest.fixture
def values(tmp_path: Path) -> Path:
    root = tmp_path / "values"
    for namespace in ("team", "other"):
        folder = root / namespace / "secrets" / "db"
        folder.mkdir(parents=True)
        (folder / "password").write_text(f"of {namespace}\n")
        (folder / "bytes").write_bytes(b"\xff")
        (folder / "zero").write_bytes(b"a\0")
        large = folder.with_name("large")
        large.mkdir()
        (large / "half").write_bytes(b"a" * (1 << 19))
        (large / "long").write_bytes(b"a" * ((1 << 20) + 1))
    root.chmod(0o700)
    return root


def test_a_namespace_reads_only_its_own_values(values: Path) -> None:
    rules = JobRules(env_files=str(values))
    inputs = MachineInputs(rules, "team", exact=False)
    keys = inputs.keys("Secret", "db")
    assert keys is not None
    assert inputs.value(keys["password"]) == "of team"
    assert inputs.keys("Secret", "none") is None
    assert inputs.keys("ConfigMap", "db") is None
    for namespace, name in (("team", "../../other/secrets/db"), ("..", "db"), ("team", "")):
        with pytest.raises(CannotRun):
            MachineInputs(rules, namespace, exact=False).keys("Secret", name)


@pytest.mark.parametrize(
    ("key", "says"), [("bytes", "not UTF-8"), ("zero", "zero byte"), ("long", "more than 1048576")]
)
def test_a_value_that_no_environment_variable_can_have_prevents_the_run(
    values: Path, key: str, says: str
) -> None:
    inputs = MachineInputs(JobRules(env_files=str(values)), "team", exact=False)
    with pytest.raises(CannotRun, match=says):
        inputs.value(str(values / "team" / "secrets" / ("large" if key == "long" else "db") / key))


def test_a_secret_larger_than_in_kubernetes_prevents_the_run(values: Path) -> None:
    inputs = MachineInputs(JobRules(env_files=str(values)), "team", exact=False)
    with pytest.raises(CannotRun, match="Secret large has more than 1,048,576 bytes"):
        inputs.keys("Secret", "large")
    (values / "team" / "secrets" / "large" / "long").unlink()
    inputs = MachineInputs(JobRules(env_files=str(values)), "team", exact=False)
    keys = inputs.keys("Secret", "large")
    assert keys is not None
    assert inputs.size(keys["half"]) == 1 << 19


def test_only_allowed_folders_are_mounted_and_links_are_followed_before(tmp_path: Path) -> None:
    allowed = tmp_path / "data"
    (allowed / "below").mkdir(parents=True)
    (allowed / "out").symlink_to("/etc")
    (allowed / "file").write_text("")
    rules = JobRules(host_paths=(str(allowed),))
    inputs = MachineInputs(rules, "team", exact=False)
    assert inputs.host_path(str(allowed), "Directory") == str(allowed)
    assert inputs.host_path(f"{allowed}/below", "") == f"{allowed}/below"
    assert inputs.host_path(f"{allowed}/file", "File") == f"{allowed}/file"
    for path, kind, says in (
        (f"{allowed}/out", "", "does not allow the hostPath"),
        ("/etc", "", "does not allow the hostPath"),
        (f"{allowed}/none", "", "there is no such path"),
        (f"{allowed}/none", "DirectoryOrCreate", "the runner makes none"),
        (f"{allowed}/file", "Directory", "there is no such folder"),
        (f"{allowed}/file", "Socket", "mounts no Socket"),
    ):
        with pytest.raises(CannotRun, match=says):
            inputs.host_path(path, kind)
    with pytest.raises(CannotRun, match="does not allow"):
        MachineInputs(rules, "team", exact=True).host_path(f"{allowed}/below", "")
    assert MachineInputs(rules, "team", exact=True).host_path(str(allowed), "") == str(allowed)


def test_a_folder_of_values_must_be_closed_and_not_mountable(values: Path) -> None:
    def read(**texts: Any) -> JobRules:
        return rules_of(RuleTexts(env_files=(str(values),), **texts), {}, executor="docker")

    assert read().env_files == str(values)
    with pytest.raises(SetupError, match="jobs may mount"):
        read(host_paths=(str(values.parent),))
    values.chmod(0o750)
    with pytest.raises(SetupError, match=f"chmod 700 {values}"):
        read()
    for wrong, says in (("values", "absolute path"), (str(values / "none"), "cannot be read")):
        with pytest.raises(SetupError, match=says):
            rules_of(RuleTexts(env_files=(wrong,)), {}, executor="local")


@pytest.mark.parametrize(
    ("executor", "paths", "fits"),
    [
        pytest.param("docker", ("/srv/a", "/srv/a/b"), False, id="one in the other"),
        pytest.param("docker", ("/srv/a", "/srv/ab", "/srv/a"), True, id="apart"),
        pytest.param("local", ("/srv/a", "/srv/a/b"), True, id="local jobs use their own rights"),
    ],
)
def test_no_container_may_write_above_a_folder_that_others_mount(
    executor: str, paths: tuple[str, ...], fits: bool
) -> None:
    texts = RuleTexts(host_paths=paths)
    if fits:
        assert rules_of(texts, {}, executor=executor).host_paths == paths
    else:
        with pytest.raises(SetupError, match="/srv/a/b lies in /srv/a, and a container could"):
            rules_of(texts, {}, executor=executor)


@pytest.mark.parametrize(
    ("uid", "texts", "fits"),
    [
        pytest.param(1000, {}, False, id="every job has the runner's rights"),
        pytest.param(1000, {"namespaces": ("team",)}, True, id="one namespace"),
        pytest.param(0, {"run_as": ("*=1234",)}, True, id="other users"),
        pytest.param(0, {"run_as": ("*=1234", "user:ada=0")}, False, id="root for one of them"),
    ],
)
def test_local_jobs_may_not_read_the_values_of_other_namespaces(
    values: Path, monkeypatch: pytest.MonkeyPatch, uid: int, texts: dict[str, Any], fits: bool
) -> None:
    rules = rules_of(RuleTexts(**texts), {}, executor="local")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with_values = msgspec.structs.replace(rules, env_files=str(values))
    check_env_files(rules)
    if fits:
        check_env_files(with_values)
    else:
        with pytest.raises(SetupError, match="could read all values"):
            check_env_files(with_values)


def test_the_folders_of_volumes_are_made_once_with_their_files(tmp_path: Path) -> None:
    source_file = tmp_path / "value"
    source_file.write_text("secret")
    files = [{"path": "d/t", "source": str(source_file), "mode": 0o400}]
    plans: list[dict[str, Any]] = [
        {"name": "a", "variable": "A", "host": "", "files": files, "folders": []},
        {"name": "b", "variable": "B", "host": "", "files": [], "folders": ["x/y"]},
        {"name": "c", "variable": "C", "host": "/srv", "files": [], "folders": []},
    ]
    above = str(tmp_path / "main-0.volumes")
    paths = make_volumes(above, plans, None)
    assert paths == {"A": f"{above}/a", "B": f"{above}/b", "C": "/srv"}
    made = Path(above, "a", "d", "t")
    assert (made.read_text(), made.stat().st_mode & 0o777) == ("secret", 0o400)
    assert Path(above, "b", "x", "y").stat().st_mode & 0o777 == 0o777
    assert Path(above).stat().st_mode & 0o777 == 0o700
    Path(above, "b", "kept").touch()
    assert make_volumes(above, plans, None) == paths
    assert Path(above, "b", "kept").exists()


@pytest.mark.parametrize("uid", [0, 1000])
def test_a_container_may_read_the_secrets_of_its_unix_user_only_if_root_runs_it(
    monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    user = UnixUser(uid=1234, gid=5)
    rules = LiveRules(JobRules(run_as={"*": user}), local=False)
    template = msgspec.Raw(b'{"spec": {"containers": [{"name": "c", "image": "i"}]}}')
    pods = PodSetToRun(name="main", count=1, template=template)
    fact = Admitted(namespace="team", name="train", uid="u", revision=10, pod_sets=(pods,))
    plan = DockerExecutor({}, rules).run_plan(fact, "mark")
    assert plan.volumes_of == (None if uid else user)


@pytest.mark.parametrize(
    ("user", "variables"),
    [
        (
            UnixUser(uid=7, gid=5, name="ada", home="/home/ada", shell="/bin/zsh"),
            {"HOME": "/home/ada", "USER": "ada", "LOGNAME": "ada", "SHELL": "/bin/zsh"},
        ),
        (
            UnixUser(uid=8, gid=5, name="nobody", home="/", shell="/usr/sbin/nologin"),
            {"HOME": "/", "USER": "nobody", "LOGNAME": "nobody", "SHELL": "/bin/sh"},
        ),
        (UnixUser(uid=9, gid=9), {"HOME": "/", "SHELL": "/bin/sh"}),
    ],
    ids=("of a person", "without login", "by number"),
)
def test_a_process_of_another_unix_user_gets_the_names_of_that_user(
    user: UnixUser, variables: dict[str, str]
) -> None:
    rules = LiveRules(JobRules(run_as={"*": user}))
    template = msgspec.Raw(b'{"spec": {"containers": [{"name": "c", "command": ["x"]}]}}')
    pods = PodSetToRun(name="main", count=1, template=template)
    fact = Admitted(namespace="team", name="train", uid="u", revision=10, pod_sets=(pods,))
    own = {"PATH": "/bin", "HOME": "/home/eve", "TMPDIR": "/home/eve/tmp", "USER": "eve"}
    plan = LocalExecutor(own, rules).run_plan(fact, "mark")
    assert plan.given == {"PATH": "/bin", **variables}


def test_a_process_of_the_runners_unix_user_gets_the_names_of_that_user() -> None:
    template = msgspec.Raw(b'{"spec": {"containers": [{"name": "c", "command": ["x"]}]}}')
    pods = PodSetToRun(name="main", count=1, template=template)
    fact = Admitted(namespace="team", name="train", uid="u", revision=10, pod_sets=(pods,))
    own = {"PATH": "/bin", "HOME": "/elsewhere", "TMPDIR": "/t", "USER": "eve", "LANG": "C"}
    known = pwd.getpwuid(os.geteuid())
    names = {"HOME": known.pw_dir, "USER": known.pw_name, "LOGNAME": known.pw_name}
    given = LocalExecutor(own, LiveRules(NO_RULES)).run_plan(fact, "mark").given
    assert given.pop("SHELL")
    assert given == {"PATH": "/bin", "TMPDIR": "/t", **names}


@needs_root
def test_the_files_of_volumes_belong_to_the_unix_user_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "value").write_text("secret")
    files = [{"path": "t", "source": str(tmp_path / "value"), "mode": 0o400}]
    plans = [{"name": "a", "variable": "A", "host": "", "files": files, "folders": []}]
    made = make_volumes(str(tmp_path / "v"), plans, {"uid": 1234, "gid": 5})["A"]
    for path in (Path(made), Path(made, "t")):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5)


@pytest.mark.parametrize(
    "source",
    [{"fieldRef": {"fieldPath": "metadata.annotations['a']"}},
     {"secretKeyRef": {"name": "one", "key": "token"}}],
    ids=["an annotation", "a Secret"],
)  # fmt: skip
@pytest.mark.parametrize("engine", [False, True])
def test_thousands_of_variables_with_one_long_value_make_no_plan(
    source: dict[str, Any], engine: bool
) -> None:
    class LongInputs(FewInputs):
        def value(self, path: str) -> str:
            return "x" * 200_000

    each = {"name": "c", "image": "i", "command": ["c"]}
    refs = [{"name": f"V{number}", "valueFrom": source} for number in range(10)]
    containers = [{**each, "name": f"c{number}", "env": refs} for number in range(5)]
    template = {
        "metadata": {"annotations": {"a": "x" * 200_000}},
        "spec": {"containers": containers},
    }
    raw = msgspec.Raw(msgspec.json.encode(template))
    pods = PodSetToRun(name="main", count=1, template=raw)
    fact = Admitted(namespace="team", name="train", uid="u", revision=10, pod_sets=(pods,))
    with pytest.raises(CannotRun, match="the variables of the job have more than"):
        if engine:
            plan_docker(fact, given={}, docker="docker", mark="m", inputs=LongInputs())
        else:
            plan_local(fact, given={}, inputs=LongInputs())


class ManyKeys(FewInputs):
    """A Secret with a thousand keys without a value, and a ConfigMap with one large key."""

    def keys(self, kind: str, name: str) -> Mapping[str, str] | None:
        return {f"k{n}": "/k/e" for n in range(1_000)} if kind == "Secret" else {"a": "/k/a"}

    def value(self, path: str) -> str:
        return ""

    def size(self, path: str) -> int:
        return 1 << 20 if path == "/k/a" else 0


def many(source: dict[str, Any], count: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    names = [f"v{number}" for number in range(count)]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in names]
    return {"volumeMounts": mounts}, [{"name": name, **source} for name in names]


@pytest.mark.parametrize(
    ("container", "volumes", "says"),
    [
        pytest.param(
            *many({"configMap": {"name": "one"}}, 17), "16,777,216 bytes", id="bytes of volumes"
        ),
        pytest.param(
            *many({"secret": {"secretName": "one"}}, 6), "5,000 files", id="files of volumes"
        ),
        pytest.param(
            *many({"configMap": {"name": "one", "items": [{"key": "a", "path": f"p{n}"}
                                                          for n in range(17)]}}, 1),
            "16,777,216 bytes", id="one key many times"
        ),
        pytest.param(
            {"envFrom": [{"secretRef": {"name": "one"}, "prefix": "P" * 100}] * 90}, [],
            "the variables of the job have more than", id="variables without a value"
        ),
    ],
)  # fmt: skip
def test_a_plan_is_bounded_whatever_a_job_names_again_and_again(
    container: dict[str, Any], volumes: list[dict[str, Any]], says: str
) -> None:
    with pytest.raises(CannotRun, match=says):
        plan_local(admitted(container, *volumes), given={}, inputs=ManyKeys())


def test_the_keys_of_a_secret_are_listed_once_for_a_job(
    values: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    read = MachineInputs._read_keys
    monkeypatch.setattr(
        MachineInputs, "_read_keys", lambda *args: listed.append(args[1:]) or read(*args)
    )
    inputs = MachineInputs(JobRules(env_files=str(values)), "team", exact=False)
    refs = [{"secretRef": {"name": "none", "optional": True}}] * 50
    plan_local(admitted({"envFrom": refs}), given={}, inputs=inputs)
    assert listed == [("Secret", "none")]
