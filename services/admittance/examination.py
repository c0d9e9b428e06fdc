"""The examination of all services, for `Client.health`, which loads this module by its name."""

from __future__ import annotations

from admittance.client.health_report import HealthReport
from admittance.client.requests.link import Link
from admittance.doctor import report as doctor_report
from admittance.services import SERVICES


async def report(link: Link, *, thorough: bool) -> HealthReport:
    """The report about the installation of the link. Raises NotAllowed."""
    return await doctor_report.report(link, SERVICES, thorough=thorough)
