# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What MaxText is told, so that it trains on a service's slices, survives them, and resumes. Pure.

MaxText takes a configuration file, which may be left out, and then KEY=VALUE words. It reads keys
from M_KEY variables too, and ends if a key comes both ways. Whatever the user gives stays as it is:
only what is left open is derived here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MODULE = "maxtext.trainers.pre_train.train"
# The same, with somebody who answers MaxText when it asks whether it has to end.
_AUTOCHECKPOINT_MODULE = "pathways_elastic.maxtext"

ENABLE_AUTOCHECKPOINT = "ENABLE_AUTOCHECKPOINT"
_TRUE, _FALSE = ("true", "1"), ("false", "0", "")

RUN_NAME = "run_name"
OUTPUT = "base_output_directory"
# Under these MaxText keeps a run's checkpoints, and takes the last committed one up again.
PLACE = (RUN_NAME, OUTPUT)

# An hour is longer than a cluster takes to boot nodes anew. Then MaxText fails, and `run` starts it
# once more: when the service itself is there.
ELASTIC_TIMEOUT_S = 3600
# MaxText counts a slice's loss and its return as one each, over the whole run. A slice may go fifty
# times: whether it is worth having back is the service's to say, which has a budget for each cause.
ELASTIC_RETRIES_PER_SLICE = 100

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*=.*", re.DOTALL)
_CONFIG_SUFFIXES = (".yml", ".yaml")
_BUCKET = "gs://"


@dataclass(frozen=True, slots=True)
class Words:
    """What the user gives MaxText.

    Attributes:
        config: Path of a configuration file; None for MaxText's own.
        keys: Key → value, in the user's order.
    """

    config: str | None
    keys: Mapping[str, str]

    def argv(self) -> tuple[str, ...]:
        """As MaxText takes them."""
        config = () if self.config is None else (self.config,)
        return (*config, *(f"{key}={value}" for key, value in self.keys.items()))

    def with_defaults(self, defaults: Mapping[str, str], environ: Mapping[str, str]) -> "Words":
        """With those of ``defaults`` that neither the words nor ``environ`` say anything about."""
        left_open = {
            key: value
            for key, value in defaults.items()
            if key not in self.keys and variable(key) not in environ
        }
        return Words(self.config, {**left_open, **self.keys})

    def value(self, key: str, environ: Mapping[str, str]) -> str | None:
        """What the user says of a key; None if nothing."""
        return self.keys.get(key, environ.get(variable(key)))


def variable(key: str) -> str:
    """The environment variable in which MaxText looks for a key."""
    return f"M_{key.upper()}"


def parse(words: Sequence[str]) -> tuple[Words, list[str]]:
    """Reads the words, and says everything that is wrong with them."""
    faults: list[str] = []
    config, keys = None, dict[str, str]()
    for place, word in enumerate(words):
        if _WORD.fullmatch(word):
            key, _, value = word.partition("=")
            keys[key] = value
        elif word.endswith(_CONFIG_SUFFIXES) and place == 0:
            config = word
        elif word.endswith(_CONFIG_SUFFIXES):
            faults.append(f"{word!r}: a configuration file comes first, before every KEY=VALUE")
        else:
            faults.append(
                f"{word!r} is neither KEY=VALUE (steps=100) nor a configuration file (.yml)"
            )
    return Words(config, keys), faults


def place(job: str | None, directory: Path, moment: str) -> dict[str, str]:
    """Where a run keeps its checkpoints, the same whenever its Slurm job runs again.

    Args:
        job: The Slurm job or array task, None outside of Slurm.
        directory: Of the service; on a cluster every node sees it.
        moment: Names a run outside of Slurm.
    """
    return {
        RUN_NAME: f"maxtext-{job or moment}",
        OUTPUT: str(directory / "maxtext"),
    }


def own_place(config_text: str) -> frozenset[str]:
    """Those of ``PLACE`` that a configuration file sets itself."""
    found = re.findall(
        rf"^({'|'.join(PLACE)}):[ \t]*(?!(?:\"\"|'')?[ \t]*(?:#|$))\S", config_text, re.MULTILINE
    )
    return frozenset(found)


def autocheckpoint(environ: Mapping[str, str]) -> bool:
    """Whether MaxText is to save the step at which it, or a slice, is told to go.

    Raises:
        ValueError: The variable is neither true nor false.
    """
    text = environ.get(ENABLE_AUTOCHECKPOINT, "")
    if (word := text.strip().lower()) not in _TRUE + _FALSE:
        raise ValueError(f"{ENABLE_AUTOCHECKPOINT} is {text!r}; valid: true or false")
    return word in _TRUE


def module(environ: Mapping[str, str]) -> str:
    """What Python is to run."""
    return _AUTOCHECKPOINT_MODULE if autocheckpoint(environ) else MODULE


def of_service(words: Words, environ: Mapping[str, str]) -> dict[str, str]:
    """The keys that follow from a service.

    Args:
        words: Of the user.
        environ: With the variables of cluster.env.
    """
    keys = {
        "hardware": "tpu",
        # One process drives all slices, through the proxy, and there is no other to agree with.
        "enable_single_controller": "true",
        "skip_jax_distributed_system": "true",
        "elastic_enabled": "true",
    }
    if words.value("elastic_enabled", environ) in (None, "true", "True"):
        retries = ELASTIC_RETRIES_PER_SLICE * int(environ["PATHWAYS_MAX_SLICES"])
        keys |= {
            "elastic_min_slice_count": environ["PATHWAYS_MIN_SLICES"],
            "elastic_timeout_seconds": str(ELASTIC_TIMEOUT_S),
            "elastic_max_retries": str(retries),
        }
    if autocheckpoint(environ):
        keys["enable_autocheckpoint"] = "true"
    return keys


def variables(words: Words, environ: Mapping[str, str]) -> dict[str, str]:
    """What MaxText's environment lacks. Without a bucket it does without Google's libraries."""
    if "DECOUPLE_GCLOUD" in environ or _has_bucket(words, environ):
        return {}
    return {"DECOUPLE_GCLOUD": "TRUE"}


def needs_cloud_storage(words: Words, environ: Mapping[str, str]) -> bool:
    """Whether MaxText will ask for google-cloud-storage, when a slice goes at the latest."""
    return _has_bucket(words, environ) and environ.get("DECOUPLE_GCLOUD", "").upper() != "TRUE"


def _has_bucket(words: Words, environ: Mapping[str, str]) -> bool:
    return (words.value(OUTPUT, environ) or "").startswith(_BUCKET)


def warnings(words: Words, environ: Mapping[str, str]) -> Iterator[str]:
    """What works, and is probably not what is wanted."""
    if (words.value("enable_checkpointing", environ) or "true").lower() == "false":
        yield (
            "enable_checkpointing=false: after every loss of a slice, every restart and every "
            "requeue, training begins at step 0"
        )
