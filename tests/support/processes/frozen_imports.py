"""Freezes what was imported. The fork server imports this module last, so that no fork collects
the garbage of the imports again, or copies their pages."""

from __future__ import annotations

import gc

gc.collect()
gc.freeze()
