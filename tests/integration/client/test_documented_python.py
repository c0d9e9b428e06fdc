"""The Python of pages and of the notebook sample runs, and prints what the pages show."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import sys
import zipfile
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hatchling.builders.wheel import WheelBuilder
from tools.notebook import TARGET, made

from admittance.client import Client
from support.documents import ROOT, differences, python_blocks
from support.processes.forked_system import embedded

pytestmark = [pytest.mark.bus, pytest.mark.asyncio(loop_scope="module")]

APP = """
import hydra
from pathlib import Path


@hydra.main(config_path=None, version_base=None)
def main(config):
    folder = hydra.core.hydra_config.HydraConfig.get().runtime.output_dir
    Path(folder, "result").write_text(str(10 * config.lr))


if __name__ == "__main__":
    main()
"""
RUN_DAG = """
    prep >> AdmittanceOperator(
        task_id="without", command=["true"], local_queue="research", deferrable=False
    )

if __name__ == "__main__":
    run = dag.test()
    print(sorted((ti.task_id, str(ti.state)) for ti in run.get_task_instances()))
"""
ME = f"tests/integration/client/{Path(__file__).name}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environ() -> AsyncIterator[dict[str, str]]:
    async with embedded() as child:
        environment = {"XDG_CONFIG_HOME": str(child.log.parent)}
        async with await Client.connect(environ=environment) as admin:
            await admin.apply((ROOT / "deploy" / "samples" / "queues.yaml").read_text())
        yield environment


def use(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """Makes clients find the server of the test by the current context."""
    for name in ("ADMIT_NATS_URL", "ADMIT_NATS_CREDS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, plugin: str) -> None:
    """Builds a plug-in and unpacks it where this program and its jobs find it; the program goes to
    an empty folder."""
    (built,) = WheelBuilder(str(ROOT / "plugins" / plugin)).build(directory=str(folder))
    zipfile.ZipFile(built).extractall(folder / "site")
    monkeypatch.syspath_prepend(folder / "site")
    monkeypatch.setenv("PYTHONPATH", str(folder / "site"))
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")


def printed_by(text: str, names: dict[str, Any]) -> str:
    """The output of the program."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(text, "page", "exec"), names)
    return output.getvalue()


@pytest.mark.parametrize("page", ["python.md", "executors.md"])
async def test_the_python_of_the_page_prints_what_it_shows(
    page: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if page == "executors.md":
        pytest.importorskip("submitit", reason="the plug-in for submitit needs submitit")
        install(monkeypatch, tmp_path, "submitit")
    use(monkeypatch, environ)
    names: dict[str, Any] = {"__name__": "page"}
    try:
        for block in python_blocks(ROOT / "docs" / page):
            assert block.test == ME
            output = await asyncio.to_thread(printed_by, block.text, names)
            different = differences(block.shown, output)
            assert not different, f"{block.page.name}, line {block.line}:\n{different}"
    finally:
        if "client" in names:
            await asyncio.to_thread(names["client"].close)
        if jobs := sys.modules.get("admittance_submitit.job"):
            # The plug-in has one client for the process, whose thread would outlive the test.
            await asyncio.to_thread(lambda: jobs.client().close())
            jobs._client_of.cache_clear()


async def test_the_notebook_runs_to_its_end(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TARGET.read_text() == made()
    use(monkeypatch, environ)
    notebook = json.loads(TARGET.read_text())
    if find_spec("nbclient") and find_spec("ipykernel"):
        await asyncio.to_thread(in_a_kernel)
        return
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    output = await asyncio.to_thread(printed_by, "\n".join(cells), {"__name__": "notebook"})
    assert "3 of 4 jobs succeeded" in output


def in_a_kernel() -> None:
    """Runs the notebook as Jupyter does."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(TARGET, as_version=4)
    NotebookClient(notebook, timeout=120).execute()
    text = json.dumps(notebook)
    assert "3 of 4 jobs succeeded" in text


async def test_hydra_runs_a_sweep_as_an_array(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="Hydra is not installed")
    install(monkeypatch, tmp_path, "submitit")
    use(monkeypatch, environ)
    work = tmp_path / "work"
    (work / "app.py").write_text(APP)
    asked = ("-m", "hydra/launcher=submitit_admittance", "hydra.launcher.queue=research")
    program = await asyncio.create_subprocess_exec(
        sys.executable, "app.py", *asked, "hydra.launcher.mem_gb=1", "+lr=1,2"
    )
    assert await program.wait() == 0
    results = sorted((work / "multirun").rglob("result"))
    assert [result.read_text() for result in results] == ["10", "20"]


async def test_snakemake_runs_the_workflow_of_the_page(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("snakemake", reason="Snakemake is not installed")
    install(monkeypatch, tmp_path, "snakemake")
    use(monkeypatch, environ)
    page = (ROOT / "docs" / "workflows.md").read_text()
    [flow] = re.findall(r"```snakemake\n(.*?)```", page, re.DOTALL)
    [command] = re.findall(r"```sh\nsnakemake (.*)\n```", page)
    work = tmp_path / "work"

    async def run(rules: str) -> tuple[int | None, str]:
        (work / "Snakefile").write_text(rules)
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "snakemake", *command.split()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await program.communicate()
        return program.returncode, printed.decode()

    status, printed = await run(flow)
    assert status == 0, printed
    assert (work / "total").read_text() == "1\n2\n"
    wrong = 'rule wrong:\n    output: "x"\n    shell: "exit 3"\n'
    status, printed = await run(wrong)
    assert status == 1
    assert re.search(
        r"Failed: pod main-0 failed: exit code 1; `admit logs workload wrong-", printed
    )
    status, printed = await run(wrong.replace("shell", 'resources: queue="nope"\n    shell'))
    assert status == 1
    assert "LocalQueue default/nope does not exist" in printed


async def test_airflow_runs_the_dag_of_the_page(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("airflow.sdk", reason="Airflow is not installed")
    install(monkeypatch, tmp_path, "airflow")
    use(monkeypatch, environ)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(tmp_path / "work"))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    [block] = python_blocks(ROOT / "docs" / "workflows.md")
    (tmp_path / "work" / "pipeline.py").write_text(block.text + RUN_DAG)
    printed = b""
    for words in (("-m", "airflow", "db", "migrate"), ("pipeline.py",)):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await program.communicate()
        assert program.returncode == 0, printed.decode()
    states = "[('prep', 'success'), ('train', 'failed'), ('without', 'success')]"
    assert states in printed.decode()
    assert "failed: Failed: pod main-0 failed: exit code 3" in printed.decode()
    from admittance_airflow import AdmittanceTrigger

    async with await Client.connect(environ=environ) as client:
        job = await client.submit(["sleep", "600"], queue="research")
        trigger = AdmittanceTrigger(job.name, "default")
        assert AdmittanceTrigger(**trigger.serialize()[1]).name == job.name
        await trigger.on_kill()  # a person clears the task
        [event] = [each async for each in trigger.run()]
        assert "it is Deactivated" in event.payload["failed"]
