"""docs/reference/metrics.md lists the metrics of the code."""

from __future__ import annotations

from collections import Counter

from tools.pages.metrics import NOT_COUNTED, PAGE, by_service, page


def test_the_page_of_metrics_is_the_code() -> None:
    assert PAGE.read_text() == page(), "run python -m tools.pages.metrics"


def test_each_metric_has_one_service_and_one_meaning() -> None:
    names = Counter(metric.name for metrics in by_service().values() for metric in metrics)
    assert names.most_common(1)[0][1] == 1
    assert all(metric.about for metrics in by_service().values() for metric in metrics)


def test_a_metric_is_not_listed_as_missing() -> None:
    names = {metric.full_name for metrics in by_service().values() for metric in metrics}
    assert not names & set(NOT_COUNTED)
