"""The changes of settings that a diagnosis recommends, as a unified diff of the configurations of the run.

A change is in the diff only if the changed file, read again, has the new value and nothing else differs. Of every other
change the file, the line and the reason are given instead.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from ppo_doctor.model.errors import DoctorError
from ppo_doctor.model.frozen import frozen
from ppo_doctor.model.opening import contents, is_url
from ppo_doctor.report.phrases import remedy_says, short
from ppo_doctor.trainers import configuration, detection
from ppo_doctor.trainers.config_edits import (
    Edited,
    NotEditableError,
    add_setting,
    passes_arguments,
    rename_key,
    replace_value,
)
from ppo_doctor.trainers.config_files import LARGEST, read_config, settings_in
from ppo_doctor.trainers.config_formats import SCRIPTS

if TYPE_CHECKING:
    from ppo_doctor.model.diagnosis import Diagnosis, RankedCause
    from ppo_doctor.model.rules import Remedy
    from ppo_doctor.model.run import Run, Setting
    from ppo_doctor.model.words import ConfigValue
    from ppo_doctor.trainers.configuration import Found
    from ppo_doctor.trainers.profiles import Profile

#: Configured and logged numbers that differ by at most this share are equal.
ALIKE = 0.01
#: Suffixes of files that a diff cannot change, or that contain more than settings.
UNCHANGEABLE = (".bin", ".zip", ".pt", ".pkl", ".md", ".markdown", ".ipynb")
#: Files and folders that a trainer writes and does not read again.
RECORDS = frozenset(
    {".hydra", "wandb", "params.json", "args.json", "hparams.yaml", "config.json", "training_args.json"}
)
_BOM = "\ufeff"


@frozen
class Change:
    """A setting to change; `reason` is why it is not in the diff, "" if it is.

    `old` and `new` are values, or keys if `cause` is "". `file` and `line` are "" and None where no file has the key.
    """

    key: str
    old: ConfigValue
    new: ConfigValue
    cause: str = ""
    file: str = ""
    line: int | None = None
    reason: str = ""

    @property
    def place(self) -> str:
        """Return the file with the line, as far as they are known."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def says(self) -> str:
        """Return the change in a sentence, with the reason if it is not in the diff."""
        old, new = _shown(self.old), _shown(self.new)
        what = f"{self.key}: {old} → {new}" if old else f"add {self.key}: {new}"
        what = what if self.cause else f"{old} → {new}"
        why = f" ({self.cause})" if self.cause else ""
        where = f"{self.place}: " if self.file else ""
        return f"{where}{what}{why}" + (f"; not in the patch: {self.reason}" if self.reason else "")


@frozen
class FileChange:
    """A file with its bytes before and after the changes."""

    path: str
    before: bytes
    after: bytes

    @property
    def diff(self) -> str:
        """Return the changes as a unified diff, with the path relative to the working directory if it is below it.

        The diff has fewer lines of context if one of three would show a secret, and is "" if one of one would.
        """
        name = _named(self.path)
        before, after = _lines(self.before.decode("utf-8")), _lines(self.after.decode("utf-8"))
        for context in (3, 2, 1):
            parts = list(unified_diff(before, after, _quoted(f"a/{name}"), _quoted(f"b/{name}"), n=context))
            if not any(configuration.holds_secret(part) for part in parts[2:]):
                return "".join(p if p.endswith("\n") else f"{p}\n\\ No newline at end of file\n" for p in parts)
        return ""


@frozen
class Patch:
    """The changes of one or more runs: the files that they change, all changes, and remarks."""

    files: tuple[FileChange, ...] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def diff(self) -> str:
        """Return the diff of all files, "" if none is changed."""
        return "".join(file.diff for file in self.files)


def propose(diagnosis: Diagnosis, run: Run) -> Patch:
    """Return the first remedy of every leading cause that is established or likely, as changes of the run's files.

    A suspicion changes nothing.
    """
    draft = _Draft(run)
    leading = [cause for cause in diagnosis.causes if cause.leader and not cause.benign]
    sure = [cause for cause in leading if cause.confidence != "suspected"]
    for cause in sure:
        if cause.remedies:
            draft.follow(cause, cause.remedies[0])
    if not sure:
        why = "; ".join(f"{cause.id} is only suspected, and changes nothing" for cause in leading)
        draft.notes.append(why or "no cause asks for a change")
    return draft.patch()


