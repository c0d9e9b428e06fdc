"""submitit on Admittance: ``submitit.AutoExecutor(folder, cluster="admittance")``."""

from admittance_submitit.environment import AdmittanceJobEnvironment
from admittance_submitit.executor import AdmittanceExecutor
from admittance_submitit.job import AdmittanceJob

__all__ = ["AdmittanceExecutor", "AdmittanceJob", "AdmittanceJobEnvironment"]
