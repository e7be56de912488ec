"""DatasetFolder: files of any kind, one folder per class, loaded by a function of the user's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from alpha import errors
from alpha.datasets.composed import position_of
from alpha.datasets.vision import VisionDataset


class DatasetFolder(VisionDataset):
    """Files under ``root/CLASS/...``; a sample is what ``loader`` makes of one, and the number of its class.

    Args:
        root: the folder of the classes' folders, searched to any depth.
        loader: from a file's path to anything.
        extensions: the ends of names, such as (".npy",), of the files that count; upper and lower case are one.
        transform: from what ``loader`` gives to anything.
        target_transform: from a label to anything.
        is_valid_file: in place of ``extensions``: whether a path counts.
        allow_empty: whether a class may have no files.

    Attributes:
        classes: the names of the classes, sorted. class_to_idx: the label of each.
        samples: (path, label) of every file. targets: the labels alone.

    Raises:
        ArgumentError: both of extensions and is_valid_file, or neither.
        DataError: no such folder, no classes, a class without files.
    """

    def __init__(
        self,
        root: str | Path,
        loader: Callable[[str], Any],
        extensions: tuple[str, ...] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        if not callable(loader):
            raise errors.ArgumentError(f"[DatasetFolder] expected a loader to call, got {errors.described(loader)}")
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(root)
        self.samples = self.make_dataset(root, self.class_to_idx, extensions, is_valid_file, allow_empty)
        self.targets = [label for _, label in self.samples]

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """The names of the classes, the folders in a folder, sorted, and the label of each; a subclass may choose."""
        folder = Path(directory).expanduser()
        if not folder.is_dir():
            raise errors.DataError(
                f"[DatasetFolder] expected a folder of classes, got {directory}: give one that exists"
            )
        classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
        if not classes:
            raise errors.DataError(f"[DatasetFolder] expected a folder for each class in {directory}, got none")
        return classes, {name: label for label, name in enumerate(classes)}

    @staticmethod
    def make_dataset(
        directory: str | Path,
        class_to_idx: Mapping[str, int],
        extensions: Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """(path, label) of the files that count below the classes' folders: by class, folder and name."""
        if (extensions is None) == (is_valid_file is None):
            raise errors.ArgumentError(
                "[DatasetFolder] expected one of extensions and is_valid_file, got "
                f"{'neither' if extensions is None else 'both'}: the files that count are found by it"
            )
        endings = (extensions,) if isinstance(extensions, str) else tuple(extensions or ())
        lower = tuple(ending.lower() for ending in endings)
        counts = is_valid_file or (lambda path: path.lower().endswith(lower))
        found = []
        for name in sorted(class_to_idx):
            folders = os.walk(Path(directory).expanduser() / name, followlinks=True)
            paths = [os.path.join(folder, file) for folder, _, files in sorted(folders) for file in sorted(files)]
            chosen = [(path, class_to_idx[name]) for path in paths if counts(path)]
            if not chosen and not allow_empty:
                wanted = f" ({', '.join(lower)})" if lower else ""
                raise errors.DataError(
                    f"[DatasetFolder] expected files{wanted} in every class's folder, got none in "
                    f"{Path(directory) / name}: add some, or allow_empty=True"
                )
            found += chosen
        return found

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """What the loader makes of a file, and its label, each transformed."""
        path, label = self.samples[position_of("DatasetFolder", index, len(self))]
        sample = self.loader(path)
        return (sample, label) if self.transforms is None else self.transforms(sample, label)