def propose_spelling(run: Run, words: Iterable[tuple[Setting, str]] = ()) -> Patch:
    """Return the corrected spelling of misspelt keys, and of misspelt `words` (values of settings)."""
    draft = _Draft(run)
    for meant, setting in run.misspelt.items():
        draft.rename(setting, meant)
    for setting, word in words:
        draft.set_word(setting, word)
    draft.remark_on_unknown_names()
    return draft.patch()


def combined(patches: Iterable[Patch]) -> Patch:
    """Return the patches of several runs as one; of different changes of one file, also by links, the first is used."""
    files: dict[str, FileChange] = {}
    changes: dict[Change, None] = {}
    notes: dict[str, None] = {}
    for patch in patches:
        for file in patch.files:
            if files.setdefault(os.path.realpath(file.path), file).after != file.after:
                notes[f"{file.path}: several runs ask for different changes; those of the first are used"] = None
        changes |= dict.fromkeys(patch.changes)
        notes |= dict.fromkeys(patch.notes)
    return Patch(files=tuple(files.values()), changes=tuple(changes), notes=tuple(notes))


@frozen
class _File:
    """A configuration whose text is being changed."""

    before: bytes
    text: str
    bom: str = ""

    def with_text(self, text: str) -> _File:
        return _File(before=self.before, text=text, bom=self.bom)


