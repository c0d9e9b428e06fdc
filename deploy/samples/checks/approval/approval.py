"""A person has to agree: `admit approve workload NAME`, or `admit deny`.

All that is left for a program is to say what is waited for. The command states the verdict itself,
with who and when.
"""

from __future__ import annotations

from admittance.checks import AdmissionCheckController, Pending, Request

approval = AdmissionCheckController("admittance.dev/approval")


@approval.check
async def ask(request: Request) -> Pending:
    which = f"workload {request.name} -n {request.namespace} --check {request.check}"
    return Pending(f"waits for a person: admit approve {which}, or admit deny {which}")


if __name__ == "__main__":
    approval.run()
