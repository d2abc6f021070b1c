# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Has Slurm itself see to the end of what a service leaves, should nobody of it live to do so.

Where it can't be had, the service runs without it: that is no reason to have no service.
"""

import math
import sys
import time
from pathlib import Path

from pathways_slurm.config import Settings
from pathways_slurm.logs import get_logger
from pathways_slurm.scheduler.base import SchedulerError, SchedulerUnavailable
from pathways_slurm.schedulers import cleanup_job

_log = get_logger(__name__)

# After a submission that Slurm did not answer.
_TRY_AGAIN_S = 30.0


class Cleanup:
    """Of one service; does nothing where that is no job of Slurm's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._job = cleanup_job(settings)
        self._booked = False
        # An earlier process may have booked it, or a submission that was not answered.
        self._look = self._job is not None and self._job.may_be_booked
        self._tried = -math.inf

    @property
    def service_job(self) -> str:
        """The job that the service is, or ""."""
        return "" if self._job is None else self._job.service_job

    def adopt(self) -> None:
        """The service is one that an earlier process has begun."""
        self._look = True

    def book(self) -> None:
        """Submits the job, once; may be called again and again."""
        now = time.monotonic()
        if self._job is None or self._booked or now - self._tried < _TRY_AGAIN_S:
            return
        self._tried = now
        program = Path(sys.executable).parent / "pathways-slurm"
        try:
            if not self._look or not self._job.is_booked():
                self._job.book(
                    [
                        str(program),
                        "down",
                        f"--of-job={self.service_job}",
                        f"--timeout={self._job.patience_s:g}",
                    ],
                    {
                        "PATHWAYS_HOME": str(self._settings.home),
                        "PATHWAYS_NAME": self._settings.name,
                    },
                    self._settings.paths.component_log("cleanup"),
                )
            _log.info("a job waits to clean up, should all of this one be killed")
            self._booked = True
        except SchedulerUnavailable as error:
            self._look = True
            _log.warning("the job that cleans up is not booked yet", why=str(error))
        except SchedulerError as error:
            self._booked = True
            words = "nothing will clean up, should all of this job be killed"
            _log.warning(words, why=str(error))

    def withdraw(self) -> None:
        """Cancels it, as the service has ended in order."""
        if self._job is None:
            return
        try:
            self._job.cancel()
        except SchedulerUnavailable as error:
            _log.warning("the job that cleans up is left, and will find nothing", why=str(error))
