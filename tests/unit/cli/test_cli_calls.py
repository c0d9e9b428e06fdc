"""The command line: wrong input is one line and status 2."""

from __future__ import annotations

import asyncio
import json
import re
from inspect import CORO_CLOSED, getcoroutinestate
from pathlib import Path
from typing import NoReturn

import pytest

from admittance.api.workload import QUEUE_LABEL, Job, Workload
from admittance.cli.commands import program
from admittance.cli.commands.program import ERRORS_MAX
from admittance.cli.support.files import documents
from admittance.cli.support.options import Call, Output, UrlFrom, outer_call, run, settle
from admittance.cli.up import up
from admittance.cli.up.options import Options
from admittance.client.errors import BadInput
from admittance.client.requests.submissions.names import stem, suffix
from support.processes.in_process import Admit

FLAVOR = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: spot}\n"
QUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources:
      - {name: cpu, nominalQuota: 1.5.2Gi}
"""


NO_SERVER = (
    "error: nothing listens at nats://127.0.0.1:1: start `admit up`, or name your server with "
    "--nats URL\n"
)


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on port 1: a call that gets as far as connecting fails with status 1."""
    monkeypatch.setenv("ADMIT_NATS_URL", "nats://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param("get pods", 'no kind "pods"', id="an unknown kind"),
        pytest.param("get", "Missing argument .*; `admit get --help` shows", id="no kind"),
        pytest.param("frobnicate", "No such command .*`admit --help`", id="an unknown command"),
        pytest.param("appli", "Did you mean 'apply'\\? `admit --help`", id="a near command"),
        pytest.param("auth add user", ".*; `admit auth add --help` shows", id="no user"),
        pytest.param("-o json apply -f x", "`admit apply` has no output formats", id="no output"),
        pytest.param("-o name trace wl w", "`admit trace` has no -o name", id="no names"),
        pytest.param("explain wl w -o name", "'name' is not one of", id="no names of why"),
        pytest.param("simulate -f x -o name", "'name' is not one of", id="no names of what if"),
        pytest.param("doctor -o name", "'name' is not one of", id="no names of checks"),
        pytest.param("context show -o name", "'name' is not one of", id="no name of a context"),
        pytest.param("auth show a -o name", "'name' is not one of", id="no name of a user"),
        pytest.param("bench x -o yaml", "'yaml' is not one of", id="no YAML of figures"),
        pytest.param("get wl --frob", "No such option", id="an unknown option"),
        pytest.param("get wl -o xml", "xml", id="an unknown shape of answer"),
        pytest.param("get wl --namespace= x", "-n/--namespace is empty", id="an empty namespace"),
        pytest.param("submit --name= -- true", "--name is empty", id="an empty name"),
        pytest.param("submit --export= -- true", "--export is empty", id="one of several empty"),
        pytest.param("--nats http://x get wl", "looks like nats://", id="a URL that is none"),
        pytest.param("--nats nats://x:port get wl", "Port", id="a port that is none"),
        pytest.param("get cq -q lq", "workloads and pending only", id="a queue for what has none"),
        pytest.param("get wl w --state Running", "works on lists only", id="a filter of one"),
        pytest.param("get wl -w --limit 3", "and not with -w", id="a limit of what is watched"),
        pytest.param("get wl --state Done", '--state "Done" is not one of', id="no such state"),
        pytest.param("get cq --state Running", "workloads only", id="a state of a queue"),
        pytest.param("get wl --sort-by size", '"size" is not one of name', id="no such key"),
        pytest.param("get wl -l =x", "is not a selector", id="no selector"),
        pytest.param("get wl --since tomorrow", "--since", id="no time"),
        pytest.param("get wl -l te%20am=", "no label key|is not a label key", id="a bad label"),
        pytest.param("get wl -l a=b,,c", "is not a selector", id="an empty part of a selector"),
        pytest.param("get pending --state Done", '--state "Done"', id="no state of what waits"),
        pytest.param("get pending -w", "cannot be watched", id="what waits, watched"),
        pytest.param("doctor --monitor host:8222", "like http://HOST:8222", id="a bad monitor"),
        pytest.param("doctor --admin nowhere", "must be HOST:PORT", id="a bad admin address"),
        pytest.param("describe wl w -o json", "use `admit get`", id="a description as JSON"),
        pytest.param("get pending x", "takes no name", id="a name of a pending workload"),
        pytest.param("wait wl w --for Done", "is not a phase", id="an unknown phase"),
        pytest.param("wait wl w", "--for", id="no phase"),
        pytest.param("wait wl w --for Pending --timeout x", "--timeout", id="a bad timeout"),
        pytest.param("events --since tomorrow", "--since", id="a bad time"),
        pytest.param("events --types born", '--types "born" is not one of', id="an unknown type"),
        pytest.param("events --until 1h -f", "does not go with --follow", id="an end to follow"),
        pytest.param("events workload w --workload w", "is given twice", id="a workload twice"),
        pytest.param("events cq c", "works on workloads only", id="events of a queue"),
        pytest.param("events w", "type: workload w", id="a name without its kind"),
        pytest.param("events wl", "name of the workload is missing", id="events of no workload"),
        pytest.param("events --tail 0", '--tail "0" must be', id="no event"),
        pytest.param("stop cq x", "workloads only", id="a verb on another kind than workload"),
        pytest.param("stop wl", "name of the workload is missing", id="a verb on nothing"),
        pytest.param("priority wl w", "a name and a priority are needed", id="no priority"),
        pytest.param("priority wl 5", "a name and a priority are needed", id="one word of two"),
        pytest.param("priority wl w high", "not a whole number", id="a priority that is none"),
        pytest.param("priority wl w 9999999999", "32-bit", id="a priority too great"),
        pytest.param("submit", "nothing to submit", id="nothing to submit"),
        pytest.param("submit -f x.yaml -- true", "not both", id="two things to submit"),
        pytest.param("submit -f x.yaml --cpu 1", "leave out the other", id="flags for a manifest"),
        pytest.param("submit -f x.yaml --priority 0", "leave out the other", id="a flag that is 0"),
        pytest.param("-o json stop wl w", "`admit stop` has no output formats", id="no answer"),
        pytest.param("submit --env A -- true", "KEY=VALUE", id="a variable without a value"),
        pytest.param(
            "submit --export NO_SUCH_1 -- true", "is not set here", id="a variable that is not set"
        ),
        pytest.param("submit -f x.yaml --export ALL", "leave out the other", id="variables"),
        pytest.param("submit --timeout 5 -- true", "goes with --wait", id="a limit for nothing"),
        pytest.param("submit --count 0 -- true", "--count", id="no pods"),
        pytest.param("apply", "--file", id="nothing to apply"),
        pytest.param("apply -f /nowhere.yaml", "/nowhere.yaml: No such file", id="no such file"),
        pytest.param("delete cq", "name is missing", id="nothing to delete"),
        pytest.param("delete wl/a cq", "no kind|is not an object", id="half an object to delete"),
        pytest.param(
            "serve frob",
            "provisioning-check, placement, provider-pool, provider-aws, provider-kubernetes, "
            "provider-docker",
            id="no such service",
        ),
        pytest.param("up --nats nats://x --port 1", "--port is", id="a port of another server"),
        pytest.param("up --data-dir /dev/null", "is not a folder", id="a folder that is a file"),
        pytest.param("up --run-as ada=root", "must be user:NAME=UNIX_USER", id="no rule"),
        pytest.param("serve runner --run-as *=no-such", "no Unix user 'no-such'", id="no user"),
        pytest.param("up --executor vm", "use one of local, docker", id="no such executor"),
        pytest.param("up --admin here", "HOST:PORT", id="admin port nowhere"),
        pytest.param("serve runner --executor vm", "use one of local", id="nor one"),
        pytest.param("up --port 70000", '"70000" must be .* from 0 to 65535', id="no port"),
        pytest.param("up --port x", '--port "x" must be a whole number', id="a port of letters"),
        pytest.param("logs wl w --tail -1", '--tail "-1" must', id="fewer lines than none"),
        pytest.param("get wl --limit 0", '"0" must be a whole number, at least 1', id="no row"),
        pytest.param("submit --count 1.5 -- true", '--count "1.5" must', id="half a pod"),
        pytest.param("bench x.yaml --scale x", '--scale "x" must be a number', id="no scale"),
        pytest.param("bench /nowhere.yaml", "no such file", id="no generator"),
        pytest.param("token", "Missing argument", id="no name to escape"),
        pytest.param("get wl -o x", "'-o': 'x' is not one of 'table'", id="no shape of an answer"),
        pytest.param("completion tcsh", "tcsh", id="an unknown shell"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(arguments: str, why: str, admit: Admit) -> None:
    said = admit(*arguments.split())
    [line] = said.err.splitlines()
    assert (said.status, said.out, line[:7]) == (2, "", "error: ")
    assert re.search(why, line), line


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("get wl", id="get"),
        pytest.param("describe cq x", id="describe"),
        pytest.param("delete cq x", id="delete"),
        pytest.param("submit -q x -- true", id="submit"),
        pytest.param("wait workload w --for Finished", id="wait"),
        pytest.param("explain workload w", id="explain"),
        pytest.param("events", id="events"),
        pytest.param("trace workload w", id="trace"),
        pytest.param("logs workload w", id="logs"),
        pytest.param("logs workload w -f", id="logs that continue"),
        pytest.param("hold workload w", id="hold"),
        pytest.param("cancel workload w", id="cancel"),
        pytest.param("priority workload w -5", id="priority"),
        pytest.param("doctor", id="doctor"),
    ],
)
def test_without_a_server_one_line_names_the_remedy(arguments: str, admit: Admit) -> None:
    assert admit(*arguments.split()) == (1, "", NO_SERVER)


