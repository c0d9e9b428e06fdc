"""The check of the tree names imports and sizes that break a rule, and gives advice about names."""

from pathlib import Path

import pytest
from tools.house_check import advice, cycles, offenders


def write(root: Path, **modules: str) -> None:
    for name, text in modules.items():
        path = root / "libs" / "house" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        pytest.param(
            {"a": "def f(one):\n    found = [one for one in one]\n"},
            "`one` is bound 2 times",
            id="a name that says nothing",
        ),
        pytest.param(
            dict.fromkeys(("a", "b", "wing__c"), "class Door: ...\n"),
            "Door is a class of house.a and of house.b and of house.wing.c",
            id="two classes of a package with the same name",
        ),
    ],
)
def test_advice_does_not_fail_the_check(tmp_path: Path, modules: dict[str, str], said: str) -> None:
    write(tmp_path, **modules)
    assert advice(tmp_path)[0].startswith(said)
    assert offenders(tmp_path) == []


@pytest.mark.parametrize(
    ("modules", "said"),
    [
        pytest.param(
            {f"m{n}": "" for n in range(16)},
            ["libs/house has 16 modules, more than 15: divide it"],
            id="a large folder",
        ),
        pytest.param(
            {"__init__": "", **{f"m{n}": "" for n in range(15)}}, [], id="as many as may be"
        ),
        pytest.param(
            {"long": "\n" * 501},
            ["libs/house/long.py has 501 lines, more than 500: divide it"],
            id="a long module",
        ),
        pytest.param({"long": "\n" * 500}, [], id="as long as may be"),
        pytest.param(
            {"made": '"""Made by ``python -m tools.sync_client``."""' + "\n" * 501},
            [],
            id="a long module that a tool makes",
        ),
    ],
)
def test_sizes_above_the_limits_are_named(
    tmp_path: Path, modules: dict[str, str], said: list[str]
) -> None:
    write(tmp_path, **modules)
    assert offenders(tmp_path) == said


@pytest.mark.parametrize(
    "back",
    ["from house import a\n", "from . import a\n", "from .a import x\n", "import house.a\n"],
)
def test_a_cycle_through_type_checking_imports_is_named(tmp_path: Path, back: str) -> None:
    write(
        tmp_path,
        a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.b import x\n",
        b=back,
    )
    assert offenders(tmp_path) == ["modules import each other in a cycle: house.a house.b"]


@pytest.mark.parametrize(
    "back",
    [
        pytest.param('import_module("house.a")', id="a name"),
        pytest.param('HOMES = {"A": "house.a"}\nimport_module(HOMES[x])', id="a table of names"),
        pytest.param('ROOMS = ("a", "c")\nimport_module(f"house.{room}")', id="a part of a name"),
        pytest.param('import_module(f"house.{room}")', id="any module of a package"),
        pytest.param('run("-c", "import sys; from house.a import main; main()")', id="a program"),
    ],
)
def test_a_cycle_through_an_import_by_string_is_named(tmp_path: Path, back: str) -> None:
    write(tmp_path, a='"""Not house.b."""\nimport house.b\n', b=f"{back}\n")
    assert offenders(tmp_path) == ["modules import each other in a cycle: house.a house.b"]


def test_an_import_of_a_name_from_elsewhere_is_named(tmp_path: Path) -> None:
    write(tmp_path, a="import_module(settings.module)\n")
    said = "imports a module by a name that is not in its text"
    assert offenders(tmp_path) == [f"libs/house/a.py {said}"]


def test_an_import_over_the_wall_of_a_service_is_named(tmp_path: Path) -> None:
    write(tmp_path, shared="def f():\n    import house.kitchen.oven\n")
    services = tmp_path / "services" / "house"
    for room, text in (("kitchen", ""), ("hall", "from house.kitchen import oven\n")):
        (services / room).mkdir(parents=True)
        (services / room / "__init__.py").write_text("")
        (services / room / "oven.py").write_text(text)
    (services / "rooms.py").write_text("from house import hall, kitchen\n")
    (services / "hall" / "__main__.py").write_text("")
    (services / "hall" / "door.py").write_text("import nats.errors\n")
    said = "imports house.kitchen.oven of another service: move what both need to libs"
    assert offenders(tmp_path) == [
        f"house.hall.oven {said}",
        f"house.shared {said}",
        "house.hall.door imports nats: only the runtime does",
    ]


def test_a_cycle_between_packages_is_named(tmp_path: Path) -> None:
    write(tmp_path, one__a="import house.two.b\n", one__c="", two__b="import house.one.c\n")
    assert offenders(tmp_path) == ["packages import each other in a cycle: house.one house.two"]


@pytest.mark.parametrize("line", ["import time\n", "from random import choice\n"])
def test_a_module_with_its_own_time_or_chance_is_named(tmp_path: Path, line: str) -> None:
    write(tmp_path, a=f"def f():\n    {line}")
    said = f"imports {line.split()[1]}: call runtime/clock.py or runtime/chance.py"
    assert offenders(tmp_path) == [f"libs/house/a.py {said}"]


def test_every_import_cycle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"e"}, "e": {"c", "a"}}
    assert cycles(graph) == [["a", "b"], ["c", "d", "e"]]


def test_a_write_to_a_workload_field_of_another_module_is_named(tmp_path: Path) -> None:
    texts = {
        "state/workload_info": """
class StoredFields:
    priority: int

class AssumedFields(StoredFields):
    assumption: str
""",
        "workload_updates": """
def read(workload):
    workload.priority = 1
    workload.assumption, other = "", 3
""",
        "state/assumption": """
def assume(self, workload):
    self.priority = workload.priority
    workload.assumption += ""
""",
    }
    for name, text in texts.items():
        path = tmp_path / "libs" / "admittance" / "scheduling" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert offenders(tmp_path) == [
        "admittance.scheduling.workload_updates writes assumption of AssumedFields, "
        "which is written by state.assumption, state.scheduler_state only"
    ]


def test_two_test_modules_of_one_name_are_named(tmp_path: Path) -> None:
    for folder in ("unit", "system", "package"):
        path = tmp_path / "tests" / folder / "test_a.py"
        path.parent.mkdir(parents=True)
        path.touch()
    (tmp_path / "tests" / "package" / "__init__.py").touch()
    said = "test modules have one name: tests/system/test_a.py tests/unit/test_a.py"
    assert offenders(tmp_path) == [said]
