"""Tasks of Airflow as jobs: `AdmittanceOperator`."""

from admittance_airflow.operator import AdmittanceOperator
from admittance_airflow.trigger import AdmittanceTrigger

__all__ = ["AdmittanceOperator", "AdmittanceTrigger"]