def test_all_problems_of_all_files_are_shown_before_any_apply(tmp_path: Path, admit: Admit) -> None:
    (tmp_path / "a.yaml").write_text(f"{FLAVOR}---\n---\n{QUEUE}")
    (tmp_path / "b.yaml").write_text("kind: [")
    (tmp_path / "c.txt").write_text("no manifest")
    said = admit("apply", "-f", str(tmp_path))
    quantity, yaml = said.err.splitlines()
    assert (said.status, said.out) == (2, "")
    assert f"{tmp_path}/a.yaml: document 3 (ClusterQueue cq)" in quantity
    assert "nominalQuota" in quantity
    assert "1.5.2Gi" in quantity
    assert f"{tmp_path}/b.yaml" in yaml


@pytest.mark.parametrize(
    ("command", "texts", "last"),
    [
        pytest.param("apply", [], "no .yaml, .yml or .json file in this folder", id="no manifest"),
        pytest.param("apply", [FLAVOR, FLAVOR], "the same object is in", id="one object twice"),
        pytest.param(
            "apply",
            ["---\n".join(["{kind: Oops}\n"] * (ERRORS_MAX + 1_234))],
            "error: and 1,234 more like these",
            id="thousands of errors",
        ),
        pytest.param(
            "submit",
            [FLAVOR],
            "objects of the kind ResourceFlavor are not submitted; use `admit apply`",
            id="a queue is not submitted",
        ),
        pytest.param(
            "submit",
            ["{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: a}, spec: {}}"],
            "objects of the kind RayJob are not run; submit a batch/v1 Job, or a Workload with a "
            "pod set for each kind of pod",
            id="a job of another group is not submitted",
        ),
    ],
)
def test_manifests_that_cannot_be_sent_are_refused_with_the_reason(
    tmp_path: Path, admit: Admit, command: str, texts: list[str], last: str
) -> None:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.yaml").write_text(text)
    lines = admit.err(2, command, "-f", str(tmp_path)).splitlines()
    assert last in lines[-1]
    assert len(lines) in (1, ERRORS_MAX + 1)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param("--version", 0, "admit ", id="the version"),
        pytest.param("", 2, "Usage: admit ", id="all commands, without one"),
        pytest.param("submit --help", 0, "Usage: admit submit ", id="the help of a command"),
        pytest.param("completion bash", 0, "_admit_completion() {", id="a completion script"),
        pytest.param(
            "token example.com/budget train.7", 0, "example_com=2Fbudget\ntrain_7\n", id="tokens"
        ),
    ],
)
def test_answers_without_a_server_go_to_standard_output(
    arguments: str, status: int, said: str, admit: Admit
) -> None:
    answer = admit(*arguments.split())
    assert answer.out.startswith(said)
    assert (answer.status, answer.err) == (status, "")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        pytest.param(
            ZeroDivisionError("of course"),
            "ZeroDivisionError: of course; this is a bug, ADMIT_DEBUG=1 shows where",
            id="a bug",
        ),
        pytest.param(
            PermissionError(13, "Permission denied", "/closed/x"),
            "cannot read /closed/x: Permission denied",
            id="a path that may not be looked for",
        ),
    ],
)
def test_an_unexpected_error_is_one_line(
    monkeypatch: pytest.MonkeyPatch, admit: Admit, raised: Exception, said: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.delenv("ADMIT_DEBUG", raising=False)
    monkeypatch.setattr(program, "outer_call", broken)
    assert admit("doctor") == (1, "", f"error: {said}\n")


# Global options. ------------------------------------------------------------------------


def test_arguments_after_two_hyphens_belong_to_the_job(admit: Admit) -> None:
    assert admit.err(1, "submit", "-q", "x", "--", "true", "--nats", "no url") == NO_SERVER


def test_options_after_the_command_win_over_those_before_it() -> None:
    outer = outer_call("nats://a", "team-a", Output.JSON, environ={"ADMIT_NATS_URL": "nats://env"})
    assert outer == Call(
        url="nats://a", url_from=UrlFrom.OPTION, namespace="team-a", output=Output.JSON
    )
    assert settle(outer, None, "team-b").namespace == "team-b"
    assert settle(outer, "nats://b", None).url == "nats://b"
    assert settle(outer, None, None) == outer


def test_the_environment_names_the_server_without_an_option() -> None:
    call = outer_call(None, None, None, environ={"ADMIT_NATS_URL": "nats://env"})
    assert (call.url, call.url_from) == ("nats://env", UrlFrom.ENVIRONMENT)


def test_an_empty_url_is_refused() -> None:
    with pytest.raises(BadInput, match="--nats is empty"):
        settle(Call(), "", None)


@pytest.mark.parametrize(
    ("origin", "port", "folder", "want"),
    [
        pytest.param(UrlFrom.DEFAULT, None, False, True, id="no server given"),
        pytest.param(UrlFrom.OPTION, None, True, False, id="--nats names one"),
        pytest.param(UrlFrom.ENVIRONMENT, None, False, False, id="the environment names one"),
        pytest.param(UrlFrom.ENVIRONMENT, 0, False, True, id="a port means one of our own"),
        pytest.param(UrlFrom.ENVIRONMENT, None, True, True, id="a folder means one of our own"),
    ],
)
def test_up_starts_its_own_server_unless_one_is_given(
    origin: UrlFrom, port: int | None, folder: bool, want: bool, tmp_path: Path
) -> None:
    options = Options(data_dir=tmp_path, port=port, folder_chosen=folder)
    assert up.embeds(Call(url_from=origin), options) is want


def test_services_of_a_data_folder_keep_their_instance_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ADMIT_INSTANCE", raising=False)
    first = up.lasting_instance(tmp_path)
    assert first
    assert up.lasting_instance(tmp_path) == first
    monkeypatch.setenv("ADMIT_INSTANCE", "mine")
    assert up.lasting_instance(tmp_path) is None


# Made-up names. -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param(["/usr/bin/python3", "-c", "x"], "python3", id="a program"),
        pytest.param(["./Train_It.sh"], "train-it-sh", id="what no name may have is a hyphen"),
        pytest.param(["…"], "workload", id="nothing is left"),
        pytest.param(["x" * 100], "x" * 40, id="a long one is cut"),
    ],
)
def test_a_generated_name_begins_with_the_program(command: list[str], want: str) -> None:
    assert stem(command) == want


