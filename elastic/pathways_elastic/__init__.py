# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a training program imports: a connection to the service, and training that goes on.

:func:`connect` makes JAX a client of the service. :mod:`pathways_elastic.manager` is for a loop
that goes on when slices are lost (docs/elastic.md), :mod:`pathways_elastic.autocheckpoint` for one
that saves before they go (docs/autocheckpoint.md). JAX is not loaded before one of them is used.
"""

from pathways_elastic.connection import connect

__all__ = ["connect"]
