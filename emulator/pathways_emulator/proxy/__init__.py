# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The IFRT proxy: serves unmodified JAX clients on virtual CPU devices.

From the outside in: ``server`` (lifecycle) → ``service`` (gRPC) → ``session`` (one client, in
order) → ``handlers`` (one per request type) → ``arrays``, ``host_buffers`` and the other stores →
``executor`` (who computes). The names are those of XLA's own ifrt_proxy server.
"""
