# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a service, read from environment variables.

:func:`load_settings` reports every fault at once, those between settings included. What only the
machine can tell (ports, directories, programs) is in :mod:`pathways_slurm.preflight`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pathways_slurm.config_checks import check_between, misspelled
from pathways_slurm.faults import Fault, SettingsError
from pathways_slurm.paths import ServicePaths
from pathways_slurm.settings_budgets import BudgetSettings
from pathways_slurm.settings_container import ContainerSettings
from pathways_slurm.settings_service import ServiceSettings
from pathways_slurm.settings_slurm import SlurmSettings
from pathways_slurm.topology import Topology, topology_for

__all__ = [
    "Fault",
    "SettingRow",
    "Settings",
    "SettingsError",
    "in_order",
    "load_settings",
    "read_settings",
    "setting_fault",
    "settings_table",
    "settings_warnings",
]


class Settings(SlurmSettings, ContainerSettings, BudgetSettings, ServiceSettings):
    """All settings of one service. Make one with :func:`load_settings`."""

    # pydantic takes the fields of the last base first, which is the order of the table.
    model_config = ConfigDict(frozen=True, validate_default=True, extra="forbid")

    @property
    def topology(self) -> Topology:
        """Of each slice."""
        return topology_for(self.tpu_type, self.slice_shape, self.chips_per_host)

    @property
    def container(self) -> Literal["enroot", "none"]:
        """What the runtime runs in."""
        if self.container_choice is not None:
            return self.container_choice
        return "enroot" if self.runtime == "pathways" else "none"

    @property
    def tick_s(self) -> float:
        """Longest time between two looks at the service, in seconds."""
        if self.tick_override_s is not None:
            return self.tick_override_s
        return 0.5 if self.scheduler == "local" else 5.0

    @property
    def scratch_location(self) -> str:
        """Of temporary files: ``gs://BUCKET/...`` or an absolute directory."""
        return f"{self.gcs_bucket.rstrip('/')}/pathways-scratch/shared"

    @property
    def scratch_dir(self) -> Path | None:
        """The same as a directory; None for a bucket."""
        return Path(self.scratch_location) if self.gcs_bucket.startswith("/") else None

    @property
    def paths(self) -> ServicePaths:
        """Where this service keeps its files."""
        return ServicePaths.of(self.home, self.name)


def load_settings(environ: Mapping[str, str]) -> Settings:
    """Reads the settings. A variable that is empty counts as not set.

    Raises:
        SettingsError: With all faults. A check between settings is left out only if one of the
            settings it looks at is at fault itself.
    """
    settings, faults = read_settings(environ)
    if faults:
        raise SettingsError(faults)
    return settings


def read_settings(environ: Mapping[str, str]) -> tuple[Settings, list[Fault]]:
    """As :func:`load_settings`, for whoever has more to check before the faults are shown.

    Returns:
        The faults in the order of the table of settings; and the settings, in which those at fault
        have their default or another valid value, so that the others can still be looked at.
    """
    fields = Settings.model_fields
    variables = {_variable(field): field for field in fields.values()}
    seen = {name: environ[name] for name in variables if environ.get(name)}
    context = {"HOME": environ.get("HOME", "")}
    faults: list[Fault] = []
    try:
        settings = Settings.model_validate(seen, context=context)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            # The place of a fault is the variable, or the field's name if it is in a default.
            place = str(details["loc"][0])
            field = variables[place] if place in variables else fields[place]
            value = seen.get(place) if place in variables else str(field.default)
            faults.append(_fault(field, value, _problem(details, environ)))
        at_fault = {fault.variable for fault in faults}
        usable = {name: value for name, value in seen.items() if name not in at_fault}
        stand_ins = {
            name: _extra(variables[name])["stand_in"]
            for name in at_fault
            if variables[name].is_required()
        }
        if "PATHWAYS_HOME" in at_fault:
            context["HOME"] = "/"  # what may be wrong with its default
        settings = Settings.model_validate(usable | stand_ins, context=context)
    at_fault = {fault.variable for fault in faults}
    for variable, problem, valid in check_between(settings, at_fault):
        faults.append(_fault(variables[variable], seen.get(variable), problem, valid))
    return settings, in_order(faults)


def in_order(faults: Iterable[Fault]) -> list[Fault]:
    """The faults in the order of the table of settings."""
    order = [row.variable for row in settings_table()]
    return sorted(faults, key=lambda fault: order.index(fault.variable))


def settings_warnings(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that look like misspelled settings, a sentence each. They are not an error."""
    names = [row.variable for row in settings_table()]
    return tuple(
        f"{found} is no setting and has no effect; did you mean {meant}?"
        for found, meant in misspelled(environ, names).items()
    )


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A line of the table of settings; ``default`` is None for a setting that must be set."""

    variable: str
    meaning: str
    valid: str
    default: str | None


def settings_table() -> list[SettingRow]:
    """All settings, for documents and help texts."""
    return [
        SettingRow(
            variable=_variable(field),
            meaning=field.description or "",
            valid=_extra(field)["valid"],
            default=_extra(field)["default_text"],
        )
        for field in Settings.model_fields.values()
    ]


def setting_fault(variable: str, value: str | None, problem: str) -> Fault:
    """A fault of the setting read from ``variable``, with its valid values and default."""
    for field in Settings.model_fields.values():
        if _variable(field) == variable:
            return _fault(field, value, problem)
    raise KeyError(variable)


def _variable(field: FieldInfo) -> str:
    assert field.alias is not None  # setting() always gives one
    return field.alias


def _extra(field: FieldInfo) -> dict[str, Any]:
    assert isinstance(field.json_schema_extra, dict)  # setting() always gives one
    return field.json_schema_extra


def _fault(field: FieldInfo, value: str | None, problem: str, valid: str | None = None) -> Fault:
    extra = _extra(field)
    return Fault(_variable(field), value, problem, valid or extra["valid"], extra["default_text"])


def _problem(details: ErrorDetails, environ: Mapping[str, str]) -> str:
    """Our words for pydantic's."""
    match details["type"]:
        case "missing":
            variable = str(details["loc"][0])
            found = [name for name, meant in misspelled(environ, [variable]).items()]
            return "is not set" + (f" (but {found[0]} is: a misspelling?)" if found else "")
        case "int_parsing" | "int_from_float" | "int_parsing_size":
            return "is not a whole number"
        case "float_parsing" | "finite_number":
            return "is not a number of seconds"
        case "greater_than_equal":
            return "is too small"
        case "less_than_equal":
            return "is too large"
        case "literal_error" | "enum":
            return "is not one of the valid values"
        case "value_error":
            return str(details["ctx"]["error"])
        case "ip_v4_network":
            return "is not a network address with its prefix length"
        case _:
            return f"is not valid ({details['msg']})"
