"""Decodes one object, bytes or plain values, to a typed manifest, and encodes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from admittance.api.checks import Foreign
from admittance.api.effects.walk import field_warnings
from admittance.api.fields.limits import FLAVOR_VARIANTS_DEFAULT
from admittance.api.fields.problems import (
    REQUIRED,
    TYPE,
    ManifestError,
    Problem,
)
from admittance.api.kinds import KINDS, Kind, unknown_kind
from admittance.api.manifests import STRUCTS, Manifest, with_defaults
from admittance.api.meta import ObjectMeta
from admittance.api.reading import canonical
from admittance.api.reading.conform import conform, resolve
from admittance.api.reading.priority import PriorityClasses, resolve_priority
from admittance.api.reading.upgrade import upgrade
from admittance.api.validation.validate import validate
from admittance.api.workload import QUEUE_LABEL, Workload

OBJECT_MAX: Final = 900_000
"""The most bytes of one object: a message has at most 1 MiB, and a fact has more than the object.
"""


class AcceptedManifest(NamedTuple):
    """A manifest as read. ``warnings``: sentences about fields without effect and old spellings."""

    manifest: Manifest
    warnings: tuple[str, ...]


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


_head: Final = msgspec.json.Decoder(_Head)


_any: Final = msgspec.json.Decoder()


_encoder: Final = msgspec.json.Encoder()


_decoders: Final[dict[tuple[str, str], msgspec.json.Decoder[Any]]] = {
    (KINDS[name].versions[0], name): msgspec.json.Decoder(struct)
    for name, struct in STRUCTS.items()
}


BROKEN: Final = (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError)


def encode(manifest: Manifest) -> bytes:
    """The manifest as compact JSON, which begins with apiVersion and kind."""
    if isinstance(manifest, Foreign):
        return _encoder.encode(manifest.object)
    # apiVersion and kind are written here: both have their default values, which the encoder omits.
    head = f'{{"apiVersion":"{manifest.api_version}","kind":"{manifest.kind}"'.encode()
    rest = canonical.encode(manifest)
    return head + b"}" if rest == b"{}" else head + b"," + rest[1:]


def name_of(manifest: Manifest) -> str:
    """Kind and name of a manifest, like ``ClusterQueue team-a`` or ``Workload team-a/train-7``."""
    metadata = manifest.metadata
    name = metadata.name or metadata.generate_name
    return f"{manifest.kind} {metadata.namespace + '/' if metadata.namespace else ''}{name}"


def decode_object(
    raw: bytes | msgspec.Raw | Mapping[str, Any],
    *,
    namespace: str = "",
    source: str = "",
    document: str = "",
) -> AcceptedManifest:
    """One typed object with its defaults, not validated. Raises ManifestError.

    ``namespace``: the default namespace.
    """
    if isinstance(raw, Mapping):
        value: Any = raw
    else:
        try:
            if len(bytes(raw)) > OBJECT_MAX:
                raise ManifestError(
                    [
                        Problem(
                            "",
                            f"the object has {len(bytes(raw)):,} bytes; "
                            f"an object may have {OBJECT_MAX:,}",
                        )
                    ],
                    source=source,
                    document=document,
                )
            head = _head.decode(raw)
            decoder = _decoders.get((head.api_version, head.kind))
            if decoder is not None:
                return AcceptedManifest(with_defaults(decoder.decode(raw), namespace), ())
        except ManifestError:
            raise
        except BROKEN:
            # msgspec reports only the first problem: the value is read again below, to find all.
            pass
        try:
            value = _any.decode(raw)
        except BROKEN as error:
            raise ManifestError(
                [Problem("", f"the object is not JSON: {error}")], source=source, document=document
            ) from error
    return ManifestReader(source, document).decode(value, namespace)


def accept(
    raw: bytes | msgspec.Raw | Mapping[str, Any],
    *,
    namespace: str = "",
    document: str = "",
    classes: PriorityClasses | None = None,
    default_class: bool = True,
    flavors_max: int = FLAVOR_VARIANTS_DEFAULT,
) -> AcceptedManifest:
    """One valid object with its defaults. Raises ManifestError.

    ``classes``: a workload gets the priority of its class before it is validated;
    ``default_class``: also of the class that applies by itself. ``flavors_max``: how many flavors a
    queue may have if each flavor becomes a variant."""
    accepted = decode_object(raw, namespace=namespace, document=document)
    if classes is not None and isinstance(accepted.manifest, Workload):
        resolved = resolve_priority(accepted.manifest, classes, defaulting=default_class)
        accepted = accepted._replace(manifest=resolved)
    problems = validate(accepted.manifest, flavors_max=flavors_max)
    if problems:
        value = raw if isinstance(raw, Mapping) else _any.decode(raw)
        raise ManifestError(
            _as_written(problems, value, accepted.manifest),
            document=document,
            about=name_of(accepted.manifest),
        )
    return accepted


def with_field_warnings(accepted: AcceptedManifest) -> AcceptedManifest:
    """The manifest as accepted, with a warning for each of its fields that has no effect, and for a
    queue of a foreign object."""
    manifest, warnings = accepted
    if isinstance(manifest, Foreign):
        if QUEUE_LABEL not in manifest.metadata.labels:
            return accepted
        label = f"metadata.labels[{QUEUE_LABEL}] has no effect: {manifest.not_run}"
        return AcceptedManifest(manifest, (*warnings, label))
    return AcceptedManifest(manifest, (*warnings, *field_warnings(manifest)))


def _as_written(problems: list[Problem], value: Any, manifest: Manifest) -> list[Problem]:
    """The problems, with each field spelled as in the manifest."""
    written = upgrade(dict(value), str(value["apiVersion"]), manifest.kind)
    return [written.as_written(problem) for problem in problems]


class ManifestReader:
    """Makes a Struct from the plain values of one object, and collects problems and warnings."""

    def __init__(self, source: str, document: str) -> None:
        self.source = source
        self.document = document
        self.about = ""

    def error(self, problems: list[Problem]) -> ManifestError:
        return ManifestError(problems, source=self.source, document=self.document, about=self.about)

    def decode(self, value: Any, namespace: str) -> AcceptedManifest:
        """The value as a manifest. Raises ManifestError with all problems of the value's fields."""
        try:
            return self._decode(value, namespace)
        except RecursionError:
            raise self.error([Problem("", "the manifest is nested too deeply")]) from None

    def _decode(self, value: Any, namespace: str) -> AcceptedManifest:
        api_version, kind = self._kind(value)
        if kind is None:
            return self._foreign(value, api_version)
        upgraded = upgrade(value, api_version, kind.name)
        problems = list(upgraded.problems)
        shaped: list[Problem] = []
        fitted = conform(upgraded.value, STRUCTS[kind.name], shaped)
        problems += [upgraded.as_written(problem) for problem in shaped]
        if problems:
            raise self.error(problems)
        manifest = self._whole(fitted, STRUCTS[kind.name])
        return AcceptedManifest(with_defaults(manifest, namespace), tuple(upgraded.warnings))

    def shaped(self, value: Any, struct: type[Any]) -> Any:
        """The value as a Struct. Raises ManifestError with all problems of the value's fields."""
        problems: list[Problem] = []
        try:
            fitted = conform(value, struct, problems)
        except RecursionError:
            raise self.error([Problem("", "the manifest is nested too deeply")]) from None
        if problems:
            raise self.error(problems)
        return self._whole(fitted, struct)

    def _whole(self, fitted: dict[str, Any], struct: type[Any]) -> Any:
        """The fitted value as a Struct that JSON can represent: without lone surrogates or infinite
        numbers."""
        try:
            _encoder.encode(fitted)
            return msgspec.convert(fitted, struct)
        except (*BROKEN, OverflowError, TypeError) as error:
            raise self.error([Problem("", f"the manifest cannot be stored: {error}")]) from error

    def validated(
        self, value: Any, namespace: str, *, flavors_max: int = FLAVOR_VARIANTS_DEFAULT
    ) -> AcceptedManifest:
        """The value as a valid manifest, with a warning for each field without effect. Raises
        ManifestError, with each field spelled as in the manifest.
        """
        accepted = self.decode(value, namespace)
        problems = validate(accepted.manifest, flavors_max=flavors_max)
        if problems:
            raise self.error(_as_written(problems, value, accepted.manifest))
        return with_field_warnings(accepted)

    def _kind(self, value: Any) -> tuple[str, Kind | None]:
        if not isinstance(value, dict):
            raise self.error(
                [Problem("", "a manifest must be a mapping with apiVersion and kind", TYPE)]
            )
        head = []
        for field in ("apiVersion", "kind"):
            given = value.get(field)
            if not isinstance(given, str) or not given:
                raise self.error([Problem(field, "must be set to a string", REQUIRED)])
            head.append(str(given))
        self.about = _about(head[1], value.get("metadata"))
        if error := unknown_kind(*head):
            known = head[1] in KINDS
            raise self.error([Problem("apiVersion" if known else "kind", error, TYPE)])
        kind = KINDS.get(head[1])
        return head[0], kind if kind is not None and head[0] in kind.versions else None

    def _foreign(self, value: dict[str, Any], api_version: str) -> AcceptedManifest:
        problems: list[Problem] = []
        given = value.get("metadata")
        names = {"name", "namespace", "labels", "annotations", "uid"}
        known = {k: v for k, v in given.items() if k in names} if isinstance(given, dict) else {}
        metadata = conform(known, ObjectMeta, problems, "metadata")
        if problems:
            raise self.error(problems)
        plain = self._whole(resolve(value), dict)
        # A foreign object keeps the namespace that it has or lacks: it is unknown whether its kind
        # needs a namespace.
        foreign = Foreign(
            api_version=api_version,
            kind=str(value["kind"]),
            metadata=msgspec.convert(metadata, ObjectMeta),
            object=plain,
        )
        return AcceptedManifest(foreign, ())


def _about(kind: str, metadata: Any) -> str:
    name = ""
    if isinstance(metadata, dict):
        named = metadata.get("name") or metadata.get("generateName")
        name = named[:80] if isinstance(named, str) else ""
    return f"{kind} {name}".rstrip()
