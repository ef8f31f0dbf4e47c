"""What every reader of texts returns: strings with labels, and which classes belong together."""

from dataclasses import dataclass

from nscl.data.readers.raw import Labels


@dataclass(frozen=True, eq=False)
class TextPart:
    """Texts and their labels 0..K-1."""

    texts: tuple[str, ...]
    labels: Labels


@dataclass(frozen=True)
class ClassGroup:
    """Classes that belong together: a domain of CLINC150, a task that a file names."""

    name: str
    classes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class RawTexts:
    """Training and test texts; ``groups`` has every class once, or is empty."""

    train: TextPart
    test: TextPart
    class_names: tuple[str, ...]
    groups: tuple[ClassGroup, ...] = ()