class _Draft:
    """The changes of one run, file by file."""

    def __init__(self, run: Run) -> None:
        self.run = run
        keys = {series.raw for series in run.series.values()} | set(run.unknown_keys)
        self.profile: Profile = detection.profile(run.framework).resolved(keys)
        self.files: dict[str, _File] = {}
        self.changes: list[Change] = []
        self.notes: list[str] = []
        self.done: dict[str, ConfigValue] = {}

    def patch(self) -> Patch:
        """Return what was changed, with remarks on the changed files."""
        changed = [
            FileChange(path=path, before=file.before, after=(file.bom + file.text).encode("utf-8"))
            for path, file in self.files.items()
        ]
        files = tuple(file for file in changed if file.after != file.before)
        notes = [*self.notes, *(note for file in files for note in self._remarks(file))]
        return Patch(files=files, changes=tuple(self.changes), notes=tuple(dict.fromkeys(notes)))

    def _remarks(self, file: FileChange) -> list[str]:
        path = file.path
        notes = []
        if not file.diff:
            notes.append(f"{path}: no diff is shown, because a secret stands near the changed line; --apply changes it")
        if not _is_below(path):
            notes.append(f"{path} is outside the working directory: apply the patch in {Path(path).parent}")
        if RECORDS & set(Path(path).parts[-4:]):
            notes.append(f"{path}: if the trainer wrote this file, make the same change in what starts the run")
        line = passes_arguments(Path(path).suffix.lower(), self.files[path].text)
        if line is not None:
            notes.append(f"{path}:{line} passes arguments on: one that sets the same key overrules the change")
        return notes

    def follow(self, cause: RankedCause, remedy: Remedy) -> None:
        """Add what a remedy asks for, in every file of the run that gives the setting."""
        name, new = remedy.setting, remedy.then
        if name is None or new is None or remedy.key is None:
            self.notes.append(f"{cause.id}: {remedy_says(remedy)}")
            return
        setting = self.run.config.get(name)
        given = setting if setting is not None and setting.how != "default" else None
        change = Change(key=given.key if given else remedy.key, old=remedy.now, new=new, cause=cause.id)
        if name in self.done:
            if self.done[name] != new:
                self._refuse(change, given, f"another cause asks for {_shown(self.done[name])}")
            return
        self.done[name] = new
        if given is None:
            self._add(name, change)
            return
        if reason := _contradiction(given, remedy) or self._not_a_file(given):
            self._refuse(change, given, reason)
            return
        self._replace(name, given, change)
        for found in self._others(given.source.path):
            self._replace_too(name, given, found, change)

    def _replace(self, name: str, setting: Setting, change: Change) -> None:
        key, new = setting.key, change.new

        def has_it(before: Found, after: Found) -> bool:
            known = self._canonical(before).get(name)
            if known is not None and known.key == key:
                return self._canonical(after)[name].value == new
            return key in after.values and after.values[key] == new

        path = setting.source.path
        self._edit(path, change, lambda end, text: replace_value(end, text, key, new), has_it)
        overrides = Path(path).with_name("overrides.yaml")
        if Path(path).parent.name == ".hydra" and overrides.is_file():
            given = self._found(str(overrides))
            if given and key in given.values:
                self.notes.append(f"{given.place(key)}: the command line set {key}; set {key}={_shown(new)} there")
        parent, _, tail = key.rpartition(".")
        found = self._found(path) if parent else None
        alike = [other for other in found.values if other != key and other.endswith(f".{tail}")] if found else []
        if found and (same := [other for other in alike if other.count(".") == key.count(".")]):
            self.notes.append(
                f"{found.place(same[0])}: {same[0]} is a setting of another section, and was left as it is"
            )

    def _replace_too(self, name: str, setting: Setting, found: Found, change: Change) -> None:
        """Change a setting in a further file if it has the same value there; otherwise remark on it."""
        other = self._canonical(found).get(name)
        if other is None or other.how == "default":
            return
        if other.value == setting.value:
            also = Change(key=other.key, old=other.value, new=change.new, cause=change.cause)
            self._replace(name, other, also)
        else:
            self.notes.append(f"{other.source}: {other.key} is {_shown(other.value)} there, and was left as it is")

    def _others(self, path: str) -> list[Found]:
        """Return the other configurations of the run that can be read."""
        others = [other for other in self.run.configs if other != path and Path(other).suffix not in UNCHANGEABLE]
        return [found for other in others if (found := self._found(other)) is not None]

    def _found(self, path: str) -> Found | None:
        try:
            return read_config(Path(path))
        except DoctorError as error:
            self.notes.append(error.message)
            return None

    def _add(self, name: str, change: Change) -> None:
        """Add a setting that stands at its default to the only configuration of the run."""
        if self.run.framework == detection.CANONICAL:
            self.changes.append(replace(change, reason="whether the script has such a setting is not known"))
            return
        files = [path for path in self.run.configs if Path(path).suffix not in UNCHANGEABLE]
        found = self._found(files[0]) if len(files) == 1 else None
        if found is None:
            several = ", ".join(files)
            reason = f"the run has several configurations: {several}" if files else "no configuration of it was found"
            self.changes.append(replace(change, reason=reason))
            return
        parent, _, tail = change.key.rpartition(".")
        beside = self._beside(found, parent)
        tails = {other.rpartition(".")[2] for other in beside}
        parts = (other.rpartition(".") for other in found.values)
        sections = {above for above, _, end in parts if end in tails and f".{above}".endswith(f".{parent}".rstrip("."))}
        if Path(files[0]).suffix in SCRIPTS:
            sections &= {parent}  # a call of something else, such as an optimizer, takes no settings of the trainer
        if len(sections) != 1:
            reason = (
                "the file has several sections that it could belong to"
                if sections
                else "no setting of its section is in the file"
            )
            self._refuse(change, None, reason, files[0])
            return
        key = ".".join(filter(None, (sections.pop(), tail)))

        def has_it(_: Found, after: Found) -> bool:
            return self._canonical(after)[name].value == change.new

        added = replace(change, key=key)
        self._edit(files[0], added, lambda end, text: add_setting(end, text, key, change.new, beside), has_it)

    def _beside(self, found: Found, parent: str) -> list[str]:
        """Return the keys of the settings that belong to the same section as a native name."""
        keys = []
        for name, setting in self._canonical(found).items():
            native = [key.rpartition(".") for key in self.profile.config.get(name, ())]
            tail = setting.key.rpartition(".")[2]
            if setting.how != "default" and any(end == tail and above == parent for above, _, end in native):
                keys.append(setting.key)
        return keys

    def remark_on_unknown_names(self) -> None:
        """Remark on configurations whose spelling was not checked, because the trainer is not known."""
        if self.profile.name != detection.CANONICAL:
            return
        for path in self.run.configs:
            found = self._found(path)
            if found is not None and configuration.spelled_as(found) is None:
                self.notes.append(f"{path}: the trainer is not known, so spelling is not checked: add --framework NAME")

    def rename(self, setting: Setting, meant: str) -> None:
        """Add the correction of a misspelt key."""
        change = Change(key=setting.key, old=setting.key, new=meant)
        if reason := self._not_a_file(setting):
            self._refuse(change, setting, reason)
            return

        def is_clear(_: Found, after: Found) -> bool:
            return setting.key not in after.values and meant in after.values

        self._edit(setting.source.path, change, lambda end, text: rename_key(end, text, setting.key, meant), is_clear)

    def set_word(self, setting: Setting, word: str) -> None:
        """Add the correction of a misspelt word."""
        change = Change(key=setting.key, old=setting.value, new=word)
        if reason := self._not_a_file(setting):
            self._refuse(change, setting, reason)
            return
        key = setting.key

        def has_it(_: Found, after: Found) -> bool:
            return after.values.get(key) == word

        self._edit(setting.source.path, change, lambda end, text: replace_value(end, text, key, word), has_it)

    def _edit(
        self,
        path: str,
        change: Change,
        edit: Callable[[str, str], Edited],
        is_made: Callable[[Found, Found], bool],
    ) -> None:
        """Edit a file's text, read it again, and keep the text if the change is made in it."""
        try:
            file = self.files.get(path) or _opened(path)
            edited = edit(Path(path).suffix.lower(), file.text)
        except NotEditableError as error:
            self.changes.append(replace(change, file=path, line=error.line, reason=str(error)))
            return
        made = is_made(*(settings_in(Path(path), text) for text in (file.text, edited.text)))
        if made:
            self.files[path] = file.with_text(edited.text)
        reason = "" if made else "the changed file would not have the new value"
        self.changes.append(replace(change, file=path, line=edited.line, reason=reason))

    def _canonical(self, found: Found) -> Mapping[str, Setting]:
        return configuration.canonical_settings(self.profile, [found])

    def _not_a_file(self, setting: Setting) -> str:
        """Return why the place of a setting cannot be changed, "" if it is a text file of settings."""
        path = setting.source.path
        if path == "--set":
            return "it was given by --set"
        if path not in self.run.configs:
            return "it was read from the log; change it in what starts the run"
        return "the file is no text of settings" if Path(path).suffix in UNCHANGEABLE else ""

    def _refuse(self, change: Change, setting: Setting | None, reason: str, file: str = "") -> None:
        source = setting.source if setting is not None else None
        file, line = (source.path, source.line) if source is not None else (file, None)
        self.changes.append(replace(change, file=file, line=line, reason=reason))


