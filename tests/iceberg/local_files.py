"""The files of any cloud, in a folder: a server reads and writes metadata there, and no cloud is needed."""

from __future__ import annotations

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

__all__ = ["ROOT", "LocalFiles"]

ROOT = "local-files.root"
"""The property that names the folder."""


class LocalFiles(FileIO):
    """Files of ``scheme://place/path`` below the folder."""

    def new_input(self, location: str) -> InputFile:
        return PyArrowFileIO().new_input(self._there(location))

    def new_output(self, location: str) -> OutputFile:
        return PyArrowFileIO().new_output(self._there(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        PyArrowFileIO().delete(self._there(location if isinstance(location, str) else location.location))

    def _there(self, location: str) -> str:
        return (
            location
            if location.startswith("file:")
            else f"file://{self.properties[ROOT]}/{location.partition('://')[2]}"
        )
