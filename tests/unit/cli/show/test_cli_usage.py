"""Tables of the usage of queues."""

import pytest

from admittance.cli.show.sections import usage
from admittance.events.requests.queues import FlavorUsage, QueueStatus


@pytest.mark.parametrize(
    ("quota", "titles", "row"),
    [
        pytest.param(
            True,
            ["FLAVOR", "RESOURCE", "NOMINAL", "RESERVED", "ADMITTED", "BORROWED"],
            ("spot", "cpu", "4", "3", "2", "1"),
            id="a ClusterQueue has quota and borrows",
        ),
        pytest.param(
            False,
            ["FLAVOR", "RESOURCE", "RESERVED", "ADMITTED"],
            ("spot", "cpu", "3", "2"),
            id="a LocalQueue has usage only",
        ),
    ],
)
def test_usage_shows_quota_of_queues_that_have_it(
    quota: bool, titles: list[str], row: tuple[str, ...]
) -> None:
    flavor_usage = FlavorUsage(
        flavor="spot", resource="cpu", nominal=4000, reserved=3000, admitted=2000, borrowed=1000
    )
    table = usage(QueueStatus(name="q", usage=(flavor_usage,)), quota=quota)
    assert [column.title for column in table.columns] == titles
    assert [tuple(map(str, cells)) for cells in table.rows] == [row]
