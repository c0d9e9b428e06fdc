"""Prints the NVIDIA devices of this machine as JSON, asked through NVML: `python nvml.py`.

The runner starts this file as a child with a time limit, since a call of NVML may hang in the
kernel. It needs ``nvidia-ml-py`` (the extra ``nvidia``) and nothing else. The exit status is 3 if
NVML does not answer; its last line on stderr says why.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def devices(nvml: Any) -> list[dict[str, Any]]:
    """The devices in the order of NVML, which is that of the PCI bus. A card that is divided (MIG)
    counts as its parts, each with a resource of its own."""
    devices: list[dict[str, Any]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        card = nvml.nvmlDeviceGetHandleByIndex(index)
        minor = nvml.nvmlDeviceGetMinorNumber(card)
        parts = list(_parts(nvml, card))
        for part in parts or [card]:
            name = _text(nvml.nvmlDeviceGetName(part))
            devices.append(
                {
                    "id": _text(nvml.nvmlDeviceGetUUID(part)),
                    "index": index,
                    "minor": minor,
                    "model": name,
                    "profile": name.rpartition("MIG ")[2] if parts else "",
                }
            )
    return devices


def _parts(nvml: Any, card: Any) -> Any:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(card)
    except nvml.NVMLError:
        return  # the card cannot be divided
    if current != nvml.NVML_DEVICE_MIG_ENABLE:
        return
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, number)
        except nvml.NVMLError:
            continue  # there is no part with this number


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def main() -> int:
    try:
        import pynvml as nvml
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    try:
        nvml.nvmlInit()
        sys.stdout.write(json.dumps(devices(nvml)))
    except nvml.NVMLError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
