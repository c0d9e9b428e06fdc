"""Writes the dashboards."""

from tools.dashboards import FOLDER, files

FOLDER.mkdir(parents=True, exist_ok=True)
for name, text in files().items():
    (FOLDER / name).write_text(text)
