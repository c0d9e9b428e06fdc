"""The note of `admit get` for an empty list."""

import pytest

from admittance.cli.show.lists import show
from admittance.cli.support.options import Call
from admittance.client import kinds


@pytest.mark.parametrize(
    ("filtered", "said"),
    [
        (False, "no workloads in namespace default\n"),
        (True, "no matching workloads in namespace default\n"),
    ],
)
def test_an_empty_list_shows_whether_filters_left_objects_out(
    filtered: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(Call(), kinds.WORKLOAD, [], {}, single=False, all_namespaces=False, filtered=filtered)
    assert capsys.readouterr().err == said