def test_generated_names_differ() -> None:
    assert len({suffix() for _ in range(100)}) == 100


def test_lists_have_the_shape_of_kubernetes() -> None:
    from admittance.cli.show.lists import as_list

    assert json.loads(json.dumps(as_list([{"a": 1}]))) == {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{"a": 1}],
    }


def test_a_command_interrupted_before_it_starts_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would warn on standard error that it never ran."""

    def interrupted(_work: object) -> NoReturn:
        raise KeyboardInterrupt

    async def command() -> int:
        return 0

    monkeypatch.setattr(asyncio, "run", interrupted)
    work = command()
    with pytest.raises(KeyboardInterrupt):
        run(work)
    assert getcoroutinestate(work) == CORO_CLOSED


@pytest.mark.parametrize("namespace", ["*", ">", "../../x", "a.b", "A", "_", "a b", "a\n"])
def test_a_namespace_that_no_namespace_can_have_is_refused(namespace: str, admit: Admit) -> None:
    for call in (("-n", namespace, "get", "workloads"), ("get", "workloads", "-n", namespace)):
        assert admit.err(2, *call).startswith("error: -n/--namespace: ")


def test_a_queue_beside_a_file_is_that_of_all_its_workloads(tmp_path: Path) -> None:
    pods = "{spec: {restartPolicy: Never, containers: [{name: c, command: [x]}]}}"
    kinds = {
        "a": "apiVersion: batch/v1\nkind: Job\n"
        "metadata: {name: a, labels: {kueue.x-k8s.io/queue-name: own}}\n"
        f"spec: {{template: {pods}}}\n",
        "b": "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata: {name: b}\n"
        f"spec: {{queueName: own, podSets: [{{name: main, count: 1, template: {pods}}}]}}\n",
    }
    for name, text in kinds.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    for queue, want in (("other", ["other", "other"]), (None, ["own", "own"])):
        read = documents([str(tmp_path)], "default", queue)
        assert [queue_of(document.manifest) for document in read] == want


def queue_of(manifest: object) -> str:
    if isinstance(manifest, Workload):
        return manifest.spec.queue_name
    assert isinstance(manifest, Job)
    return manifest.metadata.labels.get(QUEUE_LABEL, "")
