"""Settings from ``ADMIT_KUBE_*`` variables, and the cluster and user that these settings select.

This module checks the kubeconfig before lightkube reads it, so that each error is one sentence that
names the file."""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from admittance.runtime.errors import SetupError
from admittance.runtime.process.settings import number, object_names

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig


CLASSES: Final = (
    "check-capacity.autoscaling.x-k8s.io",
    "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
)
ANY: Final = "*"
SECONDS_MIN: Final = 0.05
_LABEL = re.compile(r"\A[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_NAMESPACE = re.compile(r"\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class KubeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the Kubernetes provider. ``namespaces``: the cluster's namespace for each
    namespace of Admittance; ``*`` stands for all namespaces that are not listed, which otherwise
    have the same name in the cluster. ``kubeconfig``: the path of the kubeconfig; None: the pod's
    service account is used, else KUBECONFIG, else ``~/.kube/config``. ``installation``: the value
    of the label that distinguishes several installations in one cluster; None: the installation's
    name in the bucket of providers. ``away_seconds``: when the API server has not answered for this
    long, the provider's classes become inactive. ``sweep_seconds``: time between two searches for
    orphans.
    """

    classes: tuple[str, ...] = CLASSES
    namespaces: Mapping[str, str] = {}
    kubeconfig: str | None = None
    context: str | None = None
    installation: str | None = None
    away_seconds: float = 10.0
    sweep_seconds: float = 60.0

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> KubeSettings:
        """Reads the settings from environment variables. Raises a SetupError that names a wrong
        variable."""
        installation = env.get("ADMIT_KUBE_INSTALLATION") or None
        if installation is not None and not _LABEL.match(installation):
            raise SetupError(f"ADMIT_KUBE_INSTALLATION={installation!r} is not a valid label value")
        return cls(
            classes=object_names(env, "ADMIT_KUBE_CLASSES") or CLASSES,
            namespaces=_namespaces(env.get("ADMIT_KUBE_NAMESPACES", "")),
            kubeconfig=env.get("ADMIT_KUBE_CONFIG") or None,
            context=env.get("ADMIT_KUBE_CONTEXT") or None,
            installation=installation,
            away_seconds=number(env, "ADMIT_KUBE_AWAY_SECONDS", 10.0, least=SECONDS_MIN),
            sweep_seconds=number(env, "ADMIT_KUBE_SWEEP_SECONDS", 60.0, least=SECONDS_MIN),
        )

    def namespace(self, ours: str) -> str:
        """The cluster's namespace for a namespace of Admittance."""
        return self.namespaces.get(ours) or self.namespaces.get(ANY) or ours

    @property
    def only_namespace(self) -> str | None:
        """The cluster's namespace if the settings use only one, so that a Role in this namespace is
        enough; None if the settings use several namespaces.
        """
        return self.namespaces[ANY] if set(self.namespaces) == {ANY} else None


def _namespaces(written: str) -> dict[str, str]:
    namespaces: dict[str, str] = {}
    for pair in filter(None, map(str.strip, written.split(","))):
        ours, equals, theirs = map(str.strip, pair.partition("="))
        if not (equals and ours and _NAMESPACE.match(theirs)):
            raise SetupError(f"ADMIT_KUBE_NAMESPACES: {pair!r} is not OURS=THEIRS or *=THEIRS")
        if ours in namespaces:
            raise SetupError(f"ADMIT_KUBE_NAMESPACES: duplicate namespace {ours!r}")
        namespaces[ours] = theirs
    return namespaces


DEFAULT: Final = "~/.kube/config"


class BadKubeconfig(ValueError):
    """The kubeconfig cannot be used; the message says why."""


def login(settings: KubeSettings) -> SingleConfig:
    """The cluster and user that the settings select. Raises SetupError if the cluster or the user
    cannot be used.
    """
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.core.exceptions import ConfigError

    if not settings.kubeconfig:
        try:
            account = KubeConfig.from_service_account()
        except ConfigError:
            # A ConfigError means that this process does not run in a pod, so it has no service
            # account.
            pass
        except (LookupError, OSError) as error:
            raise SetupError(
                f"the pod's service account cannot be used: {error_sentence(error)}"
            ) from None
        else:
            if settings.context:
                raise SetupError("ADMIT_KUBE_CONTEXT: a pod's service account has no contexts")
            return _single(account)
    name = settings.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT
    try:
        path = Path(name).expanduser()
        return _single(KubeConfig.from_dict(context_of(_read(path), settings.context), fname=path))
    except (OSError, RuntimeError, ValueError) as error:
        raise bad_kubeconfig(name, error) from None


def _single(config: KubeConfig) -> SingleConfig:
    selected = config.get()
    assert selected is not None, "the kubeconfig has one context, the current one"
    return selected


def bad_kubeconfig(name: object, error: Exception) -> SetupError:
    """The error for a kubeconfig that cannot be used."""
    return SetupError(f"the kubeconfig {name} cannot be used: {error_sentence(error)}")


def _read(path: Path) -> Any:
    if not path.is_file():
        raise BadKubeconfig("the file does not exist (set ADMIT_KUBE_CONFIG to name another one)")
    try:
        return yaml.safe_load(path.read_text())
    except UnicodeDecodeError:
        raise BadKubeconfig("the file is not a text file") from None
    except RecursionError:
        raise BadKubeconfig("the file is nested too deep") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        why = getattr(error, "problem", None) or " ".join(str(error).split())
        raise BadKubeconfig(f"the file is not valid YAML{where}: {why}") from None


def context_of(document: Any, context: str | None) -> dict[str, Any]:
    """The part of a kubeconfig that belongs to the context ``context`` (None: to the current
    context). Raises BadKubeconfig if this part is missing or not valid.
    """
    if not isinstance(document, dict):
        raise BadKubeconfig(
            "the file is not a kubeconfig: it is empty, or its top level is not a mapping"
        )
    name = context or document.get("current-context")
    if not isinstance(name, str) or not name:
        raise BadKubeconfig("the file has no current context: set ADMIT_KUBE_CONTEXT")
    about = _entry(document, "context", name)
    for kind in ("cluster", "user"):
        if not isinstance(about.get(kind), str):
            raise BadKubeconfig(f"the context {name!r} names no {kind}")
    cluster = _entry(document, "cluster", about["cluster"])
    if not cluster.get("server"):
        raise BadKubeconfig(f"the cluster {about['cluster']!r} has no server")
    user = _entry(document, "user", about["user"])
    for key, value in [*cluster.items(), *user.items()]:
        if str(key).endswith("-data") and not _is_base64(value):
            raise BadKubeconfig(f"the value of {key} is not valid base64")
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": about}],
        "clusters": [{"name": about["cluster"], "cluster": cluster}],
        "users": [{"name": about["user"], "user": user}],
    }


def _is_base64(value: object) -> bool:
    try:
        base64.b64decode(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def _entry(document: dict[str, Any], kind: str, name: object) -> dict[str, Any]:
    entries = document.get(f"{kind}s")
    known = (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    for namespace in known:
        if namespace.get("name") == name:
            content = namespace.get(kind) or {}
            if not isinstance(content, dict):
                raise BadKubeconfig(f"the {kind} {name!r} is not a mapping")
            return content
    names = ", ".join(str(entry.get("name")) for entry in known)
    raise BadKubeconfig(
        f"the file has no {kind} {name!r}, only {names}" if names else f"the file has no {kind}s"
    )


def error_sentence(error: Exception) -> str:
    """An error in reading a kubeconfig as a sentence, with a remedy if one is known."""
    if isinstance(error, FileNotFoundError) and not error.filename:
        # Python's ssl module does not say which file is missing, so the error text cannot name the
        # file.
        return "a certificate file is missing; `kubectl config view --flatten` writes it in"
    if isinstance(error, ssl.SSLError):
        return f"the certificates cannot be read: {error}"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is not set"
    return str(error) or type(error).__name__
