"""Prints the NVIDIA devices of this machine as JSON, asked through NVML: `python nvml.py`.

The runner starts this file as a child with a time limit, since a call of NVML may hang in the
kernel. It needs ``nvidia-ml-py`` (the extra ``nvidia``) and nothing else. The exit status is 3 if
NVML does not answer; its last line on stderr says why.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def listed(nvml: Any) -> dict[str, list[Any]]:
    """``devices``: those that jobs can use, in the order of NVML, which is that of the PCI bus. A
    card that is divided (MIG) counts as its parts, each with a resource of its own. ``problems``:
    cards that no job can use, one sentence each."""
    devices: list[dict[str, Any]] = []
    problems: list[str] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            card = nvml.nvmlDeviceGetHandleByIndex(index)
            is_divided = _is_divided(nvml, card)
            if not is_divided:
                _check_memory(nvml, card)
            parts = list(_parts(nvml, card)) if is_divided else [card]
            minor = nvml.nvmlDeviceGetMinorNumber(card)
            devices += [_device(nvml, part, index, minor, is_divided) for part in parts]
        except nvml.NVMLError as error:
            problems.append(f"the NVIDIA card {index} cannot be used: {error}")
        else:
            if not parts:
                # CUDA cannot use the whole of such a card.
                problems.append(f"the NVIDIA card {index} is to be divided (MIG) and has no parts")
    return {"devices": devices, "problems": problems}


def _device(nvml: Any, part: Any, index: int, minor: int, is_divided: bool) -> dict[str, Any]:
    name = _text(nvml.nvmlDeviceGetName(part))
    return {
        "id": _text(nvml.nvmlDeviceGetUUID(part)),
        "index": index,
        "minor": minor,
        "model": name,
        "profile": name.rpartition("MIG ")[2] if is_divided else "",
    }


def _is_divided(nvml: Any, card: Any) -> bool:
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(card)
    except nvml.NVMLError as error:
        if _is_gone(nvml, error):
            raise
        return False  # the card cannot be divided
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _check_memory(nvml: Any, card: Any) -> None:
    """Raises NVMLError if the card is no longer on the bus: NVML knows most else by heart."""
    try:
        nvml.nvmlDeviceGetMemoryInfo(card)
    except nvml.NVMLError as error:
        if _is_gone(nvml, error):
            raise


def _is_gone(nvml: Any, error: Any) -> bool:
    return error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED)


def _parts(nvml: Any, card: Any) -> Any:
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, number)
        except nvml.NVMLError as error:
            if _is_gone(nvml, error):
                raise
            # There is no part with this number.


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
        sys.stdout.write(json.dumps(listed(nvml)))
    except nvml.NVMLError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