def _opened(path: str) -> _File:
    if is_url(path):
        raise NotEditableError("it is behind a URL, where nothing is written")
    try:
        data = contents(Path(path), LARGEST)
        text = data.decode("utf-8")
    except (OSError, DoctorError, UnicodeDecodeError) as error:
        raise NotEditableError(f"it cannot be read: {error}") from error
    bom = _BOM if text.startswith(_BOM) else ""
    return _File(before=data, text=text.removeprefix(_BOM), bom=bom)


def _contradiction(setting: Setting, remedy: Remedy) -> str:
    """Return how the configured value contradicts the one that the remedy starts from, "" if it does not."""
    value, now, new = setting.value, remedy.now, remedy.then
    if isinstance(value, str) and not isinstance(new, str):
        return f"the value there is no number: {_shown(value)}"
    if not (isinstance(value, int | float) and isinstance(now, int | float)) or math.isclose(value, now, rel_tol=ALIKE):
        return ""
    if isinstance(new, int | float) and math.isclose(value, new, rel_tol=ALIKE):
        return f"it is {_shown(value)} there already, but {_shown(now)} in the log: find out what changes it"
    return f"it is {_shown(value)} there, but {_shown(now)} in the log: find out which is in force"


def _shown(value: ConfigValue) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return short(value)
    return "" if value is None else str(value)


def _is_below(path: str) -> bool:
    return not os.path.relpath(os.path.realpath(path)).startswith("..")


def _named(path: str) -> str:
    """Return the name of a file in a diff: relative to the working directory, or alone for a file outside it."""
    real = os.path.realpath(path)
    return Path(os.path.relpath(real)).as_posix() if _is_below(path) else Path(real).name


def _quoted(name: str) -> str:
    """Return a name as git writes it in a diff: quoted if it has special characters, with a tab if it has spaces."""
    if re.search(r'[\x00-\x1f"\\\x7f]', name):
        octal = re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\{ord(match[0]):03o}", re.sub(r'(["\\])', r"\\\1", name))
        return f'"{octal}"'
    return name + "\t" * (" " in name)


def _lines(text: str) -> Sequence[str]:
    """Return the lines of a text with their ends; only a line feed ends one, as in a diff."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
